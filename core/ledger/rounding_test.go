package ledger_test

import (
	"testing"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
)

// TestC13TheLedgerRoundsNothing: 1,000 requests of 1 token at 0.15 per million are 1,000 millionths in the balance, in the
// month, in the records and in the log; settled or recovered.
func TestC13TheLedgerRoundsNothing(t *testing.T) {
	const n = 1_000
	cheap := llm.Price{Input: 150_000}
	r := fresh(t)
	r.credit(1, 5_000)
	var last uint64
	for i := range n {
		e := r.hold(0)
		e.Price, e.Usage.InputTokens, e.Held = cheap, 1, cheap.Hold(1, 0)
		last = r.append(e)
		if i%2 == 0 {
			end := r.settle(e.ID, 0)
			end.Usage = llm.Usage{InputTokens: 1}
			end.Cost = cheap.Cost(end.Usage)
			last = r.append(end)
		}
	}
	if err := r.wait(last); err != nil {
		t.Fatal(err)
	}
	r = r.killed()
	r.wantMoney(4_000, n)
	var sum llm.Micro
	for _, rec := range r.records(ledger.Filter{}) {
		sum += rec.End.Cost
	}
	if report := r.verify(); sum != n || report.Posted != n || report.Credits != 5_000 {
		t.Errorf("records %d, %+v", sum, report)
	}
}
