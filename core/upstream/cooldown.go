package upstream

import (
	"slices"
	"sync"
	"time"
)

const (
	coolFirst  = time.Second     // the first cool-down of a rate limit or a failure, when the channel names none
	coolAuth   = time.Minute     // a credential does not heal by itself
	coolMost   = time.Minute     // no cool-down is longer, whatever the channel asks for
	threshold  = 3               // failures in a row before a channel cools, or a key rests; keys of an org before it does
	probeEvery = 2 * time.Second // a probe without a verdict does not keep the next one waiting longer than this
	coolShift  = 6               // doublings until coolMost is reached from coolFirst
	coolBusy   = 8 * time.Second // no cool-down of a channel that only has too much to do is longer, unless it asks for more
	coolLeast  = 20 * time.Millisecond
	maxFaults  = 8 // keys, and orgs, whose failures are remembered

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
// what it could have done. A 503 that names no wait keeps only its caller away until another gets it. A 429 that
// names none does not cool where there were only too many at once; see gate. Each cool-down starts an epoch; verdicts of
// calls admitted before it are old news and neither lengthen nor end it, so 64 calls that fail together count as one
// failure. Calls that were cut say nothing at all.
//
// Nobody puts a channel to sleep for the others: no key for the other keys of its org, and no org for other orgs, for its
// users make keys as they like, and two of those must not pass for two orgs. What failed after a request was sent can be
// that request's own fault, so a row of failures counts only when more than one org had them. A key rests alone after
// threshold failures of its own, even where others are answered in between: else a broken channel would get each request of
// a sole caller first, and the budget of retries would soon lose most of them. When threshold keys of an org have failed,
// and none of the org was answered in between, the org rests; a key that is known to fail by itself is no news of it. A
// request that breaks channels keeps its sender away, then, and not for long where others are answered; several such
// senders rest each for itself. So does a key rest, or an org with several such keys, whose 429 cooled the channel and who
// gets another while the others are answered: a provider says 429 to a single request that is too large, too.
//
// Where others ask, too, the probe is theirs: whoever caused a cool-down, and whoever failed since its last answer, waits
// yieldFor longer than other orgs, and other keys of its org. When the probe of whoever caused it fails, that neither doubles
// the cool-down nor keeps another org from probing, nor another key where it is the same one.
type health struct {
	mu struct {
		sync.Mutex
		state    state
		class    class // why it cools
		epoch    uint64
		failures int64         // in a row
		org      uint64        // of the latest of them
		several  bool          // they are not all one org's requests' fault
		level    int           // cool-downs in a row
		until    time.Duration // Mono: end of the cool-down; when probing, when the next probe may go
		last     int           // status

		latest  Caller // who asked last
		shared  bool   // more than one org has asked
		divided bool   // more than one key of an org has
		cause   Caller // whose failure began the latest cool-down; zero: not known
		keys    faults
		orgs    faults
	}
}

// faults are what is remembered of some keys, or orgs.
type faults struct {
	any bool // some are
	of  [maxFaults]fault
}

// fault is what is remembered of one key or org, until it is answered.
type fault struct {
	id     uint64        // 0: free, or of whom is not known and never rests
	row    int           // of a key's failures, whoever else is answered; of an org, how many keys failed
	failed time.Duration // Mono of the latest
	own    time.Duration // Mono: it may not try before it, nor before until
	rests  int           // alone and in a row
	class  class         // why it rests
	blamed bool          // it rests, or put the channel to sleep
	// suspect: since then others were answered and it was not, so a 429 may be about its requests alone
	suspect bool
	keys    [threshold]uint64 // of an org, those that row counts
}

// find gives what is remembered of id; nil: nothing is.
func (fs *faults) find(id uint64) *fault {
	for i := range fs.of {
		if !fs.any {
			break
		}
		if f := &fs.of[i]; f.id == id {
			return f
		}
	}
	return nil
}

// blame is where a failure of id is remembered, in place of whoever failed longest ago and does not rest.
func (fs *faults) blame(id uint64, now time.Duration) *fault {
	f := fs.find(id)
	if f == nil {
		f = &fs.of[0]
		for i := range fs.of {
			if o := &fs.of[i]; max(o.failed, o.own) < max(f.failed, f.own) {
				f = o
			}
		}
		*f = fault{id: id}
	}
	fs.any, f.failed = true, now
	return f
}

// heal forgets what there is of id, which was answered, or of all, for 0. Of the others it is known that they failed where
// others succeed, if what was answered was sent since.
func (fs *faults) heal(id uint64, now, sent time.Duration) {
	if !fs.any {
		return
	}
	fs.any = false
	for i := range fs.of {
		f := &fs.of[i]
		if id == 0 || f.id == id || f.id == 0 {
			*f = fault{}
			continue
		}
		fs.any = true
		f.rests, f.suspect = 0, f.suspect || f.blamed && sent >= f.failed
		f.own = min(f.own, now+coolFirst)
	}
}

// acquit forgets what failed, as it is the channel's now, but not the suspects: others were answered meanwhile.
func (fs *faults) acquit() {
	for i := range fs.of {
		if f := &fs.of[i]; !f.suspect {
			*f = fault{}
		}
	}
}

// counts adds a key of an org to those that failed.
func (f *fault) counts(key uint64) {
	if f.row < len(f.keys) && !slices.Contains(f.keys[:f.row], key) {
		f.keys[f.row] = key
		f.row++
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
	probe  bool
	caller Caller
	at     time.Duration // Mono when it was admitted: the time that its verdict is about
}

func (h *health) admit(now time.Duration, caller Caller) (ticket, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if latest := h.mu.latest; latest != caller {
		h.mu.shared = h.mu.shared || latest != Caller{} && latest.Org != caller.Org
		h.mu.divided = h.mu.divided || latest.Org == caller.Org
		h.mu.latest = caller
	}
	if now < h.openLocked(caller) {
		return ticket{}, false
	}
	t := ticket{h.mu.epoch, h.mu.state != up, caller, now}
	if t.probe {
		h.mu.state, h.mu.until = probing, now+probeEvery
		return t, true
	}
	for _, f := range h.faultsLocked(caller) {
		if f != nil && f.own > 0 {
			f.own, t.probe = now+probeEvery, true
		}
	}
	return t, true
}

// faultsLocked are what is remembered of a caller's key and org, each nil where nothing is.
func (h *health) faultsLocked(caller Caller) [2]*fault {
	return [...]*fault{h.mu.keys.find(caller.Key), h.mu.orgs.find(caller.Org)}
}

// openLocked is from when on a caller may try.
func (h *health) openLocked(caller Caller) (at time.Duration) {
	if h.mu.state != up {
		at = h.mu.until
	}
	if h.mu.state == cooling && h.mu.shared && caller.Org != 0 && caller.Org == h.mu.cause.Org {
		at += yieldFor
	}
	both := h.faultsLocked(caller)
	key, org := both[0], both[1]
	if org != nil {
		at = max(at, org.own)
	}
	if key != nil && h.mu.divided && at > 0 {
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
	h.mu.state, h.mu.failures, h.mu.level, h.mu.several = up, 0, 0, false
	h.mu.keys.heal(t.caller.Key, now, t.at)
	h.mu.orgs.heal(t.caller.Org, now, t.at)
}

// verdict is what a failed attempt says about its channel.
type verdict struct {
	class  class
	status int           // 0: there was no answer
	wait   time.Duration // what the channel asked for; 0: nothing
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
	key, org := h.mu.keys.blame(t.caller.Key, now), h.mu.orgs.blame(t.caller.Org, now)
	if key.row < threshold {
		org.counts(key.id)
	}
	suspect := key.suspect || org.suspect && org.row > 1
	if v.crowd && v.wait == 0 && t.epoch == h.mu.epoch && !suspect {
		key.blamed, org.blamed = key.id != 0, org.id != 0
		return known
	}
	h.mu.several = h.mu.several || v.unsent || org.id == 0 || h.mu.failures > 0 && org.id != h.mu.org
	h.mu.failures++
	h.mu.org = org.id
	key.row++
	if t.epoch != h.mu.epoch {
		if v.class.full() && h.mu.state == cooling {
			h.mu.until = max(h.mu.until, now+min(v.wait, coolMost))
		}
		return known
	}
	if h.mu.state != up {
		h.coolLocked(key, org, now, &v)
		return known
	}
	patient, f := v.class == failing || v.status == 403, key
	switch {
	case patient && !h.mu.several:
		v.class = failing // a 403 that one caller gets is about its requests, not about the credential
		if key.row <= threshold && org.row >= threshold {
			f = org
		} else if key.row < threshold {
			return known
		}
	case patient && h.mu.failures < threshold:
		return known
	case v.vague() && !h.mu.several:
		if org.row > 1 {
			f = org
		}
	case v.class.full() && suspect:
		if !key.suspect {
			f = org
		}
	default:
		h.coolLocked(key, org, now, &v)
		return asleep
	}
	f.rest(t, now, &v)
	if f == key && t.probe && org.own > 0 {
		org.own = now // it says nothing about the org
	}
	return alone
}

// rest keeps a key, or an org, from the channel: nobody else has seen it fail.
func (f *fault) rest(t ticket, now time.Duration, v *verdict) {
	if now < f.own && !t.probe {
		return // old news: the call began before the rest
	}
	f.own, f.class, f.blamed = now+v.asks(f.rests), v.class, true
	f.rests++
}

// coolLocked begins a cool-down, for which a key and its org are to blame.
func (h *health) coolLocked(key, org *fault, now time.Duration, v *verdict) {
	alone := h.mu.state != up && org.id != 0 && org.id == h.mu.cause.Org && !v.unsent && v.class != refused
	h.mu.state, h.mu.class = cooling, v.class
	h.mu.epoch++
	if alone {
		f := org
		if key.id == h.mu.cause.Key {
			f = key
		}
		h.mu.until, f.own = now+min(v.wait, coolMost), now+v.asks(h.mu.level-1)
		return
	}
	h.mu.until = now + v.asks(h.mu.level)
	h.mu.level++
	h.mu.cause = Caller{org.id, key.id}
	h.mu.keys.acquit()
	h.mu.orgs.acquit()
	key, org = h.mu.keys.blame(h.mu.cause.Key, now), h.mu.orgs.blame(h.mu.cause.Org, now)
	key.blamed, org.blamed = key.id != 0, org.id != 0
	org.counts(key.id)
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
		for _, f := range h.faultsLocked(t.caller) {
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
		for _, f := range h.faultsLocked(caller) {
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
