package ledger_test

import (
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
)

// TestC6Recovery: 10,000 reservations that a killed process left open are all settled when Open returns, within 5 s, and
// the report lists each with what it was charged and why.
func TestC6Recovery(t *testing.T) {
	const n = 10_000
	r := fresh(t)
	r.credit(1, 100_000_000)
	want := map[uint64]ledger.Recovery{}
	var posted llm.Micro
	for i := range n {
		e := r.hold(50)
		e.Billed = i%10 != 9
		last := r.append(e)
		w := ledger.Recovery{Reserve: e, Cost: 100, Reason: ledger.ReasonUnanswered}
		if i%2 == 1 {
			w.Output = llm.Tokens(i % 50)
			last = r.append(llm.Entry{Kind: llm.EntryProgress, ID: e.ID, Usage: llm.Usage{OutputTokens: w.Output}})
			w.Cost, w.Reason = 100+2*llm.Micro(w.Output), ledger.ReasonRelayed
		}
		if !e.Billed {
			w.Cost, w.Reason = 0, ledger.ReasonNotBilled
		}
		want[e.ID] = w
		posted += w.Cost
		if i%100 == 99 {
			if err := r.wait(last); err != nil {
				t.Fatal(err)
			}
		}
	}
	at := time.Now()
	k := r.killed()
	if took := time.Since(at); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	if k.state.Recovered != n || len(k.state.Recoveries) != n {
		t.Fatalf("recovered %d, listed %d; want %d", k.state.Recovered, len(k.state.Recoveries), n)
	}
	before := uint64(0)
	for _, got := range k.state.Recoveries {
		if got != want[got.Reserve.ID] || got.Reserve.ID <= before {
			t.Fatalf("got %+v, want %+v", got, want[got.Reserve.ID])
		}
		before = got.Reserve.ID
	}
	if report := k.verify(); report.Open != 0 || report.Held != 0 || report.Posted != posted {
		t.Errorf("%+v, want %d posted", report, posted)
	}
	k.wantMoney(100_000_000-posted, posted)
	if again := k.killed(); again.state.Recovered != 0 || len(again.state.Recoveries) != 0 {
		t.Error("recovered twice")
	}
}
