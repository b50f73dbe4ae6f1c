package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestObjectsAsk: each flag becomes the member that the API names, and nothing that was not given is sent.
func TestObjectsAsk(t *testing.T) {
	g, env := stubAdmin(t)
	for _, c := range []struct{ args, want string }{
		{"model set m --cache-write 2.5", `PUT /admin/models/m {"cacheWriteCnyPer1M":2.5}`},
		{"channel create --name c --qps-limit 5 --tpm-limit 6 --concurrency-limit 7", `POST /admin/channels {"concurrencyLimit":7,"name":"c","qpsLimit":5,"tpmLimit":6}`},
		{"channel update 1 --concurrency-limit 0", `PATCH /admin/channels/1 {"concurrencyLimit":0}`},
		{"key limits 1 --budget day:limit=2.5,anchor=6,timezone=Asia/Shanghai --budget week:anchor=monday,timezone=null --budget month:none",
			`POST /admin/keys/1/limits {"budgets":{"day":{"anchor":6,"limitCny":2.5,"timezone":"Asia/Shanghai"},"month":null,"week":{"anchor":"monday","timezone":null}}}`},
		{"key limits 1 --monthly-quota 007.50 --budget day:limit=05,anchor=06", `POST /admin/keys/1/limits {"budgets":{"day":{"anchor":6,"limitCny":5}},"monthlyQuotaCny":7.5}`},
		{"limits get", "GET /admin/limits/global"},
		{"limits set --qps-limit 9", `PUT /admin/limits/global {"qpsLimit":9}`},
		{"audit list --limit 5", "GET /admin/audit?limit=5"},
		{"usage --key 1 --newest", "GET /admin/usage?key=1&newest=true"},
	} {
		must(t, env, strings.Fields(c.args)...)
		if g.asked != c.want {
			t.Errorf("weir %s asks %q, want %q", c.args, g.asked, c.want)
		}
	}
}

// TestListsShowAmountsOfAnyCurrency: no flag is needed to read what a gateway of another currency says.
func TestListsShowAmountsOfAnyCurrency(t *testing.T) {
	g, env := stubAdmin(t)
	for args, row := range map[string]string{
		"user list":           `{"id":1,"name":"alice","balanceMicroUsd":70,"balanceUsd":70}`,
		"model list":          `{"name":"m","inputUsdPer1M":70,"cachedInputUsdPer1M":1,"outputUsdPer1M":2}`,
		"usage":               `{"costMicroUsd":70,"costUsd":0.00007}`,
		"ledger reservations": `{"id":1,"heldMicroUsd":70}`,
	} {
		g.answer = `{"data":[` + row + `]}`
		if out := must(t, env, strings.Fields(args)...); !strings.Contains(out, "USD") || !strings.Contains(out, " 70") {
			t.Errorf("weir %s prints %s", args, out)
		}
	}
	g.answer = `{"data":[]}`
	if out := must(t, env, "user", "list"); strings.TrimSpace(out) != "ID  ORGID  NAME  BALANCE" {
		t.Errorf("an empty list is %q", out)
	}
}

// TestUsageForProgramsIsPassedOn: NDJSON and CSV arrive byte for byte, every record of them.
func TestUsageForProgramsIsPassedOn(t *testing.T) {
	g, env := stubAdmin(t)
	for format, answer := range map[string]string{"ndjson": "{\"id\":1}\n{\"id\":2}\n", "csv": "id,model\n1,m\n2,m\n"} {
		g.answer = answer
		for _, more := range [][]string{nil, {"--json"}} {
			if out := must(t, env, append([]string{"usage", "--format", format}, more...)...); out != answer {
				t.Errorf("weir usage --format %s %v prints %q, want %q", format, more, out, answer)
			}
		}
		if g.asked != "GET /admin/usage?format="+format {
			t.Errorf("it asks %s", g.asked)
		}
	}
	g.status, g.answer = 400, `{"error":{"message":"no"}}`
	if out, stderr, code := weir(t, env, "usage", "--format", "csv"); code != exitFail || out != "" || stderr != "weir: no\n" {
		t.Errorf("a refusal gives %d, %q, %q", code, out, stderr)
	}
}

// TestUsageForProgramsIsNotHeld: records go out as they come, and an answer that breaks is no whole one.
func TestUsageForProgramsIsNotHeld(t *testing.T) {
	const line = "{\"id\":1}\n"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, line)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer srv.Close()
	env := map[string]string{"WEIR_ADMIN_URL": srv.URL, "WEIR_ADMIN_TOKEN": "secret"}
	if out, stderr, code := weir(t, env, "usage", "--format", "ndjson"); code != exitFail || out != line || !strings.Contains(stderr, "cut off") {
		t.Errorf("exit %d, %q, %q", code, out, stderr)
	}
}

// TestUsageOfNobody: no record of a key that does not exist is no empty list.
func TestUsageOfNobody(t *testing.T) {
	env := demo(t)
	for flag, id := range map[string]string{"--key": "999", "--user": "999", "--org": "999", "--model": "gpt-99"} {
		if out, stderr, code := weir(t, env, "usage", flag, id); code != exitFail || out != "" || !strings.Contains(stderr, "no "+flag[2:]) {
			t.Errorf("usage %s %s: exit %d, %q, %q", flag, id, code, out, stderr)
		}
	}
	if out := must(t, env, "usage", "--key", "1"); !strings.Contains(out, "KEYID") {
		t.Errorf("usage of a key that made no request yet: %q", out)
	}
}

// TestASecondDemo: the hint is about all three listeners.
func TestASecondDemo(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	refused(t, exitFail, []string{"demo", "--upstream", taken.Addr().String()}, "--listen 127.0.0.1:0 --admin 127.0.0.1:0 --upstream 127.0.0.1:0")
}

// TestEveryFlagIsDescribed: help that shows a bare flag helps nobody.
func TestEveryFlagIsDescribed(t *testing.T) {
	for _, args := range [][]string{{"usage"}, {"channel", "create"}, {"model", "set"}, {"limits", "set"}, {"key", "create"}, {"config", "show"}} {
		for line := range strings.Lines(must(t, nil, append(args, "--help")...)) {
			if words := strings.Fields(line); len(words) > 0 && strings.HasPrefix(words[0], "--") && len(words) < 3 {
				t.Errorf("weir %s --help shows %q", strings.Join(args, " "), line)
			}
		}
	}
}

// TestNewUsersHaveNothing: help says so, before the first request is refused.
func TestNewUsersHaveNothing(t *testing.T) {
	if out := must(t, nil, "user", "create", "--help"); !strings.Contains(out, "default 0: what has a price is refused with 402") {
		t.Errorf("user create --help says %s", out)
	}
}

// TestLimitsAndAudit: a change of the global limits holds from the next request on, and the audit tells of it.
func TestLimitsAndAudit(t *testing.T) {
	env := demo(t)
	p := &process{t: t, env: env}
	must(t, env, "limits", "set", "--tpm-limit", "1")
	if got := p.status(env["WEIR_KEY"], hello); got != 429 {
		t.Errorf("a gateway of one token a minute answers %d", got)
	}
	if l := p.object("limits", "get"); l["tpmLimit"] != 1.0 || l["current"] == nil {
		t.Errorf("limits get shows %v", l)
	}
	if out := must(t, env, "audit", "list"); !strings.Contains(out, "ACTION") || !strings.Contains(out, "limits.global") {
		t.Errorf("audit list prints %s", out)
	}
}
