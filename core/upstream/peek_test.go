package upstream

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-gateway/weir/core/llm"
)

// peeked makes a streamed call of an endpoint that looks at the first event.
func (r *rig) peeked(ctx context.Context, ep llm.Endpoint, hold Hold, peek time.Duration) (*Response, error) {
	body := streamBody
	switch ep {
	case llm.Responses:
		body = `{"model":"m","stream":true,"input":"hi"}`
	case llm.Messages:
		body = strings.Replace(streamBody, `"stream"`, `"max_tokens":9,"stream"`, 1)
	}
	req := newRequest(r.t, r.cat, ep, body)
	req.Peek = peek
	return r.client.Do(ctx, r.cat, req, hold)
}

// channelsFor are two channels that speak an endpoint's dialect, the first preferred.
func channelsFor(ep llm.Endpoint, first, second string) []Channel {
	a, b := openai("a", first), openai("b", second)
	a.Priority = 1
	if ep.Dialect() == llm.Anthropic {
		a.Provider, b.Provider = "anthropic", "anthropic"
	}
	return []Channel{a, b}
}

// An error in the first event is what the attempt brought: another channel is tried, or the client gets a status.
func TestPeekErrors(t *testing.T) {
	for _, tt := range []struct {
		name   string
		ep     llm.Endpoint
		stream string
		status int    // 0: another channel is tried
		body   string // of the answer with the status
	}{
		{"chat", llm.Chat, sse(`{"error":{"message":"boom","type":"server_error","param":null,"code":null}}`), 0, ""},
		{"chat, rate limit", llm.Chat, sse(`{"error":{"message":"slow down","type":"tokens","code":"rate_limit_exceeded"}}`, "[DONE]"), 0, ""},
		{"chat, unknown", llm.Chat, sse(`{"error":{"message":"x","type":"y"}}`), 0, ""},
		{"chat, text", llm.Chat, sse(`{"error":"x"}`), 0, ""},
		{"chat, credential", llm.Chat, sse(`{"error":{"message":"x","type":"invalid_request_error","code":"invalid_api_key"}}`), 0, ""},
		{"chat, number", llm.Chat, sse(`{"error":{"message":"x","code":503}}`), 0, ""},
		{"comments first", llm.Chat, ": one\n\n: two\n\n" + sse(`{"error":{"type":"server_error"}}`), 0, ""},
		{"text behind it", llm.Chat, sse(`{"error":{"type":"server_error"}}`, `{"choices":[{"delta":{"content":"a"}}]}`), 0, ""},
		{"chat, the request", llm.Chat, sse(`{"error":{"message":"too long","type":"invalid_request_error","code":"context_length_exceeded"}}`), 400,
			`{"error":{"message":"too long","type":"invalid_request_error","code":"context_length_exceeded"}}`},
		{"chat, the request by number", llm.Chat, sse(`{"error":{"message":"x","type":"BadRequestError","code":422}}`), 422, `{"error":{"message":"x","type":"BadRequestError","code":422}}`},
		{"responses", llm.Responses, "event: error\n" + sse(`{"type":"error","code":"server_error","message":"boom","param":null,"sequence_number":0}`), 0, ""},
		{"responses, failed", llm.Responses, sse(`{"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded","message":"x"}}}`), 0, ""},
		{"responses, the request", llm.Responses, sse(`{"type":"error","code":"invalid_prompt","message":"no","param":null}`), 400, `{"error":{"type":"error","code":"invalid_prompt","message":"no","param":null}}`},
		{"messages, overloaded", llm.Messages, "event: error\n" + sse(`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), 0, ""},
		{"messages, the request", llm.Messages, "event: error\n" + sse(`{"type":"error","error":{"type":"invalid_request_error","message":"no"}}`), 400, `{"type":"error","error":{"type":"invalid_request_error","message":"no"}}`},
		{"nothing", llm.Chat, "", 0, ""},
		{"comments alone", llm.Chat, ": one\n\n", 0, ""},
		{"a comment without an end", llm.Chat, ": one\n\n: two", 0, ""},
		{"an error without an end", llm.Chat, ": one\n\ndata: {\"error\":{\"type\":\"server_error\"}}", 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bad := newStub(t, func(x *exchange) bool { return x.stream(tt.stream) })
			first := chunkEvent(1)
			if tt.ep != llm.Chat {
				first = sse(`{"type":"ping"}`)
			}
			good := newStub(t, func(x *exchange) bool { return x.stream(": hello\n\n", first, "data: [DONE]\n\n") })
			if tt.stream == "" {
				bad = newStub(t, func(x *exchange) bool { return x.stream() })
			}
			r := newRig(t, Options{}, channelsFor(tt.ep, bad.url, good.url)...)
			w := new(watcher)
			resp, err := r.peeked(t.Context(), tt.ep, w, 20*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Close()
			if tt.status != 0 {
				body, err := resp.Body()
				if err != nil || resp.Status != tt.status || resp.Stream || resp.ContentType != "application/json" || string(body) != tt.body || good.requests.Load() != 0 {
					t.Errorf("%d %s %s, %v", resp.Status, resp.ContentType, body, err)
				}
				return
			}
			got, err := readAll(resp)
			if d := cmp.Diff([]string{": hello\n\n", first, "data: [DONE]\n\n"}, got); d != "" || err != nil || resp.Channel.Name != "b" {
				t.Error(d, err, resp.Channel.Name)
			}
			if w.String() != "attempt a, sent a, refused a, attempt b, sent b" {
				t.Error(w)
			}
		})
	}
}

// Where every channel begins with an error the call fails as it does when they all say so by their status.
func TestPeekEveryChannelFails(t *testing.T) {
	for kind, event := range map[llm.Kind]string{llm.KindUpstream: `{"error":{"type":"server_error"}}`, llm.KindRateLimited: `{"error":{"code":"rate_limit_exceeded"}}`} {
		s := newStub(t, func(x *exchange) bool { return x.stream(sse(event)) })
		r := newRig(t, Options{}, channelsFor(llm.Chat, s.url, s.url)...)
		_, err := r.peeked(t.Context(), llm.Chat, new(watcher), 20*time.Second)
		asError(t, err, kind)
		if n := s.requests.Load(); n != 2 {
			t.Errorf("%d attempts at two channels", n)
		}
	}
}

// A stream that breaks off before its first event has not begun, and one that breaks off later has.
func TestPeekABreak(t *testing.T) {
	for first, failsOver := range map[string]bool{"": true, ": hm\n\n": true, "data: {\"choices\"": true, chunkEvent(0): false} {
		bad := newStub(t, func(x *exchange) bool {
			x.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
			if first != "" {
				x.chunk(first)
			}
			return false
		})
		good := newStub(t, func(x *exchange) bool { return x.stream(chunkEvent(1)) })
		r := newRig(t, Options{}, channelsFor(llm.Chat, bad.url, good.url)...)
		resp, err := r.peeked(t.Context(), llm.Chat, new(watcher), 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readAll(resp)
		if want := map[bool]string{true: chunkEvent(1), false: chunkEvent(0)}[failsOver]; len(got) != 1 || got[0] != want || (err == nil) != failsOver {
			t.Errorf("after %q: %q, %v", first, got, err)
		}
		resp.Close()
	}
}

// Nothing is lost by looking: not a byte of a stream in any pieces, not the connection of one that is over at once. An error
// behind the first event stays one of the stream, and so does one that nobody wants to see.
func TestPeekLeavesTheStreamAsItIs(t *testing.T) {
	failing := sse(`{"error":{"type":"server_error"}}`)
	for _, tt := range []struct {
		name  string
		parts []string
		peek  time.Duration
	}{
		{"at once", []string{": hi\n\n" + chunkEvent(1) + chunkEvent(2) + "data: [DONE]\n\n"}, 20 * time.Second},
		{"in pieces", strings.Split(": hi\n\n"+chunkEvent(1)+"data: [DONE]\n\n", ""), 20 * time.Second},
		{"a word", []string{sse(`{"choices":[{"delta":{"content":"\"error\""}}]}`, `{"x":"error"}`)}, 20 * time.Second},
		{"an error later", []string{chunkEvent(1) + failing}, 20 * time.Second},
		{"not looked at", []string{failing}, 0},
	} {
		s := newStub(t, func(x *exchange) bool { return x.stream(tt.parts...) })
		r := newRig(t, Options{}, openai("a", s.url))
		for range 3 {
			resp, err := r.peeked(t.Context(), llm.Chat, new(watcher), tt.peek)
			if err != nil {
				t.Fatal(tt.name, err)
			}
			got, err := readAll(resp)
			if strings.Join(got, "") != strings.Join(tt.parts, "") || err != nil {
				t.Errorf("%s: %q, %v", tt.name, got, err)
			}
			resp.Close()
		}
		if n := s.accepted.Load(); n != 1 {
			t.Errorf("%s: %d connections for 3 streams", tt.name, n)
		}
	}
}

// Comments before the first event are looked at once each: however many come, in however many reads, they cost no more than their
// bytes, some 50 ms. Looking at them all again after each read takes seconds.
func TestPeekOfManyComments(t *testing.T) {
	look := func(size int) time.Duration {
		comments := strings.Repeat(": cccccccccc\n\n", (size-100)/14)
		s := newStub(t, func(x *exchange) bool { return x.stream(comments, chunkEvent(1)) })
		r := newRig(t, Options{}, openai("a", s.url))
		began := time.Now()
		resp, err := r.peeked(t.Context(), llm.Chat, new(watcher), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Close()
		took := time.Since(began)
		raw, err := resp.Next()
		if string(raw) != comments+chunkEvent(1) || err != nil {
			t.Errorf("%d bytes of %d, %v", len(raw), len(comments)+len(chunkEvent(1)), err)
		}
		return took
	}
	// Four times as many take sixteen times as long where each event is looked for from the beginning: seconds.
	if few, many := look(1<<20), look(4<<20); many > time.Second && many > 10*few {
		t.Errorf("the first event behind 1 MiB of comments took %v, behind 4 MiB %v", few, many)
	}
}

// A silent stream is given out when it was waited for long enough, and goes on; a client that leaves is not kept.
func TestPeekOfASilentStream(t *testing.T) {
	speak := make(chan struct{})
	s := newStub(t, func(x *exchange) bool {
		x.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		x.chunk(": thinking\n\n")
		<-speak
		return x.chunk(chunkEvent(1)) && x.send("0\r\n\r\n")
	})
	r := newRig(t, Options{}, openai("a", s.url))
	resp, err := r.peeked(t.Context(), llm.Chat, new(watcher), 30*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	close(speak)
	got, err := readAll(resp)
	if d := cmp.Diff([]string{": thinking\n\n", chunkEvent(1)}, got); d != "" || err != nil {
		t.Error(d, err)
	}
	resp.Close()

	hush := newStub(t, func(x *exchange) bool {
		x.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		return !x.gone(20 * time.Second)
	})
	r = newRig(t, Options{}, openai("a", hush.url))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(30*time.Millisecond, cancel)
	if _, err := r.peeked(ctx, llm.Chat, new(watcher), 20*time.Second); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if h := r.client.Health(r.cat); h[0].Failures != 0 {
		t.Errorf("%+v", h[0])
	}
}
