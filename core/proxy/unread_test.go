package proxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

// No usage and a text in a place nobody expects: the answer is not free, streamed or not, in either dialect.
func TestNoTextIsFree(t *testing.T) {
	long := strings.Repeat("word ", 20)
	openAI, anthropic := everyRoute[0], everyRoute[4]
	for _, x := range []struct {
		name   string
		route  route
		event  string // a stream's
		body   string // a whole answer
		lo, hi llm.Tokens
	}{
		{"nested parts", openAI, `{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"` + long + `"}]}]}}]}`,
			`{"choices":[{"message":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"` + long + `"}]}]}}]}`, 18, 28},
		{"unknown member", openAI, `{"choices":[{"delta":{"monologue":"` + long + `"}}]}`, `{"choices":[{"message":{"monologue":"` + long + `"}}]}`, 26, 26},
		{"escaped name", openAI, `{"choices":[{"delta":{"cont\u0065nt":"` + long + `"}}]}`, `{"choices":[{"message":{"cont\u0065nt":"` + long + `"}}]}`, 26, 26},
		{"not JSON", openAI, `{"choices":[]}` + "\n\ndata: " + long, `{"choices":"` + long + `"}`, 25, 26},
		{"nested thinking", anthropic, `{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":[{"type":"text","text":"` + long + `"}]}}`,
			`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"` + long + `"}]}]}`, 18, 28},
		{"unknown event", anthropic, `{"type":"monologue","said":"` + long + `"}`, `{"content":[{"type":"monologue","said":"` + long + `"}]}`, 26, 26},
	} {
		t.Run(x.name, func(t *testing.T) {
			end := "[DONE]"
			if x.route.path == anthropic.path {
				end = `{"type":"message_stop"}`
			}
			r := newRig(t, saying(t, false, lines(x.event), lines(end)))
			r.post(x.route.path, streamed(x.route)).want(t, 200)
			r.idle()
			if e := r.journal.last(t); e.Usage.OutputTokens < x.lo || e.Usage.OutputTokens > x.hi || !e.Estimated {
				t.Errorf("streamed: %+v", e.Usage)
			}
			r = newRig(t, answering(t, x.body))
			r.post(x.route.path, x.route.body).want(t, 200)
			if e := r.journal.last(t); e.Usage.OutputTokens < x.lo || e.Usage.OutputTokens > x.hi || !e.Estimated {
				t.Errorf("whole: %+v", e.Usage)
			}
		})
	}
}

// What is not understood is cut where the hold ends, as text is.
func TestUnreadIsCut(t *testing.T) {
	odd := strings.Repeat(lines(`{"said":"`+strings.Repeat("x", 38)+`"}`), 100)
	r := newRig(t, saying(t, false, lines(`{"choices":[]}`), odd, lines("[DONE]")), func(s *setup) { s.balance = price.Hold(60, 100) })
	p := r.post("/v1/chat/completions", streamed(everyRoute[0])).want(t, 200)
	r.idle()
	left, _ := r.limits.Balance(idUser)
	if ev := p.events(); len(ev) > 20 || !strings.Contains(ev[len(ev)-1], broke) || left < 0 {
		t.Errorf("%d events, %d left, the last is %s", len(ev), left, ev[len(ev)-1])
	}
}

// answering is an upstream that gives everybody the same whole answer.
func answering(t *testing.T, body string) option {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return func(o *setup) {
		o.catalog = func(c *catalog) { c.channels[0].BaseURL, c.channels[1].BaseURL = s.URL, s.URL }
	}
}
