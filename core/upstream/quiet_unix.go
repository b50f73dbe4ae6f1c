//go:build unix

package upstream

import "syscall"

// quiet reads one byte without waiting: only "would block" means that the peer is there and has said nothing. A byte
// taken here is no loss, since a connection that talks unasked is closed.
func quiet(fd uintptr) bool {
	var b [1]byte
	n, err := syscall.Read(int(fd), b[:])
	return n <= 0 && (err == syscall.EAGAIN || err == syscall.EWOULDBLOCK)
}
