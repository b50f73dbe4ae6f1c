package policy

import (
	"testing"

	"github.com/weir-gateway/weir/sdk/abi"
)

// TestEnvelopeKeepsTheKey: unless it may, a module can neither leave the key dimension out nor make it toothless.
func TestEnvelopeKeepsTheKey(t *testing.T) {
	global := Dimension{Kind: abi.KindGlobal, Tier: -1, Multiplier: unit, Burst: unit, Cost: unit}
	for _, c := range []struct {
		name    string
		may     bool
		dims    []Dimension
		want    []uint8
		clamped bool
	}{
		{"left out", false, []Dimension{global}, []uint8{abi.KindKey, abi.KindGlobal}, true},
		{"toothless", false, []Dimension{global, {Kind: abi.KindKey, Shadow: true, CountOnly: true}}, []uint8{abi.KindGlobal, abi.KindKey}, true},
		{"there", false, []Dimension{{Kind: abi.KindKey}}, []uint8{abi.KindKey}, false},
		{"defaults", false, nil, nil, false},
		{"allowed", true, []Dimension{global}, []uint8{abi.KindGlobal}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d Decision
			d.Tier, d.Price = -1, unit
			d.N = copy(d.Dims[:], c.dims)
			(&Envelope{MayDropKey: c.may}).clamp(&d, nil)
			if d.N != len(c.want) || d.Clamped != c.clamped {
				t.Fatalf("got %d dimensions, clamped %v; want %d, %v", d.N, d.Clamped, len(c.want), c.clamped)
			}
			for i, kind := range c.want {
				if x := d.Dims[i]; x.Kind != kind || x.Kind == abi.KindKey && (x.Shadow || x.CountOnly) {
					t.Errorf("dimension %d is %+v, want kind %d that refuses", i, x, kind)
				}
			}
		})
	}
	full := Decision{N: 16, Tier: -1, Price: unit}
	for i := range full.Dims {
		full.Dims[i] = global
	}
	(&Envelope{}).clamp(&full, nil)
	if full.N != 16 || full.Dims[0].Kind != abi.KindKey {
		t.Errorf("a full decision becomes %d dimensions, first %d", full.N, full.Dims[0].Kind)
	}
}
