package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// canaries are secrets by where they are put; none may come out anywhere else.
func canaries() map[string]string {
	all := map[string]string{}
	for i, name := range []string{"admin token", "credential", "alert secret", "upstream error", "upstream header", "authorization", "x-api-key", "cookie", "header", "query", "path", "user agent",
		"beta", "content", "member name", "member value", "tool", "model", "user", "system"} {
		all[name] = fmt.Sprintf("sk-canary%02d-Zq8Xv0Kp3WmY6tRb", i)
	}
	return all
}

// talkative is an upstream that fails, and tells all it has been told.
func talkative(t *testing.T, told map[string]string) string {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Debug", told["upstream header"])
		w.Header().Set("Content-Type", "application/json")
		status := http.StatusOK
		if n, _ := fmt.Sscanf(r.Header.Get("X-Sim"), "%d", &status); n == 1 && status != http.StatusOK {
			w.WriteHeader(status)
		}
		_, _ = fmt.Fprintf(w, `{"error":{"message":"%s: %s said %d bytes","type":"x"}}`, told["upstream error"], r.Header.Get("Authorization"), len(body))
	}))
	t.Cleanup(up.Close)
	return up.URL
}

// TestCanariesStayWhereTheyArePut: twenty secrets in every field that a file, a client or a provider has are in no log, text
// or JSON, at the level debug, no metric, no audit entry, no decision (but for the user that a request names), no configuration shown and no dump of the process; and
// no answer has one of somebody else.
func TestCanariesStayWhereTheyArePut(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			secrets := canaries()
			t.Setenv("ALERT", secrets["alert secret"])
			decisions := filepath.Join(t.TempDir(), "decisions.ndjson")
			p := serve(t, "log: {level: debug, format: "+format+"}\nalerts: {url: \"http://127.0.0.1:1/\", secret: \"${ALERT}\"}\npolicies: {module: default, header: true, decision_log: {path: \""+decisions+
				"\", sample: 1}, labels: [{name: tier, source: key}, {name: soft, source: key}, {name: hot, source: model}]}\n")
			p.kill()
			text, err := os.ReadFile(p.file)
			if err != nil {
				t.Fatal(err)
			}
			own := strings.Replace(string(text), "sk-simulated", `"${CREDENTIAL}"`, 1)
			own = regexp.MustCompile(`base_url: "[^"]*"`).ReplaceAllString(own, `base_url: "`+talkative(t, secrets)+`"`)
			write(t, p.file, own)
			p.env["WEIR_ADMIN_TOKEN"], p.env["CREDENTIAL"], p.env["ALERT"] = secrets["admin token"], secrets["credential"], secrets["alert secret"]
			p.env["DATA"] = filepath.Join(t.TempDir(), "data")
			p.start()
			secrets["key"] = p.key()
			told := p.tell(t, secrets)
			foreign := map[string]string{}
			for _, name := range []string{"admin token", "credential", "alert secret", "upstream header", "key"} {
				foreign[name] = secrets[name]
			}
			sings(t, "an answer", told, foreign)
			sings(t, "config show", must(t, p.env, "config", "show", "-c", p.file)+must(t, p.env, "config", "show", "-c", p.file, "--json"), secrets)
			for _, path := range []string{"/metrics", "/admin/audit", "/admin/keys", "/admin/channels", "/admin/usage", "/admin/models"} {
				sings(t, path, p.admin(t, path), secrets)
			}
			if err := p.cmd.Process.Signal(syscall.SIGQUIT); err != nil { // as when the runtime gives up
				t.Fatal(err)
			}
			_ = p.cmd.Wait()
			written, err := os.ReadFile(decisions)
			if err != nil || len(written) == 0 {
				t.Errorf("no decision was written: %v", err)
			}
			withUser := secrets["user"]
			delete(secrets, "user") // a fact that modules decide by, and a replay needs
			sings(t, "the decision log", string(written), secrets)
			secrets["user"] = withUser
			if log := p.log(); !strings.Contains(log, "goroutine ") || strings.Count(log, "request_id") < 30 {
				t.Errorf("the log does not tell enough to prove anything: %.2000s", log)
			}
			sings(t, "the log", p.log(), secrets)
		})
	}
}

// sings complains about each secret that stands in a text.
func sings(t *testing.T, where, text string, secrets map[string]string) {
	t.Helper()
	for name, secret := range secrets {
		if i := strings.Index(text, secret); i >= 0 {
			t.Errorf("%s has the secret of %s: %.200s", where, name, text[max(0, i-100):])
		}
	}
}

// tell sends requests with every secret that a client has, good ones and bad ones, and gives all that was answered.
func (p *process) tell(t *testing.T, secrets map[string]string) string {
	t.Helper()
	var out strings.Builder
	fine := fmt.Sprintf(`"messages":[{"role":"system","content":%q},{"role":"user","content":%q}],"max_tokens":5,"user":%q,"x_%s":%q,"tools":[{"type":"function","function":{"name":%q}}]}`,
		secrets["system"], secrets["content"], secrets["user"], secrets["member name"], secrets["member value"], secrets["tool"])
	for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/" + secrets["path"], "/v1/models/" + secrets["path"]} {
		for _, body := range []string{`{"model":"gpt-4o-mini",` + fine, `{"model":"` + secrets["model"] + `",` + fine, `{"model":"gpt-4o-mini","` + secrets["member name"] + `":` + fine,
			`{"model":"gpt-4o-mini","n":"` + secrets["member value"] + `",` + fine, `{"model":"gpt-4o-mini","max_tokens":` + secrets["member value"] + `}`} {
			for _, with := range [][2]string{{"Authorization", "Bearer " + secrets["key"]}, {"Authorization", "Bearer " + secrets["authorization"]}, {"Authorization", secrets["authorization"]}, {"X-Api-Key", secrets["x-api-key"]},
				{"X-Sim", "400"}, {"X-Sim", "500"}, {"Content-Encoding", secrets["header"]}, {"Content-Type", secrets["header"]}} {
				req, err := http.NewRequest("POST", p.env["WEIR_URL"]+path+"?key="+secrets["query"], strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Authorization", "Bearer "+secrets["key"])
				for name, value := range map[string]string{"Cookie": secrets["cookie"], "X-Other": secrets["header"], "User-Agent": secrets["user agent"], "Anthropic-Beta": secrets["beta"], "X-Request-Id": secrets["header"]} {
					req.Header.Set(name, value)
				}
				if with[0] == "X-Api-Key" {
					req.Header.Del("Authorization")
				}
				req.Header.Set(with[0], with[1])
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Header.Del("X-Client-Request-Id") // the client's own, given back
				_ = resp.Header.Write(&out)
				_, _ = io.Copy(&out, resp.Body)
				_ = resp.Body.Close()
			}
		}
	}
	return out.String()
}

// admin is what the operator's listener says.
func (p *process) admin(t *testing.T, path string) string {
	t.Helper()
	req, err := http.NewRequest("GET", p.env["WEIR_ADMIN_URL"]+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.env["WEIR_ADMIN_TOKEN"])
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s %v", path, resp.StatusCode, b, err)
	}
	return string(b)
}
