package proxy_test

import (
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/upstream"
)

// notAnswers are what upstreams, and what stands before them, answer 200 with, and the status that it becomes.
var notAnswers = map[string]int{
	"OK": 502, "null": 502, "{}": 502, "[]": 502, "": 502, `{"choices":[{"message":{"content":"a"}}`: 502, `{"detail":"Not Found"}`: 502,
	`{"object":"error","message":"boom","code":500}`: 502, "\xef\xbb\xbf{\"error\":{\"message\":\"boom\"}}": 502, `{"\u0065rror":{"message":"boom"}}`: 502,
	`{"choices":[],"output":[],"content":[],"data":[],"error":{"message":"boom"}}`: 502,
	`{"object":"error","message":"slow down","code":429}`:                          429, `{"choices":[],"error":{"type":"rate_limit_error"}}`: 429,
}

// asIs is a body, whole or as a stream's first event.
func asIs(body string, stream bool) string {
	if !stream {
		return body
	}
	return "data: " + body + "\n\n"
}

// nothingOwed checks that the latest request has cost nobody anything.
func (r *rig) nothingOwed(t *testing.T, what string) {
	t.Helper()
	r.idle()
	if e := r.journal.last(t); e.Cost != 0 || e.Usage != (llm.Usage{}) || e.Status == llm.StatusFinalized || e.Status == llm.StatusPartial {
		t.Errorf("%s: %+v", what, e)
	}
	if left, held := r.limits.Balance(idUser); left != startBalance || held != 0 {
		t.Errorf("%s: %d of %d is left, %d held", what, left, startBalance, held)
	}
}

// What is no answer costs nothing, whatever its status says, on any route, whole or as a stream: it is the channel's failure, and
// the client's answer where there is no other channel is an error that its SDK tries again.
func TestWhatIsNoAnswerIsNotCharged(t *testing.T) {
	var body string
	for _, x := range everyRoute {
		for said, status := range notAnswers {
			for _, stream := range []bool{false, true} {
				if stream && (strings.Contains(x.path, "embeddings") || strings.Contains(x.path, "count")) {
					continue
				}
				r, ask := sameAnswers(t, &body), x.body
				if body = asIs(said, stream); stream {
					ask = x.with(`,"stream":true`)
				}
				code := "upstream_unavailable"
				if status == 429 {
					code = "upstream_rate_limited"
				}
				p := r.post(x.path, ask).want(t, status)
				if p.code(t, code); strings.Contains(string(p.body), "boom") || p.header.Get("Content-Type") != "application/json" {
					t.Errorf("%s: %q: %s", x.path, body, p.body)
				}
				r.nothingOwed(t, x.path+": "+body)
				if h := r.client.Health(r.catalog()); h[0].Failures+h[1].Failures == 0 && h[0].State+h[1].State == "upup" {
					t.Errorf("%s: %q: the channels are told to be well: %+v", x.path, body, h)
				}
			}
		}
	}
}

// catalog is what the rig's channels are taken from.
func (r *rig) catalog() *upstream.Catalog {
	cat, err := upstream.NewCatalog(r.cat.models, r.cat.channels)
	must(r.t, err)
	return cat
}

// Where another channel is left it serves the request, and that alone is charged.
func TestWhatIsNoAnswerFailsOver(t *testing.T) {
	var body string
	for said := range notAnswers {
		r := sameAnswers(t, &body)
		r.cat.channels = append(r.cat.channels,
			upstream.Channel{ID: 3, Name: "openai-2", Provider: "openai", BaseURL: r.simURL, Priority: -1},
			upstream.Channel{ID: 4, Name: "anthropic-2", Provider: "anthropic", BaseURL: r.simURL, Priority: -1})
		r.setCatalog()
		for _, x := range everyRoute {
			body = said
			r.post(x.path, x.body, "x-sim", "out=20,usage_in=30,usage_out=20").want(t, 200)
			if e := r.journal.last(t); !strings.HasSuffix(e.Channel, "-2") || e.Status != llm.StatusFinalized {
				t.Errorf("%s: %q: %+v", x.path, body, e)
			}
		}
		for _, x := range streams() {
			body = asIs(said, true)
			p := r.post(x.path, x.with(`,"stream":true`), "x-sim", "out=20,usage_in=30,usage_out=20").want(t, 200)
			r.idle()
			e := r.journal.last(t)
			if ev := p.events(); !strings.Contains(ev[len(ev)-1], terminal(x.path)) || !strings.HasSuffix(e.Channel, "-2") || e.Usage.OutputTokens != 20 {
				t.Errorf("%s: %q: %+v\n%s", x.path, body, e, p.body)
			}
		}
	}
}

// Answers that are unusual and real reach the client as they are.
func TestUnusualAnswersPass(t *testing.T) {
	var body string
	r := sameAnswers(t, &body)
	for path, bodies := range map[string][]string{
		"/v1/chat/completions": {
			`{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":0},"prompt_filter_results":[{}]}`,
			`{"choices":[{"message":{"content":null,"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}}]}`,
			`{"choices":[{"message":{"content":null,"refusal":"no"}}],"error":null}`, `{"choices":[{"message":{"content":""}}],"moderation":{"flagged":true}}`,
			"\xef\xbb\xbf{\"choices\":[{\"message\":{\"content\":\"hi\"}}]}\n",
			"data: {\"choices\":[],\"prompt_filter_results\":[{}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\ndata: [DONE]\n\n",
			"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\ndata: [DONE]\n\n",
		},
		"/v1/completions":           {`{"choices":[{"text":""}]}`},
		"/v1/embeddings":            {`{"data":[{"embedding":"AACAPw=="}]}`, `{"embeddings":[[0.5]],"model":"m"}`},
		"/v1/responses":             {`{"object":"response","status":"incomplete","error":null,"output":[]}`, "data: {\"type\":\"ping\"}\n\ndata: {\"type\":\"response.completed\",\"response\":{}}\n\n"},
		"/v1/messages":              {`{"type":"message","content":[],"stop_reason":"refusal"}`, "data: {\"type\":\"ping\"}\n\ndata: {\"type\":\"message_stop\"}\n\n"},
		"/v1/messages/count_tokens": {`{"input_tokens":0}`},
	} {
		for _, body = range bodies {
			ask := ""
			for _, x := range everyRoute {
				if x.path == path {
					ask = x.body
					if strings.HasPrefix(body, "data:") {
						ask = x.with(`,"stream":true`)
					}
				}
			}
			if p := r.post(path, ask).want(t, 200); string(p.body) != body {
				t.Errorf("%s: %q became %q", path, body, p.body)
			}
			r.idle()
		}
	}
}
