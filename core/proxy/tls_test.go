package proxy_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/proxy"
)

// secured is a rig whose clients come over TLS, too.
type secured struct {
	*rig
	client *http.Client
	addr   string
	config *tls.Config // of a client
}

func secure(t *testing.T, opts ...option) *secured {
	t.Helper()
	r := newRig(t, opts...)
	stock := httptest.NewTLSServer(nil) // for its certificate
	t.Cleanup(stock.Close)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	done := make(chan error, 1)
	go func() {
		done <- r.server.Serve(tls.NewListener(ln, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: stock.TLS.Certificates}))
	}()
	s := &secured{rig: r, client: stock.Client(), addr: ln.Addr().String()}
	s.config = s.client.Transport.(*http.Transport).TLSClientConfig
	r.base = "https://" + s.addr
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = r.server.Shutdown(ctx)
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return s
}

func (s *secured) send(req *http.Request) reply {
	s.t.Helper()
	resp, err := s.client.Do(req)
	must(s.t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, body, err}
}

// A stock client over TLS gets what it gets without: answers, streams, and the refusals of what is too large.
func TestTLSClient(t *testing.T) {
	s := secure(t, func(x *setup) { x.options = proxy.Options{HeaderBytes: 4 << 10, BodyBytes: 1 << 20} })
	for _, x := range everyRoute {
		s.send(s.request(x.path, x.body)).want(t, 200)
	}
	p := s.send(s.request("/v1/chat/completions", streamed(everyRoute[0]))).want(t, 200)
	if ev := p.events(); p.err != nil || len(ev) < 3 || ev[len(ev)-1] != "[DONE]" {
		t.Errorf("%v %s", p.err, p.body)
	}
	s.send(s.request("/v1/chat/completions", chat("gpt-4o", ""), "X-Long", strings.Repeat("x", 8<<10))).want(t, 431)
	s.send(s.request("/v1/chat/completions", chat("gpt-4o", `,"user":"`+strings.Repeat("x", 2<<20)+`"`))).want(t, 413)
	s.idle()
}

// A client that leaves is noticed under TLS within a second, while the upstream says nothing and while it streams.
func TestTLSClientLeaves(t *testing.T) {
	for _, behaviour := range []string{"silent=60s", "out=500,nocap,hang_after=6", "out=5000,nocap,pace=2ms"} {
		t.Run(behaviour, func(t *testing.T) {
			s := secure(t, func(x *setup) { x.upstream.HeaderTimeoutMS, x.upstream.IdleTimeoutMS = 60_000, 60_000 })
			ctx, cancel := context.WithCancel(t.Context())
			req := s.request("/v1/chat/completions", streamed(everyRoute[0]), "x-sim", behaviour).WithContext(ctx)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				if resp, err := s.client.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}()
			eventually(t, func() bool { return s.sim.Stats().Open == 1 }, "never sent")
			left := time.Now()
			cancel()
			<-ended
			s.idle()
			eventually(t, func() bool { return s.sim.Stats().Open == 0 }, "the upstream is not cancelled")
			if took := time.Since(left); took > 10*time.Second { // 1 s, with slack
				t.Errorf("noticed after %v", took)
			}
		})
	}
}

// So is a client that says goodbye and keeps its socket, in either version of TLS, unless that stands behind another request.
func TestTLSClientSaysGoodbye(t *testing.T) {
	s := secure(t, func(x *setup) { x.upstream.HeaderTimeoutMS = 60_000 })
	body := chat("gpt-4o", "")
	one := s.rawHead("/v1/chat/completions", "Authorization: Bearer ", s.token, "\r\nx-sim: latency=60s\r\nContent-Length: ", itoa(len(body)), "\r\n\r\n", body)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, early := range []bool{false, true} { // before it is watched
			config := s.config.Clone()
			config.MaxVersion = version
			conn, err := tls.Dial("tcp", s.addr, config)
			must(t, err)
			_, err = io.WriteString(conn, one)
			must(t, err)
			eventually(t, func() bool { return s.sim.Stats().Open == 1 }, "never sent")
			if !early {
				time.Sleep(50 * time.Millisecond)
			}
			must(t, conn.CloseWrite())
			left := time.Now()
			s.idle()
			if took := time.Since(left); took > 10*time.Second { // 1 s, with slack
				t.Errorf("noticed after %v", took)
			}
			must(t, conn.Close())
		}
	}
}

// Several requests on one connection, each of which is watched: what the watch peeks at are records that TLS needs.
func TestTLSKeepsAlive(t *testing.T) {
	s := secure(t)
	for range 20 {
		s.send(s.request("/v1/chat/completions", chat("gpt-4o", ""), "x-sim", "latency=5ms")).want(t, 200)
	}
	conn, err := tls.Dial("tcp", s.addr, s.config)
	must(t, err)
	defer func() { _ = conn.Close() }()
	body := chat("gpt-4o", "")
	one := s.rawHead("/v1/chat/completions", "Authorization: Bearer "+s.token+"\r\n", "x-sim: latency=50ms\r\n", "Content-Length: "+itoa(len(body))+"\r\n") + "\r\n" + body
	_, err = io.WriteString(conn, one)
	must(t, err)
	_, err = io.WriteString(conn, strings.Replace(one, "x-sim", "Connection: close\r\nx-sim", 1)) // while the first is watched
	must(t, err)
	all, err := io.ReadAll(conn)
	must(t, err)
	if n := strings.Count(string(all), "HTTP/1.1 200 OK"); n != 2 {
		t.Errorf("%d answers: %s", n, all)
	}
}

// A handshake that does not go on ends with the time to read a request, or only its head.
func TestTLSHandshake(t *testing.T) {
	for _, o := range []proxy.Options{{ReadTimeoutMS: 200}, {HeadTimeoutMS: 200}} {
		s := secure(t, func(x *setup) { x.options = o })
		conn, err := net.Dial("tcp", s.addr)
		must(t, err)
		defer func() { _ = conn.Close() }()
		_, err = conn.Write([]byte{22, 3, 1, 1, 0, 1}) // a ClientHello that stops
		must(t, err)
		must(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
		if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
			t.Errorf("half a handshake keeps its connection with %+v", o)
		}
	}
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

// Who speaks plain HTTP to a TLS listener is told so.
func TestPlainHTTPToTLS(t *testing.T) {
	s := secure(t)
	resp, err := http.Get("http://" + s.addr + "/v1/models")
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "https://") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// A client that has stopped to read does not hold up the end of a shutdown, which no farewell waits for.
func TestTLSShutdownCuts(t *testing.T) {
	s := secure(t)
	conn, err := tls.Dial("tcp", s.addr, s.config)
	must(t, err)
	defer func() { _ = conn.Close() }()
	body := streamed(everyRoute[0])
	_, err = io.WriteString(conn, s.rawHead("/v1/chat/completions", "Authorization: Bearer "+s.token+"\r\n", "x-sim: out=200000,nocap\r\n", "Content-Length: "+itoa(len(body))+"\r\n")+"\r\n"+body)
	must(t, err)
	_, err = conn.Read(make([]byte, 1)) // it has begun
	must(t, err)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	start := time.Now()
	if err := s.server.Shutdown(over); err == nil {
		t.Error("nothing was open")
	}
	if took := time.Since(start); took > 4*time.Second || s.limits.Open() != 0 {
		t.Errorf("took %v, %d open", took, s.limits.Open())
	}
	if e := s.journal.last(t); e.Kind != llm.EntrySettle {
		t.Errorf("it ended as %+v", e)
	}
}
