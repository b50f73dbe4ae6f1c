package main

import (
	"fmt"
	"io"
	"net/http"
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
	if _, _, err = tenant(t, env, "set", "--org", "1", "-f", `{"rules": [{"when": {"mdels": []}}]}`); err == nil || !strings.Contains(err.Error(), "mdels") {
		t.Errorf("a bad table: %v", err)
	}
}
