package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// What the garbage collector may leave lying around. Go's own rule, as much again as is in use, suits a small heap; of
// thousands of streams it would make twice their memory. Where less is allocated in a second, as by streams, it is less still:
// collections are few then all the same. GOGC in the environment replaces this.
const (
	garbage        = 16 << 20 // bytes
	percentAtLeast = 10       // of what is in use: collecting a large heap must not take all the time there is
	percentAtMost  = 100

	shareAtLeast = 40 // percent of that, where no more is allocated in a second: requests may come any time
)

// paceCollector keeps to it until ctx ends.
func paceCollector(ctx context.Context, env func(string) (string, bool)) {
	if _, set := env("GOGC"); set {
		return
	}
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var p pace
	for percent := percentAtMost; ; {
		metrics.Read(samples)
		inUse := uint64(1)
		for _, s := range samples[1:] {
			inUse += s.Value.Uint64()
		}
		if p := p.percent(inUse, samples[0].Value.Uint64()); p < percent-percent/8 || p > percent+percent/8 {
			percent = p
			debug.SetGCPercent(percent)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// pace is how much is allocated in a second. It soon rises, and is slow to fall: whoever came in a burst may come again.
type pace struct{ allocated, rate uint64 }

// percent is GOGC for so many bytes in use; it is asked once a second, with all that was ever allocated.
func (p *pace) percent(inUse, allocated uint64) int {
	p.rate = max((p.rate+allocated-p.allocated)/2, p.rate-p.rate/8)
	p.allocated = allocated
	most := min(max(100*garbage/inUse, percentAtLeast), percentAtMost)
	return int(max(most*min(p.rate, garbage)/garbage, most*shareAtLeast/100))
}
