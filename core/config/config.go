// Package config is weir.yaml: one struct made of each package's Options. Load is the only way in, so that
// `weir config check` accepts exactly what `weir serve` accepts.
//
// A file is read in four steps, each of which can only fail with file:line:column: parse (YAML syntax, duplicate
// keys), expand (${NAME} inside scalars, after parsing, so that a secret can never add structure), decode (strictly:
// an unknown key names its nearest neighbour, and no number is rounded), validate (ranges, references between blocks).
// Defaults are filled in before decoding; a Config that Load returned is complete.
package config

import (
	"github.com/goccy/go-yaml/ast"
	"github.com/weir-gateway/weir/core/alert"
	"github.com/weir-gateway/weir/core/cert"
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/core/proxy"
	"github.com/weir-gateway/weir/core/tokens"
	"github.com/weir-gateway/weir/core/upstream"
)

// Config is everything weir.yaml can say. examples/weir.yaml documents each field with its unit and default.
type Config struct {
	Listen   Listen             `yaml:"listen"`
	Admin    Admin              `yaml:"admin"`
	Data     string             `yaml:"data"`
	Currency string             `yaml:"currency"`
	Ledger   ledger.Options     `yaml:"ledger"`
	Upstream upstream.Options   `yaml:"upstream"`
	Limits   Limits             `yaml:"limits"`
	Tiers    []Tier             `yaml:"tiers"`
	Models   map[string]Model   `yaml:"models"`
	Channels []upstream.Channel `yaml:"channels"`
	Policies Policies           `yaml:"policies"`
	Tokens   tokens.Options     `yaml:"tokens"`
	Alerts   alert.Options      `yaml:"alerts"`
	Log      Log                `yaml:"log"`

	source source
}

// source is the file that a Config was read from; zero: none.
type source struct {
	name string
	file *ast.File
}

// Listen is the client listener.
type Listen struct {
	Address       string     `yaml:"address"`
	TLS           cert.Files `yaml:"tls"`
	DrainMS       int64      `yaml:"drain_ms"` // how long open requests may take to end at a stop
	proxy.Options `yaml:",inline"`
}

// Admin is the operator's listener.
type Admin struct {
	Address string     `yaml:"address"`
	TLS     cert.Files `yaml:"tls"`
	Token   string     `yaml:"token"`
}

// Log configures the log on stderr.
type Log struct {
	Level  string `yaml:"level"`  // debug | info | warn | error
	Format string `yaml:"format"` // text | json
}

// Rates are the three limits of one thing; 0 is unlimited.
type Rates struct {
	QPS         int64 `yaml:"qps"`
	TPM         int64 `yaml:"tpm"`
	Concurrency int64 `yaml:"concurrency"`
}

// Limits are the limits that belong to no object.
type Limits struct {
	Global     Rates                    `yaml:"global"`
	Dimensions []string                 `yaml:"dimensions"`
	Defaults   map[string]Rates         `yaml:"defaults"`
	Algorithms map[string]limit.Windows `yaml:"algorithms"`
	Shared     Shared                   `yaml:"shared"`
}

// Shared is the server of the windows that several gateways share; without a URL there is none.
type Shared struct {
	URL       string                  `yaml:"url"`
	Gateways  int                     `yaml:"gateways"`
	TimeoutMS int64                   `yaml:"timeout_ms"`
	Modes     map[string]limit.Mode   `yaml:"modes"`
	Outages   map[string]limit.Outage `yaml:"outages"`
}

// Tier is a named set of limits.
type Tier struct {
	Name  string `yaml:"name"`
	Rates `yaml:",inline"`
}

// Model is one model of the file; its name is the key of the map.
type Model struct {
	upstream.Model `yaml:",inline"`
	Price          *Price            `yaml:"price"`         // absent: no price
	ServiceTiers   map[string]Factor `yaml:"service_tiers"` // of the price
	HostedTools    map[string]Amount `yaml:"hosted_tools"`  // price of a call
}

// Price is in decimal units of the currency: per million tokens of each class, and per request.
type Price struct {
	Input       *Amount `yaml:"input_per_1m"`
	CachedInput *Amount `yaml:"cached_input_per_1m"` // absent: as input
	CacheWrite  *Amount `yaml:"cache_write_per_1m"`  // absent: as input
	Output      *Amount `yaml:"output_per_1m"`
	Request     Amount  `yaml:"per_request"`
}

// Policies say which module serves, and how far it may go.
type Policies struct {
	Module   string         `yaml:"module"`  // a shipped name, or a path to a .wasm file; empty: none
	Profile  string         `yaml:"profile"` // small | large
	Params   map[string]any `yaml:"params"`
	OnError  policy.OnError `yaml:"on_error"`
	Labels   []Label        `yaml:"labels"`
	Envelope Envelope       `yaml:"envelope"`

	TierEnvelopes       map[string]Envelope `yaml:"tier_envelopes"`        // instead of envelope, for keys of a tier
	TenantEnvelope      Envelope            `yaml:"tenant_envelope"`       // what orgs' own modules may loosen
	TenantTierEnvelopes map[string]Envelope `yaml:"tenant_tier_envelopes"` // instead of tenant_envelope, for keys of a tier
	Header              bool                `yaml:"header"`                // answers carry X-Weir-Policy, X-Weir-Rule and X-Weir-Tenant-Rule
	DecisionLog         DecisionLog         `yaml:"decision_log"`
}

// DecisionLog is a sample of the decisions, in a file.
type DecisionLog struct {
	Path   string `yaml:"path"`   // NDJSON is appended; empty: no log
	Sample int    `yaml:"sample"` // one request in so many
	MaxMB  int    `yaml:"max_mb"` // of the file; before it is larger it becomes PATH.1
}

// Label maps one of the policy attributes 8-15.
type Label struct {
	Name   string `yaml:"name"`
	Source string `yaml:"source"` // key | model | header
	Field  string `yaml:"field"`  // empty: the name
}

// Envelope is policy.Envelope with money in units.
type Envelope struct {
	policy.Envelope `yaml:",inline"`
	MaxOverdraft    Amount `yaml:"max_overdraft"`
}

// Amount is money in decimal units of the currency, read exactly.
type Amount llm.Micro

// UnmarshalYAML implements yaml.NodeUnmarshaler on the text as it stands, so that no float is in between.
func (a *Amount) UnmarshalYAML(node ast.Node) error {
	t := node.GetToken()
	m, err := llm.ParseMicro(t.Value)
	if err != nil {
		return &Error{Line: t.Position.Line, Column: t.Position.Column, Message: err.Error()}
	}
	*a = Amount(m)
	return nil
}

// Factor multiplies a price, in 1/1000, read exactly.
type Factor uint32

// UnmarshalYAML implements yaml.NodeUnmarshaler, as Amount does.
func (f *Factor) UnmarshalYAML(node ast.Node) error {
	t := node.GetToken()
	n, err := llm.ParseFactor(t.Value)
	if err != nil {
		return &Error{Line: t.Position.Line, Column: t.Position.Column, Message: err.Error()}
	}
	*f = Factor(n)
	return nil
}

// MarshalYAML writes the factor as it would be typed.
func (f Factor) MarshalYAML() ([]byte, error) { return []byte(llm.Factor(uint32(f))), nil }

// MarshalYAML writes the amount as it would be typed.
func (a Amount) MarshalYAML() ([]byte, error) { return []byte(llm.Micro(a).String()), nil }
