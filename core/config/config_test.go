package config

import (
	"errors"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/upstream"
)

func env(name string) (string, bool) {
	v, ok := map[string]string{"WEIR_ADMIN_TOKEN": "f00df00d-5ca1ab1e", "OPENAI_API_KEY": "sk-o", "AZURE_OPENAI_API_KEY": "az-key-1", "ANTHROPIC_API_KEY": "sk-a",
		"HALF": "0.5", "TRICK": "x\nlisten: {address: 0.0.0.0:1}"}[name]
	return v, ok
}

const valid = `admin: {token: "${WEIR_ADMIN_TOKEN}"}` + "\n"

// TestExampleDocumentsEverySetting loads the example and looks for every key that the struct can read.
func TestExampleDocumentsEverySetting(t *testing.T) {
	c, err := Load("../../examples/weir.yaml", env)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../examples/weir.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range fieldNames(reflect.TypeFor[Config](), nil) {
		if !regexp.MustCompile(`(?m)[\s{,]` + regexp.QuoteMeta(name) + `:`).Match(append([]byte("\n"), text...)) {
			t.Errorf("examples/weir.yaml does not document %s", name)
		}
	}
	if c.Channels[0].Credential != "sk-o" || c.Admin.Token != "f00df00d-5ca1ab1e" {
		t.Errorf("environment variables were not expanded: %+v", c.Channels[0])
	}
}

// TestExampleOfUpstreams: channels for Azure, vLLM and Ollama, each used by a model, and connected to as the file says.
func TestExampleOfUpstreams(t *testing.T) {
	c, err := Load("../../examples/upstreams.yaml", env)
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, m := range c.UpstreamModels() {
		for _, name := range m.Channels {
			used[name] = true
		}
	}
	for _, ch := range c.Channels {
		if ch.Provider != "openai" || !used[ch.Name] || (ch.APIVersion != "") != (ch.Name == "azure-dated") {
			t.Errorf("%+v", ch)
		}
		if local := strings.Contains(ch.BaseURL, "127.0.0.1"); local != (ch.Credential == "") {
			t.Errorf("%s: %q", ch.Name, ch.Credential)
		}
	}
	if len(c.Channels) != 4 {
		t.Errorf("%d channels", len(c.Channels))
	}
}

// TestExampleShowsTheDefaults: where the example repeats a default, it is the true one.
func TestExampleShowsTheDefaults(t *testing.T) {
	got, err := Load("../../examples/weir.yaml", env)
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	got.Tokens.Encodings, want.Tokens.Encodings = nil, nil
	for name, pair := range map[string][2]any{
		"listen": {got.Listen, want.Listen}, "ledger": {got.Ledger, want.Ledger}, "upstream": {got.Upstream, want.Upstream},
		"tokens": {got.Tokens, want.Tokens}, "alerts": {got.Alerts, want.Alerts}, "log": {got.Log, want.Log}, "data": {got.Data, want.Data}, "currency": {got.Currency, want.Currency},
		"dimensions": {got.Limits.Dimensions, want.Limits.Dimensions}, "admin.address": {got.Admin.Address, want.Admin.Address},
		"profile": {got.Policies.Profile, want.Policies.Profile}, "max_multiplier": {got.Policies.Envelope.MaxMultiplier, want.Policies.Envelope.MaxMultiplier},
		"max_burst": {got.Policies.Envelope.MaxBurst, want.Policies.Envelope.MaxBurst}, "may_deny": {got.Policies.Envelope.MayDeny, want.Policies.Envelope.MayDeny},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s: the example says %+v, the default is %+v", name, pair[0], pair[1])
		}
	}
}

func TestErrorsSayWhereAndWhat(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{valid + "lsiten: {}\n", `weir.yaml:2:1: unknown field "lsiten"; did you mean "listen"?`},
		{valid + "listen:\n  adress: x\n", `weir.yaml:3:3: unknown field "adress"; did you mean "address"?`},
		{valid + "data: a\ndata: b\n", "weir.yaml:3:1"},
		{valid + "listen:\n  body_bytes: lots\n", `weir.yaml:3:15: expected a whole number, got "lots"`},
		{valid + "channels:\n  - {name: a, provider: openai, base_url: http://h}\n  - {name: b, provider: azure, base_url: http://h}\n", `weir.yaml:4:5: channels[1]: channel "b": provider "azure"`},
		{valid + "policies: {envelope: {tiers: [gold]}}\n", "none is configured"},
		{valid + "listen:\n  body_bytes: 5\n", "weir.yaml:3:15: listen.body_bytes: 5 is out of range"},
		{valid + "listen:\n  decode: [gzip, zst]\n", `weir.yaml:3:18: listen.decode[1]: "zst" is not one of gzip, zstd; did you mean "zstd"?`},
		{valid + "listen: [\n", "weir.yaml:2"},
		{valid + "---\ndata: b\n", "one document"},
		{"admin: {token: \"${NOPE}\"}\n", "weir.yaml:1:16: environment variable NOPE is not set"},
		{"data: x\n", "no admin token is set"},
		{"admin: {token: short}\n", "at least 16"},
		{"admin: {token: changeme-changeme}\n", "is a sample"},
		{"admin: {token: aaaaaaaaaaaaaaaaaaaa}\n", "is a sample"},
		{"admin: {token: changeme-changeme-1}\n", "is a sample"},
		{valid + "currency: CNY\n", "weir.yaml:2:11: currency"},
		{valid + "ledger:\n  durability: proces\n", `weir.yaml:3:15: ledger.durability: "proces" is not one of process, power; did you mean "process"?`},
		{valid + "limits:\n  dimensions: [key, model+channel]\n", `weir.yaml:3:21: limits.dimensions[1]: "model+channel" is tested when a channel is chosen`},
		{valid + "limits:\n  dimensions: [key, modl]\n", `weir.yaml:3:21: limits.dimensions[1]: "modl"`},
		{valid + "limits:\n  dimensions: [key, key]\n", "stands twice"},
		{valid + "limits: {shared: {url: \"postgres://h/db\"}}\n", `use redis://host:6379`},
		{valid + "limits: {shared: {gateways: 0}}\n", `it takes 1 to 1000`},
		{valid + "limits: {shared: {modes: {model: exact}}}\n", `model is used by several orgs`},
		{valid + "limits: {shared: {modes: {key: exat}}}\n", `did you mean "exact"?`},
		{valid + "limits: {shared: {outages: {kye: admit}}}\n", `did you mean "key"?`},
		{valid + "limits:\n  algorithms:\n    key: {qps: slidng}\n", `did you mean "sliding"?`},
		{valid + "limits:\n  global: {qps: -1}\n", "weir.yaml:3:17: limits.global.qps: -1 is out of range"},
		{valid + "tiers: [{name: a}, {name: a}]\n", `weir.yaml:2:27: tiers[1].name: tier "a" stands twice`},
		{valid + "models:\n  m: {channels: [nowhere]}\n", "nowhere"},
		{valid + "models:\n  m:\n    price: {input_per_1m: 0.0000001, output_per_1m: 1}\n", "six decimals"},
		{valid + "policies: {labels: [{name: a, source: kee}]}\n", `did you mean "key"?`},
		{valid + "listen: {address: nowhere}\n", "host:port"},
		{valid + "listen: {address: \"127.0.0.1:99999\"}\n", "host:port"},
		{valid + "listen: {address: \"localhost:3001\"}\n", "an address of its own"},
		{valid + "limits: {global: {qps: 0.5}}\n", `weir.yaml:2:24: expected a whole number, got "0.5"; write it like 10`},
		{valid + "limits: {global: {concurrency: 010}}\n", `expected a whole number, got "010"; write it like 10`},
		{valid + "limits: {global: {tpm: -0.5}}\n", `expected a whole number, got "-0.5"; write it like 10`},
		{valid + "limits: {global: {tpm: 0x10}}\n", `expected a whole number, got "0x10"; write it like 10`},
		{valid + "limits: {global: {qps: \"0.5\"}}\n", `weir.yaml:2:24: expected a whole number, got "0.5"; write it like 10`},
		{valid + "limits:\n  global:\n    qps: ${HALF}\n", `weir.yaml:4:10: expected a whole number, got "0.5"; write it like 10`},
		{valid + "limits: {defaults: {ip: &a {qps: 1e3}}}\n", `expected a whole number, got "1e3"; write it like 10`},
		{valid + "tiers: [{name: a, qps: \"010\"}]\n", `expected a whole number, got "010"; write it like 10`},
		{valid + "alerts: {at: [!!float 50.5]}\n", `expected a whole number, got "50.5"; write it like 10`},
		{valid + "models: {m: {labels: {a: 1.50}}}\n", "1.50 is not a plain whole number such as 10; quote it if it is meant as text"},
		{valid + "limits: {global: {qps: 9999999999999999999}}\n", "weir.yaml:2:24: 9999999999999999999 is out of range"},
		{valid + "policies: {envelope: {max_multiplier: -1}}\n", "-1 is out of range; it takes 0 or more"},
		{valid + "models:\n  m: {free: true, service_tiers: {flex: 0.0001}}\n", "0.001 to 1000"},
		{valid + "models:\n  m: {free: true, hosted_tools: {web_search: 0.0000001}}\n", "six decimals"},
		{valid + "models:\n  m: {free: true, hosted_tools: {code_interpreter: 1}}\n", "not charged by the call"},
		{valid + "models:\n  m: {free: true, stored: alow}\n", "did you mean \"allow\"?"},
		{valid + "models:\n  m: {free: true, max_tool_calls: -1}\n", "max_tool_calls"},
		{valid + "models:\n  m: {free: true, service_tiers: {standard: 2}}\n", "is the price itself"},
		{valid + "models:\n  m:\n    price: {input_per_1m: 1000}\n", "both input_per_1m and output_per_1m"},
		{valid + "models:\n  m: {free: true, price: {input_per_1m: 1, output_per_1m: 1}}\n", "take one of the two away"},
		{valid + "models:\n  m: {price: {input_per_1m: 1, output_per_1m: 1, cache_write_per_1m: -1}}\n", "not negative"},
		{valid + "models:\n  m: {price: {input_per_1m: 1, output_per_1m: 100000000.000001}}\n", "at most 100000000, not 100000000.000001"},
		{valid + "tiers: [{name: pro}]\npolicies: {tenant_tier_envelopes: {prro: {}}}\n", "pro"},
		{valid + "tiers: [{name: pro}]\npolicies: {tenant_tier_envelopes: {pro: {max_multiplier: 2000000}}}\n", "policies.tenant_tier_envelopes.pro.max_multiplier"},
		{valid + "policies: {envelope: {max_overdraft: -1}}\n", "out of range"},
		{valid + "policies: {labels: [{name: a, source: key}, {name: a, source: key}]}\n", `label "a" stands twice`},
		{valid + "data: redis://x\n", `"redis" is not known`},
		{valid + "data: postgres://weir:hunter2@db\n", "weir.yaml:2:7: data: the URL names no database"},
		{valid + "data: postgres://weir:hun/hunter2@db/weir\n", "percent-encoded"},
		{valid + "data: postgresql://weir:1/hunter2@db/weir\n", "percent-encoded"},
		{valid + "data: config.go\n", "config.go is a file"},
		{valid + "data: badger://rel\n", "weir.yaml:2:7: data: badger:// takes an absolute folder"},
		{valid + "channels:\n  - {name: a, provider: openai, base_url: http://h, weight: 0}\n", "weir.yaml:3:61: channels[0].weight: 0 is out of range; it takes 1 to 1000"},
		{valid + "channels:\n  - {name: a, provider: openai, base_url: http://h, weight: -5}\n", "weight -5; expected 1 to 1000"},
		{valid + "alerts: {at: [50, 50]}\n", "weir.yaml:2:14: alerts.at: at: 50 stands twice"},
		{valid + "alerts: {url: \"http://169.254.169.254/\", secret: 0123456789abcdef}\n", "weir.yaml:2:15: alerts.url: url: 169.254.169.254"},
		{"admin: {token: replace-me-with-a-long-token}\n", "is a sample"},
		{"admin: {token: ${WEIR_ADMIN_TOKEN}}\n", `weir.yaml:1:17: ',' or '}' must be specified; within {} and [] a ${NAME} has to be quoted, as in "${NAME}"`},
		{valid + "channels:\n  - {name: ä, credential: x${X}y, state: enabled}\n", `a ${NAME} has to be quoted`},
		{valid + "alerts: {at: [${X}]}\n", `a ${NAME} has to be quoted`},
		{"admin: {token: \"0123456789abcdefg \"}\n", "blank"},
		{valid + "listen: {address: 127.0.0.1:3001}\n", "an address of its own"},
		{valid + "tokens: {encodings: {x: p50k}}\n", "cl100k, o200k"},
	} {
		_, err := Parse("weir.yaml", []byte(c.text), env)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\ngives %v\nwant  %s", c.text, err, c.want)
		} else if !regexp.MustCompile(`^weir\.yaml:\d+:\d+: `).MatchString(err.Error()) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q is not file:line:column and one line", err)
		}
	}
}

// TestByteOrderMark: what some editors put before a text is no part of it.
func TestByteOrderMark(t *testing.T) {
	if _, err := Parse("weir.yaml", []byte("\ufefflisten: {address: \"127.0.0.1:0\"}\n"+valid), env); err != nil {
		t.Error(err)
	}
}

// TestNotes: a limit that nothing tests is told; the example has none, and neither has what an object carries and is tested.
func TestNotes(t *testing.T) {
	example, err := Load("../../examples/weir.yaml", env)
	if err != nil || len(example.Notes()) > 0 {
		t.Errorf("%v, %v", example.Notes(), err)
	}
	const limits = "limits: {global: {qps: 1}, defaults: {ip: {qps: 1}, user: {qps: 0}, custom: {qps: 1}}, dimensions: ["
	const models = "models: {m: {free: true, qps_limit: 5}}\n"
	for text, want := range map[string][]string{
		"":                                                   nil,
		"limits: {dimensions: [key]}\n":                      nil,
		"limits: {dimensions: [model]}\n":                    {"limits.dimensions has no key, so the limits of keys and tiers hold only"},
		"limits: {dimensions: []}\n":                         {"no key"},
		limits + "key, model]}\n" + models:                   {"no global, so limits.global", "no ip, so limits.defaults.ip"},
		limits + "key, global, ip]}\n" + models:              {"no model, so the limits of models"},
		limits + "key, global, ip, model]}\n" + models:       nil,
		"limits: {dimensions: [global, key+model, model]}\n": {"no key"},
		"limits: {defaults: {org: {concurrency: 3}}}\n":      {"no org, so limits.defaults.org"},
	} {
		c, err := Parse("weir.yaml", []byte(valid+text), env)
		if err != nil {
			t.Fatal(err)
		}
		notes := c.Notes()
		if len(notes) != len(want) {
			t.Errorf("%s: %q", text, notes)
			continue
		}
		for i := range want {
			if !strings.Contains(notes[i], want[i]) {
				t.Errorf("%s: %q, want %q", text, notes[i], want[i])
			}
		}
	}
}

// TestAtPlacesWhatIsFoundLater: the setting itself, or the nearest block that the file has.
func TestAtPlacesWhatIsFoundLater(t *testing.T) {
	c, err := Parse("weir.yaml", []byte(valid+"policies:\n  params:\n    rules:\n      - {when: 1}\n"), env)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"policies.params.rules[0].when": "weir.yaml:5:16: policies.params.rules[0].when: no",
		"policies.params.rules[0].then": "weir.yaml:5:9: policies.params.rules[0].then: no",
		"policies.module":               "weir.yaml:3:3: policies.module: no",
		"tiers":                         "weir.yaml:1:1: tiers: no",
	} {
		if got := c.At(path, errors.New("no")).Error(); got != want {
			t.Errorf("%s is placed as %q, want %q", path, got, want)
		}
	}
	if got := Default().At("tiers", errors.New("no")).Error(); got != "tiers: no" {
		t.Errorf("without a file: %q", got)
	}
}

// TestEnvironmentCannotAddStructure: a secret with YAML in it stays one scalar.
func TestEnvironmentCannotAddStructure(t *testing.T) {
	c, err := Parse("weir.yaml", []byte(valid+"data: ${TRICK}\n"), env)
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen.Address != "127.0.0.1:3000" || !strings.HasPrefix(c.Data, "x\nlisten") {
		t.Errorf("the value leaked into the structure: %+v", c.Listen)
	}
}

func TestPricesAreExact(t *testing.T) {
	c, err := Parse("weir.yaml", []byte(valid+`
channels: [{name: c, provider: openai, base_url: http://127.0.0.1:1}]
models:
  m: {price: {input_per_1m: 1.08, output_per_1m: "4.32", per_request: 0.000001}, labels: {hot: "yes"}, qps_limit: 3}
  free: {free: true}
  tiered: {free: true, service_tiers: {flex: 0.5, priority: "1.75", auto: 2}, hosted_tools: {web_search: 0.07, mcp: 0}, max_tool_calls: 3}
`), env)
	if err != nil {
		t.Fatal(err)
	}
	models := c.UpstreamModels()
	want := upstream.Model{Name: "m", Priced: true, QPSLimit: 3, Labels: map[string]string{"hot": "yes"},
		Price: llm.Price{Input: 1_080_000, CachedInput: 1_080_000, CacheWrite: 1_080_000, Output: 4_320_000, Request: 1}}
	tiers := map[string]uint32{"flex": 500, "priority": 1750, "auto": 2000}
	tools := map[string]llm.Micro{"web_search": 70_000, "mcp": 0}
	if len(models) != 3 || !reflect.DeepEqual(models[2].HostedTools, tools) || models[2].MaxToolCalls != 3 || !reflect.DeepEqual(models[2].ServiceTiers, tiers) || models[0].Name != "free" || models[0].Priced || !reflect.DeepEqual(models[1], want) {
		t.Errorf("got %+v\nwant %+v", models, want)
	}
}

func TestKnownModels(t *testing.T) {
	models := KnownModels()
	if len(models) != 12 {
		t.Errorf("%d known models, want 12", len(models))
	}
	for name, m := range models {
		if m.Price == nil || *m.Price.Input <= 0 {
			t.Errorf("%s has no price", name)
		}
	}
}

func TestShowHidesSecrets(t *testing.T) {
	c, err := Load("../../examples/weir.yaml", env)
	if err != nil {
		t.Fatal(err)
	}
	c.Data = "postgres://weir:opens-the-books@db.example.com/weir?sslpassword=opens-the-key"
	c.Limits.Shared.URL = "redis://weir:opens-the-windows@cache.example.com:6379/0"
	c.Alerts.Secret, c.Alerts.URL = "signs-the-alerts", "https://ops:opens-the-hook@example.com/hook"
	text, err := yaml.Marshal(c.Redacted())
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"f00d", "sk-o", "sk-a", "signs-the-alerts", "opens-the-hook", "opens-the-books", "opens-the-key", "opens-the-windows"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("show prints %s", secret)
		}
	}
	if !strings.Contains(string(text), "postgres://db.example.com/weir\n") {
		t.Errorf("show does not name the database: %s", text)
	}
	if !strings.Contains(string(text), "redis://cache.example.com:6379/0\n") {
		t.Errorf("show does not name the server of windows: %s", text)
	}
	if c.Channels[0].Credential != "sk-o" || c.Alerts.Secret != "signs-the-alerts" {
		t.Error("redacting changed the configuration itself")
	}
}

func TestStormLook(t *testing.T) {
	c := Default()
	if got := c.Settings().StormPermille; got != 10_000 {
		t.Errorf("storm look at %d/1000, want multiplier 2 x burst 5", got)
	}
	c.Policies.Envelope.MaySkipLimits = true
	if got := c.Settings().StormPermille; got != 0 {
		t.Errorf("storm look at %d/1000 though a policy may lift limits; want it off", got)
	}
}
