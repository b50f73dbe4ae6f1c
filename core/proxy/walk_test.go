package proxy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
)

// L01: of five chats at once on a window for one, one runs; the others are refused while it does.
func TestL01OneOfFiveRunsTheRestAreRefusedAtOnce(t *testing.T) {
	r := newRig(t, limits(auth.Key{TPMLimit: 150}))
	use := func() limit.Use {
		u, err := r.limits.Inspect(t.Context(), limit.ID{Kind: limit.Key, Scope: idKey})
		must(t, err)
		return u
	}
	body := strings.Replace(chat("gpt-4o", `,"max_tokens":100`), "say hello", "please say hello very kindly and in a few words", 1)
	answers := make(chan reply, 5)
	for range 5 {
		go func() {
			answers <- r.post("/v1/chat/completions", body, "x-sim", "latency=1s,usage_in=20,usage_out=100")
		}()
	}
	for range 4 {
		f := (<-answers).want(t, 429).code(t, "rate_limit_exceeded")
		if f["kind"] != "tpm" || f["dimension"] != "key" || f["limit"] != 150.0 || f["current"].(float64) < 115 || f["current"] != f["requested"] {
			t.Errorf("%v", f)
		}
		if u := use(); u.TPM > 150 || u.TPMHeld != u.TPM || u.Concurrency != 1 {
			t.Errorf("%+v while one runs", u)
		}
	}
	(<-answers).want(t, 200)
	if u := use(); u.TPM != 120 || u.TPMHeld != 0 || r.sim.Stats().Requests != 1 {
		t.Errorf("%+v, %d reached the upstream", u, r.sim.Stats().Requests)
	}
}

// L02: without a cap in the body the default gives way to what the limit can hold, and the upstream is told.
func TestL02ForwardedCapFitsTheLimit(t *testing.T) {
	sent := make(chan []byte, 1)
	r := newRig(t, limits(auth.Key{TPMLimit: 500}), func(s *setup) {
		s.sim.Observe = func(_ string, _ *fasthttp.RequestHeader, body []byte) { sent <- append([]byte(nil), body...) }
	})
	r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200)
	var got struct {
		Old int `json:"max_tokens"`
		New int `json:"max_completion_tokens"`
	}
	body := <-sent
	must(t, json.Unmarshal(body, &got))
	if most := max(got.Old, got.New); most < 400 || most > 500 {
		t.Errorf("forwarded %s", body)
	}
	if held := r.journal.of(llm.EntryReserve)[0]; held.Usage.InputTokens+llm.Tokens(max(got.Old, got.New)) > 500 {
		t.Errorf("%+v and a cap of %+v", held, got)
	}
}

// L10: nothing that fifty clients make up adds a metric series to what the first of them left.
func TestL10MadeUpNamesAddNoSeries(t *testing.T) {
	r := newRig(t, func(s *setup) {
		s.settings.Defaults = map[limit.Kind]limit.Limits{limit.EndUser: {QPS: 1}}
	})
	r.policy.decide = func(_ *policy.Facts, d *policy.Decision) {
		d.N = 1
		d.Dims[0] = policy.Dimension{Kind: uint8(limit.EndUser), Tier: -1, SkipAbsent: true}
	}
	round := func(i string) {
		r.post("/v1/chat/completions", chat("m"+i, "")).want(t, 404)
		r.post("/v1/r"+i, "{}").want(t, 404)
		r.get("/v1/key", "Authorization", "Bearer x"+i).want(t, 401)
		r.post("/v1/chat/completions", chat("gpt-4o", ""), "Authorization", "Bearer "+r.token[:len(r.token)-len(i)]+i).want(t, 401)
		r.post("/v1/chat/completions", chat("gpt-4o", `,"user":"u`+i+`"`)).want(t, 200)
		r.post("/v1/chat/completions", chat("gpt-4o", `,"user":"u`+i+`"`)).want(t, 429)
	}
	round("warm")
	before := r.series()
	for i := range 50 {
		round(itoa(1000 + i))
	}
	for name := range r.series() {
		if !before[name] {
			t.Errorf("a new series: %s", name)
		}
	}
}

// series are the names of the metrics with their labels.
func (r *rig) series() map[string]bool {
	var b strings.Builder
	r.server.WriteMetrics(&b)
	names := map[string]bool{}
	for line := range strings.Lines(b.String()) {
		names[line[:strings.LastIndexByte(line, ' ')]] = true
	}
	return names
}

// S04: exactly what the upstream sent before it broke reaches the client, then one error event.
func TestS04TenEventsThenTheError(t *testing.T) {
	r := newRig(t, func(s *setup) { s.upstream.IdleTimeoutMS = 500 })
	for mode, code := range map[string]string{"reset_after=10": "upstream_unavailable", "hang_after=10": "upstream_timeout"} {
		for _, x := range streams() {
			whole := squash(r.post(x.path, x.with(`,"stream":true`), "x-sim", "out=20").want(t, 200).events())
			p := r.post(x.path, x.with(`,"stream":true`), "x-sim", "out=20,pace=2ms,"+mode).want(t, 200)
			ev := squash(p.events())
			if p.err != nil || len(ev) != 11 || strings.Join(ev[:10], "\n") != strings.Join(whole[:10], "\n") || !strings.Contains(ev[10], code) {
				t.Errorf("%s with %s: %v, %d events\n%s", x.path, mode, p.err, len(ev), p.body)
			}
		}
	}
}

// S09: a client that waits as long as it was told to after an upstream's 429 is served, in both dialects.
func TestS09WaitingOutAnUpstreamsLimitIsEnough(t *testing.T) {
	r := newRig(t)
	for _, x := range []route{everyRoute[0], everyRoute[4]} {
		sent := r.sim.Stats().Requests
		f := r.post(x.path, x.body, "x-sim", "status=429,retry_after=1").want(t, 429).code(t, "upstream_rate_limited")
		told := time.Now()
		ms, _ := f["retry_after_ms"].(float64)
		if ms < 1 || ms > 1000 {
			t.Fatalf("%v", f)
		}
		r.post(x.path, x.body).want(t, 429).code(t, "upstream_rate_limited")
		if n := r.sim.Stats().Requests - sent; n != 1 {
			t.Errorf("%d requests reached a channel that asked for a pause", n)
		}
		time.Sleep(time.Until(told.Add(time.Duration(ms) * time.Millisecond)))
		r.post(x.path, x.body).want(t, 200)
	}
}

// A request that is refused because every channel sleeps costs nobody anything: neither its key nor anybody else at the
// global limit. Its wait is said to be a hint.
func TestASleepingChannelsRefusalLeavesNoTrace(t *testing.T) {
	for mode, status := range map[string]int{"status=429,retry_after=60": 429, "status=401": 502} {
		r := newRig(t)
		r.post("/v1/chat/completions", chat("gpt-4o", ""), "x-sim", mode).want(t, status)
		for range 3 {
			f := r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, status).fields(t)
			if status == 429 && f["retry_after_exact"] != false {
				t.Errorf("%v", f)
			}
		}
		r.idle()
		for _, id := range []limit.ID{{Kind: limit.Key, Scope: idKey}, {Kind: limit.Model, Name: "gpt-4o"}, {Kind: limit.Global}} {
			if use, err := r.limits.Inspect(t.Context(), id); err != nil || use.QPS != 1 || use.Concurrency != 0 || use.TPM != 0 {
				t.Errorf("%s: %v counts %+v where one request was sent, %v", mode, id, use, err)
			}
		}
	}
}

// The request log says why a request was refused, and which policy had a hand in it.
func TestTheLogSaysWhy(t *testing.T) {
	r := newRig(t, limits(auth.Key{QPSLimit: 1}))
	r.policy.decide = func(f *policy.Facts, d *policy.Decision) {
		d.Module, d.Version, d.Reason = "night", "ab12", 7
		if f.Attr[policy.AttrEndUser] == "owl" {
			d.Verdict, d.Status, d.Message = policy.Deny, 403, "not at night"
		}
	}
	served := r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200)
	limited := r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 429)
	denied := r.post("/v1/chat/completions", chat("gpt-4o", `,"user":"owl"`)).want(t, 403)
	r.close()
	for _, x := range []struct {
		p    reply
		why  string
		want []string
	}{
		{served, "", []string{"status=200", "policy=night", "version=ab12", "reason=7"}},
		{limited, `why="qps limit exceeded on dimension=key"`, []string{"status=429", "key=1", "policy=night", "version=ab12", "reason=7"}},
		{denied, `why="not at night"`, []string{"status=403", "key=1", "policy=night", "version=ab12", "reason=7"}},
	} {
		line := r.logged(t, x.p.header.Get("X-Request-Id"))
		if x.why == "" && strings.Contains(line, "why=") || !strings.Contains(line, x.why) {
			t.Errorf("want %q in %s", x.why, line)
		}
		for _, w := range x.want {
			if !strings.Contains(line+" ", " "+w+" ") {
				t.Errorf("want %s in %s", w, line)
			}
		}
	}
}

// logged is the one line of the log about a request.
func (r *rig) logged(t *testing.T, id string) (line string) {
	t.Helper()
	for l := range strings.Lines(r.log.String()) {
		if strings.Contains(l, "request_id="+id+" ") {
			if line != "" {
				t.Errorf("a second line: %s", l)
			}
			line = strings.TrimSpace(l)
		}
	}
	if line == "" {
		t.Fatal(fmt.Sprint("no line about ", id, " in\n", r.log))
	}
	return line
}
