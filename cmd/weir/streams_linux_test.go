package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// resident is the memory that the process occupies, in bytes.
func (p *process) resident() int64 {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return kb << 10
}

// descriptors counts what the process has open.
func (p *process) descriptors() int {
	p.t.Helper()
	open, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "fd"))
	if err != nil {
		p.t.Fatal(err)
	}
	return len(open)
}

// uses is what the gateway uses, as it says itself.
func (p *process) uses() inUse {
	p.t.Helper()
	return inUse{goroutines: p.metric(p.t, "go_goroutines"), descriptors: p.descriptors()}
}

// leaves waits until what the gateway had to do is over, which has left nothing: no reservation, connection or goroutine.
func (p *process) leaves(before inUse) {
	p.t.Helper()
	var now inUse
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if now = p.uses(); p.metric(p.t, "weir_reservations_open") == 0 && !now.more(before) {
			return
		}
	}
	p.t.Errorf("%d reservations are open, and it uses %+v, before %+v", p.metric(p.t, "weir_reservations_open"), now, before)
}

// crowd is many streams at once.
type crowd struct {
	p       *process
	key     string
	body    string
	client  http.Client
	flowing atomic.Int64 // streams that have begun
	whole   atomic.Int64 // that ended as they should
	first   atomic.Pointer[string]
	readers sync.WaitGroup
}

func (c *crowd) failed(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	c.first.CompareAndSwap(nil, &text)
}

// open begins n streams, a few at a time.
func (c *crowd) open(n int) {
	turn := make(chan struct{}, 64)
	for range n {
		turn <- struct{}{}
		c.readers.Go(func() {
			began := sync.OnceFunc(func() { <-turn })
			defer began()
			c.read(began)
		})
	}
}

func (c *crowd) read(began func()) {
	req, err := http.NewRequest("POST", c.p.env["WEIR_URL"]+"/v1/chat/completions", strings.NewReader(c.body))
	if err != nil {
		c.failed("%v", err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	resp, err := c.client.Do(req)
	if err != nil {
		c.failed("%v", err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	lines, last := bufio.NewReaderSize(resp.Body, 512), ""
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			if err != io.EOF || last != "data: [DONE]" {
				c.failed("%d: it ended with %v after %q", resp.StatusCode, err, last)
				return
			}
			c.whole.Add(1)
			return
		}
		if line = strings.TrimSpace(line); line != "" {
			if last == "" {
				c.flowing.Add(1)
				began()
			}
			last = line
		}
	}
}

// mostPerStream bounds the resident memory of a stream at its peak, garbage not yet collected included, in KiB: of few, that
// garbage is the most.
func mostPerStream() int64 {
	if *long {
		return slow * 32
	}
	return slow * 96
}

// TestManyStreams: 500 streams of 4 s at once (with -long 5,000 of more than a minute) end well, the memory of each is bounded,
// and nothing of them is left.
func TestManyStreams(t *testing.T) {
	streams, events, pace := 500, 20, "200ms"
	if *long {
		streams, events, pace = 5000, 80, "1s"
	}
	p := serve(t, fmt.Sprintf("  long: {target: \"gpt-4o-mini+pace=%s,out=%d,nocap\", price: {input_per_1m: 1.08, output_per_1m: 4.32}}\nupstream: {connections: %d, idle_connections: 16}\nlog: {level: error}\n", pace, events, streams+100))
	key := p.key()
	c := &crowd{p: p, key: key, body: `{"model":"long","stream":true,"max_tokens":200,"messages":[{"role":"user","content":"hello"}]}`, client: http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	for range 50 {
		p.status(key, hello)
	}
	before, idle := p.resident(), p.uses()
	began := time.Now()
	c.open(streams)
	eventually(t, "all streams flow", func() bool { return c.flowing.Load() == int64(streams) || c.first.Load() != nil })
	ramp := time.Since(began)
	open, peak := p.descriptors(), p.resident()
	early := int(c.whole.Load()) // ended before all flowed: none but on a slow machine
	if open < 2*(streams-early) && c.first.Load() == nil {
		t.Errorf("%d descriptors with %d streams, of which %d have ended", open, streams, early)
	}
	waited := make(chan struct{})
	go func() { c.readers.Wait(); close(waited) }()
	for sampling := true; sampling; {
		select {
		case <-waited:
			sampling = false
		case <-time.After(100 * time.Millisecond):
			peak = max(peak, p.resident())
		}
	}
	if c.whole.Load() != int64(streams) {
		t.Errorf("%d of %d streams ended well", c.whole.Load(), streams)
	}
	if first := c.first.Load(); first != nil {
		t.Error(*first)
	}
	each := (peak - before) / int64(streams)
	t.Logf("%d streams of %v after a ramp of %v, in which %d ended: %d KiB each at the most", streams, time.Since(began), ramp, early, each>>10)
	if each>>10 > mostPerStream() {
		t.Errorf("a stream takes %d bytes, at most %d KiB are allowed", each, mostPerStream())
	}
	p.leaves(idle)
	if open := must(t, p.env, "ledger", "reservations", "--json"); strings.Contains(open, `"id"`) {
		t.Errorf("open at the end: %.300s", open)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.ends(30 * time.Second)
}
