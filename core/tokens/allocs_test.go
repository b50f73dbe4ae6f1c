//go:build !race

// The race detector makes pools forget on purpose.

package tokens

import "testing"

func TestNoAllocations(t *testing.T) {
	body, h := chat(t, 1000)
	c := counter()
	e := c.For("gpt-4o-mini")
	delta := []byte(`caf\u00e9 au lait`)
	if n := testing.AllocsPerRun(200, func() {
		c.Estimate(e, h, body)
		c.Escaped(e, delta)
		c.For("gpt-4o-mini-2024-07-18")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
