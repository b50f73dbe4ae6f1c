package policy

import (
	"cmp"
	"slices"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/sdk/abi"
)

// Limit is the largest limit that the envelope lets a module set where configured is the configured one (0:
// unlimited, so anything is stricter). It saturates, and is never 0, which would be no limit at all.
func (e *Envelope) Limit(configured, asked int64) int64 {
	if configured <= 0 || asked <= 0 {
		return asked
	}
	return min(asked, scale(configured, orUnit(e.MaxMultiplier)))
}

func orUnit(m uint32) uint32 {
	if m == 0 {
		return unit
	}
	return m
}

// clamp brings d inside the envelope of the request and marks it when something changed.
func (q *question) clamp(d *Decision) {
	q.env.clamp(d, q.env.allowed)
	c := clamper{d: d}
	for i := range d.Dims[:d.N] {
		if x := &d.Dims[i]; x.Kind == abi.KindKey && (x.QPS > 0 || x.TPM > 0) {
			qps, tpm := q.h.entryLimits(q.key, d, x)
			c.limit(&x.QPS, q.env.Limit(qps, x.QPS))
			c.limit(&x.TPM, q.env.Limit(tpm, x.TPM))
		}
	}
}

// clamp brings all of d inside the envelope but the limits that it sets, which are bounded by what is configured. Two
// multipliers that meet on one dimension (the response's and the entry's, on the key) are bounded by their product.
// allowed is Tiers as indices; nil: all.
func (e *Envelope) clamp(d *Decision, allowed []bool) {
	c := clamper{d: d}
	most, burst := orUnit(e.MaxMultiplier), orUnit(e.MaxBurst)
	c.atMost(&d.QPS, most)
	c.atMost(&d.TPM, most)
	c.atMost(&d.Quota, most)
	c.atMost(&d.Burst, burst)
	if least := orUnit(e.MinPrice); d.Price < least {
		d.Price, d.Clamped = least, true
	}
	if d.Overdraft > e.MaxOverdraft {
		d.Overdraft, d.Clamped = max(e.MaxOverdraft, 0), true
	}
	if d.Verdict == Deny && !e.MayDeny {
		d.Verdict, d.Clamped = ShadowDeny, true
	}
	c.unless(e.MaySkipBilling, &d.NoBill)
	c.unless(e.MaySkipLimits, &d.NoLimit)
	c.tier(&d.Tier, allowed)
	c.customs(e.MaxCustomDims)
	if !e.MayDropKey && !d.Defaults {
		c.keepKey()
	}
	for i := range d.Dims[:d.N] {
		x := &d.Dims[i]
		c.atMost(&x.Multiplier, most)
		c.atMost(&x.Burst, burst)
		c.tier(&x.Tier, allowed)
		if x.Kind == abi.KindKey {
			c.atMost(&x.Multiplier, share(most, max(d.QPS, d.TPM)))
			c.atMost(&x.Burst, share(burst, d.Burst))
		}
	}
}

// share is what is left of a bound for a second multiplier when the first is taken.
func share(bound, taken uint32) uint32 {
	return uint32(max(uint64(bound)*unit/uint64(max(taken, 1)), 1))
}

type clamper struct{ d *Decision }

func (c clamper) atMost(v *uint32, bound uint32) {
	if *v > bound {
		*v, c.d.Clamped = bound, true
	}
}

func (c clamper) unless(may bool, flag *bool) {
	if *flag && !may {
		*flag, c.d.Clamped = false, true
	}
}

func (c clamper) tier(i *int, allowed []bool) {
	if *i >= 0 && allowed != nil && (*i >= len(allowed) || !allowed[*i]) {
		*i, c.d.Clamped = -1, true
	}
}

func (c clamper) limit(v *int64, bound int64) {
	if *v > bound {
		*v, c.d.Clamped = bound, true
	}
}

// customs drops the custom dimensions beyond the first limit ones; each is a meter that somebody has to keep.
func (c clamper) customs(limit int) {
	d, kept, seen := c.d, 0, 0
	for i := range d.N {
		if d.Dims[i].Kind == abi.KindCustom {
			if seen++; seen > limit {
				d.Clamped = true
				continue
			}
		}
		if kept != i {
			d.Dims[kept] = d.Dims[i]
		}
		kept++
	}
	d.N = kept
}

// keepKey makes the key dimension part of every choice and lets it refuse: a key in a storm may then be refused by its
// own limit without asking the module. The sixteenth dimension gives way when there is no room.
func (c clamper) keepKey() {
	d := c.d
	for i := range d.Dims[:d.N] {
		if x := &d.Dims[i]; x.Kind == abi.KindKey {
			c.unless(false, &x.CountOnly)
			c.unless(false, &x.Shadow)
			return
		}
	}
	if d.N == 0 {
		return
	}
	d.N = min(d.N+1, len(d.Dims))
	copy(d.Dims[1:d.N], d.Dims[:])
	d.Dims[0] = Dimension{Kind: abi.KindKey, Tier: -1, Multiplier: unit, Burst: unit, Cost: unit}
	d.Clamped = true
}

// indices marks the allowed tiers of an envelope; nil when all are.
func (e *Envelope) indices(tiers []string) []bool {
	if len(e.Tiers) == 0 {
		return nil
	}
	allowed := make([]bool, len(tiers))
	for i, name := range tiers {
		allowed[i] = slices.Contains(e.Tiers, name)
	}
	return allowed
}

// bounds are an envelope with its tiers by index; nil: the operator's module may pick all, an org's none.
type bounds struct {
	Envelope
	allowed []bool
}

// tiered are bounds, and those that stand in for them by tier; nil: none does.
type tiered struct {
	all bounds
	of  []*bounds
}

// at is what bounds a request of a key with that tier.
func (t *tiered) at(tier uint32) *bounds {
	if int64(tier) < int64(len(t.of)) && t.of[tier] != nil {
		return t.of[tier]
	}
	return &t.all
}

// envelopes are Envelopes as the hot path wants them.
type envelopes struct {
	given            Envelopes
	operator, tenant tiered
}

// of bounds a request of a key with that tier.
func (e *envelopes) of(tier uint32) *bounds { return e.operator.at(tier) }

// tenantOf bounds what the caller's org may loosen for a key with that tier.
func (e *envelopes) tenantOf(tier uint32) *bounds { return e.tenant.at(tier) }

// SetEnvelopes puts envelopes in force from the next call on; an unknown tier's name is an error and changes nothing.
func (h *Host) SetEnvelopes(e Envelopes) error {
	return h.changeEnvelopes(func(to *Envelopes) { *to = e })
}

func (h *Host) changeEnvelopes(change func(*Envelopes)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var given Envelopes
	if now := h.env.Load(); now != nil {
		given = now.given
	}
	change(&given)
	next := &envelopes{given: given}
	var err error
	if next.operator, err = h.tiered(given.Operator, given.Tiers); err == nil {
		next.tenant, err = h.tiered(given.Tenant, given.TenantTiers)
	}
	if err == nil {
		h.env.Store(next)
	}
	return err
}

// tiered checks the tiers that envelopes name, and finds them by index.
func (h *Host) tiered(all Envelope, by map[string]Envelope) (tiered, error) {
	t := tiered{bounds{all, all.indices(h.o.Tiers)}, make([]*bounds, len(h.o.Tiers))}
	err := h.checkTiers(all.Tiers)
	for name, env := range by {
		err = cmp.Or(err, h.checkTiers([]string{name}), h.checkTiers(env.Tiers))
		if i := slices.Index(h.o.Tiers, name); i >= 0 {
			t.of[i] = &bounds{env, env.indices(h.o.Tiers)}
		}
	}
	return t, err
}

func (h *Host) checkTiers(names []string) error {
	for _, name := range names {
		if !slices.Contains(h.o.Tiers, name) {
			return llm.Invalid("envelope", "the envelope names an unknown tier %q%s", name, nearest(name, h.o.Tiers))
		}
	}
	return nil
}
