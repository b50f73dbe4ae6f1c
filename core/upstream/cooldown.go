package upstream

import (
	"sync"
	"time"
)

const (
	coolFirst  = time.Second     // the first cool-down of a rate limit or a failure, when the channel names none
	coolAuth   = time.Minute     // a credential does not heal by itself
	coolMost   = time.Minute     // no cool-down is longer, whatever the channel asks for
	threshold  = 3               // failures in a row before a channel cools, or one caller rests
	probeEvery = 2 * time.Second // a probe without a verdict does not keep the next one waiting longer than this
	coolShift  = 6               // doublings until coolMost is reached from coolFirst
	coolBusy   = 8 * time.Second // no cool-down of a channel that only has too much to do is longer, unless it asks for more
	coolLeast  = 20 * time.Millisecond
	maxFaults  = 8 // callers whose failures are remembered

	yieldFor = 100 * time.Millisecond // how long after a cool-down the probe is left to others than the caller who caused it
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

// health decides whether a channel may be tried:
//
//	up       everyone may; failures in a row are counted, a success forgets them
//	cooling  nobody may, until the time is over
//	probing  one call may and its verdict decides: up, or cooling for twice as long. A verdict may take minutes (a long
//	         answer), so another probe goes out every probeEvery
//
// 429, 503, 529, 401 and 402 cool at once; other failures and 403 after threshold in a row. A channel that has too much
// to do says how long it wants to be left alone, or is asked again soon: a probe is one request, and a long sleep wastes
// what it could have done. A 503 that names no wait keeps only its caller away until a second one gets it. A 429 that
// names none does not cool where there were only too many at once; see gate. Each cool-down starts an epoch; verdicts of
// calls admitted before it are old news and neither lengthen nor end it, so 64 calls that fail together count as one
// failure. Calls that were cut say nothing at all.
//
// Nobody puts a channel to sleep for the others. A caller is an org: its users make keys as they like, and two of those
// must not pass for two callers. What failed after a request was sent can be that request's own fault, so a row of
// failures counts only when more than one caller had them. A caller rests alone after threshold failures of its own,
// even where others are answered in between: else a broken channel would get each request of a sole caller first, and
// the budget of retries would soon lose most of them. A request that breaks channels keeps its sender away, then, and
// not for long where others are answered; several such senders rest each for itself. So does a caller rest whose 429 cooled the channel and who gets another while
// the others are answered: a provider says 429 to a single request that is too large, too. Where others ask, too,
// whoever caused a cool-down waits yieldFor longer, so that the probe is theirs; and when its own probe fails, that
// neither doubles the cool-down nor keeps another caller from probing.
type health struct {
	mu struct {
		sync.Mutex
		state    state
		class    class // why it cools
		epoch    uint64
		failures int64         // in a row
		caller   uint64        // of the latest of them
		several  bool          // they are not all one caller's requests' fault
		level    int           // cool-downs in a row
		until    time.Duration // Mono: end of the cool-down; when probing, when the next probe may go
		last     int           // status

		latest uint64 // who asked last
		shared bool   // more than one caller has asked
		cause  uint64 // the caller whose failure began the latest cool-down; 0: not known, or healed since
		faults [maxFaults]fault
	}
}

// fault is what is remembered of one caller, until it is answered.
type fault struct {
	caller uint64        // 0: free, or of whom is not known and never rests
	row    int           // of its failures, whoever else is answered
	failed time.Duration // Mono of the latest
	own    time.Duration // Mono: it may not try before it, nor before until
	rests  int           // alone and in a row
	class  class         // why it rests
	blamed bool          // it rests, or put the channel to sleep
	// suspect: since then others were answered and it was not, so a 429 may be about its requests alone
	suspect bool
}

// faultLocked finds what is remembered of a caller; nil: nothing is.
func (h *health) faultLocked(caller uint64) *fault {
	for i := range h.mu.faults {
		if f := &h.mu.faults[i]; f.caller == caller {
			return f
		}
	}
	return nil
}

// blameLocked is where the failures of a caller are remembered, in place of whoever failed longest ago and does not rest.
func (h *health) blameLocked(caller uint64) *fault {
	f := h.faultLocked(caller)
	if f == nil {
		f = &h.mu.faults[0]
		for i := range h.mu.faults {
			if o := &h.mu.faults[i]; max(o.failed, o.own) < max(f.failed, f.own) {
				f = o
			}
		}
		*f = fault{caller: caller}
	}
	return f
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
	probe  bool
	caller uint64
}

func (h *health) admit(now time.Duration, caller uint64) (ticket, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.shared = h.mu.shared || h.mu.latest != 0 && caller != h.mu.latest
	h.mu.latest = caller
	if now < h.openLocked(caller) {
		return ticket{}, false
	}
	if h.mu.state == up {
		f := h.faultLocked(caller)
		probe := f != nil && f.own > 0
		if probe {
			f.own = now + probeEvery
		}
		return ticket{h.mu.epoch, probe, caller}, true
	}
	h.mu.state, h.mu.until = probing, now+probeEvery
	return ticket{h.mu.epoch, true, caller}, true
}

// openLocked is from when on a caller may try.
func (h *health) openLocked(caller uint64) (at time.Duration) {
	if h.mu.state != up {
		at = h.mu.until
	}
	if caller != 0 && caller == h.mu.cause && h.mu.state == cooling && h.mu.shared {
		at += yieldFor
	}
	if f := h.faultLocked(caller); f != nil {
		at = max(at, f.own)
	}
	return at
}

// succeed: the channel answered, be it with a complaint about the request.
func (h *health) succeed(t ticket, now time.Duration, status int, caller uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.last = status
	if t.epoch != h.mu.epoch {
		return
	}
	h.mu.state, h.mu.failures, h.mu.level, h.mu.several = up, 0, 0, false
	if caller == 0 || caller == h.mu.cause {
		h.mu.cause = 0
	}
	for i := range h.mu.faults {
		f := &h.mu.faults[i]
		if caller == 0 || caller == f.caller {
			*f = fault{}
			continue
		}
		f.rests, f.suspect = 0, f.blamed // it failed where others succeed
		f.own = min(f.own, now+coolFirst)
	}
}

// verdict is what a failed attempt says about its channel.
type verdict struct {
	class  class
	status int           // 0: there was no answer
	wait   time.Duration // what the channel asked for; 0: nothing
	caller uint64        // 0: not known
	unsent bool          // nothing of a request was sent: it is no request's fault
	crowd  bool          // a 429 for there being too many at once, as far as the gate can tell
}

// vague tells a 503 without a wait: one caller's requests can bring that about, so the others are kept away by the second
// caller's only.
func (v *verdict) vague() bool { return v.status == 503 && v.wait == 0 }

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
	f := h.blameLocked(v.caller)
	f.failed = now
	if v.crowd && v.wait == 0 && t.epoch == h.mu.epoch && !f.suspect {
		f.blamed = v.caller != 0
		return known
	}
	h.mu.several = h.mu.several || v.unsent || v.caller == 0 || h.mu.failures > 0 && v.caller != h.mu.caller
	h.mu.failures++
	h.mu.caller = v.caller
	f.row++
	if t.epoch != h.mu.epoch {
		if v.class.full() && h.mu.state == cooling {
			h.mu.until = max(h.mu.until, now+min(v.wait, coolMost))
		}
		return known
	}
	patient := v.class == failing || v.status == 403
	switch {
	case h.mu.state != up:
		h.coolLocked(f, now, &v)
		return known
	case patient && f.row >= threshold && !h.mu.several:
		v.class = failing // a 403 that one caller gets is about its requests, not about the credential
	case patient && h.mu.failures < threshold:
		return known
	case v.vague() && !h.mu.several:
	case v.class.full() && f.suspect:
	default:
		h.coolLocked(f, now, &v)
		return asleep
	}
	f.rest(t, now, &v)
	return alone
}

// rest keeps one caller from the channel: nobody else has seen it fail.
func (f *fault) rest(t ticket, now time.Duration, v *verdict) {
	if now < f.own && !t.probe {
		return // old news: the call began before the rest
	}
	f.own, f.class, f.blamed = now+v.asks(f.rests), v.class, true
	f.rests++
}

// coolLocked begins a cool-down, for which f is to blame.
func (h *health) coolLocked(f *fault, now time.Duration, v *verdict) {
	alone := h.mu.state != up && v.caller != 0 && v.caller == h.mu.cause && !v.unsent && v.class != refused
	h.mu.state, h.mu.class = cooling, v.class
	h.mu.epoch++
	if alone {
		h.mu.until, f.own = now+min(v.wait, coolMost), now+v.asks(h.mu.level-1)
		return
	}
	h.mu.until = now + v.asks(h.mu.level)
	h.mu.level++
	h.mu.cause = v.caller
	h.mu.faults = [maxFaults]fault{{caller: v.caller, failed: now, blamed: v.caller != 0}} // it is the channel's now
}

// forget: the attempt ended for reasons of ours. A probe that was cut leaves the next call to probe.
func (h *health) forget(t ticket, now time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !t.probe || t.epoch != h.mu.epoch:
	case h.mu.state == probing:
		h.mu.state, h.mu.until = cooling, now
	case h.mu.state == up:
		if f := h.faultLocked(t.caller); f != nil {
			f.own = now
		}
	}
}

// sleeps tells how long a caller is not to try the channel, and why; 0 when it may.
func (h *health) sleeps(now time.Duration, caller uint64) (time.Duration, class) {
	h.mu.Lock()
	defer h.mu.Unlock()
	wait := max(h.openLocked(caller)-now, 0)
	switch f := h.faultLocked(caller); {
	case h.mu.state == up && f != nil:
		return wait, f.class
	case h.mu.state == up:
		return wait, failing
	case h.mu.state == probing:
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
