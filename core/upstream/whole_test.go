package upstream

import (
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// A buffered answer that is an error with the status of a success is what the attempt brought, as where a stream begins with
// one: another channel is tried and this one failed, or the client gets a status.
func TestErrorsInBuffered200s(t *testing.T) {
	for _, tt := range []struct {
		name   string
		ep     llm.Endpoint
		body   string
		status int    // 0: another channel is tried
		state  string // of the channel
		last   int    // what its status is taken for
	}{
		{"chat", llm.Chat, `{"error":{"message":"boom","type":"server_error","param":null,"code":null}}`, 0, "up", 500},
		{"chat, rate limit", llm.Chat, `{"error":{"message":"slow down","type":"tokens","code":"rate_limit_exceeded"}}`, 0, "cooling", 429},
		{"chat, overloaded", llm.Chat, ` {"error" : {"message":"x","code":529}}`, 0, "cooling", 529},
		{"chat, text", llm.Chat, `{"error":"x"}`, 0, "up", 500},
		{"chat, credential", llm.Chat, `{"error":{"message":"x","type":"invalid_request_error","code":"invalid_api_key"}}`, 0, "cooling", 401},
		{"chat, the request", llm.Chat, `{"error":{"message":"too long","type":"invalid_request_error","code":"context_length_exceeded"}}`, 400, "up", 400},
		{"chat, an answer", llm.Chat, `{"error":{"code":429},"choices":[{"message":{"content":"a"}}]}`, 200, "up", 200},
		{"chat, no error", llm.Chat, `{"error":null,"choices":[]}`, 200, "up", 200},
		{"embeddings", llm.Embeddings, `{"error":{"message":"boom","type":"server_error"}}`, 0, "up", 500},
		{"responses", llm.Responses, `{"error":{"code":"server_is_overloaded","message":"x"}}`, 0, "cooling", 529},
		{"messages, overloaded", llm.Messages, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"r"}`, 0, "cooling", 529},
		{"messages, the request", llm.Messages, `{"type":"error","error":{"type":"invalid_request_error","message":"no"}}`, 400, "up", 400},
	} {
		t.Run(tt.name, func(t *testing.T) {
			said := newStub(t, func(x *exchange) bool { return x.answer(200, "", tt.body) })
			good := newStub(t, fine)
			r := newRig(t, Options{Adapt: AdaptAlways}, channelsFor(tt.ep, said.url, good.url)...)
			ask := map[llm.Endpoint]string{llm.Chat: plainBody, llm.Embeddings: `{"model":"m","input":"hi"}`, llm.Responses: `{"model":"m","input":"hi"}`,
				llm.Messages: `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`}[tt.ep]
			hold := new(watcher)
			resp, err := r.client.Do(t.Context(), r.cat, newRequest(t, r.cat, tt.ep, ask), hold)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Close()
			body, err := resp.Body()
			want, status, told := tt.body, tt.status, "attempt a, sent a"
			if tt.status == 0 {
				want, status, told = `{"model":"m"}`, 200, "attempt a, sent a, refused a, attempt b, sent b"
			}
			if string(body) != want || err != nil || resp.Status != status || hold.String() != told {
				t.Errorf("%d %s, %v; %s", resp.Status, body, err, hold)
			}
			h := r.client.Health(r.cat)[0]
			if h.State != tt.state || h.LastStatus != tt.last || (h.Limit < 20) != (tt.last >= 429 && tt.state == "cooling" && tt.last != 401) {
				t.Errorf("%+v", h)
			}
			if _, idle := r.conns("a"); idle != 1 {
				t.Error("its connection is not kept")
			}
		})
	}
}

// A buffered answer that does not come to its end is no answer: the next channel is asked. One that is too large for us would
// be too large from every channel.
func TestAnswersThatBreakOffAreFailures(t *testing.T) {
	for raw, fails := range map[string]bool{
		"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello":                             true,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel":                 true,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n":                true,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n": true,
		"HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n":                               false,
	} {
		bad := newStub(t, func(x *exchange) bool {
			x.send(raw)
			if !fails {
				x.send(string(make([]byte, 3000)))
			}
			return false
		})
		r := newRig(t, Options{ResponseBytes: 2048}, channelsFor(llm.Chat, bad.url, newStub(t, fine).url)...)
		_, body, err := r.call()
		if fails && (err != nil || body != `{"model":"m"}`) || !fails && err == nil {
			t.Errorf("%q: %s, %v", raw, body, err)
		}
		if h := r.client.Health(r.cat)[0]; (h.Failures == 1) != fails {
			t.Errorf("%q: %+v", raw, h)
		}
		if open, idle := r.conns("a"); open != idle {
			t.Errorf("%q: the connection is still open", raw)
		}
	}
}

// A buffered answer may take so long in all, however steadily it comes; so may that of a refusal.
func TestAnAnswerThatTrickles(t *testing.T) {
	for _, status := range []string{"200", "400"} {
		trickles := newStub(t, func(x *exchange) bool {
			x.send("HTTP/1.1 " + status + " X\r\nTransfer-Encoding: chunked\r\n\r\n")
			for end := time.Now().Add(60 * time.Second); time.Now().Before(end) && x.chunk(" "); {
				time.Sleep(5 * time.Millisecond)
			}
			return false
		})
		r := newRig(t, Options{IdleTimeoutMS: 30_000}, openai("a", trickles.url))
		if r.client.whole != 150*time.Second {
			t.Errorf("%v in all", r.client.whole)
		}
		r.client.whole = 300 * time.Millisecond
		_, _, err := r.call()
		contains(t, asError(t, err, llm.KindTimeout).Message, "no channel of model")
		if open, _ := r.conns("a"); open != 0 {
			t.Error("the connection is still open")
		}
	}
}
