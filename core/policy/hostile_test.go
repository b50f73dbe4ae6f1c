package policy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/sdk/abi"
)

// recursion calls itself twice per level, depth levels deep, without a loop: 2^depth calls.
func recursion(depth int) *asm {
	a := guest([]byte{opCall, 4}, c32(0))
	for i := range depth {
		callee := byte(4 + i + 1)
		a.with(asmFunc{typ: funcType{}, body: []byte{opCall, callee, opCall, callee}})
	}
	return a.with(asmFunc{typ: funcType{}, body: []byte{0x01}})
}

func TestP01FuelStopsEverything(t *testing.T) {
	page := uint32(1 << 16)
	wide := asmFunc{typ: funcType{}, locals: cat([]byte{1}, uleb(200), []byte{typeI64}), body: []byte{opCall, 4}}
	for _, c := range []struct {
		name string
		a    *asm
	}{
		{"endless loop", guest(loop())},
		{"endless loop with work", guest(loop(c32(3), c32(5), []byte{0x6e, 0x1a}))},
		{"exponential calls", recursion(40)},
		{"memory.fill in a loop", guest(loop(c32(0), c32(7), c32(page), []byte{opPrefix, 11, 0}))},
		{"memory.copy in a loop", guest(loop(c32(0), c32(8), c32(page-8), []byte{opPrefix, 10, 0, 0}))},
		{"unbounded recursion", guest([]byte{opCall, 4}, c32(0)).with(asmFunc{typ: funcType{}, body: []byte{opCall, 4}})},
		{"recursion with wide frames", guest([]byte{opCall, 4}, c32(0)).with(wide)},
		{"memory.grow for ever", guest(loop(c32(1), []byte{opMemoryGrow, 0, 0x1a}))},
		{"memory.grow by nothing", guest(loop(c32(0), []byte{opMemoryGrow, 0, 0x1a}))},
		{"division in a loop", guest(loop(c64(1<<62), c64(3), []byte{0x80, 0x1a}))},
		{"logging in a loop", logger([]byte{opCall, 0})},
		{"logging through a table", logger(c32(0), []byte{opCallIndirect, 0, 0})},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := serve(t, c.a, OnErrorDefault)
			var d Decision
			worst, best := time.Duration(0), time.Hour
			for range 5 {
				h.settle(t)
				took := spent(func() { h.Decide(sampleFacts(), &d) })
				worst, best = max(worst, took), min(best, took)
				if d.Fault != "out_of_fuel" || !d.Abstained {
					t.Fatalf("fault %q", d.Fault)
				}
			}
			// Other load slows single calls: what the module costs is its best time, of which the contract allows 10 ms.
			if best > patience*5*time.Millisecond {
				t.Errorf("a call took %v at best, want <= 5ms", best)
			}
			t.Logf("best %v, worst %v", best, worst)
		})
	}
}

// logger calls weir.log for ever, by call; it stands in the table too.
func logger(call ...[]byte) *asm {
	a := guest()
	a.imports = []importedFunc{{module: "weir", name: "log"}}
	a.impTyp = []funcType{{i32 + i32 + i32, ""}}
	a.table = []byte{1, typeFuncref, 0, 1}
	a.elem = []byte{1, 0, opI32Const, 0, opEnd, 1, 0}
	a.funcs[0].body = loop(c32(1), c32(0), c32(512), cat(call...))
	return a
}

// A guest that is slow everywhere is refused in the child or bounded there, never in this process.
func TestP01StartCodeIsBounded(t *testing.T) {
	endless := asmFunc{typ: funcType{}, body: cat([]byte{opLoop, blockEmpty, 0x0c, 0, opEnd}), name: abi.ExportInitialize}
	h := newHost(t, Options{})
	_, err := h.Add(context.Background(), "m", guest(allow(1)).with(endless).bytes(), "")
	wantRefusal(t, err, "_initialize used more than 5000000 units of fuel")
	a := guest(allow(1)).with(asmFunc{typ: funcType{}, body: endless.body})
	a.start = len(a.funcs)
	_, err = h.Add(context.Background(), "m", a.bytes(), "")
	wantRefusal(t, err, "start code")
	a = guest(allow(1)).configurable(loop())
	mustAdd(t, h, "m", a.bytes())
	wantRefusal(t, h.Activate(context.Background(), &Binding{Module: "m"}, wide()), "weir_configure used more")
}

func wantRefusal(t *testing.T, err error, want string) {
	t.Helper()
	var e *llm.Error
	if !errors.As(err, &e) || e.Kind != llm.KindInvalid || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want a refusal with %q", err, want)
	}
}

func TestP02OneTrapInAHundred(t *testing.T) {
	h := serve(t, guest(trapWhenEntropyIs(0), allow(700)), OnErrorDefault)
	f, d := sampleFacts(), new(Decision)
	for i := range 2000 {
		f.Entropy = uint64(i % 100)
		if i%100 == 0 {
			h.settle(t)
		}
		h.Decide(f, d)
		if i%100 == 0 && (d.Fault != "trap" || !d.Abstained) || i%100 != 0 && (d.Fault != "" || d.QPS != 700) {
			t.Fatalf("call %d: %+v", i, d)
		}
	}
	if s := h.Stats(); s.Traps != 20 || s.Calls != 2000 || s.Quarantined != 0 {
		t.Errorf("stats %+v", s)
	}
}

// The counter in the guest's memory shows which instance answers: after a trap it is a fresh one.
func TestP02FreshInstanceAfterATrap(t *testing.T) {
	count := cat(c32(0x8000), ld32(0x8000), c32(1), []byte{0x6a, 0x36, 0, 0})
	h := serve(t, guest(count, trapWhenEntropyIs(0), st16(respAt, 1), c32(respAt+abi.RespRetryAfterMS), ld32(0x8000), []byte{0x36, 0, 0}, c32(0)), OnErrorDefault)
	f, d := sampleFacts(), new(Decision)       // the same facts lead to the same slot
	t.Cleanup(func() { runtime.KeepAlive(f) }) // by their address, which must not move with a stack
	f.Entropy = 1
	for want := uint32(1); want <= 3; want++ {
		if h.Decide(f, d); d.RetryAfterMS != want {
			t.Fatalf("call %d of the instance, want %d", d.RetryAfterMS, want)
		}
	}
	f.Entropy = 0
	h.Decide(f, d)
	h.settle(t)
	f.Entropy = 1
	if h.Decide(f, d); d.RetryAfterMS != 1 {
		t.Errorf("the instance has answered %d times, want a fresh one", d.RetryAfterMS)
	}
}

func TestP02MemoryGrowthEndsAtTheCap(t *testing.T) {
	// Grows by a page each call; answers with the size before, -1 when there is no more.
	h := serve(t, guest(st16(respAt, 1), c32(respAt+abi.RespRetryAfterMS), c32(1), []byte{opMemoryGrow, 0, 0x36, 0, 0}, c32(0)), OnErrorDefault)
	f, d := sampleFacts(), new(Decision)
	for i := uint32(1); i <= 40; i++ {
		want := i
		if i > 15 {
			want = 0xffffffff
		}
		if h.Decide(f, d); d.Fault != "" || d.RetryAfterMS != want {
			t.Fatalf("call %d: memory.grow gave %d (fault %q), want %d", i, int32(d.RetryAfterMS), d.Fault, int32(want))
		}
	}
}

func TestP03OverwrittenBytes(t *testing.T) {
	wasm := guest(sixDims()).configurable(c32(0)).bytes()
	h := newHost(t, Options{})
	mustAdd(t, h, "good", guest(allow(700)).bytes())
	mustActivate(t, h, Binding{Module: "good"}, wide())
	places := 200
	if testing.Short() {
		places = 20
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	refused, child, most, peak := 0, 0, 0, peakOf(t, &h.o)
	for range places {
		bad := bytes.Clone(wasm)
		binary.LittleEndian.PutUint32(bad[rnd.IntN(len(bad)-4):], rnd.Uint32())
		began := time.Now()
		_, err := h.Add(context.Background(), "bad", bad, "")
		if took := time.Since(began); took > patience*time.Second {
			t.Errorf("took %v", took)
		}
		var e *llm.Error
		switch {
		case err == nil:
			// It is a valid module still, a constant has changed; its answers must not hurt either.
			if err := h.Activate(context.Background(), &Binding{Module: "bad"}, wide()); err == nil {
				var d Decision
				h.Decide(sampleFacts(), &d)
			}
			mustActivate(t, h, Binding{Module: "good"}, wide())
		case !errors.As(err, &e) || e.Kind != llm.KindInvalid:
			t.Fatalf("error %v, want a refusal", err)
		default:
			refused++
			most = max(most, small(t, peak))
			if strings.Contains(err.Error(), "not valid") {
				child++
			}
		}
		var d Decision
		if h.Decide(sampleFacts(), &d); d.QPS != 700 || d.Fault != "" {
			t.Fatalf("the old version does not serve: %+v", d)
		}
	}
	t.Logf("%d of %d refused, %d of them by the compiler; a child had %d KiB resident at most", refused, places, child, most>>10)
}

// full is as much code as profile small allows, in bodies as long as it allows, of a module that says it is of an ABI
// version.
func full(version uint32) *asm {
	a := guest(c32(0))
	a.funcs[1].body = c32(version)
	a.globals, a.nglob = []byte{typeI64, 1, opI64Const, 0, opEnd}, 1
	many := cat(bytes.Repeat(cat(c32(8), []byte{0x29, 0, 0}), 4000), gather(4000))
	for range 255 * 1024 / len(many) {
		a.with(asmFunc{typ: funcType{}, body: many})
	}
	return a
}

// branches is the same of so many bytes of br_tables, whose every target is a jump.
func branches(size int) *asm {
	a := guest(c32(0))
	a.funcs[1].body = c32(2 << 16)
	many := bytes.Repeat(storm(512), 10)
	for range size / len(many) {
		a.with(asmFunc{typ: funcType{}, body: many})
	}
	return a
}

// small wants that the last child, if there was one, had less than 64 MiB resident, its own program included.
func small(t *testing.T, peak func() (int, bool)) int {
	t.Helper()
	n, _ := peak()
	if patience == 1 && n > 64<<20 {
		t.Errorf("the compile child had %d KiB resident, want < 64 MiB", n>>10)
	}
	return n
}

func TestP03Bombs(t *testing.T) {
	blocks := func(n int) *asm {
		return guest(bytes.Repeat([]byte{opBlock, blockEmpty}, n), bytes.Repeat([]byte{opEnd}, n), c32(0))
	}
	functions := func(n int) []byte { // one type, n functions of it
		out := appendSection([]byte(header), secType, []byte{1, 0x60, 0, 0})
		out = appendSection(out, secFunction, cat(uleb(uint64(n)), make([]byte, n)))
		return appendSection(out, secCode, cat(uleb(uint64(n)), bytes.Repeat([]byte{2, 0, opEnd}, n)))
	}
	locals := guest(c32(0))
	locals.funcs[0].locals = cat([]byte{1}, uleb(1<<32-1), []byte{typeI64})
	groups := guest(c32(0))
	groups.funcs[0].locals = cat(uleb(200), bytes.Repeat(cat(uleb(1<<31), []byte{typeI64}), 200))
	manyLocals := guest(c32(0))
	for range 1000 {
		manyLocals.with(asmFunc{typ: funcType{}, locals: cat([]byte{1}, uleb(250), []byte{typeI64})})
	}
	brTable := guest(c32(0), []byte{opBrTable}, uleb(600), make([]byte, 601), c32(0))
	big := guest(bytes.Repeat([]byte{0x01}, 33<<10), c32(0))
	memory := guest(c32(0))
	memory.memory = []byte{1, 17, 17}
	table := guest(c32(0))
	table.table = cat([]byte{1, typeFuncref, 0}, uleb(1<<31))
	missing := guest(c32(0))
	missing.funcs[0].name = "weir_decyde"
	unknown := guest(c32(0))
	unknown.imports, unknown.impTyp = []importedFunc{{module: "env", name: "abort"}}, []funcType{{i32, ""}}
	wasi := guest(c32(0))
	wasi.imports, wasi.impTyp = []importedFunc{{module: abi.ImportWASI, name: "fd_write"}}, []funcType{{i32 + i32 + i32 + i32, i32}}
	fuel := guest(c32(0))
	fuel.globals, fuel.nglob = []byte{typeI64, 1, opI64Const, 0, opEnd}, 1
	fuel.exports = append(fuel.exports, export{abi.ExportFuel, extGlobal, 0})
	simd := guest([]byte{opSIMD, 0x0c}, make([]byte, 16), []byte{0x1a}, c32(0))
	version := guest(c32(0))
	version.funcs[1].body = c32(2 << 16)
	newer := guest(c32(0))
	newer.funcs[1].body = c32(abi.Version + 1)
	outside := guest(c32(0))
	outside.funcs[2].body = c32(1<<16 - 16)
	skewed := guest(c32(0))
	skewed.funcs[3].body = c32(respAt + 8)
	for _, c := range []struct {
		name string
		wasm []byte
		want string
	}{
		{"empty file", nil, "not a WebAssembly module"},
		{"text", []byte("(module)"), "not a WebAssembly module"},
		{"200 MB", make([]byte, 200<<20), "bytes: 209715200, the cap of profile small is 262144"},
		{"missing export", missing.bytes(), `export "weir_decide" is missing: want a function ()->(i32) (nearest: "weir_decyde")`},
		{"unknown import", unknown.bytes(), "import env.abort is not offered"},
		{"WASI under small", wasi.bytes(), "WASI is for profile large"},
		{"30,000 nested blocks", blocks(7_000).bytes(), "function 0: nested blocks: 65, the cap of profile small is 64"},
		{"30,000 nested blocks, large body", blocks(30_000).bytes(), "function 0: body bytes: 90004, the cap of profile small is 32768"},
		{"1 M functions", functions(1_000_000)[:256<<10], "malformed"},
		{"80 k functions", functions(60_000), "functions: 60000, the cap of profile small is 2000"},
		{"locals bomb", locals.bytes(), "function 0: locals: 4294967295, the cap of profile small is 256"},
		{"locals bomb in groups", groups.bytes(), "function 0: locals: 2147483648, the cap of profile small is 256"},
		{"locals in many functions", manyLocals.bytes(), "locals of all functions so far"},
		{"br_table", brTable.bytes(), "function 0: br_table targets: 600, the cap of profile small is 512"},
		{"large body", big.bytes(), "body bytes"},
		{"large memory", memory.bytes(), "memory: initial pages of 64 KiB: 17, the cap of profile small is 16"},
		{"large table", table.bytes(), "table 0: elements: 2147483648, the cap of profile small is 1024"},
		{"names the fuel", fuel.bytes(), `export "__weir_fuel": the name belongs to the host`},
		{"reads the fuel", guest([]byte{opGlobalGet, 0, 0x1a}, c32(0)).bytes(), "global 0 of 0"},
		{"writes the fuel", guest(c64(1), []byte{opGlobalSet, 0}, c32(0)).bytes(), "global 0 of 0"},
		{"reads the scratch local", guest([]byte{opLocalGet, 0}, c32(0), []byte{opMemoryGrow, 0, 0x1a, 0x1a}, c32(0)).bytes(), "local 0 of 0"},
		{"SIMD", simd.bytes(), ": SIMD is not allowed"},
		{"unknown operator", guest([]byte{0xfe, 0}, c32(0)).bytes(), "unknown operator 0xfe"},
		{"tail call", guest([]byte{0x12, 0}).bytes(), "unknown operator 0x12"},
		{"wrong types", guest(c64(0)).bytes(), "not valid"},
		{"other major", version.bytes(), "weir_abi_version is 2.0, this host speaks 1.0"},
		{"newer minor", newer.bytes(), "weir_abi_version is 1.1, this host speaks 1.0"},
		{"buffer outside", outside.bytes(), "not all inside its memory of 65536"},
		{"buffer not aligned", skewed.bytes(), "want a multiple of 16"},
		{"a whole upload of code, then another major", full(2 << 16).bytes(), "weir_abi_version is 2.0"},
		{"a whole upload of branches", branches(255 << 10).bytes(), "br_table targets of all functions so far: 66"},
		{"as many branches as are allowed, then another major", branches(64 << 10).bytes(), "weir_abi_version is 2.0"},
		{"unknown section", guest(c32(0)).section("weir.case", "{}").bytes(), `custom section "weir.case" is unknown`},
		{"bad schema", guest(c32(0)).section(abi.SectionSchema, `{"type":7}`).bytes(), "section weir.schema"},
		{"schema from elsewhere", guest(c32(0)).section(abi.SectionSchema, `{"$ref":"file:///etc/passwd"}`).bytes(), "must not refer to other documents"},
		{"bad cases", guest(c32(0)).section(abi.SectionCases, `{"case":[]}`).bytes(), "cases: json: unknown field"},
		{"failing case", guest(allow(5)).section(abi.SectionCases, `{"cases":[{"name":"x","facts":{},"want":{"qps_permille":6}}]}`).bytes(),
			`case "x" failed: qps_permille: got 5, want 6`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var o Options
			peak := peakOf(t, &o)
			h := newHost(t, o)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := time.Now()
			_, err := h.Add(context.Background(), "m", c.wasm, "")
			took := time.Since(began)
			runtime.ReadMemStats(&after)
			wantRefusal(t, err, c.want)
			child, within := small(t, peak), time.Duration(patience)
			if child > 0 && !*long {
				within *= 10 // the child is nice: other load comes first
			}
			t.Logf("in %v; the compile child had %d KiB resident", took, child>>10)
			if took > within*time.Second {
				t.Errorf("refused after %v, want < 1s", took)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
				t.Errorf("allocated %d bytes on the way, want < 64 MiB", n)
			}
		})
	}
}

// The schema language can describe work without end; only the child meets it, and is killed.
func TestP03EndlessSchemaIsKilledInTheChild(t *testing.T) {
	schema := `{"$ref":"#/$defs/0","$defs":{`
	for i := range 60 {
		schema += fmt.Sprintf(`"%d":{"allOf":[{"$ref":"#/$defs/%d"},{"$ref":"#/$defs/%d"}]},`, i, i+1, i+1)
	}
	schema += `"60":{}}}`
	h := newHost(t, Options{})
	mustAdd(t, h, "m", guest(allow(1)).section(abi.SectionSchema, schema).bytes())
	m := h.Modules()[0]
	p, err := profileOf(ProfileSmall)
	if err != nil {
		t.Fatal(err)
	}
	j := &job{Profile: p.name, CacheDir: t.TempDir(), Schema: m.Schema, Setups: []setup{{Params: []byte("{}")}}}
	if !*long {
		p.wall = 300 * time.Millisecond
		_, err = runChild(context.Background(), &h.o, p, j)
		wantRefusal(t, err, "took longer than the 300ms of profile small")
		return
	}
	p.wall = time.Minute
	_, err = runChild(context.Background(), &h.o, p, j)
	wantRefusal(t, err, "more than the 5 s of CPU of profile small")
}

var long = flag.Bool("long", false, "run every spec-test binary, 5,000 random modules and 5,000 reloads, the standard-Go guest and the slow limits of the child")

func TestP05AnswersOutOfRange(t *testing.T) {
	base := cat(st16(respAt, 1), st16(respAt+abi.RespNDims, 1), st8(respAt+abi.RespDims, abi.KindKey))
	dim := func(off int) uint32 { return uint32(respAt + abi.RespDims + off) }
	custom := cat(base, st8(dim(abi.DimKind), abi.KindCustom))
	at := func(off int) uint32 { return uint32(respAt + off) }
	for _, c := range []struct {
		name string
		body []byte
	}{
		{"nothing written", nil},
		{"major", st16(at(abi.RespMajor), 2)},
		{"n_dims", cat(base, st16(at(abi.RespNDims), 65535))},
		{"n_dims 17", cat(base, st16(at(abi.RespNDims), 17))},
		{"verdict", cat(base, st8(at(abi.RespVerdict), 77))},
		{"flags", cat(base, st8(at(abi.RespFlags), 4))},
		{"tier", cat(base, st16(at(abi.RespTier), 65535))},
		{"tier past the last", cat(base, st16(at(abi.RespTier), 3))},
		{"qps multiplier", cat(base, st32(at(abi.RespQPSMultiplier), 0xffffffff))},
		{"tpm multiplier", cat(base, st32(at(abi.RespTPMMultiplier), abi.MaxMultiplier+1))},
		{"quota multiplier", cat(base, st32(at(abi.RespQuotaMultiplier), 0xffffffff))},
		{"burst", cat(base, st32(at(abi.RespBurst), 0xffffffff))},
		{"price", cat(base, st32(at(abi.RespPriceMultiplier), 0xffffffff))},
		{"overdraft", cat(base, st32(at(abi.RespOverdraft+4), 0x80000000))},
		{"status 200", cat(base, st16(at(abi.RespStatus), 200))},
		{"status 500", cat(base, st16(at(abi.RespStatus), 500))},
		{"message outside", cat(base, st32(at(abi.RespMessageOff), 0xfffffff0), st32(at(abi.RespMessageLen), 32))},
		{"message before the arena", cat(base, st32(at(abi.RespMessageOff), 8), st32(at(abi.RespMessageLen), 8))},
		{"message past the arena", cat(base, st32(at(abi.RespMessageOff), 2040), st32(at(abi.RespMessageLen), 9))},
		{"message too long", cat(base, st32(at(abi.RespMessageOff), abi.RespArena), st32(at(abi.RespMessageLen), 513))},
		{"message not UTF-8", cat(base, st8(at(abi.RespArena), 0xff), st32(at(abi.RespMessageOff), abi.RespArena), st32(at(abi.RespMessageLen), 1))},
		{"arena", cat(base, st32(at(abi.RespArenaUsed), abi.ArenaSize+1))},
		{"kind 200", cat(base, st8(dim(abi.DimKind), 200))},
		{"kind 10", cat(base, st8(dim(abi.DimKind), 10))},
		{"dimension flags", cat(base, st8(dim(abi.DimFlags), 8))},
		{"dimension tier", cat(base, st16(dim(abi.DimTier), 9))},
		{"dimension multiplier", cat(base, st32(dim(abi.DimMultiplier), 0xffffffff))},
		{"dimension burst", cat(base, st32(dim(abi.DimBurst), 0xffffffff))},
		{"dimension cost", cat(base, st32(dim(abi.DimCostMultiplier), 0xffffffff))},
		{"custom without value", custom},
		{"custom value too long", cat(custom, st32(dim(abi.DimValueOff), abi.RespArena), st32(dim(abi.DimValueLen), 129))},
		{"custom value outside", cat(custom, st32(dim(abi.DimValueOff), 0x7fffffff), st32(dim(abi.DimValueLen), 1))},
		{"value of a key", cat(base, st32(dim(abi.DimValueOff), abi.RespArena), st32(dim(abi.DimValueLen), 1))},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := serve(t, guest(c.body, c32(0)), OnErrorDeny)
			var d Decision
			h.Decide(sampleFacts(), &d)
			if d.Fault != "bad_response" || d.Verdict != Deny || d.N != 0 {
				t.Errorf("decision %+v", d)
			}
			if s := h.Stats(); s.BadResponse != 1 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

// A guest that forgets to answer is not taken at the word of the call before.
func TestP05StaleAnswerIsBad(t *testing.T) {
	silent := cat(ld32(reqAt+abi.ReqEntropy), c32(0), []byte{0x46, opIf, blockEmpty}, c32(0), []byte{0x0f, opEnd})
	h := serve(t, guest(silent, allow(700)), OnErrorDefault)
	f, d := sampleFacts(), new(Decision)
	if h.Decide(f, d); d.QPS != 700 {
		t.Fatalf("decision %+v", d)
	}
	f.Entropy = 0
	if h.Decide(f, d); d.Fault != "bad_response" {
		t.Errorf("decision %+v", d)
	}
}

// Any bytes at all in the response: a decision in range or a fault.
func TestP05RandomAnswers(t *testing.T) {
	in := &instance{resp: new([abi.ResponseSize]byte), words: map[string]string{}}
	rnd := rand.New(rand.NewPCG(3, 4))
	good := 0
	for range 200_000 {
		for i := range in.resp {
			in.resp[i] = 0
		}
		binary.LittleEndian.PutUint16(in.resp[:], 1)
		for range rnd.IntN(6) {
			in.resp[rnd.IntN(abi.RespDims+2*abi.DimSize)] = byte(rnd.Uint32())
		}
		var d Decision
		if in.read(&d, 2) != faultNone {
			continue
		}
		good++
		if d.N > 16 || d.Tier < -1 || d.Tier > 1 || d.Status < 400 || d.Status > 499 || d.QPS == 0 || d.QPS > abi.MaxMultiplier || d.Overdraft < 0 {
			t.Fatalf("accepted %+v", d)
		}
	}
	if good == 0 {
		t.Error("nothing was accepted: the test tests nothing")
	}
}
