package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
)

func (a *API) dryRun(c *call) (answer, error) {
	o, err := a.org(c)
	if err != nil {
		return answer{}, err
	}
	return a.dryRunOf(c.Context(), o.ID, 0, c.body)
}

// dryRunOf decides facts through every stage, as traffic would be.
func (a *API) dryRunOf(ctx context.Context, org, key uint64, body []byte) (answer, error) {
	b := parseBody(body)
	given := b.take("facts")
	var params json.RawMessage
	b.params("params", &params)
	if err := b.end(); err != nil {
		return answer{}, err
	}
	t, err := a.tenant(ctx, org)
	if err != nil {
		return answer{}, err
	}
	if b.has("params") {
		t.now.Params = params
	}
	facts, shown, err := a.factsFor(t.org, key, given)
	if err != nil {
		return answer{}, err
	}
	op, before, err := a.tryOperator(ctx, facts)
	if err != nil {
		return answer{}, err
	}
	trial, err := a.Policy.Try(ctx, t.owner, *t.now.host(), facts)
	if err != nil {
		return answer{}, t.overruled(params, aboutParams(err))
	}
	final := &trial.Decision
	return ok(object{{"orgId", org}, {"facts", json.RawMessage(shown)}, {"operator", op}, {"tenant", a.tenantStage(before, &trial)},
		{"decision", a.decision(final)}, {"policy", string(final.AppendPolicy(nil))}}), nil
}

// tryOperator is what the operator's active module leaves of the request.
func (a *API) tryOperator(ctx context.Context, f *policy.Facts) (view object, left *policy.Decision, err error) {
	p, _ := a.Policy.PlanOf(policy.Operator)
	if p.Active == nil {
		return object{{"module", nil}, {"version", nil}, {"decision", nil}, {"clamped", []object{}}}, nil, nil
	}
	t, err := a.Policy.Try(ctx, policy.Operator, *p.Active, f)
	if err != nil {
		return nil, nil, err
	}
	return object{{"module", t.Binding.Module}, {"version", t.Binding.Version()}, {"decision", a.decision(&t.Decision)},
		{"clamped", a.cuts(&t.Answer, &t.Decision)}}, &t.Decision, nil
}

// tenantStage is what the org's module answered, and what was granted of it. applied is false when the operator's had
// denied before.
func (a *API) tenantStage(before *policy.Decision, t *policy.Trial) object {
	wanted := t.Answer
	if before != nil {
		wanted.QPS, wanted.TPM, wanted.Quota = over(before.QPS, wanted.QPS), over(before.TPM, wanted.TPM), over(before.Quota, wanted.Quota)
		wanted.Burst, wanted.Price = over(before.Burst, wanted.Burst), over(before.Price, wanted.Price)
		wanted.Overdraft = max(wanted.Overdraft, before.Overdraft)
		wanted.NoBill, wanted.NoLimit = wanted.NoBill || before.NoBill, wanted.NoLimit || before.NoLimit
	}
	applied, cut := t.Decision.Tenant.Module != "", []object{}
	if t.Decision.Tenant.Clamped {
		if cut = a.cuts(&wanted, &t.Decision); len(cut) == 0 {
			cut = []object{{{"field", "dims"}, {"asked", nil}, {"granted", nil}}} // the decision shows them
		}
	}
	var rule any
	if t.Answer.Reason != 0 || t.Answer.Message != "" {
		rule = object{{"number", t.Answer.Reason}, {"message", t.Answer.Message}}
	}
	return object{{"module", t.Binding.Module}, {"version", t.Binding.Version()}, {"applied", applied}, {"rule", rule},
		{"answer", a.decision(&t.Answer)}, {"clamped", cut}, {"fault", orNull(t.Trace.Fault)},
		{"fuel", t.Trace.Fuel}, {"fuelAllowed", t.Trace.FuelAllowed}, {"log", list(t.Trace.Log)}}
}

// over is one factor after another, in 1/1000, as the host multiplies them.
func over(first, then uint32) uint32 {
	if then == 1000 {
		return first
	}
	return uint32(min(max(uint64(first)*uint64(then)/1000, 1), math.MaxUint32))
}

// cuts lists where a decision grants less than was asked for.
func (a *API) cuts(asked, granted *policy.Decision) []object {
	out := []object{}
	add := func(cut bool, field string, from, to any) {
		if cut {
			out = append(out, object{{"field", field}, {"asked", from}, {"granted", to}})
		}
	}
	for _, m := range []struct {
		field    string
		from, to uint32
	}{{"qps_permille", asked.QPS, granted.QPS}, {"tpm_permille", asked.TPM, granted.TPM}, {"quota_permille", asked.Quota, granted.Quota},
		{"burst_permille", asked.Burst, granted.Burst}} {
		add(m.to < m.from, m.field, m.from, m.to)
	}
	add(granted.Price > asked.Price, "price_permille", asked.Price, granted.Price)
	add(granted.Overdraft < asked.Overdraft, "overdraft_micro", asked.Overdraft, granted.Overdraft)
	add(asked.NoBill && !granted.NoBill, "no_bill", true, false)
	add(asked.NoLimit && !granted.NoLimit, "no_limit", true, false)
	add(asked.Tier >= 0 && granted.Tier != asked.Tier, "tier", a.tierName(asked.Tier), orNull(a.tierName(granted.Tier)))
	add(asked.Verdict == policy.Deny && granted.Verdict != policy.Deny, "verdict", "deny", "shadow_deny")
	if !slices.Equal(asked.Dims[:asked.N], granted.Dims[:granted.N]) && granted.Clamped && len(out) == 0 {
		add(true, "dims", nil, nil) // the decision shows them
	}
	return out
}

func (a *API) tierName(i int) string {
	if i < 0 || i >= len(a.o.TierNames) {
		return ""
	}
	return a.o.TierNames[i]
}

func (a *API) decision(d *policy.Decision) json.RawMessage {
	raw, err := policy.MarshalDecision(d, a.o.TierNames)
	if err != nil {
		panic("admin: a decision that is not JSON: " + err.Error()) // numbers and strings
	}
	return raw
}

// labelNames are those of the facts.
func (a *API) labelNames() []string {
	names := make([]string, len(a.o.Labels))
	for i, l := range a.o.Labels {
		names[i] = l.Name
	}
	return names
}

// factsFor completes facts: what given leaves out is as a request of the key would have it now. shown is the whole.
func (a *API) factsFor(org auth.Org, key uint64, given json.RawMessage) (f *policy.Facts, shown []byte, err error) {
	if given == nil {
		given = json.RawMessage("{}")
	}
	members, _, err := parseObject(given, "facts")
	if err != nil {
		return nil, nil, err
	}
	asked, err := policy.ParseFacts(given, a.o.TierNames, a.labelNames())
	if err != nil {
		return nil, nil, err
	}
	if members["key_id"] != nil {
		key = asked.Key
	}
	base, err := a.requestOf(org, key, asked, members["now_ms"] != nil)
	if err != nil {
		return nil, nil, err
	}
	if shown, err = a.overlay(base, members); err != nil {
		return nil, nil, err
	}
	if f, err = policy.ParseFacts(shown, a.o.TierNames, a.labelNames()); err != nil {
		return nil, nil, err
	}
	return f, shown, ofOrg(f, org, base)
}

// ofOrg: an org tries its rules on requests of its own.
func ofOrg(f *policy.Facts, org auth.Org, base *policy.Facts) error {
	switch {
	case f.Org != org.ID:
		return llm.Invalid("facts", "facts.org_id: expected %d, got %d", org.ID, f.Org)
	case f.Attr[policy.AttrOrgName] != org.Name:
		return llm.Invalid("facts", "facts.attributes.org_name: expected %q, got %.128q", org.Name, f.Attr[policy.AttrOrgName])
	case f.User != base.User:
		return llm.Invalid("facts", "facts.user_id: expected %d, the key's user, got %d", base.User, f.User)
	}
	return nil
}

// overlay lays members over base.
func (a *API) overlay(base *policy.Facts, members map[string]json.RawMessage) ([]byte, error) {
	raw, err := policy.MarshalFacts(base, a.o.TierNames, a.labelNames())
	if err != nil {
		return nil, err
	}
	under, _, err := parseObject(raw, "facts")
	if err != nil {
		return nil, err
	}
	for name, v := range members {
		if name == "attributes" {
			if v, err = merged(under[name], v); err != nil {
				return nil, err
			}
		}
		under[name] = v
	}
	return json.Marshal(under)
}

// merged is one object laid over another.
func merged(under, over json.RawMessage) (json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	for _, raw := range [...]json.RawMessage{under, over} {
		if err := json.Unmarshal(bytes.TrimSpace(raw), &out); len(raw) > 0 && err != nil {
			return nil, llm.Invalid("facts", "facts.attributes: expected an object of strings, got %s", jsonKind(raw))
		}
	}
	return json.Marshal(out)
}

// requestOf is a chat of an org's key, as far as the facts do not depend on what is asked.
func (a *API) requestOf(org auth.Org, key uint64, asked *policy.Facts, timed bool) (*policy.Facts, error) {
	f := &policy.Facts{Choices: 1, Endpoint: llm.Chat, Org: org.ID, Tier: math.MaxUint32, BalanceAvailable: math.MaxInt64}
	if asked.Endpoint != 0 {
		f.Endpoint = asked.Endpoint
	}
	f.Attr[policy.AttrOrgName], f.Attr[policy.AttrProvider] = org.Name, "openai"
	if f.Endpoint.Dialect() == llm.Anthropic {
		f.Attr[policy.AttrProvider] = "anthropic"
	}
	m, _ := a.goods.Load().model(asked.Attr[policy.AttrModel])
	f.EstimatedCost = m.Price.Hold(asked.Input, asked.OutputMax)
	var k auth.Key
	if key != 0 {
		var err error
		if k, err = a.keyOf(org, key, f); err != nil {
			return nil, err
		}
	}
	for i, l := range a.o.Labels {
		switch l.Source {
		case "key":
			f.Attr[policy.AttrLabel0+i] = k.Labels[l.Field]
		case "model":
			f.Attr[policy.AttrLabel0+i] = m.Labels[l.Field]
		}
	}
	at := a.Clock.Wall()
	if timed {
		at = time.UnixMilli(int64(asked.NowMS))
	}
	zone, err := auth.Zone(k.Timezone)
	if err != nil {
		zone = time.UTC
	}
	calendar(f, at.In(zone))
	return f, nil
}

func calendar(f *policy.Facts, local time.Time) {
	f.NowMS = uint64(local.UnixMilli())
	f.MinuteOfWeek = uint32((int(local.Weekday())+6)%7*1440 + local.Hour()*60 + local.Minute())
	f.DayOfMonth, f.DaysInMonth = uint16(local.Day()), uint16(local.AddDate(0, 1, -local.Day()).Day())
}

// keyOf fills what a key brings along.
func (a *API) keyOf(org auth.Org, id uint64, f *policy.Facts) (auth.Key, error) {
	k, found := a.Directory.Key(id)
	u, owned := a.Directory.User(k.UserID)
	if !found || !owned || u.OrgID != org.ID {
		return k, llm.Invalid("facts", "facts.key_id: org %d has no key %d", org.ID, id)
	}
	use, err := a.Limiter.Inspect(context.Background(), limit.ID{Kind: limit.Key, Scope: k.ID})
	if err != nil {
		return k, err
	}
	l := a.baseLimits(k)
	f.Key, f.User = k.ID, u.ID
	f.Attr[policy.AttrKeyName], f.Attr[policy.AttrUserName], f.Attr[policy.AttrTier] = k.Name, u.Name, k.Tier
	f.QPSLimit, f.QPSCurrent, f.TPMLimit, f.TPMCurrent = l.QPS, use.QPS, l.TPM, use.TPM
	f.ConcurrencyLimit, f.ConcurrencyCurrent, f.QuotaLimit = l.Concurrency, use.Concurrency, k.MonthlyQuota
	if i := slices.Index(a.o.TierNames, k.Tier); i >= 0 {
		f.Tier = uint32(i)
	}
	if !u.Unmetered {
		f.BalanceAvailable, _ = a.Limiter.Balance(u.ID)
	}
	if k.MonthlyQuota > 0 {
		label, _ := k.Calendar(llm.Month).At(a.Clock.Wall())
		used, held := a.Limiter.Quota(k.ID, label)
		f.QuotaUsed = llm.AddMicro(used, held)
	}
	return k, nil
}
