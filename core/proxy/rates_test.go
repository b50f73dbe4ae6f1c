package proxy_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/core/proxy"
)

// rate is one header of a dialect's families.
func rate(path, family, what string) string {
	if strings.HasPrefix(path, "/v1/messages") {
		return "anthropic-ratelimit-" + family + "-" + what
	}
	return "x-ratelimit-" + what + "-" + family
}

// rated checks that an answer has both families of its dialect, with these limits, and what is left of them.
func (p reply) rated(t *testing.T, path, requests, requestsLeft, tokens, tokensLeft string) {
	t.Helper()
	want := map[string]string{rate(path, "requests", "limit"): requests, rate(path, "requests", "remaining"): requestsLeft,
		rate(path, "tokens", "limit"): tokens, rate(path, "tokens", "remaining"): tokensLeft}
	for name, v := range want {
		if got := p.header.Get(name); got != v {
			t.Errorf("%s, %d: %s is %q, want %q", path, p.status, name, got, v)
		}
	}
	for _, family := range []string{"requests", "tokens"} {
		if p.header.Get(rate(path, family, "reset")) == "" {
			t.Errorf("%s, %d: no reset of %s", path, p.status, family)
		}
	}
}

// unrated checks that an answer says nothing about limits.
func (p reply) unrated(t *testing.T, what string) {
	t.Helper()
	for name := range p.header {
		if strings.Contains(strings.ToLower(name), "ratelimit") {
			t.Errorf("%s, %d: %s is sent", what, p.status, name)
		}
	}
}

// Whatever is wrong with a request, who sends a good key is told how the key stands, in the dialect of the route.
func TestRateHeadersOnEveryRefusal(t *testing.T) {
	r := newRig(t, limits(auth.Key{QPSLimit: 9, TPMLimit: 5000}), func(s *setup) {
		s.options = proxy.Options{BodyBytes: 1 << 20}
		s.settings.Global = limit.Limits{QPS: 100, TPM: 100_000}
	})
	large := strings.Repeat("a", 2<<20)
	for _, path := range []string{"/v1/chat/completions", "/v1/messages"} {
		model := map[bool]string{true: "claude-sonnet-4-5", false: "gpt-4o"}[path == "/v1/messages"]
		body := chat(model, `,"max_tokens":50`)
		r.clock.Advance(time.Minute)
		r.post(path, body, "x-sim", "usage_in=100,usage_out=20").want(t, 200)
		get := r.request(path, "")
		get.Method, get.Body = http.MethodGet, nil
		expect := r.request(path, large)
		expect.Header.Set("Expect", "100-continue")
		for what, p := range map[string]reply{
			"unknown model":    r.post(path, chat("nobody", `,"max_tokens":50`)).want(t, 404),
			"malformed":        r.post(path, `{`).want(t, 400),
			"content type":     r.post(path, body, "Content-Type", "text/plain").want(t, 415),
			"content encoding": r.post(path, body, "Content-Encoding", "gzip").want(t, 415),
			"too large":        r.do(r.request(path, large)).want(t, 413),
			"expected":         r.do(expect).want(t, 413),
			"method":           r.do(get).want(t, 404),
			"route":            r.post(path+"/nothing", body).want(t, 404),
			"no price":         r.post(path, chat("priceless", `,"max_tokens":50`)).want(t, 400),
		} {
			t.Run(what, func(t *testing.T) { p.rated(t, path, "9", "8", "5000", "4880") })
		}
		r.post(path, body, "Authorization", "Bearer "+r.token+"x").want(t, 401).unrated(t, "a bad key")
		r.post(path, body, "Authorization", "").want(t, 401).unrated(t, "no key")
		r.post(path, body, "x-api-key", "another").want(t, 400).unrated(t, "two keys")
		r.post(path+"/nothing", body, "Authorization", "Bearer nope").want(t, 404).unrated(t, "no route, a bad key")
		two := r.request(path, body)
		two.Header["Authorization"] = []string{"Bearer " + r.token, "Bearer " + r.token}
		r.do(two).want(t, 400).unrated(t, "a header given twice")
	}
	r.get("/healthz").want(t, 200).unrated(t, "healthz")
}

// A refusal of one sort says how the other sort stands, too.
func TestRateHeadersOfBothSortsOnEveryDenial(t *testing.T) {
	for _, path := range []string{"/v1/chat/completions", "/v1/messages"} {
		model := map[bool]string{true: "claude-sonnet-4-5", false: "gpt-4o"}[path == "/v1/messages"]
		body := chat(model, `,"max_tokens":50`)
		spend := func(t *testing.T, k auth.Key, more ...option) *rig {
			r := newRig(t, append([]option{limits(k)}, more...)...)
			r.post(path, body, "x-sim", "usage_in=100,usage_out=20").want(t, 200)
			return r
		}
		t.Run(path, func(t *testing.T) {
			spend(t, auth.Key{QPSLimit: 1, TPMLimit: 5000}).post(path, body).want(t, 429).rated(t, path, "1", "0", "5000", "4880")
			spend(t, auth.Key{QPSLimit: 7, TPMLimit: 130}).post(path, body).want(t, 429).rated(t, path, "7", "6", "130", "10")
			spend(t, auth.Key{QPSLimit: 7, TPMLimit: 5000, MonthlyQuota: 300}).post(path, body).want(t, 402).rated(t, path, "7", "6", "5000", "4880")
			spend(t, auth.Key{QPSLimit: 7, TPMLimit: 5000}, func(s *setup) { s.balance = 300 }).post(path, body).want(t, 402).rated(t, path, "7", "6", "5000", "4880")

			r := spend(t, auth.Key{QPSLimit: 7, TPMLimit: 5000})
			r.policy.decide = func(_ *policy.Facts, d *policy.Decision) { d.Verdict = policy.Deny }
			r.post(path, body).want(t, 403).rated(t, path, "7", "6", "5000", "4880")
			r.policy.decide = func(_ *policy.Facts, d *policy.Decision) { d.QPS, d.TPM = 200, 500 }
			r.post(path, body).want(t, 429).rated(t, path, "1", "0", "2500", "2380") // the limits it was tested against
			r.policy.decide = nil
			r.clock.Advance(time.Second)
			r.journal.refuse = errDown
			p := r.post(path, body)
			p.rated(t, path, "7", "7", "5000", "4880")
			r.journal.refuse = nil
			r.post(path, body, "x-sim", "status=500").want(t, 502).rated(t, path, "7", "6", "5000", tokensLeft(t, r))
		})
	}
}

// tokensLeft is what an admitted request saw of the key's tokens: all but what is used and what the request itself holds.
func tokensLeft(t *testing.T, r *rig) string {
	t.Helper()
	held := r.journal.of(llm.EntryReserve)
	e := held[len(held)-1]
	return itoa(int(4880 - e.Usage.InputTokens - 50))
}

// A storm's refusals, which are answered before anything is counted, say the same.
func TestRateHeadersInAStorm(t *testing.T) {
	r := newRig(t, limits(auth.Key{QPSLimit: 1, TPMLimit: 5000}), func(s *setup) { s.settings.StormPermille = 1000 })
	r.post("/v1/chat/completions", chat("gpt-4o", ""), "x-sim", "usage_in=100,usage_out=20").want(t, 200)
	for range 40 {
		r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 429).rated(t, "/v1/chat/completions", "1", "0", "5000", "4880")
	}
}

// The tightest limit counts, whoever it belongs to.
func TestRateHeadersOfTheTightestOwner(t *testing.T) {
	r := newRig(t, limits(auth.Key{QPSLimit: 9}), func(s *setup) {
		s.user.QPSLimit = 4
		s.settings.Global = limit.Limits{QPS: 100, TPM: 700}
	})
	r.dir.SetOrg(auth.Org{ID: idOrg, Name: "Acme", TPMLimit: 600})
	r.post("/v1/chat/completions", chat("gpt-4o", `,"max_tokens":50`), "x-sim", "usage_in=100,usage_out=20").want(t, 200)
	r.post("/v1/chat/completions", chat("nobody", "")).want(t, 404).rated(t, "/v1/chat/completions", "4", "3", "600", "480")
	r.get("/v1/models").want(t, 200).rated(t, "/v1/models", "4", "3", "600", "480")
}

// A chunked upload that grows too large loses its head, and with it the key: no numbers, and still the answer.
func TestRateHeadersOfAnUploadWithoutLength(t *testing.T) {
	r := newRig(t, limits(auth.Key{QPSLimit: 9}), func(s *setup) { s.options = proxy.Options{BodyBytes: 1 << 20} })
	req := r.request("/v1/messages", "")
	req.Body, req.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat("a", 2<<20))), -1
	r.do(req).want(t, 413).unrated(t, "a chunked upload")
}
