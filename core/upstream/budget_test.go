package upstream

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

func TestRetriesAreAShareOfRequests(t *testing.T) {
	b := budget{percent: 10}
	spend := func(now time.Duration) (n int) {
		for b.retry(now) {
			n++
		}
		return n
	}
	if n := spend(0); n != budgetFloor {
		t.Errorf("a quiet gateway may make %d retries", n)
	}
	for range 1000 {
		b.ask(s)
	}
	if n := spend(s); n != 100-budgetFloor {
		t.Errorf("%d more of 1000 requests", n)
	}
	if n := spend(10*s - 1); n != 0 {
		t.Errorf("%d while all of it is in the window", n)
	}
	if n := spend(10 * s); n != budgetFloor { // the first ten have left
		t.Errorf("%d after ten seconds", n)
	}
	if n := spend(11 * s); n != 0 { // of the floor, that are still there
		t.Errorf("%d when the requests have left", n)
	}
	if n := spend(time.Hour); n != budgetFloor {
		t.Errorf("%d after an hour", n)
	}
	b.ask(time.Hour - s) // read before the turn by another goroutine
	if b.mu.asks != 1 {
		t.Errorf("%d requests", b.mu.asks)
	}
}

// answered lets a call of a caller succeed on every channel, so that none sleeps.
func (r *rig) answered(caller uint64) {
	for _, ch := range r.cat.Channels() {
		r.client.lane(ch).health.succeed(ticket{caller: sole(caller)}, r.clock.Mono(), 200)
	}
}

// Everything fails everywhere: what reaches the channels is a tenth more than what was asked for, not three times as much.
func TestAStormOfFailuresDoesNotMultiply(t *testing.T) {
	a, b, c := newStub(t, status(500, "")), newStub(t, status(500, "")), newStub(t, status(500, ""))
	r := newRig(t, Options{}, openai("a", a.url), openai("b", b.url), openai("c", c.url))
	req := newRequest(t, r.cat, llm.Chat, plainBody)
	req.Caller = sole(7)
	const calls = 500
	var last error
	for range calls {
		r.answered(7)
		if _, last = r.client.Do(context.Background(), r.cat, req, new(watcher)); last == nil {
			t.Fatal("a 500 was relayed")
		}
	}
	sent := a.requests.Load() + b.requests.Load() + c.requests.Load()
	if sent < calls+calls/20 || sent > calls+calls/10+budgetFloor {
		t.Errorf("%d requests were sent for %d", sent, calls)
	}
	var e *llm.Error
	if !errors.As(last, &e) || e.Err == nil {
		t.Fatal(last)
	}
	contains(t, e.Err.Error(), "retries are at 10 % of the requests")
	if made, refused := r.client.Retries(); int64(made) != sent-calls || refused == 0 || refused > calls {
		t.Errorf("%d retries were sent, %d are counted; %d were refused", sent-calls, made, refused)
	}
}

// A retry that finds no room on the next channel is none: nothing was sent again.
func TestARetryWithoutRoomIsNone(t *testing.T) {
	bad := newStub(t, status(500, ""))
	first := openai("a", bad.url)
	first.Priority = 1
	r := newRig(t, Options{}, first, openai("b", vacant(t)))
	req := newRequest(t, r.cat, llm.Chat, plainBody)
	req.Caller = sole(7)
	for range 3 * budgetFloor {
		r.answered(7)
		_, err := r.client.Do(context.Background(), r.cat, req, &watcher{deny: map[string]bool{"b": true}})
		if err == nil {
			t.Fatal("a 500 was relayed")
		}
	}
	if made, refused := r.client.Retries(); made+refused != 0 || bad.requests.Load() != 3*budgetFloor {
		t.Errorf("%d retries were counted, %d refused; %d requests", made, refused, bad.requests.Load())
	}
}

// Whom the budget refuses a retry, the hold is told that the channel has its room back.
func TestARefusedRetryGivesItsRoomBack(t *testing.T) {
	bad, other := newStub(t, status(500, "")), newStub(t, status(500, ""))
	first := openai("a", bad.url)
	first.Priority = 1
	r := newRig(t, Options{}, first, openai("b", other.url))
	for r.client.budget.retry(r.clock.Mono()) {
	}
	hold := new(watcher)
	if _, err := r.do(context.Background(), plainBody, hold); err == nil {
		t.Fatal("a 500 was relayed")
	}
	if got := hold.String(); got != "attempt a, sent a, refused a, attempt b, refused b" {
		t.Error(got)
	}
	if h := r.client.Health(r.cat)[1]; h.InFlight != 0 || other.requests.Load() != 0 {
		t.Errorf("%+v, %d requests", h, other.requests.Load())
	}
}

// A channel that cannot be reached costs nobody anything: moving on from it is free.
func TestMovingOnFromAnUnreachableChannelIsFree(t *testing.T) {
	up := newStub(t, fine)
	first := openai("a", vacant(t))
	first.Priority = 1
	r := newRig(t, Options{}, first, openai("b", up.url))
	for i := range 50 {
		if _, _, err := r.call(); err != nil {
			t.Fatal(i, err)
		}
		r.clock.advance(time.Minute / 50) // it is tried again and again
	}
	if n := r.client.budget.mu.retries; n != 0 {
		t.Errorf("%d retries were counted", n)
	}
}
