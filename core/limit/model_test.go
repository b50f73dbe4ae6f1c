package limit

import (
	"fmt"
	"math/big"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weir-gateway/weir/core/llm"
)

// The naive model keeps every charge ever made and adds them all up whenever it is asked. It has one state, no rings,
// no running sums and no clever order; it is what the documentation says, and Memory must agree with it.

type naiveSlot struct {
	first, last time.Duration
	used, held  int64
	units       *big.Int // token bucket: what has not drained, in 1/span; may fall below 0 by a fraction after a give-back
}

type naiveWindow struct {
	rule        rule
	span, width time.Duration
	rate        int64
	slots       []*naiveSlot
	drained     time.Duration
}

func (w *naiveWindow) alive(s *naiveSlot, now time.Duration) bool {
	switch w.rule {
	case ruleSliding:
		return s.last+w.span > now
	case ruleFixed:
		return s.first+w.span > now
	}
	return s.units != nil
}

// drain lets a token bucket run up to now.
func (w *naiveWindow) drain(now time.Duration) {
	if w.rule != ruleBucket {
		return
	}
	flow := new(big.Int).Mul(big.NewInt(w.rate), big.NewInt(int64(now-w.drained)))
	w.drained = now
	for _, s := range w.slots {
		if s.units == nil {
			continue
		}
		if s.units.Cmp(flow) > 0 {
			s.units.Sub(s.units, flow)
			return
		}
		flow.Sub(flow, s.units)
		s.units = nil
	}
}

func (w *naiveWindow) level(now time.Duration) (n int64) {
	w.drain(now)
	sum := new(big.Int)
	for _, s := range w.slots {
		if !w.alive(s, now) {
			continue
		}
		n += s.used
		if s.units != nil {
			sum.Add(sum, s.units)
		}
	}
	if w.rule != ruleBucket {
		return n
	}
	span := big.NewInt(int64(w.span)) // rounded up to whole units
	sum.Add(sum, new(big.Int).Sub(span, big.NewInt(1)))
	return new(big.Int).Div(sum, span).Int64()
}

func (w *naiveWindow) heldNow(now time.Duration) (n int64) {
	for _, s := range w.slots {
		if w.alive(s, now) {
			n += s.held
		}
	}
	return n
}

func (w *naiveWindow) add(now time.Duration, n, held int64) *naiveSlot {
	if n <= 0 {
		return nil
	}
	w.drain(now)
	var s *naiveSlot
	if len(w.slots) > 0 {
		s = w.slots[len(w.slots)-1]
	}
	joins := s != nil && w.alive(s, now) && (w.rule == ruleFixed || now < s.first+w.width)
	if !joins {
		s = &naiveSlot{first: now}
		if w.rule == ruleBucket {
			s.units = new(big.Int)
		}
		w.slots = append(w.slots, s)
	}
	s.last = now
	s.used += n
	s.held += held
	if w.rule == ruleBucket {
		s.units.Add(s.units, new(big.Int).Mul(big.NewInt(n), big.NewInt(int64(w.span))))
	}
	return s
}

func (w *naiveWindow) giveBack(now time.Duration, s *naiveSlot, n int64) {
	w.drain(now)
	if s == nil || n <= 0 || !w.alive(s, now) {
		return
	}
	if w.rule != ruleBucket {
		s.used -= n
		return
	}
	span := big.NewInt(int64(w.span))
	whole := new(big.Int).Add(s.units, new(big.Int).Sub(span, big.NewInt(1)))
	n = min(n, whole.Div(whole, span).Int64())
	s.units.Sub(s.units, new(big.Int).Mul(big.NewInt(n), span))
}

type naiveDim struct {
	qps, tpm *naiveWindow
	tenQPS   *naiveWindow // ten windows, once a burst was asked for
	tenTPM   *naiveWindow
	open     int64
}

type naivePost struct {
	slot, ten *naiveSlot
	n         int64
}

type naiveCharge struct {
	d        *naiveDim
	cost     uint32
	total    int64
	first    *naiveSlot
	firstTen *naiveSlot
	firstN   int64
	later    []naivePost
	dim      Dim
	layer    int
}

type naiveHold struct {
	charges        []*naiveCharge
	input, granted llm.Tokens
	covered        llm.Tokens
	relayed        llm.Tokens
	amount         llm.Micro
	real           Reservation
	sent           bool
	known          *llm.Usage
	layer          int
}

type naiveModel struct {
	now     time.Duration
	rules   map[Kind]Windows
	dims    map[ID]*naiveDim
	settled llm.Micro // balance
	held    llm.Micro
	used    llm.Micro // quota
}

func (m *naiveModel) dim(d Dim) *naiveDim {
	n := m.dims[d.ID]
	if n == nil {
		w := m.rules[d.ID.Kind]
		n = &naiveDim{
			qps: &naiveWindow{rule: w.QPS.rule(), span: time.Second, rate: d.Base.QPS},
			tpm: &naiveWindow{rule: w.TPM.rule(), span: time.Minute, width: time.Second, rate: d.Base.TPM},
		}
		if n.qps.rule == ruleBucket {
			n.qps.width = time.Second
		}
		m.dims[d.ID] = n
	}
	return n
}

// most is the bound on one window and on ten; 0 is none.
func most(r rule, limit int64, burst uint32) (one, ten int64) {
	if limit == 0 {
		return 0, 0
	}
	one = Scale(limit, burst)
	if r == ruleFixed {
		one = min(one, limit)
	}
	if r == ruleSliding && one > limit {
		ten = 10 * limit
		one = min(one, ten)
	}
	return one, ten
}

// refusals are gathered in any order and reported in the design's.
type refusals []refusal

type refusal struct {
	rank int
	what string
}

func (rs *refusals) add(rank int, format string, args ...any) {
	*rs = append(*rs, refusal{rank, fmt.Sprintf(format, args...)})
}

func (rs refusals) names() (out []string) {
	sort.Slice(rs, func(i, j int) bool { return rs[i].rank < rs[j].rank })
	for _, r := range rs {
		out = append(out, r.what)
	}
	return out
}

func (m *naiveModel) overMoney(rs *refusals, amount llm.Micro) {
	if amount > 0 && amount > m.settled-m.held {
		rs.add(100, "balance")
	}
	if amount > 0 && m.used+m.held+amount > modelQuota {
		rs.add(200, "quota")
	}
}

func (m *naiveModel) overRequests(rs *refusals, d Dim, rank int) {
	n := m.dim(d)
	if d.Effective.Concurrency > 0 && n.open >= d.Effective.Concurrency {
		rs.add(300+rank, "concurrency %s", d.ID)
	}
	one, ten := most(n.qps.rule, d.Effective.QPS, d.Burst)
	if one > 0 && (n.qps.level(m.now)+1 > one || (ten > 0 && n.tenQPS != nil && n.tenQPS.level(m.now)+1 > ten)) {
		rs.add(400+rank, "qps %s", d.ID)
	}
}

func (m *naiveModel) overTokens(rs *refusals, d Dim, rank int, weight int64) {
	n := m.dim(d)
	one, ten := most(n.tpm.rule, d.Effective.TPM, d.Burst)
	switch {
	case one > 0 && weight > one:
		rs.add(rank, "too large %s", d.ID)
	case one > 0 && (n.tpm.level(m.now)+weight > one || (ten > 0 && n.tenTPM != nil && n.tenTPM.level(m.now)+weight > ten)):
		rs.add(500+rank, "tpm %s", d.ID)
	}
}

// over lists what refuses a claim, in the order of reporting.
func (m *naiveModel) over(c *Claim, tokens llm.Tokens, amount llm.Micro) []string {
	var rs refusals
	m.overMoney(&rs, amount)
	for i, d := range c.Dims[:c.N] {
		if !d.CountOnly {
			rank := int(rankOf(d.ID.Kind, i))
			m.overRequests(&rs, d, rank)
			m.overTokens(&rs, d, rank, scaleUp(int64(tokens), d.Cost))
		}
	}
	return rs.names()
}

// remember copies a window into its history of ten.
func remember(w *naiveWindow, now time.Duration) *naiveWindow {
	t := &naiveWindow{rule: ruleSliding, span: 10 * w.span, width: w.span / 10}
	for _, s := range w.slots {
		if w.alive(s, now) {
			t.add(s.last, s.used, 0)
		}
	}
	return t
}

func (m *naiveModel) charge(d Dim, tokens llm.Tokens) *naiveCharge {
	n := m.dim(d)
	c := &naiveCharge{d: n, dim: d, cost: d.Cost, total: scaleUp(int64(tokens), d.Cost)}
	n.open++
	if _, ten := most(n.qps.rule, d.Effective.QPS, d.Burst); ten > 0 && n.tenQPS == nil {
		n.tenQPS = remember(n.qps, m.now)
	}
	if _, ten := most(n.tpm.rule, d.Effective.TPM, d.Burst); ten > 0 && n.tenTPM == nil && c.total > 0 {
		n.tenTPM = remember(n.tpm, m.now)
	}
	n.qps.add(m.now, 1, 0)
	if n.tenQPS != nil {
		n.tenQPS.add(m.now, 1, 0)
	}
	c.first, c.firstN = n.tpm.add(m.now, c.total, c.total), c.total
	if n.tenTPM != nil {
		c.firstTen = n.tenTPM.add(m.now, c.total, 0)
	}
	return c
}

// post charges debt.
func (m *naiveModel) post(c *naiveCharge, n int64) {
	if n <= 0 {
		return
	}
	p := naivePost{slot: c.d.tpm.add(m.now, n, n), n: n}
	if c.d.tenTPM != nil {
		p.ten = c.d.tenTPM.add(m.now, n, 0)
	}
	c.later, c.total = append(c.later, p), c.total+n
}

func (m *naiveModel) end(c *naiveCharge, target int64) {
	n := c.d
	if more := target - c.total; more > 0 {
		n.tpm.add(m.now, more, 0)
		if n.tenTPM != nil {
			n.tenTPM.add(m.now, more, 0)
		}
	}
	back := max(c.total-target, 0)
	for _, p := range slices.Backward(append([]naivePost{{c.first, c.firstTen, c.firstN}}, c.later...)) {
		if p.slot != nil {
			p.slot.held -= p.n
		}
		late := min(back, p.n)
		n.tpm.giveBack(m.now, p.slot, late)
		if n.tenTPM != nil {
			n.tenTPM.giveBack(m.now, p.ten, late)
		}
		back -= late
	}
	n.open--
}

// machine drives Memory and the model with the same operations.
type machine struct {
	*Memory
	clock *llm.FakeClock
	model *naiveModel
	open  []*naiveHold
	price llm.Price
}

const modelQuota = 5000

var modelIDs = []ID{{Kind: Key, Scope: 3}, {Kind: Model, Name: "m"}, {Kind: Global}, {Kind: User, Scope: 2}}

func drawClaim(t *rapid.T, price llm.Price) *Claim {
	c := &Claim{Caller: Caller{Org: 1, User: 2, Key: 3}}
	c.Input = llm.Tokens(rapid.IntRange(0, 40).Draw(t, "input"))
	c.Output = llm.Tokens(rapid.IntRange(0, 40).Draw(t, "output"))
	c.Money = Money{Price: price, Billed: true, Balance: true, Quotas: [llm.Windows]Quota{{Label: 1, Limit: modelQuota}}}
	for _, id := range rapid.SliceOfNDistinct(rapid.SampledFrom(modelIDs), 1, 4, rapid.ID[ID]).Draw(t, "dims") {
		d := Dim{ID: id, Base: Limits{QPS: 3, TPM: 120}}
		d.Effective = Limits{
			QPS:         rapid.SampledFrom([]int64{0, 1, 3, 6}).Draw(t, "qps"),
			TPM:         rapid.SampledFrom([]int64{0, 60, 120, 240}).Draw(t, "tpm"),
			Concurrency: rapid.SampledFrom([]int64{0, 0, 2, 5}).Draw(t, "concurrency"),
		}
		d.Burst = rapid.SampledFrom([]uint32{0, 0, 500, 2000, 30000}).Draw(t, "burst")
		d.Cost = rapid.SampledFrom([]uint32{0, 0, 500, 1500}).Draw(t, "cost")
		d.CountOnly = rapid.IntRange(0, 9).Draw(t, "count only") == 0
		c.Dims[c.N] = d
		c.N++
	}
	return c
}

func (x *machine) reserve(t *rapid.T) {
	c := drawClaim(t, x.price)
	amount := c.Money.Price.Hold(c.Input, c.Output)
	want := x.model.over(c, c.Input+c.Output, amount)
	before := dump(x.Memory)
	peek, err := x.Peek(ctx, c)
	if err != nil || (peek == nil) != (len(want) == 0) {
		t.Fatalf("peek: %+v %v, the model says %v", peek, err, want)
	}
	r, d, err := x.Reserve(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	if d != nil {
		if after := dump(x.Memory); after != before {
			t.Fatalf("a refusal left a trace:\n%s", cmp.Diff(before, after))
		}
		if got := named(d); len(want) == 0 || got != want[0] {
			t.Fatalf("refused by %q, the model says %v", got, want)
		}
		return
	}
	if len(want) > 0 {
		t.Fatalf("admitted, the model says %v", want)
	}
	h := &naiveHold{input: c.Input, granted: c.Output, covered: c.Input + c.Output, amount: amount, real: r}
	x.model.held += amount
	for _, d := range c.Dims[:c.N] {
		h.charges = append(h.charges, x.model.charge(d, h.covered))
	}
	x.open = append(x.open, h)
}

func named(d *Denial) string {
	switch {
	case d.TooLarge:
		return "too large " + d.ID.String()
	case d.Axis == AxisBalance:
		return "balance"
	case d.Axis == AxisQuota:
		return "quota"
	}
	return [...]string{AxisConcurrency: "concurrency", AxisQPS: "qps", AxisTPM: "tpm"}[d.Axis] + " " + d.ID.String()
}

func (x *machine) draw(t *rapid.T) *naiveHold {
	if len(x.open) == 0 {
		t.Skip("nothing is open")
	}
	return x.open[rapid.IntRange(0, len(x.open)-1).Draw(t, "which")]
}

func (x *machine) drop(h *naiveHold) {
	x.open = slices.DeleteFunc(x.open, func(o *naiveHold) bool { return o == h })
}

func (x *machine) settle(h *naiveHold, u llm.Usage, owed bool) {
	for _, c := range h.charges {
		x.model.end(c, scaleUp(int64(u.Total()), c.cost))
	}
	x.model.held -= h.amount
	if owed {
		x.model.settled -= x.price.Cost(u)
		x.model.used += x.price.Cost(u)
	}
	x.drop(h)
}

func (x *machine) commit(t *rapid.T) {
	h := x.draw(t)
	u := llm.Usage{
		InputTokens:  llm.Tokens(rapid.IntRange(0, 60).Draw(t, "input")),
		OutputTokens: llm.Tokens(rapid.IntRange(0, 60).Draw(t, "output")),
	}
	if s := h.real.Commit(u, true); !s.First || s.Cost != x.price.Cost(u) {
		t.Fatalf("%+v", s)
	}
	if s := h.real.Release(); s.First {
		t.Fatal("settled twice")
	}
	x.settle(h, u, true)
}

func (x *machine) release(t *rapid.T) {
	h := x.draw(t)
	u := llm.Usage{}
	switch {
	case h.known != nil:
		u = *h.known
		u.OutputTokens = max(u.OutputTokens, h.relayed)
	case h.sent:
		u = llm.Usage{InputTokens: h.input, OutputTokens: h.relayed}
	}
	if s := h.real.Release(); !s.First || s.Usage != u {
		t.Fatalf("%+v, want usage %+v", s, u)
	}
	x.settle(h, u, h.sent || h.known != nil)
}

func (x *machine) relay(t *rapid.T) {
	h := x.draw(t)
	h.real.Sent("c")
	h.relayed += llm.Tokens(rapid.IntRange(1, 30).Draw(t, "tokens"))
	h.real.Relayed(h.relayed)
	h.sent = true
	u := llm.Usage{InputTokens: h.input, OutputTokens: h.relayed}
	if h.known != nil {
		u = *h.known
		u.OutputTokens = max(u.OutputTokens, h.relayed)
	}
	x.owe(h, u)
}

// owe charges what goes beyond the hold.
func (x *machine) owe(h *naiveHold, u llm.Usage) {
	if u.Total() > h.covered {
		h.covered = u.Total()
		for _, c := range h.charges {
			x.model.post(c, scaleUp(int64(h.covered), c.cost)-c.total)
		}
	}
	if more := x.price.Cost(u) - h.amount; more > 0 {
		h.amount += more
		x.model.held += more
	}
}

// extend tops up, tries a channel, or both.
func (x *machine) extend(t *rapid.T) {
	h := x.draw(t)
	output := llm.Tokens(rapid.IntRange(0, 40).Draw(t, "output"))
	tokens := max(h.covered, h.input+h.granted+output)
	var rs refusals
	var amount llm.Micro
	if output > 0 {
		amount = max(x.price.Hold(h.input, tokens-h.input)-h.amount, 0)
		x.model.overMoney(&rs, amount)
		for i, c := range h.charges {
			if more := scaleUp(int64(tokens), c.cost) - c.total; more > 0 && !c.dim.CountOnly {
				x.model.overTokens(&rs, c.dim, int(rankOf(c.dim.ID.Kind, i)), more)
			}
		}
	}
	var dims []Dim
	if rapid.Bool().Draw(t, "channel") && !slices.ContainsFunc(h.charges, func(c *naiveCharge) bool { return c.dim.ID.Kind == Channel }) {
		d := dim(ID{Kind: Channel, Scope: 1}, Limits{QPS: 3, TPM: 120, Concurrency: rapid.Int64Range(0, 2).Draw(t, "concurrency")})
		dims = append(dims, d)
		x.model.overRequests(&rs, d, int(rankOf(Channel, 0)))
		x.model.overTokens(&rs, d, int(rankOf(Channel, 0)), int64(tokens))
	}
	want, before := rs.names(), dump(x.Memory)
	d, err := h.real.Extend(ctx, dims, output)
	if err != nil || (d == nil) != (len(want) == 0) || (d != nil && named(d) != want[0]) {
		t.Fatalf("extend: %+v %v, the model says %v", d, err, want)
	}
	if d != nil {
		if after := dump(x.Memory); after != before {
			t.Fatalf("a refusal left a trace:\n%s", cmp.Diff(before, after))
		}
		return
	}
	if output > 0 {
		for _, c := range h.charges {
			x.model.post(c, scaleUp(int64(tokens), c.cost)-c.total)
		}
		h.amount += amount
		x.model.held += amount
	}
	if len(dims) > 0 {
		h.layer++
	}
	for _, d := range dims {
		c := x.model.charge(d, tokens)
		c.layer = h.layer
		h.charges = append(h.charges, c)
	}
	h.granted += output
	h.covered = max(h.covered, h.input+h.granted)
	if h.real.Granted() != h.granted {
		t.Fatalf("granted %d, not %d", h.real.Granted(), h.granted)
	}
}

func (x *machine) shrink(t *rapid.T) {
	h := x.draw(t)
	h.real.Shrink()
	if h.layer == 0 {
		return
	}
	h.charges = slices.DeleteFunc(h.charges, func(c *naiveCharge) bool {
		if c.layer == h.layer {
			x.model.end(c, 0)
		}
		return c.layer == h.layer
	})
	h.layer--
}

func (x *machine) known(t *rapid.T) {
	h := x.draw(t)
	u := llm.Usage{
		InputTokens:  llm.Tokens(rapid.IntRange(0, 60).Draw(t, "input")),
		OutputTokens: llm.Tokens(rapid.IntRange(0, 90).Draw(t, "output")),
	}
	h.real.UsageKnown(u)
	h.known = &u
	x.owe(h, u)
}

func (x *machine) check(t *rapid.T) {
	for _, id := range append(modelIDs, ID{Kind: Channel, Scope: 1}) {
		n := x.model.dims[id]
		if n == nil {
			continue
		}
		got, err := x.Inspect(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		want := Use{QPS: n.qps.level(x.model.now), TPM: n.tpm.level(x.model.now), Concurrency: n.open}
		want.TPMHeld = n.tpm.heldNow(x.model.now)
		if n.tpm.rule == ruleBucket { // how a drain splits between held and used is nobody's promise
			got.TPMHeld, want.TPMHeld = 0, 0
		}
		if got != want {
			t.Fatalf("%s: %+v, the model has %+v", id, got, want)
		}
	}
	a, h := x.Balance(2)
	u, qh := x.Quota(3, 1)
	if a != x.model.settled-x.model.held || h != x.model.held || u != x.model.used || qh != x.model.held {
		t.Fatalf("balance %d held %d, quota %d held %d; model %+v", a, h, u, qh, x.model)
	}
	if x.Open() != len(x.open) {
		t.Fatalf("%d open, not %d", x.Open(), len(x.open))
	}
}

// TestAgainstTheNaiveModel runs random operations on both, under every rule, and compares all that can be seen.
func TestAgainstTheNaiveModel(t *testing.T) {
	for _, a := range []Algorithm{Sliding, Fixed, TokenBucket} {
		t.Run(string(a), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				w := Windows{QPS: a, TPM: a}
				rules := map[Kind]Windows{Key: w, Model: w, Global: w, User: w, Channel: w}
				x := &machine{clock: llm.NewFakeClock(start), price: llm.Price{Input: 1_000_000, Output: 2_000_000, Request: 3}}
				x.Memory = New(Options{Algorithms: rules}, x.clock, nil)
				defer x.Close()
				x.model = &naiveModel{rules: rules, dims: map[ID]*naiveDim{}, settled: 3000}
				x.LoadBalance(2, 3000, 0)
				advance := func(d time.Duration) { x.clock.Advance(d); x.model.now += d }
				t.Repeat(map[string]func(*rapid.T){
					"":        x.check,
					"reserve": x.reserve,
					"again":   x.reserve,
					"commit":  x.commit,
					"release": x.release,
					"relay":   x.relay,
					"extend":  x.extend,
					"shrink":  x.shrink,
					"known":   x.known,
					"tick":    func(t *rapid.T) { advance(time.Duration(rapid.IntRange(1, 1500).Draw(t, "ms")) * time.Millisecond) },
					"wait":    func(t *rapid.T) { advance(time.Duration(rapid.IntRange(1, 90).Draw(t, "s")) * time.Second) },
					"credit": func(t *rapid.T) {
						d := llm.Micro(rapid.IntRange(-50, 300).Draw(t, "delta"))
						x.Credit(2, d)
						x.model.settled += d
					},
				})
			})
		})
	}
}

// dump writes everything that is stored, as of now, in one string. What only time has freed is dropped first; meters
// that were never charged are as good as absent.
func dump(m *Memory) string {
	now := m.clock.Mono()
	var out []string
	for i := range *m.index.buckets.Load() {
		for mt := (*m.index.buckets.Load())[i].Load(); mt != nil; mt = mt.next.Load() {
			mt.mu.Lock()
			if !mt.freshLocked(now) {
				out = append(out, fmt.Sprintf("%s %d: open %d touched %v purse %+v%s\n", mt.id, mt.label, mt.mu.open,
					mt.mu.touched, mt.mu.purse, dumpRates(mt.mu.rates, now)))
			}
			mt.mu.Unlock()
		}
	}
	slices.Sort(out)
	return strings.Join(out, "")
}

func dumpRates(r *rates, now time.Duration) string {
	if r == nil {
		return ""
	}
	return "\n qps " + dumpGauge(&r.qps, now) + "\n tpm " + dumpGauge(&r.tpm, now)
}

func dumpGauge(g *gauge, now time.Duration) string {
	out := dumpWindow(&g.short, now)
	if g.long != nil {
		out += " / " + dumpWindow(g.long, now)
	}
	return out
}

func dumpWindow(w *window, now time.Duration) string {
	w.level(now, 0) // lets go what is due
	out := fmt.Sprintf("used %d held %d since %v part %d rate %d until %v head %d:", w.used, w.held, w.since, w.part, w.rate, w.until, w.head)
	for id := w.head; id < w.head+w.n; id++ {
		out += fmt.Sprintf(" %+v", *w.at(id))
	}
	return out
}
