package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/policies"
)

// asks sends n small chats to a demo.
func asks(t *testing.T, env map[string]string, n int) {
	t.Helper()
	for range n {
		req, err := http.NewRequestWithContext(t.Context(), "POST", env["WEIR_URL"]+"/v1/chat/completions", strings.NewReader(hello))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+env["WEIR_KEY"])
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

// TestPolicyLife: a module is pushed, watched in shadow on live traffic, tried on some keys, activated and undone.
func TestPolicyLife(t *testing.T) {
	env := demo(t)
	policy := func(want string, args ...string) {
		t.Helper()
		if out := must(t, env, append([]string{"policy"}, args...)...); !strings.Contains(out, want) {
			t.Errorf("weir policy %s says %s, want %q", strings.Join(args, " "), out, want)
		}
	}
	const halved = `{"rules": [{"name": "half", "then": {"tpm_permille": 500}}]}`
	file := at(t, t.TempDir(), "mine.wasm", string(must1(policies.Shipped("rules"))))
	policy("mine@", "push", file)
	policy("  shadow: mine@", "shadow", "mine", "--params", halved)
	asks(t, env, 3)
	policy("3 decisions compared, 3 would change (100.0 %)", "report", "mine")
	policy("tpm_permille: 1000 -> 500", "report", "mine")
	policy("decides for 10 % of the keys", "canary", "mine", "--percent", "10")
	policy("canary", "versions", "mine")
	policy("operator: mine@", "activate", "mine")
	policy("operator: mine@", "params", "mine", "-f", `{"rules": []}`)
	policy("operator: mine@", "rollback", "mine")
	policy("operator: default@", "rollback", "mine")
	policy("default", "list")
	policy("org:1: mine@", "bind", "mine", "--org", "1")
	policy("org:1: mine@", "bindings")
	policy("org:1: no module decides", "unbind", "--org", "1")
	if _, stderr, code := weir(t, env, "policy", "activate", "defualt"); code != exitFail || !strings.Contains(stderr, "default") {
		t.Errorf("an unknown policy: exit %d, %s", code, stderr)
	}
	tenantLife(t, env, halved)
}

// TestPolicyReplayOfGateway: a gateway's own decision log is repeated bit for bit, the operator's lines and an org's.
func TestPolicyReplayOfGateway(t *testing.T) {
	log := filepath.Join(t.TempDir(), "decisions.ndjson")
	p := serve(t, "tiers: [{name: free}, {name: pro}]\npolicies: {module: default, labels: [{name: team, source: key}], decision_log: {path: "+log+", sample: 1}}\n")
	key := p.key("--tier", "free", "--label", "team=ops")
	const table = `{"rules": [{"name": "ops", "when": {"labels": {"team": ["ops"]}, "tiers": ["free"]}, "then": {"tpm_permille": 500}}]}`
	must(t, p.env, "tenant", "rules", "set", "--org", "1", "--params", table)
	before := p.warm(key) // decided by the operator's module alone
	const n = 5
	for range n - 1 {
		p.status(key, hello)
	}
	eventually(t, "the log holds a line for each module and request", func() bool {
		text, err := os.ReadFile(log)
		return err == nil && strings.Count(string(text), "\n") == before+2*n
	})
	for _, args := range [][]string{{"default", "-c", p.file}, {"default"}, {"rules", "--owner", "org:1", "--params", table, "-c", p.file}} {
		same := fmt.Sprintf("%d decisions compared, 0 would change (0.0 %%)", n)
		if args[0] == "default" {
			same = fmt.Sprintf("%d decisions compared, 0 would change (0.0 %%)", before+n)
		}
		out, stderr, code := weir(t, nil, append([]string{"policy", "replay", "--exit-code", "--from", log}, args...)...)
		if code != exitDone || !strings.Contains(out, same) {
			t.Errorf("replay %s: exit %d, %s%s, want %q", strings.Join(args, " "), code, out, stderr, same)
		}
	}
	out := must(t, nil, "policy", "replay", "--from", log, "rules", "--owner", "org:1", "-c", p.file)
	if !strings.Contains(out, "5 would change (100.0 %)") || !strings.Contains(out, "tpm_permille: 500 -> 1000") {
		t.Errorf("replay without the rules says %s", out)
	}
}

// tenantLife: the table of an org is tried, put in force and read back.
func tenantLife(t *testing.T, env map[string]string, table string) {
	out, _, err := tenant(t, env, "dry-run", "--org", "1", "-f", fmt.Sprintf(`{"key_id": 1, "attributes": {"model": %q}}`, "gpt-4o"), "--rules", table)
	if err != nil || !strings.Contains(out, "rule    1 half") || !strings.Contains(out, `"tpm_permille": 500`) {
		t.Errorf("dry-run says %s, %v", out, err)
	}
	out, _, err = tenant(t, env, "set", "--org", "1", "-f", table)
	if err != nil || !strings.Contains(out, "org 1: rules@") {
		t.Errorf("set says %s, %v", out, err)
	}
	out, _, err = tenant(t, env, "get", "--org", "1")
	if err != nil || string(squeeze([]byte(out))) != string(squeeze([]byte(table))) {
		t.Errorf("get says %s, %v", out, err)
	}
	if out = must(t, env, "tenant", "usage", "--org", "1"); !strings.Contains(out, "Demo") || !strings.Contains(out, "KEYID") {
		t.Errorf("usage says %s", out)
	}
	if _, _, err = tenant(t, env, "set", "--org", "1", "-f", `{"rules": [{"when": {"mdels": []}}]}`); err == nil || !strings.Contains(err.Error(), "mdels") {
		t.Errorf("a bad table: %v", err)
	}
}
