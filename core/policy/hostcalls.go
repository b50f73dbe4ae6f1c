package policy

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/weir-gateway/weir/sdk/abi"
)

// What one call of a guest may say and ask for; the rest is dropped or refused, so that leaving native code cannot
// become the way to burn time that fuel does not see.
const (
	logLinesPerCall = 8
	logBytes        = 512
	randomBytes     = 4096
	wasiVectors     = 16
)

// WASI error numbers.
const (
	wasiOK     = 0
	wasiBadF   = 8
	wasiFault  = 21
	wasiInval  = 28
	wasiNoSys  = 52
	wasiNoTime = 1_000_000_000 // ns; the clock before the first decision: Go refuses to start at 0
)

var errExit = errors.New("the guest called proc_exit") // the guest's end, as a trap

// instanceKey finds the *instance behind the context that its calls are made with.
type instanceKey struct{}

func instanceOf(ctx context.Context) *instance { return ctx.Value(instanceKey{}).(*instance) }

// wasiTypes are the functions of the stub that a guest may import; wasiAnswers does the few that matter and every other
// one answers "not supported", which is what a guest without files, sockets and threads is told.
func wasiTypes() map[string]funcType {
	const i, I = typeI32, typeI64
	sig := func(result string, params ...byte) funcType { return funcType{string(params), result} }
	return map[string]funcType{
		"args_get": sig(i32, i, i), "args_sizes_get": sig(i32, i, i),
		"environ_get": sig(i32, i, i), "environ_sizes_get": sig(i32, i, i),
		"clock_res_get": sig(i32, i, i), "clock_time_get": sig(i32, i, I, i),
		"fd_advise": sig(i32, i, I, I, i), "fd_allocate": sig(i32, i, I, I), "fd_close": sig(i32, i),
		"fd_datasync": sig(i32, i), "fd_fdstat_get": sig(i32, i, i), "fd_fdstat_set_flags": sig(i32, i, i),
		"fd_fdstat_set_rights": sig(i32, i, I, I), "fd_filestat_get": sig(i32, i, i),
		"fd_filestat_set_size": sig(i32, i, I), "fd_filestat_set_times": sig(i32, i, I, I, i),
		"fd_pread": sig(i32, i, i, i, I, i), "fd_prestat_get": sig(i32, i, i),
		"fd_prestat_dir_name": sig(i32, i, i, i), "fd_pwrite": sig(i32, i, i, i, I, i),
		"fd_read": sig(i32, i, i, i, i), "fd_readdir": sig(i32, i, i, i, I, i), "fd_renumber": sig(i32, i, i),
		"fd_seek": sig(i32, i, I, i, i), "fd_sync": sig(i32, i), "fd_tell": sig(i32, i, i),
		"fd_write": sig(i32, i, i, i, i), "path_create_directory": sig(i32, i, i, i),
		"path_filestat_get":       sig(i32, i, i, i, i, i),
		"path_filestat_set_times": sig(i32, i, i, i, i, I, I, i),
		"path_link":               sig(i32, i, i, i, i, i, i, i),
		"path_open":               sig(i32, i, i, i, i, i, I, I, i, i),
		"path_readlink":           sig(i32, i, i, i, i, i, i), "path_remove_directory": sig(i32, i, i, i),
		"path_rename": sig(i32, i, i, i, i, i, i), "path_symlink": sig(i32, i, i, i, i, i),
		"path_unlink_file": sig(i32, i, i, i), "poll_oneoff": sig(i32, i, i, i, i), "proc_exit": sig("", i),
		"proc_raise": sig(i32, i), "random_get": sig(i32, i, i), "sched_yield": sig(i32),
		"sock_accept": sig(i32, i, i, i), "sock_recv": sig(i32, i, i, i, i, i, i),
		"sock_send": sig(i32, i, i, i, i, i), "sock_shutdown": sig(i32, i, i),
	}
}

// wasiAnswers are the functions of the stub that do something; the rest answers "not supported".
func wasiAnswers() map[string]api.GoModuleFunc {
	none := func(_ context.Context, mod api.Module, st []uint64) { // two counts of nothing
		if !mod.Memory().WriteUint32Le(uint32(st[0]), 0) || !mod.Memory().WriteUint32Le(uint32(st[1]), 0) {
			st[0] = wasiFault
			return
		}
		st[0] = wasiOK
	}
	ok := func(_ context.Context, _ api.Module, st []uint64) { st[0] = wasiOK }
	bad := func(_ context.Context, _ api.Module, st []uint64) { st[0] = wasiBadF }
	return map[string]api.GoModuleFunc{
		"args_sizes_get": none, "environ_sizes_get": none, "args_get": ok, "environ_get": ok,
		"fd_prestat_get": bad, "fd_fdstat_get": bad, "fd_close": bad,
		"fd_write": wasiWrite, "clock_time_get": wasiClock, "random_get": wasiRandom,
		"sched_yield": func(_ context.Context, _ api.Module, st []uint64) { clear(st[:min(len(st), 1)]) },
		"proc_exit":   func(context.Context, api.Module, []uint64) { panic(errExit) },
	}
}

// hostModules makes the two modules that guests may import from.
func hostModules(ctx context.Context, rt wazero.Runtime) error {
	log := rt.NewHostModuleBuilder(abi.ImportModule).NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(guestLog), valueTypes(i32+i32+i32), nil).Export(abi.ImportLog)
	if _, err := log.Instantiate(ctx); err != nil {
		return err
	}
	stub := rt.NewHostModuleBuilder(abi.ImportWASI)
	answers := wasiAnswers()
	for name, t := range wasiTypes() {
		f := answers[name]
		if f == nil {
			f = func(_ context.Context, _ api.Module, st []uint64) { st[0] = wasiNoSys }
		}
		stub = stub.NewFunctionBuilder().WithGoModuleFunction(f, valueTypes(t.params), valueTypes(t.results)).Export(name)
	}
	_, err := stub.Instantiate(ctx)
	return err
}

func valueTypes(s string) []api.ValueType { return []api.ValueType(s) }

func guestLog(ctx context.Context, mod api.Module, st []uint64) {
	level, ptr, n := uint32(st[0]), uint32(st[1]), uint32(st[2])
	if text, ok := mod.Memory().Read(ptr, min(n, logBytes)); ok {
		instanceOf(ctx).say(level, text)
	}
}

// wasiWrite takes what a guest prints, for example the text of its panic, as log lines.
func wasiWrite(ctx context.Context, mod api.Module, st []uint64) {
	iovs, n, out := uint32(st[1]), uint32(st[2]), uint32(st[3])
	if n > wasiVectors {
		st[0] = wasiInval
		return
	}
	mem, total := mod.Memory(), uint32(0)
	for i := range n {
		ptr, ok1 := mem.ReadUint32Le(iovs + 8*i)
		size, ok2 := mem.ReadUint32Le(iovs + 8*i + 4)
		text, ok3 := mem.Read(ptr, min(size, logBytes))
		if !ok1 || !ok2 || !ok3 {
			st[0] = wasiFault
			return
		}
		instanceOf(ctx).say(abi.LogWarn, text)
		total += size
	}
	st[0] = wasiOK
	if !mem.WriteUint32Le(out, total) {
		st[0] = wasiFault
	}
}

func wasiClock(ctx context.Context, mod api.Module, st []uint64) {
	ns := instanceOf(ctx).fact(abi.ReqNowMS) * 1_000_000
	if ns == 0 {
		ns = wasiNoTime
	}
	out := uint32(st[2])
	st[0] = wasiOK
	if !mod.Memory().WriteUint64Le(out, ns) {
		st[0] = wasiFault
	}
}

// wasiRandom spreads the request's entropy (splitmix64), so that the same facts give the same numbers.
func wasiRandom(ctx context.Context, mod api.Module, st []uint64) {
	ptr, n := uint32(st[0]), uint32(st[1])
	if n > randomBytes {
		st[0] = wasiInval
		return
	}
	buf, ok := mod.Memory().Read(ptr, n)
	if !ok {
		st[0] = wasiFault
		return
	}
	seed := instanceOf(ctx).fact(abi.ReqEntropy)
	var word [8]byte
	for len(buf) > 0 {
		seed += 0x9e3779b97f4a7c15
		z := (seed ^ seed>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		binary.LittleEndian.PutUint64(word[:], z^z>>31)
		buf = buf[copy(buf, word[:]):]
	}
	st[0] = wasiOK
}
