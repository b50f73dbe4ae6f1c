//go:build !race

// The race detector makes pools forget on purpose.

package tokens

import (
	"bytes"
	"testing"
)

func TestNoAllocations(t *testing.T) {
	body, h := chat(t, 1000)
	c := counter()
	e := c.For("gpt-4o-mini")
	delta, word := []byte(`caf\u00e9 au lait`), bytes.Repeat([]byte("a"), 50_000)
	if n := testing.AllocsPerRun(200, func() {
		c.Estimate(e, h, body)
		c.Escaped(e, delta)
		c.Text(e, word)
		c.For("gpt-4o-mini-2024-07-18")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
