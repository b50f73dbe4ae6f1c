//go:build !unix

package policy

import (
	"github.com/tetratelabs/wazero/experimental"
)

// mapped is a guest's memory, allocated once at its maximum so that it never moves and views of it stay good.
type mapped struct {
	buf []byte
	booked
}

func allocate(_, limit uint64, account func(int64)) experimental.LinearMemory {
	return &mapped{make([]byte, limit), booked{account: account}}
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
	m.buf = nil
	m.book(0)
}
