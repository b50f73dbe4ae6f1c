//go:build unix

package policy

import (
	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"
)

// mapped is a guest's memory outside the Go heap: reserved once at its maximum, so it never moves and views of it
// stay good until it is freed; pages cost nothing before they are touched.
type mapped struct {
	buf []byte
	booked
}

func allocate(_, limit uint64, account func(int64)) experimental.LinearMemory {
	if limit == 0 {
		return &mapped{nil, booked{account: account}}
	}
	buf, err := unix.Mmap(-1, 0, int(limit), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		panic(err) // caught by open, the only place that instantiates
	}
	return &mapped{buf, booked{account: account}}
}

// Reallocate implements experimental.LinearMemory.
func (m *mapped) Reallocate(size uint64) []byte {
	if size > uint64(len(m.buf)) {
		return nil
	}
	m.book(int64(size))
	return m.buf[:size]
}

// Free implements experimental.LinearMemory.
func (m *mapped) Free() {
	if m.buf != nil {
		_ = unix.Munmap(m.buf) // fails only for what is not a mapping
		m.buf = nil
		m.book(0)
	}
}
