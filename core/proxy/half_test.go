package proxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

// answers is an upstream that gives everybody the same body, as an event stream where it begins with data:.
func answers(t *testing.T, body *string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", "application/json")
		if strings.HasPrefix(*body, "data:") {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		_, _ = io.WriteString(w, *body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// sameAnswers is a rig whose channels all answer with *body.
func sameAnswers(t *testing.T, body *string, more ...option) *rig {
	url := answers(t, body)
	return newRig(t, append(more, func(o *setup) {
		o.catalog = func(c *catalog) { c.channels[0].BaseURL, c.channels[1].BaseURL = url, url }
	})...)
}

// A report of which one half is missing or cannot be read says nothing of that half: it is counted, and the other believed.
func TestHalfAReport(t *testing.T) {
	var body string
	r := sameAnswers(t, &body)
	said := strings.Repeat(" hello", 40) // within the cap
	for _, x := range []struct{ path, buffered, stream, in, out string }{
		{"/v1/chat/completions", `{"choices":[{"message":{"content":"` + said + `"}}],"usage":U}`,
			"data: {\"choices\":[{\"delta\":{\"content\":\"" + said + "\"}}]}\n\ndata: {\"choices\":[],\"usage\":U}\n\ndata: [DONE]\n\n", `"prompt_tokens":`, `"completion_tokens":`},
		{"/v1/responses", `{"output":[{"type":"message","content":[{"type":"output_text","text":"` + said + `"}]}],"usage":U}`,
			"data: {\"type\":\"response.output_text.delta\",\"delta\":\"" + said + "\"}\n\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":U}}\n\n", `"input_tokens":`, `"output_tokens":`},
		{"/v1/messages", `{"content":[{"type":"text","text":"` + said + `"}],"usage":U}`,
			"data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"" + said + "\"}}\n\ndata: {\"type\":\"message_delta\",\"usage\":U}\n\ndata: {\"type\":\"message_stop\"}\n\n", `"input_tokens":`, `"output_tokens":`},
	} {
		var to route
		for _, e := range everyRoute {
			if e.path == x.path {
				to = e
			}
		}
		for _, bad := range []string{"", "null", "-1", `"400"`, "{}", "0"} {
			badIn, badOut := `{`+x.in+bad+`,`+x.out+`777}`, `{`+x.in+`777,`+x.out+bad+`}`
			if bad == "" {
				badIn, badOut = `{`+x.out+`777}`, `{`+x.in+`777}`
			}
			for _, stream := range []bool{false, true} {
				form, ask := x.buffered, to.body
				if stream {
					form, ask = x.stream, to.with(`,"stream":true`)
				}
				body = strings.ReplaceAll(form, "U", badOut)
				r.post(x.path, ask).want(t, 200)
				if e := r.journal.last(t); e.Usage.InputTokens != 777 || e.Usage.OutputTokens < 38 || e.Usage.OutputTokens > 50 || !e.Estimated || e.Status != llm.StatusFinalized {
					t.Errorf("%s, output %q, stream %v: %+v estimated %v", x.path, bad, stream, e.Usage, e.Estimated)
				}
				body = strings.ReplaceAll(form, "U", badIn)
				r.post(x.path, ask).want(t, 200)
				if e := r.journal.last(t); e.Usage.InputTokens < 1 || e.Usage.InputTokens > 100 || e.Usage.OutputTokens != 777 || !e.Estimated || e.Status != llm.StatusFinalized {
					t.Errorf("%s, input %q, stream %v: %+v estimated %v", x.path, bad, stream, e.Usage, e.Estimated)
				}
			}
		}
	}
}

// Embeddings have no output to report, and an answer of nothing may have had none.
func TestReportsWithoutOutput(t *testing.T) {
	var body string
	r := sameAnswers(t, &body)
	for _, x := range everyRoute {
		switch x.path {
		case "/v1/embeddings":
			body = `{"data":[{"embedding":[1]}],"usage":{"prompt_tokens":7}}`
		case "/v1/chat/completions":
			body = `{"choices":[{"message":{"content":""}}],"usage":{"prompt_tokens":7,"completion_tokens":0}}`
		default:
			continue
		}
		r.post(x.path, x.body).want(t, 200)
		if e := r.journal.last(t); e.Usage != (llm.Usage{InputTokens: 7}) || e.Estimated {
			t.Errorf("%s: %+v", x.path, e)
		}
	}
}
