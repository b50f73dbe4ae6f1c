package limit

import (
	"math"
	"math/bits"
	"time"
)

// The token bucket: what was charged drains at rate per span, oldest slot first, in whole units with the rest kept
// in part. Capacity is not stored: a burst changes only what the level is tested against.

// drained is how many whole units have left since the last drain. A rate of 0 is unlimited: all of them.
func (w *window) drained(now time.Duration, rate int64) int64 {
	q, _ := w.flow(now, rate)
	return q
}

// flow is the drain since w.since: whole units, and the rest in 1/span of a unit.
func (w *window) flow(now time.Duration, rate int64) (int64, uint64) {
	if now <= w.since {
		return 0, w.part
	}
	if rate <= 0 {
		return math.MaxInt64, 0
	}
	hi, lo := bits.Mul64(uint64(rate), uint64(now-w.since))
	lo, c := bits.Add64(lo, w.part, 0)
	hi += c
	if hi >= uint64(w.span) {
		return math.MaxInt64, 0
	}
	q, r := bits.Div64(hi, lo, uint64(w.span))
	return int64(min(q, math.MaxInt64)), r
}

// drain stores the flow up to now.
func (w *window) drain(now time.Duration, rate int64) {
	q, part := w.flow(now, rate)
	for w.n > 0 {
		s := w.at(w.head)
		if s.used > q {
			s.used -= q
			w.used -= q
			break
		}
		q -= s.used
		w.pop()
	}
	if w.n == 0 {
		part = 0 // an empty bucket does not save up
	}
	w.since, w.part = max(w.since, now), part
}

// drainTime is how long n whole units take from w.since on.
func (w *window) drainTime(rate, n int64) time.Duration {
	if rate <= 0 {
		return 0
	}
	return time.Duration(mulDivUp(n, int64(w.span), int64(w.part), rate))
}
