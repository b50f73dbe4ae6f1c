package main

import "testing"

// A small heap is collected when it has doubled, a larger one when so many bytes lie around, and a very large one for a share.
func TestCollectorPercent(t *testing.T) {
	for _, x := range []struct {
		inUse uint64
		want  int
	}{{1, 100}, {garbage, 100}, {2 * garbage, 50}, {5 * garbage, 20}, {100 * garbage, percentAtLeast}} {
		if got := collectorPercent(x.inUse); got != x.want {
			t.Errorf("with %d bytes in use it is %d, not %d", x.inUse, got, x.want)
		}
	}
}
