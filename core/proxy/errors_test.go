package proxy

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/valyala/fasthttp"

	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
)

// flags live in the test binary only
func rewrite() bool { return flag.Lookup("rewrite").Value.String() == "true" }

func init() { flag.Bool("rewrite", false, "rewrite the golden files") }

// answers is every row of the contract's table, in its order.
func answers(d llm.Dialect) []struct {
	name string
	r    refusal
} {
	type named = struct {
		name string
		r    refusal
	}
	fail := func(name string, e *llm.Error) named { return named{name, errorRefusal(e, d, 700, nil)} }
	deny := func(name string, n limit.Denial) named { return named{name, denialRefusal(&n, "cny", nil)} }
	key := limit.ID{Kind: limit.Key, Scope: 42}
	resets := time.Date(2026, 12, 1, 0, 0, 0, 0, time.FixedZone("", 8*3600))
	with := func(e *llm.Error, f func(*llm.Error)) *llm.Error { f(e); return e }
	return []named{
		deny("qps over", limit.Denial{Axis: limit.AxisQPS, ID: key, Limit: 2, Current: 2, Requested: 1, RetryAfterMS: 640, Exact: true}),
		deny("tpm over", limit.Denial{Axis: limit.AxisTPM, ID: limit.ID{Kind: limit.EndUser, Scope: 7, Name: `b"ob`}, Limit: 1000, Current: 980, Requested: 71, RetryAfterMS: 59_001, Exact: true}),
		deny("concurrency over", limit.Denial{Axis: limit.AxisConcurrency, ID: key, Limit: 1, Current: 1, Requested: 1, RetryAfterMS: 1000}),
		deny("wait over 60 s", limit.Denial{Axis: limit.AxisTPM, ID: limit.ID{Kind: limit.Global}, Limit: 10, Current: 10, Requested: 5, RetryAfterMS: 90_500, Exact: true}),
		deny("larger than the limit", limit.Denial{Axis: limit.AxisTPM, ID: key, Limit: 50, Requested: 71, TooLarge: true, RetryAfterMS: 60_000, Exact: true}),
		deny("balance short", limit.Denial{Axis: limit.AxisBalance, Required: 17_700, Available: 12}),
		deny("monthly quota", limit.Denial{Axis: limit.AxisQuota, Limit: 10, Requested: 17_700, Used: 3, Held: 4, ResetsAt: resets}),
		fail("no price", with(llm.Errorf(llm.KindInvalid, "no price"), func(e *llm.Error) {
			e.Code, e.Fields = "price_not_configured", map[string]any{"model": "gpt-4o"}
		})),
		fail("unknown model", with(llm.Errorf(llm.KindNotFound, "no model"), func(e *llm.Error) { e.Code = "model_not_found" })),
		fail("unknown route", with(llm.Errorf(llm.KindNotFound, "no route"), func(e *llm.Error) { e.Code = "route_not_found" })),
		fail("malformed body", llm.Invalid("max_tokens", "max_tokens must be a whole number")),
		fail("body too large", tooLarge(16<<20)),
		fail("headers too large", with(llm.Errorf(llm.KindHeaders, "headers"), func(e *llm.Error) { e.LimitBytes = 16384 })),
		fail("bad key", llm.Errorf(llm.KindUnauthorized, "unknown key")),
		fail("policy", &llm.Error{Kind: llm.KindPolicy, Message: "not at night", Fields: map[string]any{"policy": "night", "version": "ab12"}}),
		fail("policy with a status and a wait", &llm.Error{Kind: llm.KindPolicy, Message: "slow down", Status: 429, RetryAfterMS: 2500, Fields: map[string]any{"policy": "night", "version": "ab12"}}),
		fail("ledger down", unavailable(errors.New("disk full")).(*llm.Error)),
		fail("all channels failed", &llm.Error{Kind: llm.KindUpstream, Message: "no channel answered", Fields: map[string]any{"attempted_channels": []string{"a", "b"}}}),
		fail("upstream too slow", llm.Errorf(llm.KindTimeout, "the upstream was silent")),
		fail("upstream 429 everywhere", &llm.Error{Kind: llm.KindRateLimited, Message: "cooling", RetryAfterMS: 7000}),
		fail("a bug", asError(errors.New("secret"))),
		fail("forbidden", llm.Errorf(llm.KindForbidden, "the key lacks the scope tenant")),
	}
}

// TestErrorsGolden holds every row of the table in both dialects: status, retry headers and body, byte by byte.
func TestErrorsGolden(t *testing.T) {
	for d, dialect := range []string{"openai", "anthropic"} {
		var got strings.Builder
		for _, a := range answers(llm.Dialect(d)) {
			var h fasthttp.ResponseHeader
			a.r.setHeaders(&h, nil)
			body := a.r.appendBody(nil, llm.Dialect(d), []byte("00112233aabbccdd"))
			if !json.Valid(body) {
				t.Errorf("%s: not JSON: %s", a.name, body)
			}
			fmt.Fprintf(&got, "# %s\n%d", a.name, a.r.status)
			for _, name := range []string{"Retry-After", "Retry-After-Ms", "X-Should-Retry"} {
				if v := h.Peek(name); len(v) > 0 {
					fmt.Fprintf(&got, " %s=%s", name, v)
				}
			}
			fmt.Fprintf(&got, "\n%s\n\n", body)
		}
		file := filepath.Join("testdata", "errors_"+dialect+".txt")
		if rewrite() {
			if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got.String()); diff != "" {
			t.Errorf("%s (run with -rewrite after a look):\n%s", file, diff)
		}
	}
}

// Every kind has a row: an error of a kind without one would be a 0 status.
func TestEveryKindHasARow(t *testing.T) {
	for k := llm.KindInternal; k <= llm.KindConflict; k++ {
		for _, d := range []llm.Dialect{llm.OpenAI, llm.Anthropic} {
			if r := errorRefusal(&llm.Error{Kind: k}, d, 0, nil); r.status < 400 || r.typ == "" || r.code == "" {
				t.Errorf("kind %d: %+v", k, r)
			}
		}
	}
}

func TestStreamEvent(t *testing.T) {
	r := errorRefusal(llm.Errorf(llm.KindUpstream, "broke"), llm.OpenAI, 0, nil)
	if got := string(r.appendEvent(nil, llm.Chat, 7, nil)); got != "data: {\"error\":{\"type\":\"upstream_unavailable\",\"message\":\"broke\",\"code\":\"upstream_unavailable\"}}\n\n" {
		t.Errorf("openai: %q", got)
	}
	if got := string(r.appendEvent(nil, llm.Messages, 7, []byte("id"))); got != "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"broke\",\"code\":\"upstream_unavailable\"},\"request_id\":\"id\"}\n\n" {
		t.Errorf("anthropic: %q", got)
	}
	if got := string(r.appendEvent(nil, llm.Responses, 7, nil)); got != "event: error\ndata: {\"type\":\"error\",\"sequence_number\":7,\"code\":\"upstream_unavailable\",\"message\":\"broke\",\"param\":null,\"error\":{\"type\":\"upstream_unavailable\",\"message\":\"broke\",\"code\":\"upstream_unavailable\"}}\n\n" {
		t.Errorf("responses: %q", got)
	}
}

func BenchmarkDenialBody(b *testing.B) {
	d := limit.Denial{Axis: limit.AxisQPS, ID: limit.ID{Kind: limit.Key, Scope: 42}, Limit: 2, Current: 2, Requested: 1, RetryAfterMS: 640, Exact: true}
	var members, body []byte
	b.ReportAllocs()
	for b.Loop() {
		r := denialRefusal(&d, "cny", members[:0])
		members = r.members
		body = r.appendBody(body[:0], llm.OpenAI, nil)
	}
}
