package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// player is an upstream each of whose answers is a stream that the test plays.
type player struct {
	*httptest.Server
	answers chan *played
	over    <-chan struct{} // the test
}

// played is one answer: packet by packet, until it ends or nobody is there to read it. What nobody read is no other answer's.
type played struct {
	packets chan []byte
	over    <-chan struct{} // the request
}

func newPlayer(t *testing.T) *player {
	p := &player{answers: make(chan *played), over: t.Context().Done()}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		ctx, end := context.WithCancel(q.Context())
		defer end()
		a := &played{packets: make(chan []byte), over: ctx.Done()}
		select {
		case p.answers <- a:
		case <-a.over:
		}
		for b := a.take(); len(b) > 0; b = a.take() {
			_, _ = w.Write(b)
			_ = http.NewResponseController(w).Flush()
		}
	}))
	t.Cleanup(p.Close)
	return p
}

// play is the answer to the next request.
func (p *player) play() *played {
	select {
	case a := <-p.answers:
		return a
	case <-p.over:
	case <-time.After(20 * time.Second): // there is none
	}
	over := make(chan struct{})
	close(over)
	return &played{over: over}
}

// whole plays the answer to the next request, all of it, in packets of a size.
func (p *player) whole(stream []byte, size int) {
	a := p.play()
	a.send(stream, size)
	a.end()
}

// take is the next packet; none at the end.
func (a *played) take() []byte {
	select {
	case b := <-a.packets:
		return b
	case <-a.over:
		return nil
	}
}

// send hands b over in packets of a size.
func (a *played) send(b []byte, size int) {
	for len(b) > 0 {
		n := min(size, len(b))
		a.give(b[:n])
		b = b[n:]
	}
}

func (a *played) end() { a.give(nil) }

func (a *played) give(b []byte) {
	select {
	case a.packets <- b:
	case <-a.over:
	}
}

// chunks is a client that sees a streamed answer as it stands on the wire, chunk by chunk.
type chunks struct {
	net.Conn
	in   *bufio.Reader
	head string // "" until the first chunk is read: the head may wait for it
}

func (r *rig) chunks(path, body string) *chunks {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	must(r.t, err)
	must(r.t, c.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = io.WriteString(c, r.rawHead(path, "Authorization: Bearer ", r.token, "\r\nContent-Length: ", itoa(len(body)), "\r\n\r\n", body))
	must(r.t, err)
	return &chunks{Conn: c, in: bufio.NewReader(c)}
}

// begin reads the head.
func (c *chunks) begin() error {
	for !strings.HasSuffix(c.head, "\r\n\r\n") {
		line, err := c.in.ReadString('\n')
		if err != nil {
			return err
		}
		c.head += line
	}
	if !strings.HasPrefix(c.head, "HTTP/1.1 200 ") || !strings.Contains(c.head, "Transfer-Encoding: chunked\r\n") {
		return fmt.Errorf("the head is %s", c.head)
	}
	return nil
}

// next reads one chunk; the last one is empty.
func (c *chunks) next() ([]byte, error) {
	if err := c.begin(); err != nil {
		return nil, err
	}
	size, err := c.in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(size, "\r\n"), 16, 32)
	if err != nil {
		return nil, err
	}
	b := make([]byte, n+2)
	if _, err = io.ReadFull(c.in, b); err == nil && string(b[n:]) != "\r\n" {
		err = fmt.Errorf("a chunk ends in %q", b[n:])
	}
	return b[:n], err
}

// framing is one way to write a stream's events: how the simulation calls it, and the end of its lines.
type framing struct{ name, nl string }

func framings() (all []framing) {
	for _, end := range []framing{{"lf", "\n"}, {"crlf", "\r\n"}, {"cr", "\r"}} {
		for _, how := range []string{"", "|nospace", "|multiline", "|comments", "|nospace|multiline|comments"} {
			all = append(all, framing{end.name + how, end.nl})
		}
	}
	return all
}

// recorded is a stream as the simulation sends it, and its events.
func (r *rig) recorded(x route, how string, f framing) (stream []byte, events [][]byte) {
	r.t.Helper()
	req, err := http.NewRequest(http.MethodPost, r.simURL+x.path, strings.NewReader(streamed(x)))
	must(r.t, err)
	req.Header.Set("x-sim", how+",framing="+f.name)
	p := r.do(req)
	events = bytes.SplitAfter(p.body, []byte(f.nl+f.nl))
	if last := events[len(events)-1]; p.status != 200 || len(last) > 0 {
		r.t.Fatalf("%d, the stream ends with %q", p.status, last)
	}
	return p.body, events[:len(events)-1]
}

// streamed asks for a stream, and for its usage where that has to be asked for.
func streamed(x route) string {
	if strings.HasSuffix(x.path, "completions") {
		return x.with(`,"stream":true,"stream_options":{"include_usage":true}`)
	}
	return x.with(`,"stream":true`)
}

// playing is a rig whose upstream is a player.
func playing(t *testing.T) (*player, *rig) {
	up := newPlayer(t)
	return up, newRig(t, func(s *setup) {
		s.catalog = func(c *catalog) { c.channels[0].BaseURL, c.channels[1].BaseURL = up.URL, up.URL }
	})
}

const scripted = "out=5,usage_in=30,usage_out=15"

// S01: in every framing, on every route that streams, an event goes to the client when its last byte is here, in a chunk
// of its own, as it came but for its id; nothing waits for the next. The upstream sends an event only when the client has the one before.
func TestS01AnEventDoesNotWaitForTheNext(t *testing.T) {
	up, r := playing(t)
	for _, x := range streams() {
		for _, f := range framings() {
			_, events := r.recorded(x, scripted, f)
			if !bytes.Contains(events[0], []byte("data")) { // comments wait for the first event, with the head
				events = append([][]byte{append(events[0], events[1]...)}, events[2:]...)
			}
			c, a := r.chunks(x.path, streamed(x)), up.play()
			for i, e := range events {
				a.send(e, 1)
				got, err := c.next()
				if err != nil || !bytes.Equal(got, forwarded(e)) {
					t.Fatalf("%s as %s: event %d of %d is %q, the client has %q, %v", x.path, f.name, i, len(events), e, got, err)
				}
			}
			a.end()
			c.over(t)
			r.charged(t, x, f.name)
		}
	}
}

// over checks that the stream ends here, and properly.
func (c *chunks) over(t *testing.T) {
	t.Helper()
	if got, err := c.next(); len(got) > 0 || err != nil {
		t.Errorf("%q after the end, %v", got, err)
	}
	_ = c.Close()
}

// charged checks that the stream was charged as the script has it.
func (r *rig) charged(t *testing.T, x route, how string) {
	t.Helper()
	r.idle()
	if e := r.journal.last(t); e.Status != llm.StatusFinalized || e.Estimated || e.Usage != (llm.Usage{InputTokens: 30, OutputTokens: 15}) {
		t.Errorf("%s as %s: %+v", x.path, how, e)
	}
}

// S01: whatever packets a stream comes in, one byte each or all of it in one, each chunk on the client's wire ends where
// an event does, and all of them are the stream.
func TestS01EveryChunkEndsAtAnEvent(t *testing.T) {
	up, r := playing(t)
	for _, x := range streams() {
		for _, f := range framings() {
			stream, _ := r.recorded(x, scripted, f)
			for _, size := range []int{1, 7, 150, 1 << 20} {
				how := fmt.Sprint(f.name, " in packets of ", size)
				go up.whole(stream, size)
				r.whole(t, x, how, f.nl, stream)
				r.charged(t, x, how)
			}
		}
	}
}

// S01: an event of 2 MB is one event like any other, in every line ending and on every route.
func TestS01ALargeEventComesWhole(t *testing.T) {
	up, r := playing(t)
	for _, x := range streams() {
		for _, f := range framings() {
			if strings.Contains(f.name, "|") {
				continue
			}
			stream, events := r.recorded(x, scripted+",nocap,big_event=2MB", f)
			if len(stream) < 2<<20 || len(events) < 3 {
				t.Fatalf("%d bytes, %d events", len(stream), len(events))
			}
			go up.whole(stream, 100_000)
			r.whole(t, x, f.name+" with 2 MB", f.nl, stream)
			r.charged(t, x, f.name+" with 2 MB")
		}
	}
}

// One of more than 4 MiB ends a stream: nothing of it is passed on, what came before is charged, and the upstream is left.
func TestAnEventBeyondItsLimitEndsTheStream(t *testing.T) {
	r := newRig(t)
	for _, x := range streams() {
		p := r.post(x.path, streamed(x), "x-sim", "out=20,nocap,big_event=5MB").want(t, 200)
		ev := p.events()
		if last := ev[len(ev)-1]; len(p.body) > 64<<10 || len(ev) < 10 || !strings.Contains(last, "upstream_unavailable") || !strings.Contains(last, "4194304") {
			t.Errorf("%s: %d bytes, %d events, the last is %.300s", x.path, len(p.body), len(ev), last)
		}
		r.idle()
		eventually(t, func() bool { return r.sim.Stats().Open == 0 }, "the upstream goes on")
		if e := r.journal.last(t); e.Status != llm.StatusPartial || e.Usage.OutputTokens < 5 || e.Usage.OutputTokens > 20 {
			t.Errorf("%s: %+v", x.path, e)
		}
	}
}

// whole reads a stream to its end.
func (r *rig) whole(t *testing.T, x route, how, nl string, stream []byte) {
	t.Helper()
	c := r.chunks(x.path, streamed(x))
	var all []byte
	for {
		got, err := c.next()
		if err != nil {
			t.Fatalf("%s as %s: %v", x.path, how, err)
		}
		if len(got) == 0 {
			break
		}
		if !bytes.HasSuffix(got, []byte(nl+nl)) {
			t.Fatalf("%s as %s: a chunk ends inside an event: %.200q", x.path, how, got[max(len(got)-200, 0):])
		}
		all = append(all, got...)
	}
	_ = c.Close()
	if want := forwarded(stream); !bytes.Equal(all, want) {
		t.Errorf("%s as %s: %d bytes came, not %d", x.path, how, len(all), len(want))
	}
}

var resuming = regexp.MustCompile(`(^|[\r\n])(?:(?:id|retry):[^\r\n]*(?:\r\n|\r|\n))+`)

// forwarded is what of a stream a client gets: all of it but for lines of id and retry.
func forwarded(stream []byte) []byte { return resuming.ReplaceAll(stream, []byte("$1")) }
