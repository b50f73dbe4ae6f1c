package proxy

import (
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

// open makes the set; false: the system has no room for it, and clients that leave are noticed when a write to them fails.
func (h *hangups) open() bool {
	var err error
	if h.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return false
	}
	_ = unix.SetNonblock(h.fd, true) // so that the runtime takes it
	h.file = os.NewFile(uintptr(h.fd), "epoll")
	h.raw, err = h.file.SyscallConn()
	return err == nil
}

// add begins to wait for c; false: it is closed. A peer that has left already is told at once. Where the system has no room
// for one more, that its client leaves is noticed when a write fails.
func (h *hangups) add(c *conn, id int32) bool {
	return c.raw.Control(func(fd uintptr) {
		_ = unix.EpollCtl(h.fd, unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: id})
	}) == nil
}

// remove ends it. A socket that is closed has left the set by itself.
func (h *hangups) remove(c *conn) {
	_ = c.raw.Control(func(fd uintptr) { _ = unix.EpollCtl(h.fd, unix.EPOLL_CTL_DEL, int(fd), nil) })
}

// wait gives the ids of those that have left meanwhile; over: close was called.
func (h *hangups) wait(*watches) (left []int32, over bool) {
	n := 0
	err := h.raw.Read(func(fd uintptr) bool {
		var err error
		n, err = unix.EpollWait(int(fd), h.events[:], 0)
		return n > 0 || n < 0 && err != unix.EINTR
	})
	h.ids = h.ids[:0]
	for i := range max(n, 0) {
		h.ids = append(h.ids, h.events[i].Fd)
	}
	return h.ids, err != nil || n < 0
}

func (h *hangups) close() {
	if h.file != nil {
		_ = h.file.Close()
	}
}
