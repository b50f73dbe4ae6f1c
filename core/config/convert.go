package config

import (
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/core/proxy"
	"github.com/weir-gateway/weir/core/upstream"
)

// kinds are the dimensions that a file may name.
var kinds = map[string]limit.Kind{
	"global": limit.Global, "key": limit.Key, "model": limit.Model, "user": limit.User, "org": limit.Org,
	"channel": limit.Channel, "ip": limit.IP, "end_user": limit.EndUser, "key+model": limit.KeyModel,
	"model+channel": limit.ModelChannel, "custom": limit.Custom,
}

func kindNames() []string { return slices.Sorted(maps.Keys(kinds)) }

func (r Rates) limits() limit.Limits {
	return limit.Limits{QPS: r.QPS, TPM: r.TPM, Concurrency: r.Concurrency}
}

// Settings is what the proxy reads per request.
func (c *Config) Settings() proxy.Settings {
	s := proxy.Settings{
		Global:          c.Limits.Global.limits(),
		Defaults:        map[limit.Kind]limit.Limits{},
		Envelope:        c.PolicyEnvelope(),
		PolicyHeader:    c.Policies.Header,
		StormPermille:   c.stormPermille(),
		SettleTimeoutMS: c.Ledger.SettleTimeoutMS,
		Currency:        c.Currency,
	}
	for _, t := range c.Tiers {
		s.Tiers = append(s.Tiers, proxy.Tier{Name: t.Name, Limits: t.limits()})
	}
	for name, r := range c.Limits.Defaults {
		s.Defaults[kinds[name]] = r.limits()
	}
	for _, name := range c.Limits.Dimensions {
		s.Dimensions = append(s.Dimensions, kinds[name])
	}
	for _, l := range c.Policies.Labels {
		s.Labels = append(s.Labels, proxy.Label(l))
	}
	return s
}

// stormPermille is the most a key's QPS can be raised by a policy: the cheap look may refuse only beyond it. A policy
// that may lift limits or drop the key dimension switches the look off.
func (c *Config) stormPermille() uint32 {
	most := uint64(0)
	for _, e := range append(slices.Collect(maps.Values(c.Policies.TierEnvelopes)), c.Policies.Envelope) {
		if e.MaySkipLimits || e.MayDropKey {
			return 0
		}
		most = max(most, uint64(max(e.MaxMultiplier, 1000))*uint64(max(e.MaxBurst, 1000))/1000)
	}
	return uint32(min(most, 1<<31))
}

// LimitOptions configure the limiter.
func (c *Config) LimitOptions() limit.Options {
	o := limit.Options{Algorithms: map[limit.Kind]limit.Windows{}}
	for name, w := range c.Limits.Algorithms {
		o.Algorithms[kinds[name]] = w
	}
	return o
}

// Sharing is what the gateway shares with others, but for the server and its own number.
func (c *Config) Sharing() limit.Sharing {
	s := &c.Limits.Shared
	o := limit.Sharing{Gateways: s.Gateways, Timeout: time.Duration(s.TimeoutMS) * time.Millisecond,
		Modes: map[limit.Kind]limit.Mode{}, Outages: map[limit.Kind]limit.Outage{}}
	for name, m := range s.Modes {
		o.Modes[kinds[name]] = m
	}
	for name, w := range s.Outages {
		o.Outages[kinds[name]] = w
	}
	return o
}

// LedgerOptions configure the ledger; it keeps the data folder in its currency.
func (c *Config) LedgerOptions() ledger.Options {
	o := c.Ledger
	o.Currency = c.Currency
	return o
}

// TierNames are the tiers in index order.
func (c *Config) TierNames() []string {
	names := make([]string, len(c.Tiers))
	for i, t := range c.Tiers {
		names[i] = t.Name
	}
	return names
}

// TierLimits are the tiers' limits by name.
func (c *Config) TierLimits() map[string]limit.Limits {
	tiers := map[string]limit.Limits{}
	for _, t := range c.Tiers {
		tiers[t.Name] = t.limits()
	}
	return tiers
}

// DefaultKinds are the default dimensions as policies number them.
func (c *Config) DefaultKinds() []uint8 {
	var numbers []uint8
	for _, name := range c.Limits.Dimensions {
		numbers = append(numbers, uint8(kinds[name]))
	}
	return numbers
}

// LabelNames are the names of the policy attributes 8-15.
func (c *Config) LabelNames() []string {
	names := make([]string, len(c.Policies.Labels))
	for i, l := range c.Policies.Labels {
		names[i] = l.Name
	}
	return names
}

// UpstreamModels are the models with their prices, by name.
func (c *Config) UpstreamModels() []upstream.Model {
	var models []upstream.Model
	for _, name := range slices.Sorted(maps.Keys(c.Models)) {
		m := c.Models[name].Model
		m.Name = name
		if p := c.Models[name].Price; p != nil {
			m.Priced, m.Price = true, p.price()
		}
		m.ServiceTiers = convert[uint32](c.Models[name].ServiceTiers)
		m.HostedTools = convert[llm.Micro](c.Models[name].HostedTools)
		models = append(models, m)
	}
	return models
}

// convert turns the numbers of the file into those of its readers; nil for none.
func convert[To, From ~uint32 | ~int64](given map[string]From) map[string]To {
	if len(given) == 0 {
		return nil
	}
	out := make(map[string]To, len(given))
	for name, n := range given {
		out[name] = To(n)
	}
	return out
}

func (p *Price) price() llm.Price {
	or := func(a, d *Amount) llm.Micro {
		if a == nil {
			a = d
		}
		return llm.Micro(*a)
	}
	return llm.Price{Input: llm.Micro(*p.Input), CachedInput: or(p.CachedInput, p.Input), CacheWrite: or(p.CacheWrite, p.Input),
		Output: llm.Micro(*p.Output), Request: llm.Micro(p.Request)}
}

// SlogLevel is the level as slog knows it.
func (l Log) SlogLevel() (level slog.Level) {
	_ = level.UnmarshalText([]byte(l.Level)) // validated
	return level
}

// PolicyEnvelope bounds what the operator's module may do.
func (c *Config) PolicyEnvelope() policy.Envelope { return c.Policies.Envelope.policy() }

func (e Envelope) policy() policy.Envelope {
	e.Envelope.MaxOverdraft = llm.Micro(e.MaxOverdraft)
	return e.Envelope
}

// PolicyEnvelopes bound all modules: the operator's, by tier where a tier has its own, and the orgs'.
func (c *Config) PolicyEnvelopes() policy.Envelopes {
	all := policy.Envelopes{Operator: c.PolicyEnvelope(), Tenant: c.Policies.TenantEnvelope.policy()}
	all.Tiers, all.TenantTiers = byTier(c.Policies.TierEnvelopes), byTier(c.Policies.TenantTierEnvelopes)
	return all
}

// byTier are envelopes of tiers for the host; nil for none.
func byTier(given map[string]Envelope) map[string]policy.Envelope {
	if len(given) == 0 {
		return nil
	}
	out := map[string]policy.Envelope{}
	for tier, e := range given {
		out[tier] = e.policy()
	}
	return out
}

// PolicyParams is the params document handed to the module; nil when the file gives none.
func (c *Config) PolicyParams() []byte {
	if len(c.Policies.Params) == 0 {
		return nil
	}
	raw, _ := json.Marshal(c.Policies.Params) // decoded from YAML scalars, maps and lists: always encodable
	return raw
}
