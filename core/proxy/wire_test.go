package proxy_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/proxy"
)

// S10: 40 MB, announced, expected or chunked, on every route: 413 as JSON in its dialect, and the client gets to read it.
func TestS10LargeBodies(t *testing.T) {
	r := newRig(t, func(s *setup) { s.options = proxy.Options{BodyBytes: 1 << 20} })
	r.leavesNothing()
	body := bytes.Repeat([]byte{'a'}, 40<<20)
	for _, x := range everyRoute {
		for how, announce := range map[string]func(*http.Request){
			"announced":            func(*http.Request) {},
			"expected":             func(q *http.Request) { q.Header.Set("Expect", "100-continue") },
			"chunked":              func(q *http.Request) { q.ContentLength = -1 },
			"chunked and expected": func(q *http.Request) { q.ContentLength = -1; q.Header.Set("Expect", "100-continue") },
		} {
			req := r.request(x.path, "")
			req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			announce(req)
			tr := &http.Transport{ExpectContinueTimeout: time.Second}
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatalf("%s, %s: %v", x.path, how, err)
			}
			b, err := io.ReadAll(resp.Body)
			must(t, err)
			_ = resp.Body.Close()
			tr.CloseIdleConnections()
			p := reply{resp.StatusCode, resp.Header, b, nil}
			if f := p.want(t, 413).code(t, "request_too_large"); f["limit_bytes"] != float64(1<<20) {
				t.Errorf("%s, %s: %v", x.path, how, f)
			}
			if strings.Contains(string(b), `"type":"error"`) != strings.HasPrefix(x.path, "/v1/messages") {
				t.Errorf("%s, %s: wrong dialect: %s", x.path, how, b)
			}
		}
	}
}

// A body refused by Expect is never sent.
func TestS10ExpectRefusedBeforeTheBody(t *testing.T) {
	r := newRig(t, func(s *setup) { s.options = proxy.Options{BodyBytes: 1 << 20} })
	c, err := net.Dial("tcp", r.addr)
	must(t, err)
	defer func() { _ = c.Close() }()
	_, err = io.WriteString(c, r.rawHead("/v1/chat/completions", "Expect: 100-continue\r\nContent-Length: 40000000\r\n\r\n"))
	must(t, err)
	must(t, c.SetReadDeadline(time.Now().Add(2*time.Second)))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	must(t, err)
	if resp.StatusCode != 413 || !resp.Close {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
}

// Headers over the limit: 431 with the limit.
func TestLargeHeaders(t *testing.T) {
	r := newRig(t, func(s *setup) { s.options = proxy.Options{HeaderBytes: 4096} })
	for path, anthropic := range map[string]bool{"/v1/chat/completions": false, "/v1/messages": true} {
		raw := r.raw(r.rawHead(path, "X-Big: ", strings.Repeat("x", 20_000), "\r\n\r\n"))
		if !strings.HasPrefix(raw, "HTTP/1.1 431 ") || !strings.Contains(raw, `"limit_bytes":4096`) || !strings.Contains(raw, "X-Request-Id: ") || strings.Contains(raw, `"type":"error"`) != anthropic {
			t.Errorf("%s: %s", path, raw)
		}
	}
}

// S15: what two parsers could read differently is 400 in JSON, in the dialect of the path, and the connection ends.
func TestS15AmbiguousRequests(t *testing.T) {
	r := newRig(t)
	auth := "Authorization: Bearer " + r.token + "\r\n"
	for _, x := range everyRoute {
		body := x.body
		chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
		length := "Content-Length: " + itoa(len(body)) + "\r\n"
		want := `{"error":{"type":"invalid_request_error"`
		if strings.HasPrefix(x.path, "/v1/messages") {
			want = `{"type":"error","error":{"type":"invalid_request_error"`
		}
		for name, request := range map[string]string{
			"both framings":     r.rawHead(x.path, auth, length, "Transfer-Encoding: chunked\r\n\r\n", chunked),
			"both, the other":   r.rawHead(x.path, auth, "Transfer-Encoding: chunked\r\n", length, "\r\n", chunked),
			"folded header":     r.rawHead(x.path, "Authorization: Bearer\r\n ", r.token, "\r\n", length, "\r\n", body),
			"two of one":        r.rawHead(x.path, auth, auth, length, "\r\n", body),
			"two of the other":  r.rawHead(x.path, "x-api-key: ", r.token, "\r\nX-Api-Key: ", r.token, "\r\n", length, "\r\n", body),
			"two lengths":       r.rawHead(x.path, auth, length, length, "\r\n", body),
			"negative length":   r.rawHead(x.path, auth, "Content-Length: -1\r\n\r\n"),
			"unknown coding":    r.rawHead(x.path, auth, "Transfer-Encoding: gzip, chunked\r\n\r\n", chunked),
			"space before ':'":  r.rawHead(x.path, "Authorization : Bearer ", r.token, "\r\n", length, "\r\n", body),
			"a NUL in a header": r.rawHead(x.path, auth, "X-A: \x00\r\n", length, "\r\n", body),
			"no host":           "POST " + x.path + " HTTP/1.1\r\n" + auth + length + "\r\n" + body,
			"a broken chunk":    r.rawHead(x.path, auth, "Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
		} {
			raw := r.raw(request)
			if !strings.HasPrefix(raw, "HTTP/1.1 400 ") || !strings.Contains(raw, want) || !strings.Contains(raw, "X-Request-Id: ") {
				t.Errorf("%s, %s: %.300s", x.path, name, raw)
			}
		}
		sent := r.sim.Stats().Requests
		raw := r.raw(r.rawHead(x.path, auth, "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n", chunked))
		if !strings.HasPrefix(raw, "HTTP/1.1 200 ") || r.sim.Stats().Requests != sent+1 {
			t.Errorf("%s: a chunked body is fine: %.300s", x.path, raw)
		}
	}
	if raw := r.raw("hello\r\n\r\n"); !strings.HasPrefix(raw, "HTTP/1.1 400 ") || !strings.Contains(raw, `{"error":{"type":"invalid_request_error"`) {
		t.Errorf("not HTTP: %.300s", raw)
	}
	if n := r.sim.Stats().Requests; n != int64(len(everyRoute)) {
		t.Errorf("%d requests got through", n)
	}
}

// HTTP/1.0 has no chunks: a stream is refused before anything is spent, an answer in one piece is not.
func TestHTTP10(t *testing.T) {
	r := newRig(t)
	for more, status := range map[string]string{"": "200 OK", `,"stream":true`: "505 "} {
		body := chat("gpt-4o", more)
		raw := r.raw(strings.Replace(r.rawHead("/v1/chat/completions", "Authorization: Bearer ", r.token, "\r\nContent-Length: ", itoa(len(body)), "\r\n\r\n", body), "HTTP/1.1", "HTTP/1.0", 1))
		if !strings.Contains(raw, status) || strings.Contains(raw, "chunked") {
			t.Errorf("%q: %s", more, raw)
		}
	}
}

// Nor is an answer streamed to HTTP/1.0 that was not asked to be: nothing is owed for it.
func TestHTTP10IsStreamedNothing(t *testing.T) {
	r := newRig(t, saying(t, false, "data: {\"choices\":[{\"delta\":{\"content\":\"one two\"}}]}\n\n"))
	body := chat("gpt-4o", "")
	raw := r.raw(strings.Replace(r.rawHead("/v1/chat/completions", "Authorization: Bearer ", r.token, "\r\nContent-Length: ", itoa(len(body)), "\r\n\r\n", body), "HTTP/1.1", "HTTP/1.0", 1))
	if !strings.Contains(raw, "505 ") || strings.Contains(raw, "chunked") {
		t.Errorf("%s", raw)
	}
	if left, _ := r.limits.Balance(idUser); left != startBalance {
		t.Errorf("it costs %d", startBalance-left)
	}
}

// A request whose beginning came with the one before is under way, not idle: its head has as long as any other.
func TestHalfAPipelinedRequestIsUnderWay(t *testing.T) {
	r := newRig(t, func(s *setup) { s.options = proxy.Options{HeadTimeoutMS: 200, ReadTimeoutMS: 600_000} })
	body := chat("gpt-4o", "")
	raw := r.raw(r.rawHead("/v1/chat/completions", "Authorization: Bearer ", r.token, "\r\nContent-Length: ", itoa(len(body)), "\r\n\r\n", body, "POST /v1"))
	if !strings.HasPrefix(raw, "HTTP/1.1 200 ") || !strings.Contains(raw, "HTTP/1.1 408 ") {
		t.Errorf("%s", raw)
	}
}

// What has arrived of the next request is not lost where headers are small and bodies are not.
func TestPipelinedBehindALargerBody(t *testing.T) {
	r := newRig(t, func(s *setup) { s.options = proxy.Options{HeaderBytes: 2 << 10} })
	body := chat("gpt-4o", `,"user":"`+strings.Repeat("u", 5000)+`"`)
	one := r.rawHead("/v1/chat/completions", "Authorization: Bearer ", r.token, "\r\nContent-Length: ", itoa(len(body)), "\r\n\r\n", body)
	last := strings.Replace(one, "Content-Length", "Connection: close\r\nContent-Length", 1)
	if raw := r.raw(one + last); strings.Count(raw, "HTTP/1.1 200 ") != 2 {
		t.Errorf("%s", raw)
	}
}

// A request that never arrives whole is told so.
func TestSlowRequest(t *testing.T) {
	r := newRig(t, func(s *setup) { s.options = proxy.Options{ReadTimeoutMS: 50} })
	raw := r.raw(r.rawHead("/v1/chat/completions", "Content-Length: 100\r\n\r\n{"))
	if !strings.HasPrefix(raw, "HTTP/1.1 408 ") || !strings.Contains(raw, "request_timeout") {
		t.Errorf("%s", raw)
	}
}

// Connections beyond the limit wait, and are served when there is room.
func TestConnectionsWait(t *testing.T) {
	r := newRig(t, func(s *setup) { s.options = proxy.Options{Connections: 1} })
	first, err := net.Dial("tcp", r.addr)
	must(t, err)
	_, err = io.WriteString(first, "GET /healthz HTTP/1.1\r\nHost: h\r\n") // a request has begun: it is not idle
	must(t, err)
	second := make(chan string, 1)
	go func() { second <- r.raw("GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n") }()
	select {
	case <-second:
		t.Error("the second connection did not wait")
	case <-time.After(250 * time.Millisecond):
	}
	_ = first.Close()
	if raw := <-second; !strings.HasPrefix(raw, "HTTP/1.1 200 ") {
		t.Errorf("%s", raw)
	}
}
