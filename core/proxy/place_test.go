package proxy_test

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

// slowBooks settles the first request only when it is let go.
type slowBooks struct {
	*journal
	begun  atomic.Bool
	settle chan bool
	letGo  chan bool
}

func (b *slowBooks) Append(e *llm.Entry) (uint64, error) {
	if e.Kind == llm.EntrySettle && b.begun.CompareAndSwap(false, true) {
		b.settle <- true
		<-b.letGo
	}
	return b.journal.Append(e)
}

// Whoever waits for a place on a channel meets there what the request before it came to, and not what that was held at: it is
// not refused because that one is still being settled.
func TestAPlaceIsFreeWhenItsRequestIsSettled(t *testing.T) {
	books := &slowBooks{settle: make(chan bool), letGo: make(chan bool)}
	r := newRig(t, func(s *setup) {
		s.upstream.QueueWaitMS = 20_000
		s.catalog = func(c *catalog) { c.channels[0].ConcurrencyLimit, c.channels[0].TPMLimit = 1, 150 }
		s.ledger = func(llm.Clock) ledgerParts { return books }
	})
	books.journal = r.journal
	begin := func() <-chan reply {
		done := make(chan reply, 1)
		go func() { done <- r.post("/v1/chat/completions", chat("gpt-4o", `,"max_tokens":100`), "x-sim", "out=5") }()
		return done
	}
	first := begin()
	<-books.settle
	second := begin()
	waits := func() bool { return r.client.Health(r.server.Snapshot().Catalog)[0].Waiting == 1 }
	for len(second) == 0 && !waits() {
		runtime.Gosched()
	}
	close(books.letGo)
	(<-first).want(t, 200)
	(<-second).want(t, 200)
}
