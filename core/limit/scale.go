package limit

import (
	"math"
	"math/bits"
	"time"
)

// Scale is the effective limit: max(1, floor(limit x permille / 1000)), saturating. 0 stays unlimited; a permille
// of 0 means 1000.
func Scale(limit int64, permille uint32) int64 {
	if limit <= 0 || permille == 0 || permille == 1000 {
		return limit
	}
	hi, lo := bits.Mul64(uint64(limit), uint64(permille))
	if hi >= 1000 {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, 1000)
	return int64(min(max(q, 1), math.MaxInt64))
}

// scaleUp is ceil(n x permille / 1000), saturating: what n tokens weigh under a cost multiplier.
func scaleUp(n int64, permille uint32) int64 {
	if permille == 0 || permille == 1000 || n <= 0 {
		return max(n, 0)
	}
	return mulDivUp(n, int64(permille), 0, 1000)
}

// fitting is the most tokens whose weight under a cost multiplier is within capacity.
func fitting(capacity int64, permille uint32) int64 {
	if permille == 0 || permille == 1000 {
		return capacity
	}
	hi, lo := bits.Mul64(uint64(capacity), 1000)
	if hi >= uint64(permille) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(permille))
	return int64(min(q, math.MaxInt64))
}

// mulDivUp is ceil((a x b - less) / by) in 128 bits, saturating; not below 0.
func mulDivUp(a, b, less, by int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi == 0 && lo <= uint64(less) {
		return 0
	}
	lo, c := bits.Sub64(lo, uint64(less), 0)
	hi -= c
	if hi >= uint64(by) {
		return math.MaxInt64
	}
	q, r := bits.Div64(hi, lo, uint64(by))
	if r > 0 {
		q++
	}
	return int64(min(q, math.MaxInt64))
}

// plus is a+b for amounts that are not negative, saturating.
func plus(a, b int64) int64 {
	if s := a + b; s >= 0 {
		return s
	}
	return math.MaxInt64
}

// ceilMS is a wait in whole milliseconds, rounded up, so that waiting it is always enough.
func ceilMS(d time.Duration) int64 {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}
