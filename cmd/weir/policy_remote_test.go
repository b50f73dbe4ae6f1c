package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/policies"
)

// adminStub is an admin API that notes what it is asked and answers what it is told to.
type adminStub struct {
	asked  string // method, path with query, content type, body
	status int
	answer string
}

func (g *adminStub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	text := string(body)
	if strings.HasPrefix(text, "\x00asm") {
		text = fmt.Sprintf("%d bytes", len(text))
	}
	g.asked = strings.TrimSpace(r.Method + " " + r.URL.RequestURI() + " " + text)
	if r.Header.Get("Authorization") != "Bearer secret" {
		g.asked = "without the token: " + g.asked
	}
	w.WriteHeader(g.status)
	_, _ = io.WriteString(w, g.answer)
}

func stubAdmin(t *testing.T) (*adminStub, map[string]string) {
	g := &adminStub{status: 200, answer: "{}"}
	srv := httptest.NewServer(g)
	t.Cleanup(srv.Close)
	return g, map[string]string{"WEIR_ADMIN_URL": srv.URL, "WEIR_ADMIN_TOKEN": "secret"}
}

// TestPolicyRemoteAsks: what each command sends.
func TestPolicyRemoteAsks(t *testing.T) {
	g, env := stubAdmin(t)
	dir := t.TempDir()
	params := at(t, dir, "params.json", `{"team_qps": 4}`)
	wasm, _ := policies.Shipped("default")
	file := at(t, dir, "mine.wasm", string(wasm))
	size := fmt.Sprintf("%d bytes", len(wasm))
	for _, c := range []struct{ args, want string }{
		{"push " + file, "POST /admin/policies?name=mine&profile=small " + size},
		{"push " + file + " --name other --profile large", "POST /admin/policies?name=other&profile=large " + size},
		{"list --json", "GET /admin/policies"},
		{"list", "GET /admin/bindings?limit=20"}, // after the policies
		{"bindings", "GET /admin/bindings"},
		{"bindings --limit 5 --cursor abc", "GET /admin/bindings?cursor=abc&limit=5"},
		{"versions a%2fb", "GET /admin/policies/a%252fb/versions"},
		{"versions mine --org 7", "GET /admin/policies/mine/versions?owner=org%3A7"},
		{"shadow mine", "POST /admin/policies/mine/shadow {}"},
		{"shadow mine --version abcdef --params " + params + " --on-error deny", `POST /admin/policies/mine/shadow {"onError":"deny","params":{"team_qps":4},"version":"abcdef"}`},
		{"canary mine --percent 10", `POST /admin/policies/mine/canary {"percent":10}`},
		{"canary mine --percent 10 --org 7", `POST /admin/policies/mine/canary {"owner":"org:7","percent":10}`},
		{"activate mine --params {}", `POST /admin/policies/mine/activate {"params":{}}`},
		{"rollback mine", "POST /admin/policies/mine/rollback {}"},
		{"rollback mine --version abcdef --org 7", `POST /admin/policies/mine/rollback {"owner":"org:7","version":"abcdef"}`},
		{"report mine --org 7 --json", "GET /admin/policies/mine/report?owner=org%3A7"},
		{"params mine --params " + params, `PUT /admin/policies/mine/params {"params":{"team_qps":4}}`},
		{"params mine -f {} --on-error last_good --org 7", `PUT /admin/policies/mine/params {"onError":"last_good","owner":"org:7","params":{}}`},
		{"bind mine --org 7 --version abcdef", `PUT /admin/bindings {"module":"mine","owner":"org:7","version":"abcdef"}`},
		{"unbind --org 7", `PUT /admin/bindings {"module":null,"owner":"org:7"}`},
		{"unbind --operator", `PUT /admin/bindings {"module":null}`},
	} {
		must(t, env, append([]string{"policy"}, strings.Fields(c.args)...)...)
		if g.asked != c.want {
			t.Errorf("weir policy %s asks\n%s, want\n%s", c.args, g.asked, c.want)
		}
	}
}

// TestPolicyRemoteShows: what each command makes of an answer.
func TestPolicyRemoteShows(t *testing.T) {
	g, env := stubAdmin(t)
	file := at(t, t.TempDir(), "mine.wasm", "\x00asm")
	row := `{"name":"mine","version":"0123456789ab","stage":"active","percent":100,"active":true,"profile":"small","size":1234,"versions":2,
		"uploadedAt":"2026-11-30T08:00:00Z","params":{"a":1},"owner":"operator","module":"mine","onError":"deny","candidate":null}`
	report := `{"stage":"canary","percent":10,"active":"mine@0123456789ab","candidate":"mine@abcdef012345","since":"2026-11-30T08:00:00Z","running":true,"compared":20000,"wouldChange":5000,
		"fields":{"verdict":5000,"status":0},"dimensions":{"user":7},"clamped":3,"reasons":[{"reason":2,"message":"no o1","count":5000}],"faults":{"fuel":1},
		"skipped":4,"examples":[{"facts":{"key_id":1},"active":{"verdict":"allow"},"candidate":{"verdict":"deny"},"fields":["verdict"]}]}`
	for _, c := range []struct {
		args, answer string
		want         []string
	}{
		{"push " + file, row, []string{"mine@0123456789ab is stored", "weir policy shadow mine"}},
		{"list", `{"data":[` + row + `]}`, []string{"NAME", "mine", "0123456789ab", "active"}},
		{"list", `{"data":[{"name":"mine","orgs":2,"owner":"org:7","module":"mine","version":"0123456789ab","onError":"default"},{"owner":"org:8"}],"nextCursor":"abc"}`,
			[]string{"ORGS", "org:7: mine@0123456789ab decides\nmore: weir policy bindings\n"}},
		{"versions mine", `{"data":[` + row + `]}`, []string{"UPLOADEDAT", `{"a":1}`, "2026-11-30"}},
		{"bindings", `{"data":[` + row + `],"nextCursor":"abc"}`, []string{"operator: mine@0123456789ab decides, on error deny\n", "more: --cursor abc"}},
		{"activate mine", row, []string{"operator: mine@0123456789ab decides"}},
		{"activate mine", `{"owner":"operator","module":"mine","version":"0123456789ab","onError":"default","endedTrial":{"module":"mine","version":"abcdef012345","stage":"canary","percent":10}}`,
			[]string{"operator: mine@0123456789ab decides\n  this ended the trial of mine@abcdef012345 (canary at 10 %)\n"}},
		{"activate mine", `{"owner":"operator","module":"mine","version":"0123456789ab","onError":"default","wasQuarantined":{"reason":"8 faults in 8 calls, the last: trap","since":"2026-11-30T08:00:00Z"}}`,
			[]string{"mine@0123456789ab decides\n  warning: it was quarantined at 2026-11-30T08:00:00Z: 8 faults in 8 calls, the last: trap\n"}},
		{"shadow mine --json", row, []string{`"version": "0123456789ab"`}},
		{"canary mine --percent 10", `{"owner":"org:7","module":null,"version":null,"onError":null,"problem":"its module is gone",
			"candidate":{"module":"mine","version":"abcdef012345","stage":"canary","percent":10}}`,
			[]string{"org:7: no module decides\n  canary: mine@abcdef012345 decides for 10 % of the keys; see weir policy report mine\n  problem: its module is gone\n"}},
		{"rollback mine", `[1]`, []string{"[1]"}},
		{"report mine", report, []string{"mine@0123456789ab -> mine@abcdef012345, canary 10 % of the keys", "20,000 decisions compared, 5,000 would change (25.0 %)",
			"field verdict", "dimension user", "fault fuel", "rule 2 no o1", "clamped by the envelope", "no instance was free", `verdict: "allow" -> "deny"`, "since 2026"}},
		{"report mine", `{"active":null,"candidate":"mine@1","running":false}`, []string{"native defaults -> mine@1", "the trial has ended"}},
		{"report mine --json", `{"compared":1}`, []string{`"compared": 1`}},
	} {
		g.answer = c.answer
		out := must(t, env, append([]string{"policy"}, strings.Fields(c.args)...)...)
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("weir policy %s lacks %q: %s", c.args, want, out)
			}
		}
	}
	g.answer = report
	if out := must(t, env, "policy", "report", "mine", "--examples", "0"); strings.Contains(out, "example 1") {
		t.Errorf("without examples it prints %s", out)
	}
	if strings.Contains(must(t, env, "policy", "report", "mine"), "status") {
		t.Error("a field that does not differ is shown")
	}
}

func TestPolicyRemoteRefuses(t *testing.T) {
	g, env := stubAdmin(t)
	for _, c := range []struct {
		code       int
		args, want string
	}{
		{exitUsage, "canary mine", "needs --percent N, 1 to 100 of a hundred keys"},
		{exitUsage, "canary mine --percent 0", "--percent: want 1 to 100 of a hundred keys, got 0"},
		{exitUsage, "canary mine --percent 101", "got 101"},
		{exitUsage, "canary mine --percent x", `--percent: expected a whole number, got "x"`},
		{exitUsage, "report mine --examples x", `--examples: expected a whole number, got "x"`},
		{exitUsage, "shadow", "takes NAME, got 0"},
		{exitUsage, "activate mine --on-error dney", `did you mean "deny"?`},
		{exitUsage, "activate mine --org x", `--org: want the id of an org, a whole number from 1, got "x"`},
		{exitUsage, "versions mine --org 0", "--org: want"},
		{exitFail, "activate mine --params [1]", "--params: want a JSON file"},
		{exitFail, `activate mine --params {"a":}`, "--params:1:6: invalid character"},
		{exitUsage, "params mine", "needs --params: a JSON file"},
		{exitUsage, "bind mine", "needs --org"},
		{exitUsage, "unbind", "want either --org N or --operator"},
		{exitUsage, "unbind --org 7 --operator", "want either --org N or --operator"},
		{exitUsage, "push nowhere.wasm", "no such file"},
		{exitUsage, "activte mine", `did you mean "activate"?`},
	} {
		g.asked = ""
		_, stderr, code := weir(t, env, append([]string{"policy"}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 || g.asked != "" {
			t.Errorf("weir policy %s: exit %d %q, want %d and %q; it asked %q", c.args, code, stderr, c.code, c.want, g.asked)
		}
	}
	g.status, g.answer = 409, `{"error":{"message":"policy \"mine\" is not active; activate it instead"}}`
	for _, args := range []string{"rollback mine", "report mine", "list", "push " + at(t, t.TempDir(), "a.wasm", "\x00asm"), "unbind --org 7"} {
		_, stderr, code := weir(t, env, append([]string{"policy"}, strings.Fields(args)...)...)
		if code != exitFail || stderr != "weir: policy \"mine\" is not active; activate it instead\n" {
			t.Errorf("weir policy %s: exit %d %q", args, code, stderr)
		}
	}
	if _, stderr, code := weir(t, nil, "policy", "list"); code != exitUsage || !strings.Contains(stderr, "WEIR_ADMIN_TOKEN") {
		t.Errorf("without a token: exit %d %q", code, stderr)
	}
}

// TestPolicyPushOfLargeAgain: a .wasm file does not say its profile; pushing stored bytes again is no change, though
// they are stored in the larger profile.
func TestPolicyPushOfLargeAgain(t *testing.T) {
	env := demo(t)
	wasm, _ := policies.Shipped("burst")
	file := at(t, t.TempDir(), "mine.wasm", string(wasm))
	first := must(t, env, "policy", "push", file, "--profile", "large")
	if again := must(t, env, "policy", "push", file); again != first || !strings.Contains(again, "profile large") {
		t.Errorf("the second push prints %s, the first %s", again, first)
	}
	if again := must(t, env, "policy", "push", file, "--profile", "small"); again != first {
		t.Errorf("as small it prints %s", again)
	}
}

// TestPolicyPushHintsAtTheProfile only where another profile would help.
func TestPolicyPushHintsAtTheProfile(t *testing.T) {
	g, env := stubAdmin(t)
	file := at(t, t.TempDir(), "mine.wasm", "\x00asm wasi_snapshot_preview1")
	push := func(env map[string]string, hint bool) {
		t.Helper()
		_, stderr, code := weir(t, env, "policy", "push", file)
		if code == exitDone || strings.Contains(stderr, "needs --profile large") != hint {
			t.Errorf("exit %d, %s", code, stderr)
		}
	}
	push(nil, false)
	push(map[string]string{"WEIR_ADMIN_TOKEN": "secret", "WEIR_ADMIN_URL": "http://" + free(t)}, false)
	for answer, hint := range map[string]bool{
		`policy module refused: bytes: 2000000, the cap of profile small is 1048576`:                                  true,
		`policy module refused: import wasi_snapshot_preview1.fd_write: WASI is for profile large, this is small`:     true,
		`policy module refused: compiling and starting it took longer than the 2s of profile small`:                   true,
		`policy module refused: section 200 is unknown, repeated or out of order`:                                     false,
		`policy "mine" has these bytes already, with profile large; upload them under another name for profile small`: false,
	} {
		g.status, g.answer = 400, `{"error":{"message":`+quoted(answer)+`}}`
		push(env, hint)
	}
}
