package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// line is one kept-alive client connection.
type line struct {
	net.Conn
	in *bufio.Reader
}

func (r *rig) line() *line {
	c, err := net.Dial("tcp", r.addr)
	must(r.t, err)
	r.t.Cleanup(func() { _ = c.Close() })
	must(r.t, c.SetDeadline(time.Now().Add(30*time.Second)))
	return &line{c, bufio.NewReader(c)}
}

func (l *line) ask(r *rig, sim string) {
	body := chat("gpt-4o", "")
	_, err := fmt.Fprintf(l, "POST /v1/chat/completions HTTP/1.1\r\nHost: weir\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nx-sim: %s\r\nContent-Length: %d\r\n\r\n%s",
		r.token, sim, len(body), body)
	must(r.t, err)
}

// answer reads one answer and tells whether the connection stays open after it.
func (l *line) answer(r *rig) (kept bool) {
	r.t.Helper()
	resp, err := http.ReadResponse(l.in, nil)
	must(r.t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	must(r.t, err)
	if resp.StatusCode != 200 {
		r.t.Fatalf("status %d", resp.StatusCode)
	}
	return !resp.Close
}

// works tells whether the connection is still open, by using it.
func (l *line) works(r *rig) bool {
	if _, err := io.WriteString(l, "GET /healthz HTTP/1.1\r\nHost: weir\r\n\r\n"); err != nil {
		return false
	}
	resp, err := http.ReadResponse(l.in, nil)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil
}

func crowdedRig(t *testing.T) *rig {
	return newRig(t, func(s *setup) { s.options.Connections = 4 })
}

func TestIdleConnectionsDoNotLockOthersOut(t *testing.T) {
	r := crowdedRig(t)
	silent := r.line() // says nothing, ever
	var kept []*line
	for range 3 {
		l := r.line()
		l.ask(r, "")
		if !l.answer(r) {
			t.Fatal("the connection was not kept")
		}
		kept = append(kept, l)
	}
	kept[0].ask(r, "")
	kept[0].answer(r) // so the others have been idle for longer
	for range 2 {
		l := r.line()
		l.ask(r, "")
		l.answer(r)
	}
	kept[0].ask(r, "")
	kept[0].answer(r) // the one used last is still there
	closed := 0
	for _, l := range []*line{silent, kept[1], kept[2]} {
		if !l.works(r) {
			closed++
		}
	}
	if closed != 2 {
		t.Errorf("%d idle connections were closed for 2 others", closed)
	}
}

// Who has a request in flight keeps the connection; who waits is served as soon as an answer is out.
func TestBusyConnectionsAreNotClosedForOthers(t *testing.T) {
	r := crowdedRig(t)
	var busy []*line
	for range 4 {
		l := r.line()
		l.ask(r, "latency=2s")
		busy = append(busy, l)
	}
	waits := r.line()
	waits.ask(r, "")
	closed := 0
	for _, l := range busy {
		if !l.answer(r) {
			closed++
		}
	}
	waits.answer(r)
	if closed == 0 {
		t.Error("no answer made room")
	}
}
