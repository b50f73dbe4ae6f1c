package proxy

import (
	"slices"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/core/tokens"
	"github.com/weir-gateway/weir/core/upstream"
)

// Settings are the parts of the configuration a request reads; a reload replaces them whole.
type Settings struct {
	Global          limit.Limits
	Tiers           []Tier                      // in index order
	Defaults        map[limit.Kind]limit.Limits // limits of dimensions that no object configures: user, org, ip, end_user, key+model, custom
	Dimensions      []limit.Kind                // the default dimensions, in the order of reporting; empty: key, model, global
	Labels          []Label                     // policy attributes 8-15
	Envelope        policy.Envelope             // bounds what decisions make of configured limits
	PolicyHeader    bool                        // answers carry X-Weir-Policy: who decided
	StormPermille   uint32                      // the largest QPS multiplier the envelope allows: the cheap look's bound; 0: off
	SettleTimeoutMS int64                       // how long an answer waits for the ledger; 0: 5,000
	Currency        string                      // "cny": the suffix of money fields
}

// Tier is a named set of limits. A key's own limit wins over its tier's.
type Tier struct {
	Name   string
	Limits limit.Limits
}

// Label maps one of the policy attributes 8-15: "key:team", "model:hot" or "header:x-team".
type Label struct {
	Name   string
	Source string // key | model | header
	Field  string
}

// Snapshot is the configuration of one request: taken once, immutable, so that a reload cannot tear a request.
type Snapshot struct {
	Settings
	Catalog *upstream.Catalog

	encodings map[*upstream.Model]tokens.Encoding
	version   uint32 // another number for each snapshot of a server
}

// withDefaults fills what the walk never wants to ask twice.
func (v Settings) withDefaults() Settings {
	if len(v.Dimensions) == 0 {
		v.Dimensions = []limit.Kind{limit.Key, limit.Model, limit.Global}
	}
	if v.SettleTimeoutMS <= 0 {
		v.SettleTimeoutMS = 5_000
	}
	if v.Currency == "" {
		v.Currency = "cny"
	}
	return v
}

// noTier says that a key has no tier, to policies as to the limits.
const noTier = -1

// tier is the index of a named tier. Names that are no longer configured count as none.
func (s *Snapshot) tier(name string) int {
	if name == "" {
		return noTier
	}
	return slices.IndexFunc(s.Tiers, func(t Tier) bool { return t.Name == name })
}

// tierLimits are the limits of a tier; none for an index that does not exist.
func (s *Snapshot) tierLimits(i int) limit.Limits {
	if i < 0 || i >= len(s.Tiers) {
		return limit.Limits{}
	}
	return s.Tiers[i].Limits
}

// keyLimits are a key's configured limits: its own, else its tier's, field by field.
func (s *Snapshot) keyLimits(k *auth.Key, tier int) limit.Limits {
	t := s.tierLimits(tier)
	return limit.Limits{QPS: auth.Own(k.QPSLimit, t.QPS), TPM: auth.Own(k.TPMLimit, t.TPM), Concurrency: auth.Own(k.ConcurrencyLimit, t.Concurrency)}
}

// configured are the limits of a dimension before the decision touches them.
func (s *Snapshot) configured(k limit.Kind, who *auth.Caller, m *upstream.Model, tier int) limit.Limits {
	switch k {
	case limit.Global:
		return s.Global
	case limit.Key:
		return s.keyLimits(&who.Key, tier)
	case limit.Model:
		return limit.Limits{QPS: m.QPSLimit, TPM: m.TPMLimit}
	case limit.User:
		return orLimits(limit.Limits{QPS: who.User.QPSLimit, TPM: who.User.TPMLimit}, s.Defaults[k])
	case limit.Org:
		return orLimits(limit.Limits{QPS: who.Org.QPSLimit, TPM: who.Org.TPMLimit}, s.Defaults[k])
	}
	return s.Defaults[k]
}

func orLimits(a, b limit.Limits) limit.Limits {
	return limit.Limits{QPS: or(a.QPS, b.QPS), TPM: or(a.TPM, b.TPM), Concurrency: or(a.Concurrency, b.Concurrency)}
}

func or(a, b int64) int64 {
	if a != 0 {
		return a
	}
	return b
}
