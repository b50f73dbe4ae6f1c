package upstream

import (
	"sync"
	"time"
)

const (
	coolFirst  = time.Second     // the first cool-down of a rate limit or a failure, when the channel names none
	coolAuth   = time.Minute     // a credential does not heal by itself
	coolMost   = time.Minute     // no cool-down is longer, whatever the channel asks for
	threshold  = 3               // failures in a row before a channel cools
	probeEvery = 2 * time.Second // a probe without a verdict does not keep the next one waiting longer than this
	coolShift  = 6               // doublings until coolMost is reached from coolFirst
)

// class is why an attempt brought nothing to relay.
type class uint8

const (
	failing class = iota // connect error, reset, timeout, 5xx, an answer that is none
	limited              // 429
	refused              // 401, 402, 403, 407: the credential, or the account behind it
)

// health decides whether a channel may be tried:
//
//	up       everyone may; failures in a row are counted, a success forgets them
//	cooling  nobody may, until the time is over
//	probing  one call may and its verdict decides: up, or cooling for twice as long. A verdict may take minutes (a long
//	         answer), so another probe goes out every probeEvery
//
// 429, 401 and 402 cool at once; failures and 403 after threshold in a row. A 5xx or 403 can be a request's own fault, so
// a row of them counts only when more than one caller got them: nobody puts a channel to sleep for the others. Each
// cool-down starts an epoch; verdicts of calls admitted before it are old news and neither lengthen nor end it, so 64
// calls that fail together count as one failure. Calls that were cut say nothing at all.
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
	epoch uint64
	probe bool
}

func (h *health) admit(now time.Duration) (ticket, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.state == up {
		return ticket{epoch: h.mu.epoch}, true
	}
	if now < h.mu.until {
		return ticket{}, false
	}
	h.mu.state, h.mu.until = probing, now+probeEvery
	return ticket{h.mu.epoch, true}, true
}

// succeed: the channel answered, be it with a complaint about the request.
func (h *health) succeed(t ticket, status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.last = status
	if t.epoch == h.mu.epoch {
		h.mu.state, h.mu.failures, h.mu.level, h.mu.several = up, 0, 0, false
	}
}

// verdict is what a failed attempt says about its channel.
type verdict struct {
	class  class
	status int           // 0: there was no answer
	wait   time.Duration // what the channel asked for; 0: nothing
	caller uint64        // 0: not known
}

// fail: no answer to relay.
func (h *health) fail(t ticket, now time.Duration, v verdict) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.last = v.status
	h.mu.several = h.mu.several || v.status == 0 || v.caller == 0 || h.mu.failures > 0 && v.caller != h.mu.caller
	h.mu.failures++
	h.mu.caller = v.caller
	if t.epoch != h.mu.epoch {
		if v.class == limited && h.mu.state == cooling {
			h.mu.until = max(h.mu.until, now+min(v.wait, coolMost))
		}
		return
	}
	patient := v.class == failing || v.status == 403
	if h.mu.state == up && patient && (h.mu.failures < threshold || !h.mu.several) {
		return
	}
	first := coolFirst
	if v.class == refused {
		first = coolAuth
	}
	sleep := min(max(first<<min(h.mu.level, coolShift), v.wait), coolMost)
	h.mu.level++
	h.mu.epoch++
	h.mu.state, h.mu.class, h.mu.until = cooling, v.class, now+sleep
}

// forget: the attempt ended for reasons of ours. A probe that was cut leaves the next call to probe.
func (h *health) forget(t ticket, now time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.probe && t.epoch == h.mu.epoch && h.mu.state == probing {
		h.mu.state, h.mu.until = cooling, now
	}
}

// sleeps tells how long the channel is not to be tried, and why; 0 when it is up.
func (h *health) sleeps(now time.Duration) (time.Duration, class) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.state == up {
		return 0, failing
	}
	return max(h.mu.until-now, time.Millisecond), h.mu.class
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
