package admin

import (
	"cmp"
	"context"
	"net/url"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
)

func (a *API) tenantUsage(c *call) (answer, error) {
	o, err := a.org(c)
	if err != nil {
		return answer{}, err
	}
	return a.usageOf(c.Context(), o.ID, c.URL.RawQuery)
}

// usageOf is what an org counts now: its own windows, its month, its rules' decisions, and a page of its keys.
func (a *API) usageOf(ctx context.Context, org uint64, rawQuery string) (answer, error) {
	o, found := a.Directory.Org(org)
	if !found {
		return answer{}, missing("org", org)
	}
	users := map[uint64]bool{}
	for _, u := range a.Directory.Users() {
		if u.OrgID == org {
			users[u.ID] = true
		}
	}
	keys := only(a.Directory.Keys(), func(k auth.Key) bool { return users[k.UserID] })
	use, failed := a.Limiter.Inspect(ctx, limit.ID{Kind: limit.Org, Scope: org})
	page, err := pageOf(parseQuery(&url.URL{RawQuery: rawQuery}, "limit", "cursor"), keys, func(k auth.Key) uint64 { return k.ID }, parseID,
		func(k auth.Key) object {
			v, err := a.windowView(ctx, k)
			failed = cmp.Or(failed, err)
			return append(object{{"name", k.Name}}, v...)
		})
	if err = cmp.Or(err, failed); err != nil {
		return answer{}, err
	}
	v := object{{"orgId", o.ID}, {"name", o.Name}, {"at", moment(a.Clock.Wall().UnixMilli())},
		{"qps", object{{"limit", o.QPSLimit}, {"current", use.QPS}}},
		{"tpm", object{{"limit", o.TPMLimit}, {"currentTokens", use.TPM}, {"heldTokens", use.TPMHeld}}},
		{"monthly", a.monthOf(keys)}, {"policy", a.policyUsage(policy.Owner(org))}}
	return ok(append(v, page.value.(object)...)), nil
}

// monthOf is what keys have used and hold together, each in its current month.
func (a *API) monthOf(keys []auth.Key) object {
	var used, held llm.Micro
	for _, k := range keys {
		label, _ := k.Calendar(llm.Month).At(a.Clock.Wall())
		u, h := a.Limiter.Quota(k.ID, label)
		used, held = llm.AddMicro(used, u), llm.AddMicro(held, h)
	}
	return append(a.money("used", used), a.money("held", held)...)
}

// policyUsage is what an org's module has decided since it is in force, and how often each rule fired; null without one.
func (a *API) policyUsage(owner policy.Owner) any {
	u, found := a.Policy.Usage(owner)
	if !found {
		return nil
	}
	return object{{"module", u.Module}, {"version", u.Version}, {"calls", u.Calls}, {"abstained", u.Abstained}, {"clamped", u.Clamped}, {"faults", u.Faults},
		{"rules", reasonViews(u.Rules)}, {"otherRules", u.OtherRules}}
}
