package upstream

import (
	"testing"
	"time"
)

// played is one channel asked for two minutes: by bad keys of org 1, 100 times a second each, whose requests all fail as v says,
// and by a good key of an org. It gives how often the good one was not let in, and how often a bad one was.
func played(v verdict, bad int, org uint64, every time.Duration) (kept, asked, failed int) {
	const ms = time.Millisecond
	var h health
	for now := ms; now < 2*time.Minute; now += ms {
		for k := range bad {
			if int(now/ms)%10 != k {
				continue
			}
			if t, ok := h.admit(now, Caller{1, uint64(k) + 1}); ok {
				h.fail(t, now, v)
				failed++
			}
		}
		if now%every != 5*ms {
			continue
		}
		asked++
		if t, ok := h.admit(now, Caller{org, 100}); ok {
			h.succeed(t, now, 200)
		} else {
			kept++
		}
	}
	return kept, asked, failed
}

// What one key's requests bring upon a channel keeps no other key of its org from it, nor for long what a few keys' do.
func TestOneKeysFailuresAreNotItsOrgs(t *testing.T) {
	for _, tt := range []struct {
		name  string
		v     verdict
		bad   int
		every time.Duration
		kept  float64 // share of the good key's requests, at most
	}{
		{"500", verdict{class: failing, status: 500}, 1, 50 * time.Millisecond, 0},
		{"500, seldom asked", verdict{class: failing, status: 500}, 1, 2 * s, 0},
		{"no answer", verdict{class: failing}, 1, 50 * time.Millisecond, 0},
		{"403", verdict{class: refused, status: 403}, 1, 50 * time.Millisecond, 0},
		{"503", verdict{class: busy, status: 503}, 1, 50 * time.Millisecond, 0},
		{"503, seldom asked", verdict{class: busy, status: 503}, 1, 2 * s, 0},
		{"429", verdict{class: limited, status: 429}, 1, 50 * time.Millisecond, 0.01}, // the first may be everybody's
		{"529", verdict{class: busy, status: 529}, 1, 50 * time.Millisecond, 0.01},
		{"500 of two keys", verdict{class: failing, status: 500}, 2, 50 * time.Millisecond, 0},
		{"500 of five keys", verdict{class: failing, status: 500}, 5, 50 * time.Millisecond, 0.06},
		{"503 of five keys", verdict{class: busy, status: 503}, 5, 50 * time.Millisecond, 0.12},
		{"429 of two keys", verdict{class: limited, status: 429}, 2, 50 * time.Millisecond, 0.02},
		{"429 of five keys", verdict{class: limited, status: 429}, 5, 50 * time.Millisecond, 0.15},
	} {
		for _, org := range []uint64{1, 2} {
			kept, asked, failed := played(tt.v, tt.bad, org, tt.every)
			if float64(kept) > tt.kept*float64(asked) {
				t.Errorf("%s, org %d: %d of %d good requests were not let in", tt.name, org, kept, asked)
			}
			if most := (2*threshold + 125) * tt.bad; failed > most {
				t.Errorf("%s, org %d: %d bad requests were sent, want %d at most", tt.name, org, failed, most)
			}
		}
	}
}

func (h *health) mustOf(t *testing.T, now time.Duration, caller Caller, want bool) ticket {
	t.Helper()
	tk, ok := h.admit(now, caller)
	if ok != want {
		t.Fatalf("at %v %v is admitted: %v", now, caller, ok)
	}
	return tk
}

// attack is what bad keys of org 1 do to one channel, 500 times a second in all, while good ones ask it: one of org 1 and, if
// there is another org, one of org 2, which both were answered before.
type attack struct {
	v      verdict
	length time.Duration
	keys   int           // that fail in turn
	fresh  bool          // each request has a key that was never seen
	turned bool          // they were all answered before they began to fail
	every  time.Duration // the good keys ask
	shared bool          // there is another org
}

// played gives how many good requests of org 1 and of org 2 were not let in, and how many bad ones were.
func (a *attack) played() (mine, others, failed int) {
	const ms = time.Millisecond
	var h health
	good := []Caller{{1, 1000}, {2, 2000}}
	if !a.shared {
		good = good[:1]
	}
	answered := func(now time.Duration, c Caller) bool {
		t, ok := h.admit(now, c)
		if ok {
			h.succeed(t, now, 200)
		}
		return ok
	}
	for _, c := range good {
		answered(0, c)
	}
	for k := range a.keys {
		if a.turned {
			answered(0, Caller{1, uint64(k) + 1})
		}
	}
	kept, next := [2]int{}, uint64(1)
	for now := ms; now < a.length; now += ms {
		if now%(2*ms) == 0 {
			key := next%uint64(a.keys) + 1
			if next++; a.fresh {
				key = 10_000 + next
			}
			if t, ok := h.admit(now, Caller{1, key}); ok {
				h.fail(t, now, a.v)
				failed++
			}
		}
		for i, c := range good {
			if now%a.every == time.Duration(5+i)*ms && !answered(now, c) {
				kept[i]++
			}
		}
	}
	return kept[0], kept[1], failed
}

// However many keys of an org fail, no key that the channel answers is kept from it, and few of the failures get through.
func TestNoGoodKeyIsTakenAlong(t *testing.T) {
	for name, v := range map[string]verdict{
		"500":       {class: failing, status: 500},
		"no answer": {class: failing},
		"403":       {class: refused, status: 403},
		"503":       {class: busy, status: 503},
	} {
		for _, a := range []attack{
			{keys: 6}, {keys: 7}, {keys: 20}, {keys: 200}, {keys: 1, fresh: true}, {keys: 6, turned: true}, {keys: 20, turned: true},
		} {
			for _, every := range []time.Duration{50 * time.Millisecond, 2 * s} {
				for _, shared := range []bool{false, true} {
					a.v, a.every, a.shared, a.length = v, every, shared, 20*s
					mine, others, failed := a.played()
					if mine > 0 || others > 0 {
						t.Errorf("%s, %+v: %d good requests of the org and %d of the other were not let in", name, a, mine, others)
					}
					if most := (20 + 2*threshold) * min(a.keys, maxFaults+1); failed > most {
						t.Errorf("%s, %+v: %d bad requests were sent, want %d at most", name, a, failed, most)
					}
				}
			}
		}
	}
}

// Nor do many keys of an org put a channel to sleep for others for longer than it takes to see that those are answered.
func TestManyKeysPutNobodyElseToSleep(t *testing.T) {
	for name, v := range map[string]verdict{"429": {class: limited, status: 429}, "529": {class: busy, status: 529}} {
		for _, a := range []attack{{keys: 6}, {keys: 20}, {keys: 200}, {keys: 1, fresh: true}, {keys: 6, turned: true}, {keys: 20, turned: true}} {
			a.v, a.every, a.shared, a.length = v, 50*time.Millisecond, true, 2*time.Minute
			mine, others, failed := a.played()
			if most := 2400 * 6 / 100; mine > most || others > most { // the first 429 may be everybody's
				t.Errorf("%s, %+v: %d good requests of the org and %d of the other of 2400 were not let in", name, a, mine, others)
			}
			if most := (120 + 2*threshold) * min(a.keys, maxFaults+1); failed > most {
				t.Errorf("%s, %+v: %d bad requests were sent, want %d at most", name, a, failed, most)
			}
		}
	}
}

// Where there is one org alone, an outage is noticed by all of its keys together, but for one request of each that was good.
func TestAnOutageIsNoticedByASoleOrg(t *testing.T) {
	for _, keys := range []uint64{1, 3, 10, goodKeys} {
		var h health
		for key := range keys {
			h.succeed(h.mustOf(t, 0, Caller{1, key + 1}, true), 0, 200)
		}
		sent := 0
		for now := time.Millisecond; now < s; now += time.Millisecond {
			for key := range keys + 5 { // five are new
				if tk, ok := h.admit(now, Caller{1, key + 1}); ok {
					h.fail(tk, now, verdict{class: failing, status: 500})
					sent++
				}
			}
		}
		if most := int(keys) + outage + threshold; sent > most {
			t.Errorf("%d good keys: %d requests were sent in the first second, want %d at most", keys, sent, most)
		}
	}
}

// A good key that begins to fail rests alone, and then is one of its org's like any other.
func TestAGoodKeyThatFailsIsNoneAnyMore(t *testing.T) {
	var h health
	no := verdict{class: failing, status: 500}
	h.succeed(h.mustOf(t, 0, Caller{1, 100}, true), 0, 200)
	h.succeed(h.mustOf(t, 0, Caller{1, 101}, true), 0, 200)
	for key := range uint64(threshold) {
		h.fail(h.mustOf(t, s, Caller{1, key + 1}, true), s, no)
	}
	h.mustOf(t, s, Caller{1, 50}, false) // nobody knows it
	for range threshold {
		h.fail(h.mustOf(t, s, Caller{1, 100}, true), s, no)
	}
	h.mustOf(t, s, Caller{1, 100}, false)
	h.succeed(h.mustOf(t, s, Caller{1, 101}, true), s, 200)
	h.mustOf(t, s, Caller{1, 50}, false) // what is good says nothing of it
	h.succeed(h.mustOf(t, 2*s, Caller{1, 50}, true), 2*s, 200)
	h.mustOf(t, 2*s, Caller{1, 51}, true)
}

// What is known of its org's others does not make a good key's 429 its own: the provider means everybody.
func TestAGoodKeysRateLimitIsTheChannels(t *testing.T) {
	var h health
	no := verdict{class: limited, status: 429}
	h.succeed(h.mustOf(t, 0, Caller{1, 100}, true), 0, 200)
	h.fail(h.mustOf(t, 0, Caller{1, 1}, true), 0, no)
	h.succeed(h.mustOf(t, s+yieldFor, Caller{1, 100}, true), s+yieldFor, 200)
	now := 2 * s
	if u := h.fail(h.mustOf(t, now, Caller{1, 2}, true), now, no); u != alone {
		t.Fatalf("of a new key, after another's, while a good one is answered: %d", u)
	}
	if u := h.fail(h.mustOf(t, now, Caller{1, 100}, true), now, no); u != asleep {
		t.Errorf("of the good one: %d", u)
	}
	h.mustOf(t, now+s-1, Caller{2, 200}, false)
}

// Once several keys of an org fail and none is answered, it is no key's fault: the org rests, and others go on.
func TestAnOrgRestsWhenItsKeysFail(t *testing.T) {
	for _, tt := range []struct {
		v    verdict
		keys int
		why  class
	}{
		{verdict{class: failing, status: 500}, threshold, failing},
		{verdict{class: refused, status: 403}, threshold, failing},
		{verdict{class: busy, status: 503}, 2, busy},
	} {
		var h health
		now := s
		admit := func(caller Caller, want bool) ticket {
			t.Helper()
			tk, ok := h.admit(now, caller)
			if ok != want {
				t.Fatalf("%d at %v: %v is admitted: %v", tt.v.status, now, caller, ok)
			}
			return tk
		}
		for key := range tt.keys {
			h.fail(admit(Caller{1, uint64(key) + 1}, true), now, tt.v)
		}
		admit(Caller{1, 100}, false)
		admit(Caller{2, 200}, true)
		if wait, why := h.sleeps(now, Caller{1, 100}); wait != s || why != tt.why {
			t.Errorf("%d: it is told %v, %d", tt.v.status, wait, why)
		}
		now += s
		admit(Caller{1, 1}, false) // the probe is another's
		probe := admit(Caller{1, 100}, true)
		admit(Caller{1, 101}, false) // one at a time
		h.fail(probe, now, tt.v)
		now += 2*s - 1
		admit(Caller{1, 101}, false) // longer
		now++
		h.forget(admit(Caller{1, 101}, true), now)
		h.succeed(admit(Caller{1, 102}, true), now, 200)
		admit(Caller{1, 103}, true)
		admit(Caller{1, 104}, true)
	}
}

// A key that fails by itself says nothing about its org when it tries again.
func TestAKeyKnownToFailIsNoNewsOfItsOrg(t *testing.T) {
	var h health
	now := s
	no := verdict{class: failing, status: 500}
	fail := func(key uint64) {
		t.Helper()
		tk, ok := h.admit(now, Caller{1, key})
		if !ok {
			t.Fatalf("key %d is not admitted at %v", key, now)
		}
		h.fail(tk, now, no)
	}
	for key := range uint64(2) {
		for range threshold {
			fail(key + 1)
		}
	}
	for range 5 {
		tk, _ := h.admit(now, Caller{1, 100})
		h.succeed(tk, now, 200)
		now += s
		fail(1)
		fail(2)
		fail(3) // a first one
		tk, ok := h.admit(now, Caller{1, 3})
		if !ok {
			t.Fatal("the org rests")
		}
		h.succeed(tk, now, 200)
	}
}
