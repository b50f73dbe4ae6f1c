package ledger_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/storetest"
)

// grown is a ledger with some 26,000 entries over 120 s, credits, an old reservation that is open all the time, and the
// time at which a third of it was over.
func grown(t *testing.T) (r *rig, third time.Time) {
	r = fresh(t)
	random := rand.New(rand.NewPCG(4, 4))
	r.write(r.hold(9)) // stays open
	for i := range 3 {
		for user := range uint64(40) {
			r.credit(user+1, 10_000)
		}
		r.busy(4_000, random)
		if i == 0 {
			third = r.clock.Wall()
		}
	}
	return r, third
}

func (r *rig) prune(before time.Time) ledger.Pruned {
	r.t.Helper()
	p, err := r.Prune(context.Background(), ledger.Change{Actor: "admin"}, before)
	if err != nil {
		r.t.Fatalf("Prune: %v", err)
	}
	return p
}

// totals is everything that a Prune must not touch.
func totals(t *testing.T, s *storetest.Memory) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, prefix := range []string{"u", "q", "d", "i"} {
		if err := s.Scan([]byte(prefix), nil, false, func(k, v []byte) bool { all[string(k)] = string(v); return true }); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// Prune drops old usage records and nothing else, in steps, and what Verify can check it still can.
func TestPrune(t *testing.T) {
	r, third := grown(t)
	before, all := totals(t, r.store), r.records(ledger.Filter{})
	sums := r.verify()
	if p := r.prune(noon); p.Entries != 0 || p.First != 1 {
		t.Errorf("nothing is older than the first entry, and %+v was dropped", p)
	}
	for _, until := range []time.Time{noon.Add(10 * time.Second), third, third.Add(time.Hour), third.Add(time.Hour)} {
		p := r.prune(until)
		t.Logf("%+v", p)
		if d := cmp.Diff(before, totals(t, r.store)); d != "" {
			t.Fatalf("totals, documents or answers changed: %s", d)
		}
		report := r.verify()
		if report.Credits != sums.Credits || report.Posted != sums.Posted || report.Held != sums.Held || report.Open != sums.Open {
			t.Fatalf("before %+v, now %+v", sums, report)
		}
		left := r.records(ledger.Filter{})
		for i := range left {
			if left[len(left)-1-i] != all[len(all)-1-i] {
				t.Fatalf("the %d-th record from the end is another one", i)
			}
		}
		for _, rec := range all[:len(all)-len(left)] {
			if !time.UnixMilli(rec.End.AtMS).Before(until) {
				t.Fatalf("a record of %v is gone; dropped should be what is before %v", time.UnixMilli(rec.End.AtMS), until)
			}
		}
	}
	if n := count(t, r, 'l'); n > 200 {
		t.Errorf("%d chunks are left", n)
	}
	r = r.killed()
	after := r.verify()
	if after.Held != 0 || after.Credits != sums.Credits {
		t.Errorf("after a crash: %+v", after)
	}
	r.clock.Jump(time.Hour)
	r.busy(5_000, rand.New(rand.NewPCG(1, 1)))
	r.prune(r.clock.Wall())
	r.verify()
}

// Killed at any write of a Prune: the start is as ever, Verify agrees, and the next Prune finishes it.
func TestPruneKilled(t *testing.T) {
	r, third := grown(t)
	r.prune(third.Add(-20 * time.Second))
	want := r.killed().state
	var clones []*storetest.Memory
	r.store.Before(func(int, []ledger.Write) error { clones = append(clones, r.store.Clone()); return nil })
	end := r.prune(third)
	r.store.Before(nil)
	if len(clones) < 5 {
		t.Fatalf("a Prune took %d writes only", len(clones))
	}
	for i := 0; i < len(clones); i += 1 + len(clones)/12 {
		k := start(t, clones[i], ledger.Options{})
		k.verify()
		if d := cmp.Diff(want.Balances, k.state.Balances); d != "" || !cmp.Equal(want.Used, k.state.Used) {
			t.Fatalf("killed at write %d: %s", i, d)
		}
		k.records(ledger.Filter{})
		if p := k.prune(third); p.First != end.First {
			t.Fatalf("killed at write %d: the next Prune goes to %d, want %d", i, p.First, end.First)
		}
		k.verify()
		if n := len(k.records(ledger.Filter{})); n != len(r.records(ledger.Filter{}))+want.Recovered {
			t.Errorf("killed at write %d: %d records", i, n)
		}
		_ = k.Close()
	}
}

// A Prune whose writes fail says so, changes no total, and works when it is repeated.
func TestPruneFails(t *testing.T) {
	r, third := grown(t)
	r.prune(third.Add(-20 * time.Second))
	before := totals(t, r.store)
	for n := 1; ; n++ {
		first := r.store.Applies() + n
		r.store.After(func(call int) error {
			if call == first {
				return storetest.ErrInjected
			}
			return nil
		})
		_, err := r.Prune(context.Background(), ledger.Change{}, third)
		waitFor(t, "the store to be up", func() bool { return r.Healthy() == nil })
		if d := cmp.Diff(before, totals(t, r.store)); d != "" {
			t.Fatalf("after failure %d: %s", n, d)
		}
		r.verify()
		if err == nil {
			break
		}
	}
	r.store.After(nil)
	r.verify()
}

// What stands for the dropped entries cannot be changed unseen.
func TestBaseIsChecked(t *testing.T) {
	r, third := grown(t)
	r.prune(third)
	r.verify()
	for _, c := range []struct{ name, prefix, says string }{
		{"a copy changed", "b\x01", "the base at entry"},
		{"a copy gone", "b\x01", "the base at entry"},
		{"the head changed", "b\x00", "the base at entry"},
		{"the head gone", "b\x00", "the log goes from entry 0"},
	} {
		s := r.store.Clone()
		var w ledger.Write
		_ = s.Scan([]byte(c.prefix), nil, false, func(k, v []byte) bool {
			w = ledger.Write{Key: bytes.Clone(k), Value: bytes.Clone(v)}
			return false
		})
		if w.Value[len(w.Value)-1] ^= 1; strings.Contains(c.name, "gone") {
			w.Value = nil
		}
		if err := s.Apply([]ledger.Write{w}, false); err != nil {
			t.Fatal(err)
		}
		report, err := ledger.Verify(s)
		if err != nil || !strings.Contains(strings.Join(report.Problems, "\n"), c.says) {
			t.Errorf("%s: %v, %.300q", c.name, err, report.Problems)
		}
	}
}

// Requests, lists and Verify go on while the log loses its beginning.
func TestPruneWhileRunning(t *testing.T) {
	r, third := grown(t)
	done := make(chan error)
	go func() {
		var err error
		for i := time.Duration(5); err == nil && i <= 40; i += 5 {
			_, err = r.Prune(context.Background(), ledger.Change{}, third.Add((i-40)*time.Second))
		}
		done <- err
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			r.verify()
			return
		default:
		}
		e := r.hold(1)
		r.write(e)
		r.write(llm.Entry{Kind: llm.EntryVoid, ID: e.ID})
		r.records(ledger.Filter{To: third})
		r.verify()
	}
}

// A list that is under way when its chunks are dropped goes on with what is left.
func TestRecordsWhilePruned(t *testing.T) {
	r, third := grown(t)
	n := 0
	for _, err := range r.Records(ledger.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 1 {
			r.prune(third)
		}
	}
	if left := len(r.records(ledger.Filter{})); n < left {
		t.Errorf("%d records were listed, and %d are left", n, left)
	}
}
