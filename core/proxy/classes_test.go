package proxy_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
)

// usages is what each route's upstream says of 100 input tokens, of which 50 came from its cache and 30 went into it, and
// 10 output tokens.
var usages = map[string]string{
	"/v1/chat/completions": `"usage":{"prompt_tokens":100,"completion_tokens":10,"total_tokens":110,"prompt_tokens_details":{"cached_tokens":50,"cache_write_tokens":30}}`,
	"/v1/completions":      `"usage":{"prompt_tokens":100,"completion_tokens":10,"total_tokens":110,"prompt_tokens_details":{"cached_tokens":50,"cache_write_tokens":30}}`,
	"/v1/responses":        `"usage":{"input_tokens":100,"output_tokens":10,"input_tokens_details":{"cached_tokens":50,"cache_write_tokens":30}}`,
	"/v1/messages":         `"usage":{"input_tokens":20,"cache_read_input_tokens":50,"cache_creation_input_tokens":30,"output_tokens":10}`,
}

// cached is an upstream that has cached some of everything.
func cached(t *testing.T) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		var ask struct{ Stream bool }
		_ = json.Unmarshal(body, &ask)
		usage := usages[q.URL.Path]
		if !ask.Stream {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{"+usage+"}")
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, map[string]string{
			"/v1/chat/completions": "data: {\"choices\":[]," + usage + "}\n\ndata: [DONE]\n\n",
			"/v1/completions":      "data: {\"choices\":[]," + usage + "}\n\ndata: [DONE]\n\n",
			"/v1/responses":        "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{" + usage + "}}\n\n",
			"/v1/messages": "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{" + strings.Replace(usage, `:10}`, `:1}`, 1) + "}}\n\n" +
				"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":10}}\n\n" +
				"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
		}[q.URL.Path])
	}))
	t.Cleanup(s.Close)
	return s
}

// M10: input read from a cache, input written into one and the rest are paid for at their own prices, and weigh the same
// in the TPM window, in both dialects, on every route that can report them, streamed or not.
func TestM10EachClassAtItsPrice(t *testing.T) {
	up := cached(t)
	r := newRig(t, limits(auth.Key{TPMLimit: 1 << 30}), func(s *setup) {
		s.catalog = func(c *catalog) { c.channels[0].BaseURL, c.channels[1].BaseURL = up.URL, up.URL }
	})
	want := llm.Usage{InputTokens: 100, CachedInputTokens: 50, CacheWriteTokens: 30, OutputTokens: 10}
	const cost = 20*1_000_000 + 50*500_000 + 30*1_250_000 + 10*4_000_000 // of a million tokens each
	spent, tokens := llm.Micro(0), int64(0)
	for _, x := range streams() {
		for _, more := range []string{"", `,"stream":true`} {
			if p := r.post(x.path, x.with(more)).want(t, 200); p.err != nil {
				t.Fatal(p.err)
			}
			r.idle()
			e := r.journal.last(t)
			if e.Usage != want || e.Estimated || e.Cost != (cost+999_999)/1_000_000 {
				t.Errorf("%s%s: %+v", x.path, more, e)
			}
			spent, tokens = spent+e.Cost, tokens+110
			if left, held := r.limits.Balance(idUser); startBalance-left != spent || held != 0 {
				t.Errorf("%s%s: the balance moved by %d of %d", x.path, more, startBalance-left, spent)
			}
			use, err := r.limits.Inspect(t.Context(), limit.ID{Kind: limit.Key, Scope: idKey})
			if err != nil || use.TPM != tokens {
				t.Errorf("%s%s: %d tokens in the window, want %d; %v", x.path, more, use.TPM, tokens, err)
			}
		}
	}
	series := r.metrics()
	for _, line := range []string{`weir_tokens_total{class="cached_input"} 400`, `weir_tokens_total{class="output"} 80`} {
		if !strings.Contains(series, line) {
			t.Errorf("no %s in %s", line, series)
		}
	}
}

func (r *rig) metrics() string {
	var b strings.Builder
	r.server.WriteMetrics(&b)
	return b.String()
}
