package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-gateway/weir/core/llm"
)

// streams are the routes that can stream.
func streams() []route {
	return slices.DeleteFunc(slices.Clone(everyRoute), func(x route) bool {
		return strings.HasSuffix(x.path, "embeddings") || strings.HasSuffix(x.path, "count_tokens")
	})
}

func terminal(path string) string {
	switch path {
	case "/v1/messages":
		return "message_stop"
	case "/v1/responses":
		return "response.completed"
	}
	return "[DONE]"
}

// Every stream arrives whole, ends with its terminal event and is charged what the upstream reports.
func TestStreamEveryRoute(t *testing.T) {
	r := newRig(t)
	for _, x := range streams() {
		before, _ := r.limits.Balance(idUser)
		p := r.post(x.path, x.with(`,"stream":true`), "x-sim", "out=20,usage_in=30,usage_out=20").want(t, 200)
		ev := p.events()
		if len(ev) < 20 || !strings.Contains(ev[len(ev)-1], terminal(x.path)) || p.err != nil {
			t.Errorf("%s: %v %s", x.path, p.err, p.body)
		}
		if ct := p.header.Get("Content-Type"); !strings.HasPrefix(ct, "text/event-stream") {
			t.Errorf("%s: %s", x.path, ct)
		}
		want := llm.Usage{InputTokens: 30, OutputTokens: 20}
		e := r.journal.last(t)
		after, held := r.limits.Balance(idUser)
		if e.Status != llm.StatusFinalized || e.Usage != want || e.Estimated || e.HTTPStatus != 200 || before-after != price.Cost(want) || held != 0 {
			t.Errorf("%s: %+v, %d", x.path, e, before-after)
		}
	}
}

// S01: however the upstream frames its events, the client gets the same events and is charged the same.
func TestS01Framings(t *testing.T) {
	r := newRig(t)
	for _, x := range streams() {
		var plain []string
		for _, framing := range []string{"lf", "crlf", "cr", "nospace", "multiline", "comments", "bytes", "bytes|crlf|multiline|comments"} {
			p := r.post(x.path, x.with(`,"stream":true`), "x-sim", "out=15,usage_in=30,usage_out=15,framing="+framing).want(t, 200)
			ev := squash(p.events())
			if plain == nil {
				plain = ev
			}
			if diff := cmp.Diff(plain, ev); diff != "" {
				t.Errorf("%s as %s: %s", x.path, framing, diff)
			}
			if e := r.journal.last(t); e.Usage.OutputTokens != 15 || e.Estimated {
				t.Errorf("%s as %s: %+v", x.path, framing, e)
			}
			for _, field := range []string{"id", "retry"} {
				if regexp.MustCompile(`(?:^|[\r\n])` + field + `:`).Match(p.body) {
					t.Errorf("%s as %s: a line of %s reached the client", x.path, framing, field)
				}
			}
		}
	}
	p := r.post("/v1/chat/completions", chat("gpt-4o", `,"stream":true`), "x-sim", "out=5,big_event=2MB").want(t, 200)
	if ev := p.events(); len(p.body) < 2<<20 || ev[len(ev)-1] != "[DONE]" {
		t.Errorf("%d bytes", len(p.body))
	}
}

var createdAt = regexp.MustCompile(`"created(_at)?": ?[0-9]+`)

// squash takes out what differs between two answers of the simulation: ids, the second of creation, and the whitespace
// of a multi-line event.
func squash(ev []string) []string {
	out := make([]string, len(ev))
	for i, e := range ev {
		e = createdAt.ReplaceAllString(strings.ReplaceAll(e, "\n", ""), "")
		for _, mark := range []string{`"id":"`, `"item_id":"`, `_sim`} {
			for at := 0; ; {
				k := strings.Index(e[at:], mark)
				if k < 0 {
					break
				}
				at += k + len(mark)
				if end := strings.IndexByte(e[at:], '"'); end >= 0 {
					e = e[:at] + e[at+end:]
				}
			}
		}
		out[i] = strings.ReplaceAll(e, " ", "")
	}
	return out
}

// S02: usage that is never a number: counted text is charged.
func TestS02UsageNull(t *testing.T) {
	r := newRig(t)
	for _, mode := range []string{"null", "none"} {
		for _, x := range streams() {
			r.post(x.path, x.with(`,"stream":true`), "x-sim", "out=20,usage="+mode).want(t, 200)
			if e := r.journal.last(t); e.Status != llm.StatusFinalized || !e.Estimated || e.Usage.OutputTokens < 10 || e.Usage.OutputTokens > 30 || e.Usage.InputTokens == 0 {
				t.Errorf("%s with usage=%s: %+v", x.path, mode, e)
			}
		}
	}
}

// S03: the upstream is always asked for usage; only who asked gets the chunk.
func TestS03IncludeUsage(t *testing.T) {
	for _, x := range []struct {
		more string
		want bool
	}{{"", false}, {`,"stream_options":{"include_usage":false}`, false}, {`,"stream_options":{}`, false}, {`,"stream_options":null`, false}, {`,"stream_options":{"include_usage":true}`, true}} {
		r := newRig(t)
		for _, to := range everyRoute[:2] { // the routes with that option
			p := r.post(to.path, to.with(`,"stream":true`+x.more), "x-sim", "out=8,usage_in=9,usage_out=8").want(t, 200)
			got := false
			for _, e := range p.events() {
				got = got || strings.Contains(e, `"total_tokens"`)
			}
			if asked := strings.Contains(string(p.body), `"usage"`); asked != x.want {
				t.Errorf("%s, %s: a usage member in a chunk %v, want %v\n%s", to.path, x.more, asked, x.want, p.body)
			}
			if got != x.want {
				t.Errorf("%s, %s: usage chunk %v, want %v\n%s", to.path, x.more, got, x.want, p.body)
			}
			if e := r.journal.last(t); e.Usage.OutputTokens != 8 || e.Estimated {
				t.Errorf("%s, %s: the upstream was not asked: %+v", to.path, x.more, e)
			}
		}
	}
}

// S04: what came before the break arrives, then an error event, the end, and no forged terminal event; the part is charged.
func TestS04UpstreamBreaks(t *testing.T) {
	r := newRig(t)
	for _, mode := range []string{"reset_after=10", "no_done,out=10"} {
		for _, x := range streams() {
			before, _ := r.limits.Balance(idUser)
			p := r.post(x.path, x.with(`,"stream":true`), "x-sim", "pace=1ms,"+mode).want(t, 200)
			ev := p.events()
			if p.err != nil || len(ev) < 8 || !strings.Contains(ev[len(ev)-1], `"error"`) || !strings.Contains(ev[len(ev)-1], "upstream_unavailable") || strings.Contains(string(p.body), `"`+terminal(x.path)+`"`) || strings.Contains(string(p.body), "[DONE]") {
				t.Errorf("%s with %s: %v\n%s", x.path, mode, p.err, p.body)
			}
			if x.path == "/v1/responses" && !strings.Contains(string(p.body), fmt.Sprintf("event: error\ndata: {\"type\":\"error\",\"sequence_number\":%d,", len(ev)-1)) {
				t.Errorf("%s", p.body)
			}
			if x.path == "/v1/messages" && !strings.Contains(string(p.body), "event: error\ndata: {\"type\":\"error\"") {
				t.Errorf("%s", p.body)
			}
			e := r.journal.last(t)
			after, held := r.limits.Balance(idUser)
			if e.Status != llm.StatusPartial || e.Usage.InputTokens == 0 || e.Usage.OutputTokens == 0 || before-after != e.Cost || e.Cost == 0 || held != 0 {
				t.Errorf("%s with %s: %+v, balance moved by %d", x.path, mode, e, before-after)
			}
		}
	}
}

// An upstream's own error event reaches the client once, and ends the stream.
func TestStreamSilentUpstream(t *testing.T) {
	r := newRig(t, func(s *setup) { s.upstream.IdleTimeoutMS = 500 })
	p := r.post("/v1/chat/completions", chat("gpt-4o", `,"stream":true`), "x-sim", "hang_after=5").want(t, 200)
	if ev := p.events(); !strings.Contains(ev[len(ev)-1], "upstream_timeout") || len(ev) < 5 {
		t.Errorf("%s", p.body)
	}
}

// leave reads some events of a stream and then closes the connection.
func (r *rig) leave(req *http.Request, events int, before func()) {
	r.t.Helper()
	if status := r.leaveIf(req, events, before); status != http.StatusOK {
		r.t.Fatalf("status %d instead of a stream", status)
	}
}

// leaveIf is leave for a channel that may be cooling down: what is no stream is only reported.
func (r *rig) leaveIf(req *http.Request, events int, before func()) (status int) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	resp, err := http.DefaultClient.Do(req.WithContext(ctx))
	must(r.t, err)
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewReader(resp.Body)
	for n := 0; n < events && resp.StatusCode == http.StatusOK; {
		line, err := lines.ReadString('\n')
		must(r.t, err)
		if line == "\n" {
			n++
		}
	}
	if before != nil {
		before()
	}
	return resp.StatusCode
}

// S05: the client leaves a stream of any route; the upstream is closed within a second, or what is waited for a report when
// the answer itself was complete, what was relayed is charged, the rest is released.
func TestS05ClientLeaves(t *testing.T) {
	r := newRig(t, func(s *setup) { s.options.HeartbeatMS = 200 })
	r.leavesNothing()
	best := time.Hour
	for _, x := range streams() {
		x.body = strings.Replace(x.body, ":50", ":600", 1)
		beforeUsage := r.usageEvent(x)
		for _, how := range []struct {
			sim    string
			events int
			waits  time.Duration
		}{{"out=500,nocap,pace=2ms", 50, 0}, {"out=20,nocap,hang_after=" + itoa(beforeUsage), beforeUsage, 2 * time.Second}, {"silent=60s", 0, 0}, {"out=500,nocap,hang_after=6", 6, 0}} {
			goroutines := runtime.NumGoroutine()
			before, _ := r.limits.Balance(idUser)
			start := time.Now()
			r.leave(r.request(x.path, streamed(x), "x-sim", how.sim), how.events, func() { start = time.Now() })
			r.idle()
			eventually(t, func() bool { return r.sim.Stats().Open == 0 }, "the upstream still works for a client that has left")
			took := time.Since(start)
			if best = min(best, took); took > patience*time.Second+how.waits {
				t.Errorf("%s, %s: the upstream is closed after %v", x.path, how.sim, took)
			}
			e := r.journal.last(t)
			after, held := r.limits.Balance(idUser)
			if e.Status != llm.StatusPartial || e.Usage.InputTokens == 0 || int(e.Usage.OutputTokens) < (how.events-5)/2 || int(e.Usage.OutputTokens) > 2*how.events+10 || before-after != e.Cost || held != 0 {
				t.Errorf("%s, %s: %+v, balance moved by %d", x.path, how.sim, e, before-after)
			}
			eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines+4 }, "goroutines stay")
		}
	}
	if best > 100*time.Millisecond { // the best of all, so that a starved machine does not decide
		t.Errorf("a client that has left is noticed after %v", best)
	}
}

// usageEvent is which event of a stream of 20 tokens has the usage: so many come before it.
func (r *rig) usageEvent(x route) (i int) {
	r.t.Helper()
	for k, e := range r.post(x.path, streamed(x), "x-sim", "out=20,nocap").want(r.t, 200).events() {
		if strings.Contains(e, `"usage":{`) {
			i = k
		}
	}
	if i < 20 {
		r.t.Fatalf("%s: usage is in event %d", x.path, i)
	}
	return i
}

// The same before the upstream has sent anything at all, buffered, on every route: the input is owed, and the channel is
// not blamed.
func TestS05ClientLeavesBeforeTheFirstByte(t *testing.T) {
	r := newRig(t)
	for _, x := range everyRoute {
		ctx, cancel := context.WithCancel(context.Background())
		req := r.request(x.path, x.body, "x-sim", "latency=60s").WithContext(ctx)
		done := make(chan struct{})
		go func() {
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_ = resp.Body.Close()
			}
			close(done)
		}()
		eventually(t, func() bool { return r.sim.Stats().Open == 1 }, "never sent")
		start := time.Now()
		cancel()
		<-done
		r.idle()
		eventually(t, func() bool { return r.sim.Stats().Open == 0 }, "the upstream still works")
		if took := time.Since(start); took > patience*time.Second {
			t.Errorf("%s: the upstream is closed after %v", x.path, took)
		}
		owes := !strings.HasSuffix(x.path, "count_tokens")
		if e := r.journal.last(t); e.Status != llm.StatusPartial || (e.Usage.InputTokens > 0) != owes || e.Usage.OutputTokens != 0 || e.HTTPStatus != 0 {
			t.Errorf("%s: %+v", x.path, e)
		}
	}
	for _, h := range r.client.Health(r.server.Snapshot().Catalog) {
		if h.State != "up" {
			t.Errorf("%+v: a client's cancellation counted as a failure", h)
		}
	}
	r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200)
}

// A half-closed connection counts as gone, and a pipelined request does not hide it.
func TestWatchHalfCloseAndPipelining(t *testing.T) {
	r := newRig(t)
	body := chat("gpt-4o", "")
	one := r.rawHead("/v1/chat/completions", "Authorization: Bearer ", r.token, "\r\nx-sim: latency=60s\r\nContent-Length: ", itoa(len(body)), "\r\n\r\n", body)
	c, err := net.Dial("tcp", r.addr)
	must(t, err)
	defer func() { _ = c.Close() }()
	_, err = io.WriteString(c, one+one) // the second waits unread
	must(t, err)
	eventually(t, func() bool { return r.sim.Stats().Open == 1 }, "never sent")
	time.Sleep(50 * time.Millisecond) // so that it is watched
	if r.sim.Stats().Open != 1 {
		t.Fatal("a pipelined request was taken for a client that left")
	}
	must(t, c.(*net.TCPConn).CloseWrite())
	r.idle()
}

// A client that closes its half is gone: it reads an end and no answer.
func TestAHalfClosedClientIsToldNothing(t *testing.T) {
	r := newRig(t)
	body := chat("gpt-4o", "")
	c, err := net.Dial("tcp", r.addr)
	must(t, err)
	defer func() { _ = c.Close() }()
	_, err = io.WriteString(c, r.rawHead("/v1/chat/completions", "Authorization: Bearer ", r.token, "\r\nx-sim: latency=60s\r\nContent-Length: ", itoa(len(body)), "\r\n\r\n", body))
	must(t, err)
	eventually(t, func() bool { return r.sim.Stats().Open == 1 }, "never sent")
	must(t, c.(*net.TCPConn).CloseWrite())
	must(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
	if b, err := io.ReadAll(c); len(b) > 0 || err != nil {
		t.Errorf("read %q, %v", b, err)
	}
	r.idle()
}

// Pipelined requests are answered in order, none lost to the watcher's peeking.
func TestPipelining(t *testing.T) {
	r := newRig(t)
	body := chat("gpt-4o", "")
	var all strings.Builder
	for i := range 5 {
		last := ""
		if i == 4 {
			last = "Connection: close\r\n"
		}
		all.WriteString(r.rawHead("/v1/chat/completions", last, "Authorization: Bearer ", r.token, "\r\nX-Request-Id: n", itoa(i), "\r\nx-sim: latency=10ms\r\nContent-Length: ", itoa(len(body)), "\r\n\r\n", body))
	}
	raw := r.raw(all.String())
	if n := strings.Count(raw, "HTTP/1.1 200 OK"); n != 5 {
		t.Fatalf("%d answers of 5: %s", n, raw)
	}
	for i := range 5 {
		if !strings.Contains(raw, "X-Client-Request-Id: n"+itoa(i)) {
			t.Errorf("answer %d is missing", i)
		}
	}
}

// S06: a client that closes right after the terminal event has had a complete answer, on every route.
func TestS06ClosedAfterTerminal(t *testing.T) {
	r := newRig(t)
	for i := range 20 {
		x := streams()[i%4]
		ctx, cancel := context.WithCancel(context.Background())
		resp, err := http.DefaultClient.Do(r.request(x.path, x.with(`,"stream":true`), "x-sim", "out=5,usage_in=6,usage_out=5").WithContext(ctx))
		must(t, err)
		sc := bufio.NewScanner(resp.Body)
		for sc.Scan() && !(strings.HasPrefix(sc.Text(), "data: ") && strings.Contains(sc.Text(), terminal(x.path))) {
		}
		cancel()
		_ = resp.Body.Close()
		r.idle()
		if e := r.journal.last(t); e.Status != llm.StatusFinalized || e.Usage.OutputTokens != 5 || e.Estimated {
			t.Fatalf("%s: %+v", x.path, e)
		}
	}
}

// S07: a client that does not read stops the upstream, on every route, and nothing piles up in between.
func TestS07SlowReader(t *testing.T) {
	const all = 50 << 20
	var sent atomic.Int64
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		said, _ := tale(q.URL.Path, strings.Repeat("word ", 800))
		for n, err := 0, error(nil); err == nil && sent.Load() < all; sent.Add(int64(n)) {
			n, err = io.WriteString(w, said)
		}
	}))
	t.Cleanup(up.Close)
	r := newRig(t, func(s *setup) {
		s.catalog = func(c *catalog) { c.channels[0].BaseURL, c.channels[1].BaseURL = up.URL, up.URL }
		s.balance = 1 << 50
	})
	for _, x := range streams() {
		before := heapInUse()
		sent.Store(0)
		r.leave(r.request(x.path, strings.Replace(streamed(x), ":50", ":20000000", 1)), 2, func() {
			time.Sleep(300 * time.Millisecond) // long enough for all of it, were it not paced
			if grown := heapInUse() - before; grown > 8<<20 {
				t.Errorf("%s: %d bytes have piled up", x.path, grown)
			}
			if r.limits.Open() != 1 || sent.Load() >= all {
				t.Errorf("%s: the upstream has sent %d bytes to a client that does not read", x.path, sent.Load())
			}
		})
		r.idle()
	}
}

// The settlement is not acknowledged: the text arrives, the terminal event does not.
func TestStreamSettlementUnacknowledged(t *testing.T) {
	r := newRig(t)
	r.journal.wait = func(e llm.Entry) error {
		if e.Kind == llm.EntrySettle {
			return errDown
		}
		return nil
	}
	for _, x := range streams() {
		p := r.post(x.path, x.with(`,"stream":true`), "x-sim", "out=10").want(t, 200)
		if ev := p.events(); !strings.Contains(ev[len(ev)-1], "overloaded") || strings.Contains(string(p.body), "[DONE]") || len(ev) < 10 {
			t.Errorf("%s: %s", x.path, p.body)
		}
	}
}

// The head waits for the first token no longer than until the first sign of life is due.
func TestStreamHeadFirst(t *testing.T) {
	r := newRig(t, func(s *setup) { s.options.HeartbeatMS = 50 })
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	resp, err := http.DefaultClient.Do(r.request("/v1/chat/completions", chat("gpt-4o", `,"stream":true`), "x-sim", "silent=60s").WithContext(ctx))
	must(t, err)
	if resp.StatusCode != 200 || resp.Header.Get("X-Request-Id") == "" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	cancel()
	_ = resp.Body.Close()
	r.idle()
}

// A connection that has carried a stream carries the next request; one whose stream broke does not.
func TestStreamConnectionReuse(t *testing.T) {
	r := newRig(t)
	for range 3 {
		r.post("/v1/chat/completions", chat("gpt-4o", `,"stream":true`)).want(t, 200)
	}
	if n := r.sim.Stats().OpenConnections; n != 1 {
		t.Errorf("%d upstream connections for streams in turn", n)
	}
}

// Shutdown lets a stream end, and ends what does not with an event or a status that says why.
func TestShutdown(t *testing.T) {
	r := newRig(t)
	short, long, silent := make(chan reply, 1), make(chan reply, 1), make(chan reply, 1)
	go func() {
		silent <- r.post("/v1/chat/completions", chat("gpt-4o", ""), "x-sim", "latency=60s")
	}()
	go func() {
		short <- r.post("/v1/chat/completions", chat("gpt-4o", `,"stream":true`), "x-sim", "out=20,pace=5ms")
	}()
	go func() {
		resp, err := http.DefaultClient.Do(r.request("/v1/chat/completions", chat("gpt-4o", `,"stream":true`), "x-sim", "hang_after=2"))
		if err != nil {
			long <- reply{err: err}
			return
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		long <- reply{err: err, body: body}
	}()
	eventually(t, func() bool { return r.sim.Stats().Open == 3 }, "never sent")
	ctx, cancel := context.WithCancel(context.Background())
	down := make(chan error)
	go func() { down <- r.server.Shutdown(ctx) }()
	if p := <-short; p.err != nil || !strings.HasSuffix(string(p.body), "[DONE]\n\n") {
		t.Errorf("the short stream was cut: %v %s", p.err, p.body)
	}
	cancel()
	if err := <-down; err == nil {
		t.Error("a hanging stream did not delay the shutdown")
	}
	if p := <-long; p.err != nil || !strings.HasSuffix(strings.TrimSpace(string(p.body)), `"message":"the gateway is shutting down","code":"overloaded"}}`) {
		t.Errorf("the hanging stream ended with %v after %s", p.err, p.body)
	}
	if p := <-silent; p.status != 503 || !strings.Contains(string(p.body), "the gateway is shutting down") {
		t.Errorf("who waited for an answer was told %d %s %v", p.status, p.body, p.err)
	}
	if r.limits.Open() != 0 {
		t.Error("Shutdown returned with something held")
	}
	if r.server.Ready() == nil {
		t.Error("still ready")
	}
}
