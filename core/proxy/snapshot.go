package proxy

import (
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/upstream"
)

// Settings are the parts of the configuration a request reads; a reload replaces them whole.
type Settings struct {
	Global          limit.Limits
	Tiers           []Tier                      // in index order
	Defaults        map[limit.Kind]limit.Limits // limits of dimensions that no object configures: user, org, ip, end_user, key+model, custom
	Dimensions      []limit.Kind                // the default dimensions, in the order of reporting
	Labels          []Label                     // policy attributes 8-15
	StormPermille   uint32                      // the largest QPS multiplier the envelope allows: the cheap look's bound; 0: off
	SettleTimeoutMS int64
	Currency        string // "cny": the suffix of money fields
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
}

// Cost of what a request may come to at most, for the facts a policy sees.
func (s *Snapshot) Cost(m *upstream.Model, input, output llm.Tokens) llm.Micro {
	return m.Price.Hold(input, output)
}
