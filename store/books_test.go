package store_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store"
	"github.com/weir-gateway/weir/store/storetest"
)

// The ledger's numbered promises, over every store that there is.

// stores are places for a ledger: each gives what opens the same place again and again.
var stores = map[string]func(t testing.TB) (open func() (ledger.Store, error)){
	"memory": func(testing.TB) func() (ledger.Store, error) {
		m := storetest.NewMemory()
		return func() (ledger.Store, error) { m = m.Clone(); return m, nil }
	},
	"badger": func(t testing.TB) func() (ledger.Store, error) {
		dir := t.TempDir()
		return func() (ledger.Store, error) { return store.Open(dir) }
	},
	"postgres": func(t testing.TB) func() (ledger.Store, error) {
		_, url := storetest.Postgres(t)
		return func() (ledger.Store, error) { return store.Open(url) }
	},
}

const month = 202611

var (
	noon  = time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC)
	price = llm.Price{Input: 1_000_000, Output: 2_000_000} // 1 and 2 micro a token
)

// life is a ledger on a store, as one process after another has it.
type life struct {
	*ledger.Ledger
	t     testing.TB
	open  func() (ledger.Store, error)
	fault *faulty
	clock *llm.FakeClock
	state ledger.State
}

// faulty is a store that can fail, before it has written or after.
type faulty struct {
	ledger.Store
	before, after atomic.Int64 // how many of the next calls fail so
}

var errFault = errors.New("injected")

func (f *faulty) Apply(b []ledger.Write, sync bool) error {
	if f.before.Add(-1) >= 0 {
		return errFault
	}
	err := f.Store.Apply(b, sync)
	if err == nil && f.after.Add(-1) >= 0 {
		return errFault
	}
	return err
}

func begin(t testing.TB, open func() (ledger.Store, error), clock *llm.FakeClock) *life {
	t.Helper()
	s, err := open()
	if err != nil {
		t.Fatal(err)
	}
	l := &life{t: t, open: open, fault: &faulty{Store: s}, clock: clock}
	if l.Ledger, l.state, err = ledger.Open(l.fault, ledger.Options{}, clock); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.kill)
	return l
}

// kill takes the store away under the ledger, which is then closed with what it could not write.
func (l *life) kill() {
	_ = l.fault.Store.Close()
	_ = l.Close()
}

// next is the process after this one, which is killed.
func (l *life) next() *life {
	l.t.Helper()
	l.kill()
	return begin(l.t, l.open, l.clock)
}

func (l *life) append(e llm.Entry) uint64 {
	l.t.Helper()
	seq, err := l.Append(&e)
	if err != nil {
		l.t.Fatal(err)
	}
	return seq
}

func (l *life) wait(seq uint64) error { return l.Wait(context.Background(), seq, 20*time.Second) }

func (l *life) write(e llm.Entry) error {
	l.t.Helper()
	return l.wait(l.append(e))
}

func (l *life) credit(user uint64, delta llm.Micro) error {
	return l.Put(context.Background(), ledger.Change{Actor: "admin", Action: "user.credit"}, nil, []llm.Entry{{Kind: llm.EntryCredit, UserID: user, Cost: delta}})
}

func (l *life) hold(user uint64, out llm.Tokens) llm.Entry {
	return llm.Entry{Kind: llm.EntryReserve, ID: l.NextID(), AtMS: l.clock.Wall().UnixMilli(), UserID: user, KeyID: 7, Label: month,
		Model: "gpt-4o-mini", Price: price, Billed: true, Usage: llm.Usage{InputTokens: 100}, Held: price.Hold(100, out)}
}

func (l *life) settle(id uint64, out llm.Tokens) llm.Entry {
	u := llm.Usage{InputTokens: 100, OutputTokens: out}
	return llm.Entry{Kind: llm.EntrySettle, ID: id, AtMS: l.clock.Wall().UnixMilli(), Status: llm.StatusFinalized, Usage: u, Cost: price.Cost(u)}
}

func (l *life) void(id uint64) llm.Entry {
	return llm.Entry{Kind: llm.EntryVoid, ID: id, AtMS: l.clock.Wall().UnixMilli(), Status: llm.StatusRefunded}
}

func (l *life) verify() ledger.Report {
	l.t.Helper()
	report, err := l.Verify()
	if err != nil || len(report.Problems) > 0 {
		l.t.Fatalf("Verify: %v, %q", err, report.Problems)
	}
	return report
}

func code(err error) string {
	if e, ok := errors.AsType[*llm.Error](err); ok {
		return e.Code
	}
	return fmt.Sprint(err)
}

func TestLedger(t *testing.T) {
	cases := []struct {
		name string
		run  func(t *testing.T, l *life)
	}{
		{"C1 conservation, C10 replay equals snapshot", conserved},
		{"C2 no overdraft by admission", noOverdraft},
		{"C3 exactly one ending", oneEnding},
		{"C6 recovery", recovered},
		{"C8 idempotency keys outlive kills", idempotent},
		{"C11 a clock that goes back", clockBack},
		{"C12 writes that fail, or only seem to", faults},
		{"C13 every amount there is", amounts},
	}
	for name, place := range stores {
		t.Run(name, func(t *testing.T) {
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) { c.run(t, begin(t, place(t), llm.NewFakeClock(noon))) })
			}
		})
	}
}

// conserved: whatever eight callers do, and however often the process dies, credits are what is available and posted, the
// totals are those of the log, and both are what the callers were told.
func conserved(t *testing.T, l *life) {
	const users, callers, rounds = 5, 8, 25
	var mu sync.Mutex
	credits, posted := map[uint64]llm.Micro{}, map[uint64]llm.Micro{}
	for range 3 {
		var all sync.WaitGroup
		for c := range callers {
			all.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(c)))
				for range rounds {
					user := 1 + random.Uint64N(users)
					if random.IntN(10) == 0 {
						delta := llm.Micro(random.IntN(3_000)) - 1_000
						if err := l.credit(user, delta); err != nil {
							t.Errorf("credit: %v", err)
						}
						mu.Lock()
						credits[user] += delta
						mu.Unlock()
						continue
					}
					e := l.hold(user, 50)
					if err := l.write(e); err != nil {
						t.Errorf("reserve: %v", err)
					}
					end := l.settle(e.ID, llm.Tokens(random.IntN(80)))
					if random.IntN(4) == 0 {
						end = l.void(e.ID)
					}
					if err := l.write(end); err != nil {
						t.Errorf("ending: %v", err)
					}
					mu.Lock()
					posted[user] += end.Cost
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if report := l.verify(); report.Open != 0 || report.Held != 0 {
			t.Errorf("left open: %+v", report)
		}
		l = l.next()
		for user := uint64(1); user <= users; user++ {
			if got, want := l.state.Balances[user], (ledger.Balance{Credits: credits[user], Posted: posted[user]}); got != want {
				t.Errorf("user %d has %+v, want %+v", user, got, want)
			}
		}
	}
}

// noOverdraft: of 1,000 requests at once for a balance of 300, 300 are admitted and charged, and the next process has none left.
func noOverdraft(t *testing.T, l *life) {
	if err := l.credit(2, 300); err != nil {
		t.Fatal(err)
	}
	m := limit.New(limit.Options{}, l.clock, l)
	defer m.Close()
	m.LoadBalance(2, 300, 0)
	var admitted atomic.Int64
	var all sync.WaitGroup
	for range 1_000 {
		all.Go(func() {
			c := &limit.Claim{Caller: limit.Caller{Org: 1, User: 2, Key: 3}, Money: limit.Money{Price: llm.Price{Request: 1}, Billed: true, Balance: true}}
			res, d, err := m.Reserve(context.Background(), c)
			if err != nil || d != nil && d.Axis != limit.AxisBalance {
				t.Errorf("%+v, %v", d, err)
			}
			if err == nil && d == nil {
				admitted.Add(1)
				res.Sent("main")
				res.Answered(200)
				res.Commit(llm.Usage{}, true)
			}
		})
	}
	all.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = l.next()
	if got := l.state.Balances[2]; admitted.Load() != 300 || got != (ledger.Balance{Credits: 300, Posted: 300}) {
		t.Errorf("%d admitted, the next process finds %+v", admitted.Load(), got)
	}
}

// oneEnding: of a settle and a void at once, one counts and the other is told what it lost to, also after a kill.
func oneEnding(t *testing.T, l *life) {
	const n = 200
	ids, won := make([]uint64, n), make([]llm.EntryKind, n)
	var posted llm.Micro
	for i := range ids {
		e := l.hold(1, 50)
		ids[i] = e.ID
		l.append(e)
	}
	lostTo := map[llm.EntryKind]string{llm.EntrySettle: "already_settled", llm.EntryVoid: "already_voided"}
	var all sync.WaitGroup
	var mu sync.Mutex
	for i, id := range ids {
		for _, end := range []llm.Entry{l.settle(id, 10), l.void(id)} {
			all.Go(func() {
				err := l.write(end)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil && won[i] == 0:
					won[i] = end.Kind
					posted += end.Cost
				case err == nil:
					t.Errorf("reservation %d ended twice", id)
				}
			})
		}
	}
	all.Wait()
	for range 2 {
		for i, id := range ids {
			if err := l.write(l.settle(id, 10)); won[i] == 0 || code(err) != lostTo[won[i]] && code(err) != "already_settled" {
				t.Fatalf("reservation %d ended with %v, another settle: %v", id, won[i], err)
			}
		}
		if report := l.verify(); report.Posted != posted || report.Open != 0 {
			t.Fatalf("%+v, want %d posted", report, posted)
		}
		l = l.next()
	}
}

// recovered: what a kill leaves open is charged its input and its last progress, once, and nothing is held.
func recovered(t *testing.T, l *life) {
	const n = 3_000
	var last uint64
	var posted llm.Micro
	for i := range n {
		e := l.hold(1, 50)
		last = l.append(e)
		posted += 100
		if i%2 == 1 {
			last = l.append(llm.Entry{Kind: llm.EntryProgress, ID: e.ID, Usage: llm.Usage{OutputTokens: 30}})
			posted += 60
		}
	}
	if err := l.wait(last); err != nil {
		t.Fatal(err)
	}
	l = l.next()
	if len(l.state.Recoveries) != n || l.state.Balances[1] != (ledger.Balance{Posted: posted}) {
		t.Errorf("%d recovered, %+v; want %d and %d posted", len(l.state.Recoveries), l.state.Balances[1], n, posted)
	}
	if report := l.verify(); report.Open != 0 || report.Held != 0 {
		t.Errorf("%+v", report)
	}
	if l = l.next(); len(l.state.Recoveries) != 0 {
		t.Errorf("%d recovered twice", len(l.state.Recoveries))
	}
}

func idempotent(t *testing.T, l *life) {
	for hour := range 3 {
		applied, answer, err := l.PutOnce(context.Background(), ledger.Change{Idempotency: "top-up", Request: [32]byte{1}, Answer: []byte("done")},
			[]ledger.Doc{{Kind: "user", ID: "1", Data: []byte("{}")}}, []llm.Entry{{Kind: llm.EntryCredit, UserID: 1, Cost: 1_000}})
		if err != nil || applied != (hour == 0) || string(answer) != "done" {
			t.Errorf("call %d: applied %v, %q, %v", hour, applied, answer, err)
		}
		_, _, err = l.PutOnce(context.Background(), ledger.Change{Idempotency: "top-up", Request: [32]byte{2}}, nil, nil)
		if code(err) != "idempotency_conflict" {
			t.Errorf("another call under the key: %v", err)
		}
		l.clock.Advance(time.Hour)
		l = l.next()
		if got := l.state.Balances[1].Credits; got != 1_000 {
			t.Errorf("after %d kills the credits are %d", hour+1, got)
		}
	}
}

// clockBack: a wall clock that goes back between two processes loses and doubles nothing.
func clockBack(t *testing.T, l *life) {
	for range 3 {
		e := l.hold(1, 50)
		if err := errors.Join(l.write(e), l.write(l.settle(e.ID, 10))); err != nil {
			t.Fatal(err)
		}
		l.append(l.hold(1, 50))
		l.clock.Jump(-30 * 24 * time.Hour)
		if err := l.write(l.hold(1, 50)); err != nil {
			t.Fatal(err)
		}
		l = l.next()
	}
	if report := l.verify(); report.Posted != 3*(120+2*100) || report.Open != 0 {
		t.Errorf("%+v", report)
	}
}

// faults: a write that fails, and one that has landed and says that it failed, leave what their callers were told.
func faults(t *testing.T, l *life) {
	var posted llm.Micro
	for i := range 12 {
		e := l.hold(1, 50)
		if err := l.write(e); err != nil {
			t.Fatal(err)
		}
		fail := &l.fault.before
		if i%2 == 1 {
			fail = &l.fault.after
		}
		fail.Store(int64(1 + i%3))
		late := l.append(l.settle(e.ID, llm.Tokens(i)))
		refused := l.hold(1, 50)
		if seq, err := l.Append(&refused); err == nil && l.wait(seq) == nil {
			refused = l.settle(refused.ID, 0) // it came in before the failure was known, or after it was over
			posted += refused.Cost
			l.append(refused)
		} else if err == nil {
			l.append(l.void(refused.ID))
		}
		if err := l.wait(late); err != nil {
			t.Errorf("an ending: %v", err)
		}
		posted += 100 + 2*llm.Micro(i)
		for deadline := time.Now().Add(10 * time.Second); l.Healthy() != nil; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the ledger stays down")
			}
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = l.next()
	if got := l.state.Balances[1].Posted; got != posted {
		t.Errorf("%d posted, want %d", got, posted)
	}
	if report := l.verify(); report.Posted != posted || report.Open != 0 {
		t.Errorf("%+v", report)
	}
}

// amounts come back as they were, on either side of zero and at the ends of what can be counted.
func amounts(t *testing.T, l *life) {
	all := []llm.Micro{1, -1, 999_999, -1_000_001, llm.MaxCost, -llm.MaxCost, math.MaxInt64 - 1, 1 - math.MaxInt64}
	for i, m := range all {
		if err := l.credit(uint64(i), m); err != nil {
			t.Fatal(err)
		}
	}
	l = l.next()
	for i, m := range all {
		if got := l.state.Balances[uint64(i)]; got != (ledger.Balance{Credits: m}) {
			t.Errorf("%d came back as %+v", m, got)
		}
	}
}
