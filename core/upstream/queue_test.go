package upstream

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// Who finds every channel full takes the first place that any of them has.
func TestWhoWaitsTakesWhicheverOpensFirst(t *testing.T) {
	for first, name := range []string{"a", "b", "c"} {
		var stubs [3]*stub
		var release [3]chan bool
		for i := range stubs {
			stubs[i], release[i] = hanging(t)
		}
		a, b, c := atMost(openai("a", stubs[0].url), 1), atMost(openai("b", stubs[1].url), 1), atMost(openai("c", stubs[2].url), 1)
		a.Priority = 1
		r := newRig(t, Options{QueueWaitMS: 60_000}, a, b, c)
		var held [3]interface{ Wait() }
		for i, s := range stubs {
			held[i] = crowd(t, r, s, 1)
		}
		hold := new(watcher)
		told := r.ask(hold, 7)
		eventually(t, "it waits", func() bool { return r.queued() > 0 })
		release[first] <- true
		held[first].Wait()
		eventually(t, "it is sent to "+name, func() bool { return stubs[first].requests.Load() == 2 })
		if n := r.queued(); n != 0 {
			t.Errorf("%d still wait when %s has it", n, name)
		}
		for i := range release {
			close(release[i])
		}
		if err := <-told; err != nil {
			t.Error(err)
		}
		if want := "attempt " + name + ", sent " + name; hold.String() != want {
			t.Errorf("%s, want %s", hold, want)
		}
		for _, h := range held {
			h.Wait()
		}
		for _, h := range r.client.Health(r.cat) {
			if h.InFlight != 0 || h.Waiting != 0 {
				t.Errorf("%+v", h)
			}
		}
	}
}

// When the meters of a channel whose place was waited for have no room, the others are waited for.
func TestWhoIsRefusedAfterItsWaitGoesOnWaiting(t *testing.T) {
	first, one := hanging(t)
	second, two := hanging(t)
	r := newRig(t, Options{QueueWaitMS: 60_000}, atMost(openai("a", first.url), 1), atMost(openai("b", second.url), 1))
	x, z := crowd(t, r, first, 1), crowd(t, r, second, 1)
	hold := &watcher{deny: map[string]bool{"a": true}}
	told := r.ask(hold, 7)
	eventually(t, "it waits", func() bool { return r.queued() > 0 })
	close(one)
	x.Wait()
	eventually(t, "a has refused it", func() bool { return hold.String() == "attempt a" })
	close(two)
	z.Wait()
	if err := <-told; err != nil {
		t.Error(err)
	}
	if hold.String() != "attempt a, attempt b, sent b" {
		t.Error(hold)
	}
}

// Whoever is given a place on a channel that falls asleep in that moment leaves it to others, and goes on waiting.
func TestAPlaceOnAChannelThatFellAsleepIsGivenBack(t *testing.T) {
	release := make(chan bool)
	first := newStub(t, func(x *exchange) bool { <-release; return status(401, "")(x) })
	second, two := hanging(t)
	r := newRig(t, Options{QueueWaitMS: 60_000}, atMost(openai("a", first.url), 1), atMost(openai("b", second.url), 1))
	x, y := r.ask(new(watcher), 8), r.ask(new(watcher), 8)
	eventually(t, "both are full", func() bool { return first.requests.Load() == 1 && second.requests.Load() == 1 })
	hold := new(watcher)
	told := r.ask(hold, 7)
	eventually(t, "it waits", func() bool { return r.queued() == 2 })
	close(release)
	eventually(t, "a sleeps, and both wait for b", func() bool {
		b := r.client.Health(r.cat)[1]
		return b.Waiting == 2
	})
	close(two)
	for _, told := range []chan error{x, y, told} {
		if err := <-told; err != nil {
			t.Error(err)
		}
	}
	if hold.String() != "attempt b, sent b" {
		t.Error(hold)
	}
	for _, h := range r.client.Health(r.cat) {
		if h.InFlight != 0 || h.Waiting != 0 {
			t.Errorf("%+v", h)
		}
	}
}

// When every channel ends, whoever waits is told so, whatever some of them said before.
func TestWhoWaitsIsToldThatEveryChannelEnded(t *testing.T) {
	for _, why := range []string{"both are full", "one has no room"} {
		first, one := hanging(t)
		second, two := hanging(t)
		a, b := atMost(openai("a", first.url), 1), atMost(openai("b", second.url), 1)
		a.Priority = 1
		r := newRig(t, Options{QueueWaitMS: 60_000}, a, b)
		x, y := crowd(t, r, first, 1), crowd(t, r, second, 1)
		hold := new(watcher)
		if why == "one has no room" {
			hold.deny = map[string]bool{"a": true}
			close(one)
			x.Wait()
		}
		told := r.ask(hold, 7)
		eventually(t, "it waits", func() bool { return r.queued() > 0 })
		a.State, b.State = "disabled", "disabled"
		r.follow(a, b)
		e := asError(t, <-told, llm.KindUpstream)
		contains(t, e.Message, "is in service any more")
		if why == "both are full" {
			close(one)
			x.Wait()
		}
		close(two)
		y.Wait()
	}
}

// Who waits for several channels counts as one in all their queues, and is turned away when it is out of all of them.
func TestWhoWaitsForSeveralCountsAsOne(t *testing.T) {
	var gates [3]*gate
	for i := range gates {
		gates[i] = newGate(Options{QueueRequests: 4})
		gates[i].follow(1, false)
		_, _ = gates[i].enter(0, false)
	}
	over := func(w *waiting) bool {
		select {
		case <-w.done:
			return true
		default:
			return false
		}
	}
	wait := func(caller uint64, among ...*gate) *waiting {
		w := newWaiting(caller, len(among))
		for _, g := range among {
			g.join(w)
		}
		w.quits()
		return w
	}
	var all []*waiting
	for range 12 {
		all = append(all, wait(7, gates[:]...))
	}
	if one := wait(7, gates[:]...); !over(one) {
		t.Error("the queues take one too many")
	}
	other := wait(8, gates[0])
	for i, w := range all {
		if over(w) {
			t.Errorf("the %dth is turned away, which waits for others, too", i)
		}
	}
	if _, _, n := gates[0].report(); over(other) || n != 10 {
		t.Errorf("the other caller's place in the queue; %d are in it", n)
	}
	wait(8, gates[1])
	wait(8, gates[2])
	if !over(all[11]) || !over(all[9]) || over(all[8]) {
		t.Error("the newest are out of every queue")
	}
	for _, w := range all[9:] {
		if p, away := w.outcome(); p.gate != nil || away {
			t.Error("it was sent away, or has a place")
		}
	}
}

// Whoever has a place by now turns nobody away from the queues that are left to it.
func TestWhoIsDecidedTurnsNobodyAway(t *testing.T) {
	g := newGate(Options{QueueRequests: 2})
	g.follow(1, false)
	_, _ = g.enter(0, false)
	others := []*waiting{newWaiting(7, 1), newWaiting(7, 1)}
	for _, w := range others {
		g.join(w)
		w.quits()
	}
	has := newWaiting(8, 1)
	has.decide(nil, false)
	g.stepOut(g.join(has))
	if _, _, n := g.report(); n != 2 {
		t.Errorf("%d wait, of 2", n)
	}
}

// timers are a rig's timers that are over when its clock has been moved so far, and never by themselves.
type timers struct {
	clock *shiftClock
	mu    sync.Mutex
	set   map[chan time.Time]time.Duration // when each is over
}

func (r *rig) timers() *timers {
	ts := &timers{clock: r.clock, set: map[chan time.Time]time.Duration{}}
	r.client.timer = func(d time.Duration) (<-chan time.Time, func() bool) {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		over := make(chan time.Time, 1)
		ts.set[over] = r.clock.Mono() + d
		return over, func() bool {
			ts.mu.Lock()
			defer ts.mu.Unlock()
			_, running := ts.set[over]
			delete(ts.set, over)
			return running
		}
	}
	return ts
}

func (ts *timers) running() int {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return len(ts.set)
}

func (ts *timers) advance(d time.Duration) {
	ts.clock.advance(d)
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for over, at := range ts.set {
		if ts.clock.Mono() >= at {
			delete(ts.set, over)
			over <- time.Time{}
		}
	}
}

// Who waits for a place goes to a channel that wakes meanwhile, or has room again, at the time that it said; else it keeps
// its turn.
func TestWhoWaitsIsWokenWhenAChannelSaid(t *testing.T) {
	for _, what := range []string{"sleeps", "has no room", "has no room for good"} {
		t.Run(what, func(t *testing.T) {
			var wakes atomic.Bool
			first := newStub(t, func(x *exchange) bool {
				if what == "sleeps" && !wakes.Load() {
					return status(429, "Retry-After: 30\r\n")(x)
				}
				return fine(x)
			})
			second, release := hanging(t)
			a, b := openai("a", first.url), atMost(openai("b", second.url), 1)
			a.Priority = 1
			r := newRig(t, Options{QueueWaitMS: 60_000}, a, b)
			ts := r.timers()
			hold := &watcher{wait: 30 * time.Second, deny: map[string]bool{"a": what != "sleeps"}}
			held := r.ask(hold, 8)
			eventually(t, "b is full", func() bool { return second.requests.Load() == 1 })
			hold.mu.Lock()
			hold.told = nil
			hold.mu.Unlock()
			told := r.ask(hold, 7)
			eventually(t, "it waits", func() bool { return ts.running() == 1 })
			wakes.Store(true)
			if what == "has no room" {
				hold.mu.Lock()
				hold.deny = nil
				hold.mu.Unlock()
			}
			before := hold.String()
			ts.advance(29 * time.Second)
			if n := ts.running(); n != 1 || hold.String() != before {
				t.Errorf("it was woken too early: %s", hold)
			}
			ts.advance(2 * time.Second)
			want := "attempt a, sent a"
			switch what {
			case "has no room":
				want = "attempt a, attempt a, sent a"
			case "has no room for good":
				want = "attempt a, attempt a, attempt b, sent b"
				eventually(t, "it asks a again", func() bool { return hold.String() == "attempt a, attempt a" })
				close(release)
			}
			if err := <-told; err != nil {
				t.Error(err)
			}
			if hold.String() != want {
				t.Errorf("%s, want %s", hold, want)
			}
			if what != "has no room for good" {
				close(release)
			}
			if err := <-held; err != nil {
				t.Error(err)
			}
			for _, h := range r.client.Health(r.cat) {
				if h.InFlight != 0 || h.Waiting != 0 || h.State != "up" {
					t.Errorf("%+v", h)
				}
			}
		})
	}
}

// Whoever is sent to a channel that woke meanwhile, in vain, waits for the others again.
func TestWhoIsWokenInVainGoesOnWaiting(t *testing.T) {
	var asked atomic.Int64
	first := newStub(t, func(x *exchange) bool {
		if asked.Add(1) == 1 {
			return status(429, "Retry-After: 30\r\n")(x)
		}
		return status(500, "")(x)
	})
	second, release := hanging(t)
	a, b := openai("a", first.url), atMost(openai("b", second.url), 1)
	a.Priority = 1
	r := newRig(t, Options{QueueWaitMS: 60_000}, a, b)
	ts := r.timers()
	held := r.ask(new(watcher), 8)
	eventually(t, "b is full", func() bool { return second.requests.Load() == 1 })
	hold := new(watcher)
	told := r.ask(hold, 7)
	eventually(t, "it waits", func() bool { return ts.running() == 1 })
	ts.advance(31 * time.Second)
	eventually(t, "a has failed it, and it waits again", func() bool { return asked.Load() == 2 && ts.running() == 1 })
	close(release)
	for _, told := range []chan error{held, told} {
		if err := <-told; err != nil {
			t.Error(err)
		}
	}
	if want := "attempt a, sent a, refused a, attempt b, sent b"; hold.String() != want {
		t.Errorf("%s, want %s", hold, want)
	}
}

// late has no room at first, and breaks when it is asked again.
type late struct {
	watcher
	asked atomic.Int64
}

func (l *late) Attempt(*Channel) (room bool, wait time.Duration) {
	if l.asked.Add(1) > 1 {
		panic("bug")
	}
	return false, time.Second
}

// A panic in the hold of a request that waits leaves no turn in a queue behind, which would be given a place for good.
func TestAPanicLeavesNoTurnBehind(t *testing.T) {
	second, release := hanging(t)
	a, b := openai("a", newStub(t, fine).url), atMost(openai("b", second.url), 1)
	r := newRig(t, Options{QueueWaitMS: 60_000}, a, b)
	ts := r.timers()
	held := r.ask(&watcher{deny: map[string]bool{"a": true}}, 8)
	eventually(t, "b is full", func() bool { return second.requests.Load() == 1 })
	broke := make(chan any, 1)
	go func() {
		defer func() { broke <- recover() }()
		_, _ = r.do(t.Context(), plainBody, new(late))
	}()
	eventually(t, "it waits", func() bool { return ts.running() == 1 })
	ts.advance(time.Second)
	if <-broke == nil {
		t.Error("the panic was swallowed")
	}
	close(release)
	if err := <-held; err != nil {
		t.Error(err)
	}
	if h := r.client.Health(r.cat)[1]; h.InFlight != 0 || h.Waiting != 0 {
		t.Errorf("%+v", h)
	}
}

// A channel that becomes wider by the time that passes lets in who waits, though nobody else comes or goes.
func TestTimeLetsInWhoWaits(t *testing.T) {
	for name, tt := range map[string]struct {
		narrow func(g *gate, now time.Duration)
		widens time.Duration
	}{
		"it woke a second ago":        {func(g *gate, now time.Duration) { g.mu.ramp, g.mu.goal, g.mu.ramped = 1, 8, now }, time.Second},
		"there were too many at once": {func(g *gate, now time.Duration) { g.mu.crowd, g.mu.thins = 2, now+thinFor }, thinFor},
	} {
		t.Run(name, func(t *testing.T) {
			st, release := hanging(t)
			r := newRig(t, Options{QueueWaitMS: 60_000}, openai("a", st.url))
			ts := r.timers()
			g := &r.client.lane(r.cat.Channels()[0]).gate
			tt.narrow(g, r.clock.Mono())
			held := crowd(t, r, st, 1)
			told := r.ask(new(watcher), 7)
			eventually(t, "it waits", func() bool { return ts.running() == 1 })
			ts.advance(tt.widens)
			eventually(t, "it is sent", func() bool { return st.requests.Load() == 2 })
			close(release)
			if err := <-told; err != nil {
				t.Error(err)
			}
			held.Wait()
		})
	}
}
