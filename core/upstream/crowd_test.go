package upstream

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// stage plays callers, each with one call at a time, that do as they are told, against a provider: through one lane, in one
// goroutine, without real time.
type stage struct {
	lane    lane
	admits  admission
	takes   time.Duration // an answer, a fifth more or less; a refusal comes at once
	orgs    int
	split   bool // each caller has a key of its own, else each org has one
	rnd     *rand.Rand
	now     time.Duration
	todo    agenda
	waiting []*visitor // in the queue of the gate
	flying  int        // at the provider

	good, refused int
}

type visitor struct {
	*waiter
	caller int
}

const (
	stageTrip     = time.Millisecond // one way
	stagePatience = time.Second      // in the queue
)

func (st *stage) after(d time.Duration, do func()) { heap.Push(&st.todo, event{st.now + d, do}) }

func (st *stage) who(caller int) Caller {
	who := sole(uint64(caller%st.orgs) + 1)
	if st.split {
		who.Key = uint64(caller) + 1
	}
	return who
}

func (st *stage) told(caller int, wait time.Duration) {
	st.after(wait, func() { st.call(caller) })
}

// admit gives a ticket, or has the caller wait.
func (st *stage) admit(caller int) (ticket, bool) {
	t, ok := st.lane.health.admit(st.now, st.who(caller))
	if !ok {
		wait, _ := st.lane.health.sleeps(st.now, st.who(caller))
		st.told(caller, wait)
	}
	return t, ok
}

func (st *stage) call(caller int) {
	t, ok := st.admit(caller)
	if !ok {
		return
	}
	g := &st.lane.gate
	p, ok := g.enter(st.now, t.probe)
	defer st.settle()
	if ok {
		st.send(caller, t, p)
		return
	}
	st.lane.health.forget(t, st.now)
	v := &visitor{&waiter{waiting: newWaiting(st.who(caller).Org, 1)}, caller}
	if !g.lineUpLocked(v.waiter) {
		st.told(caller, coolFirst)
		return
	}
	v.quits() // it looks for no other queue
	st.waiting = append(st.waiting, v)
	g.grantLocked()
	st.after(stagePatience, func() {
		if i := slices.Index(st.waiting, v); i >= 0 {
			g.stepOutLocked(v.waiter)
			st.waiting = slices.Delete(st.waiting, i, i+1)
			st.told(caller, coolFirst)
		}
	})
}

// settle goes on with those whose waiting is over.
func (st *stage) settle() {
	for i := 0; i < len(st.waiting); i++ {
		v := st.waiting[i]
		select {
		case <-v.done:
		default:
			continue
		}
		st.waiting, i = slices.Delete(st.waiting, i, i+1), -1
		if v.mu.place.gate == nil {
			st.told(v.caller, coolFirst)
		} else if t, ok := st.admit(v.caller); ok {
			st.send(v.caller, t, v.mu.place)
		} else {
			v.mu.place.leave()
		}
	}
}

func (st *stage) send(caller int, t ticket, p place) {
	ends := func(judge func()) func() {
		return func() {
			judge()
			p.leave()
			st.settle()
		}
	}
	st.after(stageTrip, func() {
		ok, wait := st.admits(st.now, st.flying)
		if !ok {
			st.refused++
			st.after(stageTrip, ends(func() {
				st.lane.refused(t, &p, st.now, verdict{class: limited, status: 429, wait: wait})
				wait, _ := st.lane.health.sleeps(st.now, st.who(caller))
				if wait == 0 {
					wait = placeSoon
				}
				st.told(caller, wait)
			}))
			return
		}
		st.flying++
		st.after(st.takes*4/5+time.Duration(st.rnd.Int64N(int64(st.takes)*2/5)), func() {
			st.flying--
			st.after(stageTrip, ends(func() {
				st.good++
				st.lane.health.succeed(t, st.now, 200)
				st.lane.gate.answered()
				st.told(caller, 0)
			}))
		})
	})
}

// run gives good answers and refusals in a second.
func (st *stage) run(callers int, length time.Duration) (good, refused float64) {
	o := Options{}.Defaults()
	st.lane.gate.init(&o)
	for i := range callers {
		st.after(time.Duration(i)*time.Millisecond, func() { st.call(i) })
	}
	for len(st.todo) > 0 && st.now < length {
		e := heap.Pop(&st.todo).(event)
		st.now = e.at
		e.do()
	}
	return float64(st.good) / length.Seconds(), float64(st.refused) / length.Seconds()
}

type admission func(now time.Duration, flying int) (ok bool, wait time.Duration)

// anew makes the same provider for each run.
type anew func() admission

func atOnce(most int, wait time.Duration) anew {
	return func() admission {
		return func(_ time.Duration, flying int) (bool, time.Duration) { return flying < most, wait }
	}
}

// inWindow admits so many in each window; it says how long it is until the next, or nothing.
func inWindow(most int, window time.Duration, says bool) anew {
	return func() admission {
		at, used := time.Duration(-1), 0
		return func(now time.Duration, _ int) (ok bool, wait time.Duration) {
			if w := now / window; w != at {
				at, used = w, 0
			}
			if says {
				wait = (at+1)*window - now
			}
			used++
			return used <= most, wait
		}
	}
}

// inBucket admits at a rate, or what has not come in the last second.
func inBucket(rate float64, says bool) anew {
	return func() admission {
		bucket, filled := rate, time.Duration(0)
		return func(now time.Duration, _ int) (ok bool, wait time.Duration) {
			bucket, filled = min(bucket+rate*(now-filled).Seconds(), rate), now
			if bucket >= 1 {
				bucket--
				return true, 0
			}
			if says {
				wait = time.Duration((1 - bucket) / rate * float64(time.Second))
			}
			return false, wait
		}
	}
}

// busyLane is a lane with so many of a caller in flight.
func busyLane(caller uint64, n int) (l *lane, all []place, tickets []ticket) {
	l = new(lane)
	o := Options{}.Defaults()
	l.gate.init(&o)
	for range n {
		t, _ := l.health.admit(0, sole(caller))
		p, _ := l.gate.enter(0, false)
		all, tickets = append(all, p), append(tickets, t)
	}
	return l, all, tickets
}

func (l *lane) expect(t *testing.T, caller uint64, wait time.Duration, room int64) {
	t.Helper()
	got, _ := l.health.sleeps(0, sole(caller))
	if _, limit, _ := l.gate.report(); got != wait || limit != room {
		t.Errorf("caller %d waits %v, want %v; there is room for %d, want %d", caller, got, wait, limit, room)
	}
}

// A 429 without a wait among many in flight is about how many they are; the exceptions are not.
func TestWhatACrowdIs(t *testing.T) {
	no := verdict{class: limited, status: 429}
	l, all, tickets := busyLane(8, 12)
	for _, i := range []int{11, 10} { // one burst: the rest was answered
		l.refused(tickets[i], &all[i], 0, no)
	}
	l.expect(t, 8, 0, 10)

	l, all, tickets = busyLane(8, 12)
	asks := no
	asks.wait = 2 * s
	l.refused(tickets[11], &all[11], 0, asks)
	l.expect(t, 8, 2*s, 11) // asleep, and no more than that afterwards
	probe, _ := l.health.admit(2*s, sole(8))
	place, _ := l.gate.enter(2*s, true)
	l.refused(probe, &place, 2*s, no) // what a probe is told is about the channel, not about those beside it
	if state := l.health.mu.state; state != cooling {
		t.Errorf("after a probe that was refused beside others its state is %d", state)
	}

	l, all, tickets = busyLane(8, 9)
	l.refused(tickets[8], &all[8], 0, no)
	l.expect(t, 8, s, 10) // less than half of the 20 that it begins with

	l, all, tickets = busyLane(8, 12)
	l.gate.adapt = AdaptOff
	l.refused(tickets[11], &all[11], 0, no)
	l.expect(t, 8, s, 13) // what is not learned is left alone for a while

	for _, answered := range []bool{false, true} {
		l, all, tickets = busyLane(8, 40)
		l.refused(tickets[39], &all[39], 0, no)
		leaveAll(all[39:])
		for i := range threshold { // fewer and fewer
			l.expect(t, 8, 0, 39-2*int64(i))
			leaveAll(all[37-2*i : 39-2*i])
			l.gate.answered() // who was sent before any of them
			if answered {
				p, _ := l.gate.enter(0, false)
				l.gate.answered()
				p.leave()
			}
			p, _ := l.gate.enter(0, false)
			l.refused(tickets[39], &p, 0, no)
			p.leave()
		}
		if wait, _ := l.health.sleeps(0, sole(8)); wait == 0 != answered {
			t.Errorf("fewer were refused, answers between them %v: sleeps for %v", answered, wait)
		}
	}
}

// A provider says 429 to a single request that is too large, too: it does not thin the channel out for the others.
func TestOneCallersRefusalsAreNoCrowd(t *testing.T) {
	l, all, tickets := busyLane(8, 12)
	no := verdict{class: limited, status: 429}
	mine := l.health.mustBy(t, 7, 0, true)
	place, _ := l.gate.enter(0, false)
	l.refused(mine, &place, 0, no)
	place.leave()
	l.expect(t, 7, 0, 12)
	l.health.succeed(tickets[0], 0, 200)
	all[0].leave()
	mine = l.health.mustBy(t, 7, 0, true)
	place, _ = l.gate.enter(0, false)
	l.refused(mine, &place, 0, no)
	l.expect(t, 7, s, 12)
	l.expect(t, 8, 0, 12)
}

// Through the client: who is one too many is told to come back soon, and then waits until one of the others is answered.
func TestOneTooManyComesBackSoon(t *testing.T) {
	var flying atomic.Int64
	release := make(chan bool)
	st := newStub(t, func(x *exchange) bool {
		defer flying.Add(-1)
		if flying.Add(1) > 2 {
			return status(429, "")(x)
		}
		<-release
		return fine(x)
	})
	r := newRig(t, Options{AdaptStart: 3, QueueWaitMS: 60_000}, openai("a", st.url))
	first := crowd(t, r, st, 2)
	_, _, err := r.call()
	if e := asError(t, err, llm.KindRateLimited); e.RetryAfterMS != placeSoon.Milliseconds() {
		t.Errorf("%+v", e)
	}
	if h := r.client.Health(r.cat)[0]; h.State != "up" || h.Limit != 2 || h.LastStatus != 429 {
		t.Errorf("%+v", h)
	}
	again := make(chan error)
	go func() {
		_, _, err := r.call()
		again <- err
	}()
	eventually(t, "it waits", func() bool { return r.client.Health(r.cat)[0].Waiting == 1 })
	close(release)
	if err := <-again; err != nil {
		t.Error(err)
	}
	first.Wait()
	r.clock.advance(thinFor)
	if _, _, err := r.call(); err != nil {
		t.Error(err)
	}
	if h := r.client.Health(r.cat)[0]; h.Limit != 3 || st.requests.Load() != 5 {
		t.Errorf("%+v, %d requests", h, st.requests.Load())
	}
}

// What is had of a provider that says 429 to what is too much for it. Before too many at once were told from too many in a
// time, 18 of 100 were had of a provider of 10 places, and nowhere more than here.
func TestAllThatAProviderGrantsIsHad(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name          string
		admits        anew
		takes         time.Duration
		callers, orgs int     // orgs below 0: each caller has a key of its own
		grants        float64 // in a second
		share         float64 // of that, at least
		refused       float64 // in a second, at most
	}{
		{"10 at once", atOnce(10, 0), 100 * ms, 12, 1, 100, 0.95, 0.2},
		{"10 at once, 12 orgs", atOnce(10, 0), 100 * ms, 12, 12, 100, 0.95, 0.2},
		{"10 at once, 2 orgs", atOnce(10, 0), 100 * ms, 12, 2, 100, 0.95, 0.2},
		{"10 at once, 30 callers", atOnce(10, 0), 100 * ms, 30, 30, 100, 0.95, 0.4},
		{"10 at once, 100 callers", atOnce(10, 0), 100 * ms, 100, 10, 100, 0.95, 0.4},
		{"10 at once, long answers", atOnce(10, 0), 5 * s, 30, 30, 2, 0.9, 0.3},
		{"2 at once", atOnce(2, 0), 100 * ms, 12, 12, 20, 0.85, 0.4},
		{"100 at once", atOnce(100, 0), s, 150, 12, 100, 0.9, 1.5},
		{"10 at once, asks for 100 ms", atOnce(10, 100*ms), 100 * ms, 12, 12, 100, 0.8, 0.2},
		{"10 at once, asks for 1 s", atOnce(10, s), 100 * ms, 12, 12, 100, 0.7, 0.2},
		{"50 in a second", inWindow(50, s, false), 500 * ms, 100, 10, 50, 0.55, 5},
		{"50 in a second, says when", inWindow(50, s, true), 500 * ms, 100, 10, 50, 0.75, 0.5},
		{"50 a second", inBucket(50, false), 500 * ms, 100, 10, 50, 0.9, 4},
		{"50 a second, says when", inBucket(50, true), 500 * ms, 100, 10, 50, 0.95, 0.5},
		{"50 a second, long answers", inBucket(50, false), 5 * s, 400, 10, 50, 0.6, 4},
		{"1 a second", inBucket(1, false), 100 * ms, 12, 10, 1, 0.85, 1.1},
		{"60 a minute", inWindow(60, time.Minute, false), 100 * ms, 12, 12, 1, 0.95, 0.4},
		{"60 a minute, long answers", inWindow(60, time.Minute, false), 5 * s, 30, 12, 1, 0.95, 0.4},
		{"600 a minute, long answers", inWindow(600, time.Minute, false), 5 * s, 100, 12, 10, 0.95, 0.4},
		{"10 at once, 12 keys", atOnce(10, 0), 100 * ms, 12, -1, 100, 0.95, 0.2},
		{"10 at once, 100 keys", atOnce(10, 0), 100 * ms, 100, -1, 100, 0.95, 0.4},
		{"10 at once, 100 keys of 10 orgs", atOnce(10, 0), 100 * ms, 100, -10, 100, 0.95, 0.4},
		{"50 in a second, 100 keys", inWindow(50, s, false), 500 * ms, 100, -1, 50, 0.55, 5},
		{"50 a second, 100 keys", inBucket(50, false), 500 * ms, 100, -1, 50, 0.9, 4},
		{"50 a second, 100 keys of 10 orgs", inBucket(50, false), 500 * ms, 100, -10, 50, 0.9, 4},
		{"50 a second, says when, 100 keys", inBucket(50, true), 500 * ms, 100, -1, 50, 0.95, 0.5},
		{"600 a minute, long answers, keys", inWindow(600, time.Minute, false), 5 * s, 100, -12, 10, 0.95, 0.4},
		{"60 a minute, 12 keys", inWindow(60, time.Minute, false), 100 * ms, 12, -1, 1, 0.95, 1.2},
		{"600 a minute, says when", inWindow(600, time.Minute, true), 5 * s, 100, 12, 10, 0.95, 0.2},
	} {
		var goods, refusals []float64
		seeds := uint64(3) // one alone may be lucky: 0.3 to 0.7 were refused where all else was the same
		if testing.Short() {
			seeds = 1
		}
		for seed := range seeds {
			st := &stage{admits: tt.admits(), takes: tt.takes, orgs: max(tt.orgs, -tt.orgs), split: tt.orgs < 0, rnd: rand.New(rand.NewPCG(seed, 2))}
			good, refused := st.run(tt.callers, 3*time.Minute)
			goods, refusals = append(goods, good), append(refusals, refused)
		}
		good, refused := slices.Min(goods), slices.Max(refusals)
		t.Logf("%-33s %3.0f %%, %.2f refused in a second", tt.name, 100*good/tt.grants, refused)
		if good < tt.share*tt.grants || refused > tt.refused {
			t.Errorf("%s: %.2f of %.0f in a second, want %.0f %%; %.2f refused, want %.1f at most", tt.name, good, tt.grants, 100*tt.share, refused, tt.refused)
		}
	}
}
