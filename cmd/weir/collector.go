package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// What the garbage collector may leave lying around. Go's own rule, as much again as is in use, suits a small heap; of
// thousands of streams it would make twice their memory. GOGC in the environment replaces this.
const (
	garbage        = 20 << 20 // bytes
	percentAtLeast = 15       // of what is in use: collecting a large heap must not take all the time there is
	percentAtMost  = 100
)

// paceCollector keeps to it until ctx ends.
func paceCollector(ctx context.Context, env func(string) (string, bool)) {
	if _, set := env("GOGC"); set {
		return
	}
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for percent := percentAtMost; ; {
		metrics.Read(samples)
		inUse := uint64(1)
		for _, s := range samples {
			inUse += s.Value.Uint64()
		}
		if p := collectorPercent(inUse); p < percent-percent/8 || p > percent+percent/8 {
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

// collectorPercent is GOGC for so many bytes in use.
func collectorPercent(inUse uint64) int {
	return int(min(max(100*garbage/inUse, percentAtLeast), percentAtMost))
}
