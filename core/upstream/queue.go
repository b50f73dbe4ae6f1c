package upstream

import (
	"slices"
	"sync"
	"time"
)

// whole is what a request counts in the queues that it stands in; among n, it counts the n-th part in each.
const whole = 1 << 20

// waiting is one request's wait, decided once: by a place, or by a word that there is none to wait for.
type waiting struct {
	caller uint64
	share  int           // of whole, in each queue
	done   chan struct{} // closed when decided
	mu     struct {
		sync.Mutex // taken while a gate's is held, never the other way round
		over       bool
		queues     int // it stands in, and one more as long as it looks for others
		place      place
		away       bool // it was sent away: a channel sleeps, or nobody may wait for it any more
	}
}

func newWaiting(caller uint64, among int) *waiting {
	w := &waiting{caller: caller, share: whole / among, done: make(chan struct{})}
	w.mu.queues = 1
	return w
}

// decide ends a wait, with what take gives, if it is not over.
func (w *waiting) decide(take func() place, away bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.over {
		return false
	}
	if take != nil {
		w.mu.place = take()
	}
	w.mu.over, w.mu.away = true, away
	close(w.done)
	return true
}

// enters counts a queue more, unless it is decided.
func (w *waiting) enters() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.mu.over {
		w.mu.queues++
	}
	return !w.mu.over
}

// quits counts a queue less; out of all of them there is nothing to wait for.
func (w *waiting) quits() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.queues--; w.mu.queues == 0 && !w.mu.over {
		w.mu.over = true
		close(w.done)
	}
}

// outcome is how it was decided, which nobody does any more; the place is given out once.
func (w *waiting) outcome() (p place, away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.over = true
	p, w.mu.place = w.mu.place, place{}
	return p, w.mu.away
}

// maxLater is how many channels are asked at the time that they said by a request that waits for another; of more, the rest
// are asked when it has waited in vain.
const maxLater = 8

// ripening is a channel that cannot be tried now, but from a time on (Mono); 0: none.
type ripening struct {
	channel string
	at      time.Duration
}

// next picks the channel to try; nil: there is none left. It has been admitted, and the hold has room for it, when it is
// returned. When those that are awake have no place left, it waits for the first place on any of them, or until another may be
// tried; when one of them falls asleep or is out of service meanwhile, and when it has waited in vain, it asks all of them again.
func (d *doing) next(seen []bool) *Channel {
	for !d.ask(seen) {
		if len(d.crowded) == 0 || d.patience <= 0 {
			d.roomless = d.roomless || len(d.crowded) > 0
			return nil
		}
		picked, again := d.queue(seen)
		switch {
		case picked:
			return d.channel
		case !again:
			d.roomless = true
			return nil
		}
	}
	return d.channel
}

// ask looks for a channel among those that are not seen.
func (d *doing) ask(seen []bool) bool {
	for _, t := range d.route.tiers {
		if t.pick(seen, d.client.flying, d.admit) != nil {
			return true
		}
	}
	return false
}

// queue waits as long as is left of what one waits in all; picked: there is a channel; again: all are to be asked anew.
func (d *doing) queue(seen []bool) (picked, again bool) {
	began := d.client.clock.Mono()
	l := line{all: newWaiting(d.req.Caller.Org, len(d.crowded))}
	defer l.abandon() // when the hold panics
	l.join(d)
	l.all.quits()
	picked = d.stand(&l, seen, began+d.patience)
	d.patience -= d.client.clock.Mono() - began
	found, p, away := l.leave()
	if picked {
		p.leave() // it came at the same time
		d.again(seen, d.lane)
		return true, false
	}
	d.again(seen, found)
	if found == nil {
		return false, away || d.patience <= 0
	}
	if !d.awake(found) {
		p.leave() // it fell asleep in the moment that the place was given
		return false, true
	}
	d.r.place = p
	return d.room(), true
}

// stand waits in line until it is decided, or until a time, or until another channel could be picked whose time has come.
func (d *doing) stand(l *line, seen []bool, until time.Duration) (picked bool) {
	for {
		now := d.client.clock.Mono()
		if d.ripe(seen, now) {
			if d.ask(seen) {
				return true
			}
			l.join(d)
		}
		wakes := l.pass(now, until)
		for i := range d.later {
			if at := d.later[i].at; at > 0 {
				wakes = min(wakes, at)
			}
		}
		if now >= until || !d.pause(l.all, wakes-now) {
			return false
		}
	}
}

// pause waits for a time; false: the wait was decided, or the client left.
func (d *doing) pause(all *waiting, length time.Duration) bool {
	over, stop := d.client.timer(length)
	defer stop()
	ctx, end := d.r.waits(d.r.ctx)
	defer end()
	select {
	case <-over:
		return true
	case <-all.done:
	case <-ctx.Done():
	}
	return false
}

// startTimer is a Client's timer outside of tests.
func startTimer(d time.Duration) (over <-chan time.Time, stop func() bool) {
	t := time.NewTimer(d)
	return t.C, t.Stop
}

// ripens notes that a channel may be asked again when a wait is over.
func (d *doing) ripens(channel string, now, wait time.Duration) {
	for i := range d.later {
		if r := &d.later[i]; r.at == 0 && wait > 0 {
			*r = ripening{channel, now + max(wait, time.Millisecond)}
			return
		}
	}
}

// ripe lets those be asked whose time has come.
func (d *doing) ripe(seen []bool, now time.Duration) (some bool) {
	for i := range d.later {
		r := &d.later[i]
		if r.at == 0 || now < r.at {
			continue
		}
		for _, t := range d.route.tiers {
			for _, m := range t.members {
				if m.Name == r.channel && !slices.Contains(d.r.Attempted, m.Name) {
					seen[m.at], some = false, true
				}
			}
		}
		*r = ripening{}
	}
	return some
}

// again lets every channel be asked that was not tried, but for the one that was found.
func (d *doing) again(seen []bool, found *lane) {
	d.later, d.crowded = [maxLater]ripening{}, d.crowded[:0]
	for _, t := range d.route.tiers {
		for _, m := range t.members {
			seen[m.at] = found != nil && m.Name == found.channel.Name || slices.Contains(d.r.Attempted, m.Name)
		}
	}
}

// line is a request's turns in the queues of lanes.
type line struct {
	all   *waiting
	lanes []*lane
	turns []*waiter
}

// join lines up at the channels that were found crowded.
func (l *line) join(d *doing) {
	for _, full := range d.crowded {
		l.lanes, l.turns = append(l.lanes, full), append(l.turns, full.gate.join(l.all))
	}
	d.crowded = d.crowded[:0]
}

// pass gives what has opened by the time alone, and tells when more will, or until.
func (l *line) pass(now, until time.Duration) time.Duration {
	for _, full := range l.lanes {
		if opens := full.gate.pass(now); opens > 0 {
			until = min(until, opens)
		}
	}
	return until
}

// leave steps out of all queues, and tells which place was got, if any, and whether it was sent away.
func (l *line) leave() (found *lane, p place, away bool) {
	p, away = l.all.outcome()
	for i, full := range l.lanes {
		full.gate.stepOut(l.turns[i])
		if p.gate == &full.gate {
			found = full
		}
	}
	return found, p, away
}

// abandon leaves what is not left yet, and gives a place back.
func (l *line) abandon() {
	_, p, _ := l.leave()
	p.leave()
}
