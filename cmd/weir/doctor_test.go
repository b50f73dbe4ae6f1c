package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDoctorOfARunningGateway: where there is no file, but the environment names a gateway, as the demo's line does, that is
// what is looked at. A file that is there, or is named, comes first.
func TestDoctorOfARunningGateway(t *testing.T) {
	env := demo(t)
	t.Chdir(t.TempDir())
	out, stderr, code := weir(t, env, "doctor")
	for _, want := range []string{"ok    config: no weir.yaml here", env["WEIR_ADMIN_URL"], "ok    gateway: ready", "ok    store: ", "ok    upstream sim-openai: up", "ok    upstream sim-anthropic: up"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if code != exitDone || t.Failed() {
		t.Fatalf("exit %d: %s%s", code, out, stderr)
	}
	var said struct {
		Status string
		Checks []struct{ Name, Status string }
	}
	out = must(t, env, "doctor", "--json")
	if err := json.Unmarshal([]byte(out), &said); err != nil || said.Status != "ok" || len(said.Checks) < 4 {
		t.Errorf("%v: %s", err, out)
	}

	must(t, env, "channel", "create", "--name", "gone", "--provider", "openai", "--base-url", "http://127.0.0.1:9", "--state", "disabled")
	if out = must(t, env, "doctor"); !strings.Contains(out, "ok    upstream gone: disabled") {
		t.Error(out)
	}
	wrong := map[string]string{"WEIR_ADMIN_URL": env["WEIR_ADMIN_URL"], "WEIR_ADMIN_TOKEN": "another-token-than-its"}
	if out, _, code = weir(t, wrong, "doctor"); code != 2 || !strings.Contains(out, "fail  gateway: ") || !strings.Contains(out, "WEIR_ADMIN_TOKEN") {
		t.Errorf("with another token: exit %d: %s", code, out)
	}
	wrong["WEIR_ADMIN_URL"] = "http://127.0.0.1:9"
	if out, _, code = weir(t, wrong, "doctor"); code != 2 || !strings.Contains(out, "fail  gateway: no answer from the gateway at http://127.0.0.1:9") {
		t.Errorf("where nobody is: exit %d: %s", code, out)
	}
	if out, _, code = weir(t, env, "doctor", "-c", "weir.yaml"); code != 2 || !strings.Contains(out, "fail  config: ") {
		t.Errorf("a file that is named: exit %d: %s", code, out)
	}
	if out, _, code = weir(t, nil, "doctor"); code != 2 || !strings.Contains(out, "fail  config: ") {
		t.Errorf("nothing names a gateway: exit %d: %s", code, out)
	}
	if err := os.WriteFile(filepath.Join(".", "weir.yaml"), []byte("lsiten: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, _, code = weir(t, env, "doctor"); code != 2 || !strings.Contains(out, `unknown field "lsiten"`) {
		t.Errorf("a file that is there: exit %d: %s", code, out)
	}
}
