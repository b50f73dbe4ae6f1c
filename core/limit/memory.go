package limit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// Algorithm is how a window counts.
type Algorithm string

// The algorithms.
const (
	Sliding     Algorithm = "sliding"      // exact: never above the limit in any window
	Fixed       Algorithm = "fixed"        // whole-bucket reset
	TokenBucket Algorithm = "token_bucket" // capacity and refill
)

// Validate names what an algorithm may be. Empty is Sliding.
func (a Algorithm) Validate() error {
	switch a {
	case "", Sliding, Fixed, TokenBucket:
		return nil
	}
	return fmt.Errorf("unknown algorithm %q: expected sliding, fixed or token_bucket", string(a))
}

func (a Algorithm) rule() rule {
	switch a {
	case Fixed:
		return ruleFixed
	case TokenBucket:
		return ruleBucket
	}
	return ruleSliding
}

// Windows chooses the algorithms of one dimension kind; empty is Sliding.
type Windows struct {
	QPS Algorithm `yaml:"qps"`
	TPM Algorithm `yaml:"tpm"`
}

// Options configure Memory.
type Options struct {
	Algorithms map[Kind]Windows
	Sharing    Sharing // with other gateways
}

// Validate reports the first unknown algorithm with the kind and window it stands at.
func (o Options) Validate() error {
	for k, w := range o.Algorithms {
		if err := w.QPS.Validate(); err != nil {
			return fmt.Errorf("algorithms.%s.qps: %w", k, err)
		}
		if err := w.TPM.Validate(); err != nil {
			return fmt.Errorf("algorithms.%s.tpm: %w", k, err)
		}
	}
	return o.Sharing.Validate()
}

// Memory is the Limiter of one process. Safe for concurrent use.
type Memory struct {
	clock   llm.Clock
	journal Journal
	rules   map[Kind]Windows
	sharing *sharing // nil: nothing is shared
	index   index
	table   table
	steps   sync.Pool    // of *step
	entries sync.Pool    // of *llm.Entry: what is handed to the journal, which copies it
	wall    atomic.Int64 // wall minus monotonic ms at the last look at the wall clock
	looked  atomic.Int64 // when that was, in monotonic ms; 0: never
	stop    chan struct{}
	once    sync.Once
	done    sync.WaitGroup
}

var _ Limiter = (*Memory)(nil)

// New makes a limiter; Close stops its sweeper. Without a journal nothing is recorded. Options are taken as valid.
func New(o Options, clock llm.Clock, journal Journal) *Memory {
	m := unswept(o, clock, journal)
	m.done.Add(1)
	go m.sweepUntilStopped()
	if m.sharing != nil {
		m.sharing.start()
	}
	return m
}

func unswept(o Options, clock llm.Clock, journal Journal) *Memory {
	m := &Memory{clock: clock, journal: journal, rules: make(map[Kind]Windows), stop: make(chan struct{})}
	if journal == nil {
		m.journal = new(unrecorded)
	}
	for k, w := range o.Algorithms {
		m.rules[k] = w
	}
	m.index.init(m.build)
	m.table.owner = m
	m.steps.New = func() any { return new(step) }
	m.entries.New = func() any { return new(llm.Entry) }
	if o.Sharing.Server != nil {
		m.sharing = newSharing(o.Sharing, m)
	}
	return m
}

// Close stops the sweeper and waits for it. Open reservations stay usable.
func (m *Memory) Close() {
	m.once.Do(func() { close(m.stop) })
	m.done.Wait()
}

// Open counts the reservations that are not settled; idle means 0.
func (m *Memory) Open() int { return m.table.open() }

// Meters counts the live meters, for metrics.
func (m *Memory) Meters() int { return m.index.size() }

// Reserve implements Limiter: one atomic step over all dimensions and the money. Test all, hold all; a refusal
// has changed nothing, so there is nothing to undo.
func (m *Memory) Reserve(_ context.Context, c *Claim) (Reservation, *Denial, error) {
	if m.sharing != nil {
		return m.sharing.reserve(c)
	}
	s, h, err := m.hold(c, false)
	if err != nil {
		return Reservation{}, nil, err
	}
	if h == nil {
		return Reservation{}, &c.denial, nil
	}
	m.steps.Put(s)
	return m.publish(h, c)
}

// hold tests and holds everything in this process. Where it refuses, there is no hold, and the claim's denial says why; else
// the caller gives the step back. away: the server of shared windows does not answer.
func (m *Memory) hold(c *Claim, away bool) (*step, *hold, error) {
	s, now, err := m.lock(c, away)
	if err != nil {
		return nil, nil, err
	}
	s.rememberLocked(now, c.Terms)
	if !s.decideLocked(now, &c.Money, &c.denial) {
		s.unlock()
		s.noteRefusal(now)
		m.steps.Put(s)
		return nil, nil, nil
	}
	h := m.table.take()
	h.beginLocked(c, s, now)
	s.chargeLocked(now, h, 0)
	s.unlock()
	return s, h, nil
}

// publish records a hold and gives its handle.
func (m *Memory) publish(h *hold, c *Claim) (Reservation, *Denial, error) {
	if err := m.announce(h, c); err != nil {
		m.takeBack(h)
		return Reservation{}, nil, fmt.Errorf("recording the hold: %w", err)
	}
	return h.open(), nil, nil
}

// Peek implements Limiter.
func (m *Memory) Peek(_ context.Context, c *Claim) (*Denial, error) {
	if m.sharing != nil {
		return m.sharing.peek(c)
	}
	s, now, err := m.lock(c, false)
	if err != nil {
		return nil, err
	}
	defer m.steps.Put(s)
	defer s.unlock()
	if s.decideLocked(now, &c.Money, &c.denial) {
		return nil, nil
	}
	return &c.denial, nil
}

// lock resolves the claim into a step, locks every meter of it, reads the clock once and fixes what is asked for. The caller
// unlocks the step and gives it back. What is missing of loans is borrowed first.
func (m *Memory) lock(c *Claim, away bool) (*step, time.Duration, error) {
	if c.N < 0 || c.N > MaxDims {
		return nil, 0, fmt.Errorf("a claim has at most %d dimensions, not %d", MaxDims, c.N)
	}
	for i := range c.N {
		if err := c.Dims[i].ID.Kind.check(); err != nil {
			return nil, 0, err
		}
	}
	s := m.steps.Get().(*step)
	var began time.Duration
	for round := 0; ; round++ {
		if err := m.lockMeters(s, c, away); err != nil {
			m.steps.Put(s)
			return nil, 0, err
		}
		now := m.clock.Mono()
		s.grantLocked(c, sane(c.Input), sane(c.Output))
		s.rememberOrgLocked(c.Caller.Org)
		if round == 0 {
			began = now
		}
		if m.sharing == nil || !s.lacksLocked(now) || m.sharing.enough(round, now-began) {
			c.Shadowed = s.shadowLocked(now, c.Shadowed[:0])
			return s, now, nil
		}
		s.unlock()
		away = m.sharing.borrow(s) != nil || away
	}
}

// lockMeters finds and locks the meters of a claim.
func (m *Memory) lockMeters(s *step, c *Claim, away bool) error {
	for sure := false; ; sure = true {
		m.gather(s, c, sure)
		if m.sharing != nil {
			if err := m.sharing.judge(s, away); err != nil {
				return err
			}
		}
		if s.lock() {
			return nil
		}
	}
}

// sane bounds what one request can ask for, so that no sum of holds overflows: no model says four billion tokens.
func sane(n llm.Tokens) llm.Tokens { return min(max(n, 0), 1<<32) }

// check refuses a kind that is none: its meter would be one of money.
func (k Kind) check() error {
	if k > ModelChannel && k != Custom {
		return fmt.Errorf("unknown dimension kind %d: expected 0 to %d, or %d", k, ModelChannel, Custom)
	}
	return nil
}

// gather finds the meters of a claim. sure asks past the lock-free index, after a dead meter was met.
func (m *Memory) gather(s *step, c *Claim, sure bool) {
	s.reset()
	for i := range c.N {
		d := &c.Dims[i]
		s.want(m.index.get(&d.ID, 0, c.Caller.Key, sure), d, c.Unlimited, rankOf(d.ID.Kind, i))
	}
	if !c.Money.Billed {
		return
	}
	if c.Money.Balance {
		s.balance = m.purse(kindBalance, c.Caller.User, 0, sure)
		s.lockLater(s.balance)
	}
	for i := range c.Money.Quotas {
		label := c.Money.Quotas[i].Label
		if label == 0 {
			break
		}
		s.quotas[i] = m.purse(kindQuota, c.Caller.Key, label, sure)
		s.lockLater(s.quotas[i])
		s.nquotas++
	}
}

// build makes a meter of a kind, with the windows that were chosen for it.
func (m *Memory) build(k Kind) *meter {
	now := m.clock.Mono()
	if k == kindBalance || k == kindQuota {
		mt := new(meter)
		mt.mu.touched = now
		return mt
	}
	w := m.rules[k]
	d := &dimension{rates: rates{qps: newQPS(w.QPS.rule()), tpm: newTPM(w.TPM.rule())}}
	d.mu.touched, d.mu.rates = now, &d.rates
	if m.sharing != nil {
		d.rates.remote = m.sharing.remoteOf(k)
	}
	return &d.meter
}

// noteRefusal counts the refusal against the key, for the cheap look.
func (s *step) noteRefusal(now time.Duration) {
	for i := range s.n {
		if m := s.asks[i].m; m.id.Kind == Key {
			m.noteRefusal(now)
		}
	}
}

// wallMS dates now. The wall clock is looked at every 10 ms only: reading it is a tenth of a Reserve, and a jump noticed
// that late moves nothing but dates.
func (m *Memory) wallMS(now time.Duration) int64 {
	ms := int64(now/time.Millisecond) + 1
	if last := m.looked.Load(); last == 0 || ms-last >= 10 {
		m.wall.Store(m.clock.Wall().UnixMilli() - ms)
		m.looked.Store(ms)
	}
	return ms + m.wall.Load()
}

// Inspect implements Limiter. Where the server of shared windows does not answer, it is a Glance.
func (m *Memory) Inspect(_ context.Context, id ID) (Use, error) {
	use, err := m.Glance(id)
	if m.sharing != nil && err == nil {
		m.sharing.inspect(&id, &use)
	}
	return use, err
}

// Glance implements Limiter.
func (m *Memory) Glance(id ID) (Use, error) {
	if err := id.Kind.check(); err != nil {
		return Use{}, err
	}
	mt := m.index.find(m.index.hash(&id, 0), &id, 0)
	if mt == nil {
		return Use{}, nil
	}
	mt.mu.Lock()
	defer mt.mu.Unlock()
	now := m.clock.Mono()
	q, t := &mt.mu.qps.short, &mt.mu.tpm.short
	tokens := t.level(now, t.rate)
	return Use{
		QPS:         q.level(now, q.rate),
		TPM:         tokens,
		TPMHeld:     min(t.held, tokens),
		Concurrency: mt.mu.open,
		Storm:       mt.storming(now),
	}, nil
}

// unrecorded is the journal of a limiter that was given none.
type unrecorded struct{ ids atomic.Uint64 }

func (u *unrecorded) Append(*llm.Entry) (uint64, error) { return 0, nil }
func (u *unrecorded) NextID() uint64                    { return u.ids.Add(1) }
