package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shiftClock is the machine's clock whose Mono can be moved ahead: cool-downs pass at will, deadlines stay real.
type shiftClock struct {
	*llm.SystemClock
	shift atomic.Int64
}

func newShiftClock() *shiftClock { return &shiftClock{SystemClock: llm.NewSystemClock()} }

func (c *shiftClock) Mono() time.Duration {
	return c.SystemClock.Mono() + time.Duration(c.shift.Load())
}
func (c *shiftClock) advance(d time.Duration) { c.shift.Add(int64(d)) }

// stub is an upstream made of raw bytes: handle gets every request and writes what it likes.
type stub struct {
	url      string
	requests atomic.Int64
	accepted atomic.Int64
	ln       net.Listener
	wg       sync.WaitGroup
	mu       struct {
		sync.Mutex
		conns map[net.Conn]bool
	}
}

// exchange is one request at a stub. Handlers return false to close the connection.
type exchange struct {
	net.Conn
	req  *http.Request
	body string
	n    int64 // of all requests, from 1
}

func (x *exchange) send(s string) bool {
	_, err := io.WriteString(x.Conn, s)
	return err == nil
}

func (x *exchange) answer(status int, extra, body string) bool {
	return x.send(fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", status, extra, len(body), body))
}

// stream sends an event stream in the given chunks.
func (x *exchange) stream(parts ...string) bool {
	x.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
	for _, p := range parts {
		if !x.chunk(p) {
			return false
		}
	}
	return x.send("0\r\n\r\n")
}

func (x *exchange) chunk(p string) bool { return x.send(fmt.Sprintf("%x\r\n%s\r\n", len(p), p)) }

// gone waits until the peer has closed.
func (x *exchange) gone(within time.Duration) bool {
	x.SetReadDeadline(time.Now().Add(within))
	_, err := x.Read(make([]byte, 1))
	return err != nil && !timedOut(err)
}

func newStub(t testing.TB, handle func(x *exchange) bool) *stub {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &stub{url: "http://" + ln.Addr().String(), ln: ln}
	s.mu.conns = map[net.Conn]bool{}
	s.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.accepted.Add(1)
			s.mu.Lock()
			s.mu.conns[c] = true
			s.mu.Unlock()
			s.wg.Go(func() { s.serve(c, handle) })
		}
	})
	t.Cleanup(func() {
		s.left(t)
		s.stop()
	})
	return s
}

// left checks that nobody is connected any more: the client is closed by now, and has counted its connections away. A socket that
// is lost and not closed is collected some time, so it is looked at soon.
func (s *stub) left(t testing.TB) {
	if t.Failed() {
		return
	}
	eventually(t, "every connection to "+s.url+" is closed", func() bool { return s.open() == 0 })
}

func (s *stub) serve(c net.Conn, handle func(x *exchange) bool) {
	defer s.forget(c)
	br := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		if !handle(&exchange{c, req, string(body), s.requests.Add(1)}) {
			return
		}
	}
}

func (s *stub) forget(c net.Conn) {
	c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.conns, c)
}

// open is how many connections there are to it.
func (s *stub) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.conns)
}

// drop closes all connections from the server's side.
func (s *stub) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.mu.conns {
		c.Close()
		delete(s.mu.conns, c)
	}
}

func (s *stub) stop() {
	s.ln.Close()
	s.drop()
	s.wg.Wait()
}

// reset makes the close that follows an abortive one.
func (x *exchange) reset() bool {
	x.Conn.(*net.TCPConn).SetLinger(0)
	return false
}

// watcher is a Hold that writes down what it is told.
type watcher struct {
	mu   sync.Mutex
	told []string
	deny map[string]bool
	wait time.Duration // until those are asked again
}

func (w *watcher) note(what string, ch *Channel) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, what+" "+ch.Name)
}

func (w *watcher) Attempt(ch *Channel) (room bool, wait time.Duration) {
	w.note("attempt", ch)
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.deny[ch.Name], w.wait
}
func (w *watcher) Sent(ch *Channel)    { w.note("sent", ch) }
func (w *watcher) Refused(ch *Channel) { w.note("refused", ch) }

func (w *watcher) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.told, ", ")
}

// rig is a client over one catalog.
type rig struct {
	t      testing.TB
	clock  *shiftClock
	client *Client
	cat    *Catalog
}

func newRig(t testing.TB, o Options, channels ...Channel) *rig {
	t.Helper()
	r := &rig{t: t, clock: newShiftClock()}
	r.client = NewClient(o, r.clock)
	t.Cleanup(r.client.Close)
	r.cat = mustCatalog(t, []Model{{Name: "m"}, {Name: "renamed", Target: "org/inner"}}, channels)
	r.client.Follow(r.cat)
	return r
}

func mustCatalog(t testing.TB, models []Model, channels []Channel) *Catalog {
	t.Helper()
	cat, err := NewCatalog(models, channels)
	if err != nil {
		t.Fatal(err)
	}
	return cat
}

func openai(name, url string) Channel {
	return Channel{Name: name, Provider: "openai", BaseURL: url, Credential: "sk-secret-" + name}
}

const (
	plainBody  = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	streamBody = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`
)

func newRequest(t testing.TB, cat *Catalog, ep llm.Endpoint, body string) *Request {
	t.Helper()
	req := &Request{Head: new(llm.Head), Body: []byte(body), RequestID: "req-1"}
	if err := llm.ScanHead(ep, req.Body, req.Head); err != nil {
		t.Fatal(err)
	}
	m, ok := cat.Model(req.Head.Model.In(req.Body))
	if !ok {
		t.Fatalf("model of %s is unknown", body)
	}
	req.Model = m
	return req
}

func (r *rig) do(ctx context.Context, body string, hold Hold) (*Response, error) {
	return r.client.Do(ctx, r.cat, newRequest(r.t, r.cat, llm.Chat, body), hold)
}

// call makes a whole buffered call.
func (r *rig) call() (status int, body string, err error) {
	resp, err := r.do(context.Background(), plainBody, new(watcher))
	if err != nil {
		return 0, "", err
	}
	defer resp.Close()
	b, err := resp.Body()
	return resp.Status, string(b), err
}

// events reads a stream to its end.
func (r *rig) stream() (events []string, err error) {
	resp, err := r.do(context.Background(), streamBody, new(watcher))
	if err != nil {
		return nil, err
	}
	defer resp.Close()
	return readAll(resp)
}

func readAll(resp *Response) (events []string, err error) {
	p := NewParser(llm.Chat)
	for {
		raw, err := resp.Next()
		if err == io.EOF {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		p.Parse(raw, func(e *Event) { events = append(events, string(e.Raw)) })
	}
}

func asError(t testing.TB, err error, kind llm.Kind) *llm.Error {
	t.Helper()
	var e *llm.Error
	if !errors.As(err, &e) || e.Kind != kind {
		t.Fatalf("got %T %v; want an *llm.Error of kind %d", err, err, kind)
	}
	return e
}

// idle tells how many connections a channel has open, and how many of them are idle.
func (r *rig) conns(channel string) (open, idle int) {
	for _, ch := range r.cat.Channels() {
		if ch.Name == channel {
			p := &r.client.lane(ch).pool
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.mu.count, len(p.mu.idle)
		}
	}
	r.t.Fatalf("no channel %s", channel)
	return 0, 0
}

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if cond() {
			return
		}
	}
	t.Fatal("never happened: " + what)
}

func contains(t testing.TB, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Fatalf("%q does not contain %q", got, want)
	}
}
