package main

import (
	"errors"
	"strings"
	"testing"
)

// tenant is weir for the rules of orgs; the error is what it says on failing.
func tenant(t *testing.T, env map[string]string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	stdout, stderr, code := weir(t, env, append([]string{"tenant", "rules"}, args...)...)
	if code != exitDone {
		err = errors.New(stderr)
	}
	return stdout, stderr, err
}

const tenantRules = `{"orgId":7,"module":"rules","version":"0123456789ab.01234567","params":{"rules":[{"name":"o1"}]},"onError":"default","candidate":null,"problem":null,
	"envelope":{"maxMultiplierPermille":1000},"schema":{"type":"object"}}`

func TestTenantRulesGetAndSet(t *testing.T) {
	g, env := stubAdmin(t)
	g.answer = tenantRules
	stdout, stderr, err := tenant(t, env, "get", "--org", "7")
	if err != nil || g.asked != "GET /admin/tenants/7/rules" || stdout != "{\n  \"rules\": [\n    {\n      \"name\": \"o1\"\n    }\n  ]\n}\n" ||
		!strings.Contains(stderr, "org 7: rules@0123456789ab.01234567 is in force") {
		t.Errorf("get asks %q and says %s%s, %v", g.asked, stdout, stderr, err)
	}
	if again := at(t, t.TempDir(), "rules.json", stdout); err == nil {
		stdout, _, err = tenant(t, env, "set", "--org", "7", "-f", again)
		if err != nil || squeezed(g.asked) != `PUT /admin/tenants/7/rules {"rules":[{"name":"o1"}]}` || !strings.Contains(stdout, "org 7: rules@0123456789ab.01234567 is in force") {
			t.Errorf("set asks %q and says %s, %v", g.asked, stdout, err)
		}
	}
	if stdout, _, err = tenant(t, env, "get", "--org", "7", "--json"); err != nil || !strings.Contains(stdout, `"maxMultiplierPermille": 1000`) {
		t.Errorf("get --json says %s, %v", stdout, err)
	}
	g.answer = `{"orgId":7,"module":"rules","version":null,"params":null,"problem":"its module is gone"}`
	if stdout, stderr, err = tenant(t, env, "get", "--org", "7"); err != nil || stdout != "{}\n" || !strings.Contains(stderr, "no rules are in force") || !strings.Contains(stderr, "its module is gone") {
		t.Errorf("get of none says %s%s, %v", stdout, stderr, err)
	}
}

func TestTenantRulesTrialAndRollback(t *testing.T) {
	g, env := stubAdmin(t)
	const trial = `{"module":"rules","version":"abcdef012345.01","stage":"canary","percent":10}`
	g.answer = strings.Replace(tenantRules, `"candidate":null`, `"candidate":`+trial, 1)
	stdout, _, err := tenant(t, env, "trial", "--org", "7", "--params", `{"rules":[]}`, "--percent", "10")
	if err != nil || g.asked != `POST /admin/tenants/7/rules/trial {"params":{"rules":[]},"percent":10}` || !strings.Contains(stdout, "canary: rules@abcdef012345.01 decides for 10 % of the keys; see weir tenant rules report --org 7") {
		t.Errorf("trial asks %s and says %s, %v", g.asked, stdout, err)
	}
	if _, _, err = tenant(t, env, "trial", "--org", "7"); err != nil || g.asked != `POST /admin/tenants/7/rules/trial {}` {
		t.Errorf("trial of nothing new asks %s, %v", g.asked, err)
	}
	g.answer = strings.Replace(tenantRules, `"candidate":null`, `"endedTrial":`+trial, 1)
	stdout, _, err = tenant(t, env, "rollback", "--org", "7", "--version", "0123456789ab.01234567")
	if err != nil || g.asked != `POST /admin/tenants/7/rules/rollback {"version":"0123456789ab.01234567"}` || !strings.Contains(stdout, "this ended the trial of rules@abcdef012345.01 (canary at 10 %)") {
		t.Errorf("rollback asks %s and says %s, %v", g.asked, stdout, err)
	}
	g.answer = `{"active":"rules@1","candidate":"rules@2","compared":4,"wouldChange":1,"running":true}`
	if stdout, _, err = tenant(t, env, "report", "--org", "7"); err != nil || g.asked != "GET /admin/tenants/7/rules/trial" || !strings.Contains(stdout, "4 decisions compared, 1 would change") {
		t.Errorf("report asks %s and says %s, %v", g.asked, stdout, err)
	}
}

// squeezed is what was asked, its JSON without spaces.
func squeezed(asked string) string {
	head, body, _ := strings.Cut(asked, "{")
	return head + string(squeeze([]byte("{"+body)))
}

func TestTenantRulesDryRun(t *testing.T) {
	g, env := stubAdmin(t)
	table := at(t, t.TempDir(), "rules.json", tableA)
	g.answer = `{"orgId":7,"facts":{},"operator":{"module":null},"tenant":{"module":"rules","version":"0123456789ab","applied":true,"rule":{"number":1,"message":"o1"},
		"answer":{"qps_permille":9000},"clamped":[{"field":"qps_permille","asked":9000,"granted":1000},{"field":"dims","asked":null,"granted":null}],
		"fault":null,"fuel":1389,"fuelAllowed":200000,"log":[{"level":"info","text":"hello"}]},"decision":{"qps_permille":1000},"policy":"rules@0123456789ab"}`
	stdout, _, err := tenant(t, env, "dry-run", "--org", "7", "-f", `{"key_id": 3}`, "--params", table)
	if err != nil || squeezed(g.asked) != `POST /admin/tenants/7/rules/dry-run {"facts":{"key_id":3},"params":`+string(squeeze([]byte(tableA)))+`}` {
		t.Errorf("dry-run asks %s, %v", g.asked, err)
	}
	for _, want := range []string{`"qps_permille": 1000`, "rule    1 o1", "fuel    1,389 of 200,000 (0.7 %)", "policy  rules@0123456789ab", "clamped qps_permille: asked 9000, granted 1000", "clamped dims", "log     info: hello"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("dry-run lacks %q: %s", want, stdout)
		}
	}
	if _, _, err = tenant(t, env, "dry-run", "--org", "7"); err != nil || g.asked != `POST /admin/tenants/7/rules/dry-run {}` {
		t.Errorf("dry-run of nothing asks %s, %v", g.asked, err)
	}
	g.answer = strings.Replace(strings.Replace(g.answer, `"fault":null`, `"fault":"fuel"`, 1), `"applied":true`, `"applied":false`, 1)
	if stdout, _, err = tenant(t, env, "dry-run", "--org", "7"); err == nil || !strings.Contains(err.Error(), "did not decide: fuel") || !strings.Contains(stdout, "the operator's module denied before") {
		t.Errorf("a fault: %s, %v", stdout, err)
	}
}

func TestTenantUsage(t *testing.T) {
	g, env := stubAdmin(t)
	g.answer = `{"orgId":7,"name":"Acme","qps":{"limit":5,"current":1},"policy":null,"data":[{"keyId":3,"name":"ci","qps":{"limit":2},"tpm":{},"monthly":{}}],"nextCursor":"abc"}`
	out := must(t, env, "tenant", "usage", "--org", "7", "--limit", "1")
	if g.asked != "GET /admin/tenants/7/usage?limit=1" {
		t.Errorf("usage asks %s", g.asked)
	}
	for _, want := range []string{"name     Acme\n", `qps      {"limit":5,"current":1}`, "KEYID", "ci", "more: --cursor abc"} {
		if !strings.Contains(out, want) {
			t.Errorf("usage lacks %q: %s", want, out)
		}
	}
	if out = must(t, env, "tenant", "usage", "--org", "7", "--json"); !strings.Contains(out, `"name": "Acme"`) {
		t.Errorf("usage --json says %s", out)
	}
	refused(t, exitUsage, []string{"tenant", "usage"}, "want --org")
}

func TestTenantRulesRefuses(t *testing.T) {
	g, env := stubAdmin(t)
	for _, c := range []struct{ args, want string }{
		{"get", "want --org with the id of an org"},
		{"set --org x -f {}", `a whole number from 1, got "x"`},
		{"set --org 7", "needs --params with the rules"},
		{"get 7", "weir tenant rules get takes no argument, got 1 argument(s); did you mean --org 7?"},
		{"set --org 7 --params nowhere.json", "want a JSON file"},
		{"set --org 7 -f {\"a\":}", "invalid character"},
		{"dry-run --org 7 -f [1]", "want a JSON file"},
		{"dryrun", `did you mean "dry-run"?`},
	} {
		if _, _, err := tenant(t, env, strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) || g.asked != "" {
			t.Errorf("weir tenant rules %s: %v, want %q; it asked %q", c.args, err, c.want, g.asked)
		}
	}
	g.status, g.answer = 400, `{"error":{"message":"rules[0].when: unknown member \"mdels\""}}`
	for _, args := range []string{"get --org 7", "set --org 7 -f {}", "dry-run --org 7"} {
		if _, _, err := tenant(t, env, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), "unknown member") {
			t.Errorf("weir tenant rules %s: %v", args, err)
		}
	}
}
