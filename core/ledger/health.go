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

const lookEvery = 100 * time.Millisecond

// watchLoop looks for calls that do not return. Whoever made one is stuck in it, and there is no error to go by.
func (l *Ledger) watchLoop() {
	defer l.running.Done()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
			l.look()
		}
	}
}

func (l *Ledger) look() {
	l.writes.look()
	l.syncs.look()
}

// health is how one kind of store call fares. One goroutine makes the calls, another looks.
type health struct {
	call    string
	clock   llm.Clock
	log     *slog.Logger
	stall   time.Duration
	stalled *llm.Error

	began atomic.Int64              // when the call under way did, on the steady clock, and 1; 0: there is none
	down  atomic.Pointer[llm.Error] // why the newest one failed, or that it does not return
	since time.Duration             // the caller's: when the first one began that went wrong
}

func (h *health) init(call string, o Options, clock llm.Clock) {
	h.call, h.clock, h.log, h.stall = call, clock, o.Log, time.Duration(o.StallMS)*time.Millisecond
	h.stalled = unwritten(fmt.Errorf("the store has not answered a %s for %d ms", call, o.StallMS))
}

func unwritten(err error) *llm.Error {
	return &llm.Error{Kind: llm.KindUnavailable, Code: "ledger_unavailable", Message: "the ledger cannot write", Err: err}
}

func (h *health) get() error {
	if e := h.down.Load(); e != nil {
		return e
	}
	return nil
}

// look notes that the call under way takes too long.
func (h *health) look() {
	began := h.began.Load()
	if began == 0 || h.clock.Mono()-time.Duration(began-1) < h.stall || !h.down.CompareAndSwap(nil, h.stalled) {
		return
	}
	if h.began.Load() != began { // it has returned meanwhile, and may have found nothing to take back
		h.down.CompareAndSwap(h.stalled, nil)
		return
	}
	h.tellDown(h.stalled)
}

func (h *health) tellDown(e *llm.Error) {
	h.log.Error("the ledger is down: new requests are refused until it can write", "call", h.call, "error", e.Err)
}

func (h *health) begin() {
	now := h.clock.Mono()
	if h.down.Load() == nil {
		h.since = now
	}
	h.began.Store(int64(now) + 1)
}

// end notes how the call went.
func (h *health) end(err error) {
	h.began.Store(0)
	was := h.down.Load()
	switch {
	case err != nil:
		h.down.Store(unwritten(err))
		if was == nil {
			h.tellDown(unwritten(err))
		}
	case was != nil:
		h.down.Store(nil)
		h.log.Warn("the ledger has recovered", "call", h.call, "after", h.clock.Mono()-h.since, "error", was.Err)
	}
}
