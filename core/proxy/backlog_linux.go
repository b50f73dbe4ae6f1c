package proxy

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// boundBacklog keeps the system from taking more of an answer than it can soon send: by itself it takes megabytes for a
// client that has stopped, and lets a writer go on only when a third of them are gone, which for a slow one may be
// minutes. What is on its way to the client does not count, so a long way does not make an answer slow.
func boundBacklog(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) { // without it an answer is as right as with it
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, backlogBytes)
	})
}
