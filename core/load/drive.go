package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/weir-gateway/weir/core/llm"
)

// Course says what to drive: one request, again and again, on kept-alive connections, for a time. Where an attack looks at
// each answer, a drive costs as little as it can, because it shares the cores with what it measures.
type Course struct {
	Address     string   // host:port
	Keys        []string // the connections take turns at them; empty: no key is sent
	Body        []byte   // where it has Stamp, each request has a number of its own there: no answer can be one remembered
	End         []byte   // what every good answer's body ends with
	Connections int
	Total       int           // requests; 0: as many as For allows
	For         time.Duration // with Total: the longest that is taken
	Rate        float64       // requests per second over all connections; 0: as fast as answers come
}

// Lap is what a drive came to.
type Lap struct {
	Answers    int             // that were as they should be
	Failed     int             // that were not, or did not come
	FirstError string          // of one that failed
	Took       time.Duration   // from the first request to the last answer
	Latencies  []time.Duration // of good answers, ascending
}

// Stamp is what Drive replaces by the number of a request.
const Stamp = "#0000000000"

// answerTime bounds the wait for one answer.
const answerTime = 30 * time.Second

// Drive opens all connections, then sends until the time is over and the last answers are in, or ctx ends.
func Drive(ctx context.Context, c Course, clock llm.Clock) (*Lap, error) {
	drivers := make([]*driver, c.Connections)
	for i := range drivers {
		d, err := c.open(ctx, i, clock)
		if err != nil {
			return nil, err
		}
		defer func() { _ = d.conn.Close() }()
		drivers[i] = d
	}
	stop := context.AfterFunc(ctx, func() {
		for _, d := range drivers {
			_ = d.conn.SetDeadline(time.Unix(1, 0))
		}
	})
	defer stop()
	start := clock.Mono()
	var running sync.WaitGroup
	for _, d := range drivers {
		running.Go(func() { d.drive(ctx, start) })
	}
	running.Wait()
	lap := &Lap{Took: clock.Mono() - start}
	for _, d := range drivers {
		lap.add(d)
	}
	slices.Sort(lap.Latencies)
	return lap, ctx.Err()
}

func (l *Lap) add(d *driver) {
	l.Answers += len(d.latencies)
	l.Failed += d.failed
	l.Latencies = append(l.Latencies, d.latencies...)
	if l.FirstError == "" && d.err != nil {
		l.FirstError = d.err.Error()
	}
}

// Percentile is the nearest-rank percentile of the lap's latencies; 0 when there are none.
func (l *Lap) Percentile(percent int) time.Duration {
	if len(l.Latencies) == 0 {
		return 0
	}
	return l.Latencies[max((len(l.Latencies)*percent+99)/100, 1)-1]
}

// driver is one connection and its goroutine; nothing is shared until both have ended.
type driver struct {
	Course
	clock     llm.Clock
	index     int
	conn      net.Conn
	reader    *bufio.Reader
	requests  [][]byte // by key
	stampEnd  int      // where Stamp ends, counted from the end of a request; -1: it has none
	answer    fasthttp.Response
	latencies []time.Duration
	failed    int
	err       error
}

func (c Course) open(ctx context.Context, index int, clock llm.Clock) (*driver, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.Address)
	if err != nil {
		return nil, fmt.Errorf("connection %d of %d: %w", index+1, c.Connections, err)
	}
	d := &driver{Course: c, clock: clock, index: index, conn: conn, stampEnd: -1, reader: bufio.NewReaderSize(conn, 16<<10)}
	if i := bytes.Index(c.Body, []byte(Stamp)); i >= 0 {
		d.stampEnd = len(c.Body) - i - len(Stamp)
	}
	if len(c.Keys) == 0 {
		d.requests = [][]byte{Request(c.Address, "", c.Body)}
	}
	for i := index; i < len(c.Keys); i += c.Connections {
		d.requests = append(d.requests, Request(c.Address, c.Keys[i], c.Body))
	}
	if len(d.requests) == 0 {
		d.requests = [][]byte{Request(c.Address, c.Keys[index%len(c.Keys)], c.Body)}
	}
	return d, nil
}

// Request is a chat as it goes over the wire; an empty key sends none.
func Request(address, key string, body []byte) []byte {
	b := fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nUser-Agent: weir-bench\r\nContent-Type: application/json\r\n", address)
	if key != "" {
		b = fmt.Appendf(b, "Authorization: Bearer %s\r\n", key)
	}
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	return append(append(b, "\r\n\r\n"...), body...)
}

// drive sends until the course is over. A connection on which something failed is not used again.
func (d *driver) drive(ctx context.Context, start time.Duration) {
	end := start + d.For
	for n := 0; d.Total == 0 || d.index+n*d.Connections < d.Total; n++ {
		if d.Rate > 0 {
			due := start + time.Duration(float64(d.index+n*d.Connections)/d.Rate*float64(time.Second))
			if due >= end || !pause(ctx, due-d.clock.Mono()) {
				return
			}
		}
		sent := d.clock.Mono()
		if sent >= end || ctx.Err() != nil {
			return
		}
		if err := d.ask(d.requests[n%len(d.requests)], d.index+n*d.Connections); err != nil {
			if ctx.Err() == nil {
				d.failed++
				d.err = err
			}
			return
		}
		d.latencies = append(d.latencies, d.clock.Mono()-sent)
	}
}

// ask sends one request and reads its whole answer.
func (d *driver) ask(request []byte, number int) error {
	d.stamp(request, number)
	if err := d.conn.SetDeadline(d.clock.Wall().Add(answerTime)); err != nil {
		return err
	}
	if _, err := d.conn.Write(request); err != nil {
		return err
	}
	if err := d.answer.Read(d.reader); err != nil {
		return fmt.Errorf("no whole answer: %w", err)
	}
	switch body := d.answer.Body(); {
	case d.answer.StatusCode() != fasthttp.StatusOK:
		return errors.New(refusalText(d.answer.StatusCode(), body))
	case !bytes.HasSuffix(body, d.End):
		return fmt.Errorf("an answer ends with %.80q, not with %q", body[max(0, len(body)-80):], d.End)
	}
	return nil
}

// stamp writes the number into the digits of Stamp.
func (d *driver) stamp(request []byte, number int) {
	for at := len(request) - d.stampEnd; d.stampEnd >= 0 && request[at-1] != Stamp[0]; at-- {
		request[at-1] = byte('0' + number%10)
		number /= 10
	}
}
