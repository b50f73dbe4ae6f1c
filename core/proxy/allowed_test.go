package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// toUpstream are headers that a client may send and no upstream may get: hop by hop, about who asks, about where from, and
// those that some provider obeys.
var toUpstream = []string{
	"Connection: keep-alive, X-Named, Anthropic-Beta", "X-Named: leak", "Keep-Alive: timeout=leak", "Proxy-Connection: leak", "TE: trailers, leak", "Trailer: X-leak", "Upgrade: leak",
	"Proxy-Authorization: Basic leak", "Proxy-Authenticate: leak", "HTTP2-Settings: leak", "Cookie: leak=1", "Set-Cookie: leak=1", "Forwarded: for=leak", "X-Forwarded-For: leak",
	"X-Forwarded-Host: leak", "X-Forwarded-Proto: leak", "X-Real-Ip: leak", "Via: 1.1 leak", "True-Client-Ip: leak", "Cf-Connecting-Ip: leak", "X-Original-Url: /leak", "X-Rewrite-Url: /leak",
	"X-Http-Method-Override: leak", "Origin: http://leak", "Referer: http://leak", "User-Agent: leak", "Accept: leak/leak", "Accept-Encoding: gzip, leak", "Accept-Language: leak",
	"Content-Language: leak", "Content-Location: /leak", "Content-Range: bytes leak", "Content-Disposition: leak", "Content-MD5: leak", "Range: bytes=leak", "If-Match: leak",
	"If-None-Match: leak", "If-Modified-Since: leak", "Date: leak", "Idempotency-Key: leak", "OpenAI-Organization: leak", "OpenAI-Project: leak", "OpenAI-Beta: leak", "Azure-Key: leak",
	"Api-Key: leak", "X-Goog-Api-Key: leak", "X-Stainless-Lang: leak", "X-Amz-Security-Token: leak", "Traceparent: 00-leak", "Baggage: leak=1", "X-Request-Id: leak", "Priority: leak",
	"X-Weir-Policy: leak", "X-Weir-Rule: leak", "Anthropic-Dangerous-Direct-Browser-Access: leak", "Alt-Used: leak", "Sec-Fetch-Site: leak", "DNT: leak", "Pragma: leak", "Max-Forwards: leak",
}

// S15: the head that goes upstream is ours to the byte, whatever stands in the client's.
func TestS15HeadersToTheUpstream(t *testing.T) {
	u := newStrictUpstream(t)
	r := newRig(t, func(s *setup) { s.catalog = func(c *catalog) { c.channels[0].BaseURL = u.url } })
	s := newSmuggling(r)
	for _, line := range append(toUpstream, "Anthropic-Beta: leak", strings.Join(toUpstream, "\r\n")) {
		if got := r.attacked(s.post(line, "\r\n", s.contentLen)+s.body, "200"); got != "200" {
			t.Errorf("%.60s: %s", line, got)
		}
		requests, left, conns := u.take()
		if seen := r.meant(s, requests); seen != "A" || len(left) > 0 || conns != 1 || strings.Contains(strings.ToLower(string(requests[0])), "leak") {
			t.Errorf("%.60s: upstream came %s: %q, and %q", line, seen, requests, left)
		}
	}
}

// toClient are headers that an upstream may send and no client may get.
var toClient = []string{
	"Connection: keep-alive, X-Named", "X-Named: leak", "Keep-Alive: timeout=60, leak=1", "Proxy-Connection: leak", "Proxy-Authenticate: Basic leak", "Trailer: X-leak", "Upgrade: leak",
	"Set-Cookie: leak=1", "Set-Cookie2: leak=1", "Server: leak", "Via: 1.1 leak", "X-Powered-By: leak", "Location: http://leak", "Refresh: 0; url=http://leak", "Link: <http://leak>", "Alt-Svc: leak",
	"Access-Control-Allow-Origin: http://leak", "Access-Control-Allow-Credentials: leak", "Access-Control-Expose-Headers: leak", "Content-Security-Policy: leak", "Strict-Transport-Security: leak",
	"Clear-Site-Data: leak", "WWW-Authenticate: Bearer leak", "Authorization: leak", "X-Api-Key: leak", "OpenAI-Organization: leak", "OpenAI-Processing-Ms: leak", "OpenAI-Version: leak",
	"Anthropic-Organization-Id: leak", "X-Request-Id: leak", "Request-Id: leak", "X-Client-Request-Id: leak", "Cf-Ray: leak", "Cf-Cache-Status: leak", "X-Ratelimit-Limit-Requests: leak",
	"X-Ratelimit-Remaining-Tokens: leak", "Anthropic-Ratelimit-Requests-Limit: leak", "X-Should-Retry: leak", "Retry-After: 7leak", "Retry-After-Ms: 7leak", "X-Weir-Policy: leak", "X-Weir-Rule: leak",
	"ETag: leak", "Last-Modified: leak", "Expires: leak", "Age: leak", "Cache-Control: leak", "Vary: leak", "Content-Language: leak", "Content-Location: /leak", "Content-Disposition: leak",
	"Content-Range: bytes leak", "Accept-Ranges: leak", "Date: leak", "Warning: leak", "Report-To: leak", "NEL: leak", "Server-Timing: leak", "Timing-Allow-Origin: leak", "SourceMap: leak", "X-Accel-Redirect: /leak",
}

// fromGateway are all headers of an answer.
var fromGateway = []string{"Content-Type", "Content-Length", "Date", "X-Request-Id", "Connection"}

// S15: what a client sees of the head of an answer, or of what an upstream says against its request, is ours but for status and type.
func TestS15HeadersToTheClient(t *testing.T) {
	u := newStrictUpstream(t)
	r := newRig(t, func(s *setup) { s.catalog = func(c *catalog) { c.channels[0].BaseURL = u.url } })
	for _, status := range []int{200, 400, 422} {
		for _, line := range append(toClient, strings.Join(toClient, "\r\n")) {
			u.says(status, line+"\r\n")
			p := r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, status)
			for name, values := range p.header {
				if !slices.Contains(fromGateway, name) || len(values) != 1 || strings.Contains(values[0], "leak") {
					t.Errorf("%d, %.60s: %s: %q came", status, line, name, values)
				}
			}
		}
	}
}

// An upstream that tries to write lines of its own into an answer is broken, and the client is told that alone.
func TestS15UpstreamsCannotInjectLines(t *testing.T) {
	for _, line := range []string{
		"X-A: b\rSet-Cookie: leak", "X-A: b\r\r\nSet-Cookie: leak", "X-A: b\x00", "X-A\r: b", "X A: b", ": leak", "X-A: b\r\n Set-Cookie: leak", "X-A: \x1b[31mleak", "no colon leak",
		"Content-Type: text/html\rSet-Cookie: leak", "Content-Type: text/html\r\n\tSet-Cookie: leak", "Retry-After: 1\rSet-Cookie: leak", "Content-Length: 5", "Transfer-Encoding: chunked", "Transfer-Encoding: leak",
	} {
		u := newStrictUpstream(t)
		u.adds(line + "\r\n")
		r := newRig(t, func(s *setup) { s.catalog = func(c *catalog) { c.channels[0].BaseURL = u.url } })
		raw := r.raw(r.rawHead("/v1/chat/completions", "Connection: close\r\nAuthorization: Bearer ", r.token, "\r\nContent-Length: ", itoa(len(chat("gpt-4o", ""))), "\r\n\r\n", chat("gpt-4o", "")))
		if !strings.HasPrefix(raw, "HTTP/1.1 502 ") || strings.Contains(raw, "leak") || strings.Contains(raw, "Set-Cookie") {
			t.Errorf("%q: %s", line, raw)
		}
	}
}

// Of a stream the same holds.
func TestS15HeadersOfAStream(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		_, _ = strictRequest(bufio.NewReader(c))
		const events = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
		_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%s\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%s", strings.Join(toClient, "\r\n"), len(events), events)
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	r := newRig(t, func(s *setup) {
		s.catalog = func(c *catalog) { c.channels[0].BaseURL = "http://" + ln.Addr().String() }
	})
	req := r.request("/v1/chat/completions", chat("gpt-4o", `,"stream":true`))
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Do(req)
	must(t, err)
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	_ = resp.Body.Close()
	if resp.StatusCode != 200 || !strings.Contains(string(body), "[DONE]") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	ours := append([]string{"X-Accel-Buffering", "Cache-Control"}, fromGateway...)
	for name, values := range resp.Header {
		if !slices.Contains(ours, name) || strings.Contains(strings.Join(values, " "), "leak") {
			t.Errorf("%s: %q came", name, values)
		}
	}
}
