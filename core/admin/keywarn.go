package admin

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/policy"
)

// keyWarnings are what an operator may not have meant: a label that is to put a key into a tier, and no tier has that name.
// The module default then leaves the key its own limits, which may be none.
func (a *API) keyWarnings(k auth.Key) []string {
	d := a.rules.Load().bound[policy.Operator]
	if d.Current == nil || d.Current.Module != "default" {
		return []string{}
	}
	var params struct {
		Label string `json:"tier_label"`
	}
	_ = json.Unmarshal(d.Current.Params, &params) // none is the default's
	label := cmp.Or(params.Label, "tier")
	field := label
	for _, l := range a.o.Labels {
		if l.Name == label && l.Source == "key" {
			field = l.Field
		}
	}
	name, given := k.Labels[field]
	tiers := *a.tiers.Load()
	if _, known := tiers[name]; !given || known || tiers == nil {
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
