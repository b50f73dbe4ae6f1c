package policy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/weir-gateway/weir/sdk/abi"
)

// fault is why a call gave no decision.
type fault uint8

const (
	faultNone fault = iota
	faultTrap
	faultFuel
	faultAnswer // a response that breaks the ABI
	faultGuest  // weir_decide returned more than 1
	faultBusy   // every instance was taken
	faultQuarantined
	faultCold // an org's instances were not there in time
	faultDims // both modules together picked more dimensions than there may be
	nFaults
)

// String is the word in reports; empty: no fault.
func (f fault) String() string {
	return [nFaults]string{"", "trap", "out_of_fuel", "bad_response", "guest_error", "exhausted", "quarantined",
		"not_ready", "too_many_dimensions"}[f]
}

// instance is one live copy of a module with its own memory. One goroutine at a time; its slot sees to that. The
// views of the guest's memory stay good until close, because the memory never moves.
type instance struct {
	ctx    context.Context // carries the instance to its host calls; fixed, so a call allocates none
	mod    api.Module
	mem    experimental.LinearMemory
	decide api.Function
	fuel   api.MutableGlobal
	budget uint64
	req    *[abi.RequestSize]byte
	resp   *[abi.ResponseSize]byte
	stack  [1]uint64
	want   uint64 // attributes the guest reads
	lines  int    // log lines left in this call
	log    func(level uint32, text []byte)
	words  map[string]string // strings met in answers, so that a repeated one is not allocated again
	texts  int64             // what words take, in bytes
	deep   int64             // the stack that calls have left, in bytes
	books  booked            // what the instance takes beside its memory
}

// What an instance takes beside the guest's memory: about instanceBytes for stack, tables and globals; the stack of a
// call that went deep, which stays with it; and the texts of its answers. A frame costs at least a unit of fuel for every
// stackPerFuel bytes, and a call of shallowFuel units fits what is there from the start. A text takes wordBytes beside its
// own.
const (
	instanceBytes = 32 << 10
	stackPerFuel  = 16
	shallowFuel   = 10_000
	wordBytes     = 64
)

// weigh books the stack and the texts that the last call may have left.
func (in *instance) weigh() {
	in.deep = max(in.deep, stackPerFuel*(int64(in.spent())-shallowFuel))
	if size := instanceBytes + in.deep + in.texts; size > in.books.size {
		in.books.book(size)
	}
}

// booked keeps a sum of sizes up to date.
type booked struct {
	size    int64
	account func(delta int64) // nil: nobody counts
}

func (b *booked) book(size int64) {
	if b.account != nil {
		b.account(size - b.size)
	}
	b.size = size
}

// maxWords bounds instance.words; a guest that keeps inventing values only pays with allocations.
const maxWords = 1024

// open instantiates code and brings it to the point where it can decide: start code, _initialize, the addresses,
// and weir_configure with config (nil: not configured). account is kept up to date with what it takes (nil: nobody
// counts). The error of a guest that fails is about the guest.
func open(rt wazero.Runtime, code wazero.CompiledModule, p *profile, config []byte, log func(uint32, []byte),
	account func(int64)) (in *instance, err error) {
	in = &instance{log: log, lines: logLinesPerCall, budget: uint64(p.fuel), words: map[string]string{}, books: booked{account: account}}
	in.books.book(instanceBytes)
	in.ctx = context.WithValue(context.Background(), instanceKey{}, in)
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("instantiate: %v", r)
		}
		if err != nil {
			in.close()
			in = nil
		}
	}()
	withMemory := experimental.WithMemoryAllocator(in.ctx, experimental.MemoryAllocatorFunc(
		func(capacity, limit uint64) experimental.LinearMemory {
			in.mem = allocate(capacity, limit, account)
			return in.mem
		}))
	in.mod, err = rt.InstantiateModule(withMemory, code, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return in, fmt.Errorf("start code: %s", firstLine(err))
	}
	in.fuel = in.mod.ExportedGlobal(abi.ExportFuel).(api.MutableGlobal)
	return in, in.boot(p, config)
}

func (in *instance) boot(p *profile, config []byte) error {
	if in.mod.ExportedFunction(abi.ExportInitialize) != nil {
		if _, err := in.ask(p.startFuel, abi.ExportInitialize); err != nil {
			return err
		}
	}
	version, err := in.ask(p.fuel, abi.ExportVersion)
	if err != nil {
		return err
	}
	if v := uint32(version); v>>16 != abi.Major || v&0xffff > abi.Minor {
		return fmt.Errorf("%s is %d.%d, this host speaks %d.%d", abi.ExportVersion, v>>16, v&0xffff, abi.Major, abi.Minor)
	}
	in.want = ^uint64(0)
	if in.mod.ExportedFunction(abi.ExportAttributes) != nil {
		if in.want, err = in.ask(p.fuel, abi.ExportAttributes); err != nil {
			return err
		}
	}
	if err := in.buffers(p); err != nil {
		return err
	}
	if err := in.configure(p, config); err != nil {
		return err
	}
	in.decide = in.mod.ExportedFunction(abi.ExportDecide)
	return nil
}

// ask calls an export and gives its one result, if it has one.
func (in *instance) ask(budget int64, name string, args ...uint64) (uint64, error) {
	in.fuel.Set(uint64(budget))
	in.lines = logLinesPerCall
	res, err := in.mod.ExportedFunction(name).Call(in.ctx, args...)
	switch {
	case err != nil && int64(in.fuel.Get()) < 0:
		return 0, fmt.Errorf("%s used more than %d units of fuel", name, budget)
	case err != nil:
		return 0, fmt.Errorf("%s: %s", name, firstLine(err))
	case len(res) == 0:
		return 0, nil
	}
	return res[0], nil
}

func (in *instance) buffers(p *profile) error {
	req, err := in.view(p, abi.ExportRequest, abi.RequestSize)
	if err != nil {
		return err
	}
	resp, err := in.view(p, abi.ExportResponse, abi.ResponseSize)
	if err != nil {
		return err
	}
	in.req, in.resp = (*[abi.RequestSize]byte)(req), (*[abi.ResponseSize]byte)(resp)
	return nil
}

func (in *instance) view(p *profile, name string, size uint32) ([]byte, error) {
	addr, err := in.ask(p.fuel, name)
	if err != nil {
		return nil, err
	}
	if addr%abi.BufferAlign != 0 {
		return nil, fmt.Errorf("%s gave address %d, want a multiple of %d", name, addr, abi.BufferAlign)
	}
	buf, ok := in.mod.Memory().Read(uint32(addr), size)
	if !ok {
		return nil, fmt.Errorf("%s gave address %d: %d bytes from there are not all inside its memory of %d",
			name, addr, size, in.mod.Memory().Size())
	}
	return buf, nil
}

func (in *instance) configure(p *profile, config []byte) error {
	if config == nil || in.mod.ExportedFunction(abi.ExportConfigure) == nil {
		return nil
	}
	addr, err := in.ask(p.fuel, abi.ExportParamsBuffer, uint64(len(config)))
	if err != nil {
		return err
	}
	if addr == 0 {
		return fmt.Errorf("%s: the configuration of %d bytes is too big for the module", abi.ExportParamsBuffer, len(config))
	}
	if !in.mod.Memory().Write(uint32(addr), config) {
		return fmt.Errorf("%s gave address %d: %d bytes from there are not all inside its memory", abi.ExportParamsBuffer, addr, len(config))
	}
	code, err := in.ask(p.startFuel, abi.ExportConfigure, uint64(len(config)))
	if err == nil && uint32(code) != 0 {
		err = configureError(uint32(code))
	}
	return err
}

// configureError is the code with which a module refused its configuration.
type configureError uint32

// Error implements error.
func (e configureError) Error() string {
	return fmt.Sprintf("%s refused the configuration with code %d", abi.ExportConfigure, uint32(e))
}

// close frees the instance; its views are dead from here on.
func (in *instance) close() {
	if in.mod != nil {
		_ = in.mod.Close(in.ctx) // errors only for files and sockets, which guests have none of
	}
	if in.mem != nil {
		in.mem.Free() // again, for an instantiation that failed half way; harmless otherwise
	}
	in.req, in.resp = nil, nil
	in.books.book(0)
}

// spent is the fuel of the last call.
func (in *instance) spent() uint64 {
	if left := int64(in.fuel.Get()); left > 0 {
		return in.budget - uint64(left)
	}
	return in.budget
}

// size is the guest's memory in bytes.
func (in *instance) size() uint64 { return uint64(in.mod.Memory().Size()) }

// call runs weir_decide on f and reads the answer into d. Nothing is allocated unless the guest faults or its
// answer holds a string not met before.
func (in *instance) call(f *Facts, d *Decision, generation uint32, tiers int) fault {
	in.lines = logLinesPerCall
	in.write(f, generation)
	clear(in.resp[:abi.RespDims])
	in.fuel.Set(in.budget)
	if err := in.decide.CallWithStack(in.ctx, in.stack[:]); err != nil {
		if int64(in.fuel.Get()) < 0 {
			return faultFuel
		}
		in.say(abi.LogError, []byte(firstLine(err)))
		return faultTrap
	}
	switch uint32(in.stack[0]) {
	case abi.Decided:
		return in.read(d, tiers)
	case abi.Abstained:
		d.abstain()
		return faultNone
	}
	return faultGuest
}

// say passes a line on, as long as this call has lines left.
func (in *instance) say(level uint32, text []byte) {
	if in.lines <= 0 || len(text) == 0 {
		return
	}
	in.lines--
	in.log(level, text)
}

// fact reads one number of the request in force; 0 before the first.
func (in *instance) fact(off int) uint64 {
	if in.req == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(in.req[off:])
}

// word gives b as a string, the same one as the last time if it was met before.
func (in *instance) word(b []byte) string {
	if s, ok := in.words[string(b)]; ok {
		return s
	}
	if len(in.words) >= maxWords {
		clear(in.words)
		in.texts = 0
	}
	s := string(b)
	in.words[s] = s
	in.texts += int64(len(s)) + wordBytes
	return s
}

// firstLine drops the guest's stack trace.
func firstLine(err error) string {
	if errors.Is(err, errExit) {
		return errExit.Error()
	}
	s, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimSuffix(s, " (recovered by wazero)")
}
