package main

import (
	"slices"
	"testing"
)

// A small heap is collected when it has doubled, a larger one when so many bytes lie around, and a very large one for a share;
// where little is allocated, when it is less.
func TestCollectorPercent(t *testing.T) {
	for _, x := range []struct {
		inUse, rate uint64
		want        int
	}{
		{1, garbage, 100}, {garbage, garbage, 100}, {2 * garbage, garbage, 50}, {5 * garbage, garbage, 20}, {100 * garbage, garbage, percentAtLeast},
		{1, 10 * garbage, 100}, {5 * garbage, garbage / 2, 10}, {5 * garbage, garbage / 100, 8}, {100 * garbage, 0, 4}, {1, 0, shareAtLeast},
	} {
		p := pace{rate: x.rate}
		if got := p.percent(x.inUse, x.rate); got != x.want {
			t.Errorf("with %d bytes in use and %d allocated in a second it is %d, not %d", x.inUse, x.rate, got, x.want)
		}
	}
}

// A burst counts soon, and is forgotten by and by.
func TestCollectorRemembersABurst(t *testing.T) {
	var p pace
	var got []int
	allocated := uint64(0)
	for _, rate := range []uint64{0, garbage, garbage, garbage, 4 * garbage, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} {
		allocated += rate
		got = append(got, p.percent(1, allocated))
	}
	if want := []int{40, 50, 75, 87, 100, 100, 100, 100, 100, 100, 100, 95, 83, 73, 64, 56, 49, 42}; !slices.Equal(got, want) {
		t.Errorf("second by second: %v", got)
	}
}
