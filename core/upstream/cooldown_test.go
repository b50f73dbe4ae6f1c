package upstream

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

const s = time.Second

func (h *health) must(t *testing.T, now time.Duration, want bool) ticket {
	t.Helper()
	return h.mustBy(t, 0, now, want)
}

// sole is the only key of an org.
func sole(org uint64) Caller { return Caller{org, org} }

func (h *health) mustBy(t *testing.T, caller uint64, now time.Duration, want bool) ticket {
	t.Helper()
	tk, ok := h.admit(now, sole(caller))
	if ok != want {
		t.Fatalf("at %v caller %d is admitted: %v", now, caller, ok)
	}
	return tk
}

func TestCoolDownGrowsAndHeals(t *testing.T) {
	var h health
	now := time.Duration(0)
	h.fail(h.must(t, now, true), now, verdict{class: limited, status: 429})
	for _, sleep := range []time.Duration{1 * s, 2 * s, 4 * s, 8 * s, 8 * s, 8 * s} {
		h.must(t, now+sleep-1, false)
		now += sleep
		probe := h.must(t, now, true)
		h.must(t, now, false) // single flight
		h.fail(probe, now, verdict{class: limited, status: 429})
	}
	now += 60 * s
	h.succeed(h.must(t, now, true), now, 200)
	for range 5 {
		h.must(t, now, true)
	}
	h.fail(h.must(t, now, true), now, verdict{class: limited, status: 429})
	h.must(t, now+s-1, false)
	h.must(t, now+s, true)
}

func TestCoolDownByClass(t *testing.T) {
	for _, tt := range []struct {
		name   string
		class  class
		status int
		wait   time.Duration
		times  int // until it cools
		sleep  time.Duration
	}{
		{"429", limited, 429, 0, 1, s},
		{"429 with its own wait", limited, 429, 7 * s, 1, 7 * s},
		{"429 that asks for a day", limited, 429, time.Hour, 1, 60 * s},
		{"401", refused, 401, 0, 1, 60 * s},
		{"402", refused, 402, 0, 1, 60 * s},
		{"403 may be the request's fault", refused, 403, 0, threshold, 60 * s},
		{"5xx", failing, 500, 0, threshold, s},
		{"503", busy, 503, 0, 1, s},
		{"503 with its own wait", busy, 503, 5 * s, 1, 5 * s},
		{"529 with a short wait", busy, 529, 300 * time.Millisecond, 1, 300 * time.Millisecond},
		{"429 that asks for nothing much", limited, 429, 1, 1, coolLeast},
		{"500 with its own wait", failing, 500, 5 * s, threshold, 5 * s},
		{"no answer", failing, 0, 0, threshold, s},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var h health
			for i := range tt.times {
				h.fail(h.must(t, 0, true), 0, verdict{class: tt.class, status: tt.status, wait: tt.wait})
				if i < tt.times-1 {
					h.must(t, 0, true)
				}
			}
			h.must(t, tt.sleep-1, false)
			if wait, why := h.sleeps(tt.sleep/2, sole(0)); wait != tt.sleep-tt.sleep/2 || why != tt.class {
				t.Errorf("sleeps for %v because of %v", wait, why)
			}
			h.must(t, tt.sleep, true)
		})
	}
}

// A failing channel is asked ever more seldom; one whose own wait was not enough sleeps longer, too.
func TestCoolDownOfFailuresGrows(t *testing.T) {
	for _, tt := range []struct {
		v      verdict
		sleeps []time.Duration
	}{
		{verdict{class: failing, unsent: true}, []time.Duration{1 * s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s}},
		{verdict{class: limited, status: 429, wait: s / 5}, []time.Duration{s / 5, 1 * s, 2 * s, 4 * s, 8 * s, 8 * s}},
		{verdict{class: limited, status: 429, wait: 20 * s}, []time.Duration{20 * s, 20 * s, 20 * s, 20 * s, 20 * s, 20 * s}},
	} {
		var h health
		now := time.Duration(0)
		for h.mu.state == up {
			h.fail(h.must(t, now, true), now, tt.v)
		}
		for _, sleep := range tt.sleeps {
			h.must(t, now+sleep-1, false)
			now += sleep
			h.fail(h.must(t, now, true), now, tt.v)
		}
	}
}

func TestSuccessForgetsFailures(t *testing.T) {
	var h health
	for range 10 {
		for range threshold - 1 {
			h.fail(h.must(t, 0, true), 0, verdict{class: failing, status: 500})
		}
		h.succeed(h.must(t, 0, true), 0, 200)
	}
	h.must(t, 0, true)
}

// 64 calls that fail together are one failure of the channel.
func TestOldNewsChangesNothing(t *testing.T) {
	var h health
	var tickets []ticket
	for range 64 {
		tickets = append(tickets, h.must(t, 0, true))
	}
	for _, tk := range tickets[:60] {
		h.fail(tk, 0, verdict{class: limited, status: 429})
	}
	h.succeed(tickets[60], 0, 200) // began before the limit was hit
	h.must(t, s-1, false)
	h.fail(tickets[61], 0, verdict{class: limited, status: 429, wait: 3 * s}) // says the same, but knows better how long
	h.fail(tickets[62], 0, verdict{class: failing, status: 500})
	h.must(t, 3*s-1, false)
	probe := h.must(t, 3*s, true)
	h.fail(probe, 3*s, verdict{class: limited, status: 429})
	h.must(t, 5*s-1, false) // the second in a row: 2 s
	h.must(t, 5*s, true)
}

func TestProbes(t *testing.T) {
	var h health
	h.fail(h.must(t, 0, true), 0, verdict{class: limited, status: 429})
	first := h.must(t, s, true)
	h.must(t, s+probeEvery-1, false)
	second := h.must(t, s+probeEvery, true) // the first may take minutes to answer
	h.succeed(second, s+probeEvery, 200)
	h.must(t, s+probeEvery, true)
	h.fail(first, s+probeEvery, verdict{class: failing, status: 500}) // one failure among successes
	h.must(t, s+probeEvery, true)

	h = health{}
	h.fail(h.must(t, 0, true), 0, verdict{class: limited, status: 429})
	probe := h.must(t, s, true)
	h.must(t, s, false)
	h.forget(probe, s) // its client left
	h.must(t, s, true)
}

// A caller whose requests make the upstream fail rests alone: the channel stays up for the others.
func TestOneCallersFailuresDoNotCool(t *testing.T) {
	for _, v := range []verdict{
		{class: failing},
		{class: failing, status: 200}, // packed, though nobody asked for it
		{class: failing, status: 500},
		{class: failing, status: 408},
		{class: refused, status: 403},
	} {
		var h health
		for range threshold {
			h.fail(h.mustBy(t, 7, 0, true), 0, v)
		}
		h.mustBy(t, 7, s-1, false)
		h.mustBy(t, 8, 0, true)
		now := s
		for _, sleep := range []time.Duration{2 * s, 4 * s, 8 * s} {
			h.fail(h.mustBy(t, 7, now, true), now, v)
			h.mustBy(t, 7, now+sleep-1, false)
			h.mustBy(t, 8, now, true)
			now += sleep
		}
		h.fail(h.mustBy(t, 8, 0, true), 0, verdict{class: failing, status: 500}) // another one has it too
		h.mustBy(t, 9, 0, false)
	}
	var h health
	for range threshold { // that it cannot even be connected to is the channel's fault, whoever asks
		h.fail(h.mustBy(t, 7, 0, true), 0, verdict{class: failing, unsent: true})
	}
	h.must(t, 0, false)
}

// That others are answered in between does not keep a caller with a row of failures on the channel: whatever it sends costs a
// retry each time. What is answered of its own does, and it rests for a moment only.
func TestARowOfOnesOwnAmongOthersAnswers(t *testing.T) {
	var h health
	now := time.Duration(0)
	own := verdict{class: failing, status: 500}
	for round := range 5 {
		for range threshold - 1 {
			h.fail(h.mustBy(t, 7, now, true), now, own)
			h.succeed(h.mustBy(t, 8, now, true), now, 200)
		}
		if round < 2 {
			h.succeed(h.mustBy(t, 7, now, true), now, 200)
			continue
		}
		h.fail(h.mustBy(t, 7, now, true), now, own)
		for range 4 {
			h.succeed(h.mustBy(t, 8, now, true), now, 200)
			h.mustBy(t, 7, now+s-1, false)
			now += s
			h.fail(h.mustBy(t, 7, now, true), now, own)
		}
		now += 2 * s
		h.succeed(h.mustBy(t, 7, now, true), now, 200)
	}
}

// A caller whose requests get no answer rests alone, longer each time, until the channel answers somebody.
func TestOneCallersResetsRestThatCallerAlone(t *testing.T) {
	var h health
	reset := verdict{class: failing}
	var together []ticket
	for range 64 {
		together = append(together, h.mustBy(t, 7, 0, true))
	}
	for _, tk := range together {
		h.fail(tk, 0, reset)
	}
	now := time.Duration(0)
	for _, sleep := range []time.Duration{1 * s, 2 * s, 4 * s} {
		h.mustBy(t, 7, now+sleep-1, false)
		h.mustBy(t, 8, now+sleep-1, true)
		now += sleep
		probe := h.mustBy(t, 7, now, true)
		h.mustBy(t, 7, now+probeEvery-1, false) // single flight
		h.fail(probe, now, reset)
	}
	if wait, _ := h.sleeps(now, sole(7)); wait != 8*s {
		t.Errorf("rests for %v", wait)
	}
	if wait, _ := h.sleeps(now, sole(8)); wait != 0 {
		t.Errorf("the other waits %v", wait)
	}
	h.succeed(h.mustBy(t, 8, now, true), now, 200) // the channel works: the next try is soon
	h.mustBy(t, 7, now+s-1, false)
	now += s
	h.succeed(h.mustBy(t, 7, now, true), now, 200)
	h.mustBy(t, 7, now, true)
	h.mustBy(t, 7, now, true)

	for range threshold {
		h.fail(h.mustBy(t, 7, now, true), now, reset)
	}
	h.fail(h.mustBy(t, 8, now, true), now, verdict{class: failing}) // a second caller sees it
	h.mustBy(t, 9, now+s-1, false)
	h.mustBy(t, 9, now+s, true)
}

// The probe after a cool-down is left to others than the one who caused it, and what that one's probes bring binds
// nobody else and does not grow.
func TestTheProbeIsTheOthersFirst(t *testing.T) {
	var h health
	storm := verdict{class: limited, status: 429}
	h.fail(h.mustBy(t, 7, 0, true), 0, storm)
	if wait, _ := h.sleeps(0, sole(7)); wait != s {
		t.Errorf("alone it is told %v", wait)
	}
	h.mustBy(t, 8, s-1, false)
	h.mustBy(t, 7, s+yieldFor-1, false)
	if wait, _ := h.sleeps(0, sole(7)); wait != s+yieldFor {
		t.Errorf("beside another it is told %v", wait)
	}
	now := s + yieldFor
	for range 10 {
		h.fail(h.mustBy(t, 7, now, true), now, storm)
		h.mustBy(t, 7, now+s-1, false)
		if wait, _ := h.sleeps(now, sole(7)); wait != s {
			t.Errorf("after a probe of its own it is told %v", wait)
		}
		now += s
	}
	probe := h.mustBy(t, 8, now, true) // at once
	h.mustBy(t, 9, now, false)         // one at a time
	h.fail(probe, now, verdict{class: limited, status: 429})
	h.mustBy(t, 9, now+2*s-1, false) // two callers: it is the channel
	now += 2 * s
	h.succeed(h.mustBy(t, 9, now, true), now, 200)
	h.fail(h.mustBy(t, 7, now, true), now, verdict{class: limited, status: 429, wait: 3 * s})
	wait, _ := h.sleeps(now, sole(7))
	if wait != 3*s+yieldFor {
		t.Errorf("where others ask, too, it is told %v at once", wait)
	}
	h.mustBy(t, 7, now+wait-1, false) // whether or not one of them comes now
	h.mustBy(t, 7, now+wait, true)
}

// Providers say 429 to one request that is too large, too. Whoever gets it again while the others are answered rests
// alone; when a second one gets it, it is the channel.
func TestA429ThatOnlyOneCallerGetsIsThatCallers(t *testing.T) {
	var h health
	own := verdict{class: limited, status: 429}
	h.fail(h.mustBy(t, 7, 0, true), 0, own)
	h.mustBy(t, 8, s-1, false) // nobody can know yet
	now := s
	h.succeed(h.mustBy(t, 8, now, true), now, 200)
	for range 5 {
		h.fail(h.mustBy(t, 7, now, true), now, own)
		h.succeed(h.mustBy(t, 8, now, true), now, 200)
		h.mustBy(t, 7, now+s-1, false)
		if wait, why := h.sleeps(now, sole(7)); wait != s || why != limited {
			t.Fatalf("it is told %v, %v", wait, why)
		}
		now += s
	}
	h.fail(h.mustBy(t, 8, now, true), now, verdict{class: limited, status: 429})
	h.mustBy(t, 9, now+s-1, false)
	now += s
	h.succeed(h.mustBy(t, 7, now, true), now, 200)
	h.fail(h.mustBy(t, 7, now, true), now, own)
	h.mustBy(t, 9, now+s-1, false) // answered since, it is no suspect

	h = health{}
	stale := h.mustBy(t, 9, s, true)
	h.fail(h.mustBy(t, 7, s, true), s, verdict{class: failing, status: 500})
	h.succeed(h.mustBy(t, 8, s, true), s, 200)
	h.fail(h.mustBy(t, 7, s, true), s, own) // that something else of it failed makes it no suspect
	h.mustBy(t, 9, 2*s-1, false)
	h.fail(stale, s, verdict{class: failing, status: 500})
	h.succeed(h.mustBy(t, 8, 2*s, true), 2*s, 200)
	h.fail(h.mustBy(t, 7, 2*s, true), 2*s, own)
	h.mustBy(t, 9, 2*s, true) // another's late failure does not make one forget it
}

// An answer to what was sent before another's 429 does not show that others are answered since.
func TestAnAnswerIsAboutWhenItsRequestWasSent(t *testing.T) {
	var h health
	long := h.mustBy(t, 8, 0, true)
	crowd := verdict{class: limited, status: 429, crowd: true}
	if u := h.fail(h.mustBy(t, 7, s, true), s, crowd); u != known {
		t.Fatalf("%d", u)
	}
	h.succeed(long, 2*s, 200)
	if u := h.fail(h.mustBy(t, 7, 2*s, true), 2*s, crowd); u != known {
		t.Errorf("an answer to an older request makes a suspect: %d", u)
	}
	h.succeed(h.mustBy(t, 8, 3*s, true), 4*s, 200)
	if u := h.fail(h.mustBy(t, 7, 4*s, true), 4*s, crowd); u != alone {
		t.Errorf("an answer to a later request does not: %d", u)
	}
}

// A 503 that names no wait may be about one caller's requests: the second caller's puts the channel to sleep.
func TestA503WithoutAWaitIsTheChannelsWhenTwoGetIt(t *testing.T) {
	var h health
	h.fail(h.mustBy(t, 7, 0, true), 0, verdict{class: busy, status: 503})
	h.mustBy(t, 7, s-1, false)
	h.fail(h.mustBy(t, 8, 0, true), 0, verdict{class: busy, status: 503})
	h.mustBy(t, 9, s-1, false)
	h.mustBy(t, 9, s, true)

	h = health{}
	h.fail(h.mustBy(t, 7, 0, true), 0, verdict{class: busy, status: 503, wait: 2 * s})
	h.mustBy(t, 8, 2*s-1, false)
	h.mustBy(t, 8, 2*s, true)
}

// Through the client: one probe at a time, and a client that leaves while it probes neither heals nor harms.
func TestProbeThroughTheClient(t *testing.T) {
	mode := "limit"
	entered := make(chan bool, 10)
	st := newStub(t, func(x *exchange) bool {
		switch mode {
		case "limit":
			return status(429, "")(x)
		case "hang":
			entered <- true
			return !x.gone(5 * time.Second)
		}
		return fine(x)
	})
	r := newRig(t, Options{}, openai("a", st.url))
	_, _, _ = r.call()
	r.clock.advance(s)
	mode = "hang"
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		_, err := r.do(ctx, plainBody, new(watcher))
		done <- err
	}()
	<-entered
	if h := r.client.Health(r.cat)[0]; h.State != "probing" {
		t.Errorf("%+v", h)
	}
	if _, _, err := r.call(); err == nil {
		t.Error("a second call went out beside the probe")
	}
	cancel()
	if err := <-done; err != context.Canceled {
		t.Error(err)
	}
	mode = "fine"
	if _, _, err := r.call(); err != nil {
		t.Error("the next call should probe: ", err)
	}
	if h := r.client.Health(r.cat)[0]; h.State != "up" {
		t.Errorf("%+v", h)
	}
}

// A channel that fails sleeps; a model without another one is unavailable, not rate limited.
func TestCoolingAfterFailuresIs502(t *testing.T) {
	st := newStub(t, status(500, ""))
	r := newRig(t, Options{}, openai("a", st.url))
	for range 10 {
		_, _, err := r.call()
		if err == nil {
			t.Fatal("a 500 was relayed")
		}
	}
	if n := st.requests.Load(); n != threshold {
		t.Errorf("%d requests reached the channel; it should sleep after %d failures", n, threshold)
	}
}

// A channel that fails costs its sole caller nothing while another one works: after threshold failures that caller goes
// past it, and each probe is one retry.
func TestOneCallerGoesPastAChannelThatFails(t *testing.T) {
	for _, code := range []int{500, 502, 504, 520, 403, 408} {
		for priority := range 2 {
			bad, good := newStub(t, status(code, "")), newStub(t, fine)
			first := openai("bad", bad.url)
			first.Priority = priority
			r := newRig(t, Options{}, first, openai("good", good.url))
			req := newRequest(t, r.cat, llm.Chat, plainBody)
			req.Caller = sole(7)
			const calls = 300
			for i := range calls {
				answer, err := r.client.Do(context.Background(), r.cat, req, new(watcher))
				if err != nil {
					t.Fatalf("%d, priority %d, call %d: %v", code, priority, i, err)
				}
				_, _ = answer.Body()
				answer.Close()
				r.clock.advance(100 * time.Millisecond)
			}
			if n := bad.requests.Load(); n < threshold+2 || n > threshold+5 { // and probes after 1, 2, 4, 8 s
				t.Errorf("%d, priority %d: %d of %d went to the channel that fails", code, priority, n, calls)
			}
		}
	}
}

// A channel that is overloaded sleeps at once for as long as it says, in milliseconds, seconds or as a date.
func TestOverloadedChannelSleepsForItsOwnWait(t *testing.T) {
	for _, code := range []int{429, 503, 529} {
		for form, header := range map[string]func() string{
			"milliseconds": func() string { return "retry-after-ms: 9000" },
			"seconds":      func() string { return "Retry-After: 9" },
			"a date":       func() string { return "Retry-After: " + time.Now().Add(9*time.Second).UTC().Format(http.TimeFormat) },
			"an old date":  func() string { return "Retry-After: Sun, 06 Nov 1994 08:49:37 GMT" },
		} {
			var full atomic.Bool
			full.Store(true)
			st := newStub(t, func(x *exchange) bool {
				if full.Load() {
					return status(code, header()+"\r\n")(x)
				}
				return fine(x)
			})
			r := newRig(t, Options{}, openai("a", st.url))
			_, _, _ = r.call()
			least, most := 5.0, 9.0 // a date has whole seconds
			if form == "an old date" {
				least, most = 0.001, 1
			}
			if h := r.client.Health(r.cat)[0]; h.State != "cooling" || float64(h.UntilMS) < least*1000 || float64(h.UntilMS) > most*1000 {
				t.Errorf("%d, %s: %+v", code, form, h)
			}
			full.Store(false)
			if _, _, err := r.call(); err == nil || st.requests.Load() != 1 {
				t.Errorf("%d, %s: it was asked while it sleeps", code, form)
			}
			r.clock.advance(9 * time.Second)
			if _, _, err := r.call(); err != nil {
				t.Errorf("%d, %s: %v", code, form, err)
			}
		}
	}
}

// Callers whose own requests fail rest each for itself: one does not end another's rest, nor start its row anew.
func TestEachOfSeveralCallersRestsAlone(t *testing.T) {
	own := verdict{class: failing, status: 500}
	var h health
	now := s
	poisoned := []uint64{7, 9, 11}
	for round := range threshold {
		for _, caller := range poisoned {
			h.fail(h.mustBy(t, caller, now, true), now, own)
			h.succeed(h.mustBy(t, 8, now, true), now, 200)
		}
		if round == 0 {
			h.succeed(h.mustBy(t, 11, now, true), now, 200) // its row begins anew
		}
	}
	h.mustBy(t, 11, now, true)
	poisoned = poisoned[:2]
	for range 5 {
		for _, caller := range poisoned {
			h.mustBy(t, caller, now+s-1, false)
			if wait, why := h.sleeps(now, sole(caller)); wait != s || why != failing {
				t.Errorf("%d is told %v, %d", caller, wait, why)
			}
			h.mustBy(t, 8, now+s-1, true)
		}
		now += s
		probe := h.mustBy(t, 7, now, true)
		h.mustBy(t, 7, now, false) // single flight, and each has its own
		h.forget(h.mustBy(t, 9, now, true), now)
		h.fail(h.mustBy(t, 9, now, true), now, own)
		h.succeed(h.mustBy(t, 8, now, true), now, 200)
		h.fail(probe, now, own)
		h.succeed(h.mustBy(t, 8, now, true), now, 200)
	}
	now += s
	h.succeed(h.mustBy(t, 7, now, true), now, 200)
	h.mustBy(t, 7, now, true)
	h.mustBy(t, 7, now, true) // healed
	h.fail(h.mustBy(t, 9, now, true), now, own)
	h.mustBy(t, 9, now, false)
}

// How many are remembered is bounded: who failed longest ago, and does not rest any more, is forgotten first.
func TestCallersThatFailAreForgottenInTime(t *testing.T) {
	var h health
	now := s
	fails := func(caller uint64) {
		h.fail(h.mustBy(t, caller, now, true), now, verdict{class: failing, status: 500, wait: 10 * s})
		h.succeed(h.mustBy(t, 1, now, true), now, 200)
	}
	for range threshold {
		fails(7)
	}
	for caller := uint64(100); caller < 100+3*maxFaults; caller++ {
		now += time.Millisecond
		fails(caller)
	}
	h.mustBy(t, 7, now, false)
	now += coolFirst
	for caller := uint64(200); caller < 200+maxFaults; caller++ {
		now += time.Millisecond
		fails(caller)
	}
	fails(7) // one is no row
	h.mustBy(t, 7, now, true)
}

// Requests of two callers that break the channel cost a retry now and then, and not each time.
func TestTwoCallersGoPastAChannelThatFailsThem(t *testing.T) {
	bad := newStub(t, func(x *exchange) bool {
		if x.req.Header.Get("X-Request-Id") == "poisoned" {
			return status(500, "")(x)
		}
		return fine(x)
	})
	first := openai("bad", bad.url)
	first.Priority = 1
	r := newRig(t, Options{}, first, openai("good", newStub(t, fine).url))
	req := newRequest(t, r.cat, llm.Chat, plainBody)
	const rounds = 100
	for i := range rounds {
		for _, caller := range []uint64{7, 8, 9, 8} {
			req.Caller, req.RequestID = sole(caller), "poisoned"
			if caller == 8 {
				req.RequestID = "fine"
			}
			answer, err := r.client.Do(context.Background(), r.cat, req, new(watcher))
			if err != nil {
				t.Fatalf("round %d, caller %d: %v", i, caller, err)
			}
			_, _ = answer.Body()
			answer.Close()
		}
		r.clock.advance(100 * time.Millisecond)
	}
	if made, refused := r.client.Retries(); made > 2*(threshold+rounds/10) || refused != 0 {
		t.Errorf("%d retries for %d poisoned requests, %d refused", made, 2*rounds, refused)
	}
	if n := bad.requests.Load(); n < 2*rounds {
		t.Errorf("%d requests reached the channel; the other caller made %d", n, 2*rounds)
	}
}
