package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/weir-gateway/weir/core/llm"
)

func (r *rig) open() *Response {
	r.t.Helper()
	resp, err := r.do(context.Background(), streamBody, new(watcher))
	if err != nil {
		r.t.Fatal(err)
	}
	return resp
}

func chunkEvent(i int) string {
	return fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"t%d \"}}]}\n\n", i)
}

func TestStreamIsReadAndItsConnectionKept(t *testing.T) {
	s := newStub(t, func(x *exchange) bool {
		return x.stream(chunkEvent(1), chunkEvent(2)+chunkEvent(3), "data: [DO", "NE]\n\n")
	})
	r := newRig(t, Options{}, openai("a", s.url))
	want := []string{chunkEvent(1), chunkEvent(2), chunkEvent(3), "data: [DONE]\n\n"}
	for range 10 {
		got, err := r.stream()
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Fatal(d, err)
		}
	}
	if n := s.accepted.Load(); n != 1 {
		t.Errorf("%d connections for 10 streams", n)
	}
}

// A relay that stops at the terminal event leaves the end of the framing unread; the connection is saved all the same.
func TestStreamClosedAtTheTerminalEvent(t *testing.T) {
	read := make(chan bool)
	defer close(read)
	s := newStub(t, func(x *exchange) bool {
		x.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		x.chunk(chunkEvent(1) + "data: [DONE]\n\n")
		<-read
		return x.send("0\r\n\r\n")
	})
	r := newRig(t, Options{}, openai("a", s.url))
	kept := 0
	for range 20 {
		resp := r.open()
		if raw, err := resp.Next(); !strings.HasSuffix(string(raw), "[DONE]\n\n") || err != nil {
			t.Fatalf("%q %v", raw, err)
		}
		read <- true
		resp.Close()
		_, idle := r.conns("a")
		kept += idle
	}
	if kept == 0 { // on a starved machine the last packet may come too late
		t.Error("no connection was kept")
	}
}

// S01: one stream in many spellings and in any packets is the same events.
func TestS01Spellings(t *testing.T) {
	lines := []string{": a comment", "event: x", "id: 7", "retry: 10", `data: {"choices":[{"delta":{"content":"a"}}]}`, "",
		`data:{"choices":[{"delta":`, `data: {"content":"b"}}]}`, "", "data", "", ": ping", "",
		`data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}`, "", "data: [DONE]", ""}
	var big = `data: {"choices":[{"delta":{"content":"` + strings.Repeat("x", 2<<20) + `"}}]}`
	for _, mode := range []string{"LF", "CRLF", "CR", "BOM", "mixed", "big"} {
		for _, step := range []int{1, 2, 3, 7, 1000, 1 << 20} {
			if mode == "big" && step < 1000 {
				continue
			}
			t.Run(fmt.Sprint(mode, step), func(t *testing.T) {
				end := map[string]string{"LF": "\n", "CRLF": "\r\n", "CR": "\r", "BOM": "\n", "big": "\n"}
				var b strings.Builder
				if mode == "BOM" {
					b.WriteString("\xef\xbb\xbf")
				}
				all := lines
				if mode == "big" {
					all = append([]string{big, ""}, lines...)
				}
				for i, l := range all {
					e, ok := end[mode]
					if !ok {
						e = []string{"\n", "\r\n", "\r"}[i%3]
					}
					b.WriteString(l + e)
				}
				s := newStub(t, func(x *exchange) bool {
					x.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
					for text := b.String(); len(text) > 0; {
						n := min(step, len(text))
						x.send(text[:n])
						text = text[n:]
					}
					return false
				})
				r := newRig(t, Options{}, openai("a", s.url))
				resp := r.open()
				defer resp.Close()
				p := NewParser(llm.Chat)
				var texts []string
				var flags string
				for {
					raw, err := resp.Next()
					if err == io.EOF {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					p.Parse(raw, func(e *Event) {
						for _, d := range e.Deltas {
							texts = append(texts, string(d[:min(len(d), 5)]))
						}
						if e.Empty {
							flags += "usage "
						}
						if e.Terminal {
							flags += "end"
						}
					})
				}
				want := []string{"a", "b"}
				if mode == "big" {
					want = []string{"xxxxx", "a", "b"}
				}
				if d := cmp.Diff(want, texts); d != "" {
					t.Error(d)
				}
				if flags != "usage end" {
					t.Errorf("saw %q", flags)
				}
				if u, _, ok := p.Usage(); !ok || u.InputTokens != 3 || u.OutputTokens != 2 {
					t.Error(u, ok)
				}
			})
		}
	}
}

func TestEventLimit(t *testing.T) {
	s := newStub(t, func(x *exchange) bool { return x.stream("data: " + strings.Repeat("x", 5<<20)) })
	r := newRig(t, Options{}, openai("a", s.url))
	got, err := r.stream()
	contains(t, asError(t, err, llm.KindUpstream).Message, "an event of over 4194304 bytes")
	if len(got) != 0 {
		t.Error("part of it was given out")
	}
}

// S04: what came before the break is given out at once, then the break is told, not an end.
func TestS04UpstreamBreaks(t *testing.T) {
	for name, end := range map[string]func(*exchange) bool{
		"reset":       (*exchange).reset,
		"close":       func(*exchange) bool { return false },
		"broken size": func(x *exchange) bool { return x.send("zz\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			gate := make(chan bool)
			s := newStub(t, func(x *exchange) bool {
				x.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
				for i := range 10 {
					x.chunk(chunkEvent(i))
				}
				<-gate
				return end(x)
			})
			r := newRig(t, Options{}, openai("a", s.url))
			resp := r.open()
			defer resp.Close()
			n := 0
			p := NewParser(llm.Chat)
			for n < 10 {
				raw, err := resp.Next()
				if err != nil {
					t.Fatal(err)
				}
				p.Parse(raw, func(*Event) { n++ })
			}
			close(gate)
			_, err := resp.Next()
			asError(t, err, llm.KindUpstream)
			if _, again := resp.Next(); again != err {
				t.Error("the second answer differs: ", again)
			}
			if open, _ := r.conns("a"); open != 0 {
				t.Error("the connection is open")
			}
		})
	}
}

// A stream that ends without a terminal event ends: what that means is the relay's to say. A last event without its
// empty line is completed where the framing vouches for the end.
func TestStreamEndings(t *testing.T) {
	head := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
	chunked := func(s string) string {
		return head + "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(s), s)
	}
	for _, tt := range []struct {
		name, raw string
		want      []string
	}{
		{"no terminal event", chunked("data: a\n\n"), []string{"data: a\n\n"}},
		{"no empty line", chunked("data: a\n\ndata: [DONE]\n"), []string{"data: a\n\n", "data: [DONE]\n\n"}},
		{"no line end", chunked("data: a\n\ndata: [DONE]"), []string{"data: a\n\n", "data: [DONE]\n\n"}},
		{"until close, no empty line", head + "\r\ndata: a\n\ndata: [DONE]\n", []string{"data: a\n\n", "data: [DONE]\n\n"}},
		{"until close, cut in a line", head + "\r\ndata: a\n\ndata: {\"choi", []string{"data: a\n\n"}},
		{"by length", head + "Content-Length: 9\r\n\r\ndata: a\n\n", []string{"data: a\n\n"}},
		{"a CR that an LF follows", chunked("data: a\r\n\r"), []string{"data: a\r\n\r\n"}},
		{"only a mark", chunked("\xef\xbb\xbf"), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStub(t, func(x *exchange) bool { x.send(tt.raw); return false })
			r := newRig(t, Options{}, openai("a", s.url))
			resp := r.open()
			defer resp.Close()
			if !resp.Stream {
				t.Fatal("not a stream")
			}
			var all string
			for {
				raw, err := resp.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				all += string(raw)
			}
			if all != strings.Join(tt.want, "") {
				t.Errorf("%q, want %q", all, tt.want)
			}
		})
	}
}

func TestIdleTimeout(t *testing.T) {
	s := newStub(t, func(x *exchange) bool {
		x.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		x.chunk(chunkEvent(1))
		return !x.gone(5 * time.Second)
	})
	r := newRig(t, Options{IdleTimeoutMS: 40}, openai("a", s.url))
	got, err := r.stream()
	e := asError(t, err, llm.KindTimeout)
	if e.Code != "upstream_timeout" || len(got) != 1 {
		t.Errorf("%+v after %d events", e, len(got))
	}
	contains(t, e.Message, "silent for 40 ms")
}

// S05: a cancel while the upstream is silent closes the upstream connection at once, whether or not somebody reads.
func TestS05CancelWhileSilent(t *testing.T) {
	for _, reading := range []bool{true, false} {
		closed := make(chan time.Time, 1)
		s := newStub(t, func(x *exchange) bool {
			x.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
			x.chunk(chunkEvent(1))
			if x.gone(10 * time.Second) {
				closed <- time.Now()
			}
			return false
		})
		r := newRig(t, Options{}, openai("a", s.url))
		resp := r.open()
		if _, err := resp.Next(); err != nil {
			t.Fatal(err)
		}
		result := make(chan error, 1)
		if reading {
			go func() {
				_, err := resp.Next()
				result <- err
			}()
			time.Sleep(5 * time.Millisecond)
		}
		start := time.Now()
		resp.Cancel()
		resp.Cancel()
		if reading {
			if err := <-result; err != context.Canceled {
				t.Error(err)
			}
		}
		select {
		case at := <-closed:
			if d := at.Sub(start); d > 3*time.Second {
				t.Errorf("the upstream noticed after %v", d)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the upstream never noticed")
		}
		if _, err := resp.Next(); err != context.Canceled {
			t.Error(err)
		}
		resp.Close()
		if h := r.client.Health(r.cat)[0]; h.Failures != 0 {
			t.Errorf("%+v", h)
		}
	}
}

// ctx goes on cutting after Do has returned; after Close it cuts nothing.
func TestContextCutsTheStream(t *testing.T) {
	s := newStub(t, func(x *exchange) bool {
		if x.n == 1 {
			x.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
			return !x.gone(5 * time.Second)
		}
		return x.stream(chunkEvent(1))
	})
	r := newRig(t, Options{}, openai("a", s.url))
	ctx, cancel := context.WithCancelCause(context.Background())
	resp, err := r.do(ctx, streamBody, new(watcher))
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(10*time.Millisecond, func() { cancel(errors.New("why")) })
	if _, err := resp.Next(); err != context.Canceled {
		t.Error(err)
	}
	resp.Close()

	ctx2, cancel2 := context.WithCancel(context.Background())
	resp, err = r.do(ctx2, streamBody, new(watcher))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readAll(resp); err != nil {
		t.Fatal(err)
	}
	cancel2()
	time.Sleep(2 * time.Millisecond)
	resp.Cancel()
	if open, idle := r.conns("a"); open != 1 || idle != 1 {
		t.Errorf("a late cancel reached the pool: %d open, %d idle", open, idle)
	}
	resp.Close()
}

// S08: stream A is aborted in the middle of a chunk, B follows at once on the same host, 1,000 times, with cancels that
// come at every moment. B never sees a byte of A.
func TestS08AbortedStreamsDoNotLeak(t *testing.T) {
	s := newStub(t, func(x *exchange) bool {
		if !strings.Contains(x.body, "AAAA") {
			return x.stream("data: B1\n\n", "data: B2\n\n", "data: [DONE]\n\n")
		}
		x.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		x.chunk("data: AAAA\n\n")
		switch x.n % 3 {
		case 0:
			x.send("ffff\r\ndata: AAAA") // the middle of a chunk
			return !x.gone(5 * time.Second)
		case 1:
			return x.send("0\r\n\r\n") // complete: the cancel races with the return to the pool
		}
		x.send("c\r\ndata: AAAA\n\n\r\n0\r\n\r")
		return x.send("\n")
	})
	r := newRig(t, Options{}, openai("a", s.url))
	bodyA := strings.Replace(streamBody, "hi", "AAAA", 1)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 250 {
				a, err := r.do(context.Background(), bodyA, new(watcher))
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := a.Next(); err != nil {
					t.Error(err)
				}
				cancelled := make(chan bool)
				go func() {
					for range (i * 7) % 50 {
						runtime.Gosched()
					}
					a.Cancel()
					close(cancelled)
				}()
				if (i+w)%2 == 0 {
					for err = nil; err == nil; {
						_, err = a.Next()
					}
				}
				a.Close()
				got, err := r.stream()
				if strings.Join(got, "") != "data: B1\n\ndata: B2\n\ndata: [DONE]\n\n" || err != nil {
					t.Errorf("B saw %q, %v", got, err)
				}
				<-cancelled
			}
		})
	}
	wg.Wait()
	if open, idle := r.conns("a"); open != idle {
		t.Errorf("%d connections open, %d idle", open, idle)
	}
}

// A cancel that comes late finds its connection in another call's hands, and must leave it alone.
func TestS08LateCancelTouchesNobody(t *testing.T) {
	gate := make(chan bool)
	s := newStub(t, func(x *exchange) bool {
		if x.n == 1 {
			return x.stream("data: A\n\n")
		}
		x.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		x.chunk("data: B1\n\n")
		<-gate
		x.chunk("data: B2\n\n")
		return x.send("0\r\n\r\n")
	})
	r := newRig(t, Options{}, openai("a", s.url))
	a := r.open()
	if _, err := readAll(a); err != nil {
		t.Fatal(err)
	}
	b := r.open()
	defer b.Close()
	if _, err := b.Next(); err != nil {
		t.Fatal(err)
	}
	a.Cancel()
	a.Close()
	a.Cancel()
	close(gate)
	if got, err := readAll(b); err != nil || len(got) != 1 {
		t.Errorf("B saw %q, %v", got, err)
	}
	if n := s.accepted.Load(); n != 1 {
		t.Errorf("%d connections: the test is about one that changes hands", n)
	}
}

// Backpressure: whoever does not read makes the upstream wait, and memory stays flat.
func TestS07UnreadStreamStopsTheUpstream(t *testing.T) {
	var sent int
	s := newStub(t, func(x *exchange) bool {
		x.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		ev := "data: " + strings.Repeat("x", 1000) + "\n\n"
		x.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		for sent = 0; sent < 50<<20 && x.chunk(ev); sent += len(ev) {
		}
		return false
	})
	r := newRig(t, Options{}, openai("a", s.url))
	resp := r.open()
	if _, err := resp.Next(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(350 * time.Millisecond)
	if n := cap(resp.events.buf); n > 16<<10 {
		t.Errorf("%d bytes are buffered here", n)
	}
	resp.Close()
	s.stop()
	if sent >= 50<<20 {
		t.Error("the upstream could send all of it to nobody")
	}
}

// M02 (this package's part): whatever an upstream does, on every route, nothing stays open and every attempt that was
// announced is either refused or answered.
func TestM02NothingStaysOpen(t *testing.T) {
	bodies := map[llm.Endpoint]string{
		llm.Chat: streamBody, llm.Completions: `{"model":"m","stream":true,"prompt":"x"}`, llm.Embeddings: `{"model":"m","input":"x"}`,
		llm.Responses: `{"model":"m","stream":true,"input":"x"}`, llm.Messages: `{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"hi"}]}`,
		llm.CountTokens: `{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
	}
	for name, handle := range map[string]func(*exchange) bool{
		"resets before headers": (*exchange).reset,
		"resets after the first byte": func(x *exchange) bool {
			x.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ndata:")
			return x.reset()
		},
		"never answers": func(x *exchange) bool { return !x.gone(5 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStub(t, handle)
			b := openai("b", s.url)
			b.Provider = "anthropic"
			r := newRig(t, Options{HeaderTimeoutMS: 20, IdleTimeoutMS: 20}, openai("a", s.url), b)
			for ep, body := range bodies {
				hold := new(watcher)
				for range 10 {
					r.clock.advance(time.Minute) // cool-downs are over
					resp, err := r.client.Do(context.Background(), r.cat, newRequest(t, r.cat, ep, body), hold)
					if err != nil {
						continue
					}
					if resp.Stream {
						_, err = resp.Next()
					} else {
						_, err = resp.Body()
					}
					if err == nil {
						t.Error("a broken answer was read")
					}
					hold.Refused(resp.Channel)
					resp.Close()
				}
				told := hold.String()
				if a, f := strings.Count(told, "attempt"), strings.Count(told, "refused"); a == 0 || a != f {
					t.Errorf("%d attempts, %d refused", a, f)
				}
			}
			for _, ch := range []string{"a", "b"} {
				if open, _ := r.conns(ch); open != 0 {
					t.Errorf("%s: %d connections open", ch, open)
				}
			}
		})
	}
}

// TLS: the same, over a certificate that is checked, and never HTTP/2.
func TestTLS(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprint(w, chunkEvent(i))
			w.(http.Flusher).Flush()
		}
		fmt.Fprintf(w, "data: %s\n\n", q.Proto)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	r := newRig(t, Options{}, openai("a", srv.URL))
	_, err := r.stream()
	contains(t, asError(t, err, llm.KindUpstream).Err.Error(), "certificate")

	r = newRig(t, Options{}, openai("a", srv.URL))
	r.client.trust.RootCAs = x509.NewCertPool()
	r.client.trust.RootCAs.AddCert(srv.Certificate())
	for range 5 {
		got, err := r.stream()
		if err != nil || len(got) != 4 || got[3] != "data: HTTP/1.1\n\n" {
			t.Fatal(got, err)
		}
	}
	if open, idle := r.conns("a"); open != 1 || idle != 1 {
		t.Errorf("%d open, %d idle", open, idle)
	}
	resp := r.open()
	resp.Cancel()
	if _, err := readAll(resp); err != context.Canceled {
		t.Error(err)
	}
	resp.Close()
	if r.client.trust.MinVersion != tls.VersionTLS12 {
		t.Error("older TLS is allowed")
	}
}

func TestStreamAllocatesNothingPerEvent(t *testing.T) {
	s := newStub(t, func(x *exchange) bool {
		x.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		ev := chunkEvent(1)
		packet := fmt.Appendf(nil, "%x\r\n%s\r\n", len(ev), ev)
		for {
			if _, err := x.Write(packet); err != nil { // the stub may not allocate either: all of the process is counted
				return false
			}
		}
	})
	r := newRig(t, Options{}, openai("a", s.url))
	resp := r.open()
	defer resp.Close()
	p := NewParser(llm.Chat)
	n := 0
	visit := func(*Event) { n++ }
	per := testing.AllocsPerRun(200, func() {
		raw, err := resp.Next()
		if err != nil {
			t.Fatal(err)
		}
		p.Parse(raw, visit)
	})
	if per != 0 || n < 200 {
		t.Errorf("%v allocations per Next, %d events", per, n)
	}
}
