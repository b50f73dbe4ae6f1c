package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/weir-gateway/weir/core/llm"
)

// vacant is an address where nobody listens.
func vacant(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return "http://" + ln.Addr().String()
}

func status(code int, extra string) func(*exchange) bool {
	return func(x *exchange) bool { return x.answer(code, extra, `{"error":{"message":"no"}}`) }
}

func fine(x *exchange) bool { return x.answer(200, "", `{"model":"m"}`) }

func TestRequestOnTheWire(t *testing.T) {
	var got *http.Request
	var body string
	s := newStub(t, func(x *exchange) bool { got, body = x.req, x.body; return fine(x) })
	anthropic := Channel{Name: "b", Provider: "anthropic", BaseURL: s.url + "/x/v1", Credential: "sk-ant-1"}
	r := newRig(t, Options{}, openai("a", s.url+"/v1"), anthropic)

	req := newRequest(t, r.cat, llm.Chat, `{"model":"renamed","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
	req.Sim = []byte("latency=1")
	resp, err := r.client.Do(context.Background(), r.cat, req, new(watcher))
	if err != nil {
		t.Fatal(err)
	}
	resp.Close()
	if got.Method != "POST" || got.URL.Path != "/v1/chat/completions" || got.ContentLength != int64(len(body)) {
		t.Errorf("%s %s, length %d", got.Method, got.URL, got.ContentLength)
	}
	want := http.Header{"Authorization": {"Bearer sk-secret-a"}, "Content-Type": {"application/json"}, "Accept": {"text/event-stream"},
		"Accept-Encoding": {"identity"}, "X-Request-Id": {"req-1"}, "X-Sim": {"latency=1"}, "User-Agent": {"weir"},
		"Content-Length": {fmt.Sprint(len(body))}}
	if d := cmp.Diff(want, got.Header); d != "" {
		t.Error(d)
	}
	if body != `{"stream_options":{"include_usage":true},"model":"org/inner","stream":true,"messages":[{"role":"user","content":"hi"}]}` {
		t.Error(body)
	}

	req = newRequest(t, r.cat, llm.Messages, `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`)
	req.Beta = []byte("tools-1,tools-2")
	if resp, err = r.client.Do(context.Background(), r.cat, req, new(watcher)); err != nil {
		t.Fatal(err)
	}
	resp.Close()
	want = http.Header{"X-Api-Key": {"sk-ant-1"}, "Anthropic-Version": {"2023-06-01"}, "Anthropic-Beta": {"tools-1,tools-2"}, "Content-Type": {"application/json"},
		"Accept": {"application/json"}, "Accept-Encoding": {"identity"}, "X-Request-Id": {"req-1"}, "User-Agent": {"weir"}, "Content-Length": {fmt.Sprint(len(body))}}
	if d := cmp.Diff(want, got.Header); d != "" {
		t.Error(d)
	}
	if got.URL.Path != "/x/v1/messages" {
		t.Error(got.URL)
	}
}

func TestHeadersOfClientsCannotInject(t *testing.T) {
	s := newStub(t, fine)
	r := newRig(t, Options{}, openai("a", s.url))
	for _, set := range []func(*Request){
		func(q *Request) { q.Beta = []byte("a\r\nAuthorization: x") },
		func(q *Request) { q.Version = []byte("a\nb") },
		func(q *Request) { q.Sim = []byte("a\x00") },
	} {
		req := newRequest(t, r.cat, llm.Chat, plainBody)
		set(req)
		_, err := r.client.Do(context.Background(), r.cat, req, new(watcher))
		asError(t, err, llm.KindInvalid)
	}
	if n := s.requests.Load(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestSimHeaderStaysOnLoopback(t *testing.T) {
	req := &Request{Head: &llm.Head{Endpoint: llm.Chat}, Sim: []byte("x")}
	away := &lane{channel: Channel{Provider: "openai"}, site: site{loopback: false}}
	if head := string(away.appendHead(nil, req, 0)); strings.Contains(head, "x-sim") {
		t.Errorf("a test's wish went to a real provider: %q", head)
	}
}

func TestConnectionsAreKept(t *testing.T) {
	s := newStub(t, fine)
	r := newRig(t, Options{}, openai("a", s.url))
	for range 20 {
		if st, body, err := r.call(); st != 200 || body != `{"model":"m"}` || err != nil {
			t.Fatal(st, body, err)
		}
	}
	if n := s.accepted.Load(); n != 1 {
		t.Errorf("%d connections for 20 calls in a row", n)
	}
	if open, idle := r.conns("a"); open != 1 || idle != 1 {
		t.Errorf("%d open, %d idle", open, idle)
	}
}

func TestConnectionsThatMustNotBeKept(t *testing.T) {
	const said, ok = `{"model":1}`, "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n"
	for name, raw := range map[string]string{
		"peer closes":        ok + "Connection: keep-alive, Close\r\n\r\n" + said,
		"old peer":           "HTTP/1.0 200 OK\r\nContent-Length: 11\r\n\r\n" + said,
		"bytes behind":       ok + "\r\n" + said + "X",
		"an answer too many": ok + "\r\n" + said + ok + "\r\n" + said,
		"bytes behind none":  "HTTP/1.1 400 X\r\nContent-Length: 0\r\n\r\nX",
	} {
		s := newStub(t, func(x *exchange) bool { return x.send(raw) })
		r := newRig(t, Options{}, openai("a", s.url))
		for range 2 {
			if _, body, err := r.call(); err != nil || body != said && body != "" {
				t.Fatal(name, body, err)
			}
		}
		if n := s.accepted.Load(); n != 2 {
			t.Errorf("%s: %d connections for 2 calls", name, n)
		}
	}
}

// An upstream restart leaves dead idle connections behind: nobody may notice.
func TestDeadIdleConnectionsAreNoticed(t *testing.T) {
	s := newStub(t, fine)
	r := newRig(t, Options{Attempts: 1}, openai("a", s.url))
	for range 50 {
		if _, _, err := r.call(); err != nil {
			t.Fatal(err)
		}
		s.drop()
		time.Sleep(time.Millisecond) // for the FIN to arrive; without it the next test's case
	}
}

// The peer closes an idle connection in the very moment it is used: the request is sent once more, at the price of nothing,
// and the channel is not blamed. A new connection that dies is the channel's failure.
func TestStaleConnectionIsTriedAnew(t *testing.T) {
	var dying atomic.Bool
	s := newStub(t, func(x *exchange) bool {
		if dying.Load() || x.n%2 == 0 {
			return false // takes the second request of a connection and closes without a word
		}
		return fine(x)
	})
	r := newRig(t, Options{Attempts: 1}, openai("a", s.url))
	hold := new(watcher)
	for range 3 {
		resp, err := r.do(context.Background(), plainBody, hold)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := resp.Body(); err != nil {
			t.Fatal(err)
		}
		if !cmp.Equal(resp.Attempted, []string{"a"}) {
			t.Error(resp.Attempted)
		}
		resp.Close()
	}
	if got := hold.String(); got != "attempt a, sent a, attempt a, sent a, attempt a, sent a" {
		t.Error(got)
	}
	if h := r.client.Health(r.cat)[0]; h.State != "up" || h.Failures != 0 {
		t.Errorf("%+v", h)
	}
	dying.Store(true)
	before := s.requests.Load()
	_, _, err := r.call()
	asError(t, err, llm.KindUpstream)
	if n := s.requests.Load() - before; n != 2 {
		t.Errorf("sent %d times; once more is all", n)
	}
}

// An idle connection whose peer began to answer and then broke off is not sent again: the request may have been worked on.
func TestHalfAnAnswerIsNotAStaleConnection(t *testing.T) {
	s := newStub(t, func(x *exchange) bool {
		if x.n == 1 {
			return fine(x)
		}
		x.send("HTTP/1.1 2")
		return false
	})
	r := newRig(t, Options{Attempts: 1}, openai("a", s.url))
	_, _, _ = r.call()
	_, _, err := r.call()
	asError(t, err, llm.KindUpstream)
	if n := s.requests.Load(); n != 2 {
		t.Errorf("%d requests for two calls", n)
	}
}

// A peer that says how long it keeps a connection is not asked over it when that time is nearly over.
func TestKeepAliveIsShorterThanThePeers(t *testing.T) {
	for _, tt := range []struct {
		says  string
		after time.Duration
		conns int64
	}{
		{"timeout=5", 3 * time.Second, 1},
		{"timeout=5, max=100", 4100 * time.Millisecond, 2},
		{"timeout=1", 600 * time.Millisecond, 2},
		{"timeout=0", 0, 2},
		{"timeout=600", 40 * time.Second, 1},
		{"timeout=600", 46 * time.Second, 2},
		{"timeout=soon", 40 * time.Second, 1},
	} {
		s := newStub(t, func(x *exchange) bool { return x.answer(200, "Keep-Alive: "+tt.says+"\r\n", "{}") })
		r := newRig(t, Options{}, openai("a", s.url))
		_, _, _ = r.call()
		r.clock.advance(tt.after)
		_, _, _ = r.call()
		if n := s.accepted.Load(); n != tt.conns {
			t.Errorf("%s, after %v: %d connections, want %d", tt.says, tt.after, n, tt.conns)
		}
	}
}

// The peer gives an idle connection up while a request is still being written: it cannot have begun on it, so it is sent
// again within the same attempt.
func TestRequestCutOffInTheMiddleIsSentAgain(t *testing.T) {
	s := newStub(t, func(x *exchange) bool {
		if x.n > 1 {
			return fine(x)
		}
		fine(x)
		_, _ = x.Read(make([]byte, 1)) // of the next request
		return x.reset()
	})
	r := newRig(t, Options{Attempts: 1}, openai("a", s.url))
	if _, _, err := r.call(); err != nil {
		t.Fatal(err)
	}
	hold := new(watcher)
	long := strings.Replace(plainBody, "hi", strings.Repeat("x", 16<<20), 1)
	resp, err := r.do(context.Background(), long, hold)
	if err != nil {
		t.Fatal(err)
	}
	resp.Close()
	if got := hold.String(); got != "attempt a, sent a" {
		t.Error(got)
	}
	if s.requests.Load() != 2 || s.accepted.Load() != 2 {
		t.Errorf("%d requests on %d connections", s.requests.Load(), s.accepted.Load())
	}
	if open, _ := r.conns("a"); open > 1 {
		t.Errorf("%d connections open", open)
	}
}

func TestIdleConnectionsExpire(t *testing.T) {
	s := newStub(t, fine)
	r := newRig(t, Options{IdleConnectionMS: 1000}, openai("a", s.url))
	_, _, _ = r.call()
	r.clock.advance(2 * time.Second)
	_, _, _ = r.call()
	if n := s.accepted.Load(); n != 2 {
		t.Errorf("%d connections; the first was too old to be used", n)
	}
	r.clock.advance(2 * time.Second)
	eventually(t, "the sweep closes what nobody uses", func() bool { open, _ := r.conns("a"); return open == 0 })
}

func TestIdleConnectionsAreBounded(t *testing.T) {
	var gate sync.WaitGroup
	gate.Add(8)
	s := newStub(t, func(x *exchange) bool { gate.Done(); gate.Wait(); return fine(x) })
	r := newRig(t, Options{IdleConnections: 3}, openai("a", s.url))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, _, err := r.call(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if open, idle := r.conns("a"); open != 3 || idle != 3 {
		t.Errorf("%d open, %d idle; 3 may be kept", open, idle)
	}
}

func TestConnectionLimit(t *testing.T) {
	release := make(chan bool)
	s := newStub(t, func(x *exchange) bool { <-release; return fine(x) })
	r := newRig(t, Options{Connections: 2}, openai("a", s.url))
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if _, _, err := r.call(); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "both are on their way", func() bool { return s.requests.Load() == 2 })
	_, _, err := r.call()
	e := asError(t, err, llm.KindRateLimited)
	contains(t, e.Err.Error(), `channel "a": all 2 connections are in use`)
	if h := r.client.Health(r.cat)[0]; h.State != "up" || h.Failures != 0 {
		t.Errorf("our limit was held against the channel: %+v", h)
	}
	close(release)
	wg.Wait()
	if _, _, err := r.call(); err != nil {
		t.Error(err)
	}
}

// Each class of failure moves on to the next channel; what the client sees is the answer of the one that works.
func TestFailover(t *testing.T) {
	for name, bad := range map[string]func(*exchange) bool{
		"500":          status(500, ""),
		"529":          status(529, ""),
		"429":          status(429, ""),
		"401":          status(401, ""),
		"402":          status(402, ""),
		"403":          status(403, ""),
		"408":          status(408, ""),
		"reset":        (*exchange).reset,
		"close":        func(*exchange) bool { return false },
		"half a head":  func(x *exchange) bool { x.send("HTTP/1.1 200 OK\r\nCont"); return false },
		"not HTTP":     func(x *exchange) bool { return x.send("hello\r\n\r\n") },
		"never":        func(x *exchange) bool { return !x.gone(5 * time.Second) },
		"interim only": func(x *exchange) bool { x.send("HTTP/1.1 102 Processing\r\n\r\n"); return !x.gone(5 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			first, second := newStub(t, bad), newStub(t, fine)
			a, b := openai("a", first.url), openai("b", second.url)
			a.Priority = 1
			o := Options{}
			if name == "never" || name == "interim only" {
				o.HeaderTimeoutMS = 500
			}
			r := newRig(t, o, a, b)
			hold := new(watcher)
			resp, err := r.do(context.Background(), plainBody, hold)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Close()
			if body, err := resp.Body(); string(body) != `{"model":"m"}` || err != nil {
				t.Error(string(body), err)
			}
			if got := hold.String(); got != "attempt a, sent a, refused a, attempt b, sent b" {
				t.Error(got)
			}
			if resp.Channel != r.cat.Channels()[1] || !cmp.Equal(resp.Attempted, []string{"a", "b"}) {
				t.Error(resp.Channel, resp.Attempted)
			}
			if open, _ := r.conns("a"); open != 0 {
				t.Error("a failed attempt's connection is open")
			}
		})
	}
}

func TestUnreachableChannels(t *testing.T) {
	hold := new(watcher)
	r := newRig(t, Options{}, openai("a", vacant(t)), openai("b", vacant(t)))
	_, err := r.do(context.Background(), plainBody, hold)
	e := asError(t, err, llm.KindUpstream)
	if e.Code != "upstream_unavailable" || !cmp.Equal(e.Fields["attempted_channels"], []string{"a", "b"}) {
		t.Errorf("%+v", e)
	}
	contains(t, e.Err.Error(), "connection refused")
	if strings.Contains(e.Err.Error()+e.Message, "sk-secret") {
		t.Error("the credential is in the error")
	}
	if got := hold.String(); got != "attempt a, refused a, attempt b, refused b" {
		t.Error(got)
	}
}

func TestAttemptsAreBounded(t *testing.T) {
	var channels []Channel
	for i := range 20 {
		channels = append(channels, openai(fmt.Sprintf("c%02d", i), vacant(t)))
	}
	r := newRig(t, Options{Attempts: 2}, channels...)
	_, err := r.do(context.Background(), plainBody, new(watcher))
	e := asError(t, err, llm.KindUpstream)
	if got := e.Fields["attempted_channels"].([]string); len(got) != 2 {
		t.Error(got)
	}
}

func TestHeaderTimeout(t *testing.T) {
	s := newStub(t, func(x *exchange) bool { return !x.gone(5 * time.Second) })
	r := newRig(t, Options{HeaderTimeoutMS: 30}, openai("a", s.url))
	_, _, err := r.call()
	e := asError(t, err, llm.KindTimeout)
	if e.Code != "upstream_timeout" || !cmp.Equal(e.Fields["attempted_channels"], []string{"a"}) {
		t.Errorf("%+v", e)
	}
}

// A peer that never reads must not hold a writer for ever.
func TestWriteTimeout(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	r := newRig(t, Options{HeaderTimeoutMS: 100}, openai("a", "http://"+ln.Addr().String()))
	body := strings.Replace(plainBody, "hi", strings.Repeat("x", 16<<20), 1)
	_, err = r.do(context.Background(), body, new(watcher))
	asError(t, err, llm.KindTimeout)
}

// A peer that refuses a long request before it has read it still gets its say.
func TestEarlyRefusal(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Read(make([]byte, 100))
		_, _ = c.Write([]byte("HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig"))
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = c.Read(make([]byte, 64<<20)) // some, so that the writer is not reset before the answer is out
	})
	r := newRig(t, Options{HeaderTimeoutMS: 2000, Attempts: 1}, openai("a", "http://"+ln.Addr().String()))
	resp, err := r.do(context.Background(), strings.Replace(plainBody, "hi", strings.Repeat("x", 1<<20), 1), new(watcher))
	if err != nil {
		asError(t, err, llm.KindUpstream) // the reset may overtake the answer; then it is an attempt that failed
		return
	}
	defer resp.Close()
	if resp.Status != 413 {
		t.Error(resp.Status)
	}
}

func TestRequestFaultsAreRelayed(t *testing.T) {
	for _, code := range []int{400, 404, 409, 413, 415, 422, 424, 451} {
		s := newStub(t, status(code, ""))
		other := newStub(t, fine)
		a, b := openai("a", s.url), openai("b", other.url)
		a.Priority = 1
		r := newRig(t, Options{}, a, b)
		hold := new(watcher)
		resp, err := r.do(context.Background(), streamBody, hold)
		if err != nil {
			t.Fatal(code, err)
		}
		body, err := resp.Body()
		if resp.Status != code || resp.Stream || string(body) != `{"error":{"message":"no"}}` || err != nil {
			t.Error(code, resp.Status, resp.Stream, string(body), err)
		}
		resp.Close()
		if got := hold.String(); got != "attempt a, sent a" {
			t.Error(got)
		}
		if h := r.client.Health(r.cat)[0]; h.State != "up" || h.Failures != 0 || h.LastStatus != code {
			t.Errorf("%+v", h)
		}
	}
}

func TestCredentialIsNeverRelayed(t *testing.T) {
	s := newStub(t, func(x *exchange) bool {
		return x.answer(400, "", `{"error":{"message":"bad key `+strings.TrimPrefix(x.req.Header.Get("Authorization"), "Bearer ")+`"}}`)
	})
	r := newRig(t, Options{}, openai("a", s.url))
	_, body, err := r.call()
	if err != nil || body != `{"error":{"message":"bad key [redacted]"}}` {
		t.Error(body, err)
	}
}

func TestNoChannel(t *testing.T) {
	off := openai("off", "http://h")
	off.State = "disabled"
	r := newRig(t, Options{}, off)
	_, _, err := r.call()
	contains(t, asError(t, err, llm.KindUpstream).Message, "every channel of model \"m\" is disabled")
	if h := r.client.Health(r.cat)[0]; h.State != "disabled" {
		t.Errorf("%+v", h)
	}
	req := newRequest(t, r.cat, llm.Messages, `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hi"}]}`)
	_, err = r.client.Do(context.Background(), r.cat, req, new(watcher))
	e := asError(t, err, llm.KindNotFound)
	if e.Code != "model_not_found" {
		t.Error(e.Code)
	}
	contains(t, e.Message, "no channel that serves /v1/messages")
}

func TestHoldWithoutRoom(t *testing.T) {
	s := newStub(t, fine)
	a, b := openai("a", s.url), openai("b", s.url)
	a.Priority = 1
	r := newRig(t, Options{Attempts: 1}, a, b)
	hold := &watcher{deny: map[string]bool{"a": true}}
	resp, err := r.do(context.Background(), plainBody, hold)
	if err != nil {
		t.Fatal("a channel without room is not an attempt: ", err)
	}
	resp.Close()
	if got := hold.String(); got != "attempt a, attempt b, sent b" {
		t.Error(got)
	}
	hold = &watcher{deny: map[string]bool{"a": true, "b": true}}
	_, err = r.do(context.Background(), plainBody, hold)
	if e := asError(t, err, llm.KindRateLimited); e.RetryAfterMS != 1000 {
		t.Errorf("%+v", e)
	}
}

// S09: an upstream's 429 is answered with our own, and the wait is the channel's.
func TestS09UpstreamRateLimit(t *testing.T) {
	limited := true
	s := newStub(t, func(x *exchange) bool {
		if limited {
			return x.answer(429, "retry-after: 7\r\n", `{"error":{"message":"you are out"}}`)
		}
		return fine(x)
	})
	r := newRig(t, Options{}, openai("a", s.url))
	_, _, err := r.call()
	e := asError(t, err, llm.KindRateLimited)
	if e.Code != "upstream_rate_limited" || e.RetryAfterMS < 6900 || e.RetryAfterMS > 7000 {
		t.Errorf("%+v", e)
	}
	if strings.Contains(e.Message, "you are out") {
		t.Error("the upstream's words were passed on")
	}
	// The storm: nobody reaches the upstream any more, and each is told how long.
	for range 100 {
		_, _, err := r.call()
		if e := asError(t, err, llm.KindRateLimited); e.RetryAfterMS > 7000 || e.RetryAfterMS < 5000 {
			t.Errorf("%+v", e)
		}
	}
	if n := s.requests.Load(); n != 1 {
		t.Errorf("%d requests reached a channel that sleeps", n)
	}
	if h := r.client.Health(r.cat)[0]; h.State != "cooling" || h.UntilMS == 0 || h.LastStatus != 429 {
		t.Errorf("%+v", h)
	}
	limited = false
	r.clock.advance(7 * time.Second)
	if st, _, err := r.call(); st != 200 || err != nil {
		t.Error("having waited that long, a client must get through: ", st, err)
	}
	if h := r.client.Health(r.cat)[0]; h.State != "up" {
		t.Errorf("%+v", h)
	}
}

// One channel is rate limited for seven seconds, the other fails: the wait is that of whichever can be tried first, and
// the answer does not claim that both are at their limit.
func TestLimitedAndFailingChannels(t *testing.T) {
	busy := newStub(t, status(429, "Retry-After: 7\r\n"))
	broken := newStub(t, status(500, ""))
	r := newRig(t, Options{}, openai("a", busy.url), openai("b", broken.url))
	for i := range 5 { // the first ones reach b, then it cools down, too
		_, _, err := r.call()
		e := asError(t, err, llm.KindRateLimited)
		if e.Code != "upstream_rate_limited" || e.RetryAfterMS < 1 || e.RetryAfterMS > 1000 || !strings.Contains(e.Message, "or fails") {
			t.Errorf("call %d: %+v", i, e)
		}
		if names, _ := e.Fields["attempted_channels"].([]string); i == 0 && len(names) != 2 {
			t.Errorf("attempted %v", names)
		}
	}
}

func TestRetryAfterMillisecondsWin(t *testing.T) {
	s := newStub(t, status(429, "Retry-After: 30\r\nRetry-After-Ms: 2500\r\n"))
	r := newRig(t, Options{}, openai("a", s.url))
	_, _, err := r.call()
	if e := asError(t, err, llm.KindRateLimited); e.RetryAfterMS < 2400 || e.RetryAfterMS > 2500 {
		t.Errorf("%+v", e)
	}
}

// 64 clients that leave are no reason to doubt a channel, nor to send it less at a time.
func TestCancellationIsNotAFailure(t *testing.T) {
	s := newStub(t, func(x *exchange) bool {
		if strings.Contains(x.body, "wait") {
			return !x.gone(5 * time.Second)
		}
		return fine(x)
	})
	r := newRig(t, Options{Adapt: AdaptAlways}, openai("a", s.url))
	hold := new(watcher)
	for range 64 {
		ctx, cancel := context.WithCancel(context.Background())
		want := s.requests.Load() + 1
		stop := context.AfterFunc(ctx, func() {})
		go func() {
			for s.requests.Load() < want {
				time.Sleep(100 * time.Microsecond)
			}
			cancel()
		}()
		_, err := r.do(ctx, strings.Replace(plainBody, "hi", "wait", 1), hold)
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		stop()
	}
	if strings.Contains(hold.String(), "refused") {
		t.Error("a cut attempt was reported as refused: its input would be free")
	}
	if h := r.client.Health(r.cat)[0]; h.State != "up" || h.Failures != 0 || h.Limit != 20 || h.InFlight != 0 {
		t.Errorf("%+v", h)
	}
	if st, _, err := r.call(); st != 200 || err != nil {
		t.Error(st, err)
	}
	eventually(t, "the connections are closed", func() bool { open, _ := r.conns("a"); return open <= 1 })
}

// ctx cuts in every phase: before, while connecting, while writing.
func TestContextCutsEveryPhase(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s := newStub(t, fine)
	r := newRig(t, Options{}, openai("a", s.url))
	if _, err := r.do(ctx, plainBody, new(watcher)); err != context.Canceled {
		t.Error(err)
	}
	if n := s.accepted.Load(); n != 0 {
		t.Error("a call that was over before it began reached the upstream")
	}

	ln, err := net.Listen("tcp", "127.0.0.1:0") // accepts in the kernel, never reads
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for name, ch := range map[string]Channel{
		"writing":       openai("w", "http://"+ln.Addr().String()),
		"TLS handshake": openai("t", "https://"+ln.Addr().String()),
	} {
		r := newRig(t, Options{}, ch)
		req := newRequest(t, r.cat, llm.Chat, strings.Replace(plainBody, "hi", strings.Repeat("x", 16<<20), 1))
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		start := time.Now()
		_, err := r.client.Do(ctx, r.cat, req, new(watcher))
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 10*time.Second {
			t.Errorf("%s: %v after %v", name, err, time.Since(start))
		}
		req.Began = func(a *Response) { time.AfterFunc(30*time.Millisecond, a.Cancel) }
		if _, err = r.client.Do(context.Background(), r.cat, req, new(watcher)); err != context.Canceled {
			t.Errorf("%s, cancelled: %v", name, err)
		}
		if h := r.client.Health(r.cat)[0]; h.Failures != 0 {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

// A request that waits for a place is cut where it stands, and one that is cut before it began goes nowhere.
func TestCancelCutsWhoWaits(t *testing.T) {
	release := make(chan bool)
	st := newStub(t, func(x *exchange) bool { <-release; return fine(x) })
	a := openai("a", st.url)
	a.ConcurrencyLimit = 1
	r := newRig(t, Options{QueueRequests: 5, QueueWaitMS: 60_000}, a)
	first := crowd(t, r, st, 1)
	for _, began := range []func(*Response){
		func(a *Response) { time.AfterFunc(30*time.Millisecond, a.Cancel) },
		(*Response).Cancel,
	} {
		req := newRequest(t, r.cat, llm.Chat, plainBody)
		req.Began = began
		if _, err := r.client.Do(context.Background(), r.cat, req, new(watcher)); err != context.Canceled {
			t.Error(err)
		}
	}
	close(release)
	first.Wait()
	if n := st.requests.Load(); n != 1 {
		t.Errorf("%d requests reached the upstream", n)
	}
}

type bomb struct{ watcher }

func (b *bomb) Sent(*Channel) { panic("bug") }

// M06 (this package's part): a panic in the hold leaves no connection behind.
func TestM06PanicInTheHold(t *testing.T) {
	s := newStub(t, fine)
	r := newRig(t, Options{}, openai("a", s.url))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = r.do(ctx, plainBody, new(bomb))
	}()
	if open, _ := r.conns("a"); open != 0 {
		t.Errorf("%d connections open", open)
	}
	if _, _, err := r.call(); err != nil {
		t.Error(err)
	}
}

func TestClosedClient(t *testing.T) {
	s := newStub(t, fine)
	r := newRig(t, Options{}, openai("a", s.url))
	_, _, _ = r.call()
	r.client.Close()
	r.client.Close()
	_, _, err := r.call()
	contains(t, asError(t, err, llm.KindUpstream).Err.Error(), "client is closed")
}

// A new catalog keeps the health and connections of what it still has, starts anew where the URL or the credential
// changed, and closes what is gone.
func TestCatalogChanges(t *testing.T) {
	s := newStub(t, func(x *exchange) bool {
		if x.req.Header.Get("Authorization") == "Bearer good" {
			return fine(x)
		}
		return status(401, "")(x)
	})
	bad, kept := openai("a", s.url), openai("k", s.url)
	kept.Credential, kept.Priority = "good", -1
	r := newRig(t, Options{}, bad, kept)
	if _, _, err := r.call(); err != nil {
		t.Fatal(err)
	}
	if h := r.client.Health(r.cat)[0]; h.State != "cooling" || h.UntilMS < 59_000 {
		t.Fatalf("a refused credential: %+v", h)
	}
	before := s.accepted.Load()
	healed := bad
	healed.Credential, healed.Weight = "good", 7
	old := r.cat
	r.cat = mustCatalog(t, []Model{{Name: "m"}}, []Channel{healed, kept})
	if h := r.client.Health(r.cat); h[0].State != "up" || h[1].LastStatus != 200 {
		t.Errorf("%+v", h)
	}
	resp, err := r.do(context.Background(), plainBody, new(watcher))
	if err != nil || resp.Channel.Name != "a" || resp.Channel.Weight != 7 {
		t.Fatal(resp, err)
	}
	resp.Close()
	r.cat = mustCatalog(t, []Model{{Name: "m"}}, []Channel{kept})
	if _, _, err := r.call(); err != nil {
		t.Fatal(err)
	}
	r.client.mu.RLock()
	lanes := len(r.client.mu.lanes)
	r.client.mu.RUnlock()
	if lanes != 1 || s.accepted.Load() != before+1 {
		t.Errorf("%d lanes, %d new connections", lanes, s.accepted.Load()-before)
	}
	// A request that still holds the old catalog is served, and does not undo the change.
	req := newRequest(t, old, llm.Chat, plainBody)
	resp, err = r.client.Do(context.Background(), old, req, new(watcher))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = resp.Body()
	resp.Close()
	if open, _ := r.conns("k"); open != 1 {
		t.Error("the kept channel lost its connection")
	}
}
