package proxy_test

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-gateway/weir/core/auth"
)

// stormy is a gateway with a key whose limit is far below what it asks for, and one without a limit.
func stormy(t *testing.T) (r *rig, storm *direct, token string) {
	r = newRig(t, func(s *setup) { s.settings.StormPermille = 1000 })
	good := r.token
	r.token = ""
	r.addKey(auth.Key{ID: 77, UserID: idUser, Name: "storm", QPSLimit: 1})
	token, r.token = r.token, good
	storm = &direct{r: r}
	storm.ctx.Init(&fasthttp.Request{}, nil, nil)
	return r, storm, token
}

// A key that goes on after many refusals is told from one that is refused now and then: in the record of the request, and
// in a metric.
func TestAbnormalUsageShows(t *testing.T) {
	r, storm, token := stormy(t)
	body := chat("gpt-4o", `,"max_tokens":5`)
	storm.is(t, 200, "POST", "/v1/chat/completions", token, body)
	for range 3 {
		storm.is(t, 429, "POST", "/v1/chat/completions", token, body)
	}
	if strings.Contains(r.log.String(), "abnormal_usage") {
		t.Error("three refusals are nothing abnormal")
	}
	for range 100 {
		storm.is(t, 429, "POST", "/v1/chat/completions", token, body)
	}
	n := strings.Count(r.log.String(), "abnormal_usage=true")
	var metrics bytes.Buffer
	r.server.WriteMetrics(&metrics)
	if n < 70 || !strings.Contains(metrics.String(), "weir_abnormal_usage_total "+itoa(n)+"\n") {
		t.Errorf("%d of 100 are abnormal", n)
	}
	r.post("/v1/chat/completions", body).want(t, 200) // another key
}

// A key that asks 5,000 times a second over its limit costs a twentieth of a core beside its sockets, and moves the p99 of
// another key by a millisecond at most; ten times as much but under -long, for other load.
func TestAStormIsCheap(t *testing.T) {
	share, moved := 0.5*patience, 10*time.Millisecond*patience
	if *long {
		share, moved = 0.05, time.Millisecond
	}
	r, storm, token := stormy(t)
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
