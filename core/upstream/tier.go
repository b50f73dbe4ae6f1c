package upstream

import (
	"maps"
	"slices"
	"strings"

	"github.com/weir-gateway/weir/core/llm"
)

const (
	maxTiers    = 16 // of one model
	maxTierName = 64 // bytes
)

// autoTier is what a request without a service tier asks for, at OpenAI as at Anthropic: whichever its account has.
const autoTier = "auto"

// Tier gives the model's name of a service tier that a request or an answer names, and the factor of its price in 1/1000.
// The standard price has no name. False: the model does not price it.
func (m *Model) Tier(name []byte) (tier string, permille uint32, ok bool) {
	for tier, permille = range m.ServiceTiers { // a few at most, and a lookup would not give the catalog's own string
		if tier == string(name) {
			return tier, permille, true
		}
	}
	switch string(name) {
	case autoTier, "default", "standard", "standard_only":
		return "", 1000, true
	}
	return "", 0, false
}

// Asked is Tier of what a request names; nothing is "auto".
func (m *Model) Asked(name []byte) (tier string, permille uint32, ok bool) {
	if len(m.ServiceTiers) == 0 && len(name) == 0 {
		return "", 1000, true
	}
	if len(name) == 0 {
		return m.Tier([]byte(autoTier))
	}
	return m.Tier(name)
}

// TierNames lists what a request of a dialect may name.
func (m *Model) TierNames(d llm.Dialect) []string {
	standard := []string{autoTier, "default"}
	if d == llm.Anthropic {
		standard[1] = "standard_only"
	}
	named := slices.DeleteFunc(slices.Sorted(maps.Keys(m.ServiceTiers)), func(s string) bool { return s == autoTier })
	return append(standard, named...)
}

func (m *Model) checkTiers() error {
	if len(m.ServiceTiers) > maxTiers {
		return llm.Invalid("service_tiers", "model %q: %d service tiers; at most %d", m.Name, len(m.ServiceTiers), maxTiers)
	}
	for _, name := range slices.Sorted(maps.Keys(m.ServiceTiers)) {
		switch permille := m.ServiceTiers[name]; {
		case name == "default" || name == "standard" || name == "standard_only":
			return llm.Invalid("service_tiers", "model %q: service tier %s is the price itself and has no factor", m.Name, name)
		case !plainWord(name):
			return llm.Invalid("service_tiers", "model %q: service tier %.80q; expected the provider's name for it, such as flex: at most %d of a-z, 0-9, _, - and .",
				m.Name, name, maxTierName)
		case permille == 0 || permille > llm.MaxFactor:
			return llm.Invalid("service_tiers", "model %q: service tier %s: the factor %s is not from 0.001 to 1000", m.Name, name, llm.Factor(permille))
		}
	}
	return nil
}

// plainWord tells a name that stands in JSON as it is.
func plainWord(s string) bool {
	return s != "" && len(s) <= maxTierName && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' && r != '-' && r != '.'
	})
}
