package ledger

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// Healthy is nil while the store accepts writes: the newest write and the newest sync succeeded, and the one under way
// has not taken longer than Options.StallMS.
func (l *Ledger) Healthy() error {
	if err := l.writes.get(); err != nil {
		return err
	}
	return l.syncs.get()
}

// health is how one kind of store call fares. A disk that does not answer gives no error to go by, and whoever called is
// stuck in the call; so those who ask compare its start with the clock, and it needs nobody to end the stall but the
// call's own return. One goroutine makes the calls.
type health struct {
	call    string
	clock   llm.Clock
	log     *slog.Logger
	stall   time.Duration
	stalled error

	began atomic.Int64              // when the call under way did, on the steady clock, and 1; 0: there is none
	down  atomic.Pointer[llm.Error] // why the newest one failed
	since time.Duration             // the caller's: when the first of those that failed began
}

func (h *health) init(call string, o Options, clock llm.Clock) {
	h.call, h.clock, h.log, h.stall = call, clock, o.Log, time.Duration(o.StallMS)*time.Millisecond
	h.stalled = unwritten(fmt.Errorf("the disk has not answered a %s for %d ms", call, o.StallMS))
}

func unwritten(err error) *llm.Error {
	return &llm.Error{Kind: llm.KindUnavailable, Code: "ledger_unavailable", Message: "the ledger cannot write", Err: err}
}

func (h *health) get() error {
	if e := h.down.Load(); e != nil {
		return e
	}
	if began := h.began.Load(); began != 0 && h.clock.Mono()-time.Duration(began-1) >= h.stall {
		return h.stalled
	}
	return nil
}

func (h *health) begin() { h.began.Store(int64(h.clock.Mono()) + 1) }

// end notes how the call went, and tells the log when that is news.
func (h *health) end(err error) {
	began, now := time.Duration(h.began.Load()-1), h.clock.Mono()
	was := h.down.Load()
	if was == nil {
		h.since = began
	}
	switch {
	case err != nil:
		h.down.Store(unwritten(err))
	case was != nil:
		h.down.Store(nil)
	}
	h.began.Store(0)
	switch {
	case err != nil && was == nil:
		h.log.Error("the ledger is down: new requests are refused until it can write", "call", h.call, "error", err)
	case err == nil && was != nil:
		h.log.Warn("the ledger has recovered", "call", h.call, "after", now-h.since, "error", was.Err)
	case err == nil && now-began >= h.stall:
		h.log.Warn("the ledger has recovered", "call", h.call, "after", now-began, "error", h.stalled)
	}
}
