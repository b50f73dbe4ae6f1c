package admin

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
)

// keyWarnings are what an operator may not have meant.
func (a *API) keyWarnings(k auth.Key) []string {
	return append(a.strayLabel(k), a.idleBands(k)...)
}

// idleBands warns of budgets that are to slow down a key with no rate to be slowed.
func (a *API) idleBands(k auth.Key) (warnings []string) {
	tiers, name := *a.tiers.Load(), k.Tier
	if _, label := a.tierLabel(k); label != "" {
		name = label
	}
	if t := tiers[name]; auth.Own(k.QPSLimit, t.QPS) != 0 || auth.Own(k.TPMLimit, t.TPM) != 0 {
		return nil
	}
	for w := range llm.Window(llm.Windows) {
		if k.Budget(w).Slow != 0 {
			warnings = append(warnings, fmt.Sprintf("budgets.%s.slowPercent: it slows nothing down unless a policy gives the key a tier: neither the key nor its tier limits requests or tokens", w))
		}
	}
	return warnings
}

// strayLabel warns of a label that is to put a key into a tier, and no tier has that name. The module default then leaves the
// key its own limits, which may be none.
func (a *API) strayLabel(k auth.Key) []string {
	field, name := a.tierLabel(k)
	tiers := *a.tiers.Load()
	if _, known := tiers[name]; field == "" || known || tiers == nil {
		return []string{}
	}
	names := make([]string, 0, len(tiers))
	for t := range tiers {
		names = append(names, t)
	}
	limits := "the key's own limits hold"
	if k.QPSLimit == 0 && k.TPMLimit == 0 && k.Tier == "" {
		limits = "the key has no limit of requests and tokens of its own"
	}
	return []string{fmt.Sprintf("label %s: no tier %.64q is configured, so policy default leaves the key alone and %s%s", field, name, limits, suggest(name, names))}
}

// tierLabel is the label of a key by which the module default puts it into a tier, and what it says; "" where there is none, or
// another module is in force.
func (a *API) tierLabel(k auth.Key) (field, name string) {
	d := a.rules.Load().bound[policy.Operator]
	if d.Current == nil || d.Current.Module != "default" {
		return "", ""
	}
	var params struct {
		Label string `json:"tier_label"`
	}
	_ = json.Unmarshal(d.Current.Params, &params) // none is the default's
	label := cmp.Or(params.Label, "tier")
	field = label
	for _, l := range a.o.Labels {
		if l.Name == label && l.Source == "key" {
			field = l.Field
		}
	}
	name, given := k.Labels[field]
	if !given {
		return "", ""
	}
	return field, name
}
