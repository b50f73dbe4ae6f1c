package ledger_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	noon  = time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC)
	price = llm.Price{Input: 1_000_000, Output: 2_000_000} // 1 and 2 micro a token
)

const label = 202611

// rig is a ledger on a store in memory.
type rig struct {
	*ledger.Ledger
	t     testing.TB
	store *storetest.Memory
	clock *llm.FakeClock
	state ledger.State
}

func start(t testing.TB, store *storetest.Memory, o ledger.Options) *rig {
	t.Helper()
	clock := llm.NewFakeClock(noon)
	l, state, err := ledger.Open(store, o, clock)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return &rig{l, t, store, clock, state}
}

func fresh(t testing.TB) *rig {
	t.Helper()
	return start(t, storetest.NewMemory(), ledger.Options{})
}

// stop closes the ledger and gives what a restart finds.
func (r *rig) restart() *rig {
	r.t.Helper()
	if err := r.Close(); err != nil {
		r.t.Fatalf("Close: %v", err)
	}
	return start(r.t, r.store, ledger.Options{})
}

// killed is a restart after kill -9 at this moment.
func (r *rig) killed() *rig {
	r.t.Helper()
	return start(r.t, r.store.Clone(), ledger.Options{})
}

func (r *rig) verify() ledger.Report {
	r.t.Helper()
	report, err := ledger.Verify(r.store.Clone())
	if err != nil || len(report.Problems) > 0 {
		r.t.Fatalf("Verify: %v, %s", err, strings.Join(report.Problems, "; "))
	}
	return report
}

func (r *rig) credit(user uint64, delta llm.Micro) {
	r.t.Helper()
	err := r.Put(context.Background(), ledger.Change{Actor: "admin", Action: "user.credit"}, nil,
		[]llm.Entry{{Kind: llm.EntryCredit, UserID: user, Cost: delta}})
	if err != nil {
		r.t.Fatalf("Put: %v", err)
	}
}

// hold is the reserve entry of user 1 with key 7: 100 input tokens, output up to out.
func (r *rig) hold(out llm.Tokens) llm.Entry {
	return llm.Entry{Kind: llm.EntryReserve, ID: r.NextID(), AtMS: r.clock.Wall().UnixMilli(), Endpoint: llm.Chat,
		OrgID: 3, UserID: 1, KeyID: 7, Label: label, Model: "gpt-4o-mini", Price: price, Billed: true,
		Usage: llm.Usage{InputTokens: 100}, Held: price.Hold(100, out)}
}

func (r *rig) settle(id uint64, out llm.Tokens) llm.Entry {
	u := llm.Usage{InputTokens: 100, OutputTokens: out}
	return llm.Entry{Kind: llm.EntrySettle, ID: id, AtMS: r.clock.Wall().UnixMilli(), Status: llm.StatusFinalized,
		Usage: u, Cost: price.Cost(u), Channel: "east", HTTPStatus: 200}
}

func (r *rig) void(id uint64) llm.Entry {
	return llm.Entry{Kind: llm.EntryVoid, ID: id, AtMS: r.clock.Wall().UnixMilli(), Status: llm.StatusRefunded, HTTPStatus: 502}
}

func (r *rig) append(e llm.Entry) uint64 {
	r.t.Helper()
	seq, err := r.Append(&e)
	if err != nil {
		r.t.Fatalf("Append: %v", err)
	}
	return seq
}

func (r *rig) wait(seq uint64) error { return r.Wait(context.Background(), seq, 5*time.Second) }

// write appends and waits.
func (r *rig) write(e llm.Entry) {
	r.t.Helper()
	if err := r.wait(r.append(e)); err != nil {
		r.t.Fatalf("Wait: %v", err)
	}
}

func (r *rig) records(f ledger.Filter) []ledger.Record {
	r.t.Helper()
	var all []ledger.Record
	for rec, err := range r.Records(f) {
		if err != nil {
			r.t.Fatalf("Records: %v", err)
		}
		all = append(all, rec)
	}
	return all
}

func code(err error) string {
	var e *llm.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return fmt.Sprint(err)
}

func (r *rig) wantMoney(available, used llm.Micro) {
	r.t.Helper()
	if got := r.state.Balances[1].Available(); got != available {
		r.t.Errorf("available is %d, want %d", got, available)
	}
	var got llm.Micro
	for _, u := range r.state.Used {
		if u.Key == 7 && u.Label == label {
			got = u.Used
		}
	}
	if got != used {
		r.t.Errorf("used is %d, want %d", got, used)
	}
}

func TestLife(t *testing.T) {
	r := fresh(t)
	r.credit(1, 10_000)
	a, b := r.hold(50), r.hold(50)
	r.write(a)
	r.write(b)
	r.write(r.settle(a.ID, 10))
	r.write(r.void(b.ID))
	r = r.restart()
	r.wantMoney(10_000-120, 120)
	if r.state.Recovered != 0 {
		t.Errorf("recovered %d of none", r.state.Recovered)
	}
	report := r.verify()
	want := ledger.Report{Entries: 5, Credits: 10_000, Posted: 120}
	if d := cmp.Diff(want, report); d != "" {
		t.Error(d)
	}
}

// Only finalized and partial endings of billed reservations add to the balance and the month.
func TestWhatIsCharged(t *testing.T) {
	for _, c := range []struct {
		status llm.Status
		billed bool
		want   llm.Micro
	}{
		{llm.StatusFinalized, true, 120},
		{llm.StatusPartial, true, 120},
		{llm.StatusRefunded, true, 0},
		{llm.StatusFailed, true, 0},
		{llm.StatusFinalized, false, 0},
	} {
		t.Run(fmt.Sprint(c.status, c.billed), func(t *testing.T) {
			r := fresh(t)
			e := r.hold(50)
			e.Billed = c.billed
			end := r.settle(e.ID, 10)
			end.Status = c.status
			r.write(e)
			r.write(end)
			if got := r.records(ledger.Filter{}); len(got) != 1 || got[0].End.Cost != c.want {
				t.Errorf("records: %+v", got)
			}
			r = r.restart()
			r.wantMoney(-c.want, c.want)
			r.verify()
		})
	}
}

func TestFirstEndingWins(t *testing.T) {
	r := fresh(t)
	for _, c := range []struct {
		first, second func(uint64) llm.Entry
		want          string
	}{
		{func(id uint64) llm.Entry { return r.settle(id, 1) }, func(id uint64) llm.Entry { return r.settle(id, 9) }, "already_settled"},
		{func(id uint64) llm.Entry { return r.settle(id, 1) }, r.void, "already_settled"},
		{r.void, func(id uint64) llm.Entry { return r.settle(id, 9) }, "already_voided"},
		{r.void, r.void, "already_voided"},
	} {
		e := r.hold(50)
		r.write(e)
		first, second := r.append(c.first(e.ID)), r.append(c.second(e.ID))
		if err := r.wait(first); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			var le *llm.Error
			if err := r.wait(second); code(err) != c.want || !errors.As(err, &le) || le.Kind != llm.KindConflict {
				t.Errorf("the second ending: %v, want %s", err, c.want)
			}
		}
	}
	r = r.restart()
	r.wantMoney(-2*102, 2*102)
	r.verify()
}

// What every reservation that a dead process left open is charged.
func TestM08Recovery(t *testing.T) {
	for _, c := range []struct {
		name     string
		progress []llm.Tokens
		billed   bool
		want     llm.Micro
	}{
		{"nothing relayed", nil, true, 100},
		{"relayed", []llm.Tokens{5, 30}, true, 160},
		{"progress never goes back", []llm.Tokens{30, 5}, true, 160},
		{"not billed", []llm.Tokens{30}, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := fresh(t)
			r.credit(1, 1_000)
			e := r.hold(50)
			e.Billed = c.billed
			r.write(e)
			for _, n := range c.progress {
				r.write(llm.Entry{Kind: llm.EntryProgress, ID: e.ID, Usage: llm.Usage{OutputTokens: n}})
			}
			r = r.killed()
			r.wantMoney(1_000-c.want, c.want)
			if r.state.Recovered != 1 {
				t.Errorf("recovered %d, want 1", r.state.Recovered)
			}
			if report := r.verify(); report.Held != 0 || report.Open != 0 {
				t.Errorf("still held: %+v", report)
			}
			rec := r.records(ledger.Filter{})
			if len(rec) != 1 || rec[0].End.Status != llm.StatusPartial || !rec[0].End.Estimated || rec[0].End.Cost != c.want {
				t.Errorf("record: %+v", rec)
			}
			if err := r.wait(r.append(r.settle(e.ID, 50))); code(err) != "already_settled" {
				t.Errorf("an ending of the dead process: %v", err)
			}
		})
	}
}

func TestM05KilledAt90Percent(t *testing.T) {
	r := fresh(t)
	r.credit(1, 1_000)
	e := r.hold(400)
	r.write(e)
	r.write(r.settle(e.ID, 400)) // 900
	r.killed().wantMoney(100, 900)
}

func TestM12MonthOfTheReservation(t *testing.T) {
	r := fresh(t)
	e := r.hold(50)
	r.write(e)
	r.clock.Jump(60 * 24 * time.Hour)
	next := r.hold(50)
	next.Label = 202701
	r.write(next)
	r.write(r.settle(next.ID, 20))
	r.write(r.settle(e.ID, 10))
	r = r.restart()
	want := []ledger.QuotaUse{{Key: 7, Label: 202611, Used: 120}, {Key: 7, Label: 202701, Used: 140}}
	if d := cmp.Diff(want, r.state.Used); d != "" {
		t.Error(d)
	}
	r.verify()
}

// Old periods leave memory at a restart, and are still added to.
func TestOldPeriods(t *testing.T) {
	r := fresh(t)
	late := r.hold(1)
	late.Label = 202601
	for l := int32(202601); l <= 202606; l++ {
		e := r.hold(1)
		e.Label = l
		r.write(e)
		r.write(r.settle(e.ID, 1))
	}
	r = r.restart()
	if want := []ledger.QuotaUse{{7, 202605, 102}, {7, 202606, 102}}; !slices.Equal(r.state.Used, want) {
		t.Errorf("used: %v, want %v", r.state.Used, want)
	}
	late.ID = r.NextID()
	r.write(late)
	r.write(r.settle(late.ID, 1))
	r.verify()
}

// A request is charged to its month, its week and its day, each fixed at its reserve, and a restart knows the newest two of
// each.
func TestPeriodsOfEachWindow(t *testing.T) {
	r := fresh(t)
	var late llm.Entry
	for day := int32(1); day <= 4; day++ {
		e := r.hold(1)
		e.Label, e.WeekLabel, e.DayLabel = 202600+day, 2026100+7*day, 20260700+day
		r.write(e)
		if day == 1 {
			late = e
			continue
		}
		r.write(r.settle(e.ID, 1))
	}
	r.write(r.settle(late.ID, 1))
	r = r.restart()
	want := []ledger.QuotaUse{{7, 202603, 102}, {7, 202604, 102}, {7, 2026121, 102}, {7, 2026128, 102}, {7, 20260703, 102}, {7, 20260704, 102}}
	if !slices.Equal(r.state.Used, want) {
		t.Errorf("used: %v, want %v", r.state.Used, want)
	}
	for _, id := range []string{string(quotaKeyOf(7, 2026107)), string(quotaKeyOf(7, 20260701))} {
		if v, ok, err := r.store.Get([]byte(id)); err != nil || !ok || !slices.Equal(v, []byte{1, 0xcc, 1}) {
			t.Errorf("%x: %x, %v", id, v, err)
		}
	}
	r.verify()
}

// What a clock that was ahead has begun does not push the present period out of what a start knows: it would begin anew.
func TestPeriodsBeyondThePresent(t *testing.T) {
	r := fresh(t)
	present := []int32{202611, 2026306, 20261105} // of noon
	for _, labels := range [][]int32{present, {202612, 2026334, 20261130}, {202701, 2026341, 20261201}, {202702, 2026348, 20261202}} {
		e := r.hold(1)
		e.Label, e.WeekLabel, e.DayLabel = labels[0], labels[1], labels[2]
		r.write(e)
		r.write(r.settle(e.ID, 1))
	}
	r = r.restart()
	for _, label := range present {
		if !slices.Contains(r.state.Used, ledger.QuotaUse{Key: 7, Label: label, Used: 102}) {
			t.Errorf("a start does not know what was used in %d: %v", label, r.state.Used)
		}
	}
}

func quotaKeyOf(key uint64, label uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64([]byte("q"), key), label)
}

func TestNextIDNeverRepeats(t *testing.T) {
	r := fresh(t)
	seen := map[uint64]bool{}
	for range 3 {
		for range 10 {
			id := r.NextID()
			if seen[id] {
				t.Fatalf("%d was given twice", id)
			}
			seen[id] = true
		}
		r = r.killed()
	}
}

func TestManyWaiters(t *testing.T) {
	r := fresh(t)
	gate := make(chan struct{})
	r.store.Before(func(int, []ledger.Write) error { <-gate; return nil })
	var wg sync.WaitGroup
	var done sync.Map
	for range 2_000 {
		e := r.hold(1)
		seq := r.append(e)
		for range 2 {
			wg.Go(func() {
				if err := r.wait(seq); err != nil {
					t.Errorf("Wait: %v", err)
				}
				done.Store(seq, true)
			})
		}
	}
	time.Sleep(10 * time.Millisecond)
	done.Range(func(k, _ any) bool { t.Errorf("%v was acknowledged before it was written", k); return false })
	close(gate)
	wg.Wait()
	// one group for what was alone at first, the rest in groups of 256
	if n := r.store.Applies() - 1; n > 10 {
		t.Errorf("2,000 entries took %d writes", n)
	}
}

func TestWaitGivesUp(t *testing.T) {
	r := fresh(t)
	gate := make(chan struct{})
	r.store.Before(func(int, []ledger.Write) error { <-gate; return nil })
	seq := r.append(r.hold(1))
	if err := r.Wait(context.Background(), seq, time.Millisecond); code(err) != "ledger_timeout" {
		t.Errorf("after the timeout: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.Wait(ctx, seq, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("after the caller left: %v", err)
	}
	close(gate)
	if err := r.wait(seq); err != nil {
		t.Errorf("asked again: %v", err)
	}
}

func TestQueueFull(t *testing.T) {
	r := start(t, storetest.NewMemory(), ledger.Options{QueueEntries: 4})
	gate := make(chan struct{})
	entered := make(chan struct{}, 10)
	r.store.Before(func(int, []ledger.Write) error { entered <- struct{}{}; <-gate; return nil })
	first := r.hold(1)
	r.append(first)
	<-entered
	for range 4 {
		r.append(r.hold(1))
	}
	refused := r.hold(1)
	if _, err := r.Append(&refused); code(err) != "ledger_unavailable" {
		t.Fatalf("a fifth reserve in a queue of four: %v", err)
	}
	seq := r.append(r.settle(first.ID, 1)) // an ending is always taken
	close(gate)
	if err := r.wait(seq); err != nil {
		t.Fatal(err)
	}
	if report := r.verify(); report.Open != 4 {
		t.Errorf("%d open, want 4", report.Open)
	}
}

func TestAppendRefusesOtherKinds(t *testing.T) {
	r := fresh(t)
	for _, k := range []llm.EntryKind{0, llm.EntryCredit, 9} {
		if _, err := r.Append(&llm.Entry{Kind: k}); err == nil {
			t.Errorf("kind %d was taken", k)
		}
	}
}

func TestClosed(t *testing.T) {
	r := fresh(t)
	r.append(r.hold(1))
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if report := r.verify(); report.Open != 1 {
		t.Error("Close did not drain the queue")
	}
	if d := cmp.Diff(r.store.Clone(), r.store.CloneSynced(), cmp.Comparer(func(a, b *storetest.Memory) bool {
		x, _ := ledger.Verify(a)
		y, _ := ledger.Verify(b)
		return x.Entries == y.Entries
	})); d != "" {
		t.Error("Close did not sync")
	}
	e := r.settle(1, 1)
	if _, err := r.Append(&e); code(err) != "ledger_unavailable" {
		t.Errorf("Append after Close: %v", err)
	}
	if err := r.Put(context.Background(), ledger.Change{}, nil, nil); code(err) != "ledger_unavailable" {
		t.Errorf("Put after Close: %v", err)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []ledger.Options{{Durability: "memory"}, {SettleTimeoutMS: -1}, {QueueEntries: -1}} {
		if _, _, err := ledger.Open(storetest.NewMemory(), o, llm.NewFakeClock(noon)); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

// Durability "power" acknowledges only what survives a power cut; "process" syncs soon after.
func TestDurability(t *testing.T) {
	for _, d := range []ledger.Durability{ledger.Power, ledger.Process} {
		t.Run(string(d), func(t *testing.T) {
			r := start(t, storetest.NewMemory(), ledger.Options{Durability: d})
			e := r.hold(1)
			r.write(e)
			entries := func() int {
				report, _ := ledger.Verify(r.store.CloneSynced())
				return report.Entries
			}
			for deadline := time.Now().Add(5 * time.Second); d == ledger.Process && entries() == 0 && time.Now().Before(deadline); {
				time.Sleep(5 * time.Millisecond)
			}
			if entries() != 1 {
				t.Error("acknowledged, and not on the disk")
			}
		})
	}
}
