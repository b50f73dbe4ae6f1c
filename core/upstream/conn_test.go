package upstream

import (
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What follows an answer under TLS is decrypted together with its end, and stands in no socket: the next call must not take
// it for its own answer.
func TestBytesBehindAnAnswerUnderTLS(t *testing.T) {
	body := `{"ok":"` + strings.Repeat("x", 40_000) + `"}`
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
