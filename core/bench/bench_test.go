package bench

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/load"
	"github.com/weir-gateway/weir/core/policy"
)

func TestMain(m *testing.M) {
	if policy.IsChild(os.Args, os.Stdin, os.Stdout) {
		return
	}
	os.Exit(m.Run())
}

func newBench(t *testing.T) *bench {
	o := Options{Rounds: 1, Seconds: 0.01, Clock: llm.NewSystemClock(), Random: rand.Reader, Tell: func(string) {}}
	return &bench{Options: o, ctx: t.Context(), dir: t.TempDir(), result: newResult(o)}
}

// TestChats are what they are said to be: JSON of about their size, with a number of its own for each request.
func TestChats(t *testing.T) {
	for _, n := range []int{1_000, 100_000} {
		for _, stream := range []bool{false, true} {
			body := chat(model, n, stream)
			var said struct {
				Model    string
				Stream   bool
				Messages []struct{ Content string }
			}
			if err := json.Unmarshal(body, &said); err != nil || said.Model != model || said.Stream != stream {
				t.Errorf("%v: %.200s", err, body)
			}
			if len(body) < n*9/10 || len(body) > n*11/10 || strings.Count(string(body), load.Stamp) != 1 {
				t.Errorf("%d bytes, want about %d; %d stamps", len(body), n, strings.Count(string(body), load.Stamp))
			}
		}
	}
}

// startBare runs the bare proxy before an upstream until the test ends.
func startBare(t *testing.T, upstream string) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Bare(ctx, ln, upstream) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error("the bare proxy ended with ", err)
		}
	})
	return ln.Addr().String()
}

// TestBareProxies: what is asked goes on and what is answered comes back; a stream as it comes, not when it is over; and an
// upstream that is not there is a 502.
func TestBareProxies(t *testing.T) {
	more := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(more) })
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, "%s %s, ", r.URL.Path, body)
		if strings.Contains(string(body), "stream") {
			_ = http.NewResponseController(w).Flush()
			<-more
		}
		fmt.Fprint(w, "over")
	}))
	defer up.Close()
	defer goOn()
	address := startBare(t, strings.TrimPrefix(up.URL, "http://"))
	client := http.Client{Timeout: 20 * time.Second}
	ask := func(body string) *http.Response {
		resp, err := client.Post("http://"+address+"/v1/x", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	resp := ask(`{}`)
	if all, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusTeapot || string(all) != "/v1/x {}, over" {
		t.Errorf("%d %s %v", resp.StatusCode, all, err)
	}
	resp = ask(`{"stream":true}`)
	begin := make([]byte, len(`/v1/x {"stream":true}, `))
	if _, err := io.ReadFull(resp.Body, begin); err != nil {
		t.Fatal(err)
	}
	goOn() // what was read before came before
	if all, err := io.ReadAll(resp.Body); err != nil || string(all) != "over" {
		t.Errorf("%s, then %s %v", begin, all, err)
	}
	up.Close()
	if resp := ask(`{}`); resp.StatusCode != http.StatusBadGateway {
		t.Errorf("without an upstream: %d", resp.StatusCode)
	}
}

// TestDelaysAreSeen: straight, and through a proxy that holds each event back for a while, which is what must be seen.
func TestDelaysAreSeen(t *testing.T) {
	p, err := newPaced("127.0.0.1:0", llm.NewSystemClock())
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	straight, err := p.follow(t.Context(), target{name: direct, paced: p.address()}, 0)
	if err != nil || len(straight.first) != pacedStreams || len(straight.event) != pacedStreams*(pacedEvents-1) || middle(straight.event) <= 0 {
		t.Fatalf("%v: %d first events, %d others, %v", err, len(straight.first), len(straight.event), middle(straight.event))
	}
	const held = 30 * time.Millisecond
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resp, err := http.Post("http://"+p.address(), "application/json", r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		time.Sleep(held)
		_, _ = io.Copy(w, resp.Body)
	}))
	defer slow.Close()
	through, err := p.follow(t.Context(), target{name: bare, paced: strings.TrimPrefix(slow.URL, "http://")}, 0)
	if err != nil || middle(through.first) < held {
		t.Errorf("%v: the first event took %v, want %v and more", err, middle(through.first), held)
	}
	broken := httptest.NewServer(http.NotFoundHandler())
	defer broken.Close()
	if _, err := p.follow(t.Context(), target{name: bare, paced: strings.TrimPrefix(broken.URL, "http://")}, 0); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("a proxy that answers 404: %v", err)
	}
}

// TestComponents: a row of every component, none of which failed, and the direct ones allocate nothing.
func TestComponents(t *testing.T) {
	b := newBench(t)
	p, err := newParts(t.Context(), b.Clock, b.Random, b.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if err := p.mint(b.Random, 3); err != nil {
		t.Fatal(err)
	}
	b.direct(p)
	b.counting(p)
	p.admit(2)
	if p.err != nil || p.decision.Fault != "" || p.limiter.Open() != 0 {
		t.Errorf("%v, fault %q, %d open", p.err, p.decision.Fault, p.limiter.Open())
	}
	if got := len(b.result.Components); got != 14 {
		t.Errorf("%d components", got)
	}
	for _, c := range b.result.Components {
		if c.NS <= 0 {
			t.Errorf("%+v", c)
		}
	}
	p.claim.Dims[0].Effective.QPS = 1
	if p.reserve(); p.err == nil {
		t.Error("a refusal is timed as if it were an admission")
	}
}

// TestTimed sees time and allocations of what takes and makes them.
func TestTimed(t *testing.T) {
	var keep [][]byte
	c := newBench(t).timed(1000, repeat(func() { keep = append(keep[:0], make([]byte, 4096)); time.Sleep(50 * time.Microsecond) }))
	if c.NS < 50_000 || c.Bytes < 4096 || c.Allocs < 1 || c.Allocs > 5 || c.MBs <= 0 || c.MBs > 20 {
		t.Errorf("%+v", c)
	}
}

// TestCPU of this process is seen, and a child that ended is its own.
func TestCPU(t *testing.T) {
	before := takeSample()
	if len(before.times) == 0 {
		t.Skip("there is no /proc here")
	}
	clock := llm.NewSystemClock()
	for clock.Mono() < 200*time.Millisecond {
	}
	if err := exec.Command("sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done").Run(); err != nil {
		t.Fatal(err)
	}
	after := takeSample()
	ours := after.tree(os.Getpid()) - before.tree(os.Getpid())
	if ours < 20*time.Millisecond || after.used(&before) < ours/2 {
		t.Errorf("this process used %v, everybody %v", ours, after.used(&before))
	}
	if m := resident(os.Getpid()); m < 1<<20 {
		t.Errorf("%v bytes of memory", m)
	}
}

// TestUsed: time is nobody's twice, and not lost with the process that had used it.
func TestUsed(t *testing.T) {
	s := time.Second
	before := sample{busy: 0, times: map[int]time.Duration{1: 10 * s, 2: 4 * s, 3: 1 * s}, owner: map[int]int{2: 1, 3: 2}}
	after := sample{busy: 2 * s, times: map[int]time.Duration{1: 11 * s, 2: 6 * s}, owner: map[int]int{2: 1}} // 2 has waited for 3
	if got := after.used(&before); got != 2*s {
		t.Errorf("used %v, want 2s", got)
	}
	after.busy = 3 * s
	if got := after.used(&before); got != 3*s {
		t.Errorf("used %v, want the 3s of which processes elsewhere had one", got)
	}
	if got := before.tree(1); got != 15*s {
		t.Errorf("the tree of all used %v, want 15s", got)
	}
	if got := before.tree(2); got != 5*s {
		t.Errorf("the tree of 2 used %v, want 5s", got)
	}
}

// TestPorts are below those that the system gives to connections, and none is given twice.
func TestPorts(t *testing.T) {
	b, seen := newBench(t), map[string]bool{}
	for range 20 {
		address, err := b.free()
		var port int
		if _, scan := fmt.Sscanf(address, "127.0.0.1:%d", &port); err != nil || scan != nil || port < 20_000 || port >= 32_000 || seen[address] {
			t.Errorf("%q %v %v", address, err, scan)
		}
		seen[address] = true
	}
}

// TestLaunchTellsWhyNot: what a process said before it ended is in the error.
func TestLaunchTellsWhyNot(t *testing.T) {
	b := newBench(t)
	if _, err := b.launch("", "http://127.0.0.1:1/", "sh", "-c", "echo it hurts >&2; exit 3"); err == nil || !strings.Contains(err.Error(), "it hurts") {
		t.Errorf("error %v", err)
	}
	b.close()
}

func TestRunRefusesNonsense(t *testing.T) {
	for _, o := range []Options{{Rounds: 0, Seconds: 1}, {Rounds: 1, Seconds: 0}, {Rounds: 1, Seconds: math.NaN()}, {Rounds: 1, Seconds: math.Inf(1)}, {Rounds: 1, Seconds: 1e300}} {
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "rounds") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
