package postgres_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/postgres"
	"github.com/weir-gateway/weir/store/storetest"
)

var price = llm.Price{Input: 1_000_000, Output: 1_000_000} // one micro a token

func reserve(id, user uint64) *llm.Entry {
	return &llm.Entry{Kind: llm.EntryReserve, ID: id, UserID: user, KeyID: user, Label: 202611, Price: price, Billed: true, Model: "m",
		AtMS: 1_795_000_000_000, Usage: llm.Usage{InputTokens: 10}, Held: price.Hold(10, 90)}
}

func settle(id uint64) *llm.Entry {
	u := llm.Usage{InputTokens: 10, OutputTokens: 20}
	return &llm.Entry{Kind: llm.EntrySettle, ID: id, Status: llm.StatusFinalized, Usage: u, Cost: price.Cost(u), AtMS: 1_795_000_000_000}
}

func write(l *ledger.Ledger, e *llm.Entry) error {
	seq, err := l.Append(e)
	if err == nil {
		err = l.Wait(context.Background(), seq, time.Minute)
	}
	return err
}

func start(t testing.TB, s ledger.Store, o ledger.Options) *ledger.Ledger {
	t.Helper()
	l, _, err := ledger.Open(s, o, llm.NewSystemClock())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestServerDies: the server's processes are killed under load, and it is stopped and started in order; the gateway lives.
// Whatever was acknowledged is there, once, and the ledger goes on by itself.
func TestServerDies(t *testing.T) {
	for _, d := range []ledger.Durability{ledger.Process, ledger.Power} {
		t.Run(string(d), func(t *testing.T) {
			srv, url := storetest.Postgres(t)
			s := open(t, url)
			l := start(t, s, ledger.Options{Durability: d})
			var mu sync.Mutex
			acknowledged := map[uint64]bool{}
			stop := make(chan struct{})
			var callers sync.WaitGroup
			for c := range 16 {
				callers.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						id := l.NextID()
						if write(l, reserve(id, uint64(c%4))) != nil {
							_, _ = l.Append(&llm.Entry{Kind: llm.EntryVoid, ID: id}) // as the gateway does with what it has to refuse
							time.Sleep(time.Millisecond)
							continue
						}
						if err := write(l, settle(id)); err != nil {
							t.Errorf("an ending: %v", err)
						}
						mu.Lock()
						acknowledged[id] = true
						mu.Unlock()
					}
				})
			}
			more := func() {
				t.Helper()
				mu.Lock()
				from := len(acknowledged)
				mu.Unlock()
				for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
					mu.Lock()
					n := len(acknowledged)
					mu.Unlock()
					if n >= from+200 {
						return
					}
					if time.Now().After(deadline) {
						t.Fatalf("no more requests are settled: %v", l.Healthy())
					}
				}
			}
			for _, crash := range []bool{true, false} {
				more()
				srv.Stop(t, crash)
				srv.Start(t)
			}
			more()
			close(stop)
			callers.Wait()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			wantAll(t, s, acknowledged)
		})
	}
}

// wantAll: the ledger adds up, and has each of these once.
func wantAll(t *testing.T, s *postgres.Store, acknowledged map[uint64]bool) {
	t.Helper()
	l := start(t, s, ledger.Options{})
	report, err := l.Verify()
	if err != nil || len(report.Problems) > 0 || report.Open != 0 {
		t.Errorf("%v, %+v", err, report)
	}
	recorded := map[uint64]bool{}
	for r, err := range l.Records(ledger.Filter{}) {
		if err != nil || recorded[r.End.ID] {
			t.Fatalf("reservation %d, %v: twice? %v", r.End.ID, err, recorded[r.End.ID])
		}
		recorded[r.End.ID] = true
	}
	for id := range acknowledged {
		if !recorded[id] {
			t.Errorf("%d was acknowledged and is not there", id)
		}
	}
	t.Logf("%d acknowledged, %d recorded", len(acknowledged), len(recorded))
}

// TestServerHangsUnderTheLedger: a server that answers nothing has new requests refused after stall_ms; when it goes on, so
// does everything, and an ending that waited is written.
func TestServerHangsUnderTheLedger(t *testing.T) {
	srv, url := storetest.Postgres(t)
	s := open(t, url)
	l := start(t, s, ledger.Options{StallMS: 200})
	id := l.NextID()
	if err := write(l, reserve(id, 1)); err != nil {
		t.Fatal(err)
	}
	resume := srv.Pause(t)
	seq, err := l.Append(settle(id))
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the ledger is down", func() bool { return l.Healthy() != nil })
	if _, err := l.Append(reserve(l.NextID(), 1)); err == nil {
		t.Error("a reserve was taken while the server hangs")
	}
	resume()
	if err := l.Wait(t.Context(), seq, 30*time.Second); err != nil {
		t.Errorf("the ending: %v", err)
	}
	until(t, "the ledger is up", func() bool { return l.Healthy() == nil })
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	wantAll(t, s, map[uint64]bool{id: true})
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
