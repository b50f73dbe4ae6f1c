package limit

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// The pseudo-kinds under which money meters stand in the index; outside the policy ABI's numbers in use.
const (
	kindBalance Kind = 253 // Scope: user
	kindQuota   Kind = 254 // Scope: key; label: the period
)

// meter holds what one dimension, one user's balance or one key's period uses. One mutex guards all of it, so a
// request sees requests, tokens and concurrency of one instant. Limits are not here: they come with the request.
type meter struct {
	seq   uint64 // creation number: the lock order
	hash  uint64
	id    ID
	label int32
	owner uint64                // key whose cap of client-chosen ids this meter counts against
	next  atomic.Pointer[meter] // chain of the index
	storm atomic.Uint64         // see storm.go

	mu struct {
		sync.Mutex
		dead    bool          // swept: look the id up again
		touched time.Duration // last use
		open    int64         // open reservations: the concurrency; of a money meter, those that refer to it
		purse   purse
		*rates  // nil for money
	}
}

// rates are the windows of a dimension. Money has none and is a third of the size.
type rates struct {
	qps, tpm gauge
	tested   tested // of a key, for the cheap look
	looks    uint32 // refusals by the cheap look since looked, when one that it would have refused went on
	looked   time.Duration
	remote   *remote // nil: not shared with other gateways
}

// dimension is a meter and its rates in one piece of memory.
type dimension struct {
	meter
	rates rates
}

// purse is money: what was charged and what open reservations hold; and of a balance, what was put in. Credits and
// charges stay apart as they do in the ledger, so that both come to the same when one of them is at its end.
type purse struct {
	credits, settled, held llm.Micro
}

// available is what a balance can still promise.
func (p *purse) available() llm.Micro {
	return llm.AddMicro(llm.AddMicro(p.credits, -p.settled), -p.held)
}

// freshLocked tells whether forgetting the meter would change no answer.
func (m *meter) freshLocked(now time.Duration) bool {
	mu := &m.mu
	if mu.open > 0 || mu.purse != (purse{}) && !m.pastLocked(now) {
		return false
	}
	return mu.rates == nil || mu.qps.idle(now) && mu.tpm.idle(now)
}

// pastAfter is when an unused quota of a week or a day belongs to a period that is over, whatever the wall clock has done.
const pastAfter = 62 * 24 * time.Hour

// pastLocked tells whether nobody will ask for the meter's period again: the ledger remembers it. Months are few and stay.
func (m *meter) pastLocked(now time.Duration) bool {
	return m.id.Kind == kindQuota && llm.WindowOf(m.label) != llm.Month && now-m.mu.touched > pastAfter
}

// charge is what one reservation holds on one meter.
type charge struct {
	m     *meter
	tpm   bound
	asked bound  // tpm, before an outage made a share of it: what a top-up asks
	cost  uint32 // 1/1000 of the tokens
	layer uint8  // 0: of the claim; n: of the n-th Extend, dropped by Shrink
	loose bool   // charged, never refuses
	total int64  // tokens posted, weighted
	first post   // the hold of admission
	later []post // what came after, by slot, oldest first: top-ups and overrun
	qps   post   // only taken back when the backend fails within Reserve, and by Withdraw

	qpsRate int64
}

// beginLocked charges an ask for the first time: a request, one of concurrency, and the tokens.
func (c *charge) beginLocked(now time.Duration, a *ask, layer uint8) {
	mu := &a.m.mu
	mu.open++
	c.m, c.tpm, c.cost, c.layer, c.loose, c.total = a.m, a.tpm, a.cost, layer, a.loose, a.tokens
	c.qps, c.qpsRate = mu.qps.charge(now, a.qps, 1, false), a.qps.rate
	c.first = mu.tpm.charge(now, a.tpm, a.tokens, true)
	c.asked = a.tpm
	if r := mu.remote; r != nil {
		c.asked, r.terms = a.whole.tpm, a.whole
		c.qps.lent, c.first.lent = a.m.spendLocked(now, 1, a.tokens)
	}
	c.later = c.later[:0]
}

// postLocked charges more tokens into the slot of now.
func (c *charge) postLocked(now time.Duration, n int64) {
	if n <= 0 {
		return
	}
	p := c.m.mu.tpm.charge(now, c.tpm, n, true)
	_, p.lent = c.m.spendLocked(now, 0, n)
	c.total = plus(c.total, n)
	if i := len(c.later) - 1; i >= 0 && c.later[i].short == p.short && c.later[i].lent == p.lent {
		c.later[i].n += n
		return
	}
	c.later = append(slices.DeleteFunc(c.later, c.m.mu.tpm.gone), p)
}

// endLocked settles the charge at target tokens: what was posted above goes back to where it is, newest first, if
// those slots live; what is missing is charged to now.
func (c *charge) endLocked(now time.Duration, target int64) {
	g := &c.m.mu.tpm
	if target > c.total {
		g.charge(now, c.tpm, target-c.total, false)
		c.m.spendLocked(now, 0, target-c.total)
	}
	back := max(c.total-target, 0)
	for _, p := range slices.Backward(c.later) {
		late := min(back, p.n)
		c.backLocked(now, p, late)
		back -= late
	}
	c.backLocked(now, c.first, min(back, c.first.n))
	c.m.mu.open--
	c.m.mu.touched = now
}

// backLocked ends one post of tokens and takes n of it back.
func (c *charge) backLocked(now time.Duration, p post, n int64) {
	c.m.backLocked(now, &c.m.mu.tpm, c.tpm.rate, p, n)
}

// backLocked ends one post of a gauge and takes n of it back: also from where it was lent. What was owed is owed less only as
// long as it counts here; after that others owe what there is.
func (m *meter) backLocked(now time.Duration, g *gauge, rate int64, p post, n int64) {
	g.settle(now, rate, p, n)
	if r := m.mu.remote; r != nil && r.loans && n > 0 && (p.lent != 0 || g.short.lives(p.short)) {
		m.returnLocked(now, g == &m.mu.tpm, p.lent, n)
	}
}

// target is what tokens weigh on this meter.
func (c *charge) target(tokens llm.Tokens) int64 { return scaleUp(int64(tokens), c.cost) }
