package ledger_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/storetest"
)

// null is a store that takes everything and keeps nothing: what is measured is the ledger alone.
type null struct{ *storetest.Memory }

func (null) Apply([]ledger.Write, bool) error { return nil }
func (null) Sync() error                      { return nil }

func nullLedger(t testing.TB, o ledger.Options) *ledger.Ledger {
	t.Helper()
	l, _, err := ledger.Open(null{storetest.NewMemory()}, o, llm.NewFakeClock(noon))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// The request path allocates nothing: not to append, and not to wait for what is written already.
func TestAppendAllocatesNothing(t *testing.T) {
	r := fresh(t)
	e := r.hold(1)
	seq := r.append(e)
	if err := r.wait(seq); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { _ = r.wait(seq) }); n != 0 {
		t.Errorf("Wait allocates %v times", n)
	}
	gate, entered := make(chan struct{}), make(chan struct{}, 9)
	fill := func() {
		r.store.Before(func(int, []ledger.Write) error { entered <- struct{}{}; <-gate; return nil })
		r.append(r.hold(1))
		<-entered
	}
	for range 2 { // both slices grow once
		fill()
		for range 5_000 {
			r.append(llm.Entry{Kind: llm.EntryProgress, ID: e.ID})
		}
		r.store.Before(nil)
		gate <- struct{}{}
		r.write(r.hold(1))
	}
	fill()
	p := llm.Entry{Kind: llm.EntryProgress, ID: e.ID}
	if n := testing.AllocsPerRun(1_000, func() { _, _ = r.Append(&p) }); n != 0 {
		t.Errorf("Append allocates %v times", n)
	}
	close(gate)
}

// A settled request is allocated once, by the owner: as an open reservation. Its group and what it writes use their room
// again.
func TestRequestIsAllocatedOnce(t *testing.T) {
	const requests = 512
	l := nullLedger(t, ledger.Options{})
	settled := func() {
		var seq uint64
		for range requests {
			id := l.NextID()
			_, err := l.Append(&llm.Entry{Kind: llm.EntryReserve, ID: id, UserID: id % 8, KeyID: id % 16, Label: label, Billed: true, Held: 100})
			if err != nil {
				t.Fatal(err)
			}
			seq, _ = l.Append(&llm.Entry{Kind: llm.EntrySettle, ID: id, Status: llm.StatusFinalized, Cost: 50})
		}
		if err := l.Wait(context.Background(), seq, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	for range 64 { // until the endings that are remembered are as many as they will be
		settled()
	}
	if n := testing.AllocsPerRun(20, settled) / requests; n > 1.05 {
		t.Errorf("%.2f allocations a request", n)
	}
}

// BenchmarkAppend is the request path's part of an entry: to enqueue it.
func BenchmarkAppend(b *testing.B) {
	l := nullLedger(b, ledger.Options{})
	e := llm.Entry{Kind: llm.EntryReserve, ID: 1, Model: "gpt-4o-mini", UserID: 1, KeyID: 1}
	seq, err := l.Append(&e)
	if err != nil {
		b.Fatal(err)
	}
	e.Kind = llm.EntryProgress
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%4096 == 4095 {
			b.StopTimer()
			_ = l.Wait(context.Background(), seq, time.Minute)
			b.StartTimer()
		}
		if seq, err = l.Append(&e); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOwner is a whole request over a store that costs nothing: append and fold of both entries, encoding, and
// waking the waiter of a group.
func BenchmarkOwner(b *testing.B) {
	l := nullLedger(b, ledger.Options{})
	r := llm.Entry{Kind: llm.EntryReserve, UserID: 1, KeyID: 7, Label: label, Price: price, Billed: true, Model: "gpt-4o-mini", Held: 100}
	e := llm.Entry{Kind: llm.EntrySettle, Status: llm.StatusFinalized, Cost: 50, Channel: "east"}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.ID = l.NextID()
		e.ID = r.ID
		if _, err := l.Append(&r); err != nil {
			b.Fatal(err)
		}
		seq, _ := l.Append(&e)
		if i%128 == 127 {
			_ = l.Wait(context.Background(), seq, time.Minute)
		}
	}
}

// BenchmarkWait is one caller that waits for each entry: the hand-over to the owner and back.
func BenchmarkWait(b *testing.B) {
	l := nullLedger(b, ledger.Options{})
	e := llm.Entry{Kind: llm.EntryReserve, UserID: 1}
	b.ReportAllocs()
	for b.Loop() {
		e.ID = l.NextID()
		seq, err := l.Append(&e)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Wait(context.Background(), seq, time.Minute); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAlone is the latency of one caller at 500 a second on an otherwise idle machine, where what waits has been put
// to sleep by the kernel: append and wait.
//
//	go test ./core/ledger ./store/badger -run '^$' -bench Alone -benchtime 2000x
func BenchmarkAlone(b *testing.B) {
	l := nullLedger(b, ledger.Options{})
	took := make([]time.Duration, 0, b.N)
	for range b.N {
		time.Sleep(2 * time.Millisecond)
		from := time.Now()
		seq, err := l.Append(&llm.Entry{Kind: llm.EntryReserve, ID: l.NextID(), UserID: 1})
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Wait(context.Background(), seq, time.Minute); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(from))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(took[len(took)*9/10].Nanoseconds()), "p90-ns")
}
