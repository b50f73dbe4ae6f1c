package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/sim"
)

const testToken = "test-token-0123456789"

// process is `weir serve` in a process of its own, which can be killed and started again on the same data.
type process struct {
	t      *testing.T
	file   string
	env    map[string]string
	cmd    *exec.Cmd
	stderr *console
	up     *runningSim
}

// log is what the process has written to stderr.
func (p *process) log() string { return p.stderr.stderr() }

// serve writes a configuration for a simulated upstream that runs in the test, and starts a gateway process.
func serve(t *testing.T, more string) *process {
	t.Helper()
	p := prepare(t, more)
	p.start()
	return p
}

// prepare is serve without the start.
func prepare(t *testing.T, more string) *process {
	t.Helper()
	up, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := (&console{}).app(nil).startSim(sim.Options{}, up)
	t.Cleanup(func() { _ = s.stop() })
	base, admin, dir := free(t), free(t), t.TempDir()
	p := &process{t: t, up: s, file: filepath.Join(dir, "weir.yaml"), env: map[string]string{
		"WEIR_URL": "http://" + base, "WEIR_ADMIN_URL": "http://" + admin, "WEIR_ADMIN_TOKEN": testToken, "DATA": filepath.Join(dir, "data")}}
	write(t, p.file, fmt.Sprintf(`
listen: {address: %q}
admin: {address: %q, token: "${WEIR_ADMIN_TOKEN}"}
data: "${DATA}"
channels: [{name: sim, provider: openai, base_url: "http://%s/v1", credential: sk-simulated}]
models:
  gpt-4o-mini: {price: {input_per_1m: 1.08, output_per_1m: 4.32}}
  slow: {target: "gpt-4o-mini+pace=20ms,out=2000", price: {input_per_1m: 1.08, output_per_1m: 4.32}}
%s`, base, admin, up.Addr(), more))
	t.Cleanup(p.kill)
	return p
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// portsLooked counts the ports that free looked at.
var portsLooked atomic.Uint32

// free is an address that nothing listens on, and none that was given before. It lies below the ports that the system
// gives to whoever asks for any, so that no other connection takes it meanwhile.
func free(t *testing.T) string {
	t.Helper()
	const first, ports = 20_000, 12_000
	for range ports {
		addr := fmt.Sprintf("127.0.0.1:%d", first+(uint32(os.Getpid())*97+portsLooked.Add(1))%ports)
		if ln, err := net.Listen("tcp", addr); err == nil {
			_ = ln.Close()
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}

func (p *process) start() {
	p.t.Helper()
	p.launch()
	p.ready()
}

// launch starts the process and does not wait until it is ready.
func (p *process) launch() {
	p.t.Helper()
	p.cmd = exec.Command(os.Args[0], "serve", "-c", p.file)
	p.cmd.Env = append(os.Environ(), asMain+"=1")
	for name, value := range p.env {
		p.cmd.Env = append(p.cmd.Env, name+"="+value)
	}
	p.stderr = &console{}
	p.cmd.Stderr = consoleWriter{p.stderr, &p.stderr.err}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) ready() {
	p.t.Helper()
	for range 6000 {
		if resp, err := http.Get(p.env["WEIR_URL"] + "/readyz"); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	p.kill()
	p.t.Fatalf("the gateway is not ready after 30 s: %s", p.log())
}

// kill is kill -9: nothing in the process gets to run.
func (p *process) kill() {
	if p.cmd != nil && p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// object runs a command with --json and reads its answer.
func (p *process) object(args ...string) map[string]any {
	p.t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(must(p.t, p.env, append(args, "--json")...)), &o); err != nil {
		p.t.Fatal(err)
	}
	return o
}

func (p *process) key(flags ...string) string {
	p.t.Helper()
	must(p.t, p.env, "org", "create", "--name", "Acme")
	must(p.t, p.env, "user", "create", "--org-id", "1", "--name", "alice", "--balance", "100")
	return p.object(append([]string{"key", "create", "--user-id", "1", "--name", "k"}, flags...)...)["plaintext"].(string)
}

func (p *process) post(key, body string) *http.Response {
	p.t.Helper()
	req, err := http.NewRequest("POST", p.env["WEIR_URL"]+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp
}

func (p *process) verify() {
	p.t.Helper()
	if out := must(p.t, p.env, "ledger", "verify", "--data", p.env["DATA"]); !strings.Contains(out, "held 0") {
		p.t.Errorf("after recovery: %s", out)
	}
}

// TestM08KillInMidStream kills the process while a stream runs: at the next start the open reservation is settled by
// the recovery rule before the gateway is ready, and nothing is held.
func TestM08KillInMidStream(t *testing.T) {
	p := serve(t, "")
	key := p.key("--monthly-quota", "50")
	resp := p.post(key, `{"model":"slow","stream":true,"max_tokens":2000,"messages":[{"role":"user","content":"hello"}]}`)
	lines := bufio.NewScanner(resp.Body)
	for n := 0; n < 100 && lines.Scan(); n++ { // about one second of the stream: a progress entry is due
	}
	p.kill()
	_ = resp.Body.Close()
	p.start()
	window := p.object("key", "usage-window", "1")
	monthly := window["monthly"].(map[string]any)
	used, held := monthly["usedMicroCny"].(float64), monthly["heldMicroCny"].(float64)
	if used <= 0 || held != 0 {
		t.Errorf("after kill -9 in mid-stream: used %v, held %v; want the input and the last progress charged, nothing held", used, held)
	}
	rows := p.object("usage")["data"].([]any)
	record := rows[0].(map[string]any)
	if record["status"] != "partial" || record["estimated"] != true || record["costMicroCny"] != used {
		t.Errorf("the record of the killed stream is %v", record)
	}
	p.kill()
	p.verify()
}

// TestCurrencyIsForLife: a data folder is not read in another currency, and a folder that is not there is not made.
func TestCurrencyIsForLife(t *testing.T) {
	p := serve(t, "")
	p.kill()
	text, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, p.file, string(text)+"currency: usd\n")
	_, stderr, code := weir(t, p.env, "serve", "-c", p.file)
	if code != exitFail || !strings.Contains(stderr, "cny") || !strings.Contains(stderr, "usd") {
		t.Errorf("serve in another currency: exit %d, %s", code, stderr)
	}
	nowhere := filepath.Join(t.TempDir(), "typo")
	_, stderr, code = weir(t, p.env, "ledger", "verify", "--data", nowhere)
	if _, err := os.Stat(nowhere); err == nil || code != exitFail || !strings.Contains(stderr, "typo") {
		t.Errorf("verify of nothing: exit %d, %s (%v)", code, stderr, err)
	}
}

// TestM05SpendSurvivesKill: what was spent before kill -9 still counts after it.
func TestM05SpendSurvivesKill(t *testing.T) {
	p := serve(t, "")
	key := p.key("--monthly-quota", "0.001") // 1,000 micro; 200 output tokens hold about 864
	body := `{"model":"gpt-4o-mini","max_tokens":200,"messages":[{"role":"user","content":"hello"}]}`
	spent := 0.0
	for range 50 {
		resp := p.post(key, body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			break
		}
		spent = p.object("key", "usage-window", "1")["monthly"].(map[string]any)["usedMicroCny"].(float64)
	}
	if spent <= 0 {
		t.Fatal("nothing was spent")
	}
	p.kill()
	p.start()
	after := p.object("key", "usage-window", "1")["monthly"].(map[string]any)["usedMicroCny"].(float64)
	if after != spent {
		t.Errorf("used %v before kill -9, %v after", spent, after)
	}
	resp := p.post(key, body)
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusPaymentRequired {
		t.Errorf("a request beyond the month gets %d after the restart, want 402", resp.StatusCode)
	}
}

// TestUnmeteredUseIsCounted: what a user without a balance and a key without a quota spend is posted all the same, so
// a balance and a quota given later start from the truth, before and after a restart.
func TestUnmeteredUseIsCounted(t *testing.T) {
	p := serve(t, "")
	must(t, p.env, "org", "create", "--name", "Acme")
	must(t, p.env, "user", "create", "--org-id", "1", "--name", "alice", "--balance", "null")
	key := p.object("key", "create", "--user-id", "1", "--name", "k")["plaintext"].(string)
	if got := p.status(key, hello); got != http.StatusOK {
		t.Fatalf("status %d", got)
	}
	used := func() float64 {
		return p.object("key", "usage-window", "1")["monthly"].(map[string]any)["usedMicroCny"].(float64)
	}
	spent := used()
	if spent <= 0 {
		t.Errorf("a key without a quota has used %v this month", spent)
	}
	must(t, p.env, "user", "balance", "1", "--set", "5")
	for _, when := range []string{"at once", "after a restart"} {
		if b := p.object("user", "get", "1")["balanceMicroCny"]; b != 5_000_000.0 {
			t.Errorf("%s the balance that was set to 5 is %v", when, b)
		}
		if now := used(); now != spent {
			t.Errorf("%s the month's use is %v, was %v", when, now, spent)
		}
		p.kill()
		p.start()
	}
	p.kill()
	p.verify()
}
