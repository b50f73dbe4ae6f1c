package config

import (
	_ "embed"

	"github.com/goccy/go-yaml"
	"github.com/weir-gateway/weir/core/alert"
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/core/proxy"
	"github.com/weir-gateway/weir/core/tokens"
	"github.com/weir-gateway/weir/core/upstream"
)

// Default is a configuration with every default filled in and no objects: what an empty file means.
func Default() *Config {
	var counting tokens.Options
	counting.Defaults()
	return &Config{
		Listen: Listen{
			Address: "127.0.0.1:3000",
			DrainMS: 30_000,
			Options: proxy.Options{BodyBytes: 32 << 20, BodiesBytes: 512 << 20, HeaderBytes: 16 << 10, Connections: 10_000,
				ReadTimeoutMS: 30_000, WriteTimeoutMS: 30_000, HeadTimeoutMS: 8_000, HeartbeatMS: 10_000, Decode: []string{}},
		},
		Admin:    Admin{Address: "127.0.0.1:3001"},
		Data:     "./data",
		Currency: "cny",
		Ledger:   ledger.Options{Durability: ledger.Process, SettleTimeoutMS: ledger.DefaultSettleTimeoutMS, StallMS: ledger.DefaultStallMS, QueueEntries: ledger.DefaultQueueEntries},
		Upstream: upstream.Options{}.Defaults(),
		Limits:   Limits{Dimensions: []string{"key", "model", "global"}, Shared: Shared{Gateways: 3, TimeoutMS: 5}},
		Policies: Policies{
			Profile:  "small",
			OnError:  policy.OnErrorDefault,
			Envelope: Envelope{Envelope: policy.Envelope{MaxMultiplier: 2_000, MaxBurst: 5_000, MaxCustomDims: 4, MinPrice: 1_000, MayDeny: true}},

			TenantEnvelope: Envelope{Envelope: policy.Envelope{MaxMultiplier: 1_000, MaxBurst: 1_000, MaxCustomDims: 2}},
			DecisionLog:    DecisionLog{Sample: 1_000, MaxMB: 64},
		},
		Tokens: counting,
		Alerts: alert.Options{At: alert.DefaultAt()},
		Log:    Log{Level: "info", Format: "text"},
	}
}

//go:embed models.yaml
var knownModels []byte

// KnownModels are twelve well-known models with their list prices in CNY, as `weir demo` seeds them. Check them
// against your own contract before you bill by them.
func KnownModels() map[string]Model {
	var models map[string]Model
	if err := yaml.UnmarshalWithOptions(knownModels, &models, yaml.Strict()); err != nil {
		panic("models.yaml: " + err.Error()) // embedded: a broken build, found by the first test
	}
	return models
}
