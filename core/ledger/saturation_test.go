package ledger_test

import (
	"math"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
)

// TestSumsThatDoNotFit: two users whose accounts fit, and whose sum does not: Verify says so and does not wrap.
func TestSumsThatDoNotFit(t *testing.T) {
	r := fresh(t)
	for user := range uint64(2) {
		e := r.hold(1)
		e.UserID, e.KeyID, e.Held = user+1, user+1, math.MaxInt64-5
		r.write(e)
		if user == 1 { // both are held at one time
			for _, id := range []uint64{e.ID - 1, e.ID} {
				end := r.settle(id, 1)
				end.Cost = math.MaxInt64 - 5
				r.write(end)
			}
		}
	}
	report, err := r.Verify()
	if err != nil {
		t.Fatal(err)
	}
	if report.Posted != math.MaxInt64 || report.Held != 0 {
		t.Errorf("posted %d, held %d", report.Posted, report.Held)
	}
	if len(report.Problems) != 1 || !strings.Contains(report.Problems[0], "the sum of posted over all users") {
		t.Errorf("problems %q", report.Problems)
	}
}

// TestAccountAtItsEnd: the totals stay at the end, in memory, in the store and in what Verify adds up.
func TestAccountAtItsEnd(t *testing.T) {
	r := fresh(t)
	for range 2 {
		e := r.hold(1)
		r.write(e)
		end := r.settle(e.ID, 1)
		end.Cost = math.MaxInt64 - 5
		r.write(end)
	}
	r = r.restart()
	if got := r.state.Balances[1]; got != (ledger.Balance{Posted: math.MaxInt64}) || got.Available() != -math.MaxInt64 {
		t.Errorf("a start finds %+v", got)
	}
	report, err := r.Verify()
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(report.Problems, "\n")
	if !strings.Contains(text, "user 1: credits 0, posted 9223372036854.775807") || !strings.Contains(text, "key 7, period") || report.FirstWrong != "" {
		t.Errorf("first wrong %q, problems %q", report.FirstWrong, text)
	}
}

// TestCreditThatDoesNotFit: it is refused as a whole, with the documents beside it.
func TestCreditThatDoesNotFit(t *testing.T) {
	r := fresh(t)
	r.credit(1, math.MaxInt64-1)
	err := r.Put(t.Context(), ledger.Change{Actor: "admin", Action: "user.credit"}, []ledger.Doc{{Kind: "user", ID: "1", Data: []byte("{}")}},
		[]llm.Entry{{Kind: llm.EntryCredit, UserID: 1, Cost: 1}})
	if code(err) != "balance_out_of_range" {
		t.Errorf("refused with %v", err)
	}
	if docs := r.docs("user"); len(docs) != 0 {
		t.Errorf("a refused change left %q", docs)
	}
	r.verify()
}
