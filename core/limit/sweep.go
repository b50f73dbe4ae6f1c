package limit

import (
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

const (
	sweepEvery = 5 * time.Second
	idleAfter  = time.Minute // a meter this long unused goes, if it is as good as fresh
	leakAfter  = time.Hour   // a reservation this long without a call has lost its owner
)

// sweepUntilStopped is the limiter's one goroutine; Close waits for it.
func (m *Memory) sweepUntilStopped() {
	defer m.done.Done()
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	for {
		select {
		case <-m.stop:
			return
		case <-t.C:
			m.sweep()
		}
	}
}

// sweep drops idle meters and ends leaked reservations by the same rule as any other ending.
func (m *Memory) sweep() {
	now := m.clock.Mono()
	m.index.sweep(now, idleAfter)
	for _, h := range m.table.holds() {
		h.releaseLeaked(now)
	}
}

// releaseLeaked ends a hold that nobody has called for leakAfter. It never waits: a hold that is busy has an owner. The
// word is of the generation it looked at, so a slot that is freed and used again meanwhile is left alone.
func (h *hold) releaseLeaked(now time.Duration) {
	w := h.word.Load()
	if w&(1<<stateBits-1) != stateOpen || !h.word.CompareAndSwap(w, w-stateOpen+stateBusy) {
		return
	}
	if now-h.touched < leakAfter {
		h.leave()
		return
	}
	h.word.Store(w - stateOpen + stateEnding)
	h.settle(&ending{}, new(Settlement))
}

// free gives memory back what the ending does not cost: each charge is settled at tokens, the money at cost.
func (m *Memory) free(h *hold, now time.Duration, tokens llm.Tokens, cost llm.Micro) {
	for i := range h.n {
		c := &h.charges[i]
		c.m.mu.Lock()
		c.endLocked(now, c.target(tokens))
		c.m.mu.Unlock()
	}
	h.payLocking(now, cost)
	if m.sharing != nil {
		m.sharing.ended(h, tokens)
	}
}

// payLocking ends the hold on balance and quotas and moves cost.
func (h *hold) payLocking(now time.Duration, cost llm.Micro) {
	if h.balance != nil {
		h.balance.pay(now, h.amount, cost)
	}
	for _, m := range h.quotas[:h.nquotas] {
		m.pay(now, h.amount, cost)
	}
}

// pay ends one hold on a money meter and adds what is charged.
func (m *meter) pay(now time.Duration, held, cost llm.Micro) {
	m.mu.Lock()
	m.mu.open--
	m.mu.purse.held = llm.AddMicro(m.mu.purse.held, -held)
	m.mu.purse.settled = llm.AddMicro(m.mu.purse.settled, cost)
	m.mu.touched = now
	m.mu.Unlock()
}

// takeBack undoes a hold that the journal did not take: it was never announced, so not even its requests count.
func (m *Memory) takeBack(h *hold) {
	now := m.clock.Mono()
	h.unrequest(now)
	m.free(h, now, 0, 0)
	m.table.put(h)
}

// unrequest takes the requests out of the rates again.
func (h *hold) unrequest(now time.Duration) {
	for i := range h.n {
		c := &h.charges[i]
		c.m.mu.Lock()
		c.m.backLocked(now, &c.m.mu.qps, c.qpsRate, c.qps, c.qps.n)
		c.m.mu.Unlock()
	}
	h.withdrawn = true
}
