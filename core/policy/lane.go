package policy

import (
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// lane is one owner's place in the host. All that is in force there is one fork behind one pointer.
type lane struct {
	owner Owner
	cur   atomic.Pointer[fork]
	used  atomic.Uint64 // Host.epoch at a late call
	asked atomic.Bool   // stands in Host.mu.cold
	past  record        // under Host.mu
}

// fork is a plan in force: immutable but for its counters.
type fork struct {
	plan      Plan
	want      [2]*recipe // of active and candidate
	good      *recipe    // what an automatic rollback goes to
	active    *generation
	candidate *generation
	percent   uint64   // of the keys that the candidate decides for
	tally     *tally   // of the candidate, or of the last one
	ended     []*tally // of candidates of other modules, newest first

	cold  chan struct{} // not nil: the instances are yet to be made; closed when another fork is in force
	retry time.Duration // cold: making them failed, to be tried again then
}

func (k *fork) uses(g *generation) bool { return g == k.active || g == k.candidate }

func (k *fork) bound() bool { return k.want[0] != nil || k.want[1] != nil }

// record sums up what an active binding did in generations that are gone.
type record struct {
	of                                *recipe
	calls, abstained, clamped, faults uint64
	fired                             []ReasonCount
	others                            uint64 // firings beside those
}

func (r *record) add(g *generation) {
	if !r.of.same(g.recipe) {
		*r = record{of: g.recipe}
	}
	var s Stats
	s.add(g)
	r.calls, r.abstained = r.calls+s.Calls, r.abstained+s.Abstained
	r.clamped, r.faults = r.clamped+s.Clamped+g.clamped.Load(), r.faults+g.faulted.Load()
	r.others += g.fired.others.Load()
	r.fired = addReasons(r.fired, g.fired.list(), &r.others)
}

// directory finds an org's lane without a lock. Writers have the turn and copy a 256th of it.
type directory struct {
	n      atomic.Int64
	shards [256]atomic.Pointer[map[Owner]*lane]
}

func (d *directory) shard(o Owner) *atomic.Pointer[map[Owner]*lane] {
	return &d.shards[mix(uint64(o))%uint64(len(d.shards))]
}

func (d *directory) get(o Owner) *lane {
	if m := d.shard(o).Load(); m != nil {
		return (*m)[o]
	}
	return nil
}

// set puts l (nil: nothing) in o's place.
func (d *directory) set(o Owner, l *lane) {
	s, next := d.shard(o), map[Owner]*lane{}
	if m := s.Load(); m != nil {
		for k, v := range *m {
			next[k] = v
		}
	}
	before := len(next)
	if l != nil {
		next[o] = l
	} else {
		delete(next, o)
	}
	s.Store(&next)
	d.n.Add(int64(len(next) - before))
}

func (d *directory) all() (out []*lane) {
	for i := range d.shards {
		if m := d.shards[i].Load(); m != nil {
			for _, l := range *m {
				out = append(out, l)
			}
		}
	}
	return out
}

// mix spreads a number over all 64 bits (splitmix64's finaliser).
func mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// instantiate makes k's generations, taking over those of old that decide alike. REQUIRES: the turn.
func (h *Host) instantiate(ctx context.Context, l *lane, k, old *fork) (err error) {
	there := []*generation{old.active, old.candidate}
	if old.active != nil {
		there = append(there, old.active.prev.Load())
	}
	take := func(r *recipe) (*generation, error) {
		for _, g := range there {
			if g != nil && g.recipe.same(r) && !g.quarantined.Load() && !k.uses(g) {
				return g, nil
			}
		}
		if r == nil {
			return nil, nil
		}
		return h.generate(ctx, l, r)
	}
	if k.active, err = take(k.want[0]); err != nil {
		return err
	}
	if k.candidate, err = take(k.want[1]); err != nil && k.active != nil && !slices.Contains(there, k.active) {
		h.retire(k.active)
	}
	return err
}

// put sets k in force and retires what it replaces, except the one generation that the active one may fall back to.
// The order matters: a call that finds every slot of its generation dead looks at the lane again. REQUIRES: the turn.
func (h *Host) put(l *lane, k *fork) {
	old := l.cur.Load()
	if a, b := old.active, k.active; a != nil && b != nil && a != b && b.prev.Load() == nil &&
		b.binding.OnError == OnErrorLastGood && a.Name == b.Name && !a.quarantined.Load() {
		b.prev.Store(a)
	}
	l.cur.Store(k)
	h.count.swaps.Add(1)
	if old.cold != nil {
		close(old.cold)
	}
	for _, g := range [...]*generation{old.active, old.candidate} {
		if g == nil || k.uses(g) {
			continue
		}
		if older := g.prev.Swap(nil); older != nil && !k.uses(older) {
			h.retire(older)
		}
		if k.active == nil || k.active.prev.Load() != g {
			h.retire(g)
		}
	}
}
