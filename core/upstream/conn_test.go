package upstream

import (
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// What follows an answer under TLS is decrypted together with its end, and stands in no socket: the next call must not take
// it for its own answer.
func TestBytesBehindAnAnswerUnderTLS(t *testing.T) {
	body := `{"model":"` + strings.Repeat("x", 40_000) + `"}`
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%sHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray", len(body), body)
		_, _ = c.Read(make([]byte, 1)) // until it is closed, or asked again
	}))
	defer srv.Close()
	r := newRig(t, Options{}, openai("a", srv.URL))
	r.client.trust.RootCAs = x509.NewCertPool()
	r.client.trust.RootCAs.AddCert(srv.Certificate())
	for i := range 3 {
		if _, got, err := r.call(); err != nil || got != body {
			t.Fatalf("call %d: %.40q, %v", i, got, err)
		}
	}
}

// Whoever is silent has no buffer: neither a stream between two events nor a connection between two answers.
func TestSilenceTakesNoBuffer(t *testing.T) {
	more := make(chan bool)
	s := newStub(t, func(x *exchange) bool {
		x.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		x.chunk(chunkEvent(1))
		<-more
		x.chunk(chunkEvent(2))
		<-more
		return x.send("0\r\n\r\n")
	})
	r := newRig(t, Options{}, openai("a", s.url))
	resp := r.open()
	defer resp.Close()
	for i := range 2 {
		if raw, err := resp.Next(); string(raw) != chunkEvent(i+1) {
			t.Fatalf("%q, %v", raw, err)
		}
		if raw, err := resp.NextWithin(time.Millisecond); raw != nil || err != nil || resp.conn.buf != nil {
			t.Fatalf("%q, %v, and a buffer of %d bytes", raw, err, len(resp.conn.buf))
		}
		more <- true
	}
	p := &resp.lane.pool
	if _, err := resp.Next(); err != io.EOF {
		t.Fatal(err)
	}
	c := p.pop(r.clock.Mono())
	if c == nil || c.buf != nil {
		t.Fatalf("%+v", c)
	}
	p.drop(c)
}
