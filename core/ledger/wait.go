package ledger

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// queue is the one FIFO between the callers and the owner. Tickets number its items; they are what Wait waits on.
// Two slices change places, so that neither side allocates.
type queue struct {
	wake  chan struct{} // holds one token when there may be something to take, or the queue was closed
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

// take gives everything queued and the ticket of the first, in exchange for an empty slice to fill next. Closed says that
// no more will come.
func (q *queue) take(spare []item) (items []item, first uint64, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	items, first = q.mu.items, q.mu.first
	q.mu.items = spare[:0]
	q.mu.first += uint64(len(items))
	return items, first, q.mu.closed
}

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
	odd  atomic.Uint64 // the newest ticket that was decided otherwise than written
	mu   struct {
		sync.Mutex
		waiting []waiter // for what is undecided, in the order they came
		odd     map[uint64]error
		order   []uint64 // of odd, a ring
		oldest  int
		closed  bool
		sweep   *time.Timer   // ends what waits for too long
		sweepAt time.Duration // when that is due; 0: nobody waits
	}
	picked []picked         // the owner's
	timers *llm.SystemClock // the one that timers go by
}

// rememberOdd bounds the outcomes kept for callers who have not asked yet. A caller asks within its timeout.
const rememberOdd = 65_536

// waiter is one blocked Wait. Whoever takes it off the list sends one value, the decision, to its channel.
type waiter struct {
	ticket uint64
	until  time.Duration
	woken  chan error
}

// picked is a waiter off the list, and what it is to be told.
type picked struct {
	woken chan error
	err   error
}

var channels = sync.Pool{New: func() any { return make(chan error, 1) }}

func (a *acks) init() {
	a.timers = llm.NewSystemClock()
	a.mu.odd = map[uint64]error{}
	a.mu.sweep = time.AfterFunc(time.Hour, a.expire)
	a.mu.sweep.Stop()
}

// advance decides every ticket up to last; outcome gives the error of the i-th from first (nil: written). It is the
// owner's, as is fail.
func (a *acks) advance(first, last uint64, outcome []error) {
	a.mu.Lock()
	for i, err := range outcome {
		if err != nil {
			a.rememberLocked(first+uint64(i), err)
		}
	}
	a.done.Store(last)
	a.picked = a.pickLocked(a.picked[:0], func(w *waiter) (error, bool) {
		if w.ticket > last {
			return nil, false
		}
		return outcome[w.ticket-first], true
	})
	a.mu.Unlock()
	wake(a.picked)
}

// fail decides tickets, given in ascending order, ahead of their turn.
func (a *acks) fail(tickets []uint64, err error) {
	a.mu.Lock()
	for _, t := range tickets {
		a.rememberLocked(t, err)
	}
	a.picked = a.pickLocked(a.picked[:0], func(w *waiter) (error, bool) {
		_, failed := slices.BinarySearch(tickets, w.ticket)
		return err, failed
	})
	a.mu.Unlock()
	wake(a.picked)
}

// expire ends the waits whose time is up.
func (a *acks) expire() {
	a.mu.Lock()
	now := a.timers.Mono()
	var next time.Duration
	late := a.pickLocked(nil, func(w *waiter) (error, bool) {
		if w.until <= now {
			return errLate, true
		}
		if next == 0 || w.until < next {
			next = w.until
		}
		return nil, false
	})
	if a.mu.sweepAt = next; next != 0 {
		a.mu.sweep.Reset(next - now)
	}
	a.mu.Unlock()
	wake(late)
}

// close wakes everyone who still waits: nothing more will be decided.
func (a *acks) close() {
	a.mu.Lock()
	a.mu.closed = true
	left := a.pickLocked(nil, func(*waiter) (error, bool) { return errClosed, true })
	a.mu.sweep.Stop()
	a.mu.Unlock()
	wake(left)
}

// pickLocked appends to list those waiters that are decided, and takes them off the list of those who wait.
func (a *acks) pickLocked(list []picked, decide func(*waiter) (error, bool)) []picked {
	all := a.mu.waiting
	left := all[:0]
	for i := range all {
		if err, decided := decide(&all[i]); decided {
			list = append(list, picked{all[i].woken, err})
		} else {
			left = append(left, all[i])
		}
	}
	clear(all[len(left):])
	a.mu.waiting = left
	return list
}

func wake(list []picked) {
	for _, p := range list {
		p.woken <- p.err
	}
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
	a.odd.Store(max(a.odd.Load(), ticket))
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
	if seq <= a.done.Load() && seq > a.odd.Load() {
		return nil
	}
	if timeout <= 0 {
		timeout = time.Duration(l.o.SettleTimeoutMS) * time.Millisecond
	}
	until := a.timers.Mono() + timeout
	a.mu.Lock()
	if err, decided := a.outcomeLocked(seq); decided {
		a.mu.Unlock()
		return err
	}
	woken := channels.Get().(chan error)
	a.mu.waiting = append(a.mu.waiting, waiter{seq, until, woken})
	if a.mu.sweepAt == 0 || until < a.mu.sweepAt {
		a.mu.sweepAt = until
		a.mu.sweep.Reset(timeout)
	}
	a.mu.Unlock()
	err := a.block(ctx, woken)
	channels.Put(woken)
	return err
}

// block waits to be woken, or for ctx.
func (a *acks) block(ctx context.Context, woken chan error) error {
	if ctx.Done() == nil {
		return <-woken // a select over one more takes as long as all the rest
	}
	select {
	case err := <-woken:
		return err
	case <-ctx.Done():
	}
	a.mu.Lock()
	i := slices.IndexFunc(a.mu.waiting, func(w waiter) bool { return w.woken == woken })
	if i >= 0 {
		a.mu.waiting = slices.Delete(a.mu.waiting, i, i+1)
	}
	a.mu.Unlock()
	if i < 0 {
		return <-woken // decided meanwhile: it is on the way, or there
	}
	return ctx.Err()
}
