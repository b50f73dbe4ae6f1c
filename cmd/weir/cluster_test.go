package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-gateway/weir/store/storetest"
)

// cluster is gateways in processes of their own that share their windows on one server, with the same accounts.
type cluster struct {
	t        *testing.T
	gateways []*process
	keys     []string
	begun    time.Time
	failed   []int // answers that were late, by gateway, at the last look

	mu struct {
		sync.Mutex
		admitted map[string][]span // by model, of requests that were answered 200
		failed   map[string]int
	}
}

// span is what is known of an admission from outside: it was between the two.
type span struct{ from, to time.Duration }

// startCluster starts n gateways on a server of windows. The accounts are made at the first one and copied.
func startCluster(t *testing.T, n int, url, models string) *cluster {
	t.Helper()
	first := serve(t, fmt.Sprintf("%s\nlimits: {shared: {url: %q, gateways: %d, timeout_ms: 200}}\n", models, url, n))
	c := &cluster{t: t, gateways: []*process{first}, begun: time.Now()}
	c.mu.admitted, c.mu.failed = map[string][]span{}, map[string]int{}
	c.keys = append(c.keys, first.key("--qps-limit", "60"),
		first.object("key", "create", "--user-id", "1", "--name", "wide")["plaintext"].(string))
	first.stop()
	for range n - 1 {
		c.gateways = append(c.gateways, first.twin())
	}
	for _, p := range c.gateways {
		p.start()
	}
	return c
}

// stop ends a process as an operator does.
func (p *process) stop() {
	p.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if err := p.cmd.Wait(); err != nil {
		p.t.Fatalf("stopping: %v: %s", err, p.log())
	}
}

// twin is another gateway with a copy of the data and addresses of its own. It is not started.
func (p *process) twin() *process {
	p.t.Helper()
	dir, base, admin := p.t.TempDir(), free(p.t), free(p.t)
	q := &process{t: p.t, up: p.up, file: filepath.Join(dir, "weir.yaml"), env: map[string]string{
		"WEIR_URL": "http://" + base, "WEIR_ADMIN_URL": "http://" + admin, "WEIR_ADMIN_TOKEN": testToken, "DATA": filepath.Join(dir, "data")}}
	if err := os.CopyFS(q.env["DATA"], os.DirFS(p.env["DATA"])); err != nil {
		p.t.Fatal(err)
	}
	text, err := os.ReadFile(p.file)
	if err != nil {
		p.t.Fatal(err)
	}
	text = []byte(strings.NewReplacer(strings.TrimPrefix(p.env["WEIR_URL"], "http://"), base,
		strings.TrimPrefix(p.env["WEIR_ADMIN_URL"], "http://"), admin).Replace(string(text)))
	write(p.t, q.file, string(text))
	p.t.Cleanup(func() {
		if q.cmd != nil {
			q.kill()
		}
	})
	return q
}

// load sends requests of one key and model to all gateways until stop closes, from some clients each, with no more than a
// breath after a refusal.
func (c *cluster) load(stop chan struct{}, key, model string) *sync.WaitGroup {
	const clients = 4
	var all sync.WaitGroup
	for _, p := range c.gateways {
		client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
		for range clients {
			all.Go(func() {
				defer client.CloseIdleConnections()
				for {
					select {
					case <-stop:
						return
					default:
					}
					if !c.send(client, p, key, model) {
						time.Sleep(5 * time.Millisecond)
					}
				}
			})
		}
	}
	return &all
}

func (c *cluster) send(client *http.Client, p *process, key, model string) (admitted bool) {
	body := fmt.Sprintf(`{"model":%q,"max_tokens":5,"messages":[{"role":"user","content":"hello"}]}`, model)
	req, err := http.NewRequest("POST", p.env["WEIR_URL"]+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		c.t.Error(err)
		return false
	}
	req.Header.Set("Authorization", "Bearer "+key)
	s := span{from: time.Since(c.begun)}
	resp, err := client.Do(req)
	s.to = time.Since(c.begun)
	if err != nil {
		return false // a gateway that was killed
	}
	text, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch resp.StatusCode {
	case http.StatusOK:
		c.mu.admitted[model] = append(c.mu.admitted[model], s)
		return true
	case http.StatusTooManyRequests:
	default:
		var e struct{ Error struct{ Message string } }
		_ = json.Unmarshal(text, &e)
		c.mu.failed[fmt.Sprintf("%d %s", resp.StatusCode, e.Error.Message)]++
	}
	return false
}

// since takes what was admitted of a model from at on.
func (c *cluster) since(model string, at time.Duration) []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.mu.admitted[model]), func(s span) bool { return s.from < at })
}

// most is the largest number of admissions that lie in one window for sure.
func most(all []span, window time.Duration) int {
	slices.SortFunc(all, func(a, b span) int { return int(a.from - b.from) })
	worst := 0
	for i, first := range all {
		n := 0
		for _, s := range all[i:] {
			if s.from >= first.from+window {
				break
			}
			if s.to < first.from+window {
				n++
			}
		}
		worst = max(worst, n)
	}
	return worst
}

// idle waits until no gateway holds anything, and asks that none has lost an ending.
func (c *cluster) idle() {
	c.t.Helper()
	for i, p := range c.gateways {
		p.nothingHeld()
		if lost := p.metric(c.t, "weir_shared_reports_lost_total"); lost != 0 {
			c.t.Errorf("gateway %d lost %d reports", i, lost)
		}
	}
}

// failures is how often the server did not answer a gateway in time, since the last look.
func (c *cluster) failures() (n int) {
	for i, p := range c.gateways {
		now := p.metric(c.t, "weir_shared_failures_total")
		n += max(now-c.failed[i], 0)
		c.failed[i] = now
	}
	return n
}

// expect asks what must hold of the admissions since at: at most limit in any second, and at least least of what the time
// had room for. late: the server did not always answer in time, as on a machine that has too much to do; then a switch to
// the shares, which together are the limit once more, may have been in the second.
func (c *cluster) expect(what, model string, at time.Duration, limit int, least float64, late int) {
	c.t.Helper()
	all := c.since(model, at)
	if late > 0 {
		c.t.Logf("%s: %d answers were late", what, late)
	}
	if n := most(all, time.Second); n > limit && late == 0 || n > 2*limit {
		c.t.Errorf("%s: %d requests of %s were admitted in one second, the limit is %d", what, n, model, limit)
	}
	room := (time.Since(c.begun) - at).Seconds() * float64(limit)
	c.t.Logf("%s: %s: %d admitted, %.0f %% of the limit, at most %d in a second", what, model, len(all), 100*float64(len(all))/room, most(all, time.Second))
	if float64(len(all)) < least*room {
		c.t.Errorf("%s: %d of %.0f were admitted; a part of the limit is wasted", what, len(all), room)
	}
}

// TestDoctorOfWindows: the server of shared windows is examined, and told when it is away or may forget.
func TestDoctorOfWindows(t *testing.T) {
	ask := func(url string) (string, int) {
		file := filepath.Join(t.TempDir(), "weir.yaml")
		write(t, file, fmt.Sprintf("admin: {token: %q}\ndata: %q\nlimits: {shared: {url: %q, timeout_ms: 1000}}\n", testToken, t.TempDir(), url))
		out, _, code := weir(t, nil, "doctor", "-c", file)
		return out, code
	}
	if out, _ := ask(storetest.Redis(t).URL); !strings.Contains(out, "version 7") && !strings.Contains(out, "version 8") {
		t.Errorf("a server that answers: %s", out)
	}
	if out, code := ask(storetest.Redis(t, "--maxmemory-policy", "allkeys-lru").URL); code == 0 || !strings.Contains(out, "set maxmemory-policy to noeviction") {
		t.Errorf("a server that forgets: %d, %s", code, out)
	}
	if out, code := ask("redis://user:geheim123456@" + free(t)); code != 2 || !strings.Contains(out, "each gateway decides alone") || strings.Contains(out, "geheim") {
		t.Errorf("no server: %d, %s", code, out)
	}
}

// TestGatewaysShareLimits: three gateways under more load than they may let in admit together what one would, of a key (asked
// exactly) and of a model (lent), in any second; also while one of them is killed and comes back. While the server is frozen
// each goes on with its share, and all of them are back soon after it is.
func TestGatewaysShareLimits(t *testing.T) {
	phase := 10 * time.Second
	switch {
	case *long:
		phase = time.Minute
	case testing.Short():
		phase = 2 * time.Second
	}
	server := storetest.Redis(t)
	const ofKey, ofModel = 60, 90
	c := startCluster(t, 3, server.URL, `  lent: {free: true, target: gpt-4o-mini, qps_limit: 90}`)
	stop := make(chan struct{})
	loads := []*sync.WaitGroup{c.load(stop, c.keys[0], "gpt-4o-mini"), c.load(stop, c.keys[1], "lent")}
	c.failed = make([]int, len(c.gateways))
	before := c.gateways[0].metric(t, "go_goroutines")
	c.failures()

	at := time.Since(c.begun)
	time.Sleep(phase)
	late := c.failures()
	c.expect("together", "gpt-4o-mini", at, ofKey, 0.85, late)
	c.expect("together", "lent", at, ofModel, 0.75, late)

	at = time.Since(c.begun)
	for i := range c.gateways {
		time.Sleep(phase / 6)
		c.gateways[i].kill()
		time.Sleep(phase / 6)
		c.gateways[i].start()
	}
	late = c.failures()
	c.expect("one killed in turn", "gpt-4o-mini", at, ofKey, 0.7, late)
	c.expect("one killed in turn", "lent", at, ofModel, 0.6, late)

	at = time.Since(c.begun)
	server.Pause()
	time.Sleep(phase / 2)
	for i, p := range c.gateways {
		if p.metric(t, "weir_shared_away") != 1 {
			t.Errorf("gateway %d does not know that the server is away", i)
		}
	}
	c.expect("frozen, with the first second", "gpt-4o-mini", at, 2*ofKey, 0.3, 0)
	c.expect("frozen", "gpt-4o-mini", at+2*time.Second, ofKey, 0.6, 0)
	c.expect("frozen", "lent", at+2*time.Second, ofModel, 0.6, 0)
	server.Resume()
	resumed := time.Now()
	for _, p := range c.gateways {
		for p.metric(t, "weir_shared_away") != 0 {
			if time.Since(resumed) > 20*time.Second {
				t.Fatal("not back after 20 s; 2 are promised")
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	t.Logf("back after %v", time.Since(resumed).Round(time.Millisecond))
	time.Sleep(time.Second)
	at = time.Since(c.begun)
	c.failures()
	time.Sleep(phase)
	late = c.failures()
	c.expect("back", "gpt-4o-mini", at, ofKey, 0.8, late)
	c.expect("back", "lent", at, ofModel, 0.7, late)

	close(stop)
	for _, l := range loads {
		l.Wait()
	}
	c.idle()
	if after := c.gateways[0].metric(t, "go_goroutines"); after > before+20 {
		t.Errorf("%d goroutines before, %d after", before, after)
	}
	if len(c.mu.failed) > 0 {
		t.Errorf("failures: %v", c.mu.failed)
	}
}
