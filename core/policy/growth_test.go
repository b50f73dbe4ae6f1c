package policy

import (
	"context"
	"testing"
)

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
			h := newHost(t, Options{})
			mustAdd(t, h, "m", c.a.bytes())
			run, err := h.Open(context.Background(), Binding{Module: "m"})
			if err != nil {
				t.Fatal(err)
			}
			defer run.Close()
			seen := uint64(0)
			for range 40 {
				if run.in == nil {
					if err := run.open(); err != nil {
						t.Fatal(err)
					}
				}
				ft := run.in.call(sampleFacts(), new(Decision), 1, 0)
				seen = max(seen, resident(run.in.mem))
				switch ft {
				case faultNone:
				case faultFuel:
					run.in.close()
					run.in = nil
				default:
					t.Fatalf("fault %v", ft)
				}
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
