package admin_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/admin"
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/store/storetest"
)

// table is params of the module rules with one rule that always fires.
func table(name string, then j) j { return j{"rules": []j{{"name": name, "then": then}}} }

// ask has the host decide for n keys of an org.
func (f *fixture) ask(org uint64, n int) (last policy.Decision) {
	for key := range uint64(n) {
		for try := 0; try == 0 || last.Tenant.Fault == "not_ready" && try < 1000; try++ { // on a busy machine an org's instance takes its time
			last = policy.Decision{}
			f.host.Decide(&policy.Facts{NowMS: uint64(f.clock.Wall().UnixMilli()), Key: key + 1, Org: org, QPSLimit: 100, TPMLimit: 1000, Choices: 1,
				Attr: [policy.NAttr]string{policy.AttrModel: "m"}}, &last)
		}
	}
	return last
}

// compare asks until a trial has compared n decisions: a candidate that is not ready yet compares nothing.
func (f *fixture) compare(org uint64, n int, report string) {
	f.t.Helper()
	for range 1000 {
		f.ask(org, 1)
		if fmt.Sprint(f.ok("GET", report, nil).at("compared")) == fmt.Sprint(n) {
			return
		}
	}
	f.t.Fatalf("%d decisions were never compared", n)
}

// stages are the versions of a policy as "stage percent", newest first.
func (f *fixture) stages(name, owner string) (out []string) {
	f.t.Helper()
	rows, _ := f.ok("GET", "/admin/policies/"+name+"/versions?owner="+owner, nil).json["data"].([]any)
	for _, row := range rows {
		r := row.(map[string]any)
		out = append(out, fmt.Sprint(r["stage"], " ", r["percent"]))
	}
	return out
}

func (f *fixture) staged(name, owner string, want ...string) {
	f.t.Helper()
	if got := f.stages(name, owner); !slices.Equal(got, want) {
		f.t.Errorf("%s of %s is %q, want %q", name, owner, got, want)
	}
}

// everyBinding is what the API says of policies, and the host's plans.
func (f *fixture) everyBinding() string {
	all := f.everything() + f.send("GET", "/admin/policies/rules/versions", nil).raw + f.send("GET", "/admin/tenants/1/rules", nil).raw
	for _, o := range f.host.Owners() {
		p, _ := f.host.PlanOf(o)
		raw, _ := json.Marshal(p)
		all += o.String() + string(raw) + "\n"
	}
	return all
}

// well waits until the ledger has seen that the store is well again.
func (f *fixture) well() {
	f.store.Before(nil)
	for f.ledger.Healthy() != nil {
		time.Sleep(time.Millisecond)
	}
}

// unchanged compares everyBinding, and shows the lines that differ.
func (f *fixture) unchanged(before string) {
	f.t.Helper()
	was, now := strings.Split(before, "\n"), strings.Split(f.everyBinding(), "\n")
	for i := range max(len(was), len(now)) {
		if i >= len(was) || i >= len(now) || was[i] != now[i] {
			f.t.Errorf("changed:\n%.1500s\n%.1500s", was[min(i, len(was)-1)], now[min(i, len(now)-1)])
		}
	}
}

// Uploaded, in shadow, as a canary, active, rolled back; and the same after a restart in each stage.
func TestLifeOfAVersion(t *testing.T) {
	t.Parallel()
	for _, owner := range []string{"operator", "org:1"} {
		t.Run(owner, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.account()
			var org uint64
			if owner != "operator" {
				org = 1
			}
			again := func() {
				t.Helper()
				before := f.everyBinding()
				f.restart()
				f.unchanged(before)
			}
			f.ok("POST", "/admin/policies?name=rules", module(t, "rules")).has(t, "stage", "uploaded", "active", false)
			f.staged("rules", owner, "uploaded 0")
			f.ok("POST", "/admin/policies/rules/activate", j{"owner": owner}).has(t, "owner", owner, "module", "rules", "candidate", nil)
			f.staged("rules", owner, "active 100")

			half, third := table("half", j{"qps_permille": 500}), table("third", j{"qps_permille": 333})
			v := f.ok("POST", "/admin/policies/rules/shadow", j{"owner": owner, "params": half, "onError": "deny"})
			v.has(t, "params", nil, "onError", "default", "candidate.stage", "shadow", "candidate.percent", 0, "candidate.onError", "deny")
			again()
			if d := f.ask(org, 1); d.QPS != 1000 {
				t.Errorf("a shadow decides: %d", d.QPS)
			}
			f.compare(org, 20, "/admin/policies/rules/report?owner="+owner)
			f.ok("GET", "/admin/policies/rules/report?owner="+owner, nil).has(t, "owner", owner, "stage", "shadow", "running", true, "compared", 20,
				"wouldChange", 20, "fields.qps_permille", 20, "reasons.0.message", "half", "examples.9.candidate.qps_permille", 500, "examples.10", nil)

			f.ok("POST", "/admin/policies/rules/canary", j{"owner": owner, "percent": 30}).has(t, "candidate.stage", "canary", "candidate.percent", 30, "candidate.onError", "deny")
			f.staged("rules", owner, "active 70", "canary 30")
			again()
			halved := 0
			for key := range uint64(1000) {
				var d policy.Decision
				if f.host.Decide(&policy.Facts{Key: key + 1, Org: org, QPSLimit: 100, Choices: 1}, &d); d.QPS == 500 {
					halved++
				}
			}
			if halved < 200 || halved > 400 {
				t.Errorf("%d of 1000 keys are in a canary of 30 %%", halved)
			}
			f.ok("POST", "/admin/policies/rules/rollback", j{"owner": owner}).has(t, "candidate", nil, "onError", "default")
			f.staged("rules", owner, "active 100", "kept 0")
			f.ok("GET", "/admin/policies/rules/report?owner="+owner, nil).has(t, "running", false, "compared", halved)

			f.ok("POST", "/admin/policies/rules/activate", j{"owner": owner, "version": v.at("candidate.version")}).has(t, "onError", "deny", "version", v.at("candidate.version"))
			if d := f.ask(org, 1); d.QPS != 500 {
				t.Errorf("the active version is not asked: %d", d.QPS)
			}
			f.ok("PUT", "/admin/policies/rules/params", j{"owner": owner, "params": third}).has(t, "onError", "deny")
			if d := f.ask(org, 1); d.QPS != 333 {
				t.Errorf("the new params do not decide: %d", d.QPS)
			}
			f.staged("rules", owner, "active 100", "kept 0", "kept 0")
			again()
			f.ok("POST", "/admin/policies/rules/rollback", j{"owner": owner}).has(t, "version", v.at("candidate.version"))
			f.ok("POST", "/admin/policies/rules/rollback", j{"owner": owner}).has(t, "params", nil)
			f.refused(409, "POST", "/admin/policies/rules/rollback", j{"owner": owner}, "no earlier version", "DELETE /admin/bindings?owner="+owner)
			again()
			f.ok("POST", "/admin/policies/rules/rollback", j{"owner": owner, "version": v.at("candidate.version")}).has(t, "onError", "deny")
			f.ok("DELETE", "/admin/bindings?owner="+owner, nil).has(t, "module", nil, "owner", owner)
			if _, bound := f.host.PlanOf(policy.Owner(org)); bound {
				t.Error("the host still has a plan")
			}
			again()
			f.staged("rules", owner, "kept 0", "kept 0", "kept 0")
			f.audited(t, "binding.clear", "policy.rollback", "policy.rollback", "policy.rollback", "policy.params", "policy.activate",
				"policy.rollback", "policy.canary", "policy.shadow", "policy.activate", "policy.upload")
		})
	}
}

// audited compares the newest audit lines, newest first.
func (f *fixture) audited(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	a := f.ok("GET", fmt.Sprintf("/admin/audit?limit=%d", len(want)), nil)
	for i := range want {
		got = append(got, fmt.Sprint(a.at(fmt.Sprintf("data.%d.action", i))))
	}
	if !slices.Equal(got, want) {
		t.Errorf("audit is %q, want %q", got, want)
	}
}

func TestATrialNeedsSomethingNew(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.account()
	f.ok("POST", "/admin/policies/rules/activate", nil)
	f.refused(409, "POST", "/admin/policies/rules/shadow", nil, "active")
	f.refused(400, "POST", "/admin/policies/rules/canary", nil, "percent", "required")
	f.refused(400, "POST", "/admin/policies/rules/canary", j{"percent": 101}, "1 to 100")
	f.refused(400, "POST", "/admin/policies/rules/shadow", j{"percent": 10}, "percent", "canary")
	f.refused(404, "GET", "/admin/policies/rules/report", nil, "trial")
	f.refused(400, "GET", "/admin/policies/rules/report?owner=org:9", nil, "no org 9")
	f.refused(404, "POST", "/admin/policies/ruels/shadow", nil, `did you mean "rules"?`)
	f.refused(409, "PUT", "/admin/policies/rules/params", j{"owner": "org:1", "params": j{}}, "not active for org:1")
	f.refused(400, "PUT", "/admin/policies/rules/params", j{}, "params", "required")
	f.refused(400, "DELETE", "/admin/bindings", nil, "owner")
	f.refused(400, "POST", "/admin/policies/rules/rollback", j{"version": "0123456789ab"}, "keeps no version")
	f.audited(t, "policy.activate")
}

// The newest upload goes into shadow, what was in shadow becomes canary and active.
func TestWhatAnAbsentVersionMeans(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	one := module(t, "rules")
	var hashes []string
	for i := range byte(3) {
		hashes = append(hashes, fmt.Sprint(f.ok("POST", "/admin/policies?name=r", variant(one, i)).at("hash")))
	}
	f.ok("POST", "/admin/policies/r/activate", j{"version": hashes[0]})
	f.ok("POST", "/admin/policies/r/shadow", j{"version": hashes[1], "params": table("x", j{"qps_permille": 500})}).has(t, "candidate.hash", hashes[1])
	f.ok("POST", "/admin/policies/r/shadow", nil).has(t, "candidate.hash", hashes[2], "candidate.params.rules.0.name", "x")
	f.ok("POST", "/admin/policies/r/shadow", j{"version": hashes[1]})
	f.ok("GET", "/admin/policies", nil).has(t, "data.0.hash", hashes[0], "data.0.stage", "active", "data.0.candidate.stage", "shadow")
	f.ok("POST", "/admin/policies/r/canary", j{"percent": 5}).has(t, "candidate.hash", hashes[1], "hash", hashes[0])
	f.ok("GET", "/admin/policies", nil).has(t, "data.0.percent", 95, "data.0.candidate.percent", 5)
	f.ok("POST", "/admin/policies/r/activate", nil).has(t, "hash", hashes[1], "candidate", nil, "params.rules.0.name", "x")
	f.ok("POST", "/admin/policies/r/activate", nil).has(t, "hash", hashes[2])
	// Another policy takes over, is on trial beside, and goes back to what was there before it.
	f.ok("POST", "/admin/policies/default/activate", nil).has(t, "module", "default")
	f.ok("POST", "/admin/policies/r/canary", j{"percent": 5}).has(t, "module", "default", "candidate.module", "r")
	f.ok("GET", "/admin/policies?name=r", nil).has(t, "data.0.stage", "canary", "data.0.percent", 5, "data.0.active", false)
	f.ok("POST", "/admin/policies/default/rollback", nil).has(t, "module", "r", "hash", hashes[2])
}

// What was withdrawn comes back as it was: the version that the list shows.
func TestAWithdrawnVersionKeepsItsParams(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.ok("POST", "/admin/policies?name=r", variant(module(t, "rules"), 1))
	tried := f.ok("POST", "/admin/policies/r/shadow", j{"params": table("x", j{"qps_permille": 500}), "onError": "deny"}).at("candidate.version")
	f.ok("POST", "/admin/policies/r/rollback", nil)
	f.ok("GET", "/admin/policies", nil).has(t, "data.0.version", tried)
	f.ok("POST", "/admin/policies/r/canary", j{"percent": 10}).has(t, "candidate.version", tried, "candidate.onError", "deny")
	f.ok("POST", "/admin/policies/r/rollback", nil)
	f.ok("POST", "/admin/policies/r/shadow", nil).has(t, "candidate.version", tried)
	f.ok("POST", "/admin/policies/r/rollback", nil)
	f.ok("POST", "/admin/policies/r/activate", nil).has(t, "version", tried)
	f.ok("DELETE", "/admin/bindings?owner=operator", nil)
	f.ok("POST", "/admin/policies/r/activate", j{"version": fmt.Sprint(tried)[:8]}).has(t, "version", tried)
	f.ok("DELETE", "/admin/bindings?owner=operator", nil)
	newer := f.ok("POST", "/admin/policies?name=r", variant(module(t, "rules"), 2)).at("hash")
	f.ok("POST", "/admin/policies/r/shadow", nil).has(t, "candidate.hash", newer, "candidate.params.rules.0.name", "x")
	f.ok("POST", "/admin/policies/r/shadow", j{"params": nil}).has(t, "candidate.hash", newer, "candidate.params", nil)
}

// Each policy's last report is there until the policy's next trial.
func TestReportsOfSeveralPolicies(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.ok("POST", "/admin/policies/default/activate", nil)
	f.ok("POST", "/admin/policies/rules/shadow", j{"params": table("x", j{"qps_permille": 500})})
	f.compare(0, 2, "/admin/policies/rules/report")
	f.ok("POST", "/admin/policies/priority/shadow", nil).has(t, "endedTrial.module", "rules")
	f.ok("GET", "/admin/policies/rules/report", nil).has(t, "running", false, "compared", 2, "stage", "shadow", "percent", 0)
	f.compare(0, 3, "/admin/policies/priority/report")
	f.ok("POST", "/admin/policies/rules/canary", j{"percent": 5}).has(t, "endedTrial.module", "priority")
	f.ok("GET", "/admin/policies/rules/report", nil).has(t, "running", true, "compared", 0, "stage", "canary", "percent", 5)
	f.ok("GET", "/admin/policies/priority/report", nil).has(t, "running", false, "compared", 3, "percent", 0)
}

func TestParamsThatTheSchemaRefuses(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.account()
	f.ok("POST", "/admin/policies/rules/activate", nil)
	before := f.everyBinding()
	bad := table("x", j{"qps_permile": 500})
	for _, way := range []struct {
		method, path string
		body         any
	}{
		{"POST", "/admin/policies/rules/activate", j{"params": bad}},
		{"POST", "/admin/policies/rules/shadow", j{"params": bad}},
		{"POST", "/admin/policies/rules/canary", j{"params": bad, "percent": 1}},
		{"PUT", "/admin/policies/rules/params", j{"params": bad}},
		{"PUT", "/admin/bindings", j{"owner": "org:1", "module": "rules", "params": bad}},
		{"PUT", "/admin/tenants/1/rules", bad},
		{"POST", "/admin/tenants/1/rules/dry-run", j{"params": bad}},
	} {
		f.refused(400, way.method, way.path, way.body, `params: rules[0].then.qps_permile: unknown; did you mean "qps_permille"?`).has(t, "error.param", "params")
	}
	f.unchanged(before)
}

// A change that cannot be written leaves the host as it was.
func TestAFailedWriteChangesNoBinding(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.account()
	f.ok("POST", "/admin/policies/rules/activate", nil)
	f.ok("PUT", "/admin/tenants/1/rules", table("half", j{"qps_permille": 500}))
	before := f.everyBinding()
	f.store.Before(func(int, []ledger.Write) error { return storetest.ErrInjected })
	third := table("third", j{"qps_permille": 333})
	for path, body := range map[string]j{
		"POST /admin/policies/rules/activate":     {"params": third},
		"POST /admin/policies/rules/shadow":       {"params": third, "owner": "org:1"},
		"POST /admin/policies/rules/canary":       {"params": third, "percent": 50},
		"PUT /admin/tenants/1/rules":              third,
		"DELETE /admin/bindings?owner=org:1":      nil,
		"PUT /admin/policies/rules/params":        {"params": third},
		"POST /admin/policies/priority/activate":  {},
		"PUT /admin/bindings":                     {"module": nil},
		"POST /admin/policies/rules/rollback?x=1": nil,
	} {
		method, path, _ := strings.Cut(path, " ")
		if a := f.send(method, path, body); a.status != 503 && !strings.Contains(path, "rollback") {
			t.Errorf("%s %s: %d %s", method, path, a.status, a.raw)
		}
	}
	f.store.Before(nil)
	f.unchanged(before)
	if d := f.ask(1, 1); d.QPS != 500 {
		t.Errorf("the org's rules give %d", d.QPS)
	}
	f.well()
	f.restart()
	f.unchanged(before)
}

func TestParamsOfTheLargestSize(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.account()
	big := func(n int) j {
		rules := make([]j, 40)
		for i := range rules {
			rules[i] = j{"name": fmt.Sprint("rule ", n, " ", i), "when": j{"models": slices.Repeat([]string{strings.Repeat("m", 120)}, 1)}, "then": j{"deny": j{"message": strings.Repeat("x", 390)}}}
		}
		return j{"rules": rules}
	}
	for n := range 12 {
		f.ok("PUT", "/admin/tenants/1/rules", big(n))
	}
	before := f.everyBinding()
	if kept := len(f.stages("rules", "org:1")); kept < 8 || kept > 17 {
		t.Errorf("%d versions are kept", kept)
	}
	f.ok("GET", "/admin/audit?limit=1", nil).has(t, "data.0.action", "tenant.rules", "data.0.after.params", nil)
	f.restart()
	f.unchanged(before)
}

func TestOrgsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.ok("POST", "/admin/orgs", j{"name": "Acme"})
	f.ok("PUT", "/admin/tenants/1/rules", table("half", j{"qps_permille": 500}))
	f.ok("GET", "/admin/bindings", nil).has(t, "data.0.owner", "operator", "data.1.owner", "org:1")
	f.ok("GET", "/admin/bindings?limit=1", nil).has(t, "data.1", nil, "nextCursor", "operator")
	f.ok("GET", "/admin/bindings?cursor=operator", nil).has(t, "data.0.owner", "org:1", "nextCursor", nil)
	f.ok("GET", "/admin/bindings?owner=org:1", nil).has(t, "data.0.owner", "org:1", "data.1", nil)
	f.ok("DELETE", "/admin/orgs/1", nil)
	if _, bound := f.host.PlanOf(1); bound || f.ask(1, 1).QPS != 1000 {
		t.Error("the org's rules still decide")
	}
	f.ok("GET", "/admin/bindings", nil).has(t, "data.1", nil)
	f.restart()
	f.ok("GET", "/admin/bindings", nil).has(t, "data.1", nil)
	f.refused(404, "GET", "/admin/tenants/1/rules", nil)
}

// What an org has made does not keep the gateway from starting; what the operator has made does.
func TestBindingsThatDoNotLoadAnyMore(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.account()
	f.ok("PUT", "/admin/tenants/1/rules", table("up", j{"tier": "pro"}))
	f.ok("POST", "/admin/policies/rules/activate", nil)
	f.ok("POST", "/admin/policies/rules/shadow", j{"params": table("up", j{"tier": "pro"})})
	f.o.TierNames = []string{"free", "max"} // the configuration has changed
	f.o.Envelopes = policy.Envelopes{}
	f.restart()
	f.ok("GET", "/admin/bindings", nil).has(t, "data.0.module", "rules", "data.0.candidate", nil, "data.0.problem", nil, "data.1.module", "rules")
	problem := fmt.Sprint(f.ok("GET", "/admin/tenants/1/rules", nil).at("problem"))
	if !strings.Contains(problem, "params") {
		t.Errorf("the problem is %q", problem)
	}
	f.audited(t, "policy.withdraw")
	f.refused(400, "PUT", "/admin/tenants/1/rules", table("up", j{"tier": "pro"}), "params")
	f.ok("PUT", "/admin/tenants/1/rules", table("up", j{"tier": "max"})).has(t, "problem", nil)

	f.ok("PUT", "/admin/policies/rules/params", j{"params": table("up", j{"tier": "max"})})
	f.o.TierNames = []string{"free"}
	err := func() error {
		f.close()
		defer f.open()
		l, state, err := ledger.Open(f.store, ledger.Options{}, f.clock)
		f.must(err)
		host, err := policy.NewHost(policy.Options{CacheDir: t.TempDir(), Tiers: f.o.TierNames, Clock: f.clock})
		f.must(err)
		api := admin.New(f.o, admin.Parts{Clock: f.clock, Ledger: l, Directory: f.dir, Limiter: f.limiter, Policy: host, Live: f.proxy})
		defer func() { api.Close(); host.Close(); f.must(l.Close()); f.o.TierNames = []string{"free", "max"} }()
		return api.Restore(t.Context(), state)
	}()
	if err == nil || !strings.Contains(err.Error(), "rules") {
		t.Errorf("the operator's policy does not load: %v", err)
	}
}
