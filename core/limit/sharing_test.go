package limit

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// naive is a server of shared windows that keeps every charge and adds them up each time. Sliding rule only.
type naive struct {
	clock llm.Clock
	mu    struct {
		sync.Mutex
		fail, failEnd         error
		slots                 uint64
		requests, tokens      map[ID][]serverCharge
		open                  map[ID]map[HoldID]time.Duration
		granted               map[ID]map[uint64]int64
		takes, ends, exchange int
		beats                 int
		last                  Exchange // as it was asked
	}
	gateways int64
	during   func() // an exchange, when the server has answered and the gateway has not heard yet
}

type serverCharge struct {
	hold HoldID
	slot uint64
	at   time.Duration
	n    int64
}

func newNaive(clock llm.Clock, gateways int64) *naive {
	s := &naive{clock: clock, gateways: gateways}
	s.mu.requests, s.mu.tokens = map[ID][]serverCharge{}, map[ID][]serverCharge{}
	s.mu.open, s.mu.granted = map[ID]map[HoldID]time.Duration{}, map[ID]map[uint64]int64{}
	return s
}

func (s *naive) failWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.fail = err
}

func (s *naive) enter() error { s.mu.Lock(); return s.mu.fail }

func sumSince(all []serverCharge, after time.Duration) (n int64) {
	for _, c := range all {
		if c.at > after {
			n += c.n
		}
	}
	return n
}

// waitFor is how long until the sum is at most target.
func waitFor(all []serverCharge, now, span time.Duration, target int64) time.Duration {
	over := sumSince(all, now-span) - target
	for _, c := range all {
		if c.at > now-span && over > 0 {
			if over -= c.n; over <= 0 {
				return c.at + span - now
			}
		}
	}
	return 0
}

func (s *naive) Ping(context.Context) error { defer s.mu.Unlock(); return s.enter() }

func (s *naive) Take(_ context.Context, o *Order) error {
	defer s.mu.Unlock()
	if err := s.enter(); err != nil {
		return err
	}
	s.mu.takes++
	now := s.clock.Mono()
	o.Admitted = true
	for i := range o.Asks {
		a := &o.Asks[i]
		q, t := s.mu.requests[a.ID], s.mu.tokens[a.ID]
		a.QPSUsed, a.TPMUsed, a.Open = sumSince(q, now-qpsSpan), sumSince(t, now-tpmSpan), int64(len(s.mu.open[a.ID]))
		a.QPSFull = a.Requests > 0 && a.QPS.Most > 0 && a.QPSUsed+1 > a.QPS.Most
		a.TPMFull = a.TPM.Most > 0 && a.TPMUsed+a.Tokens > a.TPM.Most
		a.OpenFull = a.Requests > 0 && a.Concurrency > 0 && a.Open >= a.Concurrency
		if a.QPSFull {
			a.QPSWait = waitFor(q, now, qpsSpan, a.QPS.Most-1)
		}
		if a.TPMFull {
			a.TPMWait = waitFor(t, now, tpmSpan, a.TPM.Most-a.Tokens)
		}
		if !a.Loose && (a.QPSFull || a.TPMFull || a.OpenFull) {
			o.Admitted = false
		}
	}
	if !o.Admitted || o.Dry {
		return nil
	}
	for i := range o.Asks {
		a := &o.Asks[i]
		if a.Requests > 0 {
			s.mu.requests[a.ID] = append(s.mu.requests[a.ID], serverCharge{hold: o.Hold, at: now, n: 1})
			if s.mu.open[a.ID] == nil {
				s.mu.open[a.ID] = map[HoldID]time.Duration{}
			}
			s.mu.open[a.ID][o.Hold] = now + HoldLife
		}
		s.mu.tokens[a.ID] = append(s.mu.tokens[a.ID], serverCharge{hold: o.Hold, at: now, n: a.Tokens})
	}
	return nil
}

func (s *naive) comeTo(e *Ending, back bool) {
	now := s.clock.Mono()
	for _, d := range e.Dims {
		all := s.mu.tokens[d.ID]
		have := int64(0)
		for _, c := range all {
			if c.hold == e.Hold {
				have += c.n
			}
		}
		if d.Tokens > have {
			s.mu.tokens[d.ID] = append(all, serverCharge{hold: e.Hold, at: now, n: d.Tokens - have})
		}
		for i, over := len(all)-1, have-d.Tokens; back && i >= 0 && over > 0; i-- {
			if all[i].hold == e.Hold {
				n := min(over, all[i].n)
				all[i].n -= n
				over -= n
			}
		}
	}
}

func (s *naive) End(_ context.Context, endings []Ending) error {
	defer s.mu.Unlock()
	if err := s.enter(); err != nil {
		return err
	}
	if s.mu.failEnd != nil {
		return s.mu.failEnd
	}
	for i := range endings {
		e := &endings[i]
		s.mu.ends++
		for _, d := range e.Dims {
			if _, known := s.mu.open[d.ID][e.Hold]; !known {
				return nil
			}
			delete(s.mu.open[d.ID], e.Hold)
			if e.Withdraw {
				s.mu.requests[d.ID] = slices.DeleteFunc(s.mu.requests[d.ID], func(c serverCharge) bool { return c.hold == e.Hold })
			}
		}
		s.comeTo(e, true)
	}
	return nil
}

func (s *naive) Beat(_ context.Context, endings []Ending) error {
	defer s.mu.Unlock()
	s.mu.Lock()
	s.mu.beats++
	if s.mu.fail != nil {
		return s.mu.fail
	}
	for i := range endings {
		s.comeTo(&endings[i], false)
	}
	return nil
}

func (s *naive) lend(all map[ID][]serverCharge, id ID, now, span time.Duration, debt, need, want, most int64) (n int64, slot uint64, used int64, wait time.Duration) {
	if debt > 0 {
		all[id] = append(all[id], serverCharge{at: now, n: debt})
	}
	n = want
	if most > 0 {
		free := most - sumSince(all[id], now-span)
		if n = min(want, max(need, free/(2*s.gateways)), free); n < need {
			n, wait = 0, waitFor(all[id], now, span, most-need)
		}
	}
	if n > 0 {
		s.mu.slots++
		all[id] = append(all[id], serverCharge{slot: s.mu.slots, at: now + LoanLife, n: n})
	}
	return n, s.mu.slots, sumSince(all[id], now-span), wait
}

func (s *naive) Borrow(ctx context.Context, exchanges []*Exchange) error {
	err := s.borrow(ctx, exchanges)
	if s.during != nil {
		s.during()
	}
	return err
}

func (s *naive) borrow(_ context.Context, exchanges []*Exchange) error {
	defer s.mu.Unlock()
	if err := s.enter(); err != nil {
		return err
	}
	now := s.clock.Mono()
	for _, e := range exchanges {
		s.mu.exchange++
		s.mu.last = *e
		for _, b := range e.Back {
			all := s.mu.requests[e.ID]
			if b.Tokens {
				all = s.mu.tokens[e.ID]
			}
			for i := range all {
				if all[i].slot == b.Slot {
					all[i].n -= b.N
				}
			}
		}
		e.Requests, e.RequestsSlot, e.QPSUsed, e.QPSWait = s.lend(s.mu.requests, e.ID, now, qpsSpan, e.DebtRequests, e.NeedRequests, e.WantRequests, e.QPS.Most)
		e.Tokens, e.TokensSlot, e.TPMUsed, e.TPMWait = s.lend(s.mu.tokens, e.ID, now, tpmSpan, e.DebtTokens, e.NeedTokens, e.WantTokens, e.TPM.Most)
		others := int64(0)
		for g, n := range s.mu.granted[e.ID] {
			if g != e.Gateway {
				others += n
			}
		}
		e.OpenMost, e.OpenUsed = e.WantOpen, others
		if e.Concurrency > 0 {
			e.OpenMost = max(min(e.WantOpen, e.Concurrency-others), e.Open)
		}
		if s.mu.granted[e.ID] == nil {
			s.mu.granted[e.ID] = map[uint64]int64{}
		}
		s.mu.granted[e.ID][e.Gateway] = e.OpenMost
		e.For = LoanLife
	}
	return nil
}

// cluster is some gateways on one naive server, under one clock.
type cluster struct {
	t        *testing.T
	clock    *llm.FakeClock
	server   *naive
	gateways []*rig
}

// newCluster makes n gateways whose background work is done by calls alone.
func newCluster(t *testing.T, n int, o Sharing) *cluster {
	t.Helper()
	c := &cluster{t: t, clock: llm.NewFakeClock(start)}
	c.server = newNaive(c.clock, int64(n))
	for i := range n {
		o := o
		o.Server, o.Gateway, o.Gateways, o.Timeout = c.server, uint64(i+1), n, cmp.Or(o.Timeout, time.Second)
		r := &rig{t: t, clock: c.clock, journal: new(tape)}
		r.Memory = unswept(Options{Sharing: o}, c.clock, r.journal)
		c.gateways = append(c.gateways, r)
	}
	return c
}

// settle does the background work of all gateways.
func (c *cluster) settle() {
	for _, r := range c.gateways {
		x := r.sharing
		for len(x.reports) > 0 {
			if !x.reportAll(x.gatherReports(nil)) {
				return
			}
		}
		for len(x.renewals) > 0 {
			x.renew(<-x.renewals)
		}
		x.tidy(false)
	}
}

var aModel = ID{Kind: Model, Name: "m"}

// Three gateways admit together what one would: of the key's 5 in a second 5, wherever they come in; and the 6th is told
// when the first leaves, exactly.
func TestSharedExactly(t *testing.T) {
	c := newCluster(t, 3, Sharing{})
	ask := func() *Claim { return claim(10, dim(keyID(3), Limits{QPS: 5, TPM: 1000, Concurrency: 10})) }
	for i := range 5 {
		c.gateways[i%3].admit(ask())
		c.clock.Advance(10 * time.Millisecond)
	}
	for _, g := range c.gateways {
		d := g.refuse(ask())
		if d.Axis != AxisQPS || d.ID != keyID(3) || d.Limit != 5 || d.Current != 5 || d.RetryAfterMS != 950 || !d.Exact {
			t.Fatalf("%+v", d)
		}
		if use := g.use(keyID(3)); use.QPS != 5 || use.TPM != 50 || use.Concurrency != 5 {
			t.Fatalf("%+v", use)
		}
	}
	c.clock.Advance(949 * time.Millisecond)
	c.gateways[1].refuse(ask())
	c.clock.Advance(time.Millisecond)
	c.gateways[2].admit(ask())
}

// A refusal by the server leaves no trace here: no hold, no request, no entry in the journal.
func TestSharedRefusalLeavesNoTrace(t *testing.T) {
	c := newCluster(t, 2, Sharing{})
	one, other := c.gateways[0], c.gateways[1]
	ask := func() *Claim { return claim(10, dim(keyID(3), Limits{QPS: 1}), dim(aModel, Limits{QPS: 3})) }
	one.admit(ask())
	for range 5 {
		other.refuse(ask())
	}
	if n := len(other.journal.all()); n != 0 || other.Open() != 0 {
		t.Fatalf("%d entries, %d open", n, other.Open())
	}
	c.clock.Advance(time.Second)
	c.settle()
	other.admit(ask())
	if use, _ := other.Glance(aModel); use.QPS != 1 {
		t.Fatalf("the model window counts %d requests: refusals of the key spent it", use.QPS)
	}
}

// What a reservation gives back at one gateway another one can use.
func TestSharedSettlement(t *testing.T) {
	c := newCluster(t, 2, Sharing{})
	big := func(n llm.Tokens) *Claim { return claim(n, dim(keyID(3), Limits{TPM: 1000, Concurrency: 1})) }
	res := c.gateways[0].admit(big(900))
	if d := c.gateways[1].refuse(big(50)); d.Axis != AxisConcurrency || d.Exact {
		t.Fatalf("%+v", d)
	}
	res.Sent("primary")
	res.Commit(llm.Usage{InputTokens: 100}, true)
	c.settle()
	c.gateways[1].admit(big(900)).Release()
	c.settle()
	if use := c.gateways[0].use(keyID(3)); use.TPM != 100 || use.Concurrency != 0 || use.QPS != 2 {
		t.Fatalf("%+v", use)
	}
	for i, g := range c.gateways {
		if g.Open() != 0 {
			t.Fatalf("gateway %d holds %d", i, g.Open())
		}
	}
}

// Output beyond the hold is told while the stream runs, so that others see it.
func TestSharedOverrun(t *testing.T) {
	c := newCluster(t, 2, Sharing{})
	res := c.gateways[0].admit(claim(10, dim(keyID(3), Limits{TPM: 1000})))
	res.Sent("primary")
	res.Relayed(900)
	c.settle()
	if d := c.gateways[1].refuse(claim(100, dim(keyID(3), Limits{TPM: 1000}))); d.Axis != AxisTPM || d.Current != 910 {
		t.Fatalf("%+v", d)
	}
	res.Commit(llm.Usage{InputTokens: 10, OutputTokens: 950}, true)
	c.settle()
	if use := c.gateways[1].use(keyID(3)); use.TPM != 960 {
		t.Fatalf("%+v", use)
	}
}

// A top-up under the rule Cut asks the server, too, and is refused where another gateway has spent the rest.
func TestSharedTopUp(t *testing.T) {
	c := newCluster(t, 2, Sharing{})
	ask := claim(100, dim(keyID(3), Limits{TPM: 1000}))
	ask.Money.Overrun = Cut
	res := c.gateways[0].admit(ask)
	if d, err := res.Extend(ctx, nil, 300); d != nil || err != nil {
		t.Fatal(d, err)
	}
	c.gateways[1].admit(claim(500, dim(keyID(3), Limits{TPM: 1000})))
	d, err := res.Extend(ctx, nil, 200)
	if err != nil || d == nil || d.Axis != AxisTPM || d.Current != 900 || d.Requested != 200 {
		t.Fatalf("%+v, %v", d, err)
	}
}

// Loans: whatever gateways ask, all together never admit more than the limit in any second, and what they do not spend comes
// back.
func TestLoansNeverAboveTheLimit(t *testing.T) {
	c := newCluster(t, 3, Sharing{})
	var spent []serverCharge
	ask := func() *Claim { return claim(10, dim(aModel, Limits{QPS: 50, TPM: 2000})) }
	refused := 0
	for i := range 20_000 {
		g := c.gateways[(i*7+i/11)%3]
		res, d, err := g.Reserve(ctx, ask())
		switch {
		case err != nil:
			t.Fatal(err)
		case d != nil:
			refused++
			if d.Axis != AxisQPS && d.Axis != AxisTPM || d.RetryAfterMS <= 0 || d.Exact {
				t.Fatalf("%+v", d)
			}
		default:
			spent = append(spent, serverCharge{at: c.clock.Mono(), n: 1})
			if i%3 == 0 {
				res.Release()
			} else {
				res.Sent("primary")
				res.Commit(llm.Usage{InputTokens: 10}, true)
			}
		}
		c.clock.Advance(7 * time.Millisecond)
		if i%5 == 0 {
			c.settle()
		}
	}
	for i, s := range spent {
		if n := sumSince(spent[:i+1], s.at-qpsSpan); n > 50 {
			t.Fatalf("%d requests in a second", n)
		}
	}
	// 20,000 x 7 ms are 140 s: 2,000 tokens a minute are 466 requests that keep theirs, and a third gives them back.
	if len(spent) < 600 || refused == 0 {
		t.Fatalf("%d admitted, %d refused", len(spent), refused)
	}
	for range 2 {
		c.clock.Advance(time.Minute)
		c.settle()
	}
	for _, g := range c.gateways {
		if n := len(g.sharing.lent.meters); n != 0 || g.Open() != 0 {
			t.Fatalf("%d meters still owe, %d open", n, g.Open())
		}
	}
}

// A loan is asked for again before it is over, so a steady flow asks the server about ten times a second and hardly waits.
func TestLoansAreFew(t *testing.T) {
	c := newCluster(t, 1, Sharing{})
	g := c.gateways[0]
	for range 20_000 {
		res, d, err := g.Reserve(ctx, claim(10, dim(aModel, Limits{QPS: 1_000_000, TPM: 1_000_000_000})))
		if d != nil || err != nil {
			t.Fatal(d, err)
		}
		res.Release()
		c.clock.Advance(100 * time.Microsecond)
		for x := g.sharing; len(x.renewals) > 0; {
			x.renew(<-x.renewals)
		}
	}
	if n := c.server.mu.exchange; n > 2*50 { // two seconds
		t.Fatalf("%d exchanges in 2 s", n)
	}
}

// Concurrency that crosses orgs is lent as well, and comes back when nobody needs it.
func TestLentConcurrency(t *testing.T) {
	c := newCluster(t, 2, Sharing{})
	ask := func() *Claim { return claim(1, dim(aModel, Limits{Concurrency: 4})) }
	var open []Reservation
	for i := range 4 {
		open = append(open, c.gateways[i%2].admit(ask()))
		c.clock.Advance(loanPause)
	}
	for _, g := range c.gateways {
		if d := g.refuse(ask()); d.Axis != AxisConcurrency || d.Limit != 4 || d.Current != 4 {
			t.Fatalf("%+v", d)
		}
	}
	open[0].Release()
	open[2].Release()
	for range 2 { // the first look still knows that two were open
		c.clock.Advance(LoanLife + loanPause)
		c.settle()
	}
	c.gateways[1].admit(ask())
	c.clock.Advance(loanPause)
	c.gateways[1].admit(ask())
	c.clock.Advance(loanPause)
	c.gateways[0].refuse(ask())
}

// While the server is away, each gateway decides at its share of the limit by what it admitted itself, refuses, or admits,
// as the kind says; and all of it ends when the server is back.
func TestOutage(t *testing.T) {
	var told []error
	c := newCluster(t, 2, Sharing{
		Outages: map[Kind]Outage{User: Refuse, Org: Admit},
		Told:    func(err error) { told = append(told, err) },
	})
	g := c.gateways[0]
	key := func() *Claim { return claim(1, dim(keyID(3), Limits{QPS: 10})) }
	for range 3 {
		g.admit(key())
	}
	down := errors.New("connection refused")
	c.server.failWith(down)
	for range 2 {
		g.admit(key())
	}
	if g.Shared().Away {
		t.Fatal("a moment is no outage")
	}
	c.clock.Advance(failingFor)
	if d := g.refuse(key()); d.Axis != AxisQPS || d.Limit != 5 || d.Current != 5 {
		t.Fatalf("%+v, want the share of 10 among 2", d)
	}
	if s := g.Shared(); !s.Away || !errors.Is(told[0], down) {
		t.Fatalf("%+v, told %v", s, told)
	}
	if _, _, err := g.Reserve(ctx, claim(1, dim(ID{Kind: User, Scope: 2}, Limits{QPS: 10}))); !errors.Is(err, ErrAway) {
		t.Fatal(err)
	}
	for range 30 {
		g.admit(claim(1, dim(ID{Kind: Org, Scope: 1}, Limits{QPS: 10})))
	}
	for range 5 {
		g.admit(claim(1, dim(aModel, Limits{QPS: 10})))
	}
	g.refuse(claim(1, dim(aModel, Limits{QPS: 10})))
	c.server.failWith(nil)
	for range pings {
		if !g.Shared().Away {
			t.Fatal("back before the server has answered a while")
		}
		g.sharing.watch(1)
	}
	c.settle()
	if s := g.Shared(); s.Away || len(told) != 2 || told[1] != nil {
		t.Fatalf("%+v, told %v", s, told)
	}
	// What was admitted meanwhile is past: the server begins with the room it has.
	for range 10 {
		c.gateways[1].admit(claim(1, dim(aModel, Limits{QPS: 10})))
	}
	c.gateways[1].refuse(claim(1, dim(aModel, Limits{QPS: 10})))
	c.gateways[1].admit(claim(1, dim(ID{Kind: User, Scope: 2}, Limits{QPS: 10})))
}

// A key that the server refuses is in a storm like one that is refused here: the cheap look keeps it from the server.
func TestSharedStorm(t *testing.T) {
	c := newCluster(t, 2, Sharing{})
	ask := func() *Claim { return claim(1, dim(keyID(3), Limits{QPS: 3})) }
	for range 3 {
		c.gateways[0].admit(ask())
	}
	g := c.gateways[1]
	for range stormAfter {
		g.refuse(ask())
	}
	before := c.server.mu.takes
	var d Denial
	refused := 0
	for range 100 {
		if g.Storm(keyID(3), 100, 0, &d) {
			refused++
		}
	}
	if refused < 99 || c.server.mu.takes != before || d.Axis != AxisQPS || d.Limit != 3 {
		t.Fatalf("%d refused, %d asked, %+v", refused, c.server.mu.takes-before, d)
	}
	c.clock.Advance(time.Second)
	if g.Storm(keyID(3), 100, 0, &d) {
		t.Fatal("refused though the window is free")
	}
}

// Peek asks the server and holds nothing there.
func TestSharedPeek(t *testing.T) {
	c := newCluster(t, 2, Sharing{})
	ask := func() *Claim { return claim(1, dim(keyID(3), Limits{QPS: 1})) }
	for range 3 {
		if d, err := c.gateways[0].Peek(ctx, ask()); d != nil || err != nil {
			t.Fatal(d, err)
		}
	}
	c.gateways[1].admit(ask())
	if d, err := c.gateways[0].Peek(ctx, ask()); err != nil || d == nil || d.Axis != AxisQPS {
		t.Fatal(d, err)
	}
}

// An exact mode for a kind that crosses orgs is refused: its shards would be several.
func TestSharingValidate(t *testing.T) {
	for _, s := range []Sharing{
		{Modes: map[Kind]Mode{Model: Exact}}, {Modes: map[Kind]Mode{Key: "both"}}, {Outages: map[Kind]Outage{Key: "panic"}},
	} {
		if err := s.Validate(); err == nil {
			t.Errorf("%+v is taken", s)
		}
	}
	if err := (&Sharing{Modes: map[Kind]Mode{Key: Leased, Model: Local, User: Exact}}).Validate(); err != nil {
		t.Error(err)
	}
}

// A server that is late once is told what went past it, so that the others see it.
func TestLateServer(t *testing.T) {
	c := newCluster(t, 2, Sharing{})
	ask := func() *Claim { return claim(10, dim(keyID(3), Limits{QPS: 4, Concurrency: 4})) }
	c.server.failWith(context.DeadlineExceeded)
	res := c.gateways[0].admit(ask())
	c.server.failWith(nil)
	if c.gateways[0].Shared().Away {
		t.Fatal("one failure is no outage")
	}
	c.settle()
	for range 3 {
		c.gateways[1].admit(ask())
	}
	if d := c.gateways[1].refuse(ask()); d.Current != 4 {
		t.Fatalf("%+v", d)
	}
	res.Release()
	c.settle()
	if use := c.gateways[1].use(keyID(3)); use.Concurrency != 3 {
		t.Fatalf("%+v", use)
	}
}

// What a long answer gives back at a gateway that is idle by then, others have at once.
func TestLoanComesBackFromAnIdleGateway(t *testing.T) {
	c := newCluster(t, 2, Sharing{})
	ask := func() *Claim { return claim(900, dim(aModel, Limits{TPM: 1000})) }
	res := c.gateways[0].admit(ask())
	for range 3 {
		c.clock.Advance(5 * time.Second)
		c.settle()
	}
	if n := len(c.gateways[0].sharing.lent.meters); n != 0 {
		t.Fatalf("%d meters owe the server a look", n)
	}
	c.gateways[1].refuse(ask())
	res.Release()
	c.settle()
	c.clock.Advance(loanPause)
	c.gateways[1].admit(ask())
}
