package proxy_test

import (
	"bufio"
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
)

// The gap is more than an event may take, so one that is held back until the next one comes is seen.
const (
	pacedEvents = 200
	pacedGap    = 11 * time.Millisecond
	pacedMost   = 10 * time.Millisecond
)

// paced is an upstream that answers whatever it is asked with a stream of pacedEvents, one each pacedGap, and remembers when
// it began to write each.
type paced struct {
	addr string
	zero time.Time
	sent [pacedEvents]atomic.Int64 // since zero
}

func newPaced(t testing.TB) *paced {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &paced{addr: ln.Addr().String(), zero: time.Now()}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			open.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); open.Wait() })
	return p
}

func (p *paced) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	q, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	_, err = io.Copy(io.Discard, q.Body)
	write := func(text string) {
		if err == nil {
			_, err = io.WriteString(c, text)
		}
	}
	write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
	event := inChunk("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"}}]}\n\n")
	for i := range p.sent {
		time.Sleep(pacedGap)
		p.sent[i].Store(int64(time.Since(p.zero)))
		write(event)
	}
	write(inChunk("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":200}}\n\n") + inChunk("data: [DONE]\n\n") + "0\r\n\r\n")
}

// delays asks addr for the stream and gives how long each event took to its end at the client, ordered.
func (p *paced) delays(t testing.TB, addr, token string) []time.Duration {
	c, err := net.Dial("tcp", addr)
	must(t, err)
	defer func() { _ = c.Close() }()
	must(t, c.SetDeadline(time.Now().Add(time.Minute)))
	body := chat("gpt-4o", `,"stream":true,"max_tokens":1000`)
	_, err = fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", token, len(body), body)
	must(t, err)
	r := bufio.NewReader(c)
	took := make([]time.Duration, 0, len(p.sent))
	for said, line := false, ""; line != "0\r\n"; {
		if line, err = r.ReadString('\n'); err != nil {
			t.Fatalf("after %d events: %v", len(took), err)
		}
		if said && line == "\n" {
			took = append(took, time.Since(p.zero)-time.Duration(p.sent[len(took)].Load()))
		}
		said = strings.HasPrefix(line, "data: {\"choices\":[{")
	}
	if len(took) != len(p.sent) {
		t.Fatalf("%d events of %d", len(took), len(p.sent))
	}
	slices.Sort(took)
	return took
}

// at is one of took, so many parts of a thousand up.
func at(took []time.Duration, permille int) time.Duration { return took[len(took)*permille/1000] }

// An event is on its way to the client as soon as its end has come. Over loopback that takes well below a millisecond; what
// is asserted is ten but under -long, for machines that do other things too.
func TestEventsAreForwardedAtTheirEnd(t *testing.T) {
	up := newPaced(t)
	r := newRig(t, func(s *setup) { s.catalog = func(c *catalog) { c.channels[0].BaseURL = "http://" + up.addr } })
	most := pacedMost
	if *long {
		most = time.Millisecond
	}
	took := up.delays(t, r.addr, r.token)
	t.Logf("%d events: median %v, p99 %v", len(took), at(took, 500), at(took, 990))
	if median := at(took, 500); median > most {
		t.Errorf("half of the events took longer than %v, want at most %v", median, most)
	}
	r.idle()
}

// BenchmarkEventDelay is how long an event takes from the upstream's write to the client, beside the same without a gateway.
func BenchmarkEventDelay(b *testing.B) {
	up := newPaced(b)
	addr, token := benchServer(b, "http://"+up.addr, 1<<40)
	var straight, through []time.Duration
	for b.Loop() {
		straight = append(straight, up.delays(b, up.addr, "")...)
		through = append(through, up.delays(b, addr, token)...)
	}
	slices.Sort(straight)
	slices.Sort(through)
	b.ReportMetric(float64(at(through, 500)), "median-ns")
	b.ReportMetric(float64(at(straight, 500)), "straight-ns")
	b.ReportMetric(float64(at(through, 500))/float64(at(straight, 500)), "ratio")
	b.ReportMetric(0, "ns/op") // it is the pace
}
