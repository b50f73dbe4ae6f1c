//go:build unix

package proxy

import "syscall"

// parks tells whether a socket can be waited for without a buffer.
const parks = true

// readNow reads what there is; again says that there is nothing yet.
func readNow(fd int, p []byte) (n int, again bool, err error) {
	for {
		n, err = syscall.Read(fd, p)
		switch err {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return 0, true, nil
		}
		return n, false, err
	}
}
