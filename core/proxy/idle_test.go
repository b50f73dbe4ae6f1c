package proxy_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
)

// TestIdleConnectionsAreSmall: a connection that has been served and is kept holds no buffer, on either side of it.
func TestIdleConnectionsAreSmall(t *testing.T) {
	const n, most = 500, 8 << 10
	r := newRig(t)
	ask := func(c net.Conn) {
		_, err := io.WriteString(c, "GET /health HTTP/1.1\r\nHost: weir\r\n\r\n")
		must(t, err)
		resp, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil)
		must(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		must(t, err)
	}
	conns := make([]net.Conn, n)
	before := heap()
	for i := range conns {
		c, err := net.Dial("tcp", r.addr)
		must(t, err)
		defer func() { _ = c.Close() }()
		conns[i] = c
		ask(c)
	}
	each := (heap() - before) / n
	t.Logf("%d bytes each", each)
	if each > most {
		t.Errorf("an idle connection occupies %d bytes, more than %d", each, most)
	}
	for _, c := range conns {
		ask(c)
	}
}

// heap is what is in use, behind two collections: the first empties the pools into their victims.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
