package policy

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/weir-gateway/weir/sdk/abi"
)

// A generator of hostile modules: every way to go on (loops, recursion, storms of branches, deep blocks, wide frames)
// around every kind of work (arithmetic, memory, tables, growth, calls into the host). Many shapes share a module, which
// runs the one that the request's entropy names.

// work is something to do again and again; it leaves the stack as it was.
type work struct {
	name string
	body []byte
}

// Indices in a module of shapes: the host's log is function 0, the shapes' table is 1.
const (
	shapeTable  = 1
	fixedFuncs  = 1 + 4          // the import, and what guest() defines; it does nothing
	fillFunc    = fixedFuncs + 1 // gives wideN values
	passFunc    = fixedFuncs + 2 // takes wideN values and gives as many
	shapesInOne = 96
	voidType    = 2 // ()->(), after the types of the import and of weir_decide
	fillType    = 3
	passType    = 4
	wideN       = 250
)

func works() (out []work) {
	add := func(name string, parts ...[]byte) { out = append(out, work{name, cat(parts...)}) }
	drop, prefix := []byte{0x1a}, func(op ...byte) []byte { return append([]byte{opPrefix}, op...) }
	add("nothing")
	add("i32.div", c32(1<<31-1), c32(3), []byte{0x6d}, drop)
	add("i64.div", c64(1<<62+1), c64(3), []byte{0x7f}, drop)
	add("i64.rem_u", c64(1<<62+1), c64(7), []byte{0x82}, drop)
	add("f64.sqrt", []byte{opF64Const, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x9f}, drop)
	add("f64.div", []byte{opF64Const, 1, 0, 0, 0, 0, 0, 0, 0x40, opF64Const, 3, 0, 0, 0, 0, 0, 8, 0x40, 0xa3}, drop)
	add("f32.nearest", []byte{opF32Const, 0, 0, 32, 65, 0x90}, drop)
	add("trunc_sat", []byte{opF64Const, 0, 0, 0, 0, 0, 0, 0, 0x40}, prefix(6), drop)
	add("popcnt and clz", c64(-1), []byte{0x7b, 0x79}, drop)
	add("local.set", c32(5), []byte{0x21, 0})
	add("load", c32(0x8000), []byte{0x29, 3, 0}, drop)
	add("unaligned load", c32(0x8001), []byte{0x29, 0, 0}, drop)
	add("store", st32(0x8000, 7))
	add("store across pages", c32(0x8ffd), c64(9), []byte{0x37, 0, 0})
	for _, n := range []uint32{0, 1, 63, 4096, 1 << 16} {
		add(fmt.Sprint("memory.fill ", n), c32(0), c32(7), c32(n), prefix(11, 0))
	}
	for _, n := range []uint32{1, 4096, 0x8000} {
		add(fmt.Sprint("memory.copy ", n), c32(1), c32(0x8000), c32(n-1), prefix(10, 0, 0))
	}
	for _, n := range []uint32{0, 1, 64} {
		add(fmt.Sprint("memory.init ", n), c32(0), c32(0), c32(n), prefix(8, 0, 0))
	}
	for _, n := range []uint32{0, 1, 16} {
		add(fmt.Sprint("memory.grow ", n), c32(n), []byte{opMemoryGrow, 0}, drop)
	}
	add("memory.size", []byte{0x3f, 0}, drop)
	for _, n := range []uint32{0, 1, 512} {
		add(fmt.Sprint("table.fill ", n), c32(0), []byte{opRefNull, typeFuncref}, c32(n), prefix(17, shapeTable))
		add(fmt.Sprint("table.copy ", n), c32(0), c32(0), c32(n), prefix(14, shapeTable, shapeTable))
	}
	add("table.init", c32(0), c32(0), c32(8), prefix(12, 1, shapeTable))
	for _, n := range []uint32{0, 1, 512} {
		add(fmt.Sprint("table.grow ", n), []byte{opRefNull, typeFuncref}, c32(n), prefix(15, shapeTable), drop)
	}
	add("table.get", c32(3), []byte{0x25, shapeTable}, drop)
	add("table.set", c32(3), []byte{opRefFunc, fixedFuncs, 0x26, shapeTable})
	add("table.size", prefix(16, shapeTable), drop)
	add("host call", c32(1), c32(0), c32(512), []byte{opCall, 0})
	add("host call outside", c32(1), c32(0xffffffff), c32(0xffffffff), []byte{opCall, 0})
	add("global", []byte{opGlobalGet, 0}, c64(1), []byte{opI64Add, opGlobalSet, 0})
	add("select", c32(1), c32(2), c32(0), []byte{0x1b}, drop)
	sub := []byte{opF64Const, 1, 0, 0, 0, 0, 0, 8, 0} // subnormal, which some processors are slow with
	keep := []byte{0xbd, opGlobalSet, 0}
	add("f64.mul of subnormals", sub, bytes.Repeat(cat([]byte{opF64Const, 1, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0xa2}), 20), keep)
	add("f64.add of subnormals", sub, bytes.Repeat(cat(sub, []byte{0xa0}), 20), keep)
	add("f64.div of subnormals", sub, bytes.Repeat([]byte{opF64Const, 1, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0xa3}, 20), keep)
	add("f64.sqrt of subnormals", sub, []byte{0x9f}, sub, []byte{0x9f, 0xa0}, keep)
	add("to f32 and back", sub, bytes.Repeat([]byte{0xb6, 0xbb}, 20), keep)
	add("wide call", []byte{opCall, fillFunc}, gather(wideN))
	add("br_table", storm(500))
	add("deep blocks", nest(40, nil))
	return out
}

// storm branches over n targets.
func storm(n int) []byte {
	targets := bytes.Repeat([]byte{0, 1}, n/2)
	return cat([]byte{opBlock, blockEmpty, opBlock, blockEmpty}, ld32(reqAt+abi.ReqInputTokens), []byte{opBrTable}, uleb(uint64(len(targets))), targets,
		[]byte{1, opEnd, opEnd})
}

// nest puts body inside n blocks.
func nest(n int, body []byte) []byte {
	return cat(bytes.Repeat([]byte{opBlock, blockEmpty}, n), body, bytes.Repeat([]byte{opEnd}, n))
}

// gather adds up n values on the stack, into the global.
func gather(n int) []byte { return cat(bytes.Repeat([]byte{opI64Add}, n-1), []byte{opGlobalSet, 0}) }

// cold is code that the compiler cannot know is never reached.
func cold(body ...[]byte) []byte {
	return cat(ld32(0), []byte{opIf, blockEmpty, opLoop, blockEmpty}, cat(body...), []byte{opEnd, opEnd})
}

// frames are shapes that are cheap by the operators they run, but for what those move or leave lie: wide results and
// branches, and code that is never reached.
func frames() (out []shape) {
	add := func(name string, locals int, body func(at uint32) []byte) {
		out = append(out, shape{name, func(at uint32) []asmFunc {
			f := asmFunc{typ: funcType{}, body: body(at)}
			if locals > 0 {
				f.locals = cat([]byte{1}, uleb(uint64(locals)), []byte{typeI64})
			}
			return []asmFunc{f}
		}})
	}
	call := func(i uint32) []byte { return cat([]byte{opCall}, uleb(uint64(i))) }
	all, read := call(fillFunc), c64(0)
	for i := range uint64(wideN) {
		all, read = cat(all, []byte{0x21}, uleb(wideN-1-i)), cat(read, []byte{opLocalGet}, uleb(i), []byte{opI64Add})
	}
	read = cat(read, []byte{opGlobalSet, 0})
	on := cat(ld32(reqAt+abi.ReqReserved), []byte{0x45, opBrIf, 0, opEnd}, read)
	forever := []byte{opLoop, blockEmpty}
	out = append(out, shape{"recursion with wide results", func(at uint32) []asmFunc {
		return []asmFunc{{typ: funcType{}, body: cat(call(at+1), gather(wideN))},
			{typ: funcType{"", string(bytes.Repeat([]byte{typeI64}, wideN))}, body: call(at + 1)}}
	}})
	for _, n := range []int{20, 100, 500, 4000} {
		many := cat(bytes.Repeat(cat(c32(8), []byte{0x29, 0, 0}), n), call(fixedFuncs), gather(n))
		add(fmt.Sprint("recursion past values that are never made, ", n), 0, func(at uint32) []byte { return cat(cold(many), call(at)) })
	}
	many := bytes.Repeat(cat(c32(8), []byte{0x29, 0, 0}), 2000)
	add("recursion past values in nested loops", 0, func(at uint32) []byte {
		return cat(cold(bytes.Repeat(forever, 30), many, call(fixedFuncs), gather(2000), bytes.Repeat([]byte{opEnd}, 30)), call(at))
	})
	add("loop that shifts its parameters", 0, func(uint32) []byte {
		return cat(call(fillFunc), []byte{opLoop, passType, opGlobalGet, 0, opBr, 0, opEnd, opUnreachable})
	})
	add("loop that passes its parameters", 0, func(uint32) []byte {
		return cat(call(fillFunc), []byte{opLoop, passType}, call(passFunc), []byte{opBr, 0, opEnd, opUnreachable})
	})
	for _, n := range []int{1, 10, 20} {
		add(fmt.Sprint("loop of ends where locals meet, ", n), wideN, func(uint32) []byte {
			return cat(all, forever, bytes.Repeat(cold(all), n), on)
		})
	}
	add("loop of nested ends where locals meet", wideN, func(uint32) []byte {
		return cat(all, forever, cold(bytes.Repeat([]byte{opLoop, blockEmpty}, 20), all, bytes.Repeat([]byte{opEnd}, 20)), on)
	})
	add("loop of blocks left at every depth", wideN, func(uint32) []byte {
		body := bytes.Repeat([]byte{opBlock, blockEmpty}, 60)
		for i := range byte(60) {
			body = cat(body, ld32(0), []byte{opBrIf, i})
		}
		return cat(all, forever, body, all, bytes.Repeat([]byte{opEnd}, 60), on)
	})
	return out
}

// shape is some functions of type ()->(), the first of which is the entry. at is its index in the module.
type shape struct {
	name string
	make func(at uint32) []asmFunc
}

func shapes() (out []shape) {
	fn := func(parts ...[]byte) asmFunc {
		return asmFunc{typ: funcType{}, locals: []byte{1, 1, typeI32}, body: cat(parts...)}
	}
	wide := func(f asmFunc, n uint64) asmFunc {
		f.locals = cat([]byte{2, 1, typeI32}, uleb(n), []byte{typeI64})
		return f
	}
	call := func(i uint32) []byte { return cat([]byte{opCall}, uleb(uint64(i))) }
	again, forever := []byte{opBr, 0, opEnd}, []byte{opLoop, blockEmpty}
	for _, w := range works() {
		add := func(name string, make func(at uint32) []asmFunc) {
			out = append(out, shape{name + " of " + w.name, make})
		}
		times := func(n int) []byte { return bytes.Repeat(w.body, min(n, 30_000/max(len(w.body), 1))) }
		one := func(f asmFunc) func(uint32) []asmFunc { return func(uint32) []asmFunc { return []asmFunc{f} } }
		add("loop", one(fn(forever, w.body, again)))
		add("long body", one(fn(forever, times(20), again)))
		add("nested loops", one(fn(forever, forever, forever, w.body, []byte{0x0c, 1, opEnd}, again, again)))
		add("loops side by side", one(fn(forever, []byte{opLoop, blockEmpty}, w.body, []byte{opEnd, opLoop, blockEmpty}, w.body, []byte{opEnd}, again)))
		add("loop inside blocks", one(fn(forever, nest(20, w.body), again)))
		add("loop left and entered by br_if", one(fn(forever, w.body, c32(1), []byte{opBrIf, 0, opEnd})))
		add("loop by br_table", one(fn(forever, w.body, c32(7), []byte{opBrTable, 4, 0, 0, 0, 0, 0, opEnd})))
		add("if in a loop", one(fn(forever, c32(1), []byte{opIf, blockEmpty}, w.body, []byte{opElse}, w.body, []byte{opEnd}, again)))
		add("recursion", func(at uint32) []asmFunc { return []asmFunc{fn(w.body, call(at))} })
		add("recursion with wide frames", func(at uint32) []asmFunc { return []asmFunc{wide(fn(w.body, call(at)), 250)} })
		add("recursion inside a loop", func(at uint32) []asmFunc { return []asmFunc{fn(forever, w.body, call(at), again)} })
		add("mutual recursion", func(at uint32) []asmFunc { return []asmFunc{fn(call(at+1), w.body), fn(call(at), w.body)} })
		add("calls in a loop", func(at uint32) []asmFunc {
			return []asmFunc{fn(forever, call(at+1), call(at+1), again), wide(fn(w.body), 250)}
		})
		add("exponential calls", func(at uint32) (all []asmFunc) {
			for i := range uint32(17) {
				all = append(all, fn(call(at+i+1), call(at+i+1)))
			}
			return append(all, fn(forever, w.body, again))
		})
		add("no loop at all", func(at uint32) (all []asmFunc) {
			for i := range uint32(8) {
				all = append(all, fn(bytes.Repeat(call(at+i+1), 12)))
			}
			return append(all, fn(w.body))
		})
		add("calls through the table", func(at uint32) []asmFunc {
			return []asmFunc{fn(forever, w.body, c32(shapesInOne), []byte{opCallIndirect, voidType, 0}, again)}
		})
		add("loop that storms", one(fn(forever, storm(500), w.body, storm(200), again)))
		add("straight on", one(fn(times(200))))
		add("starts by trapping", one(fn(w.body, []byte{opUnreachable})))
		add("loop over a tee", one(fn(forever, []byte{opLocalGet, 0}, c32(1), []byte{0x6a, opLocalTee, 0, opBrIf, 0, opEnd}, w.body)))
		add("backwards with values", one(fn(c32(0), forever, w.body, again, []byte{0x1a})))
		add("wide frames in a loop", func(at uint32) []asmFunc {
			return []asmFunc{fn(forever, call(at+1), again), wide(fn(w.body, call(at+2)), 250), fn()}
		})
	}
	return append(out, frames()...)
}

// pack makes one module of some shapes: weir_decide runs the one whose number is the request's entropy.
func pack(some []shape) *asm {
	a := guest()
	a.imports, a.impTyp = []importedFunc{{module: "weir", name: "log"}}, []funcType{{i32 + i32 + i32, ""}}
	a.funcs[0].body = cat(ld32(reqAt+abi.ReqEntropy), []byte{opCallIndirect, voidType, 0}, allow(5))
	a.globals, a.nglob = []byte{typeI64, 1, opI64Const, 0, opEnd}, 1
	a.table = cat([]byte{2, typeFuncref, 0}, uleb(shapesInOne+1), []byte{typeFuncref, 0}, uleb(512))
	entries := make([]byte, 0, 4*shapesInOne)
	wide, pass := string(bytes.Repeat([]byte{typeI64}, wideN)), []byte(nil)
	for i := range uint64(wideN) {
		pass = cat(pass, []byte{opLocalGet}, uleb(i))
	}
	a.with(asmFunc{typ: funcType{}}, // fixedFuncs: does nothing
		asmFunc{typ: funcType{"", wide}, body: bytes.Repeat(c64(1), wideN)}, asmFunc{typ: funcType{wide, wide}, body: pass})
	for _, s := range some {
		at := uint32(len(a.imports) + len(a.funcs))
		entries = append(entries, uleb(uint64(at))...)
		a.with(s.make(at)...)
	}
	for range shapesInOne + 1 - len(some) {
		entries = append(entries, fixedFuncs)
	}
	a.elem = cat([]byte{2, 0, opI32Const, 0, opEnd}, uleb(shapesInOne+1), entries, // active, into the first table
		[]byte{1, 0}, vec(bytes.Repeat([]byte{fixedFuncs}, 8))) // passive
	a.data = cat([]byte{1, 1}, vec(make([]byte, 64)))
	return a
}

// TestP01HostileShapes: whatever it is made of, a module of profile small gives a call back within 10 ms (of which half
// are for other load), and takes no more memory than its cap and a stack that its fuel bounds. Native code cannot be
// preempted, so that is also the most by which it can delay anybody else.
func TestP01HostileShapes(t *testing.T) {
	all := shapes()
	if len(all) < 1000 {
		t.Fatalf("%d shapes, want 1,000", len(all))
	}
	h := newHost(t, Options{})
	before, faults, worst, slowest := memoryKB(t), map[string]int{}, cost{}, ""
	every := 1
	if testing.Short() || patience > 1 {
		every = 8
	}
	for n, some := range slices.Collect(slices.Chunk(all, shapesInOne)) {
		if n%every != 0 && n != len(all)/shapesInOne { // the last one has the frames
			continue
		}
		name := fmt.Sprint("shapes", n)
		mustAdd(t, h, name, pack(some).bytes())
		run, err := h.Open(context.Background(), Binding{Module: name})
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range some {
			c := quickest(run, uint64(i))
			c.bounded(t, s.name)
			faults[c.Fault]++
			if c.cpu > worst.cpu {
				worst, slowest = c, s.name
			}
		}
		run.Close()
	}
	if grown := memoryKB(t)["VmRSS"] - before["VmRSS"]; patience == 1 && grown > 64<<10 {
		t.Errorf("memory grew by %d KiB", grown)
	}
	if faults["out_of_fuel"] < len(all)/every/2 || faults[""] == 0 || faults["trap"] == 0 {
		t.Errorf("the shapes are not what they should be: %v", faults)
	}
	t.Logf("%d shapes: %v; the slowest, %s, took %v of CPU, %v in all", len(all), faults, slowest, worst.cpu, worst.wall)
}

// cost is what one call took. The times are the least of some calls: other load slows single ones.
type cost struct {
	Trace
	cpu, wall time.Duration
	heap      uint64 // bytes allocated, which are the guest's stack
	resident  uint64 // bytes of the guest's memory that are there, at most
}

// bounded holds c against what profile small promises.
func (c *cost) bounded(t *testing.T, name string) {
	t.Helper()
	p, err := profileOf(ProfileSmall)
	if err != nil {
		t.Fatal(err)
	}
	cpu, slack := 10*time.Millisecond, time.Duration(10*patience) // no call past 10 ms is what is promised
	if *long {
		cpu, slack = 5*time.Millisecond, patience
	}
	if c.cpu > patience*cpu || c.wall > slack*10*time.Millisecond {
		t.Errorf("%s: a call took %v of CPU and %v in all at best, want <= %v and 10 ms (fault %q)", name, c.cpu, c.wall, cpu, c.Fault)
	}
	if most := uint64(p.pages) << 16; c.Memory > most || c.resident > most {
		t.Errorf("%s: %d bytes of memory, %d of them resident; the cap is %d", name, c.Memory, c.resident, most)
	}
	// A stack is copied to one of twice its size when it is full, so all of them make at most four times what is used.
	if most := uint64(4*stackPerFuel*p.fuel + 64<<10); c.heap > most {
		t.Errorf("%s: a call allocated %d bytes, want <= %d", name, c.heap, most)
	}
}

// quickest runs a shape until a call was short enough, at most five times.
func quickest(run *Runner, shape uint64) cost {
	f, d := sampleFacts(), new(Decision)
	f.Entropy = shape
	best := cost{cpu: time.Hour, wall: time.Hour}
	for range 5 {
		if run.in == nil {
			_ = run.open()
		}
		var before, after runtime.MemStats
		var ft fault
		runtime.ReadMemStats(&before)
		in, began := run.in, time.Now()
		cpu := spent(func() { ft = in.call(f, d, 1, 0) })
		wall := time.Since(began)
		runtime.ReadMemStats(&after)
		best.cpu, best.wall = min(best.cpu, cpu), min(best.wall, wall)
		best.heap, best.resident = max(best.heap, after.TotalAlloc-before.TotalAlloc), max(best.resident, resident(in.mem))
		best.Fault, best.Memory = ft.String(), max(best.Memory, in.size())
		if ft != faultNone {
			in.close()
			run.in = nil
		}
		if best.cpu < 2*time.Millisecond {
			break
		}
	}
	return best
}
