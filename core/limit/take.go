package limit

import (
	"context"
	"time"
)

// takeHold asks the server for what a hold needs of it, and keeps in the hold what the answer says of the rates.
func (x *sharing) takeHold(s *step, h *hold, c *Claim) (admitted bool, err error) {
	h.org = c.Caller.Org
	if s.asksServer() {
		h.number = x.number.Add(1)
	}
	returned := false
	defer func() {
		if !returned { // but panicked
			x.owner.takeBack(h)
		}
	}()
	admitted, err = x.take(s, c, h, h.began)
	returned = true
	if !admitted && err == nil {
		s.noteRefusal(h.began)
	}
	return admitted, err
}

func (s *step) asksServer() bool {
	for i := range s.n {
		if s.asks[i].by == byServer {
			return true
		}
	}
	return false
}

// take asks the server for the dimensions of a step that it decides, which is not locked any more. Refused, it explains in
// the claim's denial; without a hold h it is dry.
func (x *sharing) take(s *step, c *Claim, h *hold, now time.Duration) (admitted bool, err error) {
	if !s.asksServer() {
		return true, nil
	}
	o := x.orders.Get().(*Order)
	defer x.orders.Put(o)
	*o = Order{Org: c.Caller.Org, Dry: h == nil, Asks: o.Asks[:0]}
	if h != nil {
		o.Hold, o.Part = HoldID{x.Gateway, h.number}, h.part
	}
	for i := range s.n {
		if a := &s.asks[i]; a.by == byServer {
			o.Asks = append(o.Asks, a.order())
		}
	}
	x.takes.Add(1)
	if err := x.call(func(ctx context.Context) error { return x.Server.Take(ctx, o) }); err != nil {
		return false, err
	}
	s.answer(o, h, c)
	if o.Admitted {
		return true, nil
	}
	s.explain(o, &c.denial, now)
	return false, nil
}

// takeMore asks the server for the next part of a hold. What is told and not asked, the next sign of life tells.
func (x *sharing) takeMore(s *step, h *hold, now time.Duration) (*Denial, error) {
	h.part++
	c := Claim{Caller: Caller{Org: h.org}}
	admitted, err := x.take(s, &c, h, now)
	if admitted || err != nil {
		return nil, err
	}
	return &c.denial, nil
}

// order is an ask as the server is asked.
func (a *ask) order() Ask {
	requests := int64(1)
	if a.held > 0 {
		requests = 0
	}
	return Ask{ID: a.m.id, QPS: a.whole.qps.shared(), TPM: a.whole.tpm.shared(), Concurrency: a.whole.concurrency, Requests: requests,
		Tokens: a.tokens, Loose: a.loose}
}

func (b bound) shared() Bound { return Bound{Most: b.most, Ten: b.ten, Rate: b.rate} }

// answer takes from an order what it says beside yes or no: what shadows would have refused, and what the rates have left.
func (s *step) answer(o *Order, h *hold, c *Claim) {
	for i, j := 0, 0; i < s.n; i++ {
		a := &s.asks[i]
		if a.by != byServer {
			continue
		}
		r := &o.Asks[j]
		j++
		switch {
		case a.shadow && (r.OpenFull || r.QPSFull || r.TPMFull):
			c.Shadowed = append(c.Shadowed, a.m.id)
		case !a.loose && h != nil && o.Admitted:
			h.requests.tightenShared(a.qps.most, r.QPSUsed+1, r.QPSWait, a.m.mu.qps.short.rule, qpsSpan)
			h.tokens.tightenShared(a.tpm.most, r.TPMUsed+a.tokens, r.TPMWait, a.m.mu.tpm.short.rule, tpmSpan)
		}
	}
}

// tightenShared keeps the rate with the least left.
func (r *Rate) tightenShared(most, used int64, wait time.Duration, by rule, span time.Duration) {
	if by == ruleSliding {
		wait = span // what was just charged is the last to go
	}
	if most > 0 && (!r.OK || most-used < r.Remaining) {
		*r = Rate{OK: true, Limit: most, Remaining: most - used, ResetMS: ceilMS(wait)}
	}
}

// explain turns an order that was refused into a denial.
func (s *step) explain(o *Order, d *Denial, now time.Duration) {
	v := verdict{denial: d}
	for i, j := 0, 0; i < s.n; i++ {
		a := &s.asks[i]
		if a.by != byServer {
			continue
		}
		if r := &o.Asks[j]; !a.loose {
			a.explain(r, &v)
			a.m.rememberFull(now, r)
		}
		j++
	}
	if v.admit() { // a server that refuses without a reason
		*d = Denial{Axis: AxisConcurrency, RetryAfterMS: ceilMS(concurrencyHint)}
	}
}

func (a *ask) explain(r *Ask, v *verdict) {
	if r.OpenFull {
		v.refuse(rankConcurrency+int(a.rank), concurrencyHint, Denial{Axis: AxisConcurrency, ID: a.m.id,
			Limit: a.concurrency, Current: r.Open, Requested: 1})
	}
	if r.QPSFull {
		v.refuse(rankQPS+int(a.rank), r.QPSWait, Denial{Axis: AxisQPS, ID: a.m.id,
			Limit: a.qps.hit(r.QPSUsed, 1), Current: r.QPSUsed, Requested: 1})
	}
	if r.TPMFull {
		v.refuse(rankTPM+int(a.rank), r.TPMWait, Denial{Axis: AxisTPM, ID: a.m.id,
			Limit: a.tpm.hit(r.TPMUsed, a.tokens), Current: r.TPMUsed, Requested: a.tokens})
	}
}

// hit is the limit that n more beside what is used do not fit into: that of one window, or the mean of ten.
func (b bound) hit(used, n int64) int64 {
	if plus(used, n) > b.most {
		return b.most
	}
	return b.limit
}

// rememberFull keeps until when the server's window has no room for another request, for the cheap look.
func (m *meter) rememberFull(now time.Duration, r *Ask) {
	if !r.QPSFull || m.id.Kind != Key {
		return
	}
	m.mu.Lock()
	m.mu.remote.full = full{until: now + r.QPSWait, most: r.QPS.Most, used: r.QPSUsed}
	m.mu.Unlock()
}

// full is what the server said of a key's requests when it refused one.
type full struct {
	until      time.Duration
	most, used int64
}

// rememberOrgLocked keeps in whose shard the server has what is shared exactly, for Inspect.
func (s *step) rememberOrgLocked(org uint64) {
	for i := range s.n {
		if a := &s.asks[i]; a.by == byServer {
			a.m.mu.remote.org = org
		}
	}
}

// inspect adds what all gateways together use of a dimension, if it is shared and has been used here: as the server counts
// it, or as it was when it lent last.
func (x *sharing) inspect(id *ID, use *Use) {
	m := x.owner.index.find(x.owner.index.hash(id, 0), id, 0)
	if m == nil || x.kinds[id.Kind].by == byWindow || x.away.Load() {
		return
	}
	m.mu.Lock()
	r := *m.mu.remote
	m.mu.Unlock()
	if r.loans {
		now := x.owner.clock.Mono()
		use.QPS = max(use.QPS, r.requests.usedAt(now, r.asked+LoanLife+qpsSpan))
		use.TPM = max(use.TPM, r.tokens.usedAt(now, r.asked+LoanLife+tpmSpan))
		if now < r.openUntil {
			use.Concurrency += r.openUsed
		}
		return
	}
	o := &Order{Org: r.org, Dry: true, Asks: []Ask{{ID: m.id, Loose: true}}}
	if x.call(func(ctx context.Context) error { return x.Server.Take(ctx, o) }) == nil {
		a := &o.Asks[0]
		use.QPS, use.TPM, use.Concurrency = a.QPSUsed, a.TPMUsed, a.Open
	}
}

// usedAt is what all gateways used at the last exchange, while some of it may still count.
func (l *loan) usedAt(now, until time.Duration) int64 {
	if now >= until {
		return 0
	}
	return max(l.used-l.left, 0)
}
