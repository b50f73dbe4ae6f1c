package admin_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/admin"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
)

// asJSON takes apart what a tenant's method gave.
func asJSON(t testing.TB, raw []byte, err error) (a answer) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &a.json); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	a.raw = string(raw)
	return a
}

// kindOf is an error's kind, which must be one that a client is told.
func kindOf(t testing.TB, err error) llm.Kind {
	t.Helper()
	var e *llm.Error
	if !errors.As(err, &e) || e.Message == "" {
		t.Fatalf("%v is no error for clients", err)
	}
	return e.Kind
}

func TestTenantRules(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.account()
	f.ok("GET", "/admin/tenants/1/rules?schema=1", nil).has(t, "orgId", 1, "module", "rules", "version", nil, "params", nil,
		"schema.properties.rules.type", "array", "envelope.maxMultiplierPermille", 2000, "envelope.maxBurstPermille", 3000,
		"envelope.maxCustomDimensions", 2, "envelope.tiers.0", "pro", "envelope.maxOverdraftMicroCny", 0)
	f.ok("GET", "/admin/bindings", nil).has(t, "data.1", nil)
	f.ok("GET", "/admin/policies", nil).has(t, "data.0", nil) // looking stores nothing

	rules := table("half", j{"qps_permille": 500})
	f.ok("PUT", "/admin/tenants/1/rules", rules).has(t, "params.rules.0.name", "half", "schema", nil, "schemaAt", nil)
	f.ok("GET", "/admin/tenants/1/rules", nil).has(t, "schema", nil, "schemaAt", "/admin/tenants/1/rules?schema=1")
	raw, err := f.api.TenantRules(t.Context(), 1, "schema=1")
	asJSON(t, raw, err).has(t, "schema.title", "Rules", "schemaAt", "/v1/tenant/rules?schema=1")
	f.refused(400, "GET", "/admin/tenants/1/rules?schema=yes", nil, "schema", "1, 0")
	f.refused(400, "GET", "/admin/tenants/1/rules?shema=1", nil, "schema")
	f.ok("GET", "/admin/tenants/1/rules", nil).has(t, "params.rules.0.then.qps_permille", 500)
	f.ok("GET", "/admin/audit?limit=1", nil).has(t, "data.0.action", "tenant.rules", "data.0.actor", "admin", "data.0.target", "binding:org:1")
	if d := f.ask(1, 1); d.QPS != 500 || d.Tenant.Module != "rules" || d.Message != "" && d.Tenant.Message != "half" {
		t.Errorf("%+v", d)
	}
	f.ok("GET", "/admin/policies", nil).has(t, "data.0.name", "rules", "data.0.stage", "uploaded", "data.0.orgs", 1)
	f.ok("PUT", "/admin/tenants/1/rules", `{}`).has(t, "params.rules", nil)
	if d := f.ask(1, 1); d.QPS != 1000 {
		t.Errorf("%+v", d)
	}
	f.ok("POST", "/admin/policies/rules/rollback", j{"owner": "org:1"}).has(t, "params.rules.0.name", "half")

	for body, says := range map[string]string{``: "empty", `[]`: "JSON object", `{"rules":[],"rules":[]}`: "twice", `{"rules":[]} {}`: "one JSON document",
		`{"rules":` + strings.Repeat(" ", 70_000) + `[]}`: "65536", `{"params":{}}`: "params", `{"rules":[{"then":{"tier":"nobody"}}]}`: "nobody"} {
		a := f.send("PUT", "/admin/tenants/1/rules", body)
		a.isError(t, map[bool]int{true: 413, false: 400}[len(body) > 65536], says)
	}
	f.refused(404, "GET", "/admin/tenants/9/rules", nil, "no org 9")
	f.refused(404, "PUT", "/admin/tenants/9/rules", rules, "no org 9")
	f.refused(404, "POST", "/admin/tenants/9/rules/dry-run", nil, "no org 9")
	f.refused(404, "GET", "/admin/tenants/9/usage", nil, "no org 9")
}

// The operator may bind another module to an org: then its params are the rules.
func TestTenantWithAModuleOfItsOwn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.account()
	f.ok("POST", "/admin/policies?name=mine", module(t, "burst"))
	f.ok("PUT", "/admin/bindings", j{"owner": "org:1", "module": "mine", "onError": "deny"}).has(t, "owner", "org:1")
	a := f.ok("GET", "/admin/tenants/1/rules?schema=1", nil)
	a.has(t, "module", "mine", "onError", "deny")
	if s := fmt.Sprint(a.at("schema.properties")); strings.Contains(s, "dimensions") {
		t.Errorf("that is the schema of rules: %s", s)
	}
	f.refused(409, "PUT", "/admin/tenants/1/rules", table("half", j{}), "mine", "no table of rules")
	f.ok("PUT", "/admin/tenants/1/rules", j{}).has(t, "module", "mine", "onError", "deny")
}

// What a tenant got wrong is said in its words.
func TestTenantIsToldWhatIsWrong(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.account()
	for when, says := range map[string]string{
		`{"model":["x"]}`:              `params: rules[1].when.model: unknown; did you mean "models"?`,
		`{"hours":{"from":"8:30"}}`:    `params: rules[1].when.hours.from: expected a time of day as HH:MM, from 00:00 to 24:00, such as "08:30"; got "8:30"`,
		`{"labels":{"tire":["gold"]}}`: `params: rule 2: label "tire" is not in policies.labels: tier, soft, hot; did you mean "tier"? (weir_configure gave code 3)`,
	} {
		rules := `{"rules":[{},{"when":` + when + `}]}`
		if a := f.refused(400, "PUT", "/admin/tenants/1/rules", rules); a.at("error.message") != says || a.at("error.code") != "policy_params_refused" {
			t.Errorf("%s: %v", rules, a.at("error.message"))
		}
	}
}

// One org sees and changes nothing of another's.
func TestTenantsAreApart(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.account()
	f.ok("POST", "/admin/orgs", j{"name": "Other"})
	f.ok("POST", "/admin/users", j{"orgId": 2, "name": "bob", "balanceCny": 7})
	f.ok("POST", "/admin/keys", j{"userId": 2, "name": "theirs", "qpsLimit": 3})
	ctx := t.Context()
	set := func(org uint64, rule string) {
		t.Helper()
		raw, err := f.api.SetTenantRules(ctx, org, fmt.Sprint("key:", org), []byte(`{"rules":[{"name":"`+rule+`","then":{"qps_permille":500}}]}`))
		asJSON(t, raw, err).has(t, "orgId", org, "params.rules.0.name", rule)
	}
	set(1, "acme secret")
	set(2, "other secret")
	f.ok("GET", "/admin/audit?limit=1", nil).has(t, "data.0.actor", "key:2", "data.0.target", "binding:org:2")
	for org, foreign := range map[uint64][]string{1: {"other secret", "Other", "theirs", "bob"}, 2: {"acme secret", "Acme", "throttled", "alice"}} {
		rules, err := f.api.TenantRules(ctx, org, "")
		asJSON(t, rules, err)
		usage, err := f.api.TenantUsage(ctx, org, "")
		asJSON(t, usage, err).has(t, "orgId", org, "data.0.keyId", org, "data.1", nil, "policy.module", "rules")
		dry, err := f.api.TenantDryRun(ctx, org, org, nil)
		asJSON(t, dry, err).has(t, "facts.org_id", org, "facts.key_id", org)
		for _, word := range foreign {
			if all := string(rules) + string(usage) + string(dry); strings.Contains(all, word) {
				t.Errorf("org %d sees %q in %s", org, word, all)
			}
		}
	}
	if d := f.ask(2, 1); d.Tenant.Message != "other secret" {
		t.Errorf("%+v", d.Tenant)
	}
	for _, facts := range []string{`{"key_id":2}`, `{"key_id":77}`, `{"org_id":2}`, `{"user_id":2}`, `{"attributes":{"org_name":"Other"}}`} {
		_, err := f.api.TenantDryRun(ctx, 1, 1, []byte(`{"facts":`+facts+`}`))
		if kindOf(t, err) != llm.KindInvalid || !strings.Contains(err.Error(), "facts.") {
			t.Errorf("%s: %v", facts, err)
		}
	}
	_, err := f.api.TenantUsage(ctx, 1, "org=2")
	if kindOf(t, err) != llm.KindInvalid {
		t.Error(err)
	}
}

// P06: what a tenant asks beyond its envelope is cut, and the dry run, the report and the usage say so.
func TestP06AskingForMoreThanTheEnvelope(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.account()
	greedy := table("greedy", j{"qps_permille": 20_000, "burst_permille": 30_000, "tier": "free"})
	f.ok("POST", "/admin/tenants/1/rules/dry-run", j{"params": greedy}).has(t, "tenant.rule.message", "greedy", "tenant.rule.number", 1,
		"tenant.answer.qps_permille", 20_000, "decision.qps_permille", 2000, "decision.burst_permille", 3000, "tenant.clamped.0.field", "qps_permille",
		"tenant.clamped.0.asked", 20_000, "tenant.clamped.0.granted", 2000, "tenant.clamped.1.field", "burst_permille", "tenant.clamped.2.field", "tier",
		"tenant.clamped.2.asked", "free", "tenant.clamped.2.granted", nil, "tenant.clamped.3", nil)
	f.ok("PUT", "/admin/tenants/1/rules", j{})
	f.ok("POST", "/admin/policies/rules/shadow", j{"owner": "org:1", "params": greedy})
	f.compare(1, 5, "/admin/policies/rules/report?owner=org:1")
	f.ok("GET", "/admin/policies/rules/report?owner=org:1", nil).has(t, "compared", 5, "wouldChange", 5, "clamped", 5, "examples.0.candidate.qps_permille", 2000,
		"examples.0.candidate.clamped", true)
	f.ok("POST", "/admin/policies/rules/activate", j{"owner": "org:1"})
	if d := f.ask(1, 3); d.QPS != 2000 || !d.Tenant.Clamped {
		t.Errorf("%+v", d)
	}
	f.ok("GET", "/admin/tenants/1/usage", nil).has(t, "policy.module", "rules", "policy.clamped", 3)
	if m := f.ok("GET", "/metrics", nil).raw; !strings.Contains(m, "weir_policy_tenant_clamped_total 3") {
		t.Errorf("metrics: %s", m)
	}
}

// Rules that ask beyond the envelope are told so when they are put in force or on trial, for the tiers of the org's keys.
func TestRulesBeyondTheEnvelopeAreTold(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.account()
	const rules = "/admin/tenants/1/rules"
	f.ok("PUT", rules, table("fine", j{"qps_permille": 2000, "burst_permille": 3000, "tier": "pro"})).has(t, "clamped", "[]")
	greedy := j{"rules": []j{{"then": j{"qps_permille": 500}}, {"name": "off", "enabled": false, "then": j{"qps_permille": 9000}},
		{"name": "greedy", "then": j{"qps_permille": 9000, "burst_permille": 3001, "tier": "free", "dimensions": []j{
			{"kind": "model", "multiplier_permille": 1500}, {"kind": "custom", "value": "a"}, {"kind": "custom", "value": "b"}, {"kind": "custom", "value": "c"}}}}}}
	for _, a := range []answer{f.ok("POST", rules+"/trial", j{"params": greedy}), f.ok("PUT", rules, greedy)} {
		a.has(t, "clamped.0.rule", 3, "clamped.0.name", "greedy", "clamped.0.field", "then.qps_permille", "clamped.0.asked", 9000, "clamped.0.allowed", 2000,
			"clamped.1.field", "then.burst_permille", "clamped.1.allowed", 3000, "clamped.2.field", "then.tier", "clamped.2.asked", "free", "clamped.2.allowed", nil,
			"clamped.3.field", "then.dimensions[0].multiplier_permille", "clamped.3.allowed", 1000, "clamped.4.field", "then.dimensions[3]", "clamped.5", nil)
	}
	d := f.ok("POST", rules+"/dry-run", j{"params": table("greedy", j{"qps_permille": 9000})})
	d.has(t, "tenant.clamped.0.granted", 2000)

	f.o.Envelopes.TenantTiers = map[string]policy.Envelope{"pro": {MaxMultiplier: 4_000}}
	f.api.SetEnvelopes(f.o.Envelopes)
	f.must(f.api.Seed(t.Context(), admin.Seed{}, false))
	f.ok("POST", "/admin/keys", j{"userId": 1, "name": "p", "tier": "pro"})
	f.ok("PUT", rules, table("greedy", j{"qps_permille": 9000})).has(t, "clamped.0.allowed", 2000, "clamped.0.keyTier", nil, "clamped.1.allowed", 4000, "clamped.1.keyTier", "pro")
	f.ok("POST", "/admin/policies?name=mine", module(t, "burst"))
	f.ok("PUT", "/admin/bindings", j{"owner": "org:1", "module": "mine"})
	f.ok("PUT", rules, j{"burst_permille": 9000}).has(t, "clamped", nil)
}

// What the dry run says is what traffic with the same facts gets.
func TestDryRunIsWhatTrafficGets(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.account()
	f.ok("POST", "/admin/keys", j{"userId": 1, "name": "k", "tpmLimit": 100, "monthlyQuotaCny": 5, "tier": "pro", "timezone": "Asia/Tokyo", "labels": j{"soft": "yes"}})
	f.ok("PUT", "/admin/models/gpt-4o", j{"inputCnyPer1M": 10, "outputCnyPer1M": 20, "labels": j{"hot": "1"}})
	f.ok("POST", "/admin/policies/rules/activate", j{"params": j{"mode": "all", "rules": []j{
		{"name": "evening", "when": j{"hours": j{"from": "20:00", "to": "22:00"}}, "then": j{"tpm_permille": 1500, "price_permille": 1200}},
		{"name": "no o1", "when": j{"models": []string{"o1"}}, "then": j{"deny": j{"message": "not here"}}}}}})
	f.ok("PUT", "/admin/tenants/1/rules", j{"mode": "all", "rules": []j{
		{"name": "pro and soft", "when": j{"tiers": []string{"pro"}, "labels": j{"soft": []string{"yes"}}}, "then": j{"tpm_permille": 3000, "output_tokens_cap": 500}},
		{"name": "dear", "when": j{"estimated_cost_micro": j{"at_least": 5000}}, "then": j{"qps_permille": 800, "dimensions": []j{{"kind": "custom", "value": "hot:{label.hot}", "qps_limit": 5}}}},
		{"name": "big", "when": j{"input_tokens": j{"at_least": 9000}}, "then": j{"deny": j{"status": 413, "message": "too big"}}}}})
	var fired []string
	for _, facts := range []string{`{}`, `{"key_id":2}`, `{"key_id":2,"input_tokens":100,"output_tokens_max":200,"attributes":{"model":"gpt-4o"}}`,
		`{"key_id":2,"input_tokens":9500,"attributes":{"model":"gpt-4o","end_user":"x"}}`, `{"key_id":2,"attributes":{"model":"o1"}}`,
		`{"key_id":2,"now_ms":1793900000000,"endpoint":"messages"}`, `{"tier":"free","minute_of_week":1210}`} {
		a := f.ok("POST", "/admin/tenants/1/rules/dry-run", `{"facts":`+facts+`}`)
		raw, _ := json.Marshal(a.at("facts"))
		asked, err := policy.ParseFacts(raw, f.o.TierNames, []string{"tier", "soft", "hot"})
		f.must(err)
		var d policy.Decision
		f.host.Decide(asked, &d)
		want, _ := policy.MarshalDecision(&d, f.o.TierNames)
		var got struct{ Decision json.RawMessage }
		f.must(json.Unmarshal([]byte(a.raw), &got))
		if string(got.Decision) != string(want) {
			t.Errorf("%s:\ndry run %s\ntraffic %s", facts, got.Decision, want)
		}
		if said := string(d.AppendPolicy(nil)); a.at("policy") != said {
			t.Errorf("%s: policy %v, traffic says %s", facts, a.at("policy"), said)
		}
		fired = append(fired, fmt.Sprint(a.at("operator.decision.message"), "/", a.at("tenant.rule.message"), "/", a.at("decision.verdict"), "/", a.at("tenant.applied")))
	}
	if want := []string{"/<nil>/allow/true", "evening/pro and soft/allow/true", "evening/pro and soft, dear/allow/true", "evening/too big/deny/true",
		"not here/pro and soft/deny/false", "/pro and soft/allow/true", "evening/<nil>/allow/true"}; !slices.Equal(fired, want) {
		t.Errorf("fired:\n%q\n%q", fired, want)
	}
	before := f.host.Stats().Calls
	f.ok("POST", "/admin/tenants/1/rules/dry-run", nil)
	if n := f.host.Stats().Calls - before; n > 1 {
		t.Errorf("a dry run counts as %d calls", n)
	}
}

func TestDryRunRefusals(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.account()
	for body, says := range map[string]string{`{"facts":{"input_token":1}}`: "input_tokens", `{"facts":[]}`: "JSON object", `{"fact":{}}`: `did you mean "facts"?`,
		`{"facts":{"tier":"prro"}}`: "prro", `{"facts":{"attributes":{"modell":"x"}}}`: "modell", `{"facts":{"attributes":3}}`: "attributes",
		`{"facts":{"key_id":1,"key_id":2}}`: "twice", `{"params":3}`: "params", `{"facts":{"choices":-1}}`: "choices",
		`{"facts":{"input_tokens":-3}}`: "facts.input_tokens: -3, want a whole number from 0", `{"facts":{"minute_of_week":10080}}`: "from 0 to 10079",
		`{"facts":{"qps":1}}`: `nearest: "key_qps_current" or "key_qps_limit"`} {
		f.refused(400, "POST", "/admin/tenants/1/rules/dry-run", body, says)
	}
}

// An org cannot keep the control plane busy.
// An org's bodies are bounded before anything is read of them, as the operator's are.
func TestTenantsBodiesAreBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.account()
	big := []byte(`{"facts":{` + strings.Repeat(" ", 1<<20) + `}}`)
	for name, call := range map[string]func() ([]byte, error){
		"dry run":  func() ([]byte, error) { return f.api.TenantDryRun(t.Context(), 1, 1, big) },
		"rules":    func() ([]byte, error) { return f.api.SetTenantRules(t.Context(), 1, "key:1", big) },
		"trial":    func() ([]byte, error) { return f.api.TryTenantRules(t.Context(), 1, "key:1", big) },
		"rollback": func() ([]byte, error) { return f.api.RollbackTenantRules(t.Context(), 1, "key:1", big) },
	} {
		_, err := call()
		var e *llm.Error
		if !errors.As(err, &e) || e.Kind != llm.KindTooLarge || e.LimitBytes != 1<<20 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTenantsArePaced(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.account()
	f.ok("POST", "/admin/orgs", j{"name": "Other"})
	for range 60 {
		if _, err := f.api.TenantUsage(t.Context(), 1, ""); err != nil {
			t.Fatal(err)
		}
	}
	f.clock.Advance(20 * time.Second)
	for _, call := range []func() ([]byte, error){
		func() ([]byte, error) { return f.api.TenantUsage(t.Context(), 1, "") },
		func() ([]byte, error) { return f.api.TenantDryRun(t.Context(), 1, 0, nil) },
		func() ([]byte, error) { return f.api.SetTenantRules(t.Context(), 1, "key:1", []byte(`{}`)) },
	} {
		_, err := call()
		var e *llm.Error
		if kindOf(t, err) != llm.KindRateLimited || !errors.As(err, &e) || e.RetryAfterMS != 40_000 {
			t.Errorf("%+v", err)
		}
	}
	if _, err := f.api.TenantUsage(t.Context(), 2, ""); err != nil {
		t.Error(err)
	}
	f.ok("GET", "/admin/tenants/1/usage", nil) // the operator waits for nobody
	f.clock.Advance(40 * time.Second)
	if _, err := f.api.TenantUsage(t.Context(), 1, ""); err != nil {
		t.Error(err)
	}
}

func TestTenantUsage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.account()
	f.ok("PATCH", "/admin/orgs/1", j{"qpsLimit": 50, "tpmLimit": 9000})
	f.ok("POST", "/admin/keys", j{"userId": 1, "name": "second"})
	f.ok("GET", "/admin/tenants/1/usage?limit=1", nil).has(t, "orgId", 1, "name", "Acme", "qps.limit", 50, "qps.current", 0, "tpm.limit", 9000,
		"monthly.usedMicroCny", 0, "monthly.heldCny", 0, "policy", nil, "data.0.name", "throttled", "data.0.keyId", 1, "data.0.balance.userId", 1, "data.1", nil, "nextCursor", 1)
	f.ok("GET", "/admin/tenants/1/usage?cursor=1", nil).has(t, "data.0.name", "second", "data.1", nil, "nextCursor", nil)
	f.refused(400, "GET", "/admin/tenants/1/usage?cursr=1", nil, "cursor")
}

func TestScopesOfKeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.account()
	f.ok("GET", "/admin/keys/1", nil).has(t, "scopes", "[]")
	f.ok("POST", "/admin/keys", j{"userId": 1, "name": "t", "scopes": []string{"tenant"}}).has(t, "scopes.0", "tenant")
	f.ok("PATCH", "/admin/keys/1", j{"scopes": []string{admin.ScopeTenant}}).has(t, "scopes.0", "tenant")
	f.refused(400, "PATCH", "/admin/keys/1", j{"scopes": []string{"tenants"}}, "scopes", "tenant")
	f.refused(400, "PATCH", "/admin/keys/1", j{"scopes": []string{"tenant", "tenant"}}, "twice")
	f.restart()
	if k, _ := f.dir.Key(2); !slices.Equal(k.Scopes, []string{"tenant"}) {
		t.Errorf("%q", k.Scopes)
	}
	f.ok("PATCH", "/admin/keys/1", j{"scopes": []string{}}).has(t, "scopes", "[]")
}

// A tenant undoes its own rules, never what the operator chose for it, and is told when a trial ends by the way.
func TestTenantUndoesOnlyItsOwn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.account()
	const rollback, trial = "/admin/tenants/1/rules/rollback", "/admin/tenants/1/rules/trial"
	f.ok("PUT", "/admin/tenants/1/rules", table("a", j{"qps_permille": 900}))
	a := f.ok("GET", "/admin/tenants/1/rules", nil).at("version").(string)
	f.ok("PUT", "/admin/tenants/1/rules", table("b", j{"qps_permille": 800})).has(t, "previous", a)
	f.ok("POST", rollback, j{"version": a}).has(t, "version", a)
	f.refused(409, "POST", rollback, j{"version": a}, "in force already")
	f.refused(400, "POST", rollback, j{"version": "nowhere"}, "no rules of version")
	back := f.ok("POST", rollback, nil)
	back.has(t, "params.rules.0.name", "b")

	f.ok("POST", trial, j{"params": table("c", j{"qps_permille": 700}), "percent": 10})
	f.ok("PUT", "/admin/tenants/1/rules", table("d", j{"qps_permille": 600})).has(t, "candidate", nil, "endedTrial.percent", 10, "previous", back.at("version"))
	f.ok("GET", "/admin/audit?limit=2", nil).has(t, "data.0.action", "tenant.rules", "data.1.action", "tenant.canary")

	f.ok("PUT", "/admin/bindings", j{"owner": "org:1", "module": "rules", "onError": "deny"})
	f.ok("GET", "/admin/tenants/1/rules", nil).has(t, "params.rules.0.name", "d", "previous", nil)
	f.refused(409, "POST", rollback, nil, "no earlier rules of module \"rules\" are kept")
	f.refused(400, "POST", rollback, j{"version": a}, "no rules of version")

	f.ok("POST", "/admin/policies?name=mine", module(t, "burst"))
	f.ok("POST", "/admin/policies/mine/shadow", j{"owner": "org:1"})
	f.refused(409, "POST", trial, j{"params": table("c", j{})}, "the operator has module \"mine\" on trial")
	f.ok("POST", "/admin/policies/rules/shadow", j{"owner": "org:1", "params": table("e", j{"tpm_permille": 500})}).has(t, "endedTrial.module", "mine")
	f.refused(409, "POST", "/admin/policies/mine/rollback", j{"owner": "org:1"}, "withdrawn or replaced", "shadow tries version")
	f.ok("DELETE", "/admin/bindings?owner=org:1", nil).has(t, "endedTrial.stage", "shadow")
	f.refused(404, "POST", "/admin/tenants/9/rules/rollback", nil, "no org 9")
	f.refused(404, "POST", "/admin/tenants/9/rules/trial", nil, "no org 9")
	f.refused(404, "GET", "/admin/tenants/9/rules/trial", nil, "no org 9")
}

// A named zone becomes a table of its offsets that is kept with the rules, made anew whenever rules are given.
func TestTenantRulesInANamedZone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.account()
	rules := table("night", j{"qps_permille": 500})
	rules["zone"] = "Asia/Kolkata"
	const bound = "/admin/bindings?owner=org:1"
	f.ok("PUT", "/admin/tenants/1/rules", rules).has(t, "params.zone", "Asia/Kolkata", "params.zone_table", nil) // nobody wrote it
	first := f.ok("GET", bound, nil)
	first.has(t, "data.0.params.zone_table.offsets.0", 330)
	f.ok("POST", "/admin/tenants/1/rules/trial", j{"params": j{"zone": "Asia/Tokyo"}}).has(t, "candidate.params.zone", "Asia/Tokyo", "candidate.params.zone_table", nil)
	f.ok("POST", "/admin/tenants/1/rules/rollback", nil)
	f.ok("PUT", "/admin/tenants/1/rules", f.ok("GET", "/admin/tenants/1/rules", nil).at("params"))
	f.ok("GET", bound, nil).has(t, "data.0.version", first.at("data.0.version"))
	rules["zone_table"] = j{"name": "Asia/Kolkata", "offsets": []int{7}}
	f.ok("PUT", "/admin/tenants/1/rules", rules)
	f.ok("GET", bound, nil).has(t, "data.0.params.zone_table.offsets.0", 330)
	rules["zone"] = "Asia/Kolkatta"
	f.refused(400, "PUT", "/admin/tenants/1/rules", rules, "zone", "Asia/Kolkata").has(t, "error.code", "policy_params_refused")
	f.refused(400, "POST", "/admin/tenants/1/rules/trial", j{"params": rules}, "zone", "Asia/Kolkata").has(t, "error.code", "policy_params_refused")
	f.refused(400, "POST", "/admin/tenants/1/rules/dry-run", j{"params": rules}, "zone", "Asia/Kolkata").has(t, "error.code", "policy_params_refused")
	f.refused(400, "POST", "/admin/policies/rules/activate", j{"params": rules}, "zone", "Asia/Kolkata").has(t, "error.code", "policy_params_refused")
	rules["zone"] = "Europe/Berlin"
	f.ok("POST", "/admin/policies/rules/activate", j{"params": rules}).has(t, "params.zone_table.name", "Europe/Berlin", "params.zone_table.offsets.0", 60)
	rules["zone"] = "key"
	f.ok("PUT", "/admin/policies/rules/params", j{"params": rules}).has(t, "params.zone_table", nil)
}

// The operator's module takes the place of an org's rules: the answer says so, the rules are kept, and whoever cannot undo it
// is told who can.
func TestOperatorReplacesTheRulesOfAnOrg(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.account()
	const rules, bindings = "/admin/tenants/1/rules", "/admin/bindings"
	mine := table("mine", j{"qps_permille": 500})
	version := f.ok("PUT", rules, mine).at("version").(string)
	f.ok("POST", "/admin/policies?name=night", module(t, "burst"))
	night := j{"owner": "org:1", "module": "night"}
	f.ok("PUT", bindings, night).has(t, "module", "night", "replaced.module", "rules", "replaced.version", version)
	f.ok("PUT", bindings, night).has(t, "replaced", nil)
	kept := []string{"night", "kept as version " + version, "only the operator can put them in force again"}
	f.refused(409, "POST", rules+"/rollback", nil, kept...)
	f.refused(409, "PUT", rules, mine, append(kept, "takes no table of rules")...)
	f.refused(409, "POST", rules+"/trial", j{"params": mine}, kept...)
	f.refused(409, "POST", rules+"/dry-run", j{"params": mine}, kept...)
	f.refused(400, "PUT", rules, j{"burst": 2000}, "burst")

	f.ok("PUT", bindings, j{"owner": "org:1", "module": "rules", "version": version}).has(t, "params.rules.0.name", "mine", "replaced.module", "night")
	f.ok("PUT", bindings, night)
	f.ok("POST", "/admin/policies/night/rollback", j{"owner": "org:1"}).has(t, "version", version, "replaced.module", "night")
	f.ok("PUT", bindings, night)
	f.ok("DELETE", bindings+"?owner=org:1", nil).has(t, "module", nil, "replaced.module", "night")
	f.ok("POST", rules+"/rollback", nil).has(t, "params.rules.0.name", "mine")
}
