package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/load"
)

// The streams by which delay is measured: so many at once, of so many events, one each gap. A gap is more than an event
// takes, so that one which is held back until the next one comes is seen.
const (
	pacedStreams = 8
	pacedEvents  = 20
	pacedGap     = 3 * time.Millisecond
)

// paced is an upstream in this process, on the driver's own clock: each event says when it was written.
type paced struct {
	ln    net.Listener
	clock llm.Clock
	open  sync.WaitGroup
}

func newPaced(address string, clock llm.Clock) (*paced, error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	p := &paced{ln: ln, clock: clock}
	p.open.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go p.serve(c) // ends when its client goes
		}
	})
	return p, nil
}

func (p *paced) address() string { return p.ln.Addr().String() }

func (p *paced) close() {
	_ = p.ln.Close()
	p.open.Wait()
}

const (
	pacedHead  = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	pacedEvent = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"paced","choices":[{"index":0,"delta":{"content":"at %d"},"finish_reason":null}]}` + "\n\n"
	pacedTail  = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"paced","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":60,"total_tokens":69}}` + "\n\ndata: [DONE]\n\n"
)

func (p *paced) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	requests := bufio.NewReader(c)
	for {
		q, err := http.ReadRequest(requests)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, q.Body); err != nil {
			return
		}
		if q.Method != http.MethodPost { // whether it is there
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
			continue
		}
		if err := p.stream(c); err != nil {
			return
		}
	}
}

func (p *paced) stream(w io.Writer) error {
	head := pacedHead
	for i := range pacedEvents {
		if i > 0 {
			time.Sleep(pacedGap)
		}
		event := fmt.Sprintf(pacedEvent, p.clock.Mono())
		if _, err := fmt.Fprintf(w, "%s%x\r\n%s\r\n", head, len(event), event); err != nil {
			return err
		}
		head = ""
	}
	_, err := fmt.Fprintf(w, "%x\r\n%s\r\n0\r\n\r\n", len(pacedTail), pacedTail)
	return err
}

// delays are what one connection saw: from a request to its first event, and from each event's write to its end here.
type delays struct{ first, event []time.Duration }

// follow reads streams from a target for the given time, at least one on each connection.
func (p *paced) follow(ctx context.Context, t target, d time.Duration) (delays, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		mu    sync.Mutex
		all   delays
		wrong error
		wg    sync.WaitGroup
	)
	start := p.clock.Mono()
	for range pacedStreams {
		wg.Go(func() {
			one, err := p.read(ctx, t, start+d)
			mu.Lock()
			defer mu.Unlock()
			all.first, all.event = append(all.first, one.first...), append(all.event, one.event...)
			if err != nil && wrong == nil {
				wrong = fmt.Errorf("a paced stream through %s: %w", t.name, err)
				cancel()
			}
		})
	}
	wg.Wait()
	slices.Sort(all.first)
	slices.Sort(all.event)
	return all, wrong
}

func (p *paced) read(ctx context.Context, t target, end time.Duration) (all delays, err error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", t.paced)
	if err != nil {
		return all, err
	}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	answers := bufio.NewReader(c)
	request := load.Request(t.paced, t.key, chat("paced", 200, true))
	for more := true; more; more = p.clock.Mono() < end {
		if err := c.SetReadDeadline(p.clock.Wall().Add(readyTime)); err != nil {
			return all, err
		}
		sent := p.clock.Mono()
		if _, err := c.Write(request); err != nil {
			return all, err
		}
		if err := p.one(answers, sent, &all); err != nil {
			return all, err
		}
	}
	return all, nil
}

// one reads one stream.
func (p *paced) one(answers *bufio.Reader, sent time.Duration, all *delays) error {
	resp, err := http.ReadResponse(answers, nil)
	if err != nil {
		return err
	}
	lines, n := bufio.NewReader(resp.Body), 0
	for {
		line, err := lines.ReadSlice('\n')
		if err == io.EOF && resp.StatusCode == http.StatusOK && n == pacedEvents {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%d, %d events of %d: %w: %.200q", resp.StatusCode, n, pacedEvents, err, line)
		}
		_, rest, ok := bytes.Cut(line, []byte(`"content":"at `))
		if !ok {
			continue
		}
		digits, _, _ := bytes.Cut(rest, []byte(`"`))
		at, err := strconv.ParseInt(string(digits), 10, 64)
		if err != nil {
			return err
		}
		now := p.clock.Mono()
		if n++; n == 1 {
			all.first = append(all.first, now-sent)
		} else {
			all.event = append(all.event, now-time.Duration(at))
		}
	}
}
