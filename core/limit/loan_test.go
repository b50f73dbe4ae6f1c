package limit

import (
	"errors"
	"testing"
)

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
