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

// enters counts a queue more.
func (w *waiting) enters() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.queues++
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

// outcome is how it was decided, which nobody does any more.
func (w *waiting) outcome() (p place, away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.over = true
	return w.mu.place, w.mu.away
}

// next picks the channel to try; nil: there is none left. It has been admitted when it is returned. When those that are
// awake have no place left, it waits for the first place on any of them; when one of them falls asleep or is out of service
// meanwhile, and when it has waited in vain, it asks all of them again.
func (d *doing) next(seen []bool) *Channel {
	for {
		for _, t := range d.route.tiers {
			if t.pick(seen, d.client.flying, d.admit) != nil {
				return d.channel
			}
		}
		if len(d.crowded) == 0 || d.patience <= 0 {
			d.roomless = d.roomless || len(d.crowded) > 0
			return nil
		}
		l, away := d.queue()
		d.again(seen, l)
		switch {
		case l != nil && d.awake(l):
			return d.channel
		case l != nil || away || d.patience <= 0:
			d.r.place.leave()
		default: // the queues are full, or the client left
			d.roomless = true
			return nil
		}
	}
}

// queue waits for a place on any of the crowded channels, as long as is left of what one waits in all; nil: in vain.
func (d *doing) queue() (found *lane, away bool) {
	began := d.client.clock.Mono()
	all := newWaiting(d.req.Caller, len(d.crowded))
	turns := make([]*waiter, len(d.crowded))
	for i, l := range d.crowded {
		turns[i] = l.gate.join(all)
	}
	all.quits()
	timer := time.NewTimer(d.patience)
	defer timer.Stop()
	select {
	case <-all.done:
	case <-timer.C:
	case <-d.r.ctx.Done():
	}
	d.r.place, away = all.outcome()
	for i, l := range d.crowded {
		l.gate.stepOut(turns[i])
		if d.r.place.gate == &l.gate {
			found = l
		}
	}
	d.crowded = d.crowded[:0]
	d.patience -= d.client.clock.Mono() - began
	return found, away
}

// again lets every channel be asked that was not tried, but for the one whose place was waited for.
func (d *doing) again(seen []bool, found *lane) {
	for _, t := range d.route.tiers {
		for _, m := range t.members {
			seen[m.at] = found != nil && m.Name == found.channel.Name || slices.Contains(d.r.Attempted, m.Name)
		}
	}
}
