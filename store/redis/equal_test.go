//go:build unix

package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/storetest"
)

// The windows of one process are proven against a naive model in core/limit. Here the same requests, at the same times,
// go there and to the server: every answer, use and wait must be the same.

type pair struct {
	*shelf
	r      *rand.Rand
	clock  *llm.FakeClock
	local  *limit.Memory
	rules  map[limit.Kind]limit.Windows
	ids    []limit.ID
	open   []*both
	next   uint64
	beaten int64
}

// both is one hold on both sides.
type both struct {
	id      uint64
	part    uint32
	r       limit.Reservation
	dims    []limit.Dim
	total   []int64 // charged to each
	input   int64
	granted int64
	relayed int64
	covered int64
	sent    bool
}

var equalRules = map[limit.Kind]limit.Windows{
	limit.User:    {QPS: limit.Fixed, TPM: limit.Fixed},
	limit.Org:     {QPS: limit.TokenBucket, TPM: limit.TokenBucket},
	limit.EndUser: {QPS: limit.Sliding, TPM: limit.TokenBucket},
	limit.Custom:  {QPS: limit.TokenBucket, TPM: limit.Fixed},
}

func TestEqualToMemory(t *testing.T) {
	server := storetest.Redis(t)
	seeds := 20
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		p := &pair{r: rand.New(rand.NewPCG(uint64(seed), 1)), rules: equalRules, clock: llm.NewFakeClock(time.UnixMicro(0))}
		p.shelf = open(t, server, Options{Algorithms: equalRules, Prefix: fmt.Sprint("equal", seed)})
		p.local = limit.New(limit.Options{Algorithms: equalRules}, p.clock, nil)
		p.ids = []limit.ID{{Kind: limit.Key, Scope: 1}, {Kind: limit.User, Scope: 2}, {Kind: limit.Org, Scope: 3},
			{Kind: limit.EndUser, Scope: 3, Name: "a}{b:c"}, {Kind: limit.Custom, Scope: 3, Name: "x"}}
		for i := range 250 {
			p.step()
			p.compare(fmt.Sprintf("seed %d, step %d", seed, i))
			if t.Failed() {
				p.local.Close()
				return
			}
		}
		p.local.Close()
	}
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func (p *pair) step() {
	switch k := p.r.IntN(20); {
	case k < 7:
		p.reserve()
	case k < 12:
		d := pick(p.r, time.Microsecond, 777*time.Microsecond, 10*time.Millisecond, 100*time.Millisecond, 333_333*time.Microsecond,
			time.Second, time.Second, 5*time.Second, 14_999_999*time.Microsecond, 60*time.Second)
		p.passBoth(d)
	case len(p.open) == 0:
	case k < 14:
		p.extend(pick(p.r, p.open...))
	case k < 16:
		p.relay(pick(p.r, p.open...))
	default:
		p.finish(p.r.IntN(len(p.open)))
	}
}

func (p *pair) passBoth(d time.Duration) {
	p.clock.Advance(d)
	p.pass(d)
	if p.beaten += d.Microseconds(); p.beaten < limit.BeatEvery.Microseconds() {
		return
	}
	p.beaten = 0
	for _, h := range p.open {
		p.beat(p.ending(h, h.total)) // tells nothing new
	}
}

func (p *pair) ending(h *both, tokens []int64) limit.Ending {
	e := limit.Ending{Hold: hold(h.id), Org: 7}
	for i := range h.dims {
		e.Dims = append(e.Dims, limit.EndingDim{ID: h.dims[i].ID, Tokens: tokens[i]})
	}
	return e
}

func same(n int, v int64) []int64 { return slices.Repeat([]int64{v}, n) }

// bound is what a limit with a burst comes to.
func bound(a limit.Algorithm, effective, base int64, burst uint32) limit.Bound {
	if effective == 0 {
		return limit.Bound{Rate: base}
	}
	b := limit.Bound{Most: limit.Scale(effective, burst), Rate: base}
	if base == 0 {
		b.Rate = effective
	}
	switch {
	case a == limit.Fixed:
		b.Most = min(b.Most, effective)
	case a != limit.TokenBucket && b.Most > effective:
		b.Ten = 10 * effective
		b.Most = min(b.Most, b.Ten)
	}
	return b
}

func (p *pair) ask(d *limit.Dim, requests, tokens int64) limit.Ask {
	w := p.rules[d.ID.Kind]
	return limit.Ask{ID: d.ID, QPS: bound(w.QPS, d.Effective.QPS, d.Base.QPS, d.Burst), TPM: bound(w.TPM, d.Effective.TPM, d.Base.TPM, d.Burst),
		Concurrency: d.Effective.Concurrency, Requests: requests, Tokens: tokens, Loose: d.Shadow}
}

func (p *pair) reserve() {
	r := p.r
	c := &limit.Claim{Caller: limit.Caller{Org: 7, User: 1, Key: 1}, Money: limit.Money{Overrun: limit.Cut}}
	ids := slices.Clone(p.ids)
	r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for _, id := range ids[:1+r.IntN(len(ids))] {
		d := limit.Dim{ID: id, Burst: pick[uint32](r, 0, 1000, 2000, 3500, 500, 15_000), Shadow: r.IntN(6) == 0}
		d.Base = limit.Limits{QPS: pick[int64](r, 0, 1, 3, 7), TPM: pick[int64](r, 0, 100, 1000, 997), Concurrency: pick[int64](r, 0, 0, 3, 10)}
		d.Effective = d.Base
		if r.IntN(4) == 0 {
			d.Effective.QPS, d.Effective.TPM = limit.Scale(d.Base.QPS, 500), limit.Scale(d.Base.TPM, 1700)
		}
		c.Dims[c.N] = d
		c.N++
	}
	c.Input, c.Output = llm.Tokens(r.IntN(60)), llm.Tokens(r.IntN(150))
	if r.IntN(20) == 0 {
		c.Input, c.Output = 0, 0
	}
	h := &both{id: p.next, dims: slices.Clone(c.Dims[:c.N]), input: int64(c.Input)}
	p.next++
	total := int64(c.Input + max(c.Output, min(c.Output, 1)))
	o := limit.Order{Hold: hold(h.id), Org: 7}
	for i := range h.dims {
		o.Asks = append(o.Asks, p.ask(&h.dims[i], 1, total))
	}
	if r.IntN(5) == 0 { // a dry run first changes nothing
		o.Dry = true
		o = p.take(o)
		o.Dry = false
	}
	o = p.take(o)
	res, denial, err := p.local.Reserve(context.Background(), c)
	if err != nil {
		p.t.Fatal(err)
	}
	p.agree(&o, denial)
	if denial == nil {
		var shadowed []limit.ID
		for i := range o.Asks {
			if a := &o.Asks[i]; a.QPSFull || a.TPMFull || a.OpenFull {
				shadowed = append(shadowed, a.ID)
			}
		}
		if !slices.Equal(shadowed, c.Shadowed) {
			p.t.Errorf("shadowed %v, in memory %v", shadowed, c.Shadowed)
		}
		h.r, h.granted, h.total = res, total-h.input, same(len(h.dims), total)
		h.covered = total
		p.open = append(p.open, h)
		if again := p.take(o); !again.Admitted { // and sent again it is charged no more
			p.t.Error("the same order again is refused")
		}
	}
}

// agree compares the answers, and that the wait is exact: so long and no shorter.
func (p *pair) agree(o *limit.Order, d *limit.Denial) {
	p.t.Helper()
	if o.Admitted != (d == nil) {
		p.t.Errorf("admitted %v, in memory %+v\n%+v", o.Admitted, d, *o)
		return
	}
	if d == nil || !d.Exact {
		return
	}
	wait := time.Duration(0)
	for i := range o.Asks {
		a := &o.Asks[i]
		if a.Loose {
			continue
		}
		if a.QPSFull {
			wait = max(wait, a.QPSWait)
		}
		if a.TPMFull {
			wait = max(wait, a.TPMWait)
		}
	}
	if ms := (wait + time.Millisecond - 1).Milliseconds(); ms != d.RetryAfterMS {
		p.t.Errorf("wait %v, in memory %d ms\n%+v", wait, d.RetryAfterMS, *o)
	}
	dry := *o
	dry.Asks, dry.Dry = slices.Clone(o.Asks), true
	if p.r.IntN(3) > 0 {
		return
	}
	p.passBoth(wait - time.Microsecond)
	if dry = p.take(dry); dry.Admitted {
		p.t.Errorf("admitted before the wait of %v\n%+v", wait, *o)
	}
	p.passBoth(time.Microsecond)
	large := func(a limit.Ask) bool { return !a.Loose && a.TPM.Most > 0 && a.Tokens > a.TPM.Most }
	if dry = p.take(dry); !dry.Admitted && !slices.ContainsFunc(dry.Asks, large) {
		p.t.Errorf("refused after the wait of %v\n%+v\n%+v", wait, *o, dry)
	}
}

func (p *pair) extend(h *both) {
	more := int64(p.r.IntN(120))
	tokens := max(h.covered, h.input+h.granted+more)
	h.part++
	o := limit.Order{Hold: hold(h.id), Part: h.part, Org: 7}
	for i := range h.dims {
		if n := tokens - h.total[i]; n > 0 {
			o.Asks = append(o.Asks, p.ask(&h.dims[i], 0, n))
		}
	}
	denial, err := h.r.Extend(context.Background(), nil, llm.Tokens(more))
	if err != nil {
		p.t.Fatal(err)
	}
	if len(o.Asks) > 0 && more > 0 {
		o = p.take(o)
		p.agree(&o, denial)
	}
	if denial == nil {
		h.granted += more
		if more > 0 {
			h.total = same(len(h.dims), tokens)
		}
		h.covered = max(h.covered, h.input+h.granted)
	}
}

// relay passes output on, often beyond the hold: a beat tells it.
func (p *pair) relay(h *both) {
	h.relayed += int64(p.r.IntN(100))
	h.r.Sent("x")
	h.r.Relayed(llm.Tokens(h.relayed))
	h.sent = true
	if n := h.input + h.relayed; n > h.covered {
		h.covered = n
		h.total = same(len(h.dims), max(n, h.total[0]))
		p.beat(p.ending(h, h.total), p.ending(h, h.total))
	}
}

func (p *pair) finish(i int) {
	h := p.open[i]
	p.open = slices.Delete(p.open, i, i+1)
	var e limit.Ending
	switch p.r.IntN(3) {
	case 0:
		e = p.ending(h, same(len(h.dims), int64(h.r.Withdraw().Usage.Total())))
		e.Withdraw = !h.sent
	case 1:
		e = p.ending(h, same(len(h.dims), int64(h.r.Release().Usage.Total())))
	default:
		u := llm.Usage{InputTokens: llm.Tokens(h.input), OutputTokens: llm.Tokens(p.r.IntN(250))}
		e = p.ending(h, same(len(h.dims), int64(h.r.Commit(u, true).Usage.Total())))
	}
	p.end(e)
	p.end(e, e)
}

// compare looks at every dimension on both sides.
func (p *pair) compare(when string) {
	p.t.Helper()
	for _, id := range p.ids {
		use, err := p.local.Inspect(context.Background(), id)
		if err != nil {
			p.t.Fatal(err)
		}
		o := p.take(limit.Order{Hold: hold(1 << 40), Org: 7, Dry: true, Asks: []limit.Ask{{ID: id, Requests: 1}}})
		if a := o.Asks[0]; a.Open != use.Concurrency {
			p.t.Errorf("%s: %v has %d open, in memory %d", when, id, a.Open, use.Concurrency)
		}
		// A bucket's level depends on the rate, which is the last charge's in memory: the answers above compare it.
		w := p.rules[id.Kind]
		if a := o.Asks[0]; w.QPS != limit.TokenBucket && a.QPSUsed != use.QPS || w.TPM != limit.TokenBucket && a.TPMUsed != use.TPM {
			p.t.Errorf("%s: %v uses %d and %d, in memory %d and %d", when, id, a.QPSUsed, a.TPMUsed, use.QPS, use.TPM)
		}
	}
	if p.t.Failed() {
		p.t.Log(when)
	}
}
