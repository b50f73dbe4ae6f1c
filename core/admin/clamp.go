package admin

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-gateway/weir/core/policy"
)

// ruleTable is what the module rules may be asked to loosen, as its params say it.
type ruleTable struct {
	Rules []struct {
		Name    string
		Enabled *bool
		Then    struct {
			QPS        permille `json:"qps_permille"`
			TPM        permille `json:"tpm_permille"`
			Month      permille `json:"month_permille"`
			Burst      permille `json:"burst_permille"`
			Tier       string
			Dimensions []struct {
				Kind       string
				Multiplier permille `json:"multiplier_permille"`
				Burst      permille `json:"burst_permille"`
				Cost       permille `json:"cost_permille"`
				Tier       string
			}
		}
	}
}

// permille is a factor in 1/1000; 0: not given.
type permille uint32

// bound is what an org's rules get at most for keys of one tier, where the operator's module changes nothing.
type bound struct {
	keyTier     any // null: of those for which no other envelope stands in
	most, burst permille
	custom      int
	tiers       []string
}

// clamped lists what the envelope cuts off each rule of a table by itself, for the keys that the org has; null: the module is
// not the table of rules, and only trying it can tell.
func (a *API) clamped(org uint64, b *binding) any {
	var t ruleTable
	if b == nil || b.Module != rulesModule || len(b.Params) > 0 && json.Unmarshal(b.Params, &t) != nil {
		return nil
	}
	cuts := []object{}
	for _, by := range a.boundsOf(org) {
		cuts = append(cuts, t.cuts(&by)...)
	}
	return cuts
}

// boundsOf are the bounds for the tiers of an org's keys.
func (a *API) boundsOf(org uint64) []bound {
	e := a.enforced.Load()
	asked := map[string]bool{}
	for _, k := range a.Directory.Keys() {
		if u, found := a.Directory.User(k.UserID); found && u.OrgID == org {
			_, own := e.TenantTiers[k.Tier]
			_, operators := e.Tiers[k.Tier]
			asked[map[bool]string{true: k.Tier}[own || operators]] = true
		}
	}
	if len(asked) == 0 {
		asked[""] = true
	}
	var all []bound
	for _, tier := range slices.Sorted(maps.Keys(asked)) {
		org, operator := e.Tenant, e.Operator
		if own, found := e.TenantTiers[tier]; found {
			org = own
		}
		if own, found := e.Tiers[tier]; found {
			operator = own
		}
		all = append(all, boundBy(orNull(tier), &org, &operator))
	}
	return all
}

// boundBy is the stricter of the org's envelope and the operator's, which holds the sum of both modules.
func boundBy(keyTier any, org, operator *policy.Envelope) bound {
	tiers := only(slices.Clone(org.Tiers), func(t string) bool { return len(operator.Tiers) == 0 || slices.Contains(operator.Tiers, t) })
	return bound{keyTier, min(orUnit(org.MaxMultiplier), orUnit(operator.MaxMultiplier)), min(orUnit(org.MaxBurst), orUnit(operator.MaxBurst)),
		min(org.MaxCustomDims, operator.MaxCustomDims), tiers}
}

// orUnit is a factor of an envelope, where 0 stands for 1000.
func orUnit(m uint32) permille {
	if m == 0 {
		return 1000
	}
	return permille(m)
}

// cuts are what b takes off the table, by rule.
func (t *ruleTable) cuts(b *bound) (cuts []object) {
	for i, r := range t.Rules {
		if r.Enabled != nil && !*r.Enabled {
			continue
		}
		cut := func(field string, asked, allowed any) {
			cuts = append(cuts, object{{"rule", i + 1}, {"name", orNull(r.Name)}, {"field", "then." + field}, {"asked", asked}, {"allowed", allowed}, {"keyTier", b.keyTier}})
		}
		most := func(field string, asked, allowed permille) {
			if asked > allowed {
				cut(field, asked, allowed)
			}
		}
		tier := func(field, asked string, may bool) {
			if asked != "" && !(may && slices.Contains(b.tiers, asked)) {
				cut(field, asked, nil)
			}
		}
		most("qps_permille", r.Then.QPS, b.most)
		most("tpm_permille", r.Then.TPM, b.most)
		most("month_permille", r.Then.Month, b.most)
		most("burst_permille", r.Then.Burst, b.burst)
		tier("tier", r.Then.Tier, true)
		customs := 0
		for n, d := range r.Then.Dimensions {
			at := fmt.Sprintf("dimensions[%d]", n)
			if d.Kind == "custom" {
				if customs++; customs > b.custom {
					cut(at, d.Kind, nil)
					continue
				}
			}
			own := !slices.Contains([]string{"global", "model", "channel", "model+channel", "ip"}, d.Kind) // other orgs use the meters of these
			factor, burst := b.most, b.burst
			if !own {
				factor, burst = 1000, 1000
				if d.Cost != 0 && d.Cost != 1000 {
					cut(at+".cost_permille", d.Cost, 1000)
				}
			}
			most(at+".multiplier_permille", d.Multiplier, factor)
			most(at+".burst_permille", d.Burst, burst)
			tier(at+".tier", d.Tier, own)
		}
	}
	return cuts
}
