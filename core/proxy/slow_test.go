package proxy_test

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/proxy"
)

var long = flag.Bool("long", false, "as many slow clients as are promised, and every bound without slack: for a machine with nothing else to do")

// slowOnes are how many slow clients there are, how soon they must be gone, and by how much they may move the p99 of others.
func slowOnes() (n int, options proxy.Options, gone, moved time.Duration) {
	if *long {
		return 2000, proxy.Options{}, 10 * time.Second, 5 * time.Millisecond
	}
	return 200, proxy.Options{HeadTimeoutMS: 500}, 5 * time.Second * patience, 50 * time.Millisecond * patience
}

// A client that sends a byte a second, of the head or of the body, is told so and gone within ten seconds; others do not
// notice.
func TestSlowClientsAreGone(t *testing.T) {
	n, options, gone, moved := slowOnes()
	r := newRig(t, func(s *setup) { s.options = options })
	r.leavesNothing()
	least := time.Hour
	for round := 0; round < 3 && least > moved; round++ { // what else the machine does moves a p99 too
		alone := r.p99(time.Second)
		took, beside := r.besideSlowOnes(n)
		if took > gone {
			t.Errorf("they were gone after %v, want within %v", took, gone)
		}
		least = min(least, beside-alone)
		t.Logf("%d clients were gone after %v; the p99 of others %v, beside them %v", n, took, alone, beside)
	}
	if least > moved {
		t.Errorf("the p99 of others moved by %v, want at most %v", least, moved)
	}
}

// besideSlowOnes is how long n slow clients live, all of which must be told why they end, and the p99 of others meanwhile.
func (r *rig) besideSlowOnes(n int) (took, beside time.Duration) {
	var clients sync.WaitGroup
	var told atomic.Int64
	began := time.Now()
	for i := range n {
		clients.Go(func() {
			head := postLine
			if i%2 == 1 {
				head = r.rawHead("/v1/chat/completions", "Authorization: Bearer ", r.token, "\r\nContent-Length: 5000\r\n\r\n{")
			}
			if r.trickle(head) {
				told.Add(1)
			}
		})
	}
	beside = r.p99(time.Second)
	clients.Wait()
	if told.Load() != int64(n) {
		r.t.Errorf("%d of %d were told", told.Load(), n)
	}
	return time.Since(began), beside
}

// trickle sends a byte a second behind head until the gateway ends it; true when it said why.
func (r *rig) trickle(head string) bool {
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Error(err)
		return false
	}
	defer func() { _ = c.Close() }()
	over := make(chan struct{})
	go func() {
		for _, err := io.WriteString(c, head); err == nil; _, err = c.Write([]byte{'a'}) {
			select {
			case <-over:
				return
			case <-time.After(time.Second):
			}
		}
	}()
	b, _ := io.ReadAll(c) // a reset behind the answer is an end too
	close(over)
	return strings.HasPrefix(string(b), "HTTP/1.1 408 ") && strings.Contains(string(b), "request_timeout")
}

// p99 is that of good requests, one after the other, for a while.
func (r *rig) p99(window time.Duration) time.Duration {
	var took []time.Duration
	for end := time.Now().Add(window); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		began := time.Now()
		r.post("/v1/chat/completions", chat("gpt-4o", `,"max_tokens":5`), "x-sim", "out=5").want(r.t, 200)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// A body may come slowly, when it comes.
func TestABodyThatComesIsRead(t *testing.T) {
	r := newRig(t, func(s *setup) { s.options = proxy.Options{HeadTimeoutMS: 1500} })
	body := chat("gpt-4o", `,"max_tokens":5,"user":"`+strings.Repeat("u", 8000)+`"`)
	c, err := net.Dial("tcp", r.addr)
	must(t, err)
	defer func() { _ = c.Close() }()
	_, err = io.WriteString(c, r.rawHead("/v1/chat/completions", "Authorization: Bearer ", r.token, "\r\nContent-Length: ", itoa(len(body)), "\r\n\r\n"))
	must(t, err)
	for part := range slices.Chunk([]byte(body), 500) { // 2.5 s in all
		time.Sleep(150 * time.Millisecond)
		_, err = c.Write(part)
		must(t, err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	must(t, err)
	if _ = resp.Body.Close(); resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// Who leaves is noticed however long the upstream is silent: the time in which a request must be read is no time for its
// answer.
func TestALeaverIsNoticedLate(t *testing.T) {
	for name, options := range map[string]proxy.Options{"head": {HeadTimeoutMS: 1000}, "all": {ReadTimeoutMS: 1000}} {
		r := newRig(t, func(s *setup) { s.options = options })
		c, err := net.Dial("tcp", r.addr)
		must(t, err)
		body := chat("gpt-4o", "")
		head := r.rawHead("/v1/chat/completions", "x-sim: latency=60s\r\nAuthorization: Bearer ", r.token, "\r\nContent-Length: ", itoa(len(body)), "\r\n\r\n")
		_, err = io.WriteString(c, head)
		must(t, err)
		time.Sleep(20 * time.Millisecond)
		_, err = io.WriteString(c, body)
		must(t, err)
		eventually(t, func() bool { return r.limits.Open() == 1 }, name+": nothing is held")
		time.Sleep(1200 * time.Millisecond)
		must(t, c.Close())
		left := time.Now()
		eventually(t, func() bool { return r.limits.Open() == 0 }, name+": a reservation stays open")
		if took := time.Since(left); took > time.Second*patience {
			t.Errorf("%s: noticed after %v", name, took)
		}
	}
}

// fire is an upstream whose streams never end. Its memory is no part of what is measured: all streams are one text.
func fire(t *testing.T) (url string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	const event = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hello\"}}]}\n\n"
	chunk := []byte(strings.Repeat(event, 500))
	chunk = fmt.Appendf(nil, "%x\r\n%s\r\n", len(chunk), chunk)
	var open sync.WaitGroup
	open.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				defer func() { _ = c.Close() }()
				_, err := strictRequest(bufio.NewReaderSize(c, 512))
				if err == nil {
					_, err = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
				}
				for err == nil {
					_, err = c.Write(chunk)
				}
			})
		}
	})
	t.Cleanup(func() { _ = ln.Close(); open.Wait() })
	return "http://" + ln.Addr().String()
}

// narrow is a listener whose sockets keep little of what is written, so that a client that does not read is soon felt.
type narrow struct{ net.Listener }

func (n narrow) Accept() (net.Conn, error) {
	c, err := n.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(4 << 10)
	}
	return c, err
}

// Readers that stop are cut, and what they did not read is not kept for them.
func TestReadersThatStopAreCut(t *testing.T) {
	n, options := 100, proxy.Options{WriteTimeoutMS: 1000}
	if *long {
		n, options = 1000, proxy.Options{WriteTimeoutMS: 10_000}
	}
	url := fire(t)
	r := newRig(t, func(s *setup) {
		s.options, s.user.Unmetered = options, true
		s.catalog = func(c *catalog) { c.channels[0].BaseURL = url }
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	served := make(chan error, 1)
	go func() { served <- r.server.Serve(narrow{ln}) }()
	r.leavesNothing()
	before := heapInUse()
	body := chat("gpt-4o", `,"stream":true,"max_tokens":20000000`)
	for range n {
		c, err := net.Dial("tcp", ln.Addr().String())
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		must(t, c.(*net.TCPConn).SetReadBuffer(4<<10))
		_, err = io.WriteString(c, r.rawHead("/v1/chat/completions", "Authorization: Bearer ", r.token, "\r\nContent-Length: ", itoa(len(body)), "\r\n\r\n", body))
		must(t, err)
	}
	most, atOnce := int64(0), 0
	eventually(t, func() bool {
		open := r.limits.Open()
		most, atOnce = max(most, heapInUse()-before), max(atOnce, open)
		return open == 0 && len(r.journal.of(llm.EntryReserve)) == n
	}, "a reader that stopped is served for ever")
	t.Logf("%d bytes for %d readers, %d at once", most, n, atOnce)
	if most > int64(atOnce)*256<<10*patience { // a slow machine has cut the first before the last has come
		t.Errorf("%d bytes for each reader that stopped, %d at once", most/int64(atOnce), atOnce)
	}
	for _, e := range r.journal.of(llm.EntrySettle) {
		if e.Status != llm.StatusPartial {
			t.Errorf("settled as %v", e.Status)
		}
	}
	r.close()
	must(t, <-served)
}
