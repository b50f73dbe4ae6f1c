package upstream

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

func newGate(o Options) *gate {
	g := new(gate)
	o = o.Defaults()
	g.init(&o)
	return g
}

// fillUp enters until there is no place.
func (g *gate) fillUp(now time.Duration) (taken []place) {
	for len(taken) < 1000 {
		p, ok := g.enter(now, false)
		if !ok {
			break
		}
		taken = append(taken, p)
	}
	return taken
}

func leaveAll(ps []place) {
	for i := range ps {
		ps[i].leave()
	}
}

func TestConcurrencyIsLearned(t *testing.T) {
	g := newGate(Options{Adapt: AdaptAlways})
	held := g.fillUp(0)
	if len(held) != 20 {
		t.Fatalf("%d places to begin with", len(held))
	}
	for range 20 {
		g.answered()
	}
	if more := g.fillUp(0); len(more) != 2 {
		t.Errorf("%d more after twenty good answers", len(more))
	} else {
		leaveAll(more)
	}
	leaveAll(held[:5]) // 15 of 22 are in use
	for range 100 {
		g.answered()
	}
	if more := g.fillUp(0); len(more) != 7 {
		t.Errorf("it grew while less than four fifths were used: %d", len(more))
	}

	g.overloaded(s)
	g.overloaded(2*s - 1)
	if limit := g.mu.limit; limit < 15.3 || limit > 15.5 {
		t.Errorf("22 shrank to %v", limit)
	}
	g.overloaded(2 * s)
	if limit := g.mu.limit; limit < 10.7 || limit > 10.9 {
		t.Errorf("and then to %v", limit)
	}
	for now := 3 * s; now < time.Minute; now += s {
		g.overloaded(now)
	}
	if g.mu.limit != 1 {
		t.Errorf("after a minute of refusals: %v", g.mu.limit)
	}
}

// What was never refused is not bounded; the first refusal is where learning begins. Off stays off.
func TestConcurrencyIsLearnedFromTheFirstRefusal(t *testing.T) {
	for _, tt := range []struct {
		adapt  string
		flying int
		limit  int64
	}{{AdaptAfterOverload, 100, 70}, {AdaptAfterOverload, 5, 20}, {AdaptOff, 100, 0}} {
		g := newGate(Options{Adapt: tt.adapt})
		var held []place
		for range tt.flying {
			p, ok := g.enter(0, false)
			if !ok {
				t.Fatal("bounded before anything was refused")
			}
			held = append(held, p)
		}
		g.overloaded(0)
		leaveAll(held)
		for range 100 {
			g.answered()
		}
		if _, limit, _ := g.report(); limit != tt.limit {
			t.Errorf("%s, %d in flight: limit %d, want %d", tt.adapt, tt.flying, limit, tt.limit)
		}
	}
}

// A channel that wakes is filled step by step: a probe, then two more for each good answer, beside what was in flight
// before it fell asleep.
func TestAChannelWakesStepByStep(t *testing.T) {
	g := newGate(Options{Adapt: AdaptOff})
	var long []place
	for range 40 {
		p, _ := g.enter(0, false)
		long = append(long, p)
	}
	g.overloaded(0)
	probe, ok := g.enter(s, true)
	if !ok {
		t.Fatal("long answers keep the probe out")
	}
	all := []place{probe}
	for _, want := range []int{3, 9, 27} {
		if more := g.fillUp(s); len(more) != 0 {
			t.Fatalf("%d more without a word of those in flight", len(more))
		}
		for range len(all) {
			g.answered()
		}
		if all = append(all, g.fillUp(s)...); len(all) != want {
			t.Fatalf("%d beside the long ones, want %d", len(all), want)
		}
	}
	leaveAll(long[:20])
	if more := g.fillUp(s); len(more) != 0 {
		t.Errorf("the end of old answers made room for %d", len(more))
	}
	for range 7 {
		g.answered() // 41: as many as before
	}
	if more := g.fillUp(s); len(more) != 1000 {
		t.Errorf("still %d when it is awake", len(more))
	}

	g = newGate(Options{Adapt: AdaptOff})
	held := g.fillUp(0)[:64]
	g.overloaded(0)
	leaveAll(held)
	if n := len(g.fillUp(s)); n != 1 {
		t.Errorf("%d at once", n)
	}
	if n := len(g.fillUp(2 * s)); n != 1 {
		t.Errorf("%d more when nothing was refused for a second", n)
	}
}

// Probes that fail let nobody in: the first one that succeeds finds the channel as narrow as it was after the first sleep.
func TestFailedProbesWidenNothing(t *testing.T) {
	g := newGate(Options{Adapt: AdaptOff})
	held := g.fillUp(0)[:64]
	g.overloaded(0)
	leaveAll(held)
	now := time.Duration(0)
	for range 10 {
		now += 8 * s
		probe, ok := g.enter(now, true)
		if !ok {
			t.Fatal("no place for a probe")
		}
		probe.leave() // it was refused
	}
	now += 8 * s
	if _, ok := g.enter(now, true); !ok {
		t.Fatal("no place for a probe")
	}
	if n := len(g.fillUp(now)); n != 0 {
		t.Errorf("%d beside a probe that is still out", n)
	}
	g.answered()
	if n := len(g.fillUp(now)); n != rampStep {
		t.Errorf("%d more after the first good answer", n)
	}
}

// One that rested is no probe of the channel: where others have all places, it finds none beside them.
func TestWhoHasRestedTakesNoPlaceBesideTheOthers(t *testing.T) {
	l, all, _ := busyLane(8, 12)
	for range threshold {
		l.health.fail(l.health.mustBy(t, 7, 0, true), 0, verdict{class: failing, status: 500})
	}
	l.gate.thin(&all[11], s)
	again := l.health.mustBy(t, 7, s, true)
	if _, ok := l.gate.enter(s, again.probe); ok {
		t.Error("it has a place beyond those that there are")
	}
	l.health.forget(again, s)
	leaveAll(all[10:])
	if _, ok := l.gate.enter(s, l.health.mustBy(t, 7, s, true).probe); !ok {
		t.Error("it has none where there are some")
	}
}

// crowd makes n calls that hang at the stub until they are released.
func crowd(t *testing.T, r *rig, st *stub, n int) *sync.WaitGroup {
	var wg sync.WaitGroup
	before := st.requests.Load()
	for range n {
		wg.Go(func() {
			if _, _, err := r.call(); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "they are on their way", func() bool { return st.requests.Load() == before+int64(n) })
	return &wg
}

// Whoever finds a channel full waits a moment for a place, in a queue that is bounded.
func TestAShortQueueForAFullChannel(t *testing.T) {
	release := make(chan bool)
	st := newStub(t, func(x *exchange) bool { <-release; return fine(x) })
	a := openai("a", st.url)
	a.ConcurrencyLimit = 2
	r := newRig(t, Options{QueueRequests: 1, QueueWaitMS: 30_000}, a)
	first := crowd(t, r, st, 2)
	waiting := make(chan error)
	go func() {
		_, _, err := r.call()
		waiting <- err
	}()
	eventually(t, "one waits", func() bool { return r.client.Health(r.cat)[0].Waiting == 1 })
	if _, _, err := r.call(); err == nil {
		t.Error("the queue is not bounded")
	} else if e := asError(t, err, llm.KindRateLimited); e.Code != "upstream_rate_limited" || e.RetryAfterMS != 1000 {
		t.Errorf("%+v", e)
	}
	if h := r.client.Health(r.cat)[0]; st.requests.Load() != 2 || h.InFlight != 2 || h.Limit != 2 || h.State != "up" {
		t.Errorf("%d requests, %+v", st.requests.Load(), h)
	}
	close(release)
	if err := <-waiting; err != nil {
		t.Error("who waited was not let in: ", err)
	}
	first.Wait()
	if h := r.client.Health(r.cat)[0]; h.InFlight != 0 || h.Waiting != 0 {
		t.Errorf("%+v", h)
	}
}

// queued lines callers up, a letter each, for a channel with no place, and then has places come free one by one. It tells who
// got them, in order, and who was turned away.
func queued(queue int, arrivals string, gone ...int) (served, refused string) {
	g := newGate(Options{QueueRequests: queue})
	g.follow(1, false)
	only, _ := g.enter(0, false)
	var all []*waiter
	turned := func(w *waiter) {
		if refused += string(rune(w.caller)); w.mu.place.gate != nil {
			refused += "!" // and has a place
		}
	}
	for _, letter := range arrivals {
		w := &waiter{waiting: newWaiting(uint64(letter), 1)}
		all = append(all, w)
		before := slices.Clone(g.mu.waiting)
		if !g.lineUpLocked(w) {
			turned(w)
		}
		for _, o := range before {
			if !slices.Contains(g.mu.waiting, o) {
				turned(o)
				o.quits() // it looks for no other queue
				<-o.done
			}
		}
	}
	for _, i := range gone {
		g.stepOutLocked(all[i])
	}
	for held := only; held.gate != nil; {
		held.leave()
		for _, w := range all {
			if w.mu.place.gate != nil {
				served += string(rune(w.caller))
				held, w.mu.place.gate = w.mu.place, nil
			}
		}
	}
	return served, refused
}

// Places go round among the callers that wait, and a queue that is full belongs to all of them.
func TestTheQueueIsShared(t *testing.T) {
	for _, tt := range []struct {
		queue    int
		arrivals string
		gone     []int // of them, in order, before a place is free
		served   string
		refused  string
	}{
		{queue: 8, arrivals: "aaaa", served: "aaaa"},
		{queue: 8, arrivals: "aaaabbc", served: "abcabaa"},
		{queue: 4, arrivals: "aaaaa", served: "aaaa", refused: "a"},
		{queue: 4, arrivals: "aaaab", served: "abaa", refused: "a"},
		{queue: 4, arrivals: "aaaabbb", served: "abab", refused: "aab"},
		{queue: 4, arrivals: "aaaabbbcde", served: "abcd", refused: "aabbae"},
		{queue: 2, arrivals: "abc", served: "ab", refused: "c"},
		{queue: 6, arrivals: "aaaabb", gone: []int{0, 1}, served: "abab"},
		{queue: 8, arrivals: "aaaaabb", gone: []int{1, 3}, served: "ababa"},
		{queue: 8, arrivals: "aabcc", gone: []int{2}, served: "acac"},
	} {
		served, refused := queued(tt.queue, tt.arrivals, tt.gone...)
		if served != tt.served || refused != tt.refused {
			t.Errorf("%d places in the queue, %s came, %v left: served %s, want %s; refused %q, want %q",
				tt.queue, tt.arrivals, tt.gone, served, tt.served, refused, tt.refused)
		}
	}
}

// Whoever comes one at a time gets every second place beside one who keeps the queue full.
func TestOneCallerDoesNotKeepTheQueue(t *testing.T) {
	g := newGate(Options{QueueRequests: 64})
	g.follow(1, false)
	held, _ := g.enter(0, false)
	come := func(caller uint64) *waiter {
		w := &waiter{waiting: newWaiting(caller, 1)}
		if !g.lineUpLocked(w) {
			return nil
		}
		return w
	}
	var crowd []*waiter
	for range 1000 { // the crowd's own oldest leave, as their patience ends
		if w := come(7); w != nil {
			if crowd = append(crowd, w); len(crowd) > 32 {
				g.stepOutLocked(crowd[len(crowd)-32])
			}
		}
	}
	for i := range 100 {
		for come(7) != nil {
		}
		one := come(8)
		if one == nil {
			t.Fatal("turned away")
		}
		waited := 0
		for ; one.mu.place.gate == nil; waited++ {
			if waited == 2 {
				t.Fatalf("it waits behind %d", waited)
			}
			next := g.mu.waiting[0]
			held.leave()
			held = next.mu.place
		}
		if i > 0 && waited != 2 {
			t.Fatal("nothing is left for the other")
		}
	}
}

// Through the client: whoever is turned away for another is told what a full queue says.
func TestAnothersCallGetsAPlaceInAFullQueue(t *testing.T) {
	release := make(chan bool)
	st := newStub(t, func(x *exchange) bool { <-release; return fine(x) })
	a := openai("a", st.url)
	a.ConcurrencyLimit = 1
	r := newRig(t, Options{QueueRequests: 3, QueueWaitMS: 60_000}, a)
	first := crowd(t, r, st, 1)
	ask := func(caller uint64, told chan error) {
		req := newRequest(t, r.cat, llm.Chat, plainBody)
		req.Caller = sole(caller)
		go func() {
			answer, err := r.client.Do(context.Background(), r.cat, req, new(watcher))
			if err == nil {
				_, _ = answer.Body()
				answer.Close()
			}
			told <- err
		}()
	}
	storm, other := make(chan error, 3), make(chan error, 1)
	for range 3 {
		ask(7, storm)
	}
	eventually(t, "the queue is full", func() bool { return r.client.Health(r.cat)[0].Waiting == 3 })
	ask(8, other)
	if e := asError(t, <-storm, llm.KindRateLimited); e.Code != "upstream_rate_limited" || e.RetryAfterMS != 1000 {
		t.Errorf("%+v", e)
	}
	close(release)
	for _, told := range []chan error{other, storm, storm} {
		if err := <-told; err != nil {
			t.Error(err)
		}
	}
	first.Wait()
}

// Who waited for a place and got one is told how its attempt ended, not that there was no room.
func TestWhoGotAPlaceIsToldWhatFailed(t *testing.T) {
	release := make(chan bool)
	var failing atomic.Bool
	st := newStub(t, func(x *exchange) bool {
		if failing.Load() {
			return status(500, "")(x)
		}
		<-release
		return fine(x)
	})
	a := openai("a", st.url)
	a.ConcurrencyLimit = 1
	r := newRig(t, Options{QueueWaitMS: 30_000}, a)
	first := crowd(t, r, st, 1)
	failing.Store(true)
	told := make(chan error)
	go func() {
		_, _, err := r.call()
		told <- err
	}()
	eventually(t, "it waits", func() bool { return r.client.Health(r.cat)[0].Waiting == 1 })
	close(release)
	asError(t, <-told, llm.KindUpstream)
	first.Wait()
}

// The wait ends by itself, and with the client.
func TestWaitingEnds(t *testing.T) {
	release := make(chan bool)
	st := newStub(t, func(x *exchange) bool { <-release; return fine(x) })
	a := openai("a", st.url)
	a.ConcurrencyLimit = 1
	r := newRig(t, Options{QueueWaitMS: 30}, a)
	first := crowd(t, r, st, 1)
	_, _, err := r.call()
	asError(t, err, llm.KindRateLimited)
	close(release)
	first.Wait()

	release = make(chan bool)
	r = newRig(t, Options{QueueWaitMS: 30_000}, a)
	first = crowd(t, r, st, 1)
	ctx, cancel := context.WithCancel(context.Background())
	left := make(chan error)
	go func() {
		_, err := r.do(ctx, plainBody, new(watcher))
		left <- err
	}()
	eventually(t, "it waits", func() bool { return r.client.Health(r.cat)[0].Waiting == 1 })
	cancel()
	if err := <-left; err != context.Canceled {
		t.Error(err)
	}
	close(release)
	first.Wait()
	if h := r.client.Health(r.cat)[0]; h.InFlight != 0 || h.Waiting != 0 {
		t.Errorf("%+v", h)
	}
}

// Nobody waits where another channel has a place, be it of lower priority.
func TestAFullChannelOverflowsIntoTheNext(t *testing.T) {
	release := make(chan bool)
	st := newStub(t, func(x *exchange) bool { <-release; return fine(x) })
	spare := newStub(t, fine)
	a, b := openai("a", st.url), openai("b", spare.url)
	a.ConcurrencyLimit, a.Priority = 1, 1
	r := newRig(t, Options{QueueWaitMS: 60_000}, a, b)
	first := crowd(t, r, st, 1)
	for range 5 {
		if _, _, err := r.call(); err != nil {
			t.Error(err)
		}
	}
	close(release)
	first.Wait()
	if n := spare.requests.Load(); n != 5 {
		t.Errorf("%d went to the other channel", n)
	}
}

// An overload tells those who wait at once, and shrinks what is sent; a failure, slowness or a bad request does not.
func TestWhatAnOverloadIs(t *testing.T) {
	for name, tt := range map[string]struct {
		say    func(*exchange) bool
		shrink bool
	}{
		"429":           {status(429, ""), true},
		"503":           {status(503, ""), true},
		"529":           {status(529, ""), true},
		"500":           {status(500, ""), false},
		"400":           {status(400, ""), false},
		"401":           {status(401, ""), false},
		"reset":         {(*exchange).reset, false},
		"never answers": {func(x *exchange) bool { return !x.gone(5 * time.Second) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			st := newStub(t, tt.say)
			o := Options{Adapt: AdaptAlways}
			if name == "never answers" {
				o.HeaderTimeoutMS = 50
			}
			r := newRig(t, o, openai("a", st.url))
			for range threshold {
				_, _, _ = r.call()
			}
			want := 20.0
			if tt.shrink {
				want = 14
			}
			g := &r.client.lane(r.cat.Channels()[0]).gate
			if limit := g.mu.limit; limit < want-0.01 || limit > want+0.01 || g.flying.Load() != 0 {
				t.Errorf("limit %v, want %v; %d in flight", limit, want, g.flying.Load())
			}
		})
	}
	g := newGate(Options{Adapt: AdaptAlways, AdaptStart: 1})
	_ = g.fillUp(0)
	told := make(chan bool)
	go func() {
		w := g.join(newWaiting(0, 1))
		<-w.done
		told <- w.mu.place.gate != nil
	}()
	eventually(t, "it waits", func() bool { _, _, n := g.report(); return n == 1 })
	g.overloaded(0)
	if <-told {
		t.Error("a place on a channel that sleeps")
	}
}

// A provider that says within a stream that it is overloaded sleeps as if it had said so before; other errors are the
// stream's own.
func TestOverloadWithinAStream(t *testing.T) {
	for event, sleeps := range map[string]bool{
		"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n":                            true,
		"event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"server_is_overloaded\"}}}\n\n":                true,
		"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"no\"}}\n\n":                               false,
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"\\\"overloaded_error\\\" \\\"slow_down\\\"\"}}\n\n": false,
	} {
		st := newStub(t, func(x *exchange) bool { return x.stream(event) })
		r := newRig(t, Options{Adapt: AdaptAlways}, openai("a", st.url))
		if got, err := r.stream(); err != nil || len(got) != 1 || got[0] != event {
			t.Error(got, err)
		}
		want, limit := "up", int64(20)
		if sleeps {
			want, limit = "cooling", 1
		}
		if h := r.client.Health(r.cat)[0]; h.State != want || h.Limit != limit {
			t.Errorf("after %s: %+v", event, h)
		}
	}
}

// Of two channels of equal weight the slow one does not gather what is open; weights hold for what is open, too.
func TestLeastInFlight(t *testing.T) {
	cat := mustCatalog(t, []Model{{Name: "m"}}, []Channel{
		{Name: "a", Provider: "openai", BaseURL: "http://h", Weight: 3},
		{Name: "b", Provider: "openai", BaseURL: "http://h", Weight: 1},
	})
	tier := cat.models["m"].routes[llm.OpenAI].tiers[0]
	open := map[string]int64{}
	flying := func(ch *Channel) int64 { return open[ch.Name] }
	for range 400 {
		ch := tier.pick(make([]bool, 2), flying, func(*Channel) bool { return true })
		open[ch.Name]++
	}
	if fmt.Sprint(open) != "map[a:300 b:100]" {
		t.Error(open)
	}
	got := map[string]int{}
	open = map[string]int64{"a": 30}
	for range 100 { // b answers at once, a has stopped
		ch := tier.pick(make([]bool, 2), flying, func(*Channel) bool { return true })
		if got[ch.Name]++; ch.Name == "a" {
			open["a"]++
		}
	}
	if got["b"] != 100 {
		t.Error(got)
	}
}

// Whatever comes together, nobody is above the channel's own limit, and nothing is left in the end.
func TestGateUnderFire(t *testing.T) {
	g := newGate(Options{QueueRequests: 4})
	const most = 8
	g.follow(most, false)
	var clock, inside atomic.Int64
	var wg sync.WaitGroup
	for i := range 32 {
		rnd := rand.New(rand.NewPCG(uint64(i), 1))
		wg.Go(func() {
			for range 300 {
				now := time.Duration(clock.Add(int64(time.Millisecond)))
				p, ok := g.enter(now, rnd.IntN(20) == 0)
				if !ok {
					w := g.join(newWaiting(rnd.Uint64N(3), 1))
					w.quits()
					select {
					case <-w.done:
					case <-time.After(time.Duration(rnd.IntN(1000)) * time.Microsecond):
					}
					p, _ = w.outcome()
					g.stepOut(w)
				}
				if p.gate == nil {
					continue
				}
				if n := inside.Add(1); n > most {
					t.Errorf("%d at a time", n)
				}
				switch rnd.IntN(50) {
				case 0:
					g.overloaded(now)
				default:
					g.answered()
				}
				inside.Add(-1)
				p.leave()
				p.leave() // once more does nothing
			}
		})
	}
	wg.Wait()
	if flying, _, waiting := g.report(); flying != 0 || waiting != 0 || g.mu.old != 0 {
		t.Errorf("%d in flight, %d of them old, %d waiting", flying, g.mu.old, waiting)
	}
}

// event is something that happens in the simulation of a provider.
type event struct {
	at time.Duration
	do func()
}

type agenda []event

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].at < a[j].at }
func (a agenda) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)        { *a = append(*a, x.(event)) }
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// A provider that grants 50 requests a second (a bucket of 50) is asked 100 a second for ten minutes; an answer takes half a
// second, a refusal 20 ms and names no wait. served is the share of what it would have granted.
func served(ask func(now time.Duration) (answer func(now time.Duration, ok bool), may bool)) float64 {
	const rate, length = 50.0, 10 * time.Minute
	bucket, filled, good := rate, time.Duration(0), 0
	var todo agenda
	var now time.Duration
	var next func()
	next = func() {
		if now < length {
			heap.Push(&todo, event{now + 10*time.Millisecond, next})
		}
		answer, may := ask(now)
		if !may {
			return
		}
		bucket, filled = min(bucket+rate*(now-filled).Seconds(), rate), now
		if bucket < 1 {
			heap.Push(&todo, event{now + 20*time.Millisecond, func() { answer(now, false) }})
			return
		}
		bucket--
		good++
		heap.Push(&todo, event{now + 500*time.Millisecond, func() { answer(now, true) }})
	}
	heap.Push(&todo, event{0, next})
	for len(todo) > 0 {
		e := heap.Pop(&todo).(event)
		now = e.at
		e.do()
	}
	return float64(good) / (rate * length.Seconds())
}

// A plain cool-down of 5 s that doubles up to 60 s wastes more than a third of a provider that is asked for more than it
// grants; a sleep of 1 s, one probe and a slow start do not.
func TestSleepWastesLittle(t *testing.T) {
	var until, cool time.Duration
	plain := served(func(now time.Duration) (func(time.Duration, bool), bool) {
		return func(now time.Duration, ok bool) {
			switch {
			case ok && now >= until:
				cool = 0
			case !ok && now >= until:
				cool = min(max(2*cool, 5*s), 60*s)
				until = now + cool
			}
		}, now >= until
	})
	var h health
	g := newGate(Options{})
	ours := served(func(now time.Duration) (func(time.Duration, bool), bool) {
		tk, ok := h.admit(now, Caller{})
		if !ok {
			return nil, false
		}
		p, ok := g.enter(now, tk.probe)
		if !ok {
			h.forget(tk, now)
			return nil, false
		}
		return func(now time.Duration, ok bool) {
			if ok {
				h.succeed(tk, now, 200)
				g.answered()
			} else if h.fail(tk, now, verdict{class: limited, status: 429}) == asleep {
				g.overloaded(now)
			}
			p.leave()
		}, true
	})
	t.Logf("of what the provider grants, a plain cool-down uses %.0f %%, ours %.0f %%", 100*plain, 100*ours)
	if plain > 0.67 || ours < 0.85 {
		t.Errorf("a plain cool-down uses %.2f, ours %.2f", plain, ours)
	}
}
