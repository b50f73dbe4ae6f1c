package policy

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/weir-gateway/weir/sdk/abi"
)

// mendShare keeps the mender idle so many times as long as it worked: a module that faults on purpose and starts
// slowly must not take a core.
const mendShare = 4

// mendRetry is the wait after an instance could not be made, for example for want of memory.
const mendRetry = time.Second

// linesPerSecond bounds what all guests together may write into the log.
const linesPerSecond = 100

func (h *Host) wakeMender() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// mender replaces the instances of slots that faulted, off every request's path. Close waits for it.
func (h *Host) mender() {
	for {
		select {
		case <-h.life.Done():
			return
		case <-h.wake:
		}
		began := h.o.Clock.Mono()
		h.mu.Lock()
		live := slices.Clone(h.mu.live)
		h.mu.Unlock()
		rest := time.Duration(0)
		for _, g := range live {
			if !g.mend() {
				rest = mendRetry
			}
		}
		pause := time.NewTimer(max(rest, mendShare*(h.o.Clock.Mono()-began)))
		select {
		case <-h.life.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
		if rest > 0 {
			h.wakeMender() // a slot without an instance may be one that no call looks for
		}
	}
}

// line is what a guest said.
type line struct {
	module, version string
	level           uint32
	text            string
}

// writeLines brings the guests' lines into the log. Close waits for it.
func (h *Host) writeLines() {
	var (
		second time.Duration
		n      int
	)
	for {
		select {
		case <-h.life.Done():
			return
		case l := <-h.lines:
			if now := h.o.Clock.Mono().Truncate(time.Second); now != second {
				second, n = now, 0
			}
			if n++; n > linesPerSecond {
				h.count.linesDropped.Add(1)
				continue
			}
			h.o.Log.Log(context.Background(), slogLevel(l.level), "policy module says", "module", l.module,
				"version", l.version, "text", l.text)
		}
	}
}

func slogLevel(level uint32) slog.Level {
	switch level {
	case abi.LogDebug:
		return slog.LevelDebug
	case abi.LogWarn:
		return slog.LevelWarn
	case abi.LogInfo:
		return slog.LevelInfo
	}
	return slog.LevelError
}
