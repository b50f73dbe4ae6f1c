package limit

import (
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

// Clip: whatever is relayed or reported, the user holds and owes no more than the hold, the tokens count in full, and
// what a crash would be settled from is within the hold too.
func TestClipChargesTheHold(t *testing.T) {
	r := newRig(t, Options{})
	r.LoadBalance(2, 1000, 0)
	c := claim(10, dim(keyID(3), Limits{TPM: 10_000}))
	c.Output = 300
	c.Money = Money{Price: llm.Price{Output: 1_000_000}, Billed: true, Balance: true, Overrun: Clip}
	res := r.admit(c)
	res.Sent("c")
	res.Relayed(900)
	if left, held := r.Balance(2); left != 700 || held != 300 {
		t.Fatalf("%d left, %d held while it runs", left, held)
	}
	if u := r.use(keyID(3)); u.TPM != 910 {
		t.Fatalf("%d tokens counted", u.TPM)
	}
	if e := r.journal.all()[1]; e.Kind != llm.EntryProgress || e.Usage.OutputTokens != 300 {
		t.Fatalf("noted %+v", e)
	}
	s := res.Commit(llm.Usage{InputTokens: 10, OutputTokens: 950}, true)
	if s.Cost != 300 || s.House != 650 || s.Usage.OutputTokens != 950 {
		t.Fatalf("%+v", s)
	}
	if left, held := r.Balance(2); left != 700 || held != 0 {
		t.Fatalf("%d left, %d held", left, held)
	}
}

// A top-up beyond a TPM limit is refused under Cut, and posted under the other rules as long as the money has room.
func TestTopUpBeyondTPM(t *testing.T) {
	for _, rule := range []Overrun{Cut, Debt, Clip} {
		r := newRig(t, Options{})
		r.LoadBalance(2, 200, 0)
		c := claim(10, dim(keyID(3), Limits{TPM: 100}))
		c.Output = 90
		c.Money = Money{Price: llm.Price{Output: 1_000_000}, Billed: true, Balance: true, Overrun: rule}
		res := r.admit(c)
		d, err := res.Extend(ctx, nil, 64)
		if err != nil || (d != nil) != (rule == Cut) {
			t.Fatalf("%s: %+v, %v", rule, d, err)
		}
		if u := r.use(keyID(3)); rule != Cut && u.TPM != 164 {
			t.Errorf("%s: %d tokens counted", rule, u.TPM)
		}
		if d, _ = res.Extend(ctx, nil, 64); d == nil || d.Axis != AxisBalance && rule != Cut {
			t.Errorf("%s: %+v, and the balance has no more room", rule, d)
		}
		res.Release()
	}
}
