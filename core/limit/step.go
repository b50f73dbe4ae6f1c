package limit

import (
	"math"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

const (
	maxCharges = MaxDims + 4 // a claim's dimensions and those of the attempt's channel
	minOutput  = 16          // output tokens of one choice below which a cut is worse than a refusal
)

// ask is one dimension of a step, resolved to its meter: what is tested there and what is charged.
type ask struct {
	m           *meter
	qps, tpm    bound
	concurrency int64
	whole       terms // of a shared dimension, what these are before an outage makes a share of them
	tokens      int64 // weighted
	qpsLeft     int64 // what the test found to be left; nothing where loose, which is not tested
	tpmLeft     int64
	cost        uint32
	rank        uint8 // order of reporting
	loose       bool  // charged, never refuses
	shadow      bool  // loose, and a would-refuse is reported
	by          by
	held        uint8 // 1 + index of the charge a top-up adds to; 0: a new charge, which spends a request too
}

// step is one atomic step over up to maxCharges dimensions, a balance and a quota for each window. It is pooled, for one call.
type step struct {
	asks  [maxCharges]ask
	n     int
	locks [maxCharges + 1 + llm.Windows]*meter // in order of creation
	nlock int

	balance *meter
	quotas  [llm.Windows]*meter
	nquotas int
	output  llm.Tokens // granted
	amount  llm.Micro  // to hold
	least   llm.Micro  // what a refusal for balance says is required
}

func (s *step) reset() { s.n, s.nlock, s.balance, s.nquotas = 0, 0, nil, 0 }

// want adds one dimension. The same meter twice is one ask with the strictest of both limits.
func (s *step) want(m *meter, d *Dim, loose bool, rank uint8) {
	a := &s.asks[s.n] // written in place: copying asks about is a tenth of a Reserve
	a.m = m
	a.qps = m.mu.qps.boundOf(d.Effective.QPS, d.Base.QPS, d.Burst) // rules never change: no lock
	a.tpm = m.mu.tpm.boundOf(d.Effective.TPM, d.Base.TPM, d.Burst)
	a.concurrency = d.Effective.Concurrency
	a.cost = permille(d.Cost)
	a.rank = rank
	a.loose = loose || d.CountOnly || d.Shadow
	a.shadow = d.Shadow && !loose
	a.held, a.by = 0, byWindow
	for i := range s.n {
		if s.asks[i].m == m {
			s.asks[i].merge(a)
			return
		}
	}
	s.n++
	s.lockLater(m)
}

func permille(v uint32) uint32 {
	if v == 0 {
		return 1000
	}
	return v
}

// merge makes a the stricter of a and b. What never refuses is looser than any limit.
func (a *ask) merge(b *ask) {
	cost, rank := max(a.cost, b.cost), min(a.rank, b.rank)
	switch {
	case a.loose && !b.loose:
		*a = *b
	case a.loose == b.loose:
		a.qps, a.tpm = a.qps.stricter(b.qps), a.tpm.stricter(b.tpm)
		a.concurrency = tighter(a.concurrency, b.concurrency)
		a.shadow = a.shadow || b.shadow
	}
	a.cost, a.rank = cost, rank
}

func (b bound) stricter(o bound) bound {
	return bound{tighter(b.limit, o.limit), tighter(b.most, o.most), tighter(b.ten, o.ten), tighter(b.rate, o.rate)}
}

// tighter is the smaller of two limits of which 0 is none.
func tighter(a, b int64) int64 {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}

// lockLater keeps the meters to lock in the order of their creation.
func (s *step) lockLater(m *meter) {
	i := s.nlock
	for ; i > 0 && s.locks[i-1].seq > m.seq; i-- {
		s.locks[i] = s.locks[i-1]
	}
	s.locks[i] = m
	s.nlock++
}

// lock takes all meters, or none when one of them was swept meanwhile.
func (s *step) lock() bool {
	dead := false
	for _, m := range s.locks[:s.nlock] {
		m.mu.Lock()
		dead = dead || m.mu.dead
	}
	if dead {
		s.unlock()
	}
	return !dead
}

func (s *step) unlock() {
	for _, m := range s.locks[:s.nlock] {
		m.mu.Unlock()
	}
}

// grantLocked fixes the output and the money of a new claim. Output that the body did not cap gives way to what the
// smallest TPM limit can hold and to what the balance can pay, as long as minOutput remains for each choice. What is
// granted is at least one token for each choice, since less cannot be asked of an upstream.
func (s *step) grantLocked(c *Claim, input, output llm.Tokens) {
	mon, choices := &c.Money, max(sane(llm.Tokens(c.Choices)), 1)
	if output > 0 {
		output = max(output, choices)
	}
	floor := min(output, minOutput*choices)
	if c.SoftOutput {
		for i := range s.n {
			a := &s.asks[i]
			if a.loose || a.tpm.most == 0 {
				continue
			}
			if fit := llm.Tokens(fitting(a.tpm.most, a.cost)) - input; fit >= floor {
				output = min(output, fit)
			}
		}
	}
	s.amount, s.least = 0, 0
	if mon.Billed {
		s.amount = mon.hold(input, output)
		s.least = s.amount
	}
	if s.balance != nil && c.SoftOutput && mon.Overdraft != NoFloor {
		s.least = mon.hold(input, min(output, floor))
		room := llm.AddMicro(s.balance.mu.purse.available(), mon.Overdraft)
		if s.amount > room && s.least <= room {
			output = min(output, mon.Price.OutputFor(llm.AddMicro(room, -mon.Calls), input))
			s.amount = mon.hold(input, output)
		}
	}
	s.output = output
	total := plus(int64(input), int64(output))
	for i := range s.n {
		s.asks[i].tokens = scaleUp(total, s.asks[i].cost)
	}
}

// decideLocked tests everything at once and reports the first refusal of the order in verdict. It changes nothing.
func (s *step) decideLocked(now time.Duration, mon *Money, d *Denial) bool {
	v := verdict{denial: d}
	s.decideMoneyLocked(mon, &v)
	for i := range s.n {
		if a := &s.asks[i]; !a.loose {
			a.decideLocked(now, &v)
		}
	}
	return v.admit()
}

// decideMoneyLocked tests balance and quotas. Paying nothing needs no balance and no quota; a quota of 0 refuses all.
func (s *step) decideMoneyLocked(mon *Money, v *verdict) {
	if s.balance != nil && s.amount > 0 && mon.Overdraft != NoFloor {
		have := s.balance.mu.purse.available()
		if s.amount > llm.AddMicro(have, mon.Overdraft) {
			v.refuse(rankBalance, 0, Denial{Axis: AxisBalance, Required: s.least, Available: have,
				Current: int64(have), Requested: int64(s.least)})
		}
	}
	for i, m := range s.quotas[:s.nquotas] {
		p, q := &m.mu.purse, &mon.Quotas[i]
		over := s.amount > 0 && llm.AddMicro(llm.AddMicro(p.settled, p.held), s.amount) > q.Limit
		if over || q.Limit <= 0 {
			v.refuse(rankQuota+int(q.Window), 0, Denial{Axis: AxisQuota, Limit: int64(q.Limit), Used: p.settled, Held: p.held,
				Current: int64(llm.AddMicro(p.settled, p.held)), Requested: int64(s.amount), Window: q.Window, ResetsAt: q.ResetsAt})
		}
	}
}

// overLocked tells which of the dimension's meters refuse, and notes what the others have left.
func (a *ask) overLocked(now time.Duration) (concurrency, qps, tpm bool) {
	mu := &a.m.mu
	switch a.by {
	case byServer: // but for what no window has room for
		a.qpsLeft, a.tpmLeft = math.MaxInt64, math.MaxInt64
		return false, false, a.tpm.most > 0 && a.tokens > a.tpm.most
	case byLoan:
		return a.overLoanLocked(now)
	}
	a.qpsLeft, a.tpmLeft = mu.qps.left(now, a.qps), mu.tpm.left(now, a.tpm)
	if a.held == 0 {
		concurrency = a.concurrency > 0 && mu.open >= a.concurrency
		qps = a.qpsLeft < 1
	}
	return concurrency, qps, a.tpmLeft < a.tokens
}

func (a *ask) decideLocked(now time.Duration, v *verdict) {
	concurrency, qps, tpm := a.overLocked(now)
	v.hint = v.hint || a.by != byWindow // what the server would add is not known
	if concurrency {
		v.refuse(rankConcurrency+int(a.rank), concurrencyHint, Denial{Axis: AxisConcurrency, ID: a.m.id,
			Limit: a.concurrency, Current: a.openLocked(), Requested: 1})
	}
	if qps {
		limit, current, wait := a.overrunLocked(now, &a.m.mu.qps, a.qps, 1)
		v.refuse(rankQPS+int(a.rank), wait, Denial{Axis: AxisQPS, ID: a.m.id,
			Limit: limit, Current: current, Requested: 1})
	}
	if tpm {
		limit, current, wait := a.overrunLocked(now, &a.m.mu.tpm, a.tpm, a.tokens)
		d := Denial{Axis: AxisTPM, ID: a.m.id, Limit: limit, Current: current, Requested: a.tokens,
			TooLarge: a.tokens > a.tpm.most}
		if d.TooLarge {
			v.refuse(rankTooLarge+int(a.rank), wait, d)
		} else {
			v.refuse(rankTPM+int(a.rank), wait, d)
		}
	}
}

// overrunLocked explains why n more do not fit one of the meter's rates.
func (a *ask) overrunLocked(now time.Duration, g *gauge, b bound, n int64) (limit, current int64, wait time.Duration) {
	if a.by != byLoan || n > b.most {
		return g.overrun(now, b, n)
	}
	r := a.m.mu.remote
	l := &r.requests
	if g == &a.m.mu.tpm {
		l = &r.tokens
	}
	return b.most, max(l.used-l.left, 0), r.waitOf(now, l)
}

// openLocked is how many requests are open, at all gateways as far as is known.
func (a *ask) openLocked() int64 {
	if a.by == byLoan {
		return a.m.mu.open + a.m.mu.remote.openUsed
	}
	return a.m.mu.open
}

// shadowLocked lists the shadow dimensions that would have refused.
func (s *step) shadowLocked(now time.Duration, out []ID) []ID {
	for i := range s.n {
		if a := &s.asks[i]; a.shadow {
			if c, q, t := a.overLocked(now); c || q || t {
				out = append(out, a.m.id)
			}
		}
	}
	return out
}

// chargeLocked holds everything in h. It cannot fail.
func (s *step) chargeLocked(now time.Duration, h *hold, layer uint8) {
	for i := range s.n {
		a := &s.asks[i]
		mu := &a.m.mu
		mu.touched = now
		if a.held > 0 {
			h.charges[a.held-1].postLocked(now, a.tokens)
		} else {
			h.nextCharge().beginLocked(now, a, layer)
			a.qpsLeft--
		}
		if !a.loose && a.by != byServer {
			h.requests.tighten(a.qpsLeft, &mu.qps, a.qps, now)
			h.tokens.tighten(a.tpmLeft-a.tokens, &mu.tpm, a.tpm, now)
		}
	}
	if s.balance != nil {
		s.holdMoneyLocked(now, s.balance)
	}
	for _, m := range s.quotas[:s.nquotas] {
		s.holdMoneyLocked(now, m)
	}
	h.amount = llm.AddMicro(h.amount, s.amount)
}

func (s *step) holdMoneyLocked(now time.Duration, m *meter) {
	m.mu.purse.held = llm.AddMicro(m.mu.purse.held, s.amount)
	m.mu.touched = now
}

// tighten keeps the rate with the least left.
func (r *Rate) tighten(left int64, g *gauge, b bound, now time.Duration) {
	if b.most > 0 && (!r.OK || left < r.Remaining) {
		*r = Rate{OK: true, Limit: b.most, Remaining: left, ResetMS: ceilMS(g.whole(now, b.rate))}
	}
}
