package proxy_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// dropped is an upstream of raw bytes. Whoever asks with the word secret gets a stream that says it and goes wrong
// somewhere; everybody else gets a whole one.
type dropped struct {
	url      string
	accepted atomic.Int64
	served   atomic.Int64
}

func newDropped(t *testing.T) *dropped {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	d := &dropped{url: "http://" + ln.Addr().String()}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			d.accepted.Add(1)
			open.Go(func() { d.serve(c) })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); open.Wait() })
	return d
}

func (d *dropped) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	for {
		q, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return
		}
		n := d.served.Add(1)
		said, end := tale(q.URL.Path, "secret")
		if !bytes.Contains(body, []byte("secret")) {
			said, end = tale(q.URL.Path, "mine")
			n = -1
		}
		_, err = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"+inChunk(said))
		if err != nil || !d.finish(c, n, said, end) {
			return
		}
	}
}

// finish ends a stream in one of the ways; false: the connection is not to be used again. Those that stop half way stop
// until the gateway closes; would it ask for something else instead, it would get the other half.
func (d *dropped) finish(c net.Conn, n int64, said, end string) bool {
	first, second := inChunk(end)+"0\r\n\r\n", ""
	switch n % 4 {
	case 0: // in the middle of a chunk
		first, second = fmt.Sprintf("%x\r\n%s", 2*len(said), said), said+"\r\n"+first
	case 1: // in the middle of its size
		first, second = inChunk(said)[:1], inChunk(said)[1:]+first
	case 2: // between two chunks, in the middle of an event
		first, second = inChunk(said+said[:len(said)/2]), inChunk(said[len(said)/2:])+first
	case 3: // nearly complete: the client's leaving races with the connection's return
		if _, err := io.WriteString(c, inChunk(said)+inChunk(end)+"0\r\n\r"); err != nil {
			return false
		}
		first = "\n"
	}
	if _, err := io.WriteString(c, first); err != nil {
		return false
	}
	if second == "" {
		return true
	}
	if k, _ := c.Read(make([]byte, 1)); k > 0 {
		_, _ = io.WriteString(c, second)
	}
	return false
}

func inChunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

// tale is an event that says a word, and the end of a stream, in the dialect of a route.
func tale(path, word string) (said, end string) {
	switch path {
	case "/v1/messages":
		return "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"" + word + "\"}}\n\n",
			"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	case "/v1/responses":
		return "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"" + word + "\"}\n\n",
			"event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{}}\n\n"
	case "/v1/completions":
		return lines(`{"choices":[{"index":0,"text":"` + word + `"}]}`), lines("[DONE]")
	}
	return lines(`{"choices":[{"index":0,"delta":{"content":"` + word + `"}}]}`), lines("[DONE]")
}

// S08: a thousand streams, of every route, are aborted by their clients, each in the middle of a chunk or where it hurts most, and the
// next request goes to the same host at once: no byte of the one before reaches it.
func TestS08AThousandAbortedStreamsStayApart(t *testing.T) {
	up := newDropped(t)
	r := newRig(t, func(s *setup) {
		s.catalog = func(c *catalog) { c.channels[0].BaseURL, c.channels[1].BaseURL = up.url, up.url }
	})
	r.leavesNothing()
	ask := func(x route, word string) string {
		return strings.Replace(x.with(`,"stream":true`), "hello", word, 1)
	}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 250 {
				x := streams()[(i+w)%4]
				a := r.chunks(x.path, ask(x, "secret"))
				if got, err := a.next(); err != nil || !bytes.Contains(got, []byte("secret")) {
					t.Errorf("A saw %q, %v", got, err)
				}
				if i%3 == 0 {
					_ = a.Conn.(*net.TCPConn).SetLinger(0) // a reset instead of an end
				}
				_ = a.Close()
				p := r.post(x.path, ask(x, "mine"))
				said, end := tale(x.path, "mine")
				if p.status != 200 || p.err != nil || string(p.body) != said+end {
					t.Errorf("B saw %d, %q, %v", p.status, p.body, p.err)
				}
			}
		})
	}
	wg.Wait()
	r.idle()
	if served, accepted := up.served.Load(), up.accepted.Load(); served != 2000 || accepted > 1600 {
		t.Errorf("%d requests over %d connections: the test is about those that change hands", served, accepted)
	}
}
