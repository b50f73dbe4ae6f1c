package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/config"
	"github.com/weir-gateway/weir/core/sim"
)

// serveWith is serve with more settings of the client listener.
func serveWith(t *testing.T, listen, more string) *process {
	t.Helper()
	p := serve(t, more)
	p.kill()
	text, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, p.file, strings.Replace(string(text), "}\nadmin", ", "+listen+"}\nadmin", 1))
	p.start()
	return p
}

// openStream begins a stream of 40 s and reads its beginning.
func (p *process) openStream(key string) *http.Response {
	p.t.Helper()
	resp := p.post(key, `{"model":"slow","stream":true,"max_tokens":2000,"messages":[{"role":"user","content":"hello"}]}`)
	p.t.Cleanup(func() { _ = resp.Body.Close() })
	if _, err := resp.Body.Read(make([]byte, 10)); err != nil {
		p.t.Fatal(err)
	}
	return resp
}

// ends waits for the process, which must exit with 0 and hold nothing.
func (p *process) ends(within time.Duration) {
	p.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			p.t.Errorf("serve ended with %v: %s", err, p.log())
		}
	case <-time.After(within):
		p.t.Fatalf("serve has not ended after %v: %s", within, p.log())
	}
	p.verify()
}

// TestDrainIsSeenAndCutShort: from SIGTERM on the gateway is not ready and takes nobody in, while what is open goes on; a
// second signal cuts that at once, settles it and exits 0.
func TestDrainIsSeenAndCutShort(t *testing.T) {
	p := serve(t, "")
	resp := p.openStream(p.key())
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it says that it is not ready", func() bool {
		answer, err := http.Get(p.env["WEIR_ADMIN_URL"] + "/readyz")
		if err != nil {
			return false
		}
		defer func() { _ = answer.Body.Close() }()
		var said struct{ Reasons []string }
		return json.NewDecoder(answer.Body).Decode(&said) == nil && answer.StatusCode == http.StatusServiceUnavailable && strings.Contains(strings.Join(said.Reasons, " "), "shutting down")
	})
	eventually(t, "nobody is taken in", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.env["WEIR_URL"], "http://"))
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil { // too late to reload, and nothing to die of
		t.Fatal(err)
	}
	if _, err := resp.Body.Read(make([]byte, 10)); err != nil {
		t.Errorf("the open stream: %v", err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.ends(15 * time.Second)
	if !strings.Contains(p.log(), "had not ended were cut") || !strings.Contains(p.log(), "at_a_signal=true") {
		t.Errorf("the log says %s", p.log())
	}
}

// TestDrainTime: what has not ended by listen.drain_ms is cut and settled, and the exit code is 0.
func TestDrainTime(t *testing.T) {
	p := serveWith(t, "drain_ms: 200", "")
	p.openStream(p.key())
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.ends(15 * time.Second)
	if !strings.Contains(p.log(), "listen.drain_ms=200 at_a_signal=false") || !strings.Contains(p.log(), "settlement=partial") {
		t.Errorf("the log says %s", p.log())
	}
}

// inUse is what a process has open and occupies.
type inUse struct {
	goroutines, descriptors int
	heap                    uint64
}

// more tells that it is more than what a few connections that wait, and what lies ready for reuse, make different.
func (u inUse) more(than inUse) bool {
	return u.goroutines > than.goroutines+32 || u.descriptors > than.descriptors+32 || u.heap > than.heap+8<<20
}

// usedHere is what this process uses.
func usedHere() inUse {
	var m runtime.MemStats
	for range 2 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	open, _ := os.ReadDir("/proc/self/fd") // none, where nobody can tell
	return inUse{runtime.NumGoroutine(), len(open), m.HeapAlloc}
}

// TestReloadsUnderLoad: while the configuration is reloaded again and again, with another credential each second time, no
// request fails, buffered or streamed, and nothing of the reloads stays.
func TestReloadsUnderLoad(t *testing.T) {
	reloads := 50
	if *long {
		reloads = 1000
	}
	up, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := (&console{}).app(nil).startSim(sim.Options{}, up)
	t.Cleanup(func() { _ = s.stop() })
	data := t.TempDir()
	parse := func(i int) *config.Config {
		cfg, err := config.Parse("test", fmt.Appendf(nil, `
listen: {address: "127.0.0.1:0"}
admin: {address: "127.0.0.1:0", token: %s}
data: %q
log: {level: error}
limits: {global: {qps: %d}}
tiers: [{name: free, qps: %d}]
channels: [{name: sim, provider: openai, base_url: "http://%s/v1", credential: sk-simulated-%d, concurrency_limit: %d}]
models: {gpt-4o-mini: {price: {input_per_1m: %d, output_per_1m: 4}}}
policies: {module: default, envelope: {max_multiplier: %d}}
`, testToken, data, 100_000+i, 100_000+i, up.Addr(), i/2, 4+i%3, 1+i%7, 1000+i%500), os.LookupEnv)
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	g, err := (&console{}).app(nil).open(t.Context(), parse(0), nil)
	if err != nil {
		t.Fatal(err)
	}
	g.start()
	defer func() { _ = g.close(t.Context()) }()
	p := &process{t: t, env: map[string]string{"WEIR_URL": "http://" + g.clients.Addr().String(), "WEIR_ADMIN_URL": "http://" + g.admins.Addr().String(), "WEIR_ADMIN_TOKEN": testToken}}
	key := p.key("--tier", "free")
	var served, failed atomic.Int64
	var done atomic.Bool
	var workers sync.WaitGroup
	for i := range 4 {
		body := hello
		if i%2 == 0 {
			body = strings.Replace(hello, "{", `{"stream":true,`, 1)
		}
		workers.Go(func() {
			for !done.Load() {
				if p.status(key, body) != http.StatusOK {
					failed.Add(1)
				}
				served.Add(1)
			}
		})
	}
	var early inUse
	for i := range reloads {
		if i == reloads/5 { // pools and caches are filled
			early = usedHere()
		}
		before := served.Load()
		if err := g.reload(t.Context(), parse(i+1), false); err != nil {
			t.Error(err)
			break
		}
		eventually(t, "a request is served beside it", func() bool { return served.Load() > before }) // there may be one processor
	}
	if late := usedHere(); late.more(early) {
		t.Errorf("%d reloads have left something: %+v were %+v", reloads-reloads/5, late, early)
	}
	done.Store(true)
	workers.Wait()
	if failed.Load() > 0 || g.limiter.Open() != 0 {
		t.Errorf("%d of %d requests failed, %d are open", failed.Load(), served.Load(), g.limiter.Open())
	}
	if qps := g.proxy.Snapshot().Tiers[0].Limits.QPS; qps != int64(100_000+reloads) {
		t.Errorf("the tier has %d after the last reload", qps)
	}
	if ch := g.proxy.Snapshot().Catalog.Channels()[0]; ch.Credential != fmt.Sprint("sk-simulated-", reloads/2) {
		t.Errorf("the channel has %s after the last reload", ch.Credential)
	}
	t.Logf("%d requests during %d reloads; %+v, and %+v at the end", served.Load(), reloads, early, usedHere())
}
