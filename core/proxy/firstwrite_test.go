package proxy_test

import (
	"bytes"
	"net"
	"sync"
	"testing"
)

// writes is a listener that remembers what each Write to its connections was.
type writes struct {
	net.Listener
	mu  sync.Mutex
	all [][]byte
}

func (w *writes) Accept() (net.Conn, error) {
	c, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &written{c.(*net.TCPConn), w}, nil
}

type written struct {
	*net.TCPConn
	to *writes
}

func (c *written) Write(p []byte) (int, error) {
	c.to.mu.Lock()
	c.to.all = append(c.to.all, bytes.Clone(p))
	c.to.mu.Unlock()
	return c.TCPConn.Write(p)
}

// The first event of a stream is there before its head is sent, so they go together: a write costs a client's wake-up.
func TestTheFirstEventTakesTheHeadAlong(t *testing.T) {
	served := make(chan error, 1)
	t.Cleanup(func() { must(t, <-served) }) // behind the rig's
	r := newRig(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w := &writes{Listener: ln}
	go func() { served <- r.server.Serve(w) }()
	r.base = "http://" + ln.Addr().String()
	for _, x := range streams() {
		w.mu.Lock()
		w.all = nil
		w.mu.Unlock()
		r.post(x.path, streamed(x))
		w.mu.Lock()
		if first := w.all[0]; !bytes.HasPrefix(first, []byte("HTTP/1.1 200 OK\r\n")) || !bytes.Contains(first, []byte("data: ")) {
			t.Errorf("%s: the first write is\n%s", x.path, first)
		}
		w.mu.Unlock()
	}
}
