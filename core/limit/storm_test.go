package limit

import (
	"testing"
	"time"
)

// storming gives a rig whose key is in a storm against its effective limit of 2, well below what the envelope allows.
func storming(t *testing.T, dim Dim) *rig {
	t.Helper()
	r := newRig(t, Options{})
	c := claim(1, dim)
	for range 2 {
		r.admit(c).Release()
	}
	for range stormAfter {
		r.refuse(c)
	}
	return r
}

// looks takes n looks within a moment.
func (r *rig) looks(n int, limit int64) (refused int, d Denial) {
	for range n {
		if r.Storm(keyID(3), limit, 0, &d) {
			refused++
		}
	}
	return refused, d
}

// The envelope allows twenty times what the key is ever tested against: the look uses what was tested.
func TestTheCheapLookTestsWhatWasTestedLately(t *testing.T) {
	r := storming(t, dim(keyID(3), Limits{QPS: 2}))
	n, d := r.looks(160, 40)
	if n != 160 {
		t.Fatalf("%d of 160 are refused at once", n)
	}
	if d.Axis != AxisQPS || d.Limit != 2 || d.Current != 2 || d.RetryAfterMS != 1000 {
		t.Fatalf("%+v", d)
	}
	if d.Exact {
		t.Fatal("the look sees the QPS alone: its wait is a hint")
	}
	r.clock.Advance(time.Second)
	if n, _ := r.looks(16, 40); n != 0 {
		t.Fatal("refused with the window empty")
	}
}

func TestTheCheapLookFollowsALargerDecision(t *testing.T) {
	r := storming(t, dim(keyID(3), Limits{QPS: 2}))
	more := dim(keyID(3), Limits{QPS: 2})
	more.Effective.QPS = 30
	r.admit(claim(1, more)).Release()
	if n, _ := r.looks(32, 40); n != 0 {
		t.Fatalf("%d are refused that a decision would let in", n)
	}
	lifted := storming(t, dim(keyID(3), Limits{QPS: 2}))
	lifted.admit(claim(1, dim(keyID(3), Limits{}))).Release()
	if n, _ := lifted.looks(32, 3); n != 32 {
		t.Fatalf("%d of 32 are refused at the given limit", n)
	}
}

// A fast storm and a slow one both have some requests that go the whole way, where a decision is heard that would let them in.
func TestTheCheapLookLetsOneThroughNowAndThen(t *testing.T) {
	for _, x := range []struct {
		every time.Duration
		one   int // in how many
	}{{200 * time.Microsecond, 100}, {10 * time.Millisecond, 16}} {
		r := storming(t, dim(keyID(3), Limits{QPS: 2}))
		r.refuse(claim(1, dim(keyID(3), Limits{QPS: 2})))
		through, n := 0, int(900*time.Millisecond/x.every)
		for range n {
			r.clock.Advance(x.every)
			refused, _ := r.looks(1, 40)
			through += 1 - refused
		}
		if through != n/x.one {
			t.Errorf("one each %v: %d of %d go the whole way, want one in %d", x.every, through, n, x.one)
		}
	}
}

func TestTheCheapLookForgetsAnOldDecision(t *testing.T) {
	var m tested
	m.note(0, 0, reach{30, 300})
	m.note(59*time.Second, 0, reach{2, 20})
	m.note(119*time.Second, 0, reach{2, 20})
	if m.older.most != 30 || m.recent.most != 2 {
		t.Fatalf("%+v", m)
	}
	m.note(121*time.Second, 0, reach{2, 20})
	if m.older.most != 2 || m.recent.most != 2 {
		t.Fatalf("%+v", m)
	}
	m.note(300*time.Second, 0, reach{4, 40})
	if m.older.most != 0 || m.recent.most != 4 {
		t.Fatalf("%+v", m)
	}
}

// A limit that was raised holds from the next request: what was tested under other terms is not remembered, and a request
// that was under way meanwhile does not bring it back.
func TestTheCheapLookForgetsOtherTerms(t *testing.T) {
	r := storming(t, dim(keyID(3), Limits{QPS: 2}))
	const changed = 1
	var d Denial
	if r.Storm(keyID(3), 40, changed, &d) {
		t.Fatalf("refused by the limit before: %+v", d)
	}
	c := claim(1, dim(keyID(3), Limits{QPS: 4}))
	c.Terms = changed
	for range 2 {
		r.admit(c).Release()
	}
	r.refuse(c)
	if !r.Storm(keyID(3), 40, changed, &d) || d.Limit != 4 {
		t.Fatalf("the new limit is not remembered: %+v", d)
	}
	r.refuse(claim(1, dim(keyID(3), Limits{QPS: 2})))
	if r.Storm(keyID(3), 40, changed, &d) {
		t.Fatalf("refused by a request of the terms before: %+v", d)
	}
}

// With a burst the look knows both of its bounds.
func TestTheCheapLookWithABurst(t *testing.T) {
	r := newRig(t, Options{})
	d := dim(keyID(3), Limits{QPS: 2})
	d.Burst = 5000
	c := claim(1, d)
	for range 20 { // at twice the limit until the ten seconds are spent
		r.admit(c).Release()
		r.clock.Advance(250 * time.Millisecond)
	}
	for range stormAfter {
		r.refuse(c)
	}
	if n, d := r.looks(32, 40); n != 31 || d.Limit != 2 {
		t.Fatalf("%d, %+v", n, d)
	}
}
