package upstream

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// When a channel's concurrency is learned.
const (
	AdaptAfterOverload = "after_overload" // from its first 429, 503 or 529 on: what was never refused needs no bound
	AdaptAlways        = "always"         // from its first request on
	AdaptOff           = "off"
)

const (
	shrinkEvery = time.Second // one burst of refusals is one piece of news
	shrinkTo    = 0.7
	growBy      = 1.1
	fullShare   = 0.8                    // of the limit in use: below it, an answer says nothing about the limit
	thinFor     = 10 * time.Second       // how long the number that was refused is not tried again
	fewerBy     = 6                      // that are refused as well, one after another: it is not about how many there are
	lately      = 16                     // places of which it is known whether they were refused
	crowdShare  = 0.5                    // of the limit: a refusal with fewer than that in flight is about something else
	placeSoon   = 100 * time.Millisecond // what a caller is told that was one too many
	rampEvery   = time.Second            // without a refusal widens it, too
	rampStep    = 2                      // how much each good answer widens a channel that wakes: its own place, and two more
)

// gate bounds the attempts that one channel carries at a time, by the least of four numbers:
//
//	most   the channel's own limit, as configured; a change of it counts at once
//	limit  what it was seen to carry. It starts at 20, or at 0.7 of what was in flight when the channel first refused;
//	       grows by a tenth after as many good answers as itself, counted only while four fifths of it are used; and shrinks
//	       to 0.7, at most once a second, when the channel falls asleep because it has too much to do. Slowness, a client
//	       that left, and a complaint about a request say nothing about it. A refusal that health takes for one caller's own
//	       does not count either
//	crowd  for thinFor after a 429, one less than there were with the request that got it; nor does limit grow beyond that.
//	       Where a 429 names no wait, that is all: the channel stays awake, as there were too many at once, and with one
//	       less there are not. When even fewerBy less are refused, and nobody who was sent in between was let in, fewer do
//	       not help, and it falls asleep. An answer to who was sent before them says nothing about that: where answers are
//	       long, it comes long after a provider's minute is used up. The same goes for a 429 that came with few in
//	       flight. limit shrinks with crowd, to what it leaves or to 0.7
//	ramp   after a sleep: 1, the probe; two more with each good answer, and twice as many with each second in which
//	       nothing was refused (providers refuse at once, and some answer late), until limit, or what was in flight, is
//	       reached. Without it all who waited would come back together, and bring the next sleep about
//
// Whoever finds no place may wait for one, in a short queue. Places go round among the callers that wait, so that one with
// many requests keeps no other out: the n-th that a caller has waiting is behind the n-th of each of the others, and when
// the queue is full, the last in it makes way for whoever belongs before it. A request stands in the queues of all the
// channels that it may go to and that are full, takes the first place that any of them has, and counts as one in all of
// them together. When a channel falls asleep, is disabled or is removed, all who wait for it are sent away, to look at
// everything anew. An attempt has its place until its Response is closed.
type gate struct {
	flying atomic.Int64 // changes under mu; read without it where channels are compared
	queue  int          // who may wait
	adapt  string
	start  float64
	mu     struct {
		sync.Mutex
		most    int64         // 0: none
		shut    bool          // nobody may wait
		limit   float64       // 0: not learned
		good    int64         // answers since limit changed
		shrunk  time.Duration // Mono of the last time
		sleeps  uint64        // so far
		old     int64         // in flight since before the latest
		crowd   int64         // the fewest at once of whom one was refused lately; 0: none was
		thins   time.Duration // Mono when that is forgotten
		taken   uint64        // places, so far
		vain    [lately]int64 // by number, of the latest: below, where it was refused; else 0
		ramp    int64         // 0: none
		goal    int64         // of ramp
		ramped  time.Duration // Mono when it last grew by time; 0: nobody came since the sleep
		waiting []*waiter     // by round, then by age
		round   uint64        // of who got a place last
	}
}

// place is the right to one attempt; the zero value is none.
type place struct {
	gate   *gate
	sleeps uint64 // when it was taken
	level  int64  // how many were taken then, with it
	number uint64 // among all that were ever taken
	below  int64  // the crowd that was known then, if they were fewer; 0: none
}

// waiter is a request's turn in one queue.
type waiter struct {
	*waiting
	round uint64 // of the places that are given: one to each caller in each
}

func (g *gate) init(o *Options) {
	g.queue, g.adapt, g.start = o.QueueRequests, o.Adapt, float64(o.AdaptStart)
	if g.adapt == AdaptAlways {
		g.mu.limit = g.start
	}
}

// follow takes the channel's own limit from a catalog, 0 for none: who waits gets the places that it adds.
func (g *gate) follow(most int64, shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.most, g.mu.shut = most, shut
	if shut {
		g.dismissLocked()
	}
	g.grantLocked()
}

// dismissLocked sends all who wait away.
func (g *gate) dismissLocked() {
	for _, w := range g.mu.waiting {
		w.decide(nil, true)
	}
	g.mu.waiting = nil
}

// enter takes a place if there is one.
func (g *gate) enter(now time.Duration, probe bool) (place, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if probe {
		g.mu.ramped = now // until it answers, nothing has shown that a second without refusals is one
	}
	g.passLocked(now)
	free := len(g.mu.waiting) == 0 && g.flying.Load() < g.roomLocked()
	if !free && !(probe && (g.mu.most == 0 || g.flying.Load() < g.mu.most)) {
		return place{}, false
	}
	return g.takeLocked(), true
}

// pass gives places that the time alone has opened to those who wait, and tells when it opens more (Mono); 0: it does not.
func (g *gate) pass(now time.Duration) (opens time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.passLocked(now)
	if g.mu.crowd > 0 {
		opens = g.mu.thins
	}
	if g.mu.ramp > 0 && (opens == 0 || g.mu.ramped+rampEvery < opens) {
		opens = g.mu.ramped + rampEvery
	}
	return opens
}

func (g *gate) passLocked(now time.Duration) {
	g.rampLocked(now)
	if g.mu.crowd > 0 && now >= g.mu.thins {
		g.forgetLocked()
	}
	g.grantLocked()
}

func (g *gate) takeLocked() place {
	g.mu.taken++
	g.mu.vain[g.mu.taken%lately] = 0
	p := place{gate: g, sleeps: g.mu.sleeps, level: g.flying.Add(1), number: g.mu.taken}
	if p.level < g.mu.crowd {
		p.below = g.mu.crowd
	}
	return p
}

// forgetLocked forgets the crowd.
func (g *gate) forgetLocked() {
	g.mu.crowd, g.mu.vain = 0, [lately]int64{}
}

// leave gives a place back.
func (p *place) leave() {
	g := p.gate
	if g == nil {
		return
	}
	p.gate = nil
	g.mu.Lock()
	defer g.mu.Unlock()
	g.flying.Add(-1)
	if p.sleeps != g.mu.sleeps {
		g.mu.old--
	}
	g.grantLocked()
}

// join lines a request up, if it may wait here.
func (g *gate) join(all *waiting) *waiter {
	w := &waiter{waiting: all}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.shut {
		w.decide(nil, true)
	} else if g.lineUpLocked(w) {
		g.grantLocked() // a place may have become free since enter
	}
	return w
}

// stepOut takes w out of the queue, if it is there.
func (g *gate) stepOut(w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stepOutLocked(w)
}

// lineUpLocked puts w into the round after its caller's last one that waits, or into the next. A caller's rounds have no
// gaps, so the last in the queue is the newest of whoever has most there; false: that would be w, or w is decided by now.
func (g *gate) lineUpLocked(w *waiter) bool {
	w.round = g.mu.round
	free := g.queue*whole - w.share
	for _, o := range g.mu.waiting {
		if free -= o.share; o.caller == w.caller {
			w.round = o.round
		}
	}
	w.round++
	stay := len(g.mu.waiting)
	for ; free < 0; stay-- {
		if stay == 0 || w.round >= g.mu.waiting[stay-1].round {
			return false
		}
		free += g.mu.waiting[stay-1].share
	}
	if !w.enters() {
		return false
	}
	for _, last := range g.mu.waiting[stay:] {
		last.quits()
	}
	g.mu.waiting = slices.Delete(g.mu.waiting, stay, len(g.mu.waiting))
	at := slices.IndexFunc(g.mu.waiting, func(o *waiter) bool { return o.round > w.round })
	if at < 0 {
		at = len(g.mu.waiting)
	}
	g.mu.waiting = slices.Insert(g.mu.waiting, at, w)
	return true
}

// stepOutLocked takes w out of the queue, if it is there; the caller's others each move up to where the one before was.
func (g *gate) stepOutLocked(w *waiter) {
	hole := slices.Index(g.mu.waiting, w)
	if hole < 0 {
		return
	}
	for i := hole + 1; i < len(g.mu.waiting); i++ {
		if o := g.mu.waiting[i]; o.caller == w.caller {
			g.mu.waiting[hole], o.round, w.round = o, w.round, o.round
			hole = i
		}
	}
	g.mu.waiting = slices.Delete(g.mu.waiting, hole, hole+1)
}

// answered: the channel did what it was asked.
func (g *gate) answered() {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.mu.ramp > 0:
		g.widenLocked(g.mu.ramp + rampStep)
	case g.mu.crowd > 0 && int64(g.mu.limit) >= g.mu.crowd-1:
		return
	case g.mu.limit > 0 && float64(g.flying.Load()) >= fullShare*math.Floor(g.mu.limit):
		if g.mu.good++; float64(g.mu.good) >= math.Floor(g.mu.limit) {
			g.mu.limit, g.mu.good = max(g.mu.limit*growBy, g.mu.limit+1), 0
			if g.mu.limit < 10 { // a tenth of it is less than a place
				g.mu.limit = math.Floor(g.mu.limit)
			}
		}
	default:
		return
	}
	g.grantLocked()
}

// overloaded: the channel was up and falls asleep because it has too much to do.
func (g *gate) overloaded(now time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.adapt != AdaptOff {
		g.shrinkLocked(now, 1)
	}
	g.forgetLocked()
	flying := g.flying.Load()
	g.mu.goal = flying
	if g.mu.limit > 0 {
		g.mu.goal = int64(g.mu.limit)
	}
	g.mu.ramp, g.mu.ramped, g.mu.old = 1, 0, flying
	g.mu.sleeps++
	g.dismissLocked()
}

// crowded tells whether a refusal can be about how many there were at once: there were not few, and in the row of those refused
// before it there were not many more.
func (g *gate) crowded(p *place) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	limit := g.mu.limit
	if limit == 0 {
		limit = g.start
	}
	return g.adapt != AdaptOff && p.level > 1 && float64(p.level) >= crowdShare*limit && g.fewerLocked(p) < fewerBy
}

// fewerLocked is how many less there were, with p, than in the crowd that was known when the row of places began that ends
// with p and was refused in vain.
func (g *gate) fewerLocked(p *place) int64 {
	crowd := p.below
	for n := p.number - 1; crowd > 0 && n+lately > g.mu.taken; n-- {
		before := g.mu.vain[n%lately]
		if before == 0 {
			break
		}
		crowd = max(crowd, before)
	}
	return crowd - p.level
}

// thin has fewer at a time than when p was taken, for a while.
func (g *gate) thin(p *place, now time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.crowd == 0 || p.level < g.mu.crowd {
		g.mu.crowd = p.level
	}
	g.mu.thins = now + thinFor
	if p.number+lately > g.mu.taken {
		g.mu.vain[p.number%lately] = p.below
	}
	g.shrinkLocked(now, float64(p.level-1))
}

// shrinkLocked lowers the limit, at most to least.
func (g *gate) shrinkLocked(now time.Duration, least float64) {
	switch {
	case g.mu.limit == 0:
		g.mu.limit = max(g.start, shrinkTo*float64(g.flying.Load()), least)
	case g.mu.shrunk == 0 || now-g.mu.shrunk >= shrinkEvery:
		g.mu.limit = min(g.mu.limit, max(g.mu.limit*shrinkTo, least))
	default:
		return
	}
	g.mu.shrunk, g.mu.good = now, 0
}

// rampLocked widens a channel that wakes with the time that passes.
func (g *gate) rampLocked(now time.Duration) {
	switch {
	case g.mu.ramp == 0:
	case g.mu.ramped == 0:
		g.mu.ramped = now
	case now-g.mu.ramped >= rampEvery:
		g.mu.ramped = now
		g.widenLocked(2 * g.mu.ramp)
	}
}

func (g *gate) widenLocked(ramp int64) {
	if g.mu.ramp = ramp; ramp >= g.mu.goal {
		g.mu.ramp = 0
	}
}

func (g *gate) roomLocked() int64 {
	room := int64(math.MaxInt64)
	if g.mu.most > 0 {
		room = g.mu.most
	}
	if g.mu.limit > 0 {
		room = min(room, int64(g.mu.limit))
	}
	if g.mu.ramp > 0 {
		room = min(room, g.mu.old+g.mu.ramp)
	}
	if g.mu.crowd > 0 {
		room = min(room, g.mu.crowd-1)
	}
	return room
}

func (g *gate) grantLocked() {
	for len(g.mu.waiting) > 0 && g.flying.Load() < g.roomLocked() {
		w := g.mu.waiting[0]
		if !w.decide(g.takeLocked, false) { // by another channel; it is about to step out
			g.stepOutLocked(w)
			continue
		}
		g.mu.waiting = slices.Delete(g.mu.waiting, 0, 1)
		g.mu.round = w.round
	}
}

// report gives what is in flight, what may be (0: anything), and who waits.
func (g *gate) report() (flying, limit int64, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if limit = g.roomLocked(); limit == math.MaxInt64 {
		limit = 0
	}
	return g.flying.Load(), limit, len(g.mu.waiting)
}
