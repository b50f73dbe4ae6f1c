//go:build unix

package upstream

import "syscall"

// canReceive: receive and again are there.
const canReceive = true

// receive reads without waiting.
func receive(fd uintptr, b []byte) (int, error) {
	for {
		if n, err := syscall.Read(int(fd), b); err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

// again tells that nothing is there yet.
func again(err error) bool { return err == syscall.EAGAIN || err == syscall.EWOULDBLOCK }

// quiet reads one byte without waiting: only "would block" means that the peer is there and has said nothing. A byte
// taken here is no loss, since a connection that talks unasked is closed.
func quiet(fd uintptr) bool {
	var b [1]byte
	n, err := syscall.Read(int(fd), b[:])
	return n <= 0 && again(err)
}
