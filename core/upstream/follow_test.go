package upstream

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

// follow has the client follow a catalog of other channels. The rig's own requests keep the one they had.
func (r *rig) follow(channels ...Channel) {
	r.t.Helper()
	r.client.Follow(mustCatalog(r.t, []Model{{Name: "m"}}, channels))
}

// ask starts a call of a caller, and gives how it ends.
func (r *rig) ask(hold Hold, caller uint64) (told chan error) {
	req := newRequest(r.t, r.cat, llm.Chat, plainBody)
	req.Caller = sole(caller)
	told = make(chan error, 1)
	go func() {
		answer, err := r.client.Do(context.Background(), r.cat, req, hold)
		if err == nil {
			_, err = answer.Body()
			answer.Close()
		}
		told <- err
	}()
	return told
}

// waiting is ask for a call that finds no place on the only channel.
func (r *rig) waiting(hold Hold, caller uint64) (told chan error) {
	return r.waitingFor(1, hold, caller)
}

// waitingFor is waiting where so many channels are full.
func (r *rig) waitingFor(channels int, hold Hold, caller uint64) (told chan error) {
	before := r.queued()
	told = r.ask(hold, caller)
	eventually(r.t, "it waits", func() bool { return r.queued() == before+channels })
	return told
}

func (r *rig) queued() (n int) {
	for _, h := range r.client.Health(r.cat) {
		n += h.Waiting
	}
	return n
}

func atMost(ch Channel, most int64) Channel {
	ch.ConcurrencyLimit = most
	return ch
}

// hanging is a stub that answers when it is released: one for each send, all when it is closed.
func hanging(t *testing.T) (st *stub, release chan bool) {
	release = make(chan bool)
	over := make(chan bool)
	st = newStub(t, func(x *exchange) bool {
		select {
		case <-release:
			return fine(x)
		case <-over:
			return false
		}
	})
	t.Cleanup(func() { close(over) })
	return st, release
}

// Whoever waits for a channel that is disabled, removed or led elsewhere moves on, and that channel hears nothing of it.
func TestWhoWaitsForAChannelThatEndsMovesOn(t *testing.T) {
	for name, change := range map[string]func(*Channel) bool{
		"disabled":      func(ch *Channel) bool { ch.State = "disabled"; return true },
		"removed":       func(*Channel) bool { return false },
		"other dialect": func(ch *Channel) bool { ch.Provider = "anthropic"; return true },
	} {
		for _, free := range []bool{false, true} { // the other one has a place by then
			t.Run(name, func(t *testing.T) {
				first, ends := hanging(t)
				second, release := hanging(t)
				a, b := atMost(openai("a", first.url), 1), atMost(openai("b", second.url), 1)
				a.Priority = 1
				r := newRig(t, Options{QueueWaitMS: 20_000}, a, b)
				held := crowd(t, r, first, 1)
				other := crowd(t, r, second, 1)
				failing := openai("c", newStub(t, status(500, "")).url) // tried before: it is not asked again
				failing.Priority = 2
				r.cat = mustCatalog(t, []Model{{Name: "m"}}, []Channel{a, b, failing})
				hold := new(watcher)
				told := r.waitingFor(2, hold, 7)
				if free {
					release <- true
					other.Wait()
				}
				if changed := a; change(&changed) {
					r.follow(changed, b, failing)
				} else {
					r.follow(b, failing)
				}
				if !free {
					eventually(t, "it waits for the other", func() bool { return r.client.Health(r.cat)[1].Waiting == 1 })
				}
				close(release)
				if err := <-told; err != nil {
					t.Error(err)
				}
				if got := hold.String(); got != "attempt c, sent c, refused c, attempt b, sent b" {
					t.Error(got)
				}
				close(ends)
				held.Wait()
				other.Wait()
				if n := first.requests.Load(); n != 1 {
					t.Errorf("%d requests went to the channel that ended", n)
				}
				for _, h := range r.client.Health(r.cat)[:2] {
					if h.InFlight != 0 || h.Waiting != 0 || h.Failures != 0 {
						t.Errorf("%+v", h)
					}
				}
			})
		}
	}
}

// Whoever waits for a channel that falls asleep moves on, too. Where there is no other, it is told how long that one sleeps.
func TestWhoWaitsForAChannelThatFallsAsleepMovesOn(t *testing.T) {
	for _, alone := range []bool{false, true} {
		overload := make(chan bool)
		sleepy := newStub(t, func(x *exchange) bool { <-overload; return status(429, "Retry-After: 30\r\n")(x) })
		other, release := hanging(t)
		a, b := atMost(openai("a", sleepy.url), 1), atMost(openai("b", other.url), 1)
		a.Priority = 1
		r := newRig(t, Options{QueueWaitMS: 20_000}, a, b)
		if alone {
			r = newRig(t, Options{QueueWaitMS: 20_000}, a)
		}
		first := r.ask(new(watcher), 8)
		eventually(t, "it is on its way", func() bool { return sleepy.requests.Load() == 1 })
		if alone {
			told := r.waiting(new(watcher), 7)
			close(overload)
			for _, told := range []chan error{first, told} {
				if e := asError(t, <-told, llm.KindRateLimited); e.RetryAfterMS < 29_000 || e.RetryAfterMS > 31_000 {
					t.Errorf("%+v", e)
				}
			}
			continue
		}
		held := crowd(t, r, other, 1)
		hold := new(watcher)
		told := r.waitingFor(2, hold, 7)
		close(overload)
		eventually(t, "both wait for the other", func() bool { return r.client.Health(r.cat)[1].Waiting == 2 })
		close(release)
		for _, told := range []chan error{first, told} {
			if err := <-told; err != nil {
				t.Error(err)
			}
		}
		held.Wait()
		if got := hold.String(); got != "attempt b, sent b" {
			t.Error(got)
		}
	}
}

// A caller that has to rest by the time it gets a place goes to another channel, too.
func TestWhoRestsWhenItGetsAPlaceMovesOn(t *testing.T) {
	full, ends := hanging(t)
	other, release := hanging(t)
	a, b := atMost(openai("a", full.url), 1), atMost(openai("b", other.url), 1)
	a.Priority = 1
	r := newRig(t, Options{QueueWaitMS: 20_000}, a, b)
	held := r.ask(new(watcher), 8)
	eventually(t, "it is on its way", func() bool { return full.requests.Load() == 1 })
	second := crowd(t, r, other, 1)
	hold := new(watcher)
	told := r.waitingFor(2, hold, 7)
	h := &r.client.lane(&a).health
	for range threshold {
		h.fail(ticket{epoch: h.mu.epoch, caller: sole(7)}, r.clock.Mono(), verdict{class: failing, status: 500})
	}
	close(ends)
	if err := <-held; err != nil {
		t.Error(err)
	}
	close(release)
	if err := <-told; err != nil {
		t.Error(err)
	}
	second.Wait()
	if got := hold.String(); got != "attempt b, sent b" {
		t.Error(got)
	}
}

// Where one channel sleeps long and another is only full, the wait is that of the one that is full.
func TestTheWaitIsThatOfWhoHasRoomFirst(t *testing.T) {
	sleepy := newStub(t, status(429, "Retry-After: 30\r\n"))
	other, release := hanging(t)
	a, b := openai("a", sleepy.url), atMost(openai("b", other.url), 1)
	a.Priority = 1
	r := newRig(t, Options{QueueWaitMS: 30}, a, b)
	held := crowd(t, r, other, 1)
	_, _, err := r.call()
	if e := asError(t, err, llm.KindRateLimited); e.RetryAfterMS != 1000 {
		t.Errorf("%+v", e)
	}
	close(release)
	held.Wait()
}

// Where there is no other channel, whoever waits is told why at once.
func TestWhoWaitsForTheOnlyChannelIsToldThatItEnded(t *testing.T) {
	st, release := hanging(t)
	a := atMost(openai("a", st.url), 1)
	r := newRig(t, Options{QueueWaitMS: 20_000}, a)
	held := crowd(t, r, st, 1)
	hold := new(watcher)
	one, two := r.waiting(hold, 7), r.waiting(hold, 8)
	a.State = "disabled"
	r.follow(a)
	for _, told := range []chan error{one, two} {
		e := asError(t, <-told, llm.KindUpstream)
		contains(t, e.Message, `no channel of model "m" is in service any more`)
	}
	if hold.String() != "" {
		t.Error(hold)
	}
	if h := r.client.Health(r.cat)[0]; h.InFlight != 1 || h.Waiting != 0 {
		t.Errorf("%+v", h)
	}
	if told := r.client.lane(&a); told != nil {
		t.Error("a disabled channel has a lane")
	}
	g := &r.client.mu.lanes["a"].gate
	if p, away := g.join(newWaiting(9, 1)).outcome(); p.gate != nil || !away {
		t.Error("a place on a disabled channel")
	}
	a.State = "enabled"
	a.Weight = 3
	r.follow(a)
	again := r.waiting(hold, 7) // it is as it was: full
	close(release)
	if err := <-again; err != nil {
		t.Error(err)
	}
	held.Wait()
}

// A client that is closed lets nobody wait.
func TestWhoWaitsIsToldThatTheClientIsClosed(t *testing.T) {
	st, release := hanging(t)
	r := newRig(t, Options{QueueWaitMS: 20_000}, atMost(openai("a", st.url), 1))
	held := crowd(t, r, st, 1)
	told := r.waiting(new(watcher), 7)
	r.client.Close()
	contains(t, asError(t, <-told, llm.KindUpstream).Err.Error(), "client is closed")
	close(release)
	held.Wait()
}

// A changed base URL or credential is used by whoever is sent from then on.
func TestWhoWaitsIsSentWhereTheChannelLeadsNow(t *testing.T) {
	old, release := hanging(t)
	var heard atomic.Value
	now := newStub(t, func(x *exchange) bool { heard.Store(x.req.Header.Get("Authorization")); return fine(x) })
	a := atMost(openai("a", old.url), 1)
	r := newRig(t, Options{QueueWaitMS: 20_000}, a)
	held := crowd(t, r, old, 1)
	told := r.waiting(new(watcher), 7)
	a.BaseURL, a.Credential = now.url, "sk-new"
	r.follow(a)
	if err := <-told; err != nil {
		t.Error(err)
	}
	if heard.Load() != "Bearer sk-new" {
		t.Errorf("it was sent with %v", heard.Load())
	}
	lane := r.client.lane(&a)
	if _, _, err := r.call(); err != nil || r.client.lane(&a) != lane { // of the old catalog
		t.Error("a request that holds the old catalog undid the change: ", err)
	}
	close(release)
	held.Wait()
}

// Who is on another channel when one ends does not fail over to it.
func TestARetryPassesByWhatEnded(t *testing.T) {
	release := make(chan bool)
	bad := newStub(t, func(x *exchange) bool { <-release; return status(500, "")(x) })
	gone, good := newStub(t, fine), newStub(t, fine)
	a, b, c := openai("a", bad.url), openai("b", gone.url), openai("c", good.url)
	a.Priority, b.Priority = 2, 1
	r := newRig(t, Options{}, a, b, c)
	call := crowd(t, r, bad, 1)
	r.follow(a, c)
	close(release)
	call.Wait()
	if gone.accepted.Load() != 0 || good.requests.Load() != 1 {
		t.Errorf("%d connections to what was removed, %d requests to the other", gone.accepted.Load(), good.requests.Load())
	}
}

// A limit that is raised lets so many of those who wait in at once; one that is lowered lets nobody in above it.
func TestAChangedLimitCountsAtOnce(t *testing.T) {
	st, release := hanging(t)
	a := openai("a", st.url)
	r := newRig(t, Options{QueueWaitMS: 20_000}, atMost(a, 1))
	held := crowd(t, r, st, 1)
	var all []chan error
	for caller := range uint64(5) {
		all = append(all, r.waiting(new(watcher), caller+7))
	}
	is := func(flying int64, waiting int) {
		t.Helper()
		if h := r.client.Health(r.cat)[0]; h.InFlight != flying || h.Waiting != waiting {
			t.Fatalf("%+v; want %d in flight, %d waiting", h, flying, waiting)
		}
	}
	r.follow(atMost(a, 3))
	is(3, 3)
	eventually(t, "they are sent", func() bool { return st.requests.Load() == 3 })
	r.follow(atMost(a, 2))
	is(3, 3)
	release <- true
	eventually(t, "one is answered", func() bool { return r.client.Health(r.cat)[0].InFlight == 2 })
	is(2, 3)
	release <- true
	eventually(t, "the next is sent", func() bool { return st.requests.Load() == 4 })
	is(2, 2)
	r.client.Follow(r.cat) // older: it says nothing any more
	r.follow(a)            // no limit
	is(4, 0)
	close(release)
	held.Wait()
	for _, told := range all {
		if err := <-told; err != nil {
			t.Error(err)
		}
	}
}

// placed writes down how many places of a channel are taken when the hold is told that it has room again.
type placed struct {
	watcher
	r     *rig
	taken []int64
}

func (p *placed) Refused(ch *Channel) { p.taken = append(p.taken, p.r.client.flying(ch)) }

// Who waits for a place gets it when the channel's meters have room again, too.
func TestAFailedAttemptGivesItsPlaceBackLast(t *testing.T) {
	r := newRig(t, Options{}, openai("a", newStub(t, status(500, "")).url))
	hold := &placed{r: r}
	if _, err := r.do(context.Background(), plainBody, hold); err == nil {
		t.Fatal("a 500 was relayed")
	}
	if len(hold.taken) != 1 || hold.taken[0] != 1 || r.client.flying(r.cat.Channels()[0]) != 0 {
		t.Error(hold.taken)
	}
}

// Channels come, go and change while calls are made: nothing is left in the end, no limit is passed and nobody waits in vain.
func TestCatalogsUnderFire(t *testing.T) {
	const most = 4
	var flying atomic.Int64
	st := newStub(t, func(x *exchange) bool {
		defer flying.Add(-1)
		if flying.Add(1) > most {
			t.Error("above the highest limit there was")
		}
		return fine(x)
	})
	safe := newStub(t, fine)
	a, b := atMost(openai("a", st.url), most), atMost(openai("b", safe.url), 1)
	a.Priority = 1
	r := newRig(t, Options{QueueWaitMS: 20_000}, a, b)
	var calls sync.WaitGroup
	for i := range 16 {
		calls.Go(func() {
			for range 200 {
				req := newRequest(t, r.cat, llm.Chat, plainBody)
				req.Caller = sole(uint64(i%3) + 1)
				answer, err := r.client.Do(context.Background(), r.cat, req, new(watcher))
				if err != nil {
					t.Error(err)
					continue
				}
				_, _ = answer.Body()
				answer.Close()
			}
		})
	}
	over := make(chan bool)
	go func() { calls.Wait(); close(over) }()
	rnd := rand.New(rand.NewPCG(1, 2))
	for done := false; !done; {
		select {
		case <-over:
			done = true
		default:
		}
		now := atMost(a, 1+rnd.Int64N(most))
		switch rnd.IntN(4) {
		case 0:
			now.State = "disabled"
			r.follow(now, b)
		default:
			r.follow(now, b)
		}
	}
	r.follow(a, b)
	for _, h := range r.client.Health(r.cat) {
		if h.InFlight != 0 || h.Waiting != 0 || h.Failures != 0 {
			t.Errorf("%+v", h)
		}
	}
	r.follow(b)
	if open, _ := r.conns("b"); open > 1 {
		t.Errorf("%d connections to b", open)
	}
	eventually(t, "the connections of what was removed are closed", func() bool { return st.open() == 0 })
}
