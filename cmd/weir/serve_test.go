package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/weir-gateway/weir/core/cert"
	"github.com/weir-gateway/weir/core/config"
	"github.com/weir-gateway/weir/policies"
)

const hello = `{"model":"gpt-4o-mini","max_tokens":16,"messages":[{"role":"user","content":"hello"}]}`

// eventually polls what another process brings about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 600 {
		if ok() {
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
	t.Fatalf("waited 15 s in vain until %s", what)
}

func (p *process) status(key, body string) int {
	p.t.Helper()
	resp := p.post(key, body)
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// TestReload: a changed file takes effect without a restart, a broken one changes nothing, and SIGHUP reads it again.
func TestReload(t *testing.T) {
	p := serve(t, "")
	key := p.key()
	good, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, p.file, string(good)+"limits: {global: {tpm: 1}}\n")
	eventually(t, "the global limit of the changed file refuses", func() bool { return p.status(key, hello) == http.StatusTooManyRequests })
	write(t, p.file, string(good)+"limits: {globl: {tpm: 1}}\n")
	eventually(t, "the broken file is reported", func() bool { return strings.Contains(p.log(), `unknown field \"globl\"`) })
	if got := p.status(key, hello); got != http.StatusTooManyRequests {
		t.Errorf("after a broken file: %d, want the old configuration's 429", got)
	}
	write(t, p.file, string(good))
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the limit is gone again", func() bool { return p.status(key, hello) == http.StatusOK })
}

// TestASignalBesideAChangeIsOneReload: who changes a file and signals is answered once.
func TestASignalBesideAChangeIsOneReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.yaml")
	write(t, path, "nonsense: 1\n")
	for name, first := range map[string]bool{"the change is seen first": true, "the signal is seen first": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var c console
				a := c.app(nil)
				log, _ := newLog(a.err, config.Log{})
				hup, events := make(chan os.Signal), make(chan fsnotify.Event)
				w := &watching{gateway: &gateway{log: log, clock: a.clock}, env: a.env, path: path, files: &fsnotify.Watcher{Events: events}}
				ctx, cancel := context.WithCancel(t.Context())
				var ended sync.WaitGroup
				ended.Go(func() { w.reloads(ctx, hup) })
				if first {
					events <- fsnotify.Event{Name: path}
				}
				hup <- syscall.SIGHUP
				if !first {
					events <- fsnotify.Event{Name: path}
				}
				time.Sleep(time.Minute)
				cancel()
				ended.Wait()
				if n := strings.Count(c.stderr(), "reload refused"); n != 1 {
					t.Errorf("refused %d times: %s", n, c.stderr())
				}
			})
		})
	}
}

// TestReloadOfAMountedFile: a folder that is mounted into a container is exchanged as a whole, by a link beside the file.
func TestReloadOfAMountedFile(t *testing.T) {
	p := serve(t, "")
	key := p.key()
	p.kill()
	text, dir := read(t, p.file), t.TempDir()
	mount := func(version, text string) {
		t.Helper()
		at(t, filepath.Join(dir, version), "weir.yaml", text)
		err := os.Symlink(version, filepath.Join(dir, "..data_tmp"))
		if err == nil {
			err = os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	mount("..1", text)
	p.file = filepath.Join(dir, "weir.yaml")
	if err := os.Symlink(filepath.Join("..data", "weir.yaml"), p.file); err != nil {
		t.Fatal(err)
	}
	p.start()
	mount("..2", text+"limits: {global: {tpm: 1}}\n")
	eventually(t, "the limit of the new folder refuses", func() bool { return p.status(key, hello) == http.StatusTooManyRequests })
}

// TestReloadOfTiers: limits of a tier change at once; its name is an index to policies and stays until a restart.
func TestReloadOfTiers(t *testing.T) {
	p := serve(t, "tiers: [{name: free, tpm: 1}]\n")
	key := p.key("--tier", "free")
	if got := p.status(key, hello); got != http.StatusTooManyRequests {
		t.Fatalf("a tier of 1 token a minute answers %d", got)
	}
	text, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, p.file, strings.Replace(string(text), "{name: free, tpm: 1}", "{name: free, tpm: 10000}", 1))
	eventually(t, "the tier's new limit lets requests pass", func() bool { return p.status(key, hello) == http.StatusOK })
	if limit := p.object("key", "usage-window", "1")["tpm"].(map[string]any)["limit"]; limit != 10000.0 {
		t.Errorf("usage-window shows the tier's limit as %v", limit)
	}
	write(t, p.file, strings.Replace(string(text), "name: free", "name: gratis", 1))
	eventually(t, "the renamed tier is refused", func() bool {
		return strings.Contains(p.log(), "weir.yaml:9:8: tiers: the names of tiers change only with a restart, from free to gratis")
	})
	if got := p.status(key, hello); got != http.StatusOK {
		t.Errorf("after a refused file: %d", got)
	}
}

// TestALostTierIsRefused: without its tier a key would be unlimited, so nothing starts, and what looks at the data says why.
func TestALostTierIsRefused(t *testing.T) {
	p := serve(t, "tiers: [{name: free, tpm: 1}, {name: pro, tpm: 9}]\n")
	p.key("--tier", "pro")
	p.key("--tier", "free")
	p.key("--tier", "free")
	p.kill()
	good, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	for tiers, place := range map[string]string{"tiers: [{name: pro, tpm: 9}]": ":9:8: tiers: ", "": ": tiers: "} {
		write(t, p.file, strings.Replace(string(good), "tiers: [{name: free, tpm: 1}, {name: pro, tpm: 9}]", tiers, 1))
		want := place + `"free" is gone, and 2 keys are in it, the first 2 ("`
		for _, args := range [][]string{{"config", "check"}, {"serve"}} {
			_, stderr, code := weir(t, p.env, append(args, "-c", p.file)...)
			if code != exitFail || !strings.Contains(stderr, want) || tiers == "" != strings.Contains(stderr, `"pro" is gone, and 1 key is in it: 1 (`) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("weir %s with %q: exit %d, %s; want %s", args[0], tiers, code, stderr, want)
			}
		}
		if out, _, code := weir(t, p.env, "doctor", "-c", p.file); code != 2 || !strings.Contains(out, "fail  config: ") || !strings.Contains(out, want) {
			t.Errorf("doctor with %q: exit %d, %s", tiers, code, out)
		}
	}
	write(t, p.file, string(good))
	p.start()
}

// TestTierRatesFollowTheFile: what orgs' modules are told of a tier's limits is what the file says now.
func TestTierRatesFollowTheFile(t *testing.T) {
	parse := func(qps string) *config.Config {
		cfg, err := config.Parse("weir.yaml", []byte("listen: {address: \"127.0.0.1:0\"}\nadmin: {address: \"127.0.0.1:0\", token: "+testToken+"}\ndata: "+
			t.TempDir()+"\ntiers: [{name: free, qps: "+qps+", tpm: 7}]\n"), os.LookupEnv)
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	g, err := (&console{}).app(nil).open(t.Context(), parse("2"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.close(t.Context()) }()
	if err := g.reload(t.Context(), parse("3"), false); err != nil {
		t.Fatal(err)
	}
	if qps, tpm := g.tierRates(0); qps != 3 || tpm != 7 {
		t.Errorf("the tier has %d and %d, want 3 and 7", qps, tpm)
	}
	if qps, tpm := g.tierRates(1); qps != 0 || tpm != 0 {
		t.Errorf("no tier has %d and %d, want no limits", qps, tpm)
	}
}

// TestModuleOfAChangedFileIsWatched: a module file that a reload names is watched like one of the first file.
func TestModuleOfAChangedFileIsWatched(t *testing.T) {
	p := serve(t, "")
	wasm, _ := policies.Shipped("default")
	module := at(t, t.TempDir(), "mine.wasm", string(wasm))
	text, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, p.file, string(text)+"policies: {module: "+module+"}\n")
	eventually(t, "the module serves", func() bool { return strings.Contains(p.log(), "msg=reloaded") })
	write(t, module, "broken")
	eventually(t, "the broken module is refused", func() bool { return strings.Contains(p.log(), "reload refused") })
}

// TestModuleMayComeAfterItsFile: a file that names a module which is not there yet is refused, and read again when it is.
func TestModuleMayComeAfterItsFile(t *testing.T) {
	p := serve(t, "")
	wasm, _ := policies.Shipped("default")
	module := filepath.Join(t.TempDir(), "mine.wasm")
	text, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, p.file, string(text)+"policies: {module: "+module+"}\n")
	eventually(t, "the file is refused", func() bool { return strings.Contains(p.log(), "reload refused") })
	write(t, module, string(wasm))
	eventually(t, "the module serves", func() bool { return strings.Contains(p.log(), "msg=reloaded") })
}

// TestGracefulStop: SIGTERM lets an open stream end.
func TestGracefulStop(t *testing.T) {
	p := serve(t, `  medium: {target: "gpt-4o-mini+pace=20ms,out=40", price: {input_per_1m: 1.08, output_per_1m: 4.32}}`)
	key := p.key()
	resp := p.post(key, `{"model":"medium","stream":true,"max_tokens":100,"messages":[{"role":"user","content":"hello"}]}`)
	defer func() { _ = resp.Body.Close() }()
	first := make([]byte, 10)
	if _, err := io.ReadFull(resp.Body, first); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(rest), "[DONE]") {
		t.Errorf("the stream ended with %v and %.80q", err, rest[max(len(rest)-80, 0):])
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("serve ended with %v: %s", err, p.log())
	}
	if log := p.log(); !strings.Contains(log, "stopping: open requests may end") || !strings.Contains(log, "all requests have ended") {
		t.Errorf("the log does not tell of the end: %s", log)
	}
	p.verify()
}

// TestSlowAdminRequestIsCut: when the time to drain is over, a request to the admin API that has not ended is cut.
func TestSlowAdminRequestIsCut(t *testing.T) {
	cfg, err := config.Parse("test", fmt.Appendf(nil, "listen: {address: \"127.0.0.1:0\"}\nadmin: {address: \"127.0.0.1:0\", token: %s}\ndata: %q\n", testToken, t.TempDir()), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	g, err := (&console{}).app(nil).open(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	g.start()
	conn, err := net.Dial("tcp", g.admins.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "POST /admin/orgs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+testToken+"\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n")
	if _, err := conn.Read(make([]byte, 64)); err != nil { // 100 Continue: its body is awaited
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.close(over); !errors.Is(err, context.Canceled) {
		t.Errorf("closing says %v", err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the request lives on")
	}
}

// TestRestartKeepsWhatTheAPIChanged: the file seeds, the API wins.
func TestRestartKeepsWhatTheAPIChanged(t *testing.T) {
	p := serve(t, "")
	key := p.key("--tpm-limit", "5000", "--label", "tier=pro")
	must(t, p.env, "model", "set", "gpt-4o-mini", "--tpm-limit", "1")
	p.kill()
	p.start()
	if got := p.status(key, hello); got != http.StatusTooManyRequests {
		t.Errorf("after the restart: %d; want 429, the model's limit was changed through the API", got)
	}
	k := p.object("key", "get", "1")
	if k["tpmLimit"] != 5000.0 || k["labels"].(map[string]any)["tier"] != "pro" {
		t.Errorf("the key came back as %v", k)
	}
}

// TestSecondProcessOnTheSameData is refused in words.
func TestSecondProcessOnTheSameData(t *testing.T) {
	p := serve(t, "")
	other := filepath.Join(t.TempDir(), "weir.yaml")
	write(t, other, fmt.Sprintf("listen: {address: %q}\nadmin: {address: %q, token: %s}\ndata: %q\n", free(t), free(t), testToken, p.env["DATA"]))
	_, stderr, code := weir(t, nil, "serve", "-c", other)
	if code != exitFail || !strings.Contains(stderr, p.env["DATA"]) || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

func TestCommandsSayWhatTheyWant(t *testing.T) {
	env := map[string]string{"WEIR_ADMIN_TOKEN": testToken, "WEIR_ADMIN_URL": "http://" + free(t)}
	bad := filepath.Join(t.TempDir(), "weir.yaml")
	write(t, bad, "lsiten: {}\n")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"serv"}, exitUsage, `unknown command "serv"`},
		{[]string{"serve", "extra"}, exitUsage, "no argument"},
		{[]string{"serve", "-c", bad}, exitFail, `weir.yaml:1:1: unknown field "lsiten"; did you mean "listen"?`},
		{[]string{"serve", "-c", "/nowhere.yaml"}, exitFail, "/nowhere.yaml"},
		{[]string{"config", "check", "-c", bad}, exitFail, "did you mean"},
		{[]string{"attack", "--total", "x", "--key", "k"}, exitUsage, "--total"},
		{[]string{"attack"}, exitUsage, "--key"},
		{[]string{"attack", "--key", "k", "--base", "nowhere"}, exitUsage, "http://127.0.0.1:3000"},
		{[]string{"org", "list"}, exitFail, "is it running?"},
		{[]string{"org", "get"}, exitUsage, "takes ID"},
		{[]string{"ledger", "verfy"}, exitUsage, `did you mean "verify"?`},
		{[]string{"policy", "nonsense"}, exitUsage, "it has"},
		{[]string{"user", "balance", "1", "--delta", "1e3"}, exitUsage, "12.5"},
		{[]string{"demo", "--admin-token", "short"}, exitUsage, "at least 16"},
		{[]string{"demo", "--admin-token", "changeme-changeme-1"}, exitUsage, "is a sample"},
		{[]string{"demo", "--log-level", "loud"}, exitUsage, "debug, info, warn, error"},
		{[]string{"attack", "--key", "k", "--base", "http://" + free(t), "--total", "2"}, exitFail, "no request was answered"},
		{[]string{"upstream-sim", "--default", "latncy=1s"}, exitUsage, "latency"},
		{[]string{"doctor", "-c", bad}, 2, ""},
	} {
		stdout, stderr, code := weir(t, env, c.args...)
		if code != c.code || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") > 1 {
			t.Errorf("weir %s: exit %d, %q %q; want %d and %q on one line", strings.Join(c.args, " "), code, stdout, stderr, c.code, c.want)
		}
	}
	if _, stderr, code := weir(t, nil, "org", "list"); code != exitUsage || !strings.Contains(stderr, "WEIR_ADMIN_TOKEN") {
		t.Errorf("without a token: exit %d, %s", code, stderr)
	}
}

// TestCheckIsAsStrictAsServe: what serve would refuse about the module and the decision log, check refuses, and doctor.
func TestCheckIsAsStrictAsServe(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken.wasm")
	write(t, broken, "not wasm")
	check := func(policies, want string) {
		t.Helper()
		file := filepath.Join(dir, "weir.yaml")
		write(t, file, fmt.Sprintf("admin: {token: %s}\ndata: %q\npolicies: {%s}\n", testToken, filepath.Join(dir, "data"), policies))
		_, stderr, code := weir(t, nil, "config", "check", "-c", file)
		if code != exitFail || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("policies {%s}: exit %d, %s", policies, code, stderr)
		}
		if out, _, code := weir(t, nil, "doctor", "-c", file); code != 2 || !strings.Contains(out, "fail  config: ") || !strings.Contains(out, want) {
			t.Errorf("doctor of policies {%s}: exit %d, %s", policies, code, out)
		}
	}
	for module, want := range map[string]string{"nowhere": "neither a .wasm file nor one of the shipped", broken: "broken.wasm", filepath.Join(dir, "none.wasm"): "none.wasm"} {
		check(fmt.Sprintf("module: %q", module), want)
	}
	check("decision_log: {path: "+filepath.Join(dir, "no", "log")+"}", "policies.decision_log.path: "+filepath.Join(dir, "no", "log")+" cannot be written: there is no folder")
	check("decision_log: {path: "+dir+"}", "is a directory")
	check("decision_log: {path: log, max_mb: 0}", "max_mb")
}

// TestErrorsFoundLateSayWhere: what only the module itself can refuse is placed in the file like any other error, by
// check and by serve in the same words.
func TestErrorsFoundLateSayWhere(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "broken.wasm"), "not wasm")
	burst, _ := policies.Shipped("burst")
	write(t, filepath.Join(dir, "default.wasm"), string(burst))
	write(t, filepath.Join(dir, "two words.wasm"), string(burst))
	for policies, want := range map[string]string{
		"module: defalt":                                          `:5:11: policies.module: "defalt" is neither a .wasm file nor one of the shipped modules: `,
		"module: " + dir + "/none.wasm":                           `:5:11: policies.module: open ` + dir + `/none.wasm: no such file`,
		"module: " + dir + "/broken.wasm":                         `:5:11: policies.module: ` + dir + `/broken.wasm: policy module refused: not a WebAssembly module`,
		"module: " + dir + "/default.wasm":                        `:5:11: policies.module: ` + dir + `/default.wasm: the name "default" is of a module that comes with the gateway`,
		"module: " + dir + "/two words.wasm":                      `:5:11: policies.module: ` + dir + `/two words.wasm: name: expected 1 to 64 letters`,
		"module: soft-quota\n  params: {spent_permile: 1}":        `policies.params.spent_permile: unknown; did you mean "spent_permille"?`,
		"module: rules\n  params: {rules: [{whn: {}, then: {}}]}": `:6:26: policies.params.rules[0].whn: unknown; did you mean "when"?`,
		"module: rules\n  params: {rules: 5}":                     `:6:19: policies.params.rules: expected a list; got 5`,
		"module: default\n  params:\n    zzzzzzzzzz: 1":           `:7:17: policies.params.zzzzzzzzzz: unknown; known are `,
	} {
		file := filepath.Join(dir, "weir.yaml")
		write(t, file, fmt.Sprintf("listen: {address: \"127.0.0.1:0\"}\nadmin: {address: \"127.0.0.1:0\", token: %s}\ndata: %q\npolicies:\n  %s\n", testToken, t.TempDir(), policies))
		for _, args := range [][]string{{"config", "check", "-c", file}, {"serve", "-c", file}} {
			_, stderr, code := weir(t, nil, args...)
			if code != exitFail || !strings.HasPrefix(stderr, "weir: "+file+":") || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 || strings.Contains(stderr, "jsonschema") {
				t.Errorf("weir %s with %s: exit %d, %s; want %s", args[0], policies, code, stderr, want)
			}
		}
	}
}

// TestReloadAndApply: what the admin API changed wins over a file that is read again, until config apply.
func TestReloadAndApply(t *testing.T) {
	p := serve(t, "")
	key := p.key()
	r := remote{app: (&console{}).app(p.env), url: p.env["WEIR_ADMIN_URL"], token: testToken}
	if _, err := r.do(t.Context(), "PUT", "/admin/limits/global", []byte(`{"tpmLimit":1}`), "application/json"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, p.file, string(text)+"log: {level: debug}\nupstream: {attempts: 1}\npolicies: {decision_log: {sample: 2}}\n")
	eventually(t, "the reload names what needs a restart", func() bool {
		return strings.Contains(p.log(), "only with a restart: upstream.attempts, policies.decision_log.sample")
	})
	if got := p.status(key, hello); got != http.StatusTooManyRequests {
		t.Errorf("after a reload: %d; want 429, the global limit was set through the API", got)
	}
	write(t, p.file, string(text)+"nonsense: 1\n")
	if _, stderr, code := weir(t, p.env, "config", "apply"); code != exitFail || !strings.Contains(stderr, "nonsense") {
		t.Errorf("a broken file applies: exit %d, %s", code, stderr)
	}
	if got := p.status(key, hello); got != http.StatusTooManyRequests {
		t.Errorf("after a refused apply: %d; want 429 still", got)
	}
	write(t, p.file, string(text))
	named := map[string]string{"WEIR_ADMIN_TOKEN": testToken, "DATA": p.env["DATA"]} // the file says where the gateway is
	if out := must(t, named, "config", "apply", "--json", "-c", p.file); !strings.Contains(out, `"applied": true`) {
		t.Errorf("weir config apply prints %s", out)
	}
	if got := p.status(key, hello); got != http.StatusOK {
		t.Errorf("after config apply: %d; want 200, the file has no global limit", got)
	}
}

// TestAdminURL: a gateway is reached on its own machine, whatever addresses it listens on.
func TestAdminURL(t *testing.T) {
	for address, want := range map[string]string{"127.0.0.1:3001": "http://127.0.0.1:3001", ":3001": "http://127.0.0.1:3001", "0.0.0.0:3001": "http://127.0.0.1:3001",
		"[::]:3001": "http://[::1]:3001", "gate.example:3001": "http://gate.example:3001"} {
		if got := adminURL(config.Admin{Address: address}); got != want {
			t.Errorf("%s is reached at %s, want %s", address, got, want)
		}
	}
	if got := adminURL(config.Admin{Address: ":1", TLS: cert.Files{Cert: "c", Key: "k"}}); got != "https://127.0.0.1:1" {
		t.Errorf("with TLS at %s", got)
	}
}

func TestVersionAndConfigAndDoctorAsJSON(t *testing.T) {
	good := filepath.Join(t.TempDir(), "weir.yaml")
	write(t, good, "admin: {token: "+testToken+"}\ndata: "+filepath.Join(t.TempDir(), "data")+"\n")
	for _, args := range [][]string{{"version", "--json"}, {"config", "check", "-c", good, "--json"}, {"config", "schema"}, {"config", "schema", "--json"}} {
		var o map[string]any
		if out := must(t, nil, args...); json.Unmarshal([]byte(out), &o) != nil || len(o) == 0 {
			t.Errorf("weir %s prints %s", strings.Join(args, " "), out)
		}
	}
	if flag, command := must(t, nil, "--version"), must(t, nil, "version"); flag != command || !strings.HasPrefix(flag, "weir ") {
		t.Errorf("--version prints %q, version %q", flag, command)
	}
	if out := must(t, nil, "config", "show", "-c", good); strings.Contains(out, testToken) || !strings.Contains(out, "settle_timeout_ms: 5000") {
		t.Errorf("config show prints %s", out)
	}
	shown := must(t, nil, "config", "show", "-c", good, "--json")
	var o map[string]any
	if err := json.Unmarshal([]byte(shown), &o); err != nil || o["data"] == nil || strings.Contains(shown, testToken) || !strings.Contains(shown, `"settle_timeout_ms": 5000`) {
		t.Errorf("config show --json prints %v, %s", err, shown)
	}
	out, _, code := weir(t, nil, "doctor", "-c", good, "--json")
	var report struct{ Status string }
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 1 || report.Status != "warn" { // no channel: a warning
		t.Errorf("doctor: exit %d, %v, %s", code, err, out)
	}
}

// TestDemoTwiceOnTheSameData: the second run finds what the first has made.
func TestDemoTwiceOnTheSameData(t *testing.T) {
	data, key := filepath.Join(t.TempDir(), "data"), "sk-weir-demodemo-"+strings.Repeat("a", 43)
	for run := range 2 {
		t.Run(fmt.Sprint("run ", run+1), func(t *testing.T) {
			env := demo(t, "--data", data, "--key", key)
			if env["WEIR_KEY"] != key {
				t.Errorf("the key is %s, want %s", env["WEIR_KEY"], key)
			}
			var list struct{ Data []any }
			if err := json.Unmarshal([]byte(must(t, env, "key", "list", "--json")), &list); err != nil || len(list.Data) != 1 {
				t.Errorf("%d keys, %v; want the one", len(list.Data), err)
			}
			p := &process{t: t, env: env}
			if got := p.status(key, hello); got != http.StatusOK {
				t.Errorf("a request with the key gets %d", got)
			}
		})
	}
}

// TestDemoWithAnotherKey: on data that was used before, the key that is asked for is the key that works.
func TestDemoWithAnotherKey(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	for _, id := range []string{"demodemo", "demotoo2"} {
		key := "sk-weir-" + id + "-" + strings.Repeat("a", 43)
		t.Run(id, func(t *testing.T) {
			p := &process{t: t, env: demo(t, "--data", data, "--key", key)}
			if got := p.status(key, hello); got != http.StatusOK {
				t.Errorf("a request with the key gets %d", got)
			}
		})
	}
}

// TestUpstreamSimJSON: a script learns where the simulation listens.
func TestUpstreamSimJSON(t *testing.T) {
	var c console
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() {
		ended <- c.app(nil).run(ctx, []string{"upstream-sim", "--json", "--listen", "127.0.0.1:0"})
	}()
	var said struct {
		URL string `json:"upstream_url"`
	}
	eventually(t, "it says where it listens", func() bool { return json.Unmarshal([]byte(c.stdout()), &said) == nil })
	resp, err := http.Get(said.URL + "/sim/stats")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	cancel()
	if code := <-ended; code != exitDone || resp.StatusCode != http.StatusOK {
		t.Errorf("exit %d, %d", code, resp.StatusCode)
	}
}

// TestDemoJSON: a script reads from the first line where everything is, and may ask at once; from the last how it went, to
// the end of what was open.
func TestDemoJSON(t *testing.T) {
	var c console
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan int, 1)
	go func() {
		ended <- c.app(nil).run(ctx, []string{"demo", "--json", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream", "127.0.0.1:0"})
	}()
	for range 1200 {
		if strings.Contains(c.stdout(), "\n") {
			break
		}
		time.Sleep(25 * time.Millisecond)
	}
	var d running
	if err := json.Unmarshal([]byte(c.stdout()), &d); err != nil {
		t.Fatalf("%v: %s%s", err, c.stdout(), c.stderr())
	}
	if !d.Ready || d.QPSLimit != 2 || d.TPMLimit != 20_000 || d.UpstreamURL == "" {
		t.Errorf("%+v", d)
	}
	p := &process{t: t, env: map[string]string{"WEIR_URL": d.GatewayURL}}
	if got := p.status(d.Key, fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hello"}]}`, d.Model)); got != http.StatusOK {
		t.Errorf("a request with the key and the model gets %d", got)
	}
	keys := must(t, map[string]string{"WEIR_ADMIN_URL": d.AdminURL, "WEIR_ADMIN_TOKEN": d.AdminToken}, "key", "list", "--json")
	if !strings.Contains(keys, d.Key[:len("sk-weir-")+8]) {
		t.Errorf("the admin API has %s", keys)
	}
	must(t, map[string]string{"WEIR_ADMIN_URL": d.AdminURL, "WEIR_ADMIN_TOKEN": d.AdminToken}, "model", "set", "medium", "--target", "gpt-4o-mini+pace=20ms,out=40", "--input", "1", "--output", "4")
	open := p.post(d.Key, `{"model":"medium","stream":true,"messages":[{"role":"user","content":"hello"}]}`)
	defer func() { _ = open.Body.Close() }()
	if _, err := io.ReadFull(open.Body, make([]byte, 10)); err != nil || open.StatusCode != http.StatusOK {
		t.Fatal(open.Status, err)
	}
	cancel() // the stream ends first, and counts
	if code := <-ended; code != exitDone {
		t.Errorf("exit %d: %s", code, c.stderr())
	}
	lines := strings.Split(strings.TrimSpace(c.stdout()), "\n")
	var s summary
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &s); err != nil || len(lines) != 2 || s.Finalized != 2 || s.Tokens == 0 || s.CostMicro == 0 || s.Currency != "cny" || s.StillOpen != 0 {
		t.Errorf("%v, %+v: %s", err, s, c.stdout())
	}
}
