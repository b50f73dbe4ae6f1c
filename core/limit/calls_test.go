package limit

import (
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

// Money for calls is held beside the tokens' and leaves no room for output that the body did not cap; only the calls that were
// told are charged, at whatever end.
func TestCallsAreHeldAndTold(t *testing.T) {
	for name, end := range map[string]func(Reservation) Settlement{
		"complete": func(r Reservation) Settlement { return r.Commit(llm.Usage{InputTokens: 10, OutputTokens: 20}, true) },
		"left":     func(r Reservation) Settlement { r.Relayed(20); return r.Release() },
	} {
		r := newRig(t, Options{})
		r.LoadBalance(2, 1000, 0)
		c := claim(10, dim(keyID(3), Limits{}))
		c.Output, c.SoftOutput = 4096, true
		c.Money = Money{Price: llm.Price{Output: 1_000_000}, Billed: true, Balance: true, Calls: 900}
		res := r.admit(c)
		if left, held := r.Balance(2); res.Granted() != 100 || held != 1000 || left != 0 {
			t.Fatalf("%d granted, %d held, %d left", res.Granted(), held, left)
		}
		if d := r.refuse(c); d.Axis != AxisBalance || d.Required != 916 {
			t.Fatalf("%+v", d)
		}
		if e := r.journal.all()[0]; e.Held != 1000 || e.Price != c.Money.Price {
			t.Fatalf("%+v", e)
		}
		res.Sent("c")
		res.Priced(llm.Price{Output: 500_000}, "flex", 300)
		if s := end(res); s.Cost != 10+300 {
			t.Errorf("%s: %+v", name, s)
		}
		if left, held := r.Balance(2); left != 690 || held != 0 {
			t.Errorf("%s: %d left, %d held", name, left, held)
		}
		all := r.journal.all()
		if e := all[len(all)-1]; e.ServiceTier != "flex" || e.Cost != 310 {
			t.Errorf("%s: %+v", name, e)
		}
	}
}
