package upstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

const (
	connBuffer = 4 << 10  // received bytes not yet decoded; one per connection that has any
	maxHead    = 64 << 10 // an answer's status line and headers, interim answers included
)

var (
	errHeadTooLarge = errors.New("answer's head is over 64 KiB")
	errLineEnd      = errors.New("answer's head has a line that does not end in CRLF")
)

// conn is one HTTP/1.1 connection. Its owner alone reads and writes; abort alone may come from elsewhere.
type conn struct {
	net.Conn // TLS, or the socket itself
	sock     net.Conn
	raw      syscall.RawConn
	look     func(fd uintptr) bool // bound once, so that looking allocates nothing
	alive    bool                  // what look saw
	take     func(fd uintptr) bool // reads without waiting; nil where only Read can
	n        int                   // what take read
	err      error                 // what it met
	got      bool                  // a byte of the current answer has arrived
	buf      []byte                // buf[r:w] is received and not yet consumed; nil when there is nothing, if take can wait without
	r, w     int
	keep     time.Duration // how long the peer keeps it when it is idle; 0: it does not say
	dies     time.Duration // Mono until when it may be used again; set when it is pooled
}

func newConn(sock, secure net.Conn) *conn {
	c := &conn{Conn: secure, sock: sock}
	if s, ok := sock.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			c.raw = raw
		}
	}
	c.look = func(fd uintptr) bool {
		c.alive = quiet(fd)
		return true
	}
	if c.raw != nil && secure == sock && canReceive {
		c.take = func(fd uintptr) bool {
			c.hold()
			if c.n, c.err = receive(fd, c.buf[c.w:]); !again(c.err) {
				return true
			}
			c.park()
			return false
		}
	}
	return c
}

// buffers are those of connections that have received nothing lately: most streams are silent most of the time.
var buffers = sync.Pool{New: func() any { return new([connBuffer]byte) }}

// hold makes sure that there is a buffer.
func (c *conn) hold() {
	if c.buf == nil {
		c.buf = buffers.Get().(*[connBuffer]byte)[:]
	}
}

// park gives a buffer back that holds nothing.
func (c *conn) park() {
	if c.r == c.w && len(c.buf) == connBuffer {
		llm.Mangle(c.buf)
		buffers.Put((*[connBuffer]byte)(c.buf))
		c.buf = nil
	}
}

// spent reports that nothing has been read that is not consumed. Under TLS what follows an answer may have been decrypted
// with its end, where neither buf nor the socket has it: only a read that must not wait can tell.
func (c *conn) spent() bool {
	if c.r != c.w || c.Conn == c.sock {
		return c.r == c.w
	}
	_ = c.sock.SetReadDeadline(time.Unix(1, 0)) // fails only on a closed socket: so will the read
	c.hold()
	n, err := c.Read(c.buf[:1])
	return n == 0 && timedOut(err)
}

// healthy reports whether an idle connection is still open and silent. A peer that closed it, or sent anything at all
// while nothing was asked, has ended it.
func (c *conn) healthy() bool {
	if c.raw == nil {
		return true
	}
	c.alive = false
	return c.raw.Read(c.look) == nil && c.alive
}

// abort closes the socket under whoever reads or writes. Safe from any goroutine.
func (c *conn) abort() { c.sock.Close() }

// fill reads once, waiting until the deadline. io.EOF is the peer's orderly end.
func (c *conn) fill() error {
	switch {
	case c.r == c.w:
		c.r, c.w = 0, 0
	case c.w == len(c.buf) && c.r > 0:
		c.w = copy(c.buf, c.buf[c.r:c.w])
		c.r = 0
	case c.w == len(c.buf):
		c.buf = append(c.buf, make([]byte, len(c.buf))...)
	}
	n, err := c.receive()
	c.w += n
	switch {
	case n > 0:
		c.got = true
		return nil
	case err == nil:
		return io.ErrNoProgress
	}
	return err
}

// receive reads into the buffer's room. Where it can, it takes a buffer when there is something to read.
func (c *conn) receive() (int, error) {
	if c.take == nil {
		c.hold()
		return c.Read(c.buf[c.w:])
	}
	if err := c.raw.Read(c.take); err != nil {
		return 0, err
	}
	if c.n == 0 && c.err == nil {
		return 0, io.EOF
	}
	return c.n, os.NewSyscallError("read", c.err)
}

// line takes one line of the head, without its CRLF; valid until the next fill. budget is what the head may still use.
func (c *conn) line(budget *int) ([]byte, error) {
	seen := 0
	for {
		if i := bytes.IndexByte(c.buf[c.r+seen:c.w], '\n'); i >= 0 {
			line := c.buf[c.r : c.r+seen+i]
			c.r += len(line) + 1
			if *budget -= len(line) + 1; *budget < 0 {
				return nil, errHeadTooLarge
			}
			n := len(line) - 1
			if n < 0 || bytes.IndexByte(line, '\r') != n {
				return nil, errLineEnd
			}
			return line[:n], nil
		}
		if seen = c.w - c.r; seen > *budget {
			return nil, errHeadTooLarge
		}
		if err := c.fill(); err != nil {
			return nil, err
		}
	}
}

// cutter lets any goroutine cut the call that owns it, at any time, without ever touching a connection that the call
// has given away.
type cutter struct {
	mu struct {
		sync.Mutex
		conn  *conn
		end   context.CancelFunc // of what waits without a connection; nil: nothing does
		fired bool
	}
}

func (k *cutter) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.fired = true
	if k.mu.end != nil {
		k.mu.end()
	}
	if k.mu.conn != nil {
		k.mu.conn.abort()
	}
}

// waits is ctx for what waits without a connection, a dial or a place: it ends with the cut, too. Whoever waited calls end.
func (k *cutter) waits(ctx context.Context) (until context.Context, end func()) {
	until, cancel := context.WithCancel(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.end = cancel
	if k.mu.fired {
		cancel()
	}
	return until, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.mu.end = nil
		cancel()
	}
}

// bind makes c the connection to cut; false when the cut has already fired.
func (k *cutter) bind(c *conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.fired {
		return false
	}
	k.mu.conn = c
	return true
}

// unbind takes the connection away from Cancel; whole is false when the cut has fired.
func (k *cutter) unbind() (whole bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.conn = nil
	return !k.mu.fired
}

// wasCut is nil, or why a call that was cut has ended: ctx's error, else context.Canceled.
func (k *cutter) wasCut(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if k.mu.fired {
		return context.Canceled
	}
	return nil
}

// timedOut tells a deadline from other failures.
func timedOut(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}
