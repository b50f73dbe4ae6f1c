package proxy_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// late is an upstream that sends said, and end only when it is told that the client has left.
type late struct {
	said, end string
	left      chan struct{}
	cut       chan time.Time // when the gateway hung up on an upstream without an end
}

func newLate(t *testing.T) (*late, *rig) {
	l := &late{left: make(chan struct{}, 1), cut: make(chan time.Time, 1)}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, l.said)
		_ = http.NewResponseController(w).Flush()
		<-l.left
		if l.end == "" {
			<-q.Context().Done()
			l.cut <- time.Now()
			return
		}
		time.Sleep(100 * time.Millisecond) // the gateway knows of it by then
		for _, p := range strings.SplitAfter(l.end, "\n\n") {
			_, _ = io.WriteString(w, p)
			_ = http.NewResponseController(w).Flush()
		}
	}))
	t.Cleanup(s.Close)
	return l, newRig(t, func(o *setup) {
		o.catalog = func(c *catalog) { c.channels[0].BaseURL, c.channels[1].BaseURL = s.URL, s.URL }
	})
}

// leave reads a stream up to a word and hangs up.
func (l *late) leave(r *rig, x route, word string) {
	r.t.Helper()
	a := r.chunks(x.path, x.with(`,"stream":true`))
	for {
		got, err := a.next()
		must(r.t, err)
		if bytes.Contains(got, []byte(word)) {
			break
		}
	}
	must(r.t, a.Close())
	l.left <- struct{}{}
	r.idle()
}

// Who leaves behind the end of an answer pays what the provider reports a moment later: what a model has thought in secret is
// in that report alone.
func TestLeavingBehindTheEnd(t *testing.T) {
	l, r := newLate(t)
	chat, responses, messages := everyRoute[0], everyRoute[3], everyRoute[4]
	usage := `"usage":{"input_tokens":10,"output_tokens":5020}`
	for _, x := range []struct {
		name            string
		route           route
		said, word, end string
	}{
		{"chat", chat, lines(`{"choices":[{"delta":{"content":"hi"}}]}`, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`), "finish_reason",
			lines(`{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5020}}`, "[DONE]")},
		{"responses, the text", responses, lines(`{"type":"response.output_text.delta","delta":"hi"}`, `{"type":"response.output_text.done","text":"hi"}`), "text.done",
			lines(`{"type":"response.output_item.done","item":{"type":"message"}}`, `{"type":"response.completed","response":{`+usage+`}}`)},
		{"responses, the item", responses, lines(`{"type":"response.output_text.delta","delta":"hi"}`, `{"type":"response.output_item.done","item":{"type":"message"}}`), "item.done",
			lines(`{"type":"response.completed","response":{` + usage + `}}`)},
		{"messages", messages, lines(`{"type":"content_block_delta","delta":{"type":"text_delta","text":"hi"}}`, `{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`), "end_turn",
			lines(`{"type":"message_delta","delta":{},`+usage+`}`, `{"type":"message_stop"}`)},
	} {
		l.said, l.end = x.said, x.end
		l.leave(r, x.route, x.word)
		if e := r.journal.last(t); e.Usage != (llm.Usage{InputTokens: 10, OutputTokens: 5020}) || e.Estimated || e.Status != llm.StatusFinalized {
			t.Errorf("%s: %+v", x.name, e)
		}
	}
}

// The wait for that report has an end, and there is none for an answer that is not complete.
func TestLeavingHasABound(t *testing.T) {
	l, r := newLate(t)
	two := everyRoute[0]
	two.body = strings.TrimSuffix(two.body, "}") + `,"n":2}`
	for _, x := range []struct {
		name, said, word string
		route            route
		least, most      time.Duration
	}{
		{"finished", lines(`{"choices":[{"delta":{"content":"hi"}}]}`, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`), "finish_reason", everyRoute[0], time.Second, 2*time.Second + patience*time.Second},
		{"not finished", lines(`{"choices":[{"delta":{"content":"hi"},"finish_reason":null}]}`), "hi", everyRoute[0], 0, patience * time.Second},
		{"one of two choices", lines(`{"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}`), "hi", two, 0, patience * time.Second},
		{"another item", lines(`{"type":"response.output_item.done","item":{"type":"message","content":[{"text":"hi"}]}}`, `{"type":"response.output_item.added","item":{"type":"message"}}`), "added", everyRoute[3], 0, patience * time.Second},
		{"thought", lines(`{"type":"response.reasoning_summary_text.done","text":"hi"}`), "hi", everyRoute[3], 0, patience * time.Second},
	} {
		l.said, l.end = x.said, ""
		start := time.Now()
		l.leave(r, x.route, x.word)
		if took := (<-l.cut).Sub(start); took < x.least || took > x.most {
			t.Errorf("%s: cut after %v", x.name, took)
		}
		if e := r.journal.last(t); e.Usage.OutputTokens != 1 || !e.Estimated || e.Status != llm.StatusPartial {
			t.Errorf("%s: %+v", x.name, e)
		}
	}
}
