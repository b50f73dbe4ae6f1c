package upstream

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/weir-gateway/weir/core/llm"
)

// readOne answers one call with raw bytes and then closes.
func readOne(t *testing.T, raw string) (*rig, *Response, error) {
	t.Helper()
	s := newStub(t, func(x *exchange) bool { x.send(raw); return false })
	r := newRig(t, Options{}, openai("a", s.url))
	resp, err := r.do(context.Background(), plainBody, new(watcher))
	if err == nil {
		t.Cleanup(resp.Close)
	}
	return r, resp, err
}

func TestAnswersThatAreRead(t *testing.T) {
	for _, tt := range []struct{ name, raw, body, contentType string }{
		{"length", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{\"model\":1}", `{"model":1}`, "application/json"},
		{"odd case and blanks", "HTTP/1.1 200 OK\r\ncontent-LENGTH:\t11 \r\nX-Empty:\r\n\r\n{\"model\":1}", `{"model":1}`, ""},
		{"no reason", "HTTP/1.1 200\r\nContent-Length: 11\r\n\r\n{\"model\":1}", `{"model":1}`, ""},
		{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\n{\"\r\n00009;x=\"y\"\r\nmodel\":1}\r\n0\r\nX-T: 1\r\n\r\n", `{"model":1}`, ""},
		{"until close", "HTTP/1.1 200 OK\r\n\r\n{\"model\":1}", `{"model":1}`, ""},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 11\r\n\r\n{\"model\":1}", `{"model":1}`, ""},
		{"interim answers", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{\"model\":1}", `{"model":1}`, ""},
		{"empty refusal", "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "", ""},
		{"identity", "HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Length: 11\r\n\r\n{\"model\":1}", `{"model":1}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, resp, err := readOne(t, tt.raw)
			if err != nil {
				t.Fatal(err)
			}
			body, err := resp.Body()
			if err != nil || string(body) != tt.body || resp.ContentType != tt.contentType {
				t.Errorf("%q, %q, %v", body, resp.ContentType, err)
			}
		})
	}
}

// An answer that says nothing is none: the next channel is asked.
func TestEmptyAnswersAreFailures(t *testing.T) {
	for _, raw := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 205 Reset Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 304 Not Modified\r\n\r\n",
	} {
		mute := newStub(t, func(x *exchange) bool { return x.send(raw) })
		first := openai("a", mute.url)
		first.Priority = 1
		r := newRig(t, Options{}, first, openai("b", newStub(t, fine).url))
		if _, body, err := r.call(); err != nil || body != `{"model":"m"}` {
			t.Errorf("%q: %s, %v", raw, body, err)
		}
	}
	_, _, err := readOne(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
	asError(t, err, llm.KindUpstream)
}

// An answer that two readers could cut in two ways is a failed attempt.
func TestAmbiguousAnswersAreFailures(t *testing.T) {
	for _, tt := range []struct{ name, raw, why string }{
		{"both framings", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "ambiguous"},
		{"both, other order", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", "ambiguous"},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "ambiguous"},
		{"two equal lengths", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", "ambiguous"},
		{"list of lengths", "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello", "ambiguous"},
		{"signed length", "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello", "ambiguous"},
		{"empty length", "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nhello", "ambiguous"},
		{"huge length", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nhello", "ambiguous"},
		{"other coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "ambiguous"},
		{"two codings", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "ambiguous"},
		{"chunked 1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "ambiguous"},
		{"folded header", "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 5\r\n\r\nhello", "malformed header"},
		{"blank before colon", "HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello", "malformed header"},
		{"no colon", "HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", "malformed header"},
		{"no name", "HTTP/1.1 200 OK\r\n: x\r\n\r\n", "malformed header"},
		{"zero byte", "HTTP/1.1 200 OK\r\nX: a\x00b\r\n\r\n", "malformed header"},
		{"bare LF", "HTTP/1.1 200 OK\nContent-Length: 5\r\n\r\nhello", "CRLF"},
		{"CR inside", "HTTP/1.1 200 OK\r\nX: a\rContent-Length: 5\r\n\r\nhello", "CRLF"},
		{"not HTTP", "SSH-2.0-OpenSSH_9.2p1 Debian\r\n\r\n", "status line"},
		{"HTTP/2", "HTTP/2.0 200 OK\r\n\r\n", "status line"},
		{"no status", "HTTP/1.1 abc OK\r\n\r\n", "status line"},
		{"signed status", "HTTP/1.1 +20 OK\r\n\r\n", "status line"},
		{"long status", "HTTP/1.1 2000 OK\r\n\r\n", "status line"},
		{"status 999", "HTTP/1.1 999 OK\r\n\r\n", "status line"},
		{"endless interim", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 9), "interim"},
		{"endless header", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxHead), "64 KiB"},
		{"endless headers", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", maxHead/6), "64 KiB"},
		{"upgrade", "HTTP/1.1 101 Switching Protocols\r\n\r\n", "answered 101"},
		{"redirect", "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://evil/\r\nContent-Length: 0\r\n\r\n", "answered 307"},
		{"compressed", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", "answered 200"},
		{"cut in the head", "HTTP/1.1 200 OK\r\nContent-Le", "EOF"},
		{"nothing", "", "EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, _, err := readOne(t, tt.raw)
			e := asError(t, err, llm.KindUpstream)
			if e.Code != "upstream_unavailable" || !cmp.Equal(e.Fields["attempted_channels"], []string{"a"}) {
				t.Errorf("%+v", e)
			}
			contains(t, e.Err.Error(), tt.why)
			if open, idle := r.conns("a"); open != 0 || idle != 0 {
				t.Errorf("%d connections open, %d idle", open, idle)
			}
		})
	}
}

func TestBrokenBodies(t *testing.T) {
	head := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, tt := range []struct{ name, raw, why string }{
		{"short", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", "broke off"},
		{"chunks cut", head + "5\r\nhel", "broke off"},
		{"chunks without an end", head + "5\r\nhello\r\n", "broke off"},
		{"no last empty line", head + "0\r\n", "broke off"},
		{"size is no number", head + "x\r\nhello\r\n", "cannot be read"},
		{"negative size", head + "-5\r\nhello\r\n", "cannot be read"},
		{"0x size", head + "0x5\r\nhello\r\n", "cannot be read"},
		{"blank size", head + " 5\r\nhello\r\n", "cannot be read"},
		{"size with LF", head + "5\nhello\r\n", "cannot be read"},
		{"huge size", head + "ffffffffffffffff\r\nhello\r\n", "cannot be read"},
		{"chunk too long", head + "3\r\nhello\r\n", "cannot be read"},
		{"data with LF", head + "5\r\nhello\n0\r\n\r\n", "cannot be read"},
		{"endless extension", head + "5;" + strings.Repeat("x", 300) + "\r\nhello\r\n", "cannot be read"},
		{"endless trailer", head + "0\r\n" + strings.Repeat("X: y\r\n", 2000) + "\r\n", "cannot be read"},
		{"trailer with LF", head + "0\r\nX: y\n\r\n", "cannot be read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, _, err := readOne(t, tt.raw)
			contains(t, asError(t, err, llm.KindUpstream).Err.Error(), tt.why)
			if open, _ := r.conns("a"); open != 0 {
				t.Error("the connection is still open")
			}
		})
	}
}

func TestBodyLimit(t *testing.T) {
	for _, raw := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n" + strings.Repeat("x", 3000),
		"HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", 3000),
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nbb8\r\n" + strings.Repeat("x", 3000) + "\r\n0\r\n\r\n",
	} {
		s := newStub(t, func(x *exchange) bool { return x.send(raw) })
		r := newRig(t, Options{ResponseBytes: 2048}, openai("a", s.url))
		resp, err := r.do(context.Background(), plainBody, new(watcher))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = resp.Body(); err == nil {
			t.Fatal("a body over the limit was accepted")
		}
		contains(t, asError(t, err, llm.KindUpstream).Message, "over 2048 bytes")
		resp.Close()
	}
}

// A long body, read in whatever pieces, is whole, and its connection is used again.
func TestLongBodies(t *testing.T) {
	want := `{"model":"` + strings.Repeat("0123456789abcdef", 1<<16) + `"}`
	s := newStub(t, func(x *exchange) bool {
		if x.n%2 == 0 {
			return x.answer(200, "", want)
		}
		x.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		for rest := want; len(rest) > 0; {
			n := min(len(rest), 7777)
			x.chunk(rest[:n])
			rest = rest[n:]
		}
		return x.send("0\r\n\r\n")
	})
	r := newRig(t, Options{}, openai("a", s.url))
	for range 4 {
		if _, body, err := r.call(); err != nil || body != want {
			t.Fatalf("%d bytes, %v", len(body), err)
		}
	}
	if n := s.accepted.Load(); n != 1 {
		t.Errorf("%d connections for 4 calls", n)
	}
}

// FuzzFrame: however the bytes arrive, the same body comes out, and nothing behind its end is touched.
func FuzzFrame(f *testing.F) {
	f.Add([]byte("5\r\nhello\r\n0\r\n\r\nHTTP/1.1"), uint8(byChunks), uint16(3))
	f.Add([]byte("5;a=b\r\nhello\r\n1\r\nx\r\n0\r\nT: 1\r\n\r\n"), uint8(byChunks), uint16(1))
	f.Add([]byte("hello world"), uint8(byLength), uint16(2))
	f.Fuzz(func(t *testing.T, src []byte, kind uint8, step uint16) {
		make := func() frame { return frame{kind: frameKind(kind % 3), left: int64(len(src) / 2)} }
		run := func(step int) (body string, used int, done, bad bool) {
			fr := make()
			if fr.kind == byLength && fr.left == 0 {
				fr.done = true
			}
			var out [64]byte
			for used < len(src) && !fr.done {
				w, r, err := fr.decode(out[:], src[used:min(used+step, len(src))])
				body, used = body+string(out[:w]), used+r
				if err != nil {
					return body, used, false, true
				}
				if w+r == 0 {
					t.Fatal("no progress")
				}
			}
			return body, used, fr.done, false
		}
		b1, u1, d1, e1 := run(len(src) + 1)
		b2, u2, d2, e2 := run(int(step)%len(append(src, 0)) + 1)
		if b1 != b2 || u1 != u2 || d1 != d2 || e1 != e2 {
			t.Fatalf("whole: %q %d %v %v; in pieces: %q %d %v %v", b1, u1, d1, e1, b2, u2, d2, e2)
		}
	})
}

// FuzzHead: no head makes the reader panic or wait for ever.
func FuzzHead(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nRetry-After: 7\r\nConnection: close, x\r\n\r\nhello"))
	f.Add([]byte("HTTP/1.1 100 C\r\n\r\nHTTP/1.1 429 Too Many\r\nretry-after-ms: 1e999\r\n\r\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c := &conn{Conn: feed{strings.NewReader(string(raw))}, buf: make([]byte, 64)}
		var h head
		if err := c.readHead(&h); err != nil {
			return
		}
		if h.status < 100 || h.status > 599 || h.frame.left < 0 || h.retryAfter < 0 || h.retryAfter > time.Hour {
			t.Fatalf("%+v", h)
		}
	})
}

// feed is a connection that only reads.
type feed struct{ io.Reader }

func (feed) Write([]byte) (int, error)        { return 0, io.ErrClosedPipe }
func (feed) Close() error                     { return nil }
func (feed) LocalAddr() net.Addr              { return nil }
func (feed) RemoteAddr() net.Addr             { return nil }
func (feed) SetDeadline(time.Time) error      { return nil }
func (feed) SetReadDeadline(time.Time) error  { return nil }
func (feed) SetWriteDeadline(time.Time) error { return nil }
