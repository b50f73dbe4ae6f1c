package limit

import (
	"context"
	"math"
	"time"
)

// remote is what a meter knows of the server's windows. Guarded by the meter.
type remote struct {
	by   *sharing
	org  uint64 // that asked last: where the server has the dimension
	full full   // of a key, for the cheap look

	loans            bool // spent from loans, else asked exactly
	requests, tokens loan
	back             []Back
	until            time.Duration // loans are spent before
	asked            time.Duration // when the last exchange began
	heard            time.Duration // when it ended
	busy             chan struct{} // closed when the running exchange ends; nil: none runs
	failed           bool          // the last exchange failed

	openMost  int64 // concurrency this gateway may have, before openUntil
	openUntil time.Duration
	openUsed  int64 // by the others
	openHigh  int64 // the most that was open here since the last exchange
	openShort bool  // the last exchange gave less than was wanted

	terms terms // of the latest ask, for exchanges that no request waits for
}

// loan is one rate of a dimension as this gateway was lent it.
type loan struct {
	slot  uint64 // what it is called at the server; 0: nothing was lent
	left  int64
	debt  int64 // spent beyond all loans
	lent  int64 // at the last exchange
	used  int64 // by all gateways at the last exchange, what was lent then included
	spent int64 // since the last exchange
	short int64 // what the last exchange had no room for; 0: it had
	wait  time.Duration
	want  int64 // by requests that wait for the running exchange
}

// loanPause is how soon after an exchange that gave too little the next one is made.
const loanPause = 20 * time.Millisecond

// fresh tells whether the server has answered so lately that it is not asked again without need.
func (r *remote) fresh(now time.Duration) bool { return r.heard > 0 && now-r.heard < loanPause }

// reply is what loans say to an ask.
type reply uint8

const (
	lends   reply = iota
	refuses       // and the server has said so lately
	renew         // the server has to be asked
)

// may answers an ask for n more under a bound of most.
func (l *loan) may(now time.Duration, r *remote, n, most int64) reply {
	switch fresh := r.fresh(now); {
	case most == 0 || n <= 0:
		return lends
	case n > most:
		return refuses
	case now < r.until && l.left >= n && plus(l.used-l.left, n) <= most:
		return lends
	case fresh && l.short > 0 && n >= l.short, fresh && now < r.until && l.left >= n:
		return refuses
	}
	return renew
}

func (r *remote) mayOpen(now time.Duration, open, most int64) reply {
	switch fresh := r.fresh(now); {
	case most == 0 || now < r.openUntil && open < r.openMost && r.openUsed+open < most:
		return lends
	case fresh && (r.openShort || r.openUsed+open >= most):
		return refuses
	}
	return renew
}

// loanLocked asks the loans of a dimension for what the ask wants.
func (a *ask) loanLocked(now time.Duration) (open, requests, tokens reply) {
	r := a.m.mu.remote
	tokens = r.tokens.may(now, r, a.tokens, a.tpm.most)
	if a.held == 0 {
		open = r.mayOpen(now, a.m.mu.open, a.concurrency)
		requests = r.requests.may(now, r, 1, a.qps.most)
	}
	return open, requests, tokens
}

// overLoanLocked is overLocked by loans.
func (a *ask) overLoanLocked(now time.Duration) (concurrency, qps, tpm bool) {
	r := a.m.mu.remote
	a.qpsLeft, a.tpmLeft = r.requests.room(a.qps.most), r.tokens.room(a.tpm.most)
	o, q, t := a.loanLocked(now)
	return o != lends, q != lends, t != lends
}

// room is what a bound has left as far as is known.
func (l *loan) room(most int64) int64 {
	if most == 0 {
		return math.MaxInt64
	}
	return most - (l.used - l.left)
}

// lacksLocked tells whether the server must be asked before the ask can be decided. What is charged and never refused is
// decided already, but for a shadow, which has to know whether it would have been.
func (a *ask) lacksLocked(now time.Duration) bool {
	if a.by != byLoan || a.loose && !a.shadow {
		return false
	}
	o, q, t := a.loanLocked(now)
	return o != refuses && q != refuses && t != refuses && (o == renew || q == renew || t == renew)
}

// lacksLocked tells whether a step cannot be decided before the server was asked.
func (s *step) lacksLocked(now time.Duration) bool {
	for i := range s.n {
		if s.asks[i].lacksLocked(now) {
			return true
		}
	}
	return false
}

// waitOf is how long until an ask of n fits, as far as the server said; else when it may be asked again.
func (r *remote) waitOf(now time.Duration, l *loan) time.Duration {
	return max(l.wait-(now-r.asked), r.heard+loanPause-now, time.Millisecond)
}

// untold is the slot of what was spent while the server is away. It is never told: charged when the server is back, it would
// keep a minute's worth of tokens out for a minute more.
const untold = math.MaxUint64

// spendLocked takes n from the loan and returns the slot it is counted in; 0: it is owed.
func (l *loan) spendLocked(now time.Duration, r *remote, n int64) uint64 {
	l.spent = plus(l.spent, n)
	if now < r.until && l.left >= n {
		l.left -= n
		return l.slot
	}
	if r.by.away.Load() {
		return untold
	}
	l.debt = plus(l.debt, n)
	return 0
}

// spendLocked charges an ask's requests and tokens to the loans.
func (m *meter) spendLocked(now time.Duration, requests, tokens int64) (requestsSlot, tokensSlot uint64) {
	r := m.mu.remote
	if r == nil || !r.loans {
		return 0, 0
	}
	if requests > 0 {
		r.openHigh = max(r.openHigh, m.mu.open)
		requestsSlot = r.requests.spendLocked(now, r, requests)
	}
	if tokens > 0 {
		tokensSlot = r.tokens.spendLocked(now, r, tokens)
	}
	low := r.until-now < LoanLife/4 || r.requests.left < r.requests.lent/4 || r.tokens.left < r.tokens.lent/4
	if low {
		m.renewLocked(now)
	}
	return requestsSlot, tokensSlot
}

// renewLocked sees to it that the server hears of the meter soon.
func (m *meter) renewLocked(now time.Duration) {
	r := m.mu.remote
	if r.busy != nil || r.fresh(now) || r.by.away.Load() {
		return
	}
	select {
	case r.by.renewals <- m:
	default:
	}
}

// returnLocked gives back n of what was spent: to the loan it came from, if that is still there, else to the server.
func (m *meter) returnLocked(now time.Duration, tokens bool, slot uint64, n int64) {
	r := m.mu.remote
	l := &r.requests
	if tokens {
		l = &r.tokens
	}
	switch {
	case slot == untold:
	case slot == 0:
		l.debt = max(l.debt-n, 0)
	case slot == l.slot && now < r.until:
		l.left += n
	default:
		r.giveBack(tokens, slot, n)
		m.renewLocked(now)
	}
}

// giveBack adds to what the next exchange returns.
func (r *remote) giveBack(tokens bool, slot uint64, n int64) {
	for i := range r.back {
		if b := &r.back[i]; b.Tokens == tokens && b.Slot == slot {
			b.N += n
			return
		}
	}
	r.back = append(r.back, Back{Tokens: tokens, Slot: slot, N: n})
}

// beginLocked makes the exchange that a meter needs for requests and tokens more. Where somebody waits for it, what is
// left of the present loan goes back at once, as all of it does at the end: it may be just what is missing.
func (m *meter) beginLocked(now time.Duration, open, requests, tokens int64, all bool) *Exchange {
	r := m.mu.remote
	if all || now >= r.until {
		r.surrender()
	}
	e := Exchange{ID: m.id, Gateway: r.by.Gateway, Number: r.by.number.Add(1), Back: r.back,
		QPS: r.terms.qps.shared(), TPM: r.terms.tpm.shared(), Concurrency: r.terms.concurrency,
		DebtRequests: r.requests.debt, DebtTokens: r.tokens.debt}
	since := max(now-r.asked, loanPause)
	e.NeedRequests, e.WantRequests = requests, r.requests.wanted(since, requests, e.QPS.Most)
	e.NeedTokens, e.WantTokens = tokens, r.tokens.wanted(since, tokens, e.TPM.Most)
	e.Open = m.mu.open
	e.WantOpen = max(e.Open+open, r.openHigh)
	if e.WantOpen > 0 {
		e.WantOpen += max(e.WantOpen/4, 1)
	}
	r.openHigh = e.Open
	r.openMost = min(r.openMost, e.WantOpen) // the rest may be lent to others by the time the answer is here
	r.back = nil
	for _, l := range []*loan{&r.requests, &r.tokens} {
		l.debt, l.spent, l.want = 0, 0, 0
	}
	r.asked, r.busy = max(now, 1), make(chan struct{})
	return &e
}

// surrender gives back what is left of the present loans.
func (r *remote) surrender() {
	for _, l := range []*loan{&r.requests, &r.tokens} {
		if l.left > 0 {
			r.giveBack(l == &r.tokens, l.slot, l.left)
		}
		l.left, l.lent = 0, 0
	}
}

// wanted is how much to borrow: what is needed now, what others wait for, and what LoanLife will take at the rate since
// the last exchange. What is not limited is not borrowed, but owed.
func (l *loan) wanted(since time.Duration, need, most int64) int64 {
	pace := mulDivUp(l.spent, int64(LoanLife), 0, int64(since))
	return min(plus(plus(need, l.want), plus(pace, pace/4)), max(most, need))
}

// finishLocked takes what an exchange brought. After one that failed nothing is known: what went back counts at the server
// until its time is over, and what was owed is owed again.
func (m *meter) finishLocked(now time.Duration, e *Exchange, err error) {
	r := m.mu.remote
	close(r.busy)
	r.busy, r.failed, r.heard = nil, err != nil, max(now, 1)
	if err != nil {
		r.requests.debt = plus(r.requests.debt, e.DebtRequests)
		r.tokens.debt = plus(r.tokens.debt, e.DebtTokens)
		return
	}
	r.surrender()
	r.until = r.asked + min(e.For, LoanLife)
	r.requests.lend(e.RequestsSlot, e.Requests, e.NeedRequests, e.QPSUsed, e.QPSWait)
	r.tokens.lend(e.TokensSlot, e.Tokens, e.NeedTokens, e.TPMUsed, e.TPMWait)
	r.openMost, r.openUntil, r.openUsed = e.OpenMost, r.asked+HoldLife, e.OpenUsed
	r.openShort = e.Concurrency > 0 && e.OpenMost < e.WantOpen
}

func (l *loan) lend(slot uint64, n, need, used int64, wait time.Duration) {
	l.slot, l.left, l.lent, l.used, l.short, l.wait = slot, n, n, used, 0, wait
	if n < need {
		l.short = need
	}
}

// borrow renews the loans that a step lacks; whoever is at it already is waited for.
func (x *sharing) borrow(s *step) error {
	var begun []*Exchange
	var meters []*meter
	var others []*meter
	var waits []chan struct{}
	now := x.owner.clock.Mono()
	for i := range s.n {
		a := &s.asks[i]
		if a.by != byLoan {
			continue
		}
		requests := int64(1)
		if a.held > 0 {
			requests = 0
		}
		a.m.mu.Lock()
		r := a.m.mu.remote
		switch {
		case !a.lacksLocked(now):
		case r.busy != nil:
			r.requests.want, r.tokens.want = r.requests.want+requests, plus(r.tokens.want, a.tokens)
			others, waits = append(others, a.m), append(waits, r.busy)
		default:
			r.terms = a.whole
			meters, begun = append(meters, a.m), append(begun, a.m.beginLocked(now, requests, requests, a.tokens, true))
		}
		a.m.mu.Unlock()
	}
	err := x.exchange(meters, begun, x.call)
	late := time.NewTimer(x.Timeout)
	defer late.Stop()
	for i, w := range waits {
		select {
		case <-w:
		case <-late.C:
			return ErrAway
		}
		others[i].mu.Lock()
		if others[i].mu.remote.failed {
			err = ErrAway
		}
		others[i].mu.Unlock()
	}
	return err
}

// exchange makes exchanges that have begun, and ends them.
func (x *sharing) exchange(meters []*meter, begun []*Exchange, call func(func(context.Context) error) error) (err error) {
	if len(begun) == 0 {
		return nil
	}
	x.borrows.Add(uint64(len(begun)))
	err = ErrAway // unless the call returns
	defer func() { x.finish(meters, begun, err) }()
	return call(func(ctx context.Context) error { return x.Server.Borrow(ctx, begun) })
}

// finish ends exchanges: whoever waits for them goes on.
func (x *sharing) finish(meters []*meter, begun []*Exchange, err error) {
	now := x.owner.clock.Mono()
	for i, m := range meters {
		m.mu.Lock()
		m.finishLocked(now, begun[i], err)
		m.mu.Unlock()
	}
	x.lent.Lock()
	for _, m := range meters {
		x.lent.meters[m] = struct{}{}
	}
	x.lent.Unlock()
}

// enough tells whether a request has borrowed and waited for as long as it may.
func (x *sharing) enough(rounds int, waited time.Duration) bool {
	return rounds == borrowRounds || waited >= x.Timeout
}

// renewUntilStopped renews loans before anybody waits for them, and brings back those that nobody spends.
func (x *sharing) renewUntilStopped() {
	t := time.NewTicker(LoanLife / 2)
	defer t.Stop()
	for {
		select {
		case <-x.owner.stop:
			x.tidy(true)
			return
		case m := <-x.renewals:
			x.renew(m)
		case <-t.C:
			x.tidy(false)
		}
	}
}

// renew makes one exchange for a meter, and for the others that wait for one.
func (x *sharing) renew(m *meter) {
	var meters []*meter
	var begun []*Exchange
	for now := x.owner.clock.Mono(); ; {
		m.mu.Lock()
		if m.mu.remote.busy == nil && !m.mu.remote.fresh(now) {
			meters, begun = append(meters, m), append(begun, m.beginLocked(now, 0, 0, 0, false))
		}
		m.mu.Unlock()
		select {
		case m = <-x.renewals:
			continue
		default:
		}
		break
	}
	_ = x.exchange(meters, begun, x.call)
}

// tidy brings back what is lent and not spent in time, pays what is owed, and keeps concurrency alive. At the end
// everything goes back.
func (x *sharing) tidy(end bool) {
	if x.away.Load() {
		return
	}
	x.lent.Lock()
	all := make([]*meter, 0, len(x.lent.meters))
	for m := range x.lent.meters {
		all = append(all, m)
	}
	x.lent.Unlock()
	var meters []*meter
	var begun []*Exchange
	now := x.owner.clock.Mono()
	for _, m := range all {
		m.mu.Lock()
		switch m.dueLocked(now, end) {
		case dueNow:
			e := m.beginLocked(now, 0, 0, 0, end)
			if end {
				e.WantRequests, e.WantTokens, e.WantOpen = 0, 0, e.Open
			}
			meters, begun = append(meters, m), append(begun, e)
		case dueNever:
			x.lent.Lock()
			delete(x.lent.meters, m)
			x.lent.Unlock()
		case dueLater:
		}
		m.mu.Unlock()
	}
	_ = x.exchange(meters, begun, func(f func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(context.Background(), quietTimeout)
		defer cancel()
		return f(ctx)
	})
}

type due uint8

const (
	dueLater due = iota
	dueNow
	dueNever
)

// dueLocked tells whether the server is to hear of a meter though nobody asks.
func (m *meter) dueLocked(now time.Duration, end bool) due {
	r := m.mu.remote
	owes := r.requests.left > 0 || r.tokens.left > 0 || len(r.back) > 0 || r.requests.debt > 0 || r.tokens.debt > 0
	open := m.mu.open > 0 && r.terms.concurrency > 0
	switch {
	case r.busy != nil:
		return dueLater
	case end && (owes || r.openMost > 0):
		return dueNow
	case now < r.until || r.fresh(now):
		return dueLater
	case owes, m.mu.open == 0 && r.openMost > 0, open && now-r.asked >= BeatEvery:
		return dueNow
	case open:
		return dueLater
	}
	return dueNever
}
