package ledger_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/storetest"
)

// naive is the ledger as a child would keep it.
type naive struct {
	credits, posted map[uint64]llm.Micro
	used            map[ledger.QuotaUse]llm.Micro // by key and label
	open            map[uint64]llm.Entry
	output          map[uint64]llm.Tokens
	ended           map[uint64]llm.EntryKind
}

func newNaive() *naive {
	return &naive{map[uint64]llm.Micro{}, map[uint64]llm.Micro{}, map[ledger.QuotaUse]llm.Micro{},
		map[uint64]llm.Entry{}, map[uint64]llm.Tokens{}, map[uint64]llm.EntryKind{}}
}

func (n *naive) charge(r llm.Entry, cost llm.Micro) {
	if r.Billed {
		n.posted[r.UserID] += cost
		for _, label := range r.Labels() {
			n.used[ledger.QuotaUse{Key: r.KeyID, Label: label}] += cost
		}
	}
}

func (n *naive) end(e llm.Entry) (code string) {
	if k, ok := n.ended[e.ID]; ok {
		return map[llm.EntryKind]string{llm.EntrySettle: "already_settled", llm.EntryVoid: "already_voided"}[k]
	}
	if e.Kind == llm.EntrySettle && (e.Status == llm.StatusFinalized || e.Status == llm.StatusPartial) {
		n.charge(n.open[e.ID], e.Cost)
	}
	delete(n.open, e.ID)
	n.ended[e.ID] = e.Kind
	return ""
}

// crash is the recovery rule.
func (n *naive) crash() {
	for id, r := range n.open {
		n.charge(r, r.Price.Cost(llm.Usage{InputTokens: r.Usage.InputTokens, OutputTokens: n.output[id]}))
		delete(n.open, id)
		n.ended[id] = llm.EntrySettle
	}
}

// world drives a ledger and the naive one with the same operations.
type world struct {
	t     *rapid.T
	store *storetest.Memory
	clock *llm.FakeClock
	l     *ledger.Ledger
	n     *naive
	ids   []uint64
}

func (w *world) open() ledger.State {
	l, state, err := ledger.Open(w.store, ledger.Options{}, w.clock)
	if err != nil {
		w.t.Fatalf("Open: %v", err)
	}
	w.l = l
	return state
}

func (w *world) write(e llm.Entry) error {
	seq, err := w.l.Append(&e)
	if err != nil {
		w.t.Fatalf("Append: %v", err)
	}
	return w.l.Wait(context.Background(), seq, time.Minute)
}

func (w *world) id(t *rapid.T) uint64 {
	if len(w.ids) == 0 {
		w.reserve(t)
	}
	return rapid.SampledFrom(w.ids).Draw(t, "id")
}

func (w *world) reserve(t *rapid.T) {
	e := llm.Entry{Kind: llm.EntryReserve, ID: w.l.NextID(), UserID: rapid.Uint64Range(1, 3).Draw(t, "user"),
		KeyID: rapid.Uint64Range(1, 3).Draw(t, "key"), Label: rapid.Int32Range(202610, 202612).Draw(t, "label"), Price: price,
		WeekLabel: rapid.SampledFrom([]int32{0, 2026327, 2026334}).Draw(t, "week"), DayLabel: rapid.SampledFrom([]int32{0, 20261130, 20261201}).Draw(t, "day"),
		Billed: rapid.IntRange(0, 4).Draw(t, "billed") > 0, Usage: llm.Usage{InputTokens: llm.Tokens(rapid.IntRange(0, 100).Draw(t, "in"))}}
	e.Held = e.Price.Hold(e.Usage.InputTokens, 100)
	if err := w.write(e); err != nil {
		t.Fatalf("reserve: %v", err)
	}
	w.ids = append(w.ids, e.ID)
	w.n.open[e.ID] = e
}

func (w *world) progress(t *rapid.T) {
	id := w.id(t)
	tokens := llm.Tokens(rapid.IntRange(0, 100).Draw(t, "out"))
	err := w.write(llm.Entry{Kind: llm.EntryProgress, ID: id, Usage: llm.Usage{OutputTokens: tokens}})
	if _, open := w.n.open[id]; open {
		w.n.output[id] = max(w.n.output[id], tokens)
	}
	if _, ended := w.n.ended[id]; ended != (err != nil) {
		t.Fatalf("progress: %v", err)
	}
}

func (w *world) end(t *rapid.T) { w.endOf(t, w.id(t)) }

func (w *world) endOf(t *rapid.T, id uint64) {
	e := llm.Entry{Kind: llm.EntryVoid, ID: id, Status: llm.StatusRefunded}
	if rapid.Bool().Draw(t, "settle") {
		e = llm.Entry{Kind: llm.EntrySettle, ID: id, Status: llm.Status(rapid.IntRange(1, 4).Draw(t, "status")),
			Cost: llm.Micro(rapid.IntRange(0, 300).Draw(t, "cost"))}
	}
	want := w.n.end(e)
	if err := w.write(e); err == nil && want != "" || err != nil && code(err) != want {
		t.Fatalf("ending: %v, want %q", err, want)
	}
}

// broken is a reserve whose write fails: told so, and as if it had never been.
func (w *world) broken(t *rapid.T) {
	w.store.FailNext(rapid.IntRange(1, 3).Draw(t, "failures"))
	e := llm.Entry{Kind: llm.EntryReserve, ID: w.l.NextID(), UserID: 1, KeyID: 1, Label: 202610, Price: price, Billed: true, Held: 50}
	if err := w.write(e); code(err) != "ledger_unavailable" {
		t.Fatalf("a reserve over a broken store: %v", err)
	}
	if err := w.write(llm.Entry{Kind: llm.EntryVoid, ID: e.ID}); err != nil {
		t.Fatalf("its void: %v", err)
	}
	w.healed(t)
}

// brokenEnd is an ending whose first writes fail.
func (w *world) brokenEnd(t *rapid.T) {
	id := w.id(t)
	w.store.FailNext(rapid.IntRange(1, 3).Draw(t, "failures"))
	w.endOf(t, id)
	w.store.FailNext(0)
	w.healed(t)
}

func (w *world) healed(t *rapid.T) {
	for deadline := time.Now().Add(5 * time.Second); w.l.Healthy() != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the ledger stays down")
		}
	}
}

func (w *world) credit(t *rapid.T) {
	user, delta := rapid.Uint64Range(1, 3).Draw(t, "user"), llm.Micro(rapid.IntRange(-500, 1000).Draw(t, "delta"))
	err := w.l.Put(context.Background(), ledger.Change{Action: "credit"}, nil, []llm.Entry{{Kind: llm.EntryCredit, UserID: user, Cost: delta}})
	if err != nil {
		t.Fatalf("Put: %v", err)
	}
	w.n.credits[user] += delta
}

// kill replaces the process; state must be what the naive ledger says.
func (w *world) kill(t *rapid.T) {
	clone := w.store.Clone()
	if err := w.l.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	w.store = clone
	w.n.crash()
	state := w.open()
	for user := uint64(1); user <= 3; user++ {
		if got, want := state.Balances[user].Available(), w.n.credits[user]-w.n.posted[user]; got != want {
			t.Fatalf("user %d has %d, want %d", user, got, want)
		}
	}
	for _, u := range state.Used {
		if want := w.n.used[ledger.QuotaUse{Key: u.Key, Label: u.Label}]; u.Used != want {
			t.Fatalf("key %d used %d in %d, want %d", u.Key, u.Used, u.Label, want)
		}
	}
}

// check: credits = available + posted + held, at every step, in the log, the totals and the naive ledger.
func (w *world) check(t *rapid.T) {
	report, err := ledger.Verify(w.store)
	if err != nil || len(report.Problems) > 0 {
		t.Fatalf("Verify: %v %q", err, report.Problems)
	}
	var want ledger.Report
	for v := range maps.Values(w.n.credits) {
		want.Credits += v
	}
	for v := range maps.Values(w.n.posted) {
		want.Posted += v
	}
	for r := range maps.Values(w.n.open) {
		want.Open++
		if r.Billed {
			want.Held += r.Held
		}
	}
	if report.Entries = 0; fmt.Sprint(report) != fmt.Sprint(want) {
		t.Fatalf("got %+v, want %+v", report, want)
	}
}

func TestAgainstNaiveLedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, store: storetest.NewMemory(), clock: llm.NewFakeClock(noon), n: newNaive()}
		w.open()
		defer func() { _ = w.l.Close() }()
		t.Repeat(map[string]func(*rapid.T){
			"":         w.check,
			"reserve":  w.reserve,
			"reserve2": w.reserve,
			"progress": w.progress,
			"end":      w.end,
			"end2":     w.end,
			"credit":   w.credit,
			"kill":     w.kill,
			"broken":   w.broken,
			"broken2":  w.brokenEnd,
		})
	})
}
