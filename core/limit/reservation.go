package limit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// Reservation is a handle on one open hold. It is a value: copying it is free, and a stale copy is inert. Exactly
// one ending settles it, whichever comes first; every other call after that does nothing. Progress is reported as
// it happens, so that any ending (a deferred Release, a panic, a Close, the sweep) charges what is truly owed.
// The zero Reservation is a stale one. Safe for concurrent use.
type Reservation struct {
	hold       *hold // the slot of the open table
	generation uint64
}

// ErrEnded is Extend's answer to a stale handle: there is nothing left to extend.
var ErrEnded = errors.New("the reservation has ended")

const (
	noteTokens = 256         // progress entries are this far apart,
	noteEvery  = time.Second // or this long
)

// beginLocked starts the story of a hold: nothing is sent, nothing is owed. Its money meters count it as open, so that
// they stay even where nothing is held on them: a free model's top-up still asks them.
func (h *hold) beginLocked(c *Claim, s *step, now time.Duration) {
	h.key = c.Caller.Key
	h.balance, h.nquotas, h.amount = s.balance, s.nquotas, 0
	h.keepMoney(&c.Money)
	h.number, h.org, h.part, h.withdrawn = 0, c.Caller.Org, 0, false
	h.granted = s.output
	h.progress = progress{input: sane(c.Input)}
	h.covered = h.progress.input + s.output
	h.told = h.covered
	h.channel, h.layer, h.n, h.tier, h.calls = "", 0, 0, c.Facts.ServiceTier, 0
	h.began, h.touched, h.notedAt = now, now, now
	h.firstByte, h.noted = 0, 0
	h.requests, h.tokens = Rate{}, Rate{}
	if h.balance != nil {
		h.balance.mu.open++
	}
	for i, m := range s.quotas[:s.nquotas] {
		m.mu.open++
		h.quotas[i], h.money.Quotas[i] = m, c.Money.Quotas[i]
	}
}

// keepMoney copies what a top-up and the settlement need, but for the quotas.
func (h *hold) keepMoney(m *Money) {
	k := &h.money
	k.Price, k.Billed, k.Balance, k.Overdraft, k.Overrun, k.Calls = m.Price, m.Billed, m.Balance, m.Overdraft, m.Overrun, m.Calls
}

// announce records the hold, with everything a crash can be settled from.
func (m *Memory) announce(h *hold, c *Claim) error {
	h.id = m.journal.NextID()
	e := m.entries.Get().(*llm.Entry)
	defer m.entries.Put(e)
	*e = c.Facts
	h.atMS = m.wallMS(h.began)
	e.Kind, e.Status, e.ID, e.AtMS = llm.EntryReserve, llm.StatusOpen, h.id, h.atMS
	e.OrgID, e.UserID, e.KeyID = c.Caller.Org, c.Caller.User, c.Caller.Key
	e.Billed, e.Price, e.Held = c.Money.Billed, c.Money.Price, h.amount
	e.Label, e.WeekLabel, e.DayLabel = 0, 0, 0
	for i, m := range h.quotas[:h.nquotas] {
		e.SetLabel(c.Money.Quotas[i].Window, m.label)
	}
	e.Usage = llm.Usage{InputTokens: h.progress.input}
	var err error
	h.seq, err = m.journal.Append(e)
	return err
}

// sinceMS is how long after its admission an event came. Later entries are dated by it, so that the entries of one
// request are in order whatever the wall clock does meanwhile.
func (h *hold) sinceMS(at time.Duration) int64 { return int64((at - h.began) / time.Millisecond) }

// ID is the ledger's number of the hold.
func (r Reservation) ID() uint64 {
	if h := r.enter(stateBusy); h != nil {
		defer h.leave()
		return h.id
	}
	return 0
}

// Seq is the ledger entry of the hold: no byte may reach the client before it is acknowledged.
func (r Reservation) Seq() uint64 {
	if h := r.enter(stateBusy); h != nil {
		defer h.leave()
		return h.seq
	}
	return 0
}

// Granted is the output bound that was held, after clamping: the cap to send upstream.
func (r Reservation) Granted() llm.Tokens {
	if h := r.enter(stateBusy); h != nil {
		defer h.leave()
		return h.granted
	}
	return 0
}

// Tightest is the QPS and the TPM dimension with the least left, for the rate headers: limit, remaining and
// milliseconds until it is whole again, as seen while everything was held. OK is false where nothing is limited.
func (r Reservation) Tightest() (requests, tokens Rate) {
	if h := r.enter(stateBusy); h != nil {
		defer h.leave()
		return h.requests, h.tokens
	}
	return Rate{}, Rate{}
}

// Rate is one pair of rate headers.
type Rate struct {
	OK        bool
	Limit     int64
	Remaining int64
	ResetMS   int64
}

// Sent records that an attempt through channel began to write: from here on the input is owed.
func (r Reservation) Sent(channel string) {
	h := r.enter(stateBusy)
	if h == nil {
		return
	}
	defer h.leave()
	h.progress.stage = max(h.progress.stage, stageSent)
	h.channel = channel
}

// Refused records that the attempt ended without a first byte or with an upstream 4xx: nothing is owed again. Once
// output has reached the client it does nothing: that cannot be unsaid.
func (r Reservation) Refused() {
	h := r.enter(stateBusy)
	if h == nil {
		return
	}
	defer h.leave()
	if p := &h.progress; p.relayed == 0 {
		p.stage, p.usage, h.firstByte = stageUnsent, llm.Usage{}, 0
	}
}

// Relayed records the output tokens passed to the client so far (a running total). What exceeds the hold is
// posted into the present slot at once.
func (r Reservation) Relayed(total llm.Tokens) {
	h := r.enter(stateBusy)
	if h == nil {
		return
	}
	defer h.leave()
	now, p := h.owner.clock.Mono(), &h.progress
	h.sawByte(now)
	if total <= p.relayed {
		return
	}
	p.relayed, p.stage = total, max(p.stage, stageRelayed)
	u, _ := p.counted()
	h.owe(now, u)
	if total-h.noted >= noteTokens || now-h.notedAt >= noteEvery {
		h.note(now)
	}
}

// note writes a progress entry. If the journal is down the next one tries again: a settlement needs none of them.
func (h *hold) note(now time.Duration) {
	if x := h.owner.sharing; x != nil {
		x.grown(h)
	}
	output := h.progress.relayed
	if h.money.Overrun == Clip {
		output = min(output, h.granted) // a recovery charges what it finds
	}
	e := h.owner.entries.Get().(*llm.Entry)
	defer h.owner.entries.Put(e)
	*e = llm.Entry{Kind: llm.EntryProgress, ID: h.id, AtMS: h.atMS + h.sinceMS(now), Channel: h.channel,
		Usage: llm.Usage{OutputTokens: output}}
	if _, err := h.owner.journal.Append(e); err == nil {
		h.noted, h.notedAt = h.progress.relayed, now
	}
}

// UsageKnown records the provider's own usage, which replaces what it reported before. In any later ending it stands for
// the estimates, but for output that was relayed beyond it.
func (r Reservation) UsageKnown(u llm.Usage) {
	h := r.enter(stateBusy)
	if h == nil {
		return
	}
	defer h.leave()
	now := h.owner.clock.Mono()
	h.sawByte(now)
	h.progress.stage, h.progress.usage = stageKnown, u
	h.owe(now, u)
}

// Priced records what an answer says of its price: the price and the service tier to charge it at, where they are not those
// of the hold, and what the calls of tools have cost so far. What is held stays.
func (r Reservation) Priced(p llm.Price, tier string, calls llm.Micro) {
	h := r.enter(stateBusy)
	if h == nil {
		return
	}
	defer h.leave()
	h.money.Price, h.tier, h.calls = p, tier, calls
}

// Answered records the HTTP status the client is told.
func (r Reservation) Answered(status int) {
	h := r.enter(stateBusy)
	if h == nil {
		return
	}
	defer h.leave()
	h.progress.status = status
	h.sawByte(h.owner.clock.Mono())
}

// sawByte notes the first sign of an answer, if anything was sent that can be answered.
func (h *hold) sawByte(now time.Duration) {
	h.touched = now
	if h.firstByte == 0 && h.progress.stage >= stageSent {
		h.firstByte = max(now, 1)
	}
}

// owe posts what usage exceeds the hold by: tokens as debt into the slot of now, money onto what is held, so that
// the next Reserve sees both.
func (h *hold) owe(now time.Duration, u llm.Usage) {
	if u.Total() > h.covered {
		h.covered = u.Total()
		for i := range h.n {
			c := &h.charges[i]
			c.m.mu.Lock()
			c.postLocked(now, c.target(h.covered)-c.total)
			c.m.mu.Unlock()
		}
	}
	if !h.money.Billed {
		return
	}
	cost, _ := h.charge(u)
	if more := cost - h.amount; more > 0 {
		h.amount += more
		h.balance.pledge(more)
		for _, m := range h.quotas[:h.nquotas] {
			m.pledge(more)
		}
	}
}

// pledge holds more on a money meter; nil has none.
func (m *meter) pledge(more llm.Micro) {
	if m != nil {
		m.mu.Lock()
		m.mu.purse.held = llm.AddMicro(m.mu.purse.held, more)
		m.mu.Unlock()
	}
}

// charge is what u costs the user and, beyond it, the house.
func (h *hold) charge(u llm.Usage) (user, house llm.Micro) {
	cost := min(llm.AddMicro(h.money.Price.Cost(u), h.calls), llm.MaxCost)
	if h.money.Overrun == Clip && cost > h.amount {
		return h.amount, cost - h.amount
	}
	return cost, 0
}

// Extend adds dimensions (an attempt's channel) and output (a top-up in mid-stream), all or nothing. A stale handle
// is ErrEnded; more dimensions than fit are an error too.
func (r Reservation) Extend(_ context.Context, dims []Dim, output llm.Tokens) (*Denial, error) {
	h := r.enter(stateBusy)
	if h == nil {
		return nil, ErrEnded
	}
	defer h.leave()
	if h.n+len(dims) > maxCharges {
		return nil, fmt.Errorf("a reservation has at most %d dimensions, not %d", maxCharges, h.n+len(dims))
	}
	return h.owner.extend(h, dims, sane(output))
}

// Shrink drops the dimensions added by the last Extend: the attempt failed and its channel is free again. The
// request it counted there stays counted.
func (r Reservation) Shrink() {
	h := r.enter(stateBusy)
	if h == nil {
		return
	}
	defer h.leave()
	if h.layer == 0 {
		return
	}
	now := h.owner.clock.Mono()
	for h.n > 0 && h.charges[h.n-1].layer == h.layer {
		h.n--
		c := &h.charges[h.n]
		c.m.mu.Lock()
		c.endLocked(now, 0)
		c.m.mu.Unlock()
		c.m = nil
	}
	h.layer--
}

// Move hands the hold to another owner: the returned handle is live, r becomes inert.
func (r Reservation) Move() Reservation {
	h := r.enter(stateBusy)
	if h == nil {
		return Reservation{}
	}
	h.generation++
	return h.open()
}

// Commit ends a complete answer. u is the provider's usage when reported, else the counted text.
func (r Reservation) Commit(u llm.Usage, reported bool) Settlement {
	return r.end(&ending{complete: true, usage: u, reported: reported})
}

// Release ends the hold at whatever progress it has; the net for every exit.
func (r Reservation) Release() Settlement { return r.end(&ending{}) }

// Withdraw is Release for a request that was refused after all, by what Extend met: if nothing was sent for it, not even
// its requests count, as if the hold had never been made.
func (r Reservation) Withdraw() (s Settlement) {
	if h := r.enter(stateEnding); h != nil {
		if h.progress.stage == stageUnsent {
			h.unrequest(h.owner.clock.Mono())
		}
		h.settle(&ending{}, &s)
	}
	return s
}

// end settles, once.
func (r Reservation) end(e *ending) (s Settlement) {
	if h := r.enter(stateEnding); h != nil {
		h.settle(e, &s)
	}
	return s
}

// settle ends a hold that is in stateEnding: the journal first, then memory, so that no freed money is admitted again
// before the charge that freed it stands in the log.
func (h *hold) settle(e *ending, s *Settlement) {
	m, now := h.owner, h.owner.clock.Mono()
	o := endings(&h.progress, e)
	s.First, s.Status, s.Usage = true, o.status, o.usage
	if o.owed() && h.money.Billed {
		s.Cost, s.House = h.charge(s.Usage)
	}
	s.Seq = m.resolve(h, now, s, o.estimated)
	m.free(h, now, s.Usage.Total(), s.Cost)
	m.table.put(h)
}

// resolve records the ending. The journal always takes one; were it not to, memory is charged all the same.
func (m *Memory) resolve(h *hold, now time.Duration, s *Settlement, estimated bool) uint64 {
	kind := llm.EntryVoid
	if s.Status == llm.StatusFinalized || s.Status == llm.StatusPartial {
		kind = llm.EntrySettle
	}
	e := m.entries.Get().(*llm.Entry)
	defer m.entries.Put(e)
	*e = llm.Entry{}
	e.Kind, e.ID, e.AtMS = kind, h.id, h.atMS+h.sinceMS(now)
	e.Status, e.Usage, e.Cost, e.Estimated = s.Status, s.Usage, s.Cost, estimated
	e.ServiceTier, e.Channel, e.HTTPStatus, e.LatencyMS = h.tier, h.channel, int32(h.progress.status), h.sinceMS(now)
	if h.firstByte > 0 {
		e.FirstMS = max(h.sinceMS(h.firstByte), 1) // 0 would mean none
		e.LatencyMS = max(e.LatencyMS, e.FirstMS)
	}
	seq, err := m.journal.Append(e)
	if err != nil {
		return 0
	}
	return seq
}
