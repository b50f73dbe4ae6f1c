package limit

import (
	"math"
	"math/bits"
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
