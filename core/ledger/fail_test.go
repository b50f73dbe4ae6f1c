package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/storetest"
)

// both runs a test with writes that fail before, and after, they reached the store.
func both(t *testing.T, run func(t *testing.T, r *rig, fail func(n int))) {
	for _, landed := range []bool{false, true} {
		t.Run(fmt.Sprintf("landed=%v", landed), func(t *testing.T) {
			r := fresh(t)
			run(t, r, func(n int) {
				if !landed {
					r.store.FailNext(n)
					return
				}
				first := r.store.Applies() + 1
				r.store.After(func(call int) error {
					if call < first+n {
						return storetest.ErrInjected
					}
					return nil
				})
			})
		})
	}
}

func TestM03SettlementIsRetriedAndChargedOnce(t *testing.T) {
	both(t, func(t *testing.T, r *rig, fail func(int)) {
		e := r.hold(50)
		r.write(e)
		fail(1)
		seq := r.append(r.settle(e.ID, 10))
		if err := r.wait(seq); err != nil {
			t.Fatalf("the settlement was not retried: %v", err)
		}
		if err := r.Healthy(); err != nil {
			t.Errorf("after a write that succeeded: %v", err)
		}
		if n := len(r.records(ledger.Filter{})); n != 1 {
			t.Errorf("%d records of one request", n)
		}
		r = r.killed()
		r.wantMoney(-120, 120)
		r.verify()
	})
}

// A reserve whose write failed is told so at once and is not open, neither in memory nor in the log.
func TestFailedReserveIsNotOpen(t *testing.T) {
	both(t, func(t *testing.T, r *rig, fail func(int)) {
		fail(1)
		e := r.hold(50)
		seq := r.append(e)
		if err := r.wait(seq); code(err) != "ledger_unavailable" || !errors.Is(err, storetest.ErrInjected) {
			t.Fatalf("Wait on a reserve that failed: %v", err)
		}
		// the caller cancels; nothing is owed
		if err := r.wait(r.append(r.void(e.ID))); err != nil {
			t.Errorf("its void: %v", err)
		}
		if report := r.verify(); report.Open != 0 || report.Entries != 0 {
			t.Errorf("the log has it: %+v", report)
		}
		if k := r.killed(); k.state.Recovered != 0 {
			t.Error("a restart charged it")
		}
	})
}

// When the caller charges all the same, reserve and ending are written together: the log agrees with the limiter.
func TestFailedReserveThatIsCharged(t *testing.T) {
	both(t, func(t *testing.T, r *rig, fail func(int)) {
		fail(1)
		e := r.hold(50)
		if err := r.wait(r.append(e)); err == nil {
			t.Fatal("the write did not fail")
		}
		r.append(llm.Entry{Kind: llm.EntryProgress, ID: e.ID, Usage: llm.Usage{OutputTokens: 3}})
		r.write(r.settle(e.ID, 10))
		if err := r.wait(r.append(r.settle(e.ID, 10))); code(err) != "already_settled" {
			t.Errorf("a second ending: %v", err)
		}
		r.verify()
		r = r.killed()
		r.wantMoney(-120, 120)
	})
}

// Reserves in the queue behind a failed write do not wait for the store to come back.
func TestQueuedReservesFailAtOnce(t *testing.T) {
	r := fresh(t)
	open := r.hold(50)
	r.write(open)
	gate, broken := make(chan struct{}), make(chan struct{})
	entered := make(chan struct{}, 100)
	r.store.Before(func(int, []ledger.Write) error {
		entered <- struct{}{}
		<-gate
		select {
		case <-broken:
			return nil
		default:
			return storetest.ErrInjected
		}
	})
	end := r.append(r.settle(open.ID, 10))
	<-entered
	var reserves []uint64
	var ids []llm.Entry
	for range 300 {
		e := r.hold(1)
		ids = append(ids, e)
		reserves = append(reserves, r.append(e))
	}
	close(gate)
	for _, seq := range reserves {
		if err := r.Wait(context.Background(), seq, time.Minute); code(err) != "ledger_unavailable" {
			t.Fatalf("a reserve behind a failed write: %v", err)
		}
	}
	if err := r.Healthy(); err == nil {
		t.Error("healthy while the store fails")
	}
	late := r.hold(1)
	if _, err := r.Append(&late); code(err) != "ledger_unavailable" {
		t.Errorf("a reserve while the store is down: %v", err)
	}
	if err := r.Put(context.Background(), ledger.Change{}, nil, nil); code(err) != "ledger_unavailable" {
		t.Errorf("a change while the store is down: %v", err)
	}
	for _, e := range ids {
		r.append(r.void(e.ID))
	}
	close(broken)
	if err := r.wait(end); err != nil {
		t.Errorf("the settlement: %v", err)
	}
	waitFor(t, "the store to be up again", func() bool { return r.Healthy() == nil })
	r.write(r.hold(1)) // up again
	if report := r.verify(); report.Open != 1 || report.Posted != 120 {
		t.Errorf("%+v", report)
	}
}

// A change that fails leaves nothing, and repeating it works.
func TestFailedPutHasNoEffect(t *testing.T) {
	both(t, func(t *testing.T, r *rig, fail func(int)) {
		ctx := context.Background()
		docs := []ledger.Doc{{"user", "1", []byte("old")}, {"user", "2", []byte("gone soon")}}
		if err := r.Put(ctx, ledger.Change{Actor: "admin"}, docs, nil); err != nil {
			t.Fatal(err)
		}
		fail(1)
		c := ledger.Change{Actor: "admin", Action: "user.change", Idempotency: "once", Answer: []byte("ok")}
		change := func() error {
			return r.Put(ctx, c, []ledger.Doc{{"user", "1", []byte("new")}, {"user", "2", nil}, {"user", "9", []byte("x")}},
				[]llm.Entry{{Kind: llm.EntryCredit, UserID: 1, Cost: 500}})
		}
		if err := change(); code(err) != "ledger_unavailable" {
			t.Fatalf("Put over a failing store: %v", err)
		}
		waitFor(t, "the store to be clean again", func() bool { return r.Healthy() == nil })
		if got := r.docs("user"); !slices.Equal(got, []string{"1=old", "2=gone soon"}) {
			t.Errorf("documents after the failure: %q", got)
		}
		if _, ok, _ := r.Replay("once", [32]byte{}); ok {
			t.Error("the answer of a failed change was kept")
		}
		if err := change(); err != nil {
			t.Fatalf("repeating: %v", err)
		}
		if got := r.docs("user"); !slices.Equal(got, []string{"1=new", "9=x"}) {
			t.Errorf("documents: %q", got)
		}
		r.verify()
		r = r.killed()
		r.wantMoney(500, 0)
		if id := r.NextDocID("user"); id != 10 {
			t.Errorf("next user is %d, want 10", id)
		}
	})
}

// A sync that fails is told by Healthy, refuses reserves and acknowledges no ending until one succeeds.
func TestSyncFails(t *testing.T) {
	r := fresh(t)
	r.store.FailSync(storetest.ErrInjected)
	e := r.hold(1)
	r.write(e)
	waitFor(t, "Healthy to tell", func() bool { return r.Healthy() != nil })
	late := r.hold(1)
	if _, err := r.Append(&late); err == nil {
		t.Error("a reserve was taken while syncs fail")
	}
	end := r.append(r.void(e.ID))
	if err := r.Wait(context.Background(), end, 20*time.Millisecond); code(err) != "ledger_timeout" {
		t.Errorf("an ending while syncs fail: %v", err)
	}
	r.store.FailSync(nil)
	if err := r.wait(end); err != nil {
		t.Errorf("the ending, later: %v", err)
	}
	waitFor(t, "Healthy again", func() bool { return r.Healthy() == nil })
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// Closing over a dead store ends, and tells what was lost.
func TestCloseOverDeadStore(t *testing.T) {
	r := fresh(t)
	e := r.hold(1)
	r.write(e)
	r.store.FailNext(1 << 30)
	seq := r.append(r.settle(e.ID, 1))
	waiting := make(chan error)
	go func() { waiting <- r.wait(seq) }()
	if err := r.Close(); !errors.Is(err, storetest.ErrInjected) {
		t.Errorf("Close: %v", err)
	}
	if err := <-waiting; code(err) != "ledger_unavailable" {
		t.Errorf("the waiter: %v", err)
	}
}

// Whatever the n-th write is, its failure loses nothing and leaves nothing.
func TestNthWriteFails(t *testing.T) {
	for n := 1; n <= 12; n++ {
		for _, landed := range []bool{false, true} {
			nthWriteFails(t, n, landed)
		}
	}
}

func nthWriteFails(t *testing.T, n int, landed bool) {
	r := fresh(t)
	n += r.store.Applies()
	fail := func(call int) error {
		if call == n || call == n+1 {
			return storetest.ErrInjected
		}
		return nil
	}
	if landed {
		r.store.After(fail)
	} else {
		r.store.Before(func(call int, _ []ledger.Write) error { return fail(call) })
	}
	var mu sync.Mutex
	var posted llm.Micro
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			e := r.hold(50)
			seq, err := r.Append(&e)
			if err != nil {
				return
			}
			end := r.settle(e.ID, llm.Tokens(i))
			if i%3 == 0 || r.wait(seq) != nil && i%2 == 0 {
				end = r.void(e.ID)
			}
			if err := r.wait(r.append(end)); err != nil {
				t.Errorf("write %d, ending %d: %v", n, i, err)
			}
			mu.Lock()
			posted += end.Cost
			mu.Unlock()
		})
	}
	wg.Wait()
	if report := r.verify(); report.Open != 0 || report.Posted != posted {
		t.Errorf("write %d (landed %v): posted %d, want %d; %d open", n, landed, report.Posted, posted, report.Open)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
