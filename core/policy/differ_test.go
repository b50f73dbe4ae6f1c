package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/policies"
	"github.com/weir-gateway/weir/sdk/abi"
)

// pair is a module as it is and metered, both in this process.
type pair struct{ plain, metered api.Module }

func newPair(t testing.TB, rt wazero.Runtime, src []byte, p *profile) *pair {
	t.Helper()
	m, err := parse(src, p)
	if err != nil {
		t.Fatal(err)
	}
	metered, err := m.meter()
	if err != nil {
		t.Fatal(err)
	}
	x := &pair{}
	for _, c := range []struct {
		src []byte
		to  *api.Module
	}{{src, &x.plain}, {metered, &x.metered}} {
		code, err := rt.CompileModule(context.Background(), c.src)
		if err != nil {
			t.Fatal(err)
		}
		// Host calls find an instance that has nothing left to say.
		ctx := context.WithValue(context.Background(), instanceKey{}, &instance{})
		if *c.to, err = rt.InstantiateModule(ctx, code, wazero.NewModuleConfig().WithName("").WithStartFunctions()); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

func (x *pair) close() {
	_ = x.plain.Close(context.Background())
	_ = x.metered.Close(context.Background())
}

// call calls an export of both and wants the same results, traps and memory; used is the metered one's fuel.
func (x *pair) call(t testing.TB, name string, args ...uint64) (result []uint64, used int64) {
	t.Helper()
	const plenty = 1 << 40
	return x.within(t, plenty, name, args...)
}

// within is call with so much fuel: the metered one goes first, and where it has not enough the plain one, which might
// never end, does not run at all; used is then more than fuel.
func (x *pair) within(t testing.TB, fuel int64, name string, args ...uint64) (result []uint64, used int64) {
	t.Helper()
	ctx := context.WithValue(context.Background(), instanceKey{}, &instance{})
	left := x.metered.ExportedGlobal(abi.ExportFuel).(api.MutableGlobal)
	left.Set(uint64(fuel))
	b, errB := x.metered.ExportedFunction(name).Call(ctx, args...)
	if used = fuel - int64(left.Get()); used > fuel {
		return nil, used
	}
	a, errA := x.plain.ExportedFunction(name).Call(ctx, args...)
	if firstOf(errA) != firstOf(errB) || !slices.Equal(a, b) {
		t.Fatalf("%s%v: plain gives %x %v, metered %x %v", name, args, a, firstOf(errA), b, firstOf(errB))
	}
	x.sameMemory(t, name)
	if used <= 0 {
		t.Fatalf("%s ran for free", name)
	}
	return a, used
}

func (x *pair) sameMemory(t testing.TB, after string) {
	t.Helper()
	m, n := x.plain.Memory(), x.metered.Memory()
	if m.Size() != n.Size() {
		t.Fatalf("after %s: %d bytes of memory, metered %d", after, m.Size(), n.Size())
	}
	l, _ := m.Read(0, m.Size())
	r, _ := n.Read(0, n.Size())
	if !bytes.Equal(l, r) {
		t.Fatalf("after %s: the memories differ", after)
	}
}

// decide does what the host does before a call, on both.
func (x *pair) decide(t *testing.T, f *Facts, req uint32, want uint64) uint64 {
	t.Helper()
	for _, m := range []api.Module{x.plain, x.metered} {
		buf, ok := m.Memory().Read(req, abi.RequestSize)
		if !ok {
			t.Fatal("the request is not in memory")
		}
		(&instance{req: (*[abi.RequestSize]byte)(buf), want: want}).write(f, 1)
	}
	r, _ := x.call(t, abi.ExportDecide)
	return r[0]
}

// TestDifferentialShipped: metered, the shipped modules answer bit by bit as they are.
func TestDifferentialShipped(t *testing.T) {
	ctx := context.Background()
	rt, cache, err := newRuntime(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close(ctx)
	defer rt.Close(ctx)
	p, err := profileOf(ProfileSmall)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range policies.Names() {
		t.Run(name, func(t *testing.T) {
			wasm, _ := policies.Shipped(name)
			x := newPair(t, rt, wasm, p)
			defer x.close()
			m, err := parse(wasm, p)
			if err != nil {
				t.Fatal(err)
			}
			var file caseFile
			if err := json.Unmarshal(m.custom[abi.SectionCases], &file); err != nil {
				t.Fatal(err)
			}
			c := file.Configure
			x.configure(t, c.Tiers, c.Labels, c.Params)
			req, _ := x.call(t, abi.ExportRequest)
			answers := map[uint64]int{}
			for _, one := range file.Cases {
				f, err := ParseFacts(one.Facts, c.Tiers, c.Labels)
				if err != nil {
					t.Fatal(err)
				}
				answers[x.decide(t, f, uint32(req[0]), ^uint64(0))]++
				rnd := rand.New(rand.NewPCG(7, f.Entropy))
				for range 20 {
					vary(f, rnd)
					answers[x.decide(t, f, uint32(req[0]), ^uint64(0))]++
				}
			}
			if answers[abi.Decided] == 0 {
				t.Errorf("nothing was decided: %v", answers)
			}
		})
	}
}

// configure hands both the configuration.
func (x *pair) configure(t *testing.T, tiers, labels []string, params []byte) {
	t.Helper()
	if x.plain.ExportedFunction(abi.ExportInitialize) != nil {
		x.call(t, abi.ExportInitialize)
	}
	if x.plain.ExportedFunction(abi.ExportConfigure) == nil {
		return
	}
	config, err := configuration(tiers, labels, params)
	if err != nil {
		t.Fatal(err)
	}
	at, _ := x.call(t, abi.ExportParamsBuffer, uint64(len(config)))
	for _, m := range []api.Module{x.plain, x.metered} {
		if !m.Memory().Write(uint32(at[0]), config) {
			t.Fatal("the configuration is not in memory")
		}
	}
	if got, _ := x.call(t, abi.ExportConfigure, uint64(len(config))); got[0] != 0 {
		t.Fatalf("refused its own params with %d", got[0])
	}
}

// vary changes some of the facts.
func vary(f *Facts, rnd *rand.Rand) {
	f.Entropy, f.Flags, f.Tier = rnd.Uint64(), rnd.Uint32N(32), rnd.Uint32N(4)
	f.MinuteOfWeek, f.DayOfMonth = rnd.Uint32N(10080), uint16(1+rnd.IntN(31))
	f.QuotaUsed, f.QPSLimit, f.TPMLimit = f.QuotaLimit/100*llm.Micro(rnd.IntN(130)), rnd.Int64N(100), rnd.Int64N(100_000)
	for i := range f.Attr {
		switch rnd.IntN(8) {
		case 0:
			f.Attr[i] = ""
		case 1:
			f.Attr[i] += string(rune('a' + rnd.IntN(26)))
		}
	}
}

// TestDifferentialRandom: metered, modules of random valid code compute what they do as they are.
func TestDifferentialRandom(t *testing.T) {
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithMemoryLimitPages(64))
	defer rt.Close(ctx)
	p := generous()
	p.pages = 16
	modules := 80
	if *long {
		modules = 5000
	}
	traps := 0
	for seed := range uint64(modules) {
		src := randomModule(rand.New(rand.NewPCG(seed, 11)))
		x := newPair(t, rt, src, p)
		for arg := range uint64(4) {
			r, _ := x.call(t, "f", arg*0x9e3779b9, arg)
			if r == nil {
				traps++
			}
		}
		x.close()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if traps == 0 || traps > modules*3 {
		t.Errorf("%d of %d calls trapped", traps, modules*4)
	}
}

// writer writes random code. Every function is (i32, i64) -> i64, with locals of both types and one counter for each
// depth of loops; it calls only those before it, so that all of them end.
type writer struct {
	*rand.Rand
	fn, loops int
}

const (
	local32, n32   = 0, 4 // 0 is the parameter
	local64, n64   = 1, 4 // 1 is the parameter
	first64        = 2 + 3
	firstCount     = first64 + 3
	maxLoops       = 3
	randomFuncs    = 5
	randomMaxBytes = 0x0fff
)

func (w *writer) get(is64 bool) []byte { return cat([]byte{opLocalGet}, w.local(is64)) }

// local is the index of a local of a type.
func (w *writer) local(is64 bool) []byte {
	if i := w.IntN(n32); is64 {
		return []byte{[]byte{local64, first64, first64 + 1, first64 + 2}[i]}
	} else {
		return []byte{[]byte{local32, 2, 3, 4}[i]}
	}
}

func (w *writer) address(depth int) []byte {
	return cat(w.expr(false, depth-1), c32(randomMaxBytes), []byte{0x71})
}

// expr leaves one value.
func (w *writer) expr(is64 bool, depth int) []byte {
	pick := w.IntN(10)
	if depth <= 0 {
		pick %= 2
	}
	op := func(of32, of64 []byte) []byte {
		if is64 {
			return []byte{of64[w.IntN(len(of64))]}
		}
		return []byte{of32[w.IntN(len(of32))]}
	}
	switch pick {
	case 0:
		if is64 {
			return c64(w.Int64() >> w.IntN(64))
		}
		return c32(w.Uint32() >> w.IntN(32))
	case 1:
		return w.get(is64)
	case 2, 3, 4:
		return cat(w.expr(is64, depth-1), w.expr(is64, depth-1), op(
			[]byte{0x6a, 0x6b, 0x6c, 0x6e, 0x70, 0x71, 0x72, 0x73, 0x74, 0x76, 0x77, 0x46, 0x49},
			[]byte{0x7c, 0x7d, 0x7e, 0x80, 0x82, 0x83, 0x84, 0x85, 0x86, 0x88, 0x89}))
	case 5:
		return cat(w.expr(is64, depth-1), op([]byte{0x67, 0x68, 0x69, 0x45, 0xc0}, []byte{0x79, 0x7a, 0x7b, 0xc2, 0xc4}))
	case 6:
		if is64 {
			return cat(w.address(depth), []byte{0x29, 0, 7})
		}
		return cat(w.address(depth), []byte{0x28, 1, 3})
	case 7:
		if is64 {
			return cat(w.expr(false, depth-1), []byte{[]byte{0xac, opI64ExtendU}[w.IntN(2)]})
		}
		return cat(w.expr(true, depth-1), []byte{0xa7})
	case 8:
		return cat(w.expr(is64, depth-1), w.expr(is64, depth-1), w.expr(false, depth-1), []byte{0x1b})
	}
	if is64 && w.fn > 0 && w.loops == 0 {
		return cat(w.expr(false, depth-1), w.expr(true, depth-1), []byte{opCall, byte(w.IntN(w.fn))})
	}
	return cat([]byte{opBlock, map[bool]byte{false: typeI32, true: typeI64}[is64]}, w.stmts(depth-1), w.expr(is64, depth-1), []byte{opEnd})
}

func (w *writer) stmts(depth int) (out []byte) {
	for range 1 + w.IntN(3) {
		out = append(out, w.stmt(depth)...)
	}
	return out
}

// stmt leaves the stack as it was.
func (w *writer) stmt(depth int) []byte {
	is64 := w.IntN(2) == 0
	size := func() []byte { return cat(w.expr(false, 1), c32(63), []byte{0x71}) }
	switch pick := w.IntN(12); {
	case depth <= 0 || pick < 3:
		return cat(w.expr(is64, min(depth, 3)), []byte{0x21}, w.local(is64))
	case pick == 3:
		return cat(w.address(depth), w.expr(true, depth-1), []byte{0x37, 0, 0})
	case pick == 4:
		return cat(w.address(depth), w.expr(false, depth-1), []byte{0x3a, 0, 0})
	case pick == 5:
		return cat(w.expr(false, depth-1), []byte{opIf, blockEmpty}, w.stmts(depth-1), []byte{opElse}, w.stmts(depth-1), []byte{opEnd})
	case pick == 6:
		return cat([]byte{opBlock, blockEmpty}, w.stmts(depth-1), w.expr(false, depth-1), []byte{opBrIf, 0}, w.stmts(depth-1), []byte{opEnd})
	case pick == 7 && w.loops < maxLoops:
		counter := byte(firstCount + w.loops)
		w.loops++
		body := w.stmts(depth - 1)
		w.loops--
		return cat(c32(1+w.Uint32N(6)), []byte{0x21, counter, opLoop, blockEmpty}, body,
			[]byte{opLocalGet, counter}, c32(1), []byte{0x6b, opLocalTee, counter, opBrIf, 0, opEnd})
	case pick == 8:
		return cat([]byte{opBlock, blockEmpty, opBlock, blockEmpty, opBlock, blockEmpty}, w.expr(false, depth-1), []byte{opBrTable, 3, 0, 1, 2, 1, opEnd},
			w.stmts(depth-1), []byte{opEnd}, w.stmts(depth-1), []byte{opEnd})
	case pick == 9:
		return cat(w.address(depth), w.expr(false, 1), size(), []byte{opPrefix, 11, 0})
	case pick == 10:
		return cat(w.address(depth), w.address(depth), size(), []byte{opPrefix, 10, 0, 0})
	}
	if w.IntN(4) == 0 {
		return cat(c32(w.Uint32N(2)), []byte{opMemoryGrow, 0, 0x21}, w.local(false))
	}
	return cat([]byte{opGlobalGet, 0}, w.expr(true, depth-1), []byte{0x85, opGlobalSet, 0})
}

func randomModule(rnd *rand.Rand) []byte {
	a := &asm{memory: []byte{1, 1, 4}, exports: []export{{abi.ExportMemory, extMemory, 0}}, globals: []byte{typeI64, 1, opI64Const, 0, opEnd}, nglob: 1}
	for i := range randomFuncs {
		w := &writer{Rand: rnd, fn: i}
		f := asmFunc{typ: funcType{i32 + i64, i64}, locals: []byte{3, 3, typeI32, 3, typeI64, maxLoops, typeI32}}
		f.body = cat(w.stmts(5), w.expr(true, 4), []byte{opGlobalGet, 0, 0x85})
		if i == randomFuncs-1 {
			f.name = "f"
		}
		a.with(f)
	}
	return a.bytes()
}
