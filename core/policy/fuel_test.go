package policy

import (
	"bytes"
	"testing"

	"github.com/weir-gateway/weir/sdk/abi"
)

// TestFuelPrices: what one call is charged, beside the entry of weir_decide and its last constant.
func TestFuelPrices(t *testing.T) {
	drop := []byte{0x1a}
	host := func(body ...[]byte) *asm {
		a := guest(cat(body...), c32(abi.Abstained))
		a.imports = []importedFunc{{module: "weir", name: "log"}}
		a.impTyp = []funcType{{i32 + i32 + i32, ""}}
		return a
	}
	tabled := func(a *asm, fn byte) *asm {
		a.table = []byte{1, typeFuncref, 0, 1}
		a.elem = []byte{1, 0, opI32Const, 0, opEnd, 1, fn}
		return a
	}
	plain := func(body ...[]byte) *asm { return guest(cat(body...), c32(abi.Abstained)) }
	results := string(bytes.Repeat([]byte{typeI32}, 4))
	four := asmFunc{typ: funcType{"", results}, body: bytes.Repeat(c32(0), 4)}
	taker := asmFunc{typ: funcType{results, ""}}
	var set []byte
	for i := range byte(4) {
		set = cat(set, c32(0), []byte{0x21, i})
	}
	nothing := asmFunc{typ: funcType{i32 + i32 + i32, ""}}
	three := cat(c32(0), c32(0), c32(0))
	const frame = costEntry + 3 // of nothing: three parameters
	for _, c := range []struct {
		name string
		a    *asm
		want int64
	}{
		{"nothing", plain(), 0},
		{"constant, drop", plain(c32(1), drop), 2},
		{"load", plain(ld32(0), drop), 1 + costMemory + 1},
		{"division", plain(c32(6), c32(3), []byte{0x6e}, drop), 2 + costDivide + 1},
		{"a loop of one turn", plain([]byte{opLoop, blockEmpty, 0x01, 0x01, opEnd}), costLoop + 2},
		{"a loop of three turns", plain(c32(0), []byte{0x21, 0, opLoop, blockEmpty}, []byte{opLocalGet, 0}, c32(1), []byte{0x6a, opLocalTee, 0}, c32(3), []byte{0x49, opBrIf, 0, opEnd}),
			1 + 2 + 3*(costLoop+7)}, // one more at the entry: the local
		{"a branch not taken", plain(c32(0), []byte{opIf, blockEmpty, 0x01, 0x01, opElse, 0x01, opEnd}), 1 + 1 + 3},
		{"memory.fill of 6400 bytes", plain(c32(0), c32(0), c32(6400), []byte{opPrefix, 11, 0}), costSaved + 3 + costBulk + 100},
		{"memory.copy of 640 bytes", plain(c32(0), c32(0), c32(640), []byte{opPrefix, 10, 0, 0}), costSaved + 3 + costBulk + 10},
		{"memory.grow by 2", plain(c32(2), []byte{opMemoryGrow, 0}, drop), costSaved + 1 + costGrow + 2*1024 + 1},
		{"a call with four results", plain([]byte{opCall, 4}, bytes.Repeat(drop, 4)).with(four), costCall + 3*costMemory + 4 + costEntry + 4},
		{"a branch out of a block with four values", plain([]byte{opBlock, 1}, []byte{opCall, 4, opBr, 0, opEnd}, bytes.Repeat(drop, 4)).with(four),
			3 + 3 + 1 + costCall + 3*costMemory + 4 + costEntry + 4},
		{"a turn of a loop with four values", plain([]byte{opCall, 4, opLoop, 2}, bytes.Repeat(drop, 4), []byte{opEnd}).with(four, taker),
			3 + costLoop + costCall + 3*costMemory + 4 + costEntry + 4},
		{"an end where four locals meet", plain(c32(0), []byte{opIf, blockEmpty, opLoop, blockEmpty}, set, []byte{opEnd, opEnd}), 4 + 2 + 2},
		{"a loop of 432 units never entered", plain(c32(0), []byte{opIf, blockEmpty, opLoop, blockEmpty}, bytes.Repeat([]byte{0x01}, 31+400), []byte{opEnd, opEnd}),
			1 + 1 + 400/frameShare},
		{"a call", tabled(plain(three, []byte{opCall, 4}).with(nothing), 4), 3 + costCall + frame},
		{"a call through a table", tabled(plain(three, c32(0), []byte{opCallIndirect, 1, 0}).with(nothing), 4), 4 + costIndirect + frame},
		{"a host call", host(three, []byte{opCall, 0}), 3 + costCall + costHost},
		{"a host call through a table", tabled(host(three, c32(0), []byte{opCallIndirect, 0, 0}), 0), 4 + costIndirect + costHost},
	} {
		t.Run(c.name, func(t *testing.T) {
			if n, ok := map[string]byte{"a loop of three turns": 1, "an end where four locals meet": 4}[c.name]; ok {
				c.a.funcs[0].locals = []byte{1, n, typeI32}
			}
			h := serve(t, c.a, OnErrorDefault)
			f, d := sampleFacts(), new(Decision)
			if h.Decide(f, d); d.Fault != "" {
				t.Fatalf("fault %q", d.Fault)
			}
			// What decided has spent the most: the other slots' last call was weir_version, which is an entry and a constant too.
			var used int64
			slots := h.operator.cur.Load().active.slots
			for i := range slots {
				in := slots[i].in
				used = max(used, int64(in.budget-in.fuel.Get())-costEntry-1)
			}
			if used != c.want {
				t.Errorf("charged %d, want %d", used, c.want)
			}
		})
	}
}
