//go:build unix && !linux

package proxy

import "syscall"

// hungUp reports whether the peer has closed. Without POLLRDHUP a FIN behind unread bytes is seen only when the next
// write fails.
func hungUp(fd int) bool {
	var b [1]byte
	n, _, err := syscall.Recvfrom(fd, b[:], syscall.MSG_PEEK)
	if err == syscall.EAGAIN || err == syscall.EINTR {
		return false
	}
	return err != nil || n == 0
}
