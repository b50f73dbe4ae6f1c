package proxy_test

import (
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/proxy"
)

// Whoever has no good key cannot make the gateway hold a large body: the answer is 401, before the body is read.
func TestStrangersBodiesAreNotRead(t *testing.T) {
	r := newRig(t)
	for name, head := range map[string]string{
		"bad key": r.rawHead("/v1/chat/completions", "Authorization: Bearer nope\r\nContent-Length: 15000000\r\n\r\n"),
		"no key":  r.rawHead("/v1/messages", "Content-Length: 15000000\r\n\r\n"),
	} {
		nc, err := net.Dial("tcp", r.addr)
		must(t, err)
		must(t, nc.SetDeadline(time.Now().Add(10*time.Second)))
		_, err = nc.Write([]byte(head))
		must(t, err)
		buf := make([]byte, 4096)
		n, err := nc.Read(buf)
		if err != nil || !strings.HasPrefix(string(buf[:n]), "HTTP/1.1 401 ") {
			t.Errorf("%s: %v %s", name, err, buf[:n])
		}
		_ = nc.Close()
	}
	p := r.post("/v1/chat/completions", `{"model":"gpt-4o","messages":[{"role":"user","content":"`+strings.Repeat("hello ", 30_000)+`"}],"max_tokens":1}`)
	p.want(t, 200) // a good key's large body is read
	body := strings.Repeat("x", 70_000)
	if raw := r.raw(r.rawHead("/v1/chat/completions", "Authorization: Bearer nope\r\nTransfer-Encoding: chunked\r\n\r\n") +
		strconv.FormatInt(int64(len(body)), 16) + "\r\n" + body + "\r\n0\r\n\r\n"); !strings.HasPrefix(raw, "HTTP/1.1 413 ") && !strings.HasPrefix(raw, "HTTP/1.1 401 ") {
		t.Errorf("chunked: %.200s", raw)
	}
}

// Bodies share a budget: what does not fit is told to come again, and what is over gives its part back.
func TestBodiesShareABudget(t *testing.T) {
	r := newRig(t, func(s *setup) { s.options = proxy.Options{BodiesBytes: 1 << 20} })
	large := chat("gpt-4o", `,"max_tokens":1,"user":"`+strings.Repeat("u", 700_000)+`"`)
	part := r.rawHead("/v1/chat/completions", "Authorization: Bearer ", r.token, "\r\nContent-Length: ", strconv.Itoa(len(large)), "\r\n\r\n", large[:len(large)-10])
	var conns [2]net.Conn
	answers := make(chan string, len(conns))
	for i := range conns { // neither is complete; whichever comes last does not fit
		nc, err := net.Dial("tcp", r.addr)
		must(t, err)
		conns[i] = nc
		go func() {
			_, _ = nc.Write([]byte(part)) // the answer may come first
			answer, _ := io.ReadAll(nc)
			answers <- string(answer)
		}()
	}
	if a := <-answers; !strings.HasPrefix(a, "HTTP/1.1 503 ") || !strings.Contains(a, "too many large requests") || !strings.Contains(strings.ToLower(a), "retry-after-ms: ") {
		t.Errorf("%s", a)
	}
	r.post("/v1/chat/completions", chat("gpt-4o", `,"max_tokens":1`)).want(t, 200) // small ones go on
	for _, nc := range conns {
		must(t, nc.Close())
	}
	eventually(t, func() bool { return r.post("/v1/chat/completions", large).status == 200 }, "the budget did not come back")
	for range 5 {
		r.post("/v1/chat/completions", large).want(t, 200)
	}
}

// A body takes from the budget what its head claims, or a chunk of it: that much memory is made before a byte has come. So
// clients that claim much and send nothing cannot fill the memory, and whoever comes too late has an answer at once.
func TestClaimedLengthsShareTheBudget(t *testing.T) {
	const budget, claim = 4 << 20, 1 << 20
	for name, framing := range map[string]string{
		"length": "Content-Length: " + strconv.Itoa(claim) + "\r\n\r\n{\"model\":",
		"chunk":  "Transfer-Encoding: chunked\r\n\r\n" + strconv.FormatInt(claim, 16) + "\r\n{\"model\":",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(s *setup) { s.options = proxy.Options{BodiesBytes: budget} })
			head := r.rawHead("/v1/chat/completions", "Authorization: Bearer ", r.token, "\r\n", framing)
			var conns []net.Conn
			answers := make(chan string, 12)
			for range cap(answers) {
				nc, err := net.Dial("tcp", r.addr)
				must(t, err)
				conns = append(conns, nc)
				_, err = nc.Write([]byte(head))
				must(t, err)
				go func() {
					answer, _ := io.ReadAll(nc)
					answers <- string(answer)
				}()
			}
			for i := range cap(answers) - budget/(claim-64<<10) {
				if a := <-answers; !strings.HasPrefix(a, "HTTP/1.1 503 ") || !strings.Contains(a, "too many large requests") {
					t.Fatalf("answer %d: %s", i, a)
				}
			}
			r.post("/v1/chat/completions", chat("gpt-4o", `,"max_tokens":1`)).want(t, 200) // small ones go on
			for _, nc := range conns {
				must(t, nc.Close())
			}
			large := chat("gpt-4o", `,"max_tokens":1,"user":"`+strings.Repeat("u", 700_000)+`"`)
			eventually(t, func() bool { return r.post("/v1/chat/completions", large).status == 200 }, "the budget did not come back")
		})
	}
}

// A stream that has begun gives back what its body took of the budget.
func TestAStreamKeepsNoBody(t *testing.T) {
	up := newPlayer(t)
	r := newRig(t, func(s *setup) {
		s.options = proxy.Options{BodiesBytes: 1 << 20}
		s.catalog = func(c *catalog) { c.channels[0].BaseURL, c.channels[1].BaseURL = up.URL, up.URL }
	})
	large := chat("gpt-4o", `,"stream":true,"max_tokens":9,"user":"`+strings.Repeat("u", 700_000)+`"`)
	for range 4 { // all of them are open at the end
		c, a := r.chunks("/v1/chat/completions", large), up.play()
		a.send([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"yes\"}}]}\n\n"), 1<<20)
		if b, err := c.next(); err != nil || !strings.Contains(string(b), "yes") {
			t.Fatalf("%q, %v", b, err)
		}
		defer c.Close()
	}
}

// shortage is a listener whose system has no descriptors left for a while.
type shortage struct {
	net.Listener
	left atomic.Int64
}

func (s *shortage) Accept() (net.Conn, error) {
	if s.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return s.Listener.Accept()
}

// A shortage of descriptors passes: it is said, readiness knows of it, and then clients are served again.
func TestShortageOfDescriptorsPasses(t *testing.T) {
	r := newRig(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &shortage{Listener: ln}
	s.left.Store(7)
	ended := make(chan error, 1)
	go func() { ended <- r.server.Serve(s) }()
	eventually(t, func() bool { return r.server.Ready() != nil }, "a gateway that accepts nobody is ready")
	eventually(t, func() bool { return s.left.Load() < 0 }, "gave up")
	r.addr, r.base = ln.Addr().String(), "http://"+ln.Addr().String()
	r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200)
	must(t, r.server.Ready())
	select {
	case err := <-ended:
		t.Fatalf("the listener ended: %v", err)
	default:
	}
	r.idle()
	if !strings.Contains(r.log.String(), "short of descriptors") {
		t.Error("nobody was told")
	}
}
