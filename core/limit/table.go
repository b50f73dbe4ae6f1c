package limit

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// The states of a slot of the open table. A slot's word is generation<<stateBits | state and changes only by one CAS,
// so a handle of an earlier generation can never get in, however often the slot is used again.
const (
	stateFree   uint64 = iota
	stateOpen          // waits for its owner
	stateBusy          // a call is inside; others wait, it is shorter than a microsecond
	stateEnding        // being settled; others are too late
	stateBits   = 2
)

// hold is one slot of the open table: what a reservation holds and how far it has come. Between stateOpen and the
// next it belongs to whoever made it busy; no lock of its own is needed.
type hold struct {
	word  atomic.Uint64
	next  *hold // free list
	owner *Memory

	id, seq    uint64
	key        uint64
	money      Money
	balance    *meter
	quotas     [llm.Windows]*meter
	nquotas    int
	amount     llm.Micro  // held on each of them
	number     uint64     // at the server of shared windows; 0: it has none of this
	org        uint64     // whose shard it is in there
	part       uint32     // the last order that was made for it
	told       llm.Tokens // what the server knows that it has come to
	withdrawn  bool       // its requests do not count
	granted    llm.Tokens // output bound
	covered    llm.Tokens // input + output that the charges hold or have posted
	progress   progress
	channel    string
	tier       string    // service tier of the price
	calls      llm.Micro // of tools, so far
	began      time.Duration
	atMS       int64         // wall clock of admission
	firstByte  time.Duration // 0: none yet
	touched    time.Duration // last call, for the leak net
	noted      llm.Tokens    // last progress entry
	notedAt    time.Duration
	layer      uint8
	n          int
	charges    []charge // the first n of them; the others keep their memory
	requests   Rate
	tokens     Rate
	generation uint64 // of the handle in force, while the slot is not free
}

// table owns every slot ever made. Slots are used again, last freed first, and never given back: the most that were
// open at once is what stays.
type table struct {
	owner *Memory
	mu    struct {
		sync.Mutex
		free  *hold
		inUse int
		all   []*hold
	}
}

// take gives a free slot. It is nobody else's until open.
func (t *table) take() *hold {
	t.mu.Lock()
	t.mu.inUse++
	h := t.mu.free
	if h != nil {
		t.mu.free = h.next
	} else {
		h = &hold{owner: t.owner}
		t.mu.all = append(t.mu.all, h)
	}
	t.mu.Unlock()
	return h
}

// put frees a slot; every handle on it is stale from here on.
func (t *table) put(h *hold) {
	for i := range h.n {
		h.charges[i].m = nil
	}
	for i := range h.nquotas {
		h.quotas[i] = nil
	}
	h.n, h.nquotas, h.balance = 0, 0, nil
	h.generation++
	h.word.Store(h.generation<<stateBits + stateFree)
	t.mu.Lock()
	t.mu.inUse--
	h.next, t.mu.free = t.mu.free, h
	t.mu.Unlock()
}

func (t *table) open() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.inUse
}

// holds lists the slots for the leak net.
func (t *table) holds() []*hold {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.all[:len(t.mu.all):len(t.mu.all)]
}

// nextCharge is one more charge to fill.
func (h *hold) nextCharge() *charge {
	if h.n == len(h.charges) {
		h.charges = append(h.charges, charge{})
	}
	h.n++
	return &h.charges[h.n-1]
}

// open publishes a filled slot and gives the handle.
func (h *hold) open() Reservation {
	h.word.Store(h.generation<<stateBits | stateOpen)
	return Reservation{hold: h, generation: h.generation}
}

// enter makes the slot busy (or ending) for the holder of a live handle; nil: the handle is stale.
func (r Reservation) enter(to uint64) *hold {
	h := r.hold
	if h == nil {
		return nil
	}
	for {
		switch h.word.Load() {
		case r.generation<<stateBits | stateOpen:
			if h.word.CompareAndSwap(r.generation<<stateBits|stateOpen, r.generation<<stateBits|to) {
				return h
			}
		case r.generation<<stateBits | stateBusy:
			runtime.Gosched()
		default:
			return nil
		}
	}
}

// leave lets the next call in.
func (h *hold) leave() { h.word.Store(h.generation<<stateBits | stateOpen) }
