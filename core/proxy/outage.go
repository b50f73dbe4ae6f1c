package proxy

import (
	"log/slog"
	"sync"
	"time"
)

// outageEvery is how often a failure that goes on is told again.
const outageEvery = 10 * time.Second

// outage tells of failures that refuse every request alike: the first with its cause, and of those that follow how many
// there were, at most every outageEvery. Which requests they were is in the access log. Safe for concurrent use.
type outage struct {
	mu     sync.Mutex
	told   time.Duration // when, on the monotonic clock
	latest time.Duration // when the newest failure was
	more   int           // failures since
	seen   bool
}

// tell counts a failure and logs what is due. After outageEvery without one, the next is a first again.
func (o *outage) tell(log *slog.Logger, now time.Duration, id string, err error) {
	o.mu.Lock()
	fresh := !o.seen || now-o.latest >= outageEvery
	due, more := fresh || now-o.told >= outageEvery, o.more
	o.seen, o.latest = true, max(now, o.latest)
	if o.more++; due {
		o.told, o.more = now, 0
	}
	o.mu.Unlock()
	switch {
	case fresh:
		log.Warn("requests fail; how many more is told every 10 s", slog.String("request_id", id), slog.String("error", err.Error()),
			slog.Int("more_before", more))
	case due:
		log.Warn("requests still fail", slog.Int("more", more+1), slog.String("request_id", id), slog.String("error", err.Error()))
	}
}
