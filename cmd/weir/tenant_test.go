package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tenantCall is one call of a client key to the tenant routes.
func tenantCall(t *testing.T, env map[string]string, key, method, path, body string) (status int, answer map[string]any) {
	t.Helper()
	req, err := http.NewRequest(method, env["WEIR_URL"]+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		t.Fatalf("%s %s: %v: %s", method, path, err, raw)
	}
	return resp.StatusCode, answer
}

// warm asks until the instances of the key's org's module are there: they are made for the first call, which does not wait
// for them for long. It counts the calls that they were not there for.
func (p *process) warm(key string) (cold int) {
	p.t.Helper()
	missed := func() int { return p.metric(p.t, "weir_policy_tenant_cold_total") }
	first := missed()
	eventually(p.t, "the org's module decides", func() bool {
		before := missed()
		p.status(key, hello)
		return missed() == before
	})
	return missed() - first
}

// TestTenantTunesItsOwnRules: a key with the scope tenant reads, tries and changes its org's rules through the client
// listener, traffic of the org obeys them at once and nobody else's does, and they survive kill -9.
func TestTenantTunesItsOwnRules(t *testing.T) {
	log := filepath.Join(t.TempDir(), "decisions.ndjson")
	p := serve(t, "policies: {module: default, header: true, decision_log: {path: "+log+", sample: 1}}\n")
	own := p.key("--scopes", "tenant")
	must(t, p.env, "org", "create", "--name", "Other")
	must(t, p.env, "user", "create", "--org-id", "2", "--name", "bob", "--balance", "100")
	other := p.object("key", "create", "--user-id", "2", "--name", "other")["plaintext"].(string)

	if status, e := tenantCall(t, p.env, other, "GET", "/v1/tenant/rules", ""); status != http.StatusForbidden {
		t.Errorf("a key without the scope gets %d %v", status, e)
	}
	if status, e := tenantCall(t, p.env, own, "PUT", "/v1/tenant/rules", `{"rules":[{"name":"x","when":{"modle":["a"]},"then":{}}]}`); status != http.StatusBadRequest {
		t.Errorf("rules outside the schema get %d %v", status, e)
	}
	rules := `{"mode":"first","rules":[{"name":"no slow model","when":{"models":["slow"]},"then":{"deny":{"status":451,"message":"slow is off"}}}]}`
	if status, e := tenantCall(t, p.env, own, "PUT", "/v1/tenant/rules", rules); status != http.StatusOK {
		t.Fatalf("PUT rules: %d %v", status, e)
	}
	if status, a := tenantCall(t, p.env, own, "GET", "/v1/tenant/rules?schema=1", ""); status != http.StatusOK || a["schema"] == nil {
		t.Errorf("GET rules: %d %v", status, a)
	}
	slow := strings.Replace(hello, "gpt-4o-mini", "slow", 1)
	for _, when := range []string{"at once", "after kill -9"} {
		p.warm(own)
		if got := p.status(own, slow); got != http.StatusUnavailableForLegalReasons {
			t.Errorf("%s the org's rule answers %d, want 451", when, got)
		}
		if got := p.status(own, hello); got != http.StatusOK {
			t.Errorf("%s another model answers %d", when, got)
		}
		if got := p.status(other, hello); got != http.StatusOK {
			t.Errorf("%s another org gets %d", when, got)
		}
		if when == "at once" {
			p.kill()
			tear(t, log)
			p.start()
		}
	}
	resp := p.post(own, hello)
	_ = resp.Body.Close()
	if by, rule := resp.Header.Get("X-Weir-Policy"), resp.Header.Get("X-Weir-Tenant-Rule"); !strings.Contains(by, "rules@") || rule != "" {
		t.Errorf("X-Weir-Policy is %q, and rule %q fired", by, rule)
	}
	if status, a := tenantCall(t, p.env, own, "GET", "/v1/tenant/usage", ""); status != http.StatusOK || !strings.Contains(fmt.Sprint(a["policy"]), "message:slow is off reason:1") {
		t.Errorf("usage: %d %v; want how often the rule fired", status, a)
	}
	if status, e := tenantCall(t, p.env, own, "PUT", "/v1/tenant/rules", `{"rules":[]}`); status != http.StatusOK || p.status(own, slow) != http.StatusOK {
		t.Errorf("no rules: %d %v; want them put, and the model allowed again", status, e)
	}
	eventually(t, "the decision log holds the org's decisions", func() bool {
		text, err := os.ReadFile(log)
		return err == nil && strings.Contains(string(text), "slow is off")
	})
	if text, err := os.ReadFile(log); err != nil || !strings.Contains(string(text), "{\"torn\n{") {
		t.Errorf("what was appended to a torn line did not begin a line of its own (%v)", err)
	}
	if err := os.Rename(log, log+".moved"); err != nil {
		t.Fatal(err)
	}
	p.status(own, hello)
	eventually(t, "a log that was moved away is begun anew", func() bool {
		text, err := os.ReadFile(log)
		return err == nil && strings.HasPrefix(string(text), "{") && strings.HasSuffix(string(text), "}\n")
	})
}

// TestAnswersSayWhichRuleFired: allowed answers, buffered and streamed, and denials name the rule of the operator's module
// and that of the org's, where the setting asks for it; the log of the request does too.
func TestAnswersSayWhichRuleFired(t *testing.T) {
	rule := func(name, then string) string { return `{"rules": [{"name": "` + name + `", "then": {` + then + `}}]}` }
	p := serve(t, "policies: {module: rules, header: true, params: "+rule("night-discount", `"qps_permille": 900`)+"}\n")
	own := p.key("--scopes", "tenant")
	put := func(rules string) {
		t.Helper()
		if status, e := tenantCall(t, p.env, own, "PUT", "/v1/tenant/rules", rules); status != http.StatusOK {
			t.Fatalf("PUT rules: %d %v", status, e)
		}
	}
	want := func(body string, status int, operators, orgs string) {
		t.Helper()
		resp := p.post(own, body)
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if op, org := resp.Header.Get("X-Weir-Rule"), resp.Header.Get("X-Weir-Tenant-Rule"); resp.StatusCode != status || op != operators || org != orgs {
			t.Errorf("%d, rule %q, tenant rule %q; want %d, %q, %q", resp.StatusCode, op, org, status, operators, orgs)
		}
	}
	want(hello, 200, "1 night-discount", "")
	put(rule("短 answers", `"output_tokens_cap": 64`))
	p.warm(own)
	want(hello, 200, "1 night-discount", "1 %E7%9F%AD answers")
	want(strings.Replace(hello, "{", `{"stream":true,`, 1), 200, "1 night-discount", "1 %E7%9F%AD answers")
	put(rule("closed", `"deny": {}`))
	want(hello, 403, "", "1 closed")
	if log := p.log(); !strings.Contains(log, "rule=night-discount") || !strings.Contains(log, "tenant_rule=\"短 answers\"") {
		t.Errorf("the log names no rules:\n%s", log)
	}
}

// TestTenantTriesAndUndoesItsRules: a tenant shadows a table on its live traffic, reads what would change, has it decide
// for all keys, puts it in force, and goes back to the table before, all through the client listener.
func TestTenantTriesAndUndoesItsRules(t *testing.T) {
	p := serve(t, "policies: {module: default}\n")
	own := p.key("--scopes", "tenant")
	call := func(status int, method, path, body string, has ...string) {
		t.Helper()
		got, a := tenantCall(t, p.env, own, method, "/v1/tenant/rules"+path, body)
		text := fmt.Sprint(a)
		for _, want := range has {
			if !strings.Contains(text, want) {
				t.Errorf("%s %s %s lacks %q: %s", method, path, body, want, text)
			}
		}
		if got != status {
			t.Fatalf("%s %s %s: %d %v, want %d", method, path, body, got, a, status)
		}
	}
	answers := func(status int) {
		t.Helper()
		if got := p.status(own, hello); got != status {
			t.Errorf("a request gets %d, want %d", got, status)
		}
	}
	closed := `{"rules":[{"name":"closed","then":{"deny":{}}}]}`
	call(409, "POST", "/rollback", "", "no earlier rules", "leaves no rule in force")
	call(404, "GET", "/trial", "", "starts a trial")
	call(400, "POST", "/trial", "{}", "expected the rules to try")
	call(200, "PUT", "", `{"rules":[{"name":"short","then":{"output_tokens_cap":64}}]}`, "previous:<nil>")
	p.warm(own)
	call(409, "POST", "/trial", `{"params":{"rules":[{"name":"short","then":{"output_tokens_cap":64}}]}}`, "in force already")
	call(400, "POST", "/trial", `{"params":{"rules":[{"when":{"modle":1},"then":{}}]}}`, "params")
	call(200, "POST", "/trial", `{"params":`+closed+`}`, "stage:shadow")
	answers(200)
	call(200, "GET", "/trial", "", "compared:1", "wouldChange:1", "message:closed", "running:true")
	call(200, "POST", "/trial", `{"percent":100}`, "stage:canary", "percent:100")
	answers(403)
	call(200, "POST", "/rollback", "", "candidate:<nil>", "name:short", "endedTrial:map[module:rules percent:100 stage:canary")
	answers(200)
	call(200, "POST", "/trial", `{"params":`+closed+`,"percent":100}`)
	call(200, "PUT", "", closed, "name:closed", "candidate:<nil>", "endedTrial:<nil>")
	answers(403)
	call(200, "POST", "/rollback", "", "name:short", "previous:<nil>")
	answers(200)
}

// TestTenantsEnvelopeGoesByTier: one table of rules, cut off differently for two keys of different tiers.
func TestTenantsEnvelopeGoesByTier(t *testing.T) {
	p := serve(t, `
tiers: [{name: free, qps: 10}, {name: pro, qps: 10}]
policies:
  tenant_envelope: {max_multiplier: 1000}
  tenant_tier_envelopes: {pro: {max_multiplier: 1500}}
`)
	free, pro := p.key("--scopes", "tenant", "--tier", "free"), p.key("--tier", "pro")
	status, a := tenantCall(t, p.env, free, "PUT", "/v1/tenant/rules", `{"rules":[{"then":{"qps_permille":5000}}]}`)
	if status != http.StatusOK || !strings.Contains(fmt.Sprint(a["tierEnvelopes"]), "maxMultiplierPermille:1500") {
		t.Fatalf("PUT rules: %d %v", status, a)
	}
	p.warm(pro)
	for key, want := range map[string]string{free: "10", pro: "15"} {
		resp := p.post(key, hello)
		_ = resp.Body.Close()
		if got := resp.Header.Get("X-Ratelimit-Limit-Requests"); resp.StatusCode != http.StatusOK || got != want {
			t.Errorf("%d, the limit is %s, want %s", resp.StatusCode, got, want)
		}
	}
}

// tear leaves half a line at the end of a log, as a process that dies in the middle of a write.
func tear(t *testing.T, log string) {
	t.Helper()
	f, err := os.OpenFile(log, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(`{"torn`)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}
