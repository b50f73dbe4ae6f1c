package admin_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/admin"
	"github.com/weir-gateway/weir/core/llm"
)

// dripping sends parts of a body to the API, so long apart, until it is answered; how long that took.
func dripping(t *testing.T, server *httptest.Server, announced int, part string, every time.Duration) (status int, text string, took time.Duration) {
	t.Helper()
	c, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	began, over := time.Now(), make(chan struct{})
	go func() {
		_, err := fmt.Fprintf(c, "POST /admin/orgs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n{", adminToken, announced)
		for sent := 1; err == nil && sent < announced; sent += len(part) {
			select {
			case <-over:
				return
			case <-time.After(every):
			}
			_, err = io.WriteString(c, part[:min(len(part), announced-sent)])
		}
	}()
	defer close(over)
	_ = c.SetReadDeadline(began.Add(30 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw), time.Since(began)
}

// A body that brings nearly nothing is cut after the time that a head has, whoever sends it; one that brings enough may take
// longer, though not for ever.
func TestASlowBodyIsCut(t *testing.T) {
	t.Parallel()
	const head, within = time.Second, 4 * time.Second
	f := newFixture(t)
	server := httptest.NewUnstartedServer(admin.Steady(f.handler, llm.NewSystemClock(), head, within))
	server.Config.ReadTimeout = time.Minute
	server.Start()
	defer server.Close()
	status, text, took := dripping(t, server, 100, "x", 100*time.Millisecond)
	if status != http.StatusRequestTimeout || !strings.Contains(text, "request_timeout") || took < head || took > 20*head {
		t.Errorf("a byte at a time: %d after %v: %s", status, took, text)
	}
	if status, text, took := dripping(t, server, 9000, strings.Repeat(" ", 300), 50*time.Millisecond); status != http.StatusBadRequest || took < head || !strings.Contains(text, "JSON") {
		t.Errorf("6 KB a second: %d after %v: %s", status, took, text)
	}
	if status, _, took := dripping(t, server, 60_000, strings.Repeat(" ", 300), 50*time.Millisecond); status != http.StatusRequestTimeout || took < within {
		t.Errorf("for too long: %d after %v", status, took)
	}
}
