package proxy_test

import (
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

// Whoever waits for a place on a channel gets it when the answer before is read, and is not refused because that one is still
// being settled: how many there are at a time is counted once.
func TestAPlaceIsFreeBeforeItsRequestIsSettled(t *testing.T) {
	books := &slowBooks{settle: make(chan bool), letGo: make(chan bool)}
	r := newRig(t, func(s *setup) {
		s.upstream.QueueWaitMS = 20_000
		s.catalog = func(c *catalog) { c.channels[0].ConcurrencyLimit, c.channels[0].QPSLimit = 1, 100 }
		s.ledger = func(llm.Clock) ledgerParts { return books }
	})
	books.journal = r.journal
	first := make(chan reply)
	go func() { first <- r.post("/v1/chat/completions", chat("gpt-4o", ""), "x-sim", "out=5") }()
	<-books.settle
	second := r.post("/v1/chat/completions", chat("gpt-4o", ""), "x-sim", "out=5")
	close(books.letGo)
	(<-first).want(t, 200)
	second.want(t, 200)
}
