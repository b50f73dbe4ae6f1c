package policy

import (
	"context"
	"fmt"
	"time"
)

// The orgs' instances.
const (
	defaultTenantBytes = 256 << 20
	// coldWait is how long a call waits for its org's instances before it takes the binding's on_error. Making them
	// takes a fraction of a millisecond; only this org's own calls wait.
	coldWait = 20 * time.Millisecond
	// slowBuild is work after which the keeper rests as long as it worked: an org whose module starts slowly and who
	// is pushed out again and again must not take a core.
	slowBuild = 5 * time.Millisecond
)

func (h *Host) wakeKeeper() {
	select {
	case h.work <- struct{}{}:
	default:
	}
}

// keeper does what calls have found to be necessary, off their path: it replaces what failed too often, makes the
// instances of orgs that call, and frees those that have not called for longest. Close waits for it.
func (h *Host) keeper() {
	for {
		select {
		case <-h.life.Done():
			return
		case <-h.work:
		}
		for h.life.Err() == nil {
			began := h.o.Clock.Mono()
			if !h.keep() {
				break
			}
			if worked := h.o.Clock.Mono() - began; worked > slowBuild {
				rest := time.NewTimer(worked)
				select {
				case <-h.life.Done():
					rest.Stop()
				case <-rest.C:
				}
			}
		}
	}
}

// keep does one thing; false: there was nothing to do.
func (h *Host) keep() bool {
	h.mu.Lock()
	var (
		failed *generation
		cold   *lane
	)
	switch {
	case len(h.mu.failed) > 0:
		failed, h.mu.failed = h.mu.failed[0], h.mu.failed[1:]
	case len(h.mu.cold) > 0:
		cold, h.mu.cold = h.mu.cold[0], h.mu.cold[1:]
	}
	h.mu.Unlock()
	ctx, finish, err := h.begin(h.life, h.turn)
	if err != nil {
		return false
	}
	defer finish()
	switch {
	case failed != nil:
		h.recover(ctx, failed)
	case cold != nil:
		h.warm(ctx, cold)
	default:
		return h.evict(nil)
	}
	h.evict(cold)
	return true
}

// failed queues a generation that has just been quarantined; once in its life.
func (h *Host) failed(g *generation) {
	h.count.quarantines.Add(1)
	h.mu.Lock()
	h.mu.failed = append(h.mu.failed, g)
	h.mu.Unlock()
	h.wakeKeeper()
}

// recover replaces what was quarantined: an active binding by the one before it, a candidate by nothing. REQUIRES:
// the turn.
func (h *Host) recover(ctx context.Context, g *generation) {
	l := g.lane
	k := l.cur.Load()
	if !k.uses(g) {
		return // a plan has replaced it meanwhile
	}
	next := &fork{plan: k.plan, want: k.want, good: k.good, percent: k.percent}
	if g == k.candidate {
		next.plan.Candidate, next.plan.Stage, next.plan.Percent = nil, "", 0
		next.want[1], next.percent = nil, 0
	} else if k.good != nil {
		next.want[0], next.plan.Active = k.good, &k.good.binding
		next.keep(nil)
	} else {
		h.tell(g, k, nil, "; nothing is there to go back to")
		return
	}
	next.begin(h, k)
	if err := h.instantiate(ctx, l, next, k); err != nil {
		h.tell(g, k, nil, fmt.Sprintf("; the one before could not be started: %v", err))
		return
	}
	h.put(l, next)
	if g == k.candidate {
		h.count.drops.Add(1)
	} else {
		h.count.rollbacks.Add(1)
	}
	h.tell(g, next, next.plan.Active, "")
}

// tell reports what became of g.
func (h *Host) tell(g *generation, k *fork, to *Binding, why string) {
	g.faults.Lock()
	s := g.faults.sentence
	g.faults.Unlock()
	e := Event{Owner: g.lane.owner, Binding: g.binding, To: to, Faults: s.faults, Calls: s.calls, AtMS: h.o.Clock.Wall().UnixMilli(), Plan: k.plan,
		Reason: fmt.Sprintf("%d faults in %d calls within %v, the last one %s%s", s.faults, s.calls, quarantineSpan, s.last, why)}
	now := "native defaults" // a candidate was dropped, and nothing is active
	switch {
	case to != nil:
		now = to.Module + "@" + to.Version()
	case k.uses(g):
		now = "on_error " + string(g.binding.OnError)
	}
	h.o.Log.Error("policy quarantined", "owner", e.Owner.String(), "module", g.Name, "version", g.version, "reason", e.Reason, "decides_now", now)
	select {
	case h.events <- e:
	default:
		h.count.eventsDropped.Add(1)
	}
}

// await asks for the instances of a cold fork and waits a little; false: they are not there.
func (h *Host) await(l *lane, k *fork) bool {
	if k.retry > 0 && h.o.Clock.Mono() < k.retry {
		return false
	}
	if l.asked.CompareAndSwap(false, true) {
		h.mu.Lock()
		h.mu.cold = append(h.mu.cold, l)
		h.mu.Unlock()
		h.wakeKeeper()
	}
	wait := time.NewTimer(coldWait)
	defer wait.Stop()
	select {
	case <-k.cold:
		return true
	case <-wait.C:
	case <-h.life.Done():
	}
	return false
}

// warm makes the instances of an org. REQUIRES: the turn.
func (h *Host) warm(ctx context.Context, l *lane) {
	l.asked.Store(false)
	k := l.cur.Load()
	if k.cold == nil {
		return
	}
	next := *k
	next.cold, next.retry = nil, 0
	if err := h.instantiate(ctx, l, &next, k); err != nil {
		h.o.Log.Error("policy instances could not be made", "owner", l.owner.String(), "error", err)
		next.active, next.candidate, next.cold, next.retry = nil, nil, make(chan struct{}), h.o.Clock.Mono()+mendRetry
	}
	l.used.Store(h.epoch.Add(1))
	h.count.builds.Add(1)
	h.put(l, &next)
}

// evict frees the instances of the orgs that have not called for longest, until the rest fit; keep's stay. It says
// whether it freed any. REQUIRES: the turn.
func (h *Host) evict(keep *lane) (freed bool) {
	for h.orgBytes.Load() > h.o.TenantBytes {
		l := h.idlest(keep)
		if l == nil {
			break
		}
		next := *l.cur.Load()
		next.active, next.candidate, next.cold = nil, nil, make(chan struct{})
		h.put(l, &next)
		h.count.evictions.Add(1)
		freed = true
	}
	return freed
}

// idlest is the org with instances that has not called for longest; nil: there is none but keep.
func (h *Host) idlest(keep *lane) (idlest *lane) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range h.mu.live {
		if l := g.lane; l.owner != Operator && l != keep && (idlest == nil || l.used.Load() < idlest.used.Load()) {
			idlest = l
		}
	}
	return idlest
}
