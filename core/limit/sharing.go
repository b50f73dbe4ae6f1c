package limit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// Mode is how the dimensions of a kind are shared between gateways.
type Mode string

// The modes.
const (
	Local  Mode = "local"  // not at all: each gateway has windows of its own
	Exact  Mode = "exact"  // each request asks the server; only for kinds that stay within one org
	Leased Mode = "leased" // spent in memory from short loans
)

// Outage is what decides on a shared dimension while the server does not answer.
type Outage string

// The ways through an outage.
const (
	LocalShare Outage = "local_share" // this gateway's own windows, at limit / Gateways
	Refuse     Outage = "refuse"      // nothing is admitted: ErrAway
	Admit      Outage = "admit"       // everything is, and counted
)

// ErrAway is the answer to a claim on a dimension that is refused while the shared windows do not answer.
var ErrAway = errors.New("the shared windows do not answer")

// Sharing is what a limiter shares with other gateways; the zero Sharing is nothing.
type Sharing struct {
	Server   Shared
	Gateway  uint64          // another number for each process
	Gateways int             // how many there may be at most; 0: 1
	Timeout  time.Duration   // of one round trip that a request waits for; 0: 5 ms
	Modes    map[Kind]Mode   // absent: ModeOf
	Outages  map[Kind]Outage // absent: LocalShare
	// Told hears when the server stops answering, and with nil when it is back. It must not block.
	Told func(err error)
}

// ModeOf is the default mode of a kind: exact within an org, leased across orgs.
func ModeOf(k Kind) Mode {
	if k.crossing() {
		return Leased
	}
	return Exact
}

// crossing kinds are used by more than one org.
func (k Kind) crossing() bool {
	switch k {
	case Global, Model, Channel, IP, ModelChannel:
		return true
	}
	return false
}

// Validate reports the first mode or way that does not exist or does not fit its kind.
func (s *Sharing) Validate() error {
	for k, mode := range s.Modes {
		switch {
		case mode != Local && mode != Exact && mode != Leased:
			return fmt.Errorf("modes.%s: unknown mode %q: expected exact, leased or local", k, string(mode))
		case mode == Exact && k.crossing():
			return fmt.Errorf("modes.%s: exact is for dimensions within one org; %s is leased or local", k, k)
		}
	}
	for k, way := range s.Outages {
		if way != LocalShare && way != Refuse && way != Admit {
			return fmt.Errorf("outages.%s: unknown way %q: expected local_share, refuse or admit", k, string(way))
		}
	}
	return nil
}

// by is who decides on an ask.
type by uint8

const (
	byWindow by = iota // the windows of this process
	byServer           // an Order
	byLoan             // what this gateway was lent
)

const (
	defaultTimeout = 5 * time.Millisecond
	quietTimeout   = time.Second // of calls that no request waits for
	quietEvery     = 100 * time.Millisecond
	strikes        = 3                     // failures in a row, over failingFor, after which nobody asks until pings are answered
	failingFor     = 50 * time.Millisecond // a pause of one of the machines is no outage
	pings          = 3                     // answered in a row, before it is asked again
	reportsQueue   = 1 << 16               // what waits to be told; an ending that does not fit comes by itself there
	reportsBatch   = 256
	madeLately     = time.Second // of what was admitted here alone, the server hears what its request windows may still know
	borrowRounds   = 8           // of one request; then others took what was lent each time
)

// sharing is the part of a limiter that talks to the server of shared windows. The process's own windows record every
// request all the same: they decide while the server is away. A request holds here first and at the server then; what the
// server refuses is taken back here, as if it had never been.
type sharing struct {
	Sharing
	owner *Memory
	kinds [256]struct {
		by     by
		outage Outage
	}

	away     atomic.Bool
	pinged   int // pings answered in a row while away; of watch alone
	failures atomic.Int32
	failing  atomic.Int64  // Mono of the first of them
	number   atomic.Uint64 // of the last hold
	orders   sync.Pool     // of *Order
	reports  chan report
	renewals chan *meter
	lent     struct {
		sync.Mutex
		meters map[*meter]struct{} // that owe the server a look: unspent, owed or in use
	}

	takes, borrows, failed, lost atomic.Uint64
}

// report is what the server is told of a hold without being asked: that it was made here alone, has grown, or has ended.
type report struct {
	Ending
	made  *Order
	at    time.Duration // of made
	heard bool
}

func newSharing(o Sharing, owner *Memory) *sharing {
	x := &sharing{Sharing: o, owner: owner, reports: make(chan report, reportsQueue), renewals: make(chan *meter, 1024)}
	x.Gateways = max(o.Gateways, 1)
	if x.Timeout <= 0 {
		x.Timeout = defaultTimeout
	}
	if x.Told == nil {
		x.Told = func(error) {}
	}
	x.orders.New = func() any { return new(Order) }
	x.lent.meters = make(map[*meter]struct{})
	for k := Global; ; k++ {
		if k == ModelChannel+1 {
			k = Custom
		}
		mode, ok := o.Modes[k]
		if !ok {
			mode = ModeOf(k)
		}
		x.kinds[k].by = map[Mode]by{Exact: byServer, Leased: byLoan}[mode]
		x.kinds[k].outage = o.Outages[k]
		if k == Custom {
			return x
		}
	}
}

// remoteOf is what a new meter of a kind begins with; nil where the kind is not shared.
func (x *sharing) remoteOf(k Kind) *remote {
	if x.kinds[k].by == byWindow {
		return nil
	}
	return &remote{by: x, loans: x.kinds[k].by == byLoan}
}

// start runs what talks to the server beside the requests; the owner's Close waits for it.
func (x *sharing) start() {
	for _, run := range []func(){x.reportUntilStopped, x.renewUntilStopped, x.watchUntilStopped} {
		x.owner.done.Go(run)
	}
}

// judge says who decides on each ask of a step. Called before the meters are locked.
func (x *sharing) judge(s *step, away bool) error {
	for i := range s.n {
		a := &s.asks[i]
		k := &x.kinds[a.m.id.Kind]
		a.whole = terms{a.qps, a.tpm, a.concurrency}
		switch {
		case k.by == byWindow:
		case !away:
			a.by = k.by
		case k.outage == Refuse && !a.told():
			return fmt.Errorf("%s: %w", a.m.id.Kind, ErrAway)
		case k.outage == Admit:
			a.loose = true
		default:
			a.share(int64(x.Gateways))
		}
	}
	return nil
}

// judgeMore is judge for an Extend. A hold that the server does not know is topped up here.
func (x *sharing) judgeMore(s *step, h *hold, away bool) error {
	if err := x.judge(s, away); err != nil {
		return err
	}
	for i := range s.n {
		if a := &s.asks[i]; a.by == byServer && (h.number == 0 || a.loose) {
			a.by, a.loose = byWindow, true
		}
	}
	return nil
}

// told asks only tell what a running answer has come to.
func (a *ask) told() bool { return a.held > 0 && a.loose }

// share reduces what is asked to one of n gateways' part of it.
func (a *ask) share(n int64) {
	part := func(limit int64) int64 {
		if limit <= 0 {
			return limit
		}
		return max(limit/n, 1)
	}
	for _, b := range []*bound{&a.qps, &a.tpm} {
		*b = bound{part(b.limit), part(b.most), part(b.ten), part(b.rate)}
	}
	a.concurrency = part(a.concurrency)
}

// reserve is Memory.Reserve where something is shared: hold here, ask the server, and take back what it refuses. Where it
// does not answer, what it would have been asked is decided here.
func (x *sharing) reserve(c *Claim) (Reservation, *Denial, error) {
	m := x.owner
	for away := x.away.Load(); ; away = true {
		s, h, err := m.hold(c, away)
		switch {
		case err != nil:
			return Reservation{}, nil, err
		case h == nil:
			return Reservation{}, &c.denial, nil
		}
		if away {
			x.madeAlone(s, h, c)
			m.steps.Put(s)
			return m.publish(h, c)
		}
		admitted, err := x.takeHold(s, h, c)
		m.steps.Put(s)
		switch {
		case err != nil: // it may hold there: the ending that takeBack sends says no
			m.takeBack(h)
		case !admitted:
			h.number = 0
			m.takeBack(h)
			return Reservation{}, &c.denial, nil
		default:
			return m.publish(h, c)
		}
	}
}

// peek is Memory.Peek where something is shared.
func (x *sharing) peek(c *Claim) (*Denial, error) {
	for away := x.away.Load(); ; away = true {
		s, now, err := x.owner.lock(c, away)
		if err != nil {
			return nil, err
		}
		ok := s.decideLocked(now, &c.Money, &c.denial)
		s.unlock()
		if ok {
			ok, err = x.take(s, c, nil, now)
		}
		x.owner.steps.Put(s)
		switch {
		case err != nil:
		case ok:
			return nil, nil
		default:
			return &c.denial, nil
		}
	}
}

// call makes one call that a request waits for, and counts how it went.
func (x *sharing) call(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), x.Timeout)
	defer cancel()
	err := f(ctx)
	x.heard(err)
	return err
}

// heard keeps count: after some failures in a row nobody asks any more, until watch finds the server back.
func (x *sharing) heard(err error) {
	if err == nil {
		if x.failures.Load() != 0 {
			x.failures.Store(0)
		}
		return
	}
	x.failed.Add(1)
	now := x.owner.clock.Mono()
	n := x.failures.Add(1)
	if n == 1 {
		x.failing.Store(int64(now))
	}
	if n >= strikes && now-time.Duration(x.failing.Load()) >= failingFor && x.away.CompareAndSwap(false, true) {
		x.Told(err)
	}
}

// watchUntilStopped pings the server, more often while it is away, and keeps holds alive.
func (x *sharing) watchUntilStopped() {
	if err := x.call(x.Server.Ping); err != nil && x.away.CompareAndSwap(false, true) {
		x.Told(err) // nobody was let in before, so there is nothing to wait for
	}
	t := time.NewTicker(quietEvery)
	defer t.Stop()
	for n := 1; ; n++ {
		select {
		case <-x.owner.stop:
			return
		case <-t.C:
			x.watch(n)
		}
	}
}

// watch is one look, the n-th.
func (x *sharing) watch(n int) {
	away := x.away.Load()
	if away || n%int(time.Second/quietEvery) == 0 {
		err := x.call(x.Server.Ping)
		switch {
		case err != nil:
			x.pinged = 0
		case away:
			if x.pinged++; x.pinged >= pings {
				x.pinged = 0
				x.away.Store(false)
				x.Told(nil)
			}
		}
	}
	if n%int(BeatEvery/quietEvery) == 0 && !x.away.Load() {
		x.beat(x.owner.clock.Mono())
	}
}

// beat says of every hold at the server that is not new any more that it lives, and what it has come to.
func (x *sharing) beat(now time.Duration) {
	var batch []Ending
	for _, h := range x.owner.table.holds() {
		e, ok := h.sign(now)
		if !ok {
			continue
		}
		if batch = append(batch, e); len(batch) == reportsBatch {
			if !x.beatAll(batch) { // the others would wait as long for nothing, and so would the next ping
				return
			}
			batch = batch[:0]
		}
	}
	x.beatAll(batch)
}

func (x *sharing) beatAll(batch []Ending) (heard bool) {
	return len(batch) == 0 || x.quietly(func(ctx context.Context) error { return x.Server.Beat(ctx, batch) })
}

// sign is a sign of life of an open hold that is shared and not new. It never waits: a hold that is busy is beside itself,
// and says so the next time.
func (h *hold) sign(now time.Duration) (Ending, bool) {
	w := h.word.Load()
	if w&(1<<stateBits-1) != stateOpen || !h.word.CompareAndSwap(w, w-stateOpen+stateBusy) {
		return Ending{}, false
	}
	defer h.leave()
	if h.number == 0 || now-h.began < BeatEvery/2 { // so a hold has two chances before HoldLife is over
		return Ending{}, false
	}
	return h.owner.sharing.endingOf(h, h.covered), true
}

// endingOf is what the server is told of a hold that has come to tokens.
func (x *sharing) endingOf(h *hold, tokens llm.Tokens) Ending {
	e := Ending{Hold: HoldID{x.Gateway, h.number}, Org: h.org}
	for i := range h.n {
		if c := &h.charges[i]; x.kinds[c.m.id.Kind].by == byServer {
			e.Dims = append(e.Dims, EndingDim{ID: c.m.id, Tokens: c.target(tokens)})
		}
	}
	return e
}

// ended hands the end of a hold to whoever tells the server. What does not fit into the queue ends there by its age.
func (x *sharing) ended(h *hold, tokens llm.Tokens) {
	if h.number == 0 {
		return
	}
	e := x.endingOf(h, tokens)
	e.Withdraw = h.withdrawn
	e.Beaten = x.owner.clock.Mono()-h.began >= BeatEvery/2
	x.tell(report{Ending: e})
}

// madeAlone hands a hold that the server was not asked for to whoever tells it: it is charged there, whether or not it
// fits, so that a server that is only late knows what went past it.
func (x *sharing) madeAlone(s *step, h *hold, c *Claim) {
	o := &Order{Hold: HoldID{x.Gateway, x.number.Add(1)}, Org: c.Caller.Org}
	for i := range s.n {
		if a := &s.asks[i]; x.kinds[a.m.id.Kind].by == byServer {
			ask := a.order()
			ask.Loose = true
			o.Asks = append(o.Asks, ask)
		}
	}
	if len(o.Asks) > 0 {
		h.number = o.Hold.Number
		x.tell(report{made: o, at: h.began})
	}
}

// grown hands what an open hold has come to beyond what the server knows to whoever tells it.
func (x *sharing) grown(h *hold) {
	if h.number == 0 || h.covered <= h.told {
		return
	}
	h.told = h.covered
	e := x.endingOf(h, h.covered)
	e.Open = true
	x.tell(report{Ending: e})
}

func (x *sharing) tell(t report) {
	select {
	case x.reports <- t:
	default:
		x.lost.Add(1)
	}
}

// reportUntilStopped tells the server, much at once, and again until it hears.
func (x *sharing) reportUntilStopped() {
	batch := make([]report, 0, reportsBatch)
	for {
		select {
		case <-x.owner.stop:
			for len(x.reports) > 0 && x.reportAll(x.gatherReports(batch[:0])) {
			}
			return
		case t := <-x.reports:
			batch = x.gatherReports(append(batch[:0], t))
		}
		for !x.reportAll(batch) {
			select {
			case <-x.owner.stop:
				return
			case <-time.After(quietEvery):
			}
		}
	}
}

// gatherReports fills a batch with what waits.
func (x *sharing) gatherReports(batch []report) []report {
	for len(batch) < reportsBatch {
		select {
		case t := <-x.reports:
			batch = append(batch, t)
		default:
			return batch
		}
	}
	return batch
}

// reportAll tells first what was made, then what has grown and then what has ended. What has grown or ended may be told
// twice; what was made may not, since its end may have been heard.
func (x *sharing) reportAll(batch []report) bool {
	var open, closed []Ending
	for i := range batch {
		switch t := &batch[i]; {
		case t.heard:
		case t.made != nil && x.owner.clock.Mono()-t.at >= madeLately:
		case t.made != nil:
			if !x.quietly(func(ctx context.Context) error { return x.Server.Take(ctx, t.made) }) {
				return false
			}
			t.heard = true
		case t.Open:
			open = append(open, t.Ending)
		default:
			closed = append(closed, t.Ending)
		}
	}
	return x.beatAll(open) &&
		(len(closed) == 0 || x.quietly(func(ctx context.Context) error { return x.Server.End(ctx, closed) }))
}

// quietly makes a call that no request waits for.
func (x *sharing) quietly(f func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(context.Background(), quietTimeout)
	defer cancel()
	return f(ctx) == nil
}

// SharedStatus is how it stands with the shared windows, for readiness and metrics.
type SharedStatus struct {
	Sharing                      bool   // something is shared
	Away                         bool   // the server does not answer: this gateway decides alone
	Takes, Borrows, Failed, Lost uint64 // calls; those that failed; endings that found no place in the queue
	Reports                      int    // that wait for the server
}

// Shared tells how it stands with the shared windows.
func (m *Memory) Shared() SharedStatus {
	x := m.sharing
	if x == nil {
		return SharedStatus{}
	}
	return SharedStatus{Sharing: true, Away: x.away.Load(), Takes: x.takes.Load(), Borrows: x.borrows.Load(),
		Failed: x.failed.Load(), Lost: x.lost.Load(), Reports: len(x.reports)}
}
