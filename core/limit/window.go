package limit

import "time"

// rule is an Algorithm, resolved.
type rule uint8

const (
	ruleSliding rule = iota
	ruleFixed
	ruleBucket
)

const (
	exactSlots  = 10_000           // an exact log longer than this goes on in slots of a millisecond
	coarseWidth = time.Millisecond // of those slots
	bucketSlots = 1_024            // a token bucket that drains slower than this many slots shares the newest
	keptSlots   = 256              // an emptied window gives back a ring longer than this
)

// window counts what was charged, oldest first, in slots. All three rules share the slots and differ in what makes
// the oldest leave: its age (sliding), the end of the bucket (fixed), the drain (token bucket). So a hold can always
// be adjusted where it was made, and is left alone once that slot is gone.
//
// Slots have numbers that only grow; slot id lives iff head <= id < head+n. Guarded by the meter that owns it.
type window struct {
	rule  rule
	span  time.Duration
	width time.Duration // charges within width of a slot's first charge join it; 0: an exact log

	ring  []slot // a power of two long; slot id is at ring[id&(len-1)]
	head  uint64 // the oldest slot's id; ids start at 1, so 0 names none
	n     uint64
	until time.Duration // charges before this join the newest slot
	frees time.Duration // nothing leaves before this, if not later; 0 under a token bucket, which always drains

	used, held int64 // sums over the living slots

	since time.Duration // fixed: start of the bucket; token bucket: drained up to here
	part  uint64        // token bucket: drained beyond whole units, in 1/span
	rate  int64         // token bucket: the drain of the last charge, for Inspect
}

// slot is what was charged within one width: it leaves a sliding window a span after its last charge, so no charge
// leaves early.
type slot struct {
	last time.Duration
	used int64
	held int64 // the part of used that belongs to open reservations
}

func newWindow(r rule, span, width time.Duration) window {
	return window{rule: r, span: span, width: width, head: 1}
}

// level is what is in use at now. Under a token bucket it is computed and nothing is stored: a refused request must
// not leave a drain at its own rate behind.
func (w *window) level(now time.Duration, rate int64) int64 {
	if now < w.frees {
		return w.used
	}
	return w.levelLater(now, rate)
}

func (w *window) levelLater(now time.Duration, rate int64) int64 {
	if w.rule == ruleBucket {
		return max(w.used-w.drained(now, rate), 0)
	}
	w.shed(now, rate)
	return w.used
}

// settleTo brings the slots up to now: what time alone has freed is gone. Most calls are one compare.
func (w *window) settleTo(now time.Duration, rate int64) {
	if now >= w.frees {
		w.shed(now, rate)
	}
}

func (w *window) shed(now time.Duration, rate int64) {
	switch w.rule {
	case ruleSliding:
		for w.n > 0 && w.at(w.head).last+w.span <= now {
			w.pop()
		}
		if w.n > 0 {
			w.frees = w.at(w.head).last + w.span
		} else if len(w.ring) > keptSlots {
			w.ring = nil
		}
	case ruleFixed:
		if w.n > 0 && w.since+w.span <= now {
			w.pop()
		}
	case ruleBucket:
		w.drain(now, rate)
	}
}

// add charges n at now and returns the slot it went to. With held it belongs to an open reservation.
func (w *window) add(now time.Duration, rate, n int64, held bool) uint64 {
	w.settleTo(now, rate)
	w.rate = rate
	if w.n == 0 || (now >= w.until && !(w.rule == ruleBucket && w.n >= bucketSlots)) {
		w.push(now)
	}
	id := w.head + w.n - 1
	s := w.at(id)
	s.last = max(s.last, now)
	s.used = plus(s.used, n)
	w.used = plus(w.used, n)
	if held {
		s.held += n
		w.held += n
	}
	return id
}

// push opens the slot of now.
func (w *window) push(now time.Duration) {
	if w.n == uint64(len(w.ring)) {
		w.grow()
	}
	if w.n > 0 { // a settlement's clock may be read just before another's charge
		now = max(now, w.at(w.head+w.n-1).last)
	} else if w.rule != ruleBucket {
		w.frees = now + w.span
	}
	switch {
	case w.rule == ruleFixed:
		w.since, w.until = now, now+w.span
	case w.width == 0 && w.n >= exactSlots:
		w.until = now + coarseWidth
	default:
		w.until = now + w.width
	}
	w.n++
	*w.at(w.head + w.n - 1) = slot{last: now}
}

func (w *window) grow() {
	ring := make([]slot, max(2*len(w.ring), 2))
	for id := w.head; id < w.head+w.n; id++ {
		ring[id&uint64(len(ring)-1)] = *w.at(id)
	}
	w.ring = ring
}

// pop forgets the oldest slot; what it still held is no longer anybody's.
func (w *window) pop() {
	s := w.at(w.head)
	w.used -= s.used
	w.held -= s.held
	w.head++
	w.n--
}

func (w *window) at(id uint64) *slot { return &w.ring[id&uint64(len(w.ring)-1)] }

func (w *window) lives(id uint64) bool { return id-w.head < w.n }

// settle ends a charge in the slot it was made in, if that lives: held becomes used for good, and back of it is taken
// out again, as far as it is still there. REQUIRES: settleTo(now).
func (w *window) settle(id uint64, held, back int64) {
	if !w.lives(id) {
		return
	}
	s := w.at(id)
	held, back = min(held, s.held), min(back, s.used)
	s.held -= held
	w.held -= held
	s.used -= back
	w.used -= back
}

// wait is how long it takes, from now and with nobody else admitted, until the level is at most target.
func (w *window) wait(now time.Duration, rate, target int64) time.Duration {
	over := w.level(now, rate) - target
	switch {
	case over <= 0:
		return 0
	case w.rule == ruleFixed:
		return w.since + w.span - now
	case w.rule == ruleBucket:
		return w.drainTime(rate, w.used-target) - (now - w.since)
	}
	id := w.head
	for {
		s := w.at(id)
		if over -= s.used; over <= 0 {
			return s.last + w.span - now
		}
		id++
	}
}
