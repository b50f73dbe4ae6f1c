package ledger_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
)

// history writes 300 requests, one every 100 ms, alternating over three keys and two models; every fifth is voided.
func history(t *testing.T) *rig {
	r := fresh(t)
	var last uint64
	for i := range 300 {
		e := r.hold(50)
		e.KeyID, e.UserID, e.OrgID = uint64(i%3+1), uint64(i%2+1), 3
		e.RequestID = uint64(i)
		if i%4 == 0 {
			e.Model = "claude"
		}
		r.append(e)
		end := r.settle(e.ID, 10)
		if i%5 == 0 {
			end = r.void(e.ID)
		}
		last = r.append(end)
		if i%10 == 0 {
			if err := r.wait(last); err != nil {
				t.Fatal(err)
			}
		}
		r.clock.Jump(100 * time.Millisecond)
	}
	if err := r.wait(last); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRecords(t *testing.T) {
	r := history(t)
	at := func(i int) time.Time { return noon.Add(time.Duration(i) * 100 * time.Millisecond) }
	for _, c := range []struct {
		name string
		f    ledger.Filter
		want func(i int) bool
	}{
		{"all", ledger.Filter{}, func(int) bool { return true }},
		{"key", ledger.Filter{Key: 2}, func(i int) bool { return i%3 == 1 }},
		{"user", ledger.Filter{User: 1}, func(i int) bool { return i%2 == 0 }},
		{"org", ledger.Filter{Org: 4}, func(int) bool { return false }},
		{"model", ledger.Filter{Model: "claude"}, func(i int) bool { return i%4 == 0 }},
		{"status", ledger.Filter{Status: "refunded"}, func(i int) bool { return i%5 == 0 }},
		{"from", ledger.Filter{From: at(123)}, func(i int) bool { return i >= 123 }},
		{"to", ledger.Filter{To: at(123)}, func(i int) bool { return i < 123 }},
		{"between", ledger.Filter{From: at(100), To: at(110), Key: 1}, func(i int) bool { return i >= 100 && i < 110 && i%3 == 0 }},
		{"later than all", ledger.Filter{From: at(1000)}, func(int) bool { return false }},
		{"before all", ledger.Filter{To: at(-1000)}, func(int) bool { return false }},
	} {
		for _, newest := range []bool{false, true} {
			t.Run(fmt.Sprint(c.name, " newest=", newest), func(t *testing.T) {
				var want []uint64
				for i := range 300 {
					if c.want(i) {
						want = append(want, uint64(i))
					}
				}
				if newest {
					slices.Reverse(want)
				}
				c.f.Newest = newest
				if d := cmp.Diff(want, numbersOf(r.records(c.f))); d != "" {
					t.Error(d)
				}
				if d := cmp.Diff(want, numbersOf(r.paged(c.f, 7))); d != "" {
					t.Errorf("in pages: %s", d)
				}
			})
		}
	}
}

func numbersOf(records []ledger.Record) (n []uint64) {
	for _, rec := range records {
		n = append(n, rec.Reserve.RequestID)
	}
	return n
}

// paged reads n records at a time and resumes by cursor.
func (r *rig) paged(f ledger.Filter, n int) (all []ledger.Record) {
	r.t.Helper()
	for {
		got := 0
		for rec, err := range r.Records(f) {
			if err != nil {
				r.t.Fatal(err)
			}
			all = append(all, rec)
			f.Cursor = rec.Cursor
			if got++; got == n {
				break
			}
		}
		if got < n {
			return all
		}
	}
}

func TestRecordIsJoined(t *testing.T) {
	r := fresh(t)
	e := r.hold(50)
	end := r.settle(e.ID, 10)
	r.write(e)
	r.write(end)
	got := r.records(ledger.Filter{})
	got[0].Cursor = ""
	if d := cmp.Diff([]ledger.Record{{Reserve: e, End: end}}, got); d != "" {
		t.Error(d)
	}
}

// A wall clock that jumps puts records where their own time says.
func TestRecordsAfterAJump(t *testing.T) {
	r := fresh(t)
	for i, jump := range []time.Duration{0, -2 * time.Hour, 4 * time.Hour} {
		r.clock.Jump(jump)
		e := r.hold(1)
		e.RequestID = uint64(i)
		r.write(e)
		r.write(r.settle(e.ID, 1))
	}
	if got := numbersOf(r.records(ledger.Filter{Newest: true})); !slices.Equal(got, []uint64{2, 0, 1}) {
		t.Errorf("newest first: %v", got)
	}
	if got := numbersOf(r.records(ledger.Filter{From: noon, To: noon.Add(time.Minute)})); !slices.Equal(got, []uint64{0}) {
		t.Errorf("at noon: %v", got)
	}
}

func TestRecordsBadCursor(t *testing.T) {
	r := history(t)
	for _, cursor := range []string{"x", "00", strings.Repeat("z", 40)} {
		for _, err := range r.Records(ledger.Filter{Cursor: cursor}) {
			if code(err) != "" || !strings.Contains(err.Error(), "cursor") {
				t.Errorf("cursor %q: %v", cursor, err)
			}
		}
	}
}

// Verify names what is wrong, whatever it is.
func TestVerifyNames(t *testing.T) {
	n := func(v ...byte) []byte { return v }
	for _, c := range []struct {
		name   string
		damage ledger.Write
		says   string // and the first wrong account, when it is one
	}{
		{"balance", ledger.Write{Key: n('u', 0, 0, 0, 0, 0, 0, 0, 1), Value: n(1, 2, 2)}, "user 1: stored credits 1 and posted 1"},
		{"balance gone", ledger.Write{Key: n('u', 0, 0, 0, 0, 0, 0, 0, 1)}, "user 1: no stored totals"},
		{"balance unreadable", ledger.Write{Key: n('u', 0, 0, 0, 0, 0, 0, 0, 1), Value: n(1, 2)}, "user 1: the stored totals do not read"},
		{"month unreadable", ledger.Write{Key: append(n('q', 0, 0, 0, 0, 0, 0, 0, 7), 0, 3, 0x17, 0x7f), Value: n(9)}, "key 7, period 202623: the stored use does not read"},
		{"month", ledger.Write{Key: append(n('q', 0, 0, 0, 0, 0, 0, 0, 7), 0, 3, 0x17, 0x7f), Value: n(1, 4)}, "key 7, period 202623: stored use 2"},
		{"chunk", ledger.Write{Key: n('l', 0, 0, 0, 0, 0, 0, 0, 2), Value: n(1, 2)}, "ends too early"},
		{"chunk gone", ledger.Write{Key: n('l', 0, 0, 0, 0, 0, 0, 0, 2)}, "from entry 1 to entry 3"},
		{"open", ledger.Write{Key: n('o', 0, 0, 0, 0, 0, 0, 0, 1), Value: n(7)}, "key \"o"},
		{"time key", ledger.Write{Key: n('t', 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 1), Value: n(1)}, "time index"},
		{"audit line gone", ledger.Write{Key: n('a', 0, 0, 0, 0, 0, 0, 0, 2)}, "audit: line 2 is missing"},
		{"audit line", ledger.Write{Key: n('a', 0, 0, 0, 0, 0, 0, 0, 2), Value: n(1)}, "audit: line 2 does not read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := fresh(t)
			r.credit(1, 100)
			e := r.hold(10)
			r.write(e)
			r.write(r.settle(e.ID, 1))
			r.credit(1, 100)
			r.credit(1, 100)
			r.verify()
			if err := r.store.Apply([]ledger.Write{c.damage}, false); err != nil {
				t.Fatal(err)
			}
			report, err := ledger.Verify(r.store)
			if err != nil || !strings.Contains(strings.Join(report.Problems, "\n"), c.says) {
				t.Errorf("%v, problems %q; want %q", err, report.Problems, c.says)
			}
			if account, _, _ := strings.Cut(c.says, ":"); (strings.HasPrefix(account, "user") || strings.HasPrefix(account, "key 7")) && report.FirstWrong != account {
				t.Errorf("the first wrong account is %q, want %q", report.FirstWrong, account)
			}
		})
	}
}

func TestVerifyAuditContent(t *testing.T) {
	r := fresh(t)
	r.credit(1, 100)
	r.credit(1, 100)
	key := []byte{'a', 0, 0, 0, 0, 0, 0, 0, 1}
	v, _, _ := r.store.Get(key)
	v[len(v)-10] ^= 1
	if err := r.store.Apply([]ledger.Write{{Key: key, Value: v}}, false); err != nil {
		t.Fatal(err)
	}
	if report, _ := ledger.Verify(r.store); len(report.Problems) != 1 || !strings.Contains(report.Problems[0], "line 1 was changed") {
		t.Errorf("problems %q", report.Problems)
	}
}

// A damaged store is not opened; the error names the key.
func TestOpenDamaged(t *testing.T) {
	for _, key := range []string{"mepoch", "u00000001", "q00000001aaaa", "nkey", "a00000001", "o00000001", "l00000001"} {
		r := fresh(t)
		if err := r.store.Apply([]ledger.Write{{Key: []byte(key), Value: []byte{9}}}, false); err != nil {
			t.Fatal(err)
		}
		_, _, err := ledger.Open(r.store.Clone(), ledger.Options{}, llm.NewFakeClock(noon))
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// Reservations that stay open while the log grows far past them are found after a crash, with their last progress,
// and a restart reads only the tail.
func TestLongOpenReservations(t *testing.T) {
	r := fresh(t)
	quiet, talks, ended := r.hold(50), r.hold(50), r.hold(50)
	r.write(quiet)
	r.write(talks)
	r.write(ended)
	for i := range 40 {
		var last uint64
		for range 256 {
			e := r.hold(1)
			r.append(e)
			last = r.append(r.void(e.ID))
		}
		if err := r.wait(last); err != nil {
			t.Fatal(err)
		}
		if i < 20 {
			r.write(llm.Entry{Kind: llm.EntryProgress, ID: talks.ID, Usage: llm.Usage{OutputTokens: llm.Tokens(i)}})
		}
		if i == 20 { // told late, and less than before
			r.write(llm.Entry{Kind: llm.EntryProgress, ID: talks.ID, Usage: llm.Usage{OutputTokens: 3}})
		}
		if i == 38 {
			r.write(r.settle(ended.ID, 1))
		}
	}
	r.verify()
	clone := r.store.Clone()
	oldest := []byte{'l', 0, 0, 0, 0, 0, 0, 0, 1}
	if err := clone.Apply([]ledger.Write{{Key: oldest, Value: []byte("not read")}}, false); err != nil {
		t.Fatal(err)
	}
	start(t, clone, ledger.Options{})
	r = r.killed()
	if r.state.Recovered != 2 {
		t.Errorf("recovered %d, want 2", r.state.Recovered)
	}
	r.wantMoney(-102-100-138, 102+100+138)
	r.verify()
	if n := count(t, r, 'o'); n != 0 {
		t.Errorf("%d saved reservations are left", n)
	}
}

// A stream that tells its progress all the while is found after a crash, too, though what made it is far behind.
func TestLongTalkingReservation(t *testing.T) {
	r := fresh(t)
	talks := r.hold(50)
	r.write(talks)
	for i := range 45 {
		var last uint64
		for range 128 {
			e := r.hold(1)
			r.append(e)
			last = r.append(r.void(e.ID))
		}
		if err := r.wait(last); err != nil {
			t.Fatal(err)
		}
		r.write(llm.Entry{Kind: llm.EntryProgress, ID: talks.ID, Usage: llm.Usage{OutputTokens: llm.Tokens(i + 1)}})
	}
	for range 2 {
		if left, err := ledger.Reservations(r.store.Clone()); err != nil || len(left) != 1 || left[0].Output != 45 {
			t.Fatalf("open: %+v, %v", left, err)
		}
		k := r.killed()
		if k.state.Recovered != 1 {
			t.Fatalf("recovered %d, want 1", k.state.Recovered)
		}
		k.wantMoney(-100-90, 100+90)
		if report := k.verify(); report.Open != 0 || count(t, k, 'o') != 0 {
			t.Errorf("%+v", report)
		}
		for i := range 10_000 { // and it is found when it has fallen silent
			e := r.hold(1)
			r.append(e)
			if end := r.append(r.void(e.ID)); i%1_000 == 999 {
				if err := r.wait(end); err != nil { // the queue has an end
					t.Fatal(err)
				}
			}
		}
		e := r.hold(0)
		r.write(e)
		r.write(r.void(e.ID))
		r.verify()
	}
}

func count(t *testing.T, r *rig, prefix byte) (n int) {
	t.Helper()
	if err := r.store.Scan([]byte{prefix}, nil, false, func(_, _ []byte) bool { n++; return true }); err != nil {
		t.Fatal(err)
	}
	return n
}

// Verify sees one moment of a ledger that goes on.
func TestVerifyWhileRunning(t *testing.T) {
	r := fresh(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				e := r.hold(1)
				r.append(e)
				if err := r.wait(r.append(r.settle(e.ID, 1))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 20 {
		if report, err := r.Verify(); err != nil || len(report.Problems) > 0 {
			t.Errorf("%v %q", err, report.Problems)
			break
		}
	}
	close(stop)
	wg.Wait()
}
