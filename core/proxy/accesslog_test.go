package proxy_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/core/proxy"
)

// denials is every way in which the contract says that a request is refused, and what the log says of it.
var denials = []struct {
	name   string
	setup  option
	act    func(*rig) reply
	status int
	code   string
	why    string
}{
	{"qps", limits(auth.Key{QPSLimit: 1}), twice("/v1/chat/completions"), 429, "rate_limit_exceeded", "qps limit exceeded on dimension=key"},
	{"tpm", limits(auth.Key{TPMLimit: 100}), twice("/v1/chat/completions"), 429, "rate_limit_exceeded", "tpm limit exceeded on dimension=key"},
	{"larger than the limit", limits(auth.Key{TPMLimit: 10}), once("/v1/chat/completions", chat("gpt-4o", `,"max_tokens":50`)), 429, "request_exceeds_limit", "larger than the limit"},
	{"balance", func(s *setup) { s.balance = 10 }, once("/v1/chat/completions", chat("gpt-4o", "")), 402, "insufficient_quota", "balance"},
	{"month", limits(auth.Key{MonthlyQuota: 10}), once("/v1/messages", everyRoute[4].body), 402, "monthly_quota_exceeded", "quota"},
	{"no price", nil, once("/v1/chat/completions", chat("priceless", "")), 400, "price_not_configured", "price"},
	{"unknown model", nil, once("/v1/chat/completions", chat("gpt-9", "")), 404, "model_not_found", "does not exist"},
	{"malformed", nil, once("/v1/chat/completions", `{"model":"gpt-4o","model":"x"}`), 400, "invalid_request_error", "model"},
	{"body too large", func(s *setup) { s.options.BodyBytes = 1 << 10 }, once("/v1/chat/completions", chat("gpt-4o", `,"user":"`+strings.Repeat("x", 4<<10)+`"`)), 413, "request_too_large", "1024"},
	{"headers too large", func(s *setup) { s.options.HeaderBytes = 1 << 10 }, once("/v1/chat/completions", chat("gpt-4o", ""), "X-Long", strings.Repeat("x", 4<<10)), 431, "headers_too_large", "1024"},
	{"bad key", nil, once("/v1/chat/completions", chat("gpt-4o", ""), "Authorization", "Bearer sk-weir-aaaaaaaa-"+strings.Repeat("a", 43)), 401, "authentication_error", "API key"},
	{"policy", nil, func(r *rig) reply {
		r.policy.decide = func(_ *policy.Facts, d *policy.Decision) {
			*d = policy.Decision{Verdict: policy.Deny, Tier: -1, Message: "not at night", Module: "night", Version: "ab12", Status: 403}
		}
		return r.post("/v1/chat/completions", chat("gpt-4o", ""))
	}, 403, "policy_denied", "not at night"},
	{"upstream 4xx", nil, once("/v1/chat/completions", chat("gpt-4o", ""), "x-sim", "status=422"), 422, "upstream_refused", "422"},
	{"ledger down", nil, func(r *rig) reply {
		r.journal.refuse = errDown
		return r.post("/v1/chat/completions", chat("gpt-4o", ""))
	}, 503, "overloaded", "ledger"},
	{"all channels failed", nil, once("/v1/chat/completions", chat("gpt-4o", ""), "x-sim", "status=500"), 502, "upstream_unavailable", "channel"},
	{"upstream too slow", func(s *setup) { s.upstream.HeaderTimeoutMS = 50 }, once("/v1/chat/completions", chat("gpt-4o", ""), "x-sim", "latency=10s"), 504, "upstream_timeout", ""},
	{"upstream 429", nil, once("/v1/chat/completions", chat("gpt-4o", ""), "x-sim", "status=429,retry_after=7"), 429, "upstream_rate_limited", ""},
	{"concurrency", limits(auth.Key{ConcurrencyLimit: 1}), func(r *rig) reply {
		done := make(chan reply)
		go func() { done <- r.post("/v1/chat/completions", chat("gpt-4o", ""), "x-sim", "latency=2s") }()
		eventually(r.t, func() bool { return r.limits.Open() == 1 }, "the first call never started")
		p := r.post("/v1/chat/completions", chat("gpt-4o", ""))
		(<-done).want(r.t, 200)
		return p
	}, 429, "rate_limit_exceeded", "concurrency limit exceeded on dimension=key"},
}

// accessLine is the one line of the access log about a request.
func (r *rig) accessLine(id string) string {
	r.t.Helper()
	found := regexp.MustCompile(`(?m)^.* msg=request request_id=`+id+` .*$`).FindAllString(r.log.String(), -1)
	if len(found) != 1 {
		r.t.Fatalf("%d lines about %s in %s", len(found), id, r.log)
	}
	return found[0]
}

func once(path, body string, header ...string) func(*rig) reply {
	return func(r *rig) reply { return r.post(path, body, header...) }
}

func twice(path string) func(*rig) reply {
	return func(r *rig) reply {
		r.post(path, chat("gpt-4o", `,"max_tokens":60`)).want(r.t, 200)
		return r.post(path, chat("gpt-4o", `,"max_tokens":60`))
	}
}

// The access log says of every refused request which it was, with what status, by which rule and why, with the code and in the
// words that the client was given, but for its own.
func TestAccessLogSaysWhy(t *testing.T) {
	for _, x := range denials {
		t.Run(x.name, func(t *testing.T) {
			r := newRig(t, func(s *setup) {
				s.options = proxy.Options{}
				if x.setup != nil {
					x.setup(s)
				}
			})
			p := x.act(r).want(t, x.status)
			line := r.accessLine(p.header.Get("X-Request-Id"))
			want := []string{fmt.Sprintf(" status=%d ", x.status), " code=" + x.code + " ", x.why}
			if !strings.Contains(line, "why=") {
				t.Errorf("no reason: %s", line)
			}
			for _, text := range want {
				if !strings.Contains(line+" ", text) {
					t.Errorf("%q is not in %s; the client got %s", text, line, p.body)
				}
			}
		})
	}
}
