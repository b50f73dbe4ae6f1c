package ledger

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// queue is the one FIFO between the callers and the owner. Tickets number its items; they are what Wait waits on.
// Two slices change places, so that neither side allocates.
type queue struct {
	wake  chan struct{} // holds one token when there may be something to take
	limit int
	mu    struct {
		sync.Mutex
		items  []item
		first  uint64 // ticket of items[0]
		closed bool
	}
}

// item is one thing for the owner to write: an entry, or a change of the control plane.
type item struct {
	entry llm.Entry
	put   *put
	shed  bool // decided as failed; not to be written
}

func (q *queue) init(limit int) {
	q.wake, q.limit = make(chan struct{}, 1), limit
	q.mu.first = 1
}

// push copies the entry (or takes the change) to the end of the queue. down is why the ledger cannot write, if so:
// then only endings and progress are taken.
func (q *queue) push(e *llm.Entry, p *put, down error) (uint64, error) {
	must := p == nil && ends(e.Kind)
	q.mu.Lock()
	if err := q.refuseLocked(must, p == nil && e.Kind == llm.EntryProgress, down); err != nil {
		q.mu.Unlock()
		return 0, err
	}
	q.mu.items = append(q.mu.items, item{put: p})
	n := len(q.mu.items)
	if e != nil {
		q.mu.items[n-1].entry = *e
	}
	ticket := q.mu.first + uint64(n) - 1
	q.mu.Unlock()
	if n == 1 {
		q.signal()
	}
	return ticket, nil
}

func (q *queue) refuseLocked(must, progress bool, down error) error {
	switch {
	case q.mu.closed:
		return errClosed
	case must:
		return nil
	case down != nil && !progress:
		return down
	case len(q.mu.items) >= q.limit:
		return errFull
	}
	return nil
}

// take gives everything queued and the ticket of the first, in exchange for an empty slice to fill next.
func (q *queue) take(spare []item) ([]item, uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	items, first := q.mu.items, q.mu.first
	q.mu.items = spare[:0]
	q.mu.first += uint64(len(items))
	return items, first
}

func (q *queue) empty() bool { return q.len() == 0 }

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.mu.items)
}

// gather lets those run that the group before has woken, as long as they bring something. Taken at once, the queue has
// only what came while that group was being written, and the callers fall into two halves that take turns: each write,
// and each sync, then serves half of them. It waits for nobody: who comes alone is not kept, and who does not come at
// once is not either.
func (q *queue) gather() {
	for before, n, pass := 0, q.len(), 0; n > before && pass < gatherPasses; pass++ {
		runtime.Gosched()
		before, n = n, q.len()
	}
}

const gatherPasses = 4

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) close() {
	q.mu.Lock()
	q.mu.closed = true
	q.mu.Unlock()
	q.signal()
}

var (
	errClosed error = &llm.Error{Kind: llm.KindUnavailable, Code: "ledger_unavailable", Message: "the ledger is closed"}
	errFull   error = &llm.Error{Kind: llm.KindUnavailable, Code: "ledger_unavailable", Message: "the ledger's queue is full"}
	errLate   error = &llm.Error{Kind: llm.KindUnavailable, Code: "ledger_timeout", Message: "the ledger did not acknowledge in time"}
)

// acks are the decided tickets. Tickets are decided in order except for failures, so "written" needs one number and
// only what went otherwise is remembered one by one.
type acks struct {
	done atomic.Uint64 // every ticket up to here is decided
	odds atomic.Uint64 // how many tickets were ever decided otherwise than written
	mu   struct {
		sync.Mutex
		waiting map[uint64]*waiter
		odd     map[uint64]error
		order   []uint64 // of odd, a ring
		oldest  int
		closed  bool
	}
}

// rememberOdd bounds the outcomes kept for callers who have not asked yet. A caller asks within its timeout.
const rememberOdd = 65_536

// waiter is one blocked Wait. Its channel gets exactly one value once it is out of the map.
type waiter struct {
	woken chan error
	timer *time.Timer
	next  *waiter // another one on the same ticket
}

var waiters = sync.Pool{New: func() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &waiter{woken: make(chan error, 1), timer: t}
}}

func (a *acks) init() {
	a.mu.waiting = map[uint64]*waiter{}
	a.mu.odd = map[uint64]error{}
}

// advance decides every ticket up to last; outcome gives the error of the i-th from first (nil: written).
func (a *acks) advance(first, last uint64, outcome []error) {
	var wake *waiter
	a.mu.Lock()
	for t := first; t <= last; t++ {
		err := outcome[t-first]
		if err != nil {
			a.rememberLocked(t, err)
		}
		if len(a.mu.waiting) > 0 {
			wake = a.collectLocked(t, wake)
		}
	}
	a.done.Store(last)
	a.mu.Unlock()
	for wake != nil {
		next := wake.next
		wake.next = nil
		wake.woken <- nil
		wake = next
	}
}

// fail decides one ticket ahead of its turn.
func (a *acks) fail(ticket uint64, err error) {
	a.mu.Lock()
	a.rememberLocked(ticket, err)
	wake := a.collectLocked(ticket, nil)
	a.mu.Unlock()
	for wake != nil {
		next := wake.next
		wake.next = nil
		wake.woken <- nil
		wake = next
	}
}

// collectLocked takes the waiters of a ticket out of the map, in front of list.
func (a *acks) collectLocked(ticket uint64, list *waiter) *waiter {
	w := a.mu.waiting[ticket]
	if w == nil {
		return list
	}
	delete(a.mu.waiting, ticket)
	tail := w
	for tail.next != nil {
		tail = tail.next
	}
	tail.next = list
	return w
}

func (a *acks) rememberLocked(ticket uint64, err error) {
	if _, ok := a.mu.odd[ticket]; ok {
		return
	}
	if len(a.mu.order) < rememberOdd {
		a.mu.order = append(a.mu.order, ticket)
	} else {
		delete(a.mu.odd, a.mu.order[a.mu.oldest])
		a.mu.order[a.mu.oldest] = ticket
		a.mu.oldest = (a.mu.oldest + 1) % rememberOdd
	}
	a.mu.odd[ticket] = err
	a.odds.Add(1)
}

// close wakes everyone who still waits: nothing more will be decided.
func (a *acks) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.closed = true
	for t, w := range a.mu.waiting {
		delete(a.mu.waiting, t)
		for w != nil {
			next := w.next
			w.next = nil
			w.woken <- nil
			w = next
		}
	}
}

// outcomeLocked is the decision about a ticket, if there is one.
func (a *acks) outcomeLocked(seq uint64) (err error, decided bool) {
	if err, ok := a.mu.odd[seq]; ok {
		return err, true
	}
	if seq <= a.done.Load() {
		return nil, true
	}
	if a.mu.closed {
		return errClosed, true
	}
	return nil, false
}

// Wait blocks until the entry is acknowledged, ctx ends, timeout passes (0: the configured settle timeout), or the
// ledger fails. A resolution that lost to an earlier one is reported by a *llm.Error of KindConflict with code
// already_settled or already_voided; a reserve that could not be written by one of KindUnavailable.
func (l *Ledger) Wait(ctx context.Context, seq uint64, timeout time.Duration) error {
	a := &l.acks
	if seq <= a.done.Load() && a.odds.Load() == 0 {
		return nil
	}
	if timeout <= 0 {
		timeout = time.Duration(l.o.SettleTimeoutMS) * time.Millisecond
	}
	a.mu.Lock()
	if err, decided := a.outcomeLocked(seq); decided {
		a.mu.Unlock()
		return err
	}
	w := waiters.Get().(*waiter)
	w.next = a.mu.waiting[seq]
	a.mu.waiting[seq] = w
	a.mu.Unlock()
	return a.block(ctx, seq, w, timeout)
}

func (a *acks) block(ctx context.Context, seq uint64, w *waiter, timeout time.Duration) error {
	w.timer.Reset(timeout)
	var gaveUp error
	select {
	case <-w.woken:
	case <-ctx.Done():
		gaveUp = ctx.Err()
	case <-w.timer.C:
		gaveUp = errLate
	}
	w.timer.Stop()
	a.mu.Lock()
	if gaveUp != nil && !a.removeLocked(seq, w) {
		<-w.woken // already taken out by the owner: its value is on the way, or there
	}
	err, decided := a.outcomeLocked(seq)
	a.mu.Unlock()
	waiters.Put(w)
	if !decided && gaveUp == nil {
		panic("ledger: woken without a decision")
	}
	if decided {
		return err
	}
	return gaveUp
}

// removeLocked takes one waiter off its ticket.
func (a *acks) removeLocked(seq uint64, w *waiter) bool {
	head := a.mu.waiting[seq]
	for p := &head; *p != nil; p = &(*p).next {
		if *p != w {
			continue
		}
		*p, w.next = w.next, nil
		if head == nil {
			delete(a.mu.waiting, seq)
		} else {
			a.mu.waiting[seq] = head
		}
		return true
	}
	return false
}
