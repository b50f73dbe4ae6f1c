package limit

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// meterOf is a dimension's meter at a gateway.
func (r *rig) meterOf(id ID) *meter {
	return r.index.find(r.index.hash(&id, 0), &id, 0)
}

// While an exchange runs that asks for less concurrency than was lent before, no more than that is used: the server may
// have lent the rest to others by then.
func TestConcurrencyWhileAnExchangeRuns(t *testing.T) {
	c := newCluster(t, 2, Sharing{})
	one, other := c.gateways[0], c.gateways[1]
	ask := func() *Claim { return claim(1, dim(aModel, Limits{Concurrency: 10})) }
	var open []Reservation
	for range 8 {
		open = append(open, one.admit(ask()))
		c.clock.Advance(loanPause)
	}
	for _, r := range open[1:] {
		r.Release()
	}
	m := one.meterOf(aModel)
	one.sharing.renew(m) // still knows that eight were open
	c.clock.Advance(loanPause)
	c.server.during = func() {
		c.server.during = nil
		for range 9 {
			m.mu.Lock()
			may := m.mu.remote.mayOpen(c.clock.Mono(), m.mu.open, 10)
			m.mu.Unlock()
			if may == lends {
				one.admit(ask())
			}
		}
	}
	one.sharing.renew(m)
	for range 10 {
		if _, d, err := other.Reserve(ctx, ask()); d != nil || err != nil {
			break
		}
		c.clock.Advance(loanPause)
	}
	if n := one.Open() + other.Open(); n > 10 {
		t.Fatalf("%d are open at once, the limit is 10", n)
	}
}

// Each exchange goes by the limits of the latest claim, be it one that is never refused or whose limit is a new one: a
// token bucket of the server's drains at the rate it is told.
func TestExchangesGoByTheLatestLimits(t *testing.T) {
	c := newCluster(t, 2, Sharing{})
	g := c.gateways[0]
	terms := func() Exchange {
		return Exchange{QPS: c.server.mu.last.QPS, TPM: c.server.mu.last.TPM, Concurrency: c.server.mu.last.Concurrency}
	}
	want := func(qps, tpm, concurrency int64) {
		t.Helper()
		if e := terms(); e.QPS != (Bound{Most: qps, Rate: qps}) || e.TPM != (Bound{Most: tpm, Rate: tpm}) || e.Concurrency != concurrency {
			t.Fatalf("asked by %+v", e)
		}
	}
	free := claim(10, dim(aModel, Limits{QPS: 100, TPM: 1000, Concurrency: 7}))
	free.Unlimited = true
	g.admit(free)
	c.settle()
	want(100, 1000, 7)
	g.admit(claim(10, dim(aModel, Limits{QPS: 80, TPM: 800, Concurrency: 6})))
	c.clock.Advance(LoanLife - LoanLife/8) // loans are renewed before they are over
	g.admit(claim(1, dim(aModel, Limits{QPS: 40, TPM: 400, Concurrency: 5})))
	c.settle()
	want(40, 400, 5)
	c.server.failWith(errors.New("late"))
	g.sharing.away.Store(false)
	c.clock.Advance(time.Second)
	g.admit(claim(1, dim(aModel, Limits{QPS: 90, TPM: 900, Concurrency: 8}))) // alone, at its share
	c.server.failWith(nil)
	c.clock.Advance(time.Second)
	c.settle()
	want(90, 900, 8)
}

// What was held alone, at this gateway's share, is topped up as what was not: here at one share, not at a share of a share,
// and at the server under the whole limit.
func TestTopUpOfWhatWasHeldAlone(t *testing.T) {
	late := errors.New("late")
	for _, back := range []bool{false, true} {
		c := newCluster(t, 2, Sharing{})
		ask := claim(100, dim(keyID(3), Limits{TPM: 1000}))
		ask.Money.Overrun = Cut
		c.server.failWith(late)
		res := c.gateways[0].admit(ask)
		if back {
			c.server.failWith(nil)
			c.settle()
			c.gateways[1].admit(claim(400, dim(keyID(3), Limits{TPM: 1000})))
		}
		if d, err := res.Extend(ctx, nil, 300); d != nil || err != nil {
			t.Errorf("the server is back: %v: %+v, %v", back, d, err)
		}
		if d, err := res.Extend(ctx, nil, 300); err != nil || d == nil || d.Limit != map[bool]int64{false: 500, true: 1000}[back] {
			t.Errorf("the server is back: %v: %+v, %v", back, d, err)
		}
	}
}

// A bucket drains at the server as fast as its limit says, also by what was held alone at a share that is not a whole number.
func TestRateOfWhatWasHeldAlone(t *testing.T) {
	c := newCluster(t, 3, Sharing{})
	c.server.failWith(errors.New("late"))
	c.gateways[0].admit(claim(1, dim(keyID(3), Limits{QPS: 1, TPM: 100})))
	reports := c.gateways[0].sharing.gatherReports(nil)
	made := reports[len(reports)-1].made.Asks[0]
	if made.QPS.Rate != 1 || made.TPM.Rate != 100 {
		t.Fatalf("%+v", made)
	}
}

// A shadow dimension that is lent reports what it would have refused, and nothing else.
func TestShadowOfLoans(t *testing.T) {
	c := newCluster(t, 2, Sharing{})
	ask := func() *Claim {
		a := claim(10, dim(aModel, Limits{QPS: 2}))
		a.Dims[0].Shadow = true
		return a
	}
	for i := range 4 {
		a := ask()
		c.gateways[i%2].admit(a)
		if over := i >= 2; (len(a.Shadowed) > 0) != over {
			t.Fatalf("request %d: %v", i, a.Shadowed)
		}
		c.settle()
	}
}

// However long an answer takes, it is one for a while: a request that is refused by it does not ask again and again, and
// none waits much longer than Timeout.
func TestSlowAnswers(t *testing.T) {
	c := newCluster(t, 2, Sharing{Timeout: 200 * time.Millisecond})
	ask := func() *Claim { return claim(1, dim(aModel, Limits{QPS: 1})) }
	c.gateways[0].admit(ask())
	slow := 30 * time.Millisecond
	c.server.during = func() { c.clock.Advance(slow) }
	before := c.server.mu.exchange
	c.gateways[1].refuse(ask())
	if n := c.server.mu.exchange - before; n > 1 {
		t.Fatalf("%d exchanges for one refusal", n)
	}
	slow = LoanLife + time.Millisecond // loans are over when they come
	c.clock.Advance(2 * time.Second)
	from := c.clock.Mono()
	_, _, _ = c.gateways[1].Reserve(ctx, ask())
	if took := c.clock.Mono() - from; took > 2*200*time.Millisecond {
		t.Fatalf("waited %v", took)
	}
}

// panics is a server whose client has a bug.
type panics struct{ *naive }

func (panics) Borrow(context.Context, []*Exchange) error { panic("borrow") }
func (panics) Take(context.Context, *Order) error        { panic("take") }

// A call that panics leaves nothing held, and nobody waits for it.
func TestPanicOfACall(t *testing.T) {
	c := newCluster(t, 1, Sharing{})
	g := c.gateways[0]
	g.sharing.Server = panics{c.server}
	for _, ask := range []*Claim{claim(1, dim(aModel, Limits{QPS: 5})), claim(1, dim(keyID(3), Limits{QPS: 5}))} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			_, _, _ = g.Reserve(ctx, ask)
		}()
		if g.Open() != 0 {
			t.Errorf("%d are held", g.Open())
		}
	}
	g.sharing.Server = c.server
	m := g.meterOf(aModel)
	if m.mu.remote.busy != nil {
		t.Fatal("others wait for the exchange for ever")
	}
	g.admit(claim(1, dim(aModel, Limits{QPS: 5})))
}

// A gateway that is stopped gives back all it was lent, at once.
func TestLoansComeBackAtTheEnd(t *testing.T) {
	c := newCluster(t, 2, Sharing{})
	ask := func() *Claim { return claim(10, dim(aModel, Limits{QPS: 100, TPM: 10_000, Concurrency: 50})) }
	for range 20 {
		c.gateways[0].admit(ask()).Release()
		c.clock.Advance(2 * time.Millisecond)
		c.settle()
	}
	if d := sumSince(c.server.mu.requests[aModel], c.clock.Mono()-qpsSpan); d <= 20 {
		t.Fatalf("%d: nothing more than what was spent is lent", d)
	}
	c.gateways[0].sharing.tidy(true)
	if n := sumSince(c.server.mu.requests[aModel], c.clock.Mono()-qpsSpan); n != 20 {
		t.Errorf("%d requests are in use, 20 were made", n)
	}
	if n := sumSince(c.server.mu.tokens[aModel], c.clock.Mono()-tpmSpan); n != 0 {
		t.Errorf("%d tokens are in use", n)
	}
	if n := c.server.mu.granted[aModel][1]; n != 0 {
		t.Errorf("%d of concurrency are lent", n)
	}
}

// What the server has heard is not told again with what it has not.
func TestReportsAreToldOnce(t *testing.T) {
	c := newCluster(t, 2, Sharing{})
	x := c.gateways[0].sharing
	c.server.failWith(errors.New("late"))
	c.gateways[0].admit(claim(10, dim(keyID(3), Limits{QPS: 5}))).Release()
	c.server.failWith(nil)
	batch := x.gatherReports(nil)
	c.server.mu.failEnd = errors.New("late")
	if x.reportAll(batch) {
		t.Fatal("heard")
	}
	c.server.mu.failEnd = nil
	if !x.reportAll(batch) || c.server.mu.takes != 1 {
		t.Fatalf("made %d times", c.server.mu.takes)
	}
}

// A server that does not answer to one sign of life is not asked to wait for the others: who watches it has to notice when
// it is back.
func TestBeatStopsAtAFailure(t *testing.T) {
	c := newCluster(t, 1, Sharing{})
	for range 3 * reportsBatch {
		c.gateways[0].admit(claim(0, dim(keyID(3), Limits{QPS: 5000})))
	}
	c.server.failWith(errors.New("late"))
	c.clock.Advance(BeatEvery)
	c.gateways[0].sharing.beat(c.clock.Mono())
	if c.server.mu.beats != 1 {
		t.Fatalf("%d calls", c.server.mu.beats)
	}
}

// What is left of an old hold, whose window is over, does not pay what others owe.
func TestOldHoldPaysNoDebt(t *testing.T) {
	c := newCluster(t, 1, Sharing{})
	g := c.gateways[0]
	ask := func(n llm.Tokens) *Claim {
		a := claim(n, dim(aModel, Limits{TPM: 100_000}))
		a.Dims[0].CountOnly = true
		return a
	}
	old := g.admit(ask(1000))
	c.settle()
	for range 3 {
		c.clock.Advance(30 * time.Second)
		c.settle()
	}
	g.admit(ask(500))
	old.Release()
	c.settle()
	if n := sumSince(c.server.mu.tokens[aModel], c.clock.Mono()-tpmSpan); n < 500 {
		t.Fatalf("the server knows of %d tokens, at least 500 are in use", n)
	}
}

// What others have open is told for as long as it may still be so.
func TestInspectForgetsWhatOthersHadOpen(t *testing.T) {
	c := newCluster(t, 2, Sharing{})
	ask := func() *Claim { return claim(1, dim(aModel, Limits{QPS: 100})) }
	res := c.gateways[0].admit(ask())
	c.settle()
	c.gateways[1].admit(ask())
	c.settle()
	if n := c.gateways[1].use(aModel).Concurrency; n < 2 {
		t.Fatalf("%d open", n)
	}
	res.Release()
	for range 3 {
		c.clock.Advance(HoldLife)
		c.settle()
	}
	if n := c.gateways[1].use(aModel).Concurrency; n != 1 {
		t.Fatalf("%d open, one is", n)
	}
}

// An outage that refuses does not end a running answer: what it comes to is told, not asked.
func TestOutageRefusesNoRunningAnswer(t *testing.T) {
	c := newCluster(t, 1, Sharing{Outages: map[Kind]Outage{Key: Refuse, Model: Refuse}})
	for _, rule := range []Overrun{Debt, Cut} {
		ask := claim(10, dim(keyID(3), Limits{TPM: 1000}), dim(aModel, Limits{TPM: 1000}))
		ask.Money.Overrun = rule
		c.gateways[0].sharing.away.Store(false)
		res := c.gateways[0].admit(ask)
		c.gateways[0].sharing.away.Store(true)
		if _, err := res.Extend(ctx, nil, 100); errors.Is(err, ErrAway) != (rule == Cut) {
			t.Errorf("%v: %v", rule, err)
		}
	}
}
