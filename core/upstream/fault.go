package upstream

import "time"

const (
	nobody    = ^uint64(0)
	maxFaults = 8   // keys, and orgs, whose failures are remembered
	goodKeys  = 128 // that are remembered; more than those take each other's place
)

// fault is what is remembered of one key or org that failed, until it is answered.
type fault struct {
	id      uint64        // 0: free, or of whom is not known and never rests
	row     int           // of a key: its failures in a row. Of an org: its keys that are not good and failed, in a row
	failed  time.Duration // Mono of the latest
	own     time.Duration // Mono: it may not try before it, nor before the channel may be tried; 0: it does not rest
	rests   int           // in a row
	class   class         // why it rests
	blamed  bool          // it rests, or put the channel to sleep
	suspect bool          // and others were answered that were sent since, so a 429 may be about its requests alone
}

// faults are what is remembered of some keys, or orgs. Not safe for concurrent use.
type faults struct {
	any    bool   // some are
	many   bool   // more than one has asked
	latest uint64 // who asked last
	of     [maxFaults]fault
}

// asks notes who asks.
func (fs *faults) asks(id uint64) {
	if fs.latest != id {
		fs.many = fs.many || fs.latest != 0
		fs.latest = id
	}
}

// find gives what is remembered of id; nil: nothing is.
func (fs *faults) find(id uint64) *fault {
	if !fs.any {
		return nil
	}
	for i := range fs.of {
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
func (fs *faults) heal(id uint64, sent, now time.Duration) {
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

// recent tells who failed, and not while others are answered.
func (f *fault) recent() bool { return f != nil && !f.suspect }

// accuse says that a failure was its own, or the reason for a cool-down.
func (f *fault) accuse() { f.blamed = f.id != 0 }

// rest keeps a key, or an org's keys that are not good, from the channel.
func (f *fault) rest(t ticket, now time.Duration, v *verdict) {
	if now < f.own && !t.own {
		return // old news: the call began before the rest
	}
	f.own, f.class = now+v.asks(f.rests), v.class
	f.accuse()
	f.rests++
}

// good are the keys that were answered lately and have failed fewer than threshold times since. The zero value has none.
type good [goodKeys]struct {
	key  uint64
	left uint8 // failures until it is not good any more
}

// left is how often a key may fail and be good still; 0: it is not.
func (g *good) left(key uint64) uint8 {
	if at := &g[key%goodKeys]; at.key == key {
		return at.left
	}
	return 0
}

// answered makes a key good, unless 0.
func (g *good) answered(key uint64) {
	at := &g[key%goodKeys]
	if at.key, at.left = key, threshold; key == 0 {
		at.left = 0
	}
}

func (g *good) failed(key uint64) {
	if g.left(key) > 0 {
		g[key%goodKeys].left--
	}
}
