package policy

import (
	"math/bits"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/sdk/abi"
)

// question is what the answers of a lane are measured by. The facts go beside it and not in it, or they would have to
// live on the heap.
type question struct {
	h      *Host
	env    *bounds     // of the request
	key    keyLimits   // of the request
	tenant *bounds     // what an org may loosen
	op     *Decision   // what the operator's module decided before; nil: its own lane is asked
	smp    *sample     // for the decision log; mostly nil
	by     *generation // whose answer it is, or whose on_error; nil: nobody's
	ft     fault       // of by
}

// Decide fills d. It never fails: a module's fault takes its binding's OnError. Safe for concurrent use; f and d
// belong to the caller.
func (h *Host) Decide(f *Facts, d *Decision) {
	e := h.env.Load()
	q := question{h: h, env: e.of(f.Tier), key: limitsOf(f), smp: h.decisions.sample(f)}
	q.ask(f, &h.operator, d)
	q.note(f, d.Clamped)
	if h.orgs.n.Load() > 0 && d.Verdict != Deny {
		if l := h.orgs.get(Owner(f.Org)); l != nil {
			h.chain(l, &q, e, f, d)
		}
	}
	d.Envelope = &q.env.Envelope
}

// chain has the caller's org's module decide after the operator's, told what that left of the limits.
func (h *Host) chain(l *lane, op *question, e *envelopes, f *Facts, d *Decision) {
	if now := h.epoch.Load(); l.used.Load() != now {
		l.used.Store(now)
	}
	told := *f
	h.effective(&told, d)
	q := question{h: h, env: op.env, key: op.key, tenant: e.tenantOf(f.Tier), op: d, smp: op.smp.again()}
	var t Decision
	q.ask(&told, l, &t)
	if t.Module == "" {
		return
	}
	if t.Fault == "" && q.by != nil {
		q.by.fired.count(t.Reason, t.Message)
	}
	if q.join(d, &t) == faultDims {
		h.faults[faultDims].Add(1)
	}
	if d.Tenant.Clamped {
		h.count.tenantClamped.Add(1)
		if q.by != nil {
			q.by.clamped.Add(1)
		}
	}
	q.note(&told, d.Tenant.Clamped)
}

// note writes what was asked and answered into the decision log, when the request is in its sample.
func (q *question) note(f *Facts, clamped bool) {
	if q.smp != nil && q.by != nil {
		q.h.decisions.add(q, f, clamped)
	}
}

// ask has the lane's plan decide into d.
func (q *question) ask(f *Facts, l *lane, d *Decision) {
	for {
		k := l.cur.Load()
		switch {
		case k.cold != nil:
			if q.h.await(l, k) {
				continue
			}
			q.unready(k, d)
		case k.candidate != nil:
			if q.both(f, k, d) {
				continue
			}
		case q.one(f, k.active, d):
			continue
		}
		return
	}
}

// unready gives d the on_error of a binding whose instances are not there.
func (q *question) unready(k *fork, d *Decision) {
	d.abstain()
	d.Module, d.Version = "", ""
	if r := k.want[0]; r != nil {
		q.h.faults[faultCold].Add(1)
		d.Module, d.Version, d.Fault = r.Name, r.version, faultCold.String()
		if r.binding.OnError == OnErrorDeny {
			d.refuse()
		}
	}
}

// one has g (nil: native defaults) decide, or its on_error. again: it was swapped out meanwhile.
func (q *question) one(f *Facts, g *generation, d *Decision) (again bool) {
	if g == nil {
		d.abstain()
		d.Module, d.Version = "", ""
		return false
	}
	ft, retired := g.run(q, f, d, yields)
	if retired {
		return true
	}
	if ft != faultNone {
		q.h.faults[ft].Add(1)
		g.fallback(q, f, d, ft)
	}
	q.by, q.ft = g, ft
	return false
}

// both has the binding decide that the plan says, the other one after it, and compares. A candidate's fault never
// reaches a request: the active binding decides. The second decision is in line because the facts point into the
// request's own buffers; it costs what the candidate would cost as the active one, at most its fuel, and it waits for
// no instance. again: what decides was swapped out meanwhile.
func (q *question) both(f *Facts, k *fork, d *Decision) (again bool) {
	var other Decision
	if mix(f.Key)%100 < k.percent {
		ft, retired := k.candidate.run(q, f, d, yields)
		if retired {
			return true
		}
		if ft == faultNone {
			q.by, q.ft, d.Canary = k.candidate, faultNone, true
			if q.aside(f, k, k.active, &other) {
				q.compare(f, k, &other, d)
			}
			return false
		}
		q.h.faults[ft].Add(1)
		k.tally.fault(ft)
		return q.one(f, k.active, d)
	}
	if q.one(f, k.active, d) {
		return true
	}
	if k.percent == 0 && q.aside(f, k, k.candidate, &other) {
		q.compare(f, k, d, &other)
	}
	return false
}

// aside has g decide for comparison only; false: it did not.
func (q *question) aside(f *Facts, k *fork, g *generation, d *Decision) bool {
	if g == nil {
		d.abstain()
		d.Module, d.Version = "", ""
		return true
	}
	quiet := *q
	quiet.smp = nil
	ft, retired := g.run(&quiet, f, d, 1)
	switch {
	case retired, ft == faultBusy:
		k.tally.skipped.Add(1)
		return false
	case ft == faultNone:
		return true
	}
	q.h.faults[ft].Add(1)
	if g == k.active {
		g.fallback(&quiet, f, d, ft)
		return true
	}
	k.tally.fault(ft)
	return false
}

// compare counts what would differ. An org's answers are compared by what they make of the operator's.
func (q *question) compare(f *Facts, k *fork, active, candidate *Decision) {
	a, c := active, candidate
	if q.op != nil {
		x, y := *q.op, *q.op
		q.join(&x, active)
		q.join(&y, candidate)
		y.Clamped, y.Reason, y.Message = y.Tenant.Clamped, candidate.Reason, candidate.Message
		x.Reason, x.Message = active.Reason, active.Message
		a, c = &x, &y
	}
	q.h.count.compared.Add(1)
	if k.tally.compare(f, a, c) {
		q.h.count.changed.Add(1)
	}
}

// keyLimits are what is configured for a request's key; 0: unlimited.
type keyLimits struct {
	tier     uint32
	qps, tpm int64
}

func limitsOf(f *Facts) keyLimits { return keyLimits{f.Tier, f.QPSLimit, f.TPMLimit} }

// inTier is a key's limits in the tier that a decision names (negative: none): its own stay, those of its tier change.
func (h *Host) inTier(k keyLimits, tier int) (qps, tpm int64) {
	qps, tpm = k.qps, k.tpm
	if tier < 0 || uint32(tier) == k.tier || h.o.TierLimits == nil {
		return qps, tpm
	}
	var oldQPS, oldTPM int64
	if int64(k.tier) < int64(len(h.o.Tiers)) {
		oldQPS, oldTPM = h.o.TierLimits(int(k.tier))
	}
	newQPS, newTPM := h.o.TierLimits(tier)
	if qps == oldQPS {
		qps = newQPS
	}
	if tpm == oldTPM {
		tpm = newTPM
	}
	return qps, tpm
}

// entryLimits are a key's limits before x, an entry of d's for the key, changes them: in x's tier, else in d's.
func (h *Host) entryLimits(k keyLimits, d *Decision, x *Dimension) (qps, tpm int64) {
	qps, tpm = h.inTier(k, d.Tier)
	if x.Tier >= 0 && h.o.TierLimits != nil {
		ofQPS, ofTPM := h.o.TierLimits(x.Tier)
		qps, tpm = orLimit(ofQPS, qps), orLimit(ofTPM, tpm)
	}
	return qps, tpm
}

// effective makes f what is left after the operator's decision: what an org's module is told.
func (h *Host) effective(f *Facts, d *Decision) {
	k := limitsOf(f)
	qps, tpm := h.inTier(k, d.Tier)
	if d.Tier >= 0 && uint32(d.Tier) != f.Tier {
		f.Tier = uint32(d.Tier)
		if d.Tier < len(h.o.Tiers) {
			f.Attr[AttrTier] = h.o.Tiers[d.Tier]
		}
	}
	first := true
	for i := range d.Dims[:d.N] {
		x := &d.Dims[i]
		if x.Kind != abi.KindKey {
			continue
		}
		ofQPS, ofTPM := h.entryLimits(k, d, x)
		ofQPS, ofTPM = scale(orLimit(x.QPS, ofQPS), x.Multiplier), scale(orLimit(x.TPM, ofTPM), x.Multiplier)
		if first {
			qps, tpm, first = ofQPS, ofTPM, false
		} else {
			qps, tpm = tighter(qps, ofQPS), tighter(tpm, ofTPM)
		}
	}
	f.QPSLimit, f.TPMLimit = scale(qps, d.QPS), scale(tpm, d.TPM)
	if d.NoLimit {
		f.QPSLimit, f.TPMLimit = 0, 0
	}
	f.QuotaLimit = llm.Micro(scale(int64(f.QuotaLimit), d.Quota))
	if d.OutputCap > 0 { // of each choice; OutputMax is of all
		f.OutputMax = llm.Tokens(min(uint64(f.OutputMax), uint64(d.OutputCap)*uint64(max(f.Choices, 1))))
	}
}

func orLimit(own, configured int64) int64 {
	if own > 0 {
		return own
	}
	return configured
}

// scale is limit x permille / 1000, at least 1, saturating; 0 stays unlimited.
func scale(limit int64, permille uint32) int64 {
	if limit <= 0 || permille == unit {
		return limit
	}
	hi, lo := bits.Mul64(uint64(limit), uint64(permille))
	if hi >= unit {
		return 1<<63 - 1
	}
	q, _ := bits.Div64(hi, lo, unit)
	return int64(min(max(q, 1), 1<<63-1))
}
