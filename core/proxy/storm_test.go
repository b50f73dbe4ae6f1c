package proxy_test

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
)

// stormy is a gateway with a key whose limit is far below what it asks for, and one without a limit.
func stormy(t testing.TB) (r *rig, storm *direct, token string) {
	r = newRig(t, func(s *setup) { s.settings.StormPermille = 1000 })
	r.clock.Advance(time.Minute) // a gateway that has just started looks no further for a moment
	good := r.token
	r.token = ""
	r.addKey(auth.Key{ID: 77, UserID: idUser, Name: "storm", QPSLimit: 1})
	token, r.token = r.token, good
	storm = &direct{r: r}
	storm.ctx.Init(&fasthttp.Request{}, nil, nil)
	return r, storm, token
}

// A key that goes on after many refusals is told from one that is refused now and then: in the log, once a second and with
// their number, in a metric, and in what the limiter says of it.
func TestAbnormalUsageShows(t *testing.T) {
	r, storm, token := stormy(t)
	body := chat("gpt-4o", `,"max_tokens":5`)
	refused := func(n int) {
		for range n {
			storm.is(t, 429, "POST", "/v1/chat/completions", token, body)
		}
	}
	storm.is(t, 200, "POST", "/v1/chat/completions", token, body)
	refused(3)
	if strings.Contains(r.log.String(), "abnormal_usage") || r.storming() {
		t.Error("three refusals are nothing abnormal")
	}
	refused(100)
	if !r.storming() {
		t.Error("the limiter knows of no storm")
	}
	before := r.log.Len()
	refused(50)
	if n := strings.Count(r.log.String()[before:], "\n"); n > 4 {
		t.Errorf("%d lines about 50 refusals", n)
	}
	r.clock.Advance(time.Second)
	r.post("/v1/chat/completions", body).want(t, 200) // another key
	r.abnormal(t, 70, "the next request")
	storm.is(t, 200, "POST", "/v1/chat/completions", token, body)
	refused(50)
	must(t, r.server.Shutdown(t.Context()))
	r.abnormal(t, 110, "the end")
}

func (r *rig) storming() bool {
	use, err := r.limits.Inspect(r.t.Context(), limit.ID{Kind: limit.Key, Scope: 77})
	must(r.t, err)
	return use.Storm
}

// abnormal checks that the log has been told, by now, of every refusal that the metric counts.
func (r *rig) abnormal(t *testing.T, least int, by string) {
	t.Helper()
	told, lines := 0, regexp.MustCompile(`(?m)^.* msg=storm refused=(\d+) status=429 key=77 user=2 org=3 code=rate_limit_exceeded why="qps limit exceeded on dimension=key" abnormal_usage=true newest_request_id=[0-9a-f]{16}$`)
	for _, m := range lines.FindAllStringSubmatch(r.log.String(), -1) {
		n, err := strconv.Atoi(m[1])
		must(t, err)
		told += n
	}
	if told < least || !r.metered("weir_abnormal_usage_total "+itoa(told)) {
		t.Errorf("%d are told by %s, in %s", told, by, r.log)
	}
}

// What a storm's refusals have in common is rendered once: each still has its own id, its own wait and the limit of now, in both dialects.
func TestAStormsRefusalsAreEachTheirOwn(t *testing.T) {
	r := newRig(t, limits(auth.Key{QPSLimit: 2}), func(s *setup) { s.settings.StormPermille = 1000 })
	routes, ids, hints := []route{everyRoute[0], everyRoute[4]}, map[string]bool{}, 0
	ask := func(i, wait, most int) {
		p := r.post(routes[i%2].path, routes[i%2].body, "X-Request-Id", "mine-"+itoa(i)).want(t, 429)
		f := p.code(t, "rate_limit_exceeded")
		if f["dimension"] != "key" || f["kind"] != "qps" || f["limit_key"] != "key:1" || f["limit"] != float64(most) || f["current"] != float64(most) || f["requested"] != 1.0 ||
			f["message"] != "qps limit exceeded on dimension=key" || f["retry_after_ms"] != float64(wait) {
			t.Errorf("refusal %d: %v", i, f)
		}
		if h := p.header; h.Get("Retry-After-Ms") != itoa(wait) || h.Get("Retry-After") != "1" || h.Get("X-Client-Request-Id") != "mine-"+itoa(i) || ids[h.Get("X-Request-Id")] {
			t.Errorf("refusal %d: %v", i, h)
		}
		ids[p.header.Get("X-Request-Id")] = true
		if f["retry_after_exact"] == false {
			hints++
		}
	}
	r.post(routes[0].path, routes[0].body).want(t, 200)
	for i, most := 0, 2; i < 120; i++ {
		if i%60 == 0 {
			most = 2 + i/60
			r.key.QPSLimit = int64(most)
			r.dir.SetKey(r.key)
			r.post(routes[0].path, routes[0].body).want(t, 200)
		}
		r.clock.Advance(time.Millisecond)
		ask(i, 999-i, most)
	}
	if hints < 60 {
		t.Errorf("%d of 120 are refusals by the cheap look", hints)
	}
}

// The bodies of a storm are not looked at: what is wrong with one is told once the key keeps its limit.
func TestAStormsBodiesAreNotLookedAt(t *testing.T) {
	r, storm, token := stormy(t)
	for range 50 {
		storm.ask("POST", "/v1/chat/completions", token, chat("gpt-4o", `,"max_tokens":5`))
	}
	for _, body := range []string{"not JSON", chat("nobody", ""), strings.Repeat("[", 1000)} {
		storm.is(t, 429, "POST", "/v1/chat/completions", token, body)
	}
	r.clock.Advance(time.Second)
	storm.is(t, 400, "POST", "/v1/chat/completions", token, "not JSON")
}

// A refusal in a storm makes nothing that has to be collected.
func TestAStormAllocatesNothing(t *testing.T) {
	if patience > 1 {
		t.Skip("the race detector drops what is pooled")
	}
	r, ask := storming(t)
	if n := testing.AllocsPerRun(1000, ask); n != 0 {
		t.Errorf("%v allocations for a refusal", n)
	}
	if n := strings.Count(r.log.String(), "\n"); n > 100 {
		t.Errorf("%d lines", n)
	}
}

// storming gives a request that is refused by the cheap look; it may be asked again and again.
func storming(t testing.TB) (r *rig, ask func()) {
	r, storm, token := stormy(t)
	for range 50 {
		storm.ask("POST", "/v1/chat/completions", token, chat("gpt-4o", `,"max_tokens":5`))
	}
	return r, func() {
		storm.ctx.Response.Reset()
		r.server.Handle(&storm.ctx)
	}
}

// BenchmarkStorm is a refusal by the cheap look without sockets.
func BenchmarkStorm(b *testing.B) {
	_, ask := storming(b)
	b.ReportAllocs()
	for b.Loop() {
		ask()
	}
}

// A key that asks 5,000 times a second over its limit costs a twentieth of a core beside its sockets, and moves the p99 of
// another key by a millisecond at most; ten times as much but under -long, for other load.
func TestAStormIsCheap(t *testing.T) {
	share, moved := 0.5*patience, 10*time.Millisecond*patience
	if *long {
		share, moved = 0.05, time.Millisecond
	}
	r, storm, token := stormy(t)
	r.leavesNothing()
	for try := range 3 { // other load may move one
		alone := r.p99(time.Second)
		beside, each := r.beside(storm, token)
		core := each.Seconds() * stormRate
		t.Logf("%v for a refusal, %.1f %% of a core; the p99 of another key %v, beside it %v", each, 100*core, alone, beside)
		if core <= share && beside-alone <= moved {
			return
		}
		if try == 2 {
			t.Errorf("want %.0f %% of a core and %v at most", 100*share, moved)
		}
	}
}

const stormRate = 5000 // a second

// beside gives the p99 of good requests during a storm, and what each of its refusals takes.
func (r *rig) beside(storm *direct, token string) (p99, each time.Duration) {
	const every = 10 * time.Millisecond
	body := chat("gpt-4o", `,"max_tokens":5`)
	over, asked, spent := make(chan struct{}), 0, time.Duration(0)
	var asking sync.WaitGroup
	asking.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			began := time.Now()
			for range int(stormRate * every / time.Second) {
				storm.ask("POST", "/v1/chat/completions", token, body)
				asked++
			}
			spent += time.Since(began)
		}
	})
	p99 = r.p99(time.Second)
	close(over)
	asking.Wait()
	return p99, spent / time.Duration(max(asked, 1))
}
