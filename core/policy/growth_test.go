package policy

import "testing"

// TestP02GrowersStayBelowTheCap: modules that grow memory and write to all of it get pages up to their cap and none beyond:
// counted where the kernel gives them, not by what memory.grow answers.
func TestP02GrowersStayBelowTheCap(t *testing.T) {
	p, err := profileOf(ProfileSmall)
	if err != nil {
		t.Fatal(err)
	}
	most := uint64(p.pages) << 16
	const kept = respAt + 0x1000
	touch := cat(c32(kept), c32(7), []byte{0x3f, 0}, c32(16), []byte{0x74}, c32(kept), []byte{0x6b, opPrefix, 11, 0}) // fill all there is
	grow := func(n uint32) []byte { return cat(c32(n), []byte{opMemoryGrow, 0, 0x1a}) }
	unbounded := func(a *asm) *asm {
		a.memory = []byte{0, 1}
		return a
	}
	for _, c := range []struct {
		name string
		a    *asm
		full bool // all of the cap is taken
	}{
		{"a page each call", guest(grow(1), touch, allow(5)), true},
		{"half of it at once", guest(grow(8), touch, allow(5)), false},
		{"in a loop", guest(loop(grow(1), touch)), true},
		{"in a loop, with more than there is", guest(loop(grow(17), grow(1), touch)), false},
		{"without a maximum", unbounded(guest(grow(1), touch, allow(5))), true},
		{"by recursion", guest([]byte{opCall, 4}, c32(0)).with(asmFunc{typ: funcType{}, body: cat(grow(1), touch, []byte{opCall, 4})}), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := serve(t, c.a, OnErrorDefault)
			d, seen := new(Decision), uint64(0)
			f, g := sampleFacts(), h.operator.cur.Load().active
			slot := &g.slots[g.start(f)] // the same facts lead to the same one
			for range 40 {
				if h.Stats().OutOfFuel > 5 {
					break // a few more and it would be put out of service
				}
				in := slot.in
				h.Decide(f, d)
				seen = max(seen, resident(in.mem))
				h.settle(t)
			}
			if s := h.Stats(); s.BadResponse+s.Traps > 0 {
				t.Errorf("stats %+v", s)
			}
			if seen > most {
				t.Errorf("%d bytes are resident, the cap is %d", seen, most)
			}
			if seen < 4<<16 || c.full && seen < most/2 {
				t.Errorf("%d bytes are resident: it did not grow", seen)
			}
			t.Logf("%d KiB resident", seen>>10)
		})
	}
}
