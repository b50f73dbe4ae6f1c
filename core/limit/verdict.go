package limit

import "time"

// The order in which refusals are reported: what waiting cannot cure first, then by axis, and within an axis by the
// dimension's rank.
const (
	rankTooLarge    = 1 << 8
	rankBalance     = 2 << 8
	rankQuota       = 3 << 8
	rankConcurrency = 4 << 8
	rankQPS         = 5 << 8
	rankTPM         = 6 << 8
)

// concurrencyHint is the wait told for a full concurrency meter: nobody knows when a request will end.
const concurrencyHint = time.Second

// rankOf orders dimensions within an axis: key, model, global, then as the claim lists them.
func rankOf(k Kind, i int) uint8 {
	switch k {
	case Key:
		return 0
	case Model:
		return 1
	case Global:
		return 2
	}
	return uint8(3 + i)
}

// verdict gathers the refusals of one step: the one to report, and the latest wait of all.
type verdict struct {
	rank   int // of the denial; 0: none yet
	wait   time.Duration
	hint   bool
	denial *Denial
}

func (v *verdict) refuse(rank int, wait time.Duration, d Denial) {
	v.wait = max(v.wait, wait)
	v.hint = v.hint || d.Axis == AxisConcurrency
	if v.rank == 0 || rank < v.rank {
		v.rank, *v.denial = rank, d
	}
}

// admit completes the denial, if there is one. Its wait is exact only where waiting is all it takes.
func (v *verdict) admit() bool {
	d := v.denial
	switch {
	case v.rank == 0:
		return true
	case d.TooLarge:
		d.RetryAfterMS = ceilMS(tpmSpan)
	case d.Axis == AxisBalance || d.Axis == AxisQuota:
	default:
		d.RetryAfterMS, d.Exact = ceilMS(v.wait), !v.hint
	}
	return false
}
