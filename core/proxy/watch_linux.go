package proxy

import (
	"golang.org/x/sys/unix"
)

// hungUp reports whether the peer has closed or half-closed. The peek alone would miss a FIN behind unread bytes
// (a pipelined request, a TLS record), hence the second look.
func hungUp(fd int) bool {
	var b [1]byte
	n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return false
	case err != nil || n == 0:
		return true
	}
	p := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	k, err := unix.Poll(p[:], 0)
	return err == nil && k > 0 && p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
}
