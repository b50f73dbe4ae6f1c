package proxy

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// hangups waits for many sockets to be closed or half-closed by their peers: an epoll set, which the runtime's own waits
// for, so that it takes no thread.
type hangups struct {
	fd     int
	file   *os.File
	raw    syscall.RawConn
	events [64]unix.EpollEvent
	ids    []int32
}

// open makes the set; false: the system has no room for it now.
func (h *hangups) open() bool {
	var err error
	if h.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return false
	}
	_ = unix.SetNonblock(h.fd, true) // so that the runtime takes it
	h.file = os.NewFile(uintptr(h.fd), "epoll")
	if h.raw, err = h.file.SyscallConn(); err != nil {
		_ = h.file.Close()
	}
	return err == nil
}

const hungUp = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR

// add begins to wait for c. A peer that has left already is told at once. Under TLS a peer that speaks may say goodbye.
func (h *hangups) add(c *conn, id int32) error {
	if c.Conn != c.socket {
		return h.control(unix.EPOLL_CTL_ADD, c, hungUp|unix.EPOLLIN, id)
	}
	return h.control(unix.EPOLL_CTL_ADD, c, hungUp, id)
}

func (h *hangups) control(op int, c *conn, events uint32, id int32) (err error) {
	if closed := c.raw.Control(func(fd uintptr) {
		err = unix.EpollCtl(h.fd, op, int(fd), &unix.EpollEvent{Events: events | unix.EPOLLONESHOT, Fd: id})
	}); closed != nil {
		return net.ErrClosed
	}
	return err
}

// spoke tells whether what c's peer has sent under TLS is its goodbye, which it may say long before it closes the socket; if it
// is not, only the end of the socket is waited for from here on. An alert is a record of its own type, or, where that is
// hidden, one of its length: two bytes, its type and a tag of 16.
func (h *hangups) spoke(c *conn, id int32) (goodbye bool) {
	var b [5]byte
	if closed := c.raw.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		goodbye = err == nil && n == len(b) && (b[0] == 21 || b[0] == 23 && b[3] == 0 && b[4] == 2+1+16)
	}); closed != nil {
		return true
	}
	return goodbye || h.control(unix.EPOLL_CTL_MOD, c, hungUp, id) != nil
}

// remove ends it. A socket that is closed has left the set by itself.
func (h *hangups) remove(c *conn) { _ = h.control(unix.EPOLL_CTL_DEL, c, 0, 0) }

// wait gives the ids of those that have left meanwhile, and negative ones of those that have spoken; over: close was called.
func (h *hangups) wait(*watches) (left []int32, over bool) {
	n := 0
	err := h.raw.Read(func(fd uintptr) bool {
		var err error
		n, err = unix.EpollWait(int(fd), h.events[:], 0)
		return n > 0 || n < 0 && err != unix.EINTR
	})
	h.ids = h.ids[:0]
	for i := range max(n, 0) {
		id := h.events[i].Fd
		if h.events[i].Events&hungUp == 0 {
			id = -id
		}
		h.ids = append(h.ids, id)
	}
	return h.ids, err != nil || n < 0
}

func (h *hangups) close() { _ = h.file.Close() }
