package ledger_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/storetest"
)

// moments are wall clocks that calendars stumble over: the ends of a month, a year and February of a leap year, and the
// hours that Berlin and New York have twice or not at all.
var moments = []time.Time{
	time.Date(2026, 11, 30, 23, 59, 59, 999e6, time.UTC),
	time.Date(2026, 12, 31, 23, 30, 0, 0, time.UTC),
	time.Date(2028, 2, 29, 12, 0, 0, 0, time.UTC),
	time.Date(2027, 3, 28, 0, 59, 0, 0, time.UTC),
	time.Date(2026, 11, 1, 5, 59, 0, 0, time.UTC),
}

// TestC11Clock: the same requests, with the wall clock jumping by 2 h or a month, there and back, between any two steps.
// What is charged, to whom and to which period is as if it had stood still.
func TestC11Clock(t *testing.T) {
	hour, month := time.Hour, 31*24*time.Hour
	jumps := []time.Duration{2 * hour, -2 * hour, month, -month, 2 * month, -2 * month, 25 * hour, -25 * hour}
	for _, at := range moments {
		still := clockRun(t, at, func(int) time.Duration { return 0 })
		if last := still[len(still)-1]; !strings.Contains(last, "[{7 202611 0.00026} {7 202612 0.00026} {7 202613 0.000334} {7 202614 0.00026}]") {
			t.Errorf("from %v, the clock standing still: %s", at, last)
		}
		for first := range jumps {
			got := clockRun(t, at, func(step int) time.Duration { return jumps[(first+step*3)%len(jumps)] })
			if d := cmp.Diff(still, got); d != "" {
				t.Errorf("from %v, jumping by %v first: %s", at, jumps[first], d)
			}
		}
	}
}

// clockRun gives what is known at the end: available, used, and per record the period and the cost.
func clockRun(t *testing.T, at time.Time, jump func(step int) time.Duration) (sum []string) {
	store, clock := storetest.NewMemory(), llm.NewFakeClock(at)
	var r *rig
	open := func() {
		l, state, err := ledger.Open(store, ledger.Options{}, clock)
		if err != nil {
			t.Fatal(err)
		}
		r = &rig{l, t, store, clock, state}
	}
	open()
	top := ledger.Change{Actor: "admin", Idempotency: "once", Answer: []byte("done")}
	step := 0
	next := func() { clock.Jump(jump(step)); step++ }
	for round := range 4 {
		label := int32(202611 + round)
		applied, _, err := r.PutOnce(context.Background(), top, nil, []llm.Entry{{Kind: llm.EntryCredit, UserID: 1, Cost: 1_000}})
		if err != nil || applied != (round == 0) {
			t.Fatalf("round %d: the top-up of the first, again: applied %v, %v", round, applied, err)
		}
		a, b, c := r.hold(50), r.hold(50), r.hold(50)
		a.Label, b.Label, c.Label = label, label, label
		for _, e := range []llm.Entry{a, b, c, {Kind: llm.EntryProgress, ID: c.ID, Usage: llm.Usage{OutputTokens: 7}}} {
			r.write(e)
			next()
		}
		r.write(r.settle(a.ID, 10))
		next()
		if round == 2 { // killed with b and c open
			store = store.Clone()
			_ = r.Close()
			clock.Jump(at.Sub(clock.Wall())) // a start a day ahead would forget the key
			open()
			continue
		}
		r.write(r.void(b.ID))
		next()
		r.write(r.settle(c.ID, 20))
	}
	r.verify()
	for _, rec := range r.records(ledger.Filter{}) {
		sum = append(sum, fmt.Sprint("record ", rec.Reserve.ID, rec.Reserve.Label, rec.End.Status, rec.End.Cost))
	}
	slices.Sort(sum)
	r = r.restart()
	return append(sum, fmt.Sprint(r.state.Balances, r.state.Used))
}

// TestC8KeysOutliveRestarts: an idempotency key of a money call is known for 24 h, however often the process dies
// meanwhile; the same call again moves nothing, another one under its key is a conflict.
func TestC8KeysOutliveRestarts(t *testing.T) {
	store, clock := storetest.NewMemory(), llm.NewFakeClock(noon)
	credit := []llm.Entry{{Kind: llm.EntryCredit, UserID: 1, Cost: 1_000}}
	call := func(l *ledger.Ledger, request byte) (bool, error) {
		applied, _, err := l.PutOnce(context.Background(), ledger.Change{Idempotency: "top-up", Request: [32]byte{request}, Answer: []byte("done")}, nil, credit)
		return applied, err
	}
	for hour := range 25 {
		l, state, err := ledger.Open(store, ledger.Options{}, clock)
		if err != nil {
			t.Fatal(err)
		}
		if hour > 0 && state.Balances[1].Available() != 1_000 {
			t.Errorf("after %d h and as many crashes the balance is %d", hour, state.Balances[1].Available())
		}
		if applied, err := call(l, 1); err != nil || applied != (hour == 0 || hour == 24) {
			t.Errorf("after %d h the same call: applied %v, %v", hour, applied, err)
		}
		if _, err := call(l, 2); code(err) != "idempotency_conflict" {
			t.Errorf("after %d h another call under the key: %v", hour, err)
		}
		killed := store.Clone()
		_ = l.Close()
		store = killed
		clock.Advance(time.Hour)
	}
}
