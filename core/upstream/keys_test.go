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
