//go:build !linux

package proxy

import "time"

const lookEvery = 100 * time.Millisecond

// hangups looks at each socket ten times a second.
type hangups struct {
	over chan struct{}
	ids  []int32
}

func (h *hangups) open() bool {
	h.over = make(chan struct{})
	return true
}

func (h *hangups) add(*conn, int32) error { return nil }

func (h *hangups) remove(*conn) {}

func (h *hangups) spoke(*conn, int32) bool { return false }

// wait gives the ids of those that have left meanwhile; over: close was called.
func (h *hangups) wait(a *watches) (left []int32, over bool) {
	select {
	case <-h.over:
		return nil, true
	case <-time.After(lookEvery):
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	h.ids = h.ids[:0]
	for id, w := range a.by {
		gone := false
		if closed := w.conn.raw.Control(func(fd uintptr) { gone = hungUp(int(fd)) }); gone || closed != nil {
			h.ids = append(h.ids, id)
		}
	}
	return h.ids, false
}

func (h *hangups) close() { close(h.over) }
