package policy

import (
	"os"
	"unsafe"

	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"
)

// resident is how many bytes of a guest's memory the kernel has given pages for.
func resident(memory experimental.LinearMemory) uint64 {
	m, ok := memory.(*mapped)
	if !ok || len(m.buf) == 0 {
		return 0
	}
	page := uint64(os.Getpagesize())
	there := make([]byte, (uint64(len(m.buf))+page-1)/page)
	if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m.buf[0])), uintptr(len(m.buf)), uintptr(unsafe.Pointer(&there[0]))); e != 0 {
		return ^uint64(0)
	}
	n := uint64(0)
	for _, b := range there {
		n += uint64(b & 1)
	}
	return n * page
}
