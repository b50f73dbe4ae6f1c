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
