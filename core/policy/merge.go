package policy

import (
	"slices"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/sdk/abi"
)

// defaultRoom is how many configured default dimensions a claim has room for beside an org's own.
const defaultRoom = 8

// join makes d, the operator's decision, what it becomes with t, the org's, and holds the result to the envelope of
// the request. faultDims: there were too many dimensions, and the binding's on_error took t's place.
func (q *question) join(d, t *Decision) fault {
	d.Tenant = TenantPart{Module: t.Module, Version: t.Version, Reason: t.Reason, Message: t.Message, Fault: t.Fault, Canary: t.Canary}
	ft, clamped := merge(d, t, q.tenant)
	if ft != faultNone {
		d.Tenant.Fault = ft.String()
		if q.by != nil && q.by.binding.OnError == OnErrorDeny {
			d.refuse()
			d.Module, d.Version = t.Module, t.Version
		}
		return ft
	}
	verdict, before := d.Verdict, d.Clamped
	d.Clamped, d.Verdict = false, Allow // an org may refuse its own, and the operator's verdict has been clamped
	q.clamp(d)
	d.Verdict = verdict
	d.Tenant.Clamped = clamped || d.Clamped
	d.Clamped = d.Clamped || before
	return faultNone
}

// merge makes op, the operator's decision, what it becomes with t, the decision of an org's module that was told op's
// effective limits. Whatever t says, the result is at least as strict as op, but for what env lets orgs loosen:
//
//	verdict          the stricter; a denial by t is t's with status, reason, wait and message
//	multipliers      op's x t's (t's are relative to what op left), t's at most env's; price at least 1000
//	overdraft        the larger, t's at most env's
//	output cap       the smaller
//	no bill, limit   op's
//	tier             t's if env lists it, else op's
//	dimensions       the union; beside op's defaults when it named none. See union
//
// clamped: t asked for more. On faultDims op is unchanged.
func merge(op, t *Decision, env *bounds) (ft fault, clamped bool) {
	if t.Abstained {
		return faultNone, false
	}
	u := union{op: op, env: env, most: orUnit(env.MaxMultiplier), burst: orUnit(env.MaxBurst)}
	if !u.add(t) {
		return faultDims, false
	}
	u.multiplier(&op.QPS, t.QPS, u.most)
	u.multiplier(&op.TPM, t.TPM, u.most)
	u.multiplier(&op.Quota, t.Quota, u.most)
	u.multiplier(&op.Burst, t.Burst, u.burst)
	u.price(&op.Price, t.Price)
	if t.Overdraft > env.MaxOverdraft {
		u.clamped = true
	}
	op.Overdraft = max(op.Overdraft, min(t.Overdraft, env.MaxOverdraft))
	op.OutputCap = llm.Tokens(tighter(int64(op.OutputCap), int64(t.OutputCap)))
	u.clamped = u.clamped || t.NoBill && !op.NoBill || t.NoLimit && !op.NoLimit
	if t.Tier >= 0 && t.Tier != op.Tier {
		if u.mayTier(t.Tier) {
			op.Tier = t.Tier
		} else {
			u.clamped = true
		}
	}
	switch {
	case t.Verdict == Deny:
		op.Verdict, op.Status, op.Reason, op.RetryAfterMS, op.Message = Deny, t.Status, t.Reason, t.RetryAfterMS, t.Message
		op.Module, op.Version = t.Module, t.Version
	case t.Verdict == ShadowDeny && op.Verdict == Allow:
		op.Verdict = ShadowDeny
	}
	op.Abstained = false
	return faultNone, u.clamped
}

// union adds an org's dimensions to the operator's. A shared dimension is one whose meter other orgs use too.
//
//   - An entry beside one of op's for the same meter that only multiplies makes op's stricter in place; a looser one
//     is cut off at what env allows, and on a shared dimension at 1000.
//   - Any other entry stands beside op's: of two entries for one meter the limiter takes the stricter.
//   - A shared dimension costs an org what it costs by op, or one could exhaust it for all at a price of its choice.
//   - Where op leaves the user or the org to what is configured, an entry for it would take that's place. So it is
//     merged with an entry that says what is configured.
//   - Beside defaults an entry for one of their kinds that says nothing about it is left out: they say it.
//   - A channel's entry cannot stand twice, so it can only multiply op's; beside defaults it is left out.
type union struct {
	op          *Decision
	env         *bounds
	most, burst uint32
	clamped     bool
}

func shared(kind uint8) bool {
	switch kind {
	case abi.KindGlobal, abi.KindModel, abi.KindChannel, abi.KindModelChannel, abi.KindIP:
		return true
	}
	return false
}

// plain: x only names a dimension that is among the defaults.
func plain(x *Dimension) bool {
	switch x.Kind {
	case abi.KindGlobal, abi.KindKey, abi.KindModel, abi.KindUser, abi.KindOrg:
		return x.QPS == 0 && x.TPM == 0 && x.Tier < 0 && x.Multiplier == unit && x.Burst == unit && x.Cost == unit
	}
	return false
}

// owner: its configured limits are tested unless an entry tests it.
func owner(kind uint8) bool { return kind == abi.KindUser || kind == abi.KindOrg }

// loose: x refuses nothing.
func loose(x *Dimension) bool { return x.CountOnly || x.Shadow }

func channel(kind uint8) bool { return kind == abi.KindChannel || kind == abi.KindModelChannel }

// add puts t's dimensions into op; false: there is no room for all of them, and op is as before.
func (u *union) add(t *Decision) bool {
	dims, n, room := u.op.Dims, u.op.N, abi.MaxDims // a copy, to leave op alone if the last one does not fit
	defaults := n == 0
	if defaults {
		room = abi.MaxDims - defaultRoom
	}
	customs := 0
	for i := range t.Dims[:t.N] {
		x := t.Dims[i]
		u.bound(&x)
		if x.Kind == abi.KindCustom {
			if customs++; customs > u.env.MaxCustomDims {
				u.clamped = true
				continue
			}
		}
		y := find(dims[:u.op.N], &x)
		switch {
		case defaults && plain(&x):
			continue
		case defaults && channel(x.Kind):
			u.clamped = true
			continue
		case owner(x.Kind) && !loose(&x) && !tests(dims[:n], x.Kind):
			if n >= room {
				return false
			}
			dims[n] = asConfigured(x.Kind)
			y = &dims[n]
			n++
		}
		if y != nil && u.inPlace(y, &x) {
			continue
		}
		if n >= room {
			return false
		}
		dims[n] = x
		n++
	}
	u.op.Defaults = u.op.Defaults || defaults && n > 0
	u.op.Dims, u.op.N = dims, n
	return true
}

// bound cuts an entry down to what an org may ask of any meter.
func (u *union) bound(x *Dimension) {
	most, burst := u.most, u.burst
	if shared(x.Kind) {
		most, burst = unit, unit
		if x.Cost != unit {
			x.Cost, u.clamped = unit, true
		}
	}
	if x.Multiplier > most {
		x.Multiplier, u.clamped = most, true
	}
	if x.Burst > burst {
		x.Burst, u.clamped = burst, true
	}
	if x.Tier >= 0 && (shared(x.Kind) || !u.mayTier(x.Tier)) {
		x.Tier, u.clamped = -1, true
	}
	if x.Kind == abi.KindKey { // op's own multipliers will be applied to these limits again
		x.QPS, x.TPM = unscale(x.QPS, u.op.QPS), unscale(x.TPM, u.op.TPM)
	}
}

// inPlace makes y, an entry of op's, what it becomes with x; false: x has to stand beside it.
func (u *union) inPlace(y, x *Dimension) bool {
	if channel(x.Kind) {
		u.clamped = u.clamped || x.QPS > 0 && y.QPS == 0 || x.TPM > 0 && y.TPM == 0
		if loose(x) {
			return true
		}
		if y.QPS > 0 {
			y.QPS = tighter(y.QPS, x.QPS)
		}
		if y.TPM > 0 {
			y.TPM = tighter(y.TPM, x.TPM)
		}
	} else if x.QPS > 0 || x.TPM > 0 || x.Tier >= 0 || loose(y) && !loose(x) {
		return false
	}
	if loose(x) {
		return true
	}
	u.multiplier(&y.Multiplier, x.Multiplier, x.Multiplier)
	u.multiplier(&y.Burst, x.Burst, x.Burst)
	if x.Cost > unit {
		y.Cost = times(y.Cost, x.Cost)
	}
	return true
}

// multiplier makes v what it becomes with an org's by, of which at most most is granted.
func (u *union) multiplier(v *uint32, by, most uint32) {
	if by > most {
		by, u.clamped = most, true
	}
	*v = times(*v, by)
}

func (u *union) price(v *uint32, by uint32) {
	if by < unit {
		by, u.clamped = unit, true
	}
	*v = times(*v, by)
}

// mayTier: env lists the tier.
func (u *union) mayTier(i int) bool { return i < len(u.env.allowed) && u.env.allowed[i] }

// find gives the first entry for the same meter.
func find(dims []Dimension, x *Dimension) *Dimension {
	for i := range dims {
		if dims[i].Kind == x.Kind && dims[i].Value == x.Value {
			return &dims[i]
		}
	}
	return nil
}

// tests: an entry of that kind may refuse.
func tests(dims []Dimension, kind uint8) bool {
	return slices.ContainsFunc(dims, func(x Dimension) bool { return x.Kind == kind && !loose(&x) })
}

// times is a x b in 1/1000, at least 1 and at most what a response may hold.
func times(a, b uint32) uint32 {
	if b == unit {
		return a
	}
	return uint32(min(max(uint64(a)*uint64(b)/unit, 1), abi.MaxMultiplier))
}

// unscale is the limit that permille makes into limit, a module's of 32 bits, rounded down; 0 stays.
func unscale(limit int64, permille uint32) int64 {
	if limit == 0 || permille == unit {
		return limit
	}
	return max(limit*unit/int64(permille), 1)
}

// tighter is the smaller of two limits of which 0 is none.
func tighter(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
