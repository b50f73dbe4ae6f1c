package admin_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/admin"
	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
)

func TestOrgs(t *testing.T) {
	f := newFixture(t)
	f.ok("POST", "/admin/orgs", j{"name": "Acme", "qpsLimit": 5}).has(t, "id", 1, "name", "Acme", "qpsLimit", 5, "tpmLimit", 0)
	f.ok("PATCH", "/admin/orgs/1", j{"tpmLimit": 9}).has(t, "qpsLimit", 5, "tpmLimit", 9)
	f.ok("PATCH", "/admin/orgs/1", nil).has(t, "qpsLimit", 5)
	f.ok("GET", "/admin/orgs/1", nil).has(t, "tpmLimit", 9)
	f.refused(404, "GET", "/admin/orgs/2", nil, "no org 2")
	f.refused(404, "GET", "/admin/orgs/x", nil, "ids are numbers")
	f.refused(404, "GET", "/admin/keys/sk-weir-abcdefgh-0123456789", nil, `no key "sk-[hidden]"`)
	f.ok("POST", "/admin/users", j{"orgId": 1, "name": "alice"})
	f.refused(409, "DELETE", "/admin/orgs/1", nil, "still has 1 user,")
	f.ok("DELETE", "/admin/users/1", nil)
	f.ok("DELETE", "/admin/orgs/1", nil).has(t, "deleted", true)
	f.refused(404, "DELETE", "/admin/orgs/1", nil)
	f.ok("POST", "/admin/orgs", j{"name": "Other"}).has(t, "id", 2) // ids are never used again
}

func TestUsers(t *testing.T) {
	f := newFixture(t)
	f.ok("POST", "/admin/orgs", j{"name": "Acme"})
	f.ok("POST", "/admin/users", j{"orgId": 1, "name": "alice", "balanceCny": "100.5", "qpsLimit": 7}).
		has(t, "id", 1, "balanceCny", "100.5", "balanceMicroCny", 100_500_000, "availableCny", "100.5", "heldCny", 0)
	f.ok("POST", "/admin/users", j{"orgId": 1, "name": "bob"}).has(t, "balanceCny", 0)
	f.ok("POST", "/admin/users", j{"orgId": 1, "name": "carol", "balanceCny": nil}).has(t, "balanceCny", nil, "heldMicroCny", nil)
	f.refused(400, "POST", "/admin/users", j{"orgId": 5, "name": "x"}, "no org 5")
	f.refused(400, "POST", "/admin/users", j{"orgId": 1, "name": "x", "balanceCny": -1}, "at least 0")
	f.refused(400, "PATCH", "/admin/users/1", j{"balanceCny": 5}, "POST /admin/users/1/balance", "deltaCny")
	f.refused(400, "PATCH", "/admin/users/1", j{"orgId": 1}, "stays in its org")
	f.ok("PATCH", "/admin/users/1", j{"name": "Alice"}).has(t, "name", "Alice", "qpsLimit", 7, "balanceCny", "100.5")
	f.ok("GET", "/admin/users/1", nil).has(t, "overrun", "debt")
	f.refused(400, "PATCH", "/admin/users/1", j{"overrun": "clipp"}, `overrun: expected debt, clip or cut, got "clipp"; did you mean "clip"?`)
	f.refused(400, "PATCH", "/admin/users/1", j{"overrun": ""}, "expected debt, clip or cut")
	f.refused(400, "PATCH", "/admin/users/1", j{"overrun": "never"}, "expected debt, clip or cut").has(t, "error.message", `overrun: expected debt, clip or cut, got "never"`)
	f.ok("PATCH", "/admin/users/1", j{"overrun": "cut"}).has(t, "overrun", "cut")
	if u, _ := f.dir.User(1); u.Overrun != "cut" {
		t.Errorf("the directory has %+v", u)
	}
	if u, _ := f.dir.User(3); !u.Unmetered {
		t.Error("carol is metered")
	}
	a := f.ok("GET", "/admin/users?orgId=1&limit=2", nil)
	a.has(t, "data.0.name", "Alice", "data.1.name", "bob", "data.2", nil, "nextCursor", 2)
	f.ok("GET", "/admin/users?orgId=1&limit=2&cursor=2", nil).has(t, "data.0.name", "carol", "nextCursor", nil)
	f.ok("GET", "/admin/users?orgId=2", nil).has(t, "data.0", nil)
}

func TestKeyLife(t *testing.T) {
	f := newFixture(t)
	plaintext := f.account()
	c, err := f.dir.Resolve([]byte(plaintext))
	if err != nil || c.Key.ID != 1 || c.User.Name != "alice" || c.Org.Name != "Acme" || c.Key.QPSLimit != 2 {
		t.Fatalf("%+v %v", c, err)
	}
	a := f.ok("GET", "/admin/keys/1", nil)
	a.has(t, "name", "throttled", "monthlyQuotaCny", 10000, "monthlyQuotaMicroCny", 10_000_000_000, "timezone", "UTC", "expiresAt", nil, "plaintext", nil)
	secret := plaintext[17:]
	for _, path := range []string{"/admin/keys/1", "/admin/keys", "/admin/audit"} {
		if raw := f.ok("GET", path, nil).raw; strings.Contains(raw, secret) || strings.Contains(raw, "hash\":\"\"") {
			t.Errorf("%s shows the secret", path)
		}
	}
	if !strings.HasPrefix(plaintext, fmt.Sprint(a.at("preview"))[:16]) {
		t.Errorf("preview %v", a.at("preview"))
	}
	f.ok("PATCH", "/admin/keys/1", j{"labels": j{"tier": "gold"}, "models": []string{"gpt-*"}, "tier": "x", "expiresInDays": 1}).
		has(t, "qpsLimit", 2, "labels.tier", "gold", "models.0", "gpt-*", "expiresAt", "2026-11-06T12:00:00.000Z")
	if c, _ := f.dir.Resolve([]byte(plaintext)); c.Key.Labels["tier"] != "gold" {
		t.Errorf("%+v", c)
	}
	f.clock.Advance(24 * time.Hour)
	if !f.unauthorized(plaintext) {
		t.Error("expired and resolved")
	}
	f.ok("PATCH", "/admin/keys/1", j{"expiresInDays": nil, "tier": nil}).has(t, "expiresAt", nil, "tier", nil)
	if f.unauthorized(plaintext) {
		t.Error("still expired")
	}
	f.refused(400, "PATCH", "/admin/keys/1", j{"userId": 2}, "stays with its user")
	f.refused(409, "DELETE", "/admin/users/1", nil, "still has 1 key,")
	f.ok("DELETE", "/admin/keys/1", nil)
	if !f.unauthorized(plaintext) {
		t.Error("deleted and resolved")
	}
	f.refused(404, "GET", "/admin/keys/1/usage-window", nil, "no key 1")
}

func TestLimitsAbsentStaysZeroIsUnlimited(t *testing.T) {
	f := newFixture(t)
	token := f.account()
	f.ok("POST", "/admin/keys/1/limits", j{"qpsLimit": 0, "tpmLimit": 50}).has(t, "qpsLimit", 0, "tpmLimit", 50, "monthlyQuotaCny", 10000)
	c, _ := f.dir.Resolve([]byte(token))
	if auth.Own(c.Key.QPSLimit, 7) != 0 || c.Key.TPMLimit != 50 {
		t.Errorf("%+v", c.Key)
	}
	f.ok("POST", "/admin/keys/1/limits", j{"tpmLimit": 0, "monthlyQuotaCny": 0.00001, "concurrencyLimit": 3}).
		has(t, "tpmLimit", 0, "monthlyQuotaMicroCny", 10, "monthlyQuotaCny", "0.00001", "concurrencyLimit", 3)
	f.ok("POST", "/admin/keys/1/limits", `{"monthlyQuotaCny":1e-5}`).has(t, "monthlyQuotaMicroCny", 10)
	f.ok("POST", "/admin/keys/1/limits", `{"monthlyQuotaCny":1.5e3}`).has(t, "monthlyQuotaMicroCny", 1_500_000_000)
	f.ok("POST", "/admin/keys/1/limits", `{"monthlyQuotaCny":0}`).has(t, "monthlyQuotaMicroCny", 0)
	f.refused(400, "POST", "/admin/keys/1/limits", j{"name": "x"}, `"name"`)
	f.refused(400, "POST", "/admin/keys/1/limits", j{"qpsLimit": -1}, "qpsLimit")
	f.refused(404, "POST", "/admin/keys/9/limits", j{"qpsLimit": 1}, "no key 9")
}

func TestUsageWindow(t *testing.T) {
	f := newFixture(t)
	f.account()
	claim := limit.Claim{Caller: limit.Caller{Org: 1, User: 1, Key: 1}, N: 1, Input: 10, Output: 20}
	claim.Dims[0] = limit.Dim{ID: limit.ID{Kind: limit.Key, Scope: 1}, Base: limit.Limits{QPS: 2, TPM: 1000}, Effective: limit.Limits{QPS: 2, TPM: 1000}}
	claim.Money = limit.Money{Billed: true, Balance: true, Quotas: [llm.Windows]limit.Quota{{Label: 202611, Limit: 1 << 40}}}
	claim.Money.Price.Request = 7
	res, denial, err := f.limiter.Reserve(t.Context(), &claim)
	if err != nil || denial != nil {
		t.Fatal(denial, err)
	}
	f.ok("GET", "/admin/keys/1/usage-window", nil).has(t, "keyId", 1, "qps.limit", 2, "qps.current", 1, "tpm.limit", 1000, "tpm.currentTokens", 30,
		"tpm.heldTokens", 30, "monthly.limitMicroCny", 10_000_000_000, "monthly.usedMicroCny", 0, "monthly.heldMicroCny", 7, "monthly.limitCny", 10000,
		"monthly.usedCny", 0, "monthly.resetAt", "2026-12-01T00:00:00Z", "monthly.period", "2026-11", "balance.heldMicroCny", 7, "balance.balanceCny", 100,
		"abnormalUsage", false)
	storm := claim
	storm.Dims[0].Effective.QPS = 1
	for range 20 {
		if _, denial, err := f.limiter.Reserve(t.Context(), &storm); err != nil || denial == nil {
			t.Fatal("admitted", err)
		}
	}
	f.ok("GET", "/admin/keys/1/usage-window", nil).has(t, "abnormalUsage", true, "qps.current", 1)
	f.refused(409, "DELETE", "/admin/users/1", nil) // it has a key
	f.ok("DELETE", "/admin/keys/1", nil)
	f.refused(409, "DELETE", "/admin/users/1", nil, "held by open requests")
	res.Sent("c")
	res.Release()
	f.ok("GET", "/admin/users/1", nil).has(t, "balanceMicroCny", 100_000_000-7, "heldCny", 0)
	f.ok("DELETE", "/admin/users/1", nil)
}

func TestUsageWindowWithoutLimits(t *testing.T) {
	f := openFixture(t, admin.Options{Currency: "usd", Tiers: map[string]limit.Limits{"free": {QPS: 3, TPM: 30}}})
	f.ok("POST", "/admin/orgs", j{"name": "Acme"})
	f.ok("POST", "/admin/users", j{"orgId": 1, "name": "alice", "balanceUsd": nil})
	f.refused(400, "POST", "/admin/keys", j{"userId": 1, "name": "k", "tier": "fre"}, `did you mean "free"?`)
	f.ok("POST", "/admin/keys", j{"userId": 1, "name": "k", "timezone": "Asia/Shanghai", "tier": "free", "tpmLimit": 7})
	f.ok("GET", "/admin/keys/1/usage-window", nil).has(t, "monthly.limitMicroUsd", 0, "monthly.resetAt", "2026-12-01T00:00:00+08:00",
		"balance", nil, "qps.limit", 3, "tpm.limit", 7)
}

// In a tier, 0 is unlimited still, and null gives the limit back to the tier.
func TestZeroIsUnlimitedInATierToo(t *testing.T) {
	f := openFixture(t, admin.Options{Tiers: map[string]limit.Limits{"free": {QPS: 3, TPM: 30, Concurrency: 2}}})
	f.ok("POST", "/admin/orgs", j{"name": "Acme"})
	f.ok("POST", "/admin/users", j{"orgId": 1, "name": "alice"})
	f.ok("POST", "/admin/keys", j{"userId": 1, "name": "k", "tier": "free"}).has(t, "qpsLimit", nil, "concurrencyLimit", nil)
	f.ok("POST", "/admin/keys/1/limits", j{"qpsLimit": 0, "tpmLimit": 0}).has(t, "qpsLimit", 0, "tpmLimit", 0, "concurrencyLimit", nil)
	f.restart()
	f.ok("GET", "/admin/keys/1/usage-window", nil).has(t, "qps.limit", 0, "tpm.limit", 0, "concurrency.limit", 2)
	f.ok("PATCH", "/admin/keys/1", j{"qpsLimit": nil}).has(t, "qpsLimit", nil, "tpmLimit", 0)
	f.ok("GET", "/admin/keys/1/usage-window", nil).has(t, "qps.limit", 3, "tpm.limit", 0)
}

func TestM12TimezoneChangesAtTheMonthsEnd(t *testing.T) {
	f := newFixture(t)
	f.account()
	f.ok("PATCH", "/admin/keys/1", j{"timezone": "Asia/Tokyo"}).has(t, "timezone", "UTC", "nextTimezone", "Asia/Tokyo", "nextTimezoneAt", "2026-12-01T00:00:00.000Z")
	f.ok("GET", "/admin/keys/1/usage-window", nil).has(t, "monthly.timezone", "UTC")
	f.ok("PATCH", "/admin/keys/1", j{"timezone": "UTC"}).has(t, "nextTimezone", nil)
	f.ok("PATCH", "/admin/keys/1", j{"timezone": "Asia/Tokyo"})
	f.clock.Advance(26 * 24 * time.Hour)
	f.ok("GET", "/admin/keys/1", nil).has(t, "timezone", "Asia/Tokyo", "nextTimezone", nil)
	f.restart()
	f.ok("GET", "/admin/keys/1/usage-window", nil).has(t, "monthly.timezone", "Asia/Tokyo", "monthly.period", "2026-12")
}

func TestFixedKeyText(t *testing.T) {
	f := newFixture(t)
	f.account()
	text := "sk-weir-demodemo-" + strings.Repeat("x", 43)
	f.ok("POST", "/admin/keys", j{"userId": 1, "name": "fixed", "plaintext": text}).has(t, "id", 2, "plaintext", text, "preview", "sk-weir-demodemo-...xxxx")
	if f.unauthorized(text) {
		t.Error("does not resolve")
	}
	f.refused(409, "POST", "/admin/keys", j{"userId": 1, "name": "again", "plaintext": text}, "demodemo")
}

func TestModels(t *testing.T) {
	f := newFixture(t)
	f.ok("POST", "/admin/channels", j{"name": "main", "provider": "openai", "baseUrl": "http://127.0.0.1:9"})
	f.refused(400, "PUT", "/admin/models/gpt", j{"inputCnyPer1M": 1}, "outputCnyPer1M", "required")
	f.refused(400, "PUT", "/admin/models/gpt", j{"inputCnyPer1M": 1, "outputCnyPer1M": 2, "free": true}, "free")
	f.refused(400, "PUT", "/admin/models/gpt", j{"channels": []string{"mian"}}, "mian", "did you mean main?")
	f.refused(400, "PUT", "/admin/models/gpt", j{"inputCnyPer1M": 1, "outputCnyPer1M": 1e12}, "outputCnyPer1M", "at most 100000000,")
	f.refused(400, "PUT", "/admin/models/gpt", j{"inputUsdPer1M": 1}, `did you mean "inputCnyPer1M"?`)
	a := f.ok("PUT", "/admin/models/gpt", j{"channels": []string{"main"}, "inputCnyPer1M": 1.1, "outputCnyPer1M": "4.32", "tpmLimit": 100, "labels": j{"hot": "1"}})
	a.has(t, "cachedInputCnyPer1M", "1.1", "cacheWriteCnyPer1M", "1.1", "requestCny", 0, "priced", true, "free", false, "target", nil)
	if a.status != 201 {
		t.Errorf("created with %d", a.status)
	}
	if m, ok := f.proxy.catalog.Model([]byte("gpt")); !ok || m.TPMLimit != 100 || m.Price.Output != 4_320_000 {
		t.Errorf("the proxy has %+v", m)
	}
	// What is absent stays; cached input follows input until it has a price of its own.
	f.ok("PUT", "/admin/models/gpt", j{"inputCnyPer1M": 2}).has(t, "cachedInputCnyPer1M", 2, "outputCnyPer1M", "4.32", "tpmLimit", 100, "labels.hot", 1)
	f.ok("PUT", "/admin/models/gpt", j{"cachedInputCnyPer1M": 0.5}).has(t, "cachedInputCnyPer1M", "0.5", "inputCnyPer1M", 2)
	f.ok("PUT", "/admin/models/gpt", j{"inputCnyPer1M": 3, "target": "gpt-real"}).has(t, "cachedInputCnyPer1M", "0.5", "cacheWriteCnyPer1M", 3, "target", "gpt-real")
	f.ok("PUT", "/admin/models/gpt", j{"free": true, "target": nil}).has(t, "priced", false, "inputCnyPer1M", nil, "free", true, "target", nil)
	f.refused(400, "PUT", "/admin/models/gpt", j{"serviceTiers": j{"flex": 0.0001}}, "serviceTiers", "0.001")
	f.refused(400, "PUT", "/admin/models/gpt", j{"serviceTiers": j{"default": 2}}, "is the price itself")
	f.refused(400, "PUT", "/admin/models/gpt", j{"serviceTiers": 2}, "expected an object")
	f.ok("PUT", "/admin/models/gpt", j{"serviceTiers": j{"flex": "0.5", "priority": 2}}).has(t, "serviceTiers.flex", "0.5", "serviceTiers.priority", 2)
	f.ok("PUT", "/admin/models/gpt", j{"tpmLimit": 7}).has(t, "serviceTiers.flex", "0.5")
	if m, _ := f.proxy.catalog.Model([]byte("gpt")); len(m.ServiceTiers) != 2 || m.ServiceTiers["flex"] != 500 {
		t.Errorf("the proxy has %+v", m)
	}
	f.refused(400, "PUT", "/admin/models/gpt", j{"hostedToolsCny": j{"web_search": -1}}, "web_search", "from 0")
	f.refused(400, "PUT", "/admin/models/gpt", j{"hostedToolsCny": j{"shell": 1}}, "not charged by the call")
	f.refused(400, "PUT", "/admin/models/gpt", j{"maxToolCalls": -1}, "maxToolCalls")
	f.refused(400, "PUT", "/admin/models/gpt", j{"stored": "alow"}, "refuse, allow")
	f.ok("PUT", "/admin/models/gpt", j{"tpmLimit": 7}).has(t, "stored", "refuse")
	f.ok("PUT", "/admin/models/gpt", j{"stored": "allow"}).has(t, "stored", "allow")
	f.ok("PUT", "/admin/models/gpt", j{"hostedToolsCny": j{"web_search": "0.07", "mcp": 0}, "maxToolCalls": 4}).has(t, "hostedToolsCny.web_search", "0.07", "maxToolCalls", 4)
	if m, _ := f.proxy.catalog.Model([]byte("gpt")); len(m.HostedTools) != 2 || m.HostedTools["web_search"] != 70_000 || m.MaxToolCalls != 4 {
		t.Errorf("the proxy has %+v", m)
	}
	f.ok("PUT", "/admin/models/gpt", j{"serviceTiers": j{}}).has(t, "serviceTiers.flex", nil)
	f.ok("PUT", "/admin/models/gpt", j{"requestCny": 0.01}).has(t, "priced", true, "free", false, "requestCny", "0.01", "inputCnyPer1M", 0)
	f.ok("PUT", "/admin/models/meta-llama/Llama-3", j{"free": true}).has(t, "name", "meta-llama/Llama-3")
	f.ok("GET", "/admin/models/meta-llama%2FLlama-3", nil).has(t, "name", "meta-llama/Llama-3")
	f.ok("GET", "/admin/models?limit=1", nil).has(t, "data.0.name", "gpt", "nextCursor", "gpt")
	f.ok("GET", "/admin/models?limit=1&cursor=gpt", nil).has(t, "data.0.name", "meta-llama/Llama-3", "nextCursor", nil)
	f.refused(404, "GET", "/admin/models/gtp", nil, `did you mean "gpt"?`)
	f.refused(400, "PUT", "/admin/models/a%22b", j{"free": true}, "quotes")
	f.ok("DELETE", "/admin/models/gpt", nil).has(t, "name", "gpt", "deleted", true)
	if _, ok := f.proxy.catalog.Model([]byte("gpt")); ok {
		t.Error("the proxy still has it")
	}
	f.refused(404, "DELETE", "/admin/models/gpt", nil)
	f.ok("PUT", "/admin/models/gpt", j{"free": true}) // a name, unlike a number, may come back
}

func TestChannels(t *testing.T) {
	f := newFixture(t)
	const credential = "sk-very-secret-credential"
	f.ok("POST", "/admin/channels", j{"name": "main", "provider": "openai", "baseUrl": "https://api.example.com/v1", "credential": credential, "priority": -3}).
		has(t, "id", 1, "credentialSet", true, "credential", nil, "weight", 1, "state", "enabled", "priority", -3)
	f.ok("POST", "/admin/channels", j{"name": "azure", "provider": "openai", "baseUrl": "https://r.example.com", "apiVersion": "2024-10-21"}).
		has(t, "apiVersion", "2024-10-21")
	f.refused(400, "PATCH", "/admin/channels/2", j{"apiVersion": "a&b"}, "api-version")
	f.ok("PATCH", "/admin/channels/2", j{"apiVersion": ""}).has(t, "apiVersion", "")
	f.ok("PATCH", "/admin/channels/1", j{"state": "disabled", "credential": "sk-another-secret"}).has(t, "state", "disabled", "priority", -3)
	for _, path := range []string{"/admin/channels", "/admin/channels/1", "/admin/audit"} {
		if raw := f.ok("GET", path, nil).raw; strings.Contains(raw, credential) || strings.Contains(raw, "another-secret") {
			t.Errorf("%s shows a credential: %s", path, raw)
		}
	}
	if f.proxy.catalog.Channels()[0].Credential != "sk-another-secret" {
		t.Error("the proxy lacks the credential")
	}
	f.ok("GET", "/admin/channels/1", nil).has(t, "health.state", "disabled")
	for name, c := range map[string]struct {
		body j
		says string
	}{
		"provider":   {j{"name": "b", "provider": "opneai", "baseUrl": "http://x"}, "openai, anthropic"},
		"no scheme":  {j{"name": "b", "provider": "openai", "baseUrl": "api.example.com"}, "https://"},
		"user":       {j{"name": "b", "provider": "openai", "baseUrl": "https://u:p@x"}, "credential"},
		"weight":     {j{"name": "b", "provider": "openai", "baseUrl": "http://x", "weight": 0}, "1 to 1000"},
		"state":      {j{"name": "b", "provider": "openai", "baseUrl": "http://x", "state": "on"}, "enabled, disabled"},
		"credential": {j{"name": "b", "provider": "openai", "baseUrl": "http://x", "credential": "a\nb"}, "printable"},
		"missing":    {j{"name": "b", "provider": "openai"}, "baseUrl"},
	} {
		t.Run(name, func(t *testing.T) { f.refused(400, "POST", "/admin/channels", c.body, c.says) })
	}
	f.refused(409, "POST", "/admin/channels", j{"name": "main", "provider": "openai", "baseUrl": "http://x"}, "main")
	f.ok("PUT", "/admin/models/m", j{"free": true, "channels": []string{"main"}})
	f.refused(409, "DELETE", "/admin/channels/1", nil, `"m"`)
	f.refused(409, "PATCH", "/admin/channels/1", j{"name": "other"}, `"m"`)
	f.ok("PUT", "/admin/models/m", j{"channels": []string{}})
	f.ok("PATCH", "/admin/channels/1", j{"name": "other"}).has(t, "name", "other")
	f.ok("DELETE", "/admin/channels/1", nil)
	f.refused(404, "GET", "/admin/channels/1", nil)
	if a := f.ok("POST", "/admin/channels", j{"name": "main", "provider": "openai", "baseUrl": "http://x"}); fmt.Sprint(a.at("id")) == "1" {
		t.Error("the number of a deleted channel came back")
	}
}

func TestGlobalLimits(t *testing.T) {
	f := newFixture(t)
	f.ok("GET", "/admin/limits/global", nil).has(t, "qpsLimit", 0, "tpmLimit", 0, "current.qps", 0)
	f.ok("PUT", "/admin/limits/global", j{"qpsLimit": 100, "tpmLimit": 5000}).has(t, "qpsLimit", 100)
	f.ok("PUT", "/admin/limits/global", j{"qpsLimit": 0}).has(t, "qpsLimit", 0, "tpmLimit", 5000)
	if f.proxy.global != (limit.Limits{TPM: 5000}) {
		t.Errorf("the proxy has %+v", f.proxy.global)
	}
	f.refused(400, "PUT", "/admin/limits/global", j{"qps": 1}, `"qps"`)
}

func TestPages(t *testing.T) {
	f := newFixture(t)
	f.account()
	for i := range 25 {
		f.ok("POST", "/admin/keys", j{"userId": 1, "name": fmt.Sprint("k", i)})
	}
	var seen []string
	cursor := ""
	for pages := 0; pages < 10; pages++ {
		a := f.ok("GET", "/admin/keys?limit=7"+cursor, nil)
		for _, row := range a.json["data"].([]any) {
			seen = append(seen, fmt.Sprint(row.(map[string]any)["id"]))
		}
		if a.json["nextCursor"] == nil {
			break
		}
		cursor = "&cursor=" + a.json["nextCursor"].(string)
	}
	if len(seen) != 26 || seen[0] != "1" || seen[25] != "26" {
		t.Errorf("%v", seen)
	}
}

func TestUploadBodyLimit(t *testing.T) {
	f := newFixture(t)
	f.refused(413, "POST", "/admin/policies?name=big", bytes.Repeat([]byte{0}, 8<<20+1), "8388608")
}
