package sim

import (
	"net"
	"syscall"
	"time"
)

// peer is the other end of one request's connection. One goroutine, started by the first wait, is parked on the
// socket until the peer leaves; stop ends it and waits for it. A peer is used by one goroutine at a time.
type peer struct {
	conn    net.Conn
	closing <-chan struct{}
	left    chan struct{} // closed when the peer left
	ended   chan struct{} // closed when the watcher ended
	cut     bool          // we reset the connection ourselves
}

// wait returns true after d, false at once when the peer left or the simulation shuts down. A negative d waits for
// those alone.
func (p *peer) wait(d time.Duration) bool {
	if d == 0 {
		return true
	}
	p.watch()
	var done <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		done = t.C
	}
	select {
	case <-done:
		return true
	case <-p.left:
		return false
	case <-p.closing:
		return false
	}
}

// gone reports that a wait has seen the peer leave.
func (p *peer) gone() bool {
	select {
	case <-p.left:
		return true
	default:
		return false
	}
}

func (p *peer) watch() {
	if p.ended != nil || p.gone() {
		return
	}
	p.left, p.ended = make(chan struct{}), make(chan struct{})
	raw, ok := rawConn(p.conn)
	if !ok {
		close(p.ended)
		return
	}
	go func() {
		defer close(p.ended)
		left := false
		_ = raw.Read(func(fd uintptr) bool { left = closedByPeer(int(fd)); return left }) // an error is stop's deadline
		if left {
			close(p.left)
		}
	}()
}

func rawConn(c net.Conn) (syscall.RawConn, bool) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil, false
	}
	raw, err := sc.SyscallConn()
	return raw, err == nil
}

// closedByPeer peeks: an orderly end or an error means that the peer left; bytes that wait, or none, that it did not.
func closedByPeer(fd int) bool {
	var b [1]byte
	for {
		n, _, err := syscall.Recvfrom(fd, b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch err {
		case nil:
			return n == 0
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		default:
			return true
		}
	}
}

// stop ends the watcher, so that the server may read the connection again. The next wait starts a new one.
func (p *peer) stop() {
	if p.ended == nil {
		return
	}
	_ = p.conn.SetReadDeadline(time.Unix(1, 0)) // fails only on a closed connection, which ends the watcher too
	<-p.ended
	_ = p.conn.SetReadDeadline(time.Time{})
	p.ended = nil
}

// reset cuts the connection so that the peer sees a TCP reset.
func (p *peer) reset() {
	p.cut = true
	if t, ok := p.conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // without it the close is orderly, which is still a cut
	}
	_ = p.conn.Close()
}
