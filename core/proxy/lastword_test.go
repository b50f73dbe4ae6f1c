package proxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

// saying is an upstream that answers everything with the same events. open: it does not end the answer, the client must.
func saying(t *testing.T, open bool, packets ...string) option {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, p := range packets {
			_, _ = io.WriteString(w, p)
			_ = http.NewResponseController(w).Flush()
		}
		if open {
			<-q.Context().Done()
		}
	}))
	t.Cleanup(s.Close)
	return func(o *setup) {
		o.catalog = func(c *catalog) { c.channels[0].BaseURL, c.channels[1].BaseURL = s.URL, s.URL }
	}
}

func lines(events ...string) string { return "data: " + strings.Join(events, "\n\ndata: ") + "\n\n" }

const word = `{"choices":[{"index":1,"delta":{"content":" word"}}]}`

// Usage that text has come after is not what the answer costs: who leaves pays for what was relayed, and who stays, too.
func TestEarlyUsageIsNotTheLastWord(t *testing.T) {
	openAI, anthropic := everyRoute[0], everyRoute[4]
	spoken := strings.Repeat(lines(word), 300)
	deltas := strings.Repeat(lines(`{"type":"content_block_delta","delta":{"type":"text_delta","text":" word"}}`), 20)
	start := lines(`{"type":"message_start","message":{"usage":{"input_tokens":5,"output_tokens":1}}}`)
	early := lines(`{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":0}}`)
	for _, x := range []struct {
		name   string
		route  route
		said   string
		end    string
		status llm.Status
		least  llm.Tokens
	}{
		{"usage before the text", openAI, early + spoken, "", llm.StatusPartial, 300},
		{"usage before the text, to its end", openAI, early + spoken, lines("[DONE]"), llm.StatusFinalized, 300},
		{"usage of the first choice", openAI, lines(`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":1}}`) + spoken, "", llm.StatusPartial, 300},
		{"the start's placeholder", anthropic, start + deltas, lines(`{"type":"message_stop"}`), llm.StatusFinalized, 20},
		{"the start's placeholder, left", anthropic, start + deltas, "", llm.StatusPartial, 20},
	} {
		t.Run(x.name, func(t *testing.T) {
			body := strings.Replace(x.route.body, ":50", ":600", 1)
			body = strings.TrimSuffix(body, "}") + `,"stream":true}`
			for _, packets := range [][]string{{x.said + x.end}, strings.SplitAfter(x.said+x.end, "\n\n")} {
				r := newRig(t, saying(t, x.end == "", packets...))
				if x.end == "" {
					r.leave(r.request(x.route.path, body), strings.Count(x.said, "\n\n")-2, nil)
				} else {
					r.post(x.route.path, body).want(t, 200)
				}
				r.idle()
				if e := r.journal.last(t); e.Status != x.status || e.Usage.OutputTokens < x.least || e.Usage.OutputTokens > x.least+10 || !e.Estimated {
					t.Errorf("%d packets: %+v", len(packets), e)
				}
			}
		})
	}
}

// What follows the terminal event is not charged, in whatever packet it comes.
func TestUsageBehindTheEnd(t *testing.T) {
	late := lines(`{"choices":[],"usage":{"prompt_tokens":70,"completion_tokens":900}}`)
	for _, packets := range [][]string{{lines(word, "[DONE]") + late}, {lines(word, "[DONE]"), late}} {
		r := newRig(t, saying(t, false, packets...))
		r.post("/v1/chat/completions", streamed(everyRoute[0])).want(t, 200)
		r.idle()
		if e := r.journal.last(t); e.Usage.OutputTokens > 5 || !e.Estimated {
			t.Errorf("%d packets: %+v", len(packets), e)
		}
	}
}
