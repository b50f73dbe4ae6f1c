package limit

import (
	"errors"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// errDead would be a bug: a meter with an open hold is never swept, so only a new dimension's meter can be met dead, and
// the next look finds its successor. An error ends one request where a loop would never end.
var errDead = errors.New("a meter of an open reservation was swept")

const maxTries = 8

// extend is Reserve for a hold that is already open: the same step, over its present meters when there is output to
// add, and over new dimensions.
func (m *Memory) extend(h *hold, dims []Dim, output llm.Tokens) (*Denial, error) {
	s := m.steps.Get().(*step)
	defer m.steps.Put(s)
	away, taken := m.sharing != nil && m.sharing.away.Load(), false
	for {
		now, err := m.lockMore(s, h, dims, output, away)
		if err != nil {
			return nil, err
		}
		var d Denial
		if !s.decideLocked(now, &h.money, &d) {
			s.unlock()
			refused := d // only a refusal is worth an allocation
			return &refused, nil
		}
		if away || taken || !s.asksServer() {
			m.extendLocked(s, h, now, len(dims) > 0, output)
			return nil, nil
		}
		s.unlock()
		d2, err := m.sharing.takeMore(s, h, now)
		if d2 != nil {
			return d2, nil
		}
		away, taken = err != nil, true
	}
}

// extendLocked charges the step of an Extend and unlocks it.
func (m *Memory) extendLocked(s *step, h *hold, now time.Duration, more bool, output llm.Tokens) {
	if more {
		h.layer++
	}
	s.chargeLocked(now, h, h.layer)
	s.unlock()
	h.granted += output
	h.covered = max(h.covered, h.progress.input+h.granted)
	h.touched = now
}

// lockMore gathers and locks the step of an Extend. What is missing of loans is borrowed first.
func (m *Memory) lockMore(s *step, h *hold, dims []Dim, output llm.Tokens, away bool) (time.Duration, error) {
	var began time.Duration
	for try, round := 0, 0; ; {
		if err := m.gatherMore(s, h, dims, output, try > 0); err != nil {
			return 0, err
		}
		if m.sharing != nil {
			if err := m.sharing.judgeMore(s, h, away); err != nil {
				return 0, err
			}
		}
		if !s.lock() {
			if try++; try > maxTries {
				return 0, errDead
			}
			continue
		}
		now := m.clock.Mono()
		if round == 0 {
			began = now
		}
		if m.sharing == nil || !s.lacksLocked(now) || m.sharing.enough(round, now-began) {
			return now, nil
		}
		s.unlock()
		round++
		away = m.sharing.borrow(s) != nil || away
	}
}

// gatherMore fills the step of an Extend. A dimension that is held already is not asked again.
func (m *Memory) gatherMore(s *step, h *hold, dims []Dim, output llm.Tokens, sure bool) error {
	s.reset()
	s.amount, s.least = 0, 0
	tokens := max(h.covered, h.progress.input+h.granted+output)
	if output > 0 {
		s.topUp(h, tokens)
	}
	first := s.n
	for i := range dims {
		d := &dims[i]
		if err := d.ID.Kind.check(); err != nil {
			return err
		}
		if mt := m.index.get(&d.ID, 0, h.key, sure); !h.holds(mt) {
			s.want(mt, d, false, rankOf(d.ID.Kind, i))
		}
	}
	for i := first; i < s.n; i++ {
		s.asks[i].tokens = scaleUp(int64(tokens), s.asks[i].cost)
	}
	return nil
}

// topUp asks every meter that is held for what is missing to tokens, and the money for what that costs. But for Cut the
// tokens are not asked, but told: they are spent whether or not they fit.
func (s *step) topUp(h *hold, tokens llm.Tokens) {
	for i := range h.n {
		c := &h.charges[i]
		if more := c.target(tokens) - c.total; more > 0 {
			s.asks[s.n] = ask{m: c.m, tpm: c.asked, cost: c.cost, rank: rankOf(c.m.id.Kind, i), loose: c.loose || h.money.Overrun != Cut,
				tokens: more, held: uint8(i + 1)}
			s.n++
			s.lockLater(c.m)
		}
	}
	if !h.money.Billed {
		return
	}
	s.amount = max(h.money.hold(h.progress.input, tokens-h.progress.input)-h.amount, 0)
	s.least = s.amount
	s.balance, s.quotas, s.nquotas = h.balance, h.quotas, h.nquotas
	if s.balance != nil {
		s.lockLater(s.balance)
	}
	for _, mt := range s.quotas[:s.nquotas] {
		s.lockLater(mt)
	}
}

func (h *hold) holds(m *meter) bool {
	for i := range h.n {
		if h.charges[i].m == m {
			return true
		}
	}
	return false
}
