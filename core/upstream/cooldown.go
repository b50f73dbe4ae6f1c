package upstream

import (
	"sync"
	"time"
)

const (
	coolFirst  = time.Second     // the first cool-down of a rate limit or a failure, when the channel names none
	coolAuth   = time.Minute     // a credential does not heal by itself
	coolMost   = time.Minute     // no cool-down is longer, whatever the channel asks for
	threshold  = 3               // failures in a row before a channel cools, or a key rests; keys of an org before it does
	outage     = 12              // failures in a row, of anybody, that even keys that were good take for the channel's
	probeEvery = 2 * time.Second // a probe without a verdict does not keep the next one waiting longer than this
	coolShift  = 6               // doublings until coolMost is reached from coolFirst
	coolBusy   = 8 * time.Second // no cool-down of a channel that only has too much to do is longer, unless it asks for more
	coolLeast  = 20 * time.Millisecond

	yieldFor = 100 * time.Millisecond // how long after a cool-down the probe is left to others than those who failed
)

// class is why an attempt brought nothing to relay.
type class uint8

const (
	failing class = iota // connect error, reset, timeout, 5xx, an answer that is none
	limited              // 429
	busy                 // 503, 529: it has too much to do
	refused              // 401, 402, 403, 407: the credential, or the account behind it
)

// full tells a channel that works, but has no room for more.
func (c class) full() bool { return c == limited || c == busy }

// health decides who may try a channel, and when. The channel is
//
//	up       everyone may who does not rest
//	cooling  nobody may, until the time is over
//	probing  one call may, and its verdict decides: up, or cooling for twice as long. A verdict may take minutes (a long
//	         answer), so another probe goes out every probeEvery
//
// What an attempt's end does:
//
//	an answer            the channel is up, and its failures are forgotten; so are its key's and its org's
//	429 among many       nothing here, where it names no wait: there were too many at once; see gate
//	429, 529, 503        the channel cools at once: for the wait that it names, else for 1 s; the next probes that fail
//	                     double that, to 8 s. A probe is one request, and a long sleep wastes what it could have done
//	401, 402, 407        the channel cools at once, for a minute
//	503 without a wait,  can be its own request's fault. While one org alone has them, they are its key's: it rests, after
//	403, 5xx, no answer  threshold of them in a row (503: at once). When another org has them, too, they are the channel's: it
//	                     cools, after threshold in a row (503: at once), for 1 s, 2 s, ... a minute
//	it was not sent      (no connection) is no request's fault: threshold in a row are the channel's
//	it was cut           nothing
//
// Nobody puts a channel to sleep for others: no key for the rest of its org, and no org for other orgs, for its users make
// keys as they like, and two of those must not pass for two orgs. Hence who rests:
//
//   - A key, after failures of its own, even where others are answered in between: else a broken channel would get each
//     request of a sole caller first, and the budget of retries would soon lose most of them. Each rest in a row is twice as
//     long; where others are answered, 1 s at most. Then one request of it is its probe.
//   - An org, when threshold of its keys (503: two) have failed. That binds its keys that are not good. A good one was answered,
//     and has failed fewer than threshold times since: it does not count among those that failed, nor does its answer end
//     the rest, as it says nothing of the others; an answer to any other key does. So a good key is not taken along, however
//     many others fail, and one request a second of all those gets through, whatever keys they have. A key that is known to
//     fail is no news of its org when it tries again.
//   - A suspect, whose 429, 529 or 503 cooled the channel, and who gets another though others were answered that were sent
//     since: a provider says 429 to a single request that is too large, too. It is a key; or an org, when several of its keys
//     that are not good fail. Beside such an org's others, and where there are other orgs, a good key's 429 is its own.
//
// After outage failures in a row without an answer to anyone it is nobody's own: there are no suspects, and of the good keys of
// an org that rests only those try that have not failed since they were answered, so that an outage costs each at most one
// request where there is one org alone.
//
// Where others ask, too, the probe is theirs: whose failure, or whose org's, is the latest news of it waits yieldFor longer. When
// the probe of whoever is to blame for a cool-down fails, that neither doubles it nor keeps others from probing; it keeps its key
// away, or all of its org if it is another key's.
//
// A verdict is about the time when its request was sent. Each cool-down starts an epoch, and verdicts of calls admitted
// before it change nothing (but for a longer wait that they name), so 64 calls that fail together are one failure.
type health struct {
	mu struct {
		sync.Mutex
		state    state
		class    class // why it cools
		epoch    uint64
		failures int64         // in a row, but for probes of those who rest
		org      uint64        // of the latest of them
		several  bool          // they are not all one org's requests' fault
		level    int           // cool-downs in a row
		until    time.Duration // Mono: end of the cool-down; when probing, when the next probe may go
		last     int           // status
		keys     faults
		orgs     faults
		good     good
	}
}

type state uint8

const (
	up state = iota
	cooling
	probing
)

// ticket is the right to one attempt; exactly one of succeed, fail, forget gets it back.
type ticket struct {
	epoch  uint64
	probe  bool // of the channel
	own    bool // of who has rested
	caller Caller
	at     time.Duration // Mono when it was admitted: the time that its verdict is about
}

func (h *health) admit(now time.Duration, caller Caller) (ticket, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.keys.asks(caller.Key)
	h.mu.orgs.asks(caller.Org)
	t := ticket{epoch: h.mu.epoch, probe: h.mu.state != up, caller: caller, at: now}
	switch {
	case !t.probe && !h.mu.keys.any && !h.mu.orgs.any:
		return t, true
	case now < h.openLocked(caller):
		return ticket{}, false
	case t.probe:
		h.mu.state, h.mu.until = probing, now+probeEvery
		return t, true
	}
	for _, f := range h.boundLocked(caller) {
		if f != nil && f.own > 0 {
			f.own, t.own = now+probeEvery, true
		}
	}
	return t, true
}

// goodLocked tells a key that its org's failures do not bind.
func (h *health) goodLocked(key uint64) bool {
	left := h.mu.good.left(key)
	return left == threshold || left > 0 && h.mu.failures < outage
}

// boundLocked are the faults that bind a caller, of its key and of its org; each nil where there is none.
func (h *health) boundLocked(caller Caller) (both [2]*fault) {
	both[0] = h.mu.keys.find(caller.Key)
	if f := h.mu.orgs.find(caller.Org); f != nil && (h.mu.state != up || !h.goodLocked(caller.Key)) {
		both[1] = f
	}
	return both
}

// openLocked is from when on a caller may try.
func (h *health) openLocked(caller Caller) (at time.Duration) {
	both := h.boundLocked(caller)
	key, org := both[0], both[1]
	yields := h.mu.keys.many && key.recent()
	if h.mu.state != up {
		at = h.mu.until
		yields = yields || h.mu.orgs.many && org.recent()
	}
	if org != nil {
		at = max(at, org.own)
	}
	if yields && at > 0 {
		at += yieldFor
	}
	if key != nil {
		at = max(at, key.own)
	}
	return at
}

// succeed: the channel answered, be it with a complaint about the request.
func (h *health) succeed(t ticket, now time.Duration, status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.last = status
	if t.epoch != h.mu.epoch {
		return
	}
	if h.mu.keys.any || h.mu.orgs.any {
		h.healLocked(t, now)
	}
	h.mu.good.answered(t.caller.Key)
	h.mu.state, h.mu.failures, h.mu.level, h.mu.several = up, 0, 0, false
}

// healLocked forgets what is known of a key that was answered, and of its org, unless that is about others and the key was good.
func (h *health) healLocked(t ticket, now time.Duration) {
	org := t.caller.Org
	if f := h.mu.orgs.find(org); f != nil && f.row > 0 && h.mu.good.left(t.caller.Key) > 0 {
		org = nobody
	}
	h.mu.orgs.heal(org, t.at, now)
	h.mu.keys.heal(t.caller.Key, t.at, now)
}

// verdict is what a failed attempt says about its channel.
type verdict struct {
	class  class
	status int           // 0: there was no answer
	wait   time.Duration // what the channel asked for; 0: nothing
	unsent bool          // nothing of a request was sent: it is no request's fault
	crowd  bool          // a 429 for there being too many at once, as far as the gate can tell
}

// doubt is how many failures of one key, and how many failing keys of an org, it takes until it is clear whose fault it is, where it
// can be a request's; 0: it is the channel's at once.
func (v *verdict) doubt() (failures, keys int) {
	switch {
	case v.class == failing || v.status == 403:
		return threshold, threshold
	case v.status == 503 && v.wait == 0:
		return 1, 2
	}
	return 0, 0
}

// asks is how long a channel wants to be left alone after a number of failures in a row.
func (v *verdict) asks(level int) time.Duration {
	level = min(max(level, 0), coolShift)
	switch {
	case v.class == refused:
		return coolAuth
	case !v.class.full():
		return min(max(coolFirst<<level, v.wait), coolMost)
	case v.wait > 0 && level == 0:
		return min(max(v.wait, coolLeast), coolMost)
	case v.wait > 0:
		level-- // its own word was not enough
	}
	return min(max(min(coolFirst<<level, coolBusy), v.wait), coolMost)
}

// upshot is what a failure means for how much the channel is asked.
type upshot uint8

const (
	known  upshot = iota // nothing that was not known before, or nothing yet
	asleep               // the channel was up and falls asleep
	alone                // it is the caller's own
)

// fail: no answer to relay.
func (h *health) fail(t ticket, now time.Duration, v verdict) upshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.last = v.status
	if t.epoch != h.mu.epoch {
		if v.class.full() && h.mu.state == cooling {
			h.mu.until = max(h.mu.until, now+min(v.wait, coolMost))
		}
		return known
	}
	b := h.blameLocked(t.caller, now)
	if v.crowd && v.wait == 0 && h.suspectLocked(&b) == nil {
		b.key.accuse()
		b.org.accuse()
		return known
	}
	h.countLocked(t, &v)
	if h.mu.state != up {
		h.coolLocked(b, now, &v)
		return known
	}
	f, sure := h.whoseLocked(b, &v)
	switch {
	case !sure:
		return known
	case f == nil:
		h.coolLocked(b, now, &v)
		return asleep
	case v.class == refused:
		v.class = failing // it is about requests, not about the credential
	}
	f.rest(t, now, &v)
	if f == b.key && t.own && b.org.own > 0 {
		b.org.own = now // it says nothing about the org
	}
	return alone
}

// blame is who failed.
type blame struct {
	key, org *fault
	good     bool // the key was, so what is known of its org says nothing about it
}

// suspectLocked gives who gets a 429 alone, if that is so: a key, a good key beside suspect ones of its org, or an org of which
// several keys fail; else nil.
func (h *health) suspectLocked(b *blame) *fault {
	switch {
	case h.mu.failures >= outage:
	case b.key.suspect || b.org.suspect && b.good && h.mu.orgs.many:
		return b.key
	case b.org.suspect && b.org.row > 1 && !b.good:
		return b.org
	}
	return nil
}

// blameLocked notes a failure of a key, and of its org if it is that key's first in a row and the key is not good.
func (h *health) blameLocked(c Caller, now time.Duration) blame {
	b := blame{h.mu.keys.blame(c.Key, now), h.mu.orgs.blame(c.Org, now), h.goodLocked(c.Key)}
	if b.key.row++; b.key.row == 1 && !b.good {
		b.org.row++
	}
	h.mu.good.failed(c.Key)
	return b
}

// countLocked adds a failure to the channel's row.
func (h *health) countLocked(t ticket, v *verdict) {
	if t.own && !v.unsent {
		return // it is known to fail
	}
	org := t.caller.Org
	h.mu.several = h.mu.several || v.unsent || org == 0 || h.mu.failures > 0 && org != h.mu.org
	h.mu.failures++
	h.mu.org = org
}

// whoseLocked tells whose failure it is that comes while the channel is up, if that is sure: a key's, an org's or, for nil,
// the channel's.
func (h *health) whoseLocked(b blame, v *verdict) (f *fault, sure bool) {
	failures, keys := v.doubt()
	switch {
	case h.mu.several && h.mu.failures < int64(failures):
		return nil, false
	case (h.mu.several || failures == 0) && v.class.full():
		return h.suspectLocked(&b), true
	case h.mu.several || failures == 0:
		return nil, true
	case b.key.row <= failures && b.org.row >= keys && !b.good:
		return b.org, true
	}
	return b.key, b.key.row >= failures
}

// coolLocked begins a cool-down, for which a key and its org are to blame.
func (h *health) coolLocked(b blame, now time.Duration, v *verdict) {
	again := h.mu.state != up && b.org.blamed && b.org.recent() && !v.unsent && v.class != refused
	h.mu.state, h.mu.class = cooling, v.class
	h.mu.epoch++
	if again {
		f := b.org
		if b.key.blamed {
			f = b.key
		}
		h.mu.until, f.own = now+min(v.wait, coolMost), now+v.asks(h.mu.level-1)
		return
	}
	h.mu.until = now + v.asks(h.mu.level)
	h.mu.level++
	key, org := b.key.id, b.org.id
	h.mu.keys.acquit()
	h.mu.orgs.acquit()
	b.key, b.org = h.mu.keys.blame(key, now), h.mu.orgs.blame(org, now)
	b.key.row = max(b.key.row, 1)
	if !b.good {
		b.org.row = max(b.org.row, 1)
	}
	for _, f := range [...]*fault{b.key, b.org} {
		f.accuse()
		f.suspect = false // until others are answered
	}
}

// forget: the attempt ended for reasons of ours. A probe that was cut leaves the next call to probe.
func (h *health) forget(t ticket, now time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case t.epoch != h.mu.epoch:
	case t.probe && h.mu.state == probing:
		h.mu.state, h.mu.until = cooling, now
	case t.own:
		for _, f := range h.boundLocked(t.caller) {
			if f != nil && f.own > 0 {
				f.own = now
			}
		}
	}
}

// sleeps tells how long a caller is not to try the channel, and why; 0 when it may.
func (h *health) sleeps(now time.Duration, caller Caller) (time.Duration, class) {
	h.mu.Lock()
	defer h.mu.Unlock()
	wait := max(h.openLocked(caller)-now, 0)
	switch h.mu.state {
	case up:
		why, latest := failing, time.Duration(0)
		for _, f := range h.boundLocked(caller) {
			if f != nil && f.own > latest {
				why, latest = f.class, f.own
			}
		}
		return wait, why
	case probing:
		wait = min(wait, coolFirst) // a verdict may come any time
	}
	return max(wait, time.Millisecond), h.mu.class
}

func (h *health) report(name string, now time.Duration) Health {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := Health{Channel: name, State: [...]string{"up", "cooling", "probing"}[h.mu.state], Failures: h.mu.failures, LastStatus: h.mu.last}
	if h.mu.state == cooling {
		r.UntilMS = ceilMS(max(h.mu.until-now, 0))
	}
	return r
}

func ceilMS(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
