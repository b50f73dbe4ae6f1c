package proxy_test

import (
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// stopped asks for a stream of 10 MB, reads a little of it and stops. Its own system keeps little for it.
func (r *rig) stopped(x route) *net.TCPConn {
	r.t.Helper()
	small := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 8<<10) })
	}}
	c, err := small.Dial("tcp", r.addr)
	must(r.t, err)
	r.t.Cleanup(func() { _ = c.Close() })
	body := strings.Replace(streamed(x), ":50", ":20000000", 1)
	_, err = io.WriteString(c, r.rawHead(x.path, "Authorization: Bearer ", r.token, "\r\nx-sim: bytes=10MB,nocap\r\nContent-Length: ", itoa(len(body)), "\r\n\r\n", body))
	must(r.t, err)
	_, err = io.ReadFull(c, make([]byte, 1<<20))
	must(r.t, err)
	return c.(*net.TCPConn)
}

// S07: a client that stops reading is cut when the deadline of one write has passed, on every route that streams: the
// upstream is closed, what was relayed is charged, and no more than 256 KiB were waiting for the client.
func TestS07AStoppedReaderIsCut(t *testing.T) {
	r := newRig(t, func(s *setup) {
		s.options.WriteTimeoutMS = 1000
		s.upstream.HeaderTimeoutMS = 60_000 // the upstream makes all of an answer's text before its head
		s.balance = 1 << 50
	})
	r.leavesNothing()
	for _, x := range streams() {
		c := r.stopped(x)
		start := time.Now()
		r.idle()
		eventually(t, func() bool { return r.sim.Stats().Open == 0 }, "the upstream still works for a client that has stopped")
		if took := time.Since(start); took < 500*time.Millisecond || took > patience*10*time.Second {
			t.Errorf("%s: cut after %v", x.path, took)
		}
		if e := r.journal.last(t); e.Status != llm.StatusPartial || e.Usage.OutputTokens < 1000 || e.Cost == 0 {
			t.Errorf("%s: %+v", x.path, e)
		}
		must(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
		if n, _ := io.Copy(io.Discard, c); n > 256<<10 {
			t.Errorf("%s: %d bytes were waiting for a client that has stopped", x.path, n)
		}
	}
}

// A client that reads slowly is not cut, however long its stream takes beyond the deadline of one write.
func TestS07ASlowReaderIsServed(t *testing.T) {
	r := newRig(t, func(s *setup) {
		s.options.WriteTimeoutMS = 1500
		s.balance = 1 << 50
	})
	c := r.stopped(everyRoute[0])
	piece := make([]byte, 16<<10)
	for start := time.Now(); time.Since(start) < 3*time.Second; time.Sleep(100 * time.Millisecond) {
		_, err := io.ReadFull(c, piece)
		must(t, err)
	}
	if r.limits.Open() != 1 {
		t.Error("a slow reader was cut")
	}
	_ = c.Close()
	r.idle()
}
