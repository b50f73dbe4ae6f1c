package admin_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
)

// post charges user 1 in the ledger alone, as an older gateway without a bound on one cost did.
func (f *fixture) post(cost llm.Micro) {
	f.t.Helper()
	id := f.ledger.NextID()
	for _, e := range []llm.Entry{
		{Kind: llm.EntryReserve, ID: id, OrgID: 1, UserID: 1, KeyID: 1, Label: 202611, Billed: true, Held: cost},
		{Kind: llm.EntrySettle, ID: id, Status: llm.StatusFinalized, Cost: cost},
	} {
		seq, err := f.ledger.Append(&e)
		f.must(err)
		f.must(f.ledger.Wait(f.t.Context(), seq, time.Minute))
	}
}

func free(m *limit.Money) { m.Overdraft = limit.NoFloor }

// TestChargesBeyondInt64: an unmetered user is never refused for money, memory and ledger stay at one number, and a
// balance that cannot be given is an error instead of a promise.
func TestChargesBeyondInt64(t *testing.T) {
	f := newFixture(t)
	f.account()
	f.ok("POST", "/admin/users/1/balance", j{"setCny": 0})
	f.ok("POST", "/admin/users/1/balance", j{"setCny": nil})
	f.post(math.MaxInt64 - 20)
	f.restart()
	f.spendWith(3, "m", free)
	before := f.balance(1)
	if want := llm.Micro(-math.MaxInt64); before != want {
		t.Errorf("balance %d, want %d", before, want)
	}
	f.restart()
	if after := f.balance(1); after != before {
		t.Errorf("memory had %d, the ledger has %d", before, after)
	}
	f.spendWith(1, "m", free)
	f.ok("POST", "/admin/users/1/balance", j{"setCny": nil})
	f.refused(400, "POST", "/admin/users/1/balance", j{"setCny": 5}, "setCny", "9223372036854.775807", "new user")
	if after := f.balance(1); after != before {
		t.Errorf("a refused balance moved memory from %d to %d", before, after)
	}
	report := f.problems()
	if !strings.Contains(report, "user 1: credits") || !strings.Contains(report, "stands at its end") {
		t.Errorf("verify says %q", report)
	}
}

func (f *fixture) problems() string {
	f.t.Helper()
	report, err := f.ledger.Verify()
	f.must(err)
	return strings.Join(report.Problems, "\n")
}

// TestCreditsBeyondInt64: what was charged and paid again and again ends with an error, not with a wrap.
func TestCreditsBeyondInt64(t *testing.T) {
	f := newFixture(t)
	f.account()
	for range 9 {
		f.ok("POST", "/admin/users/1/balance", j{"setCny": 1e12})
		f.post(1e18)
		f.restart()
	}
	f.refused(409, "POST", "/admin/users/1/balance", j{"setCny": 1e12}, "beyond what can be counted")
	before := f.balance(1)
	f.restart()
	if after := f.balance(1); after != before || before != 0 {
		t.Errorf("memory had %d, the ledger has %d", before, after)
	}
	if p := f.problems(); p != "" {
		t.Errorf("verify: %s", p)
	}
}
