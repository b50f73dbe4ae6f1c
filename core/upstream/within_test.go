package upstream

import (
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// A reader that waits for so long is told that nothing came, as often as nothing comes, and loses nothing by it: not the
// beginning of an event, and not the end of the silence.
func TestNextWithin(t *testing.T) {
	next := make(chan string)
	s := newStub(t, func(x *exchange) bool {
		x.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		for part := range next {
			x.chunk(part)
		}
		return !x.gone(20 * time.Second)
	})
	r := newRig(t, Options{IdleTimeoutMS: 1500}, openai("a", s.url))
	resp := r.open()
	defer resp.Close()
	quiet := func(d time.Duration) {
		t.Helper()
		if raw, err := resp.NextWithin(d); raw != nil || err != nil {
			t.Fatalf("%q, %v", raw, err)
		}
	}
	quiet(10 * time.Millisecond)
	quiet(10 * time.Millisecond)
	whole := chunkEvent(1)
	next <- whole[:10]
	quiet(100 * time.Millisecond)
	next <- whole[10:]
	if raw, err := resp.NextWithin(20 * time.Second); string(raw) != whole || err != nil {
		t.Fatalf("%q, %v", raw, err)
	}
	close(next)
	start, times := time.Now(), 0
	for {
		raw, err := resp.NextWithin(30 * time.Millisecond)
		if raw == nil && err == nil {
			times++
			continue
		}
		asError(t, err, llm.KindTimeout)
		break
	}
	if took := time.Since(start); times == 0 || times > 50 || took < 1490*time.Millisecond {
		t.Errorf("given up after %v and %d times", took, times)
	}
}

// An event that comes a byte at a time is no reason to be silent for longer.
func TestNextWithinATricklingEvent(t *testing.T) {
	stop := make(chan struct{})
	s := newStub(t, func(x *exchange) bool {
		x.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		for x.chunk("x") {
			select {
			case <-stop:
				return false
			case <-time.After(5 * time.Millisecond):
			}
		}
		return false
	})
	r := newRig(t, Options{}, openai("a", s.url))
	resp := r.open()
	defer resp.Close()
	ended := time.AfterFunc(20*time.Second, func() { close(stop) })
	for range 3 {
		if raw, err := resp.NextWithin(20 * time.Millisecond); raw != nil || err != nil {
			t.Fatalf("%q, %v", raw, err)
		}
	}
	if !ended.Stop() {
		t.Error("it waited for the event")
	} else {
		close(stop)
	}
}

// The same under TLS, where a read that was given up may have come to the middle of a record.
func TestNextWithinUnderTLS(t *testing.T) {
	next := make(chan struct{})
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			_ = http.NewResponseController(w).Flush()
			<-next
			_, _ = io.WriteString(w, chunkEvent(i))
		}
	}))
	defer srv.Close()
	r := newRig(t, Options{}, openai("a", srv.URL))
	r.client.trust.RootCAs = x509.NewCertPool()
	r.client.trust.RootCAs.AddCert(srv.Certificate())
	resp := r.open()
	defer resp.Close()
	for i := range 3 {
		if raw, err := resp.NextWithin(20 * time.Millisecond); raw != nil || err != nil {
			t.Fatalf("%q, %v", raw, err)
		}
		next <- struct{}{}
		if raw, err := resp.NextWithin(20 * time.Second); string(raw) != chunkEvent(i) || err != nil {
			t.Fatalf("%q, %v", raw, err)
		}
	}
}
