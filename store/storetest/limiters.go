package storetest

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
)

// Gateways makes limiters that are to admit together what one would, all under one clock.
type Gateways func(t *testing.T, clock *llm.FakeClock) []*limit.Memory

// Limiters is the conformance suite of rate windows: of one process, and of several that share theirs. Requests go to the
// gateways in turn.
func Limiters(t *testing.T, open Gateways) {
	for _, c := range []struct {
		name string
		run  func(*gateways)
	}{
		{"L01 five at once on room for one", fiveAtOnce},
		{"L02 a bound that the body does not give is clamped", clamped},
		{"L03 L04 larger than the limit", tooLarge},
		{"L05 refusals use no slot", refusalsUseNoSlot},
		{"L06 a hundred streams within a minute", hundredStreams},
		{"L07 a refusal by another dimension uses no slot", refusedElsewhere},
		{"L08 keys do not share", keysDoNotShare},
		{"L12 the wait that is told is exact", exactWait},
		{"nothing is held at the end", nothingHeld},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := llm.NewFakeClock(time.Date(2026, 11, 30, 23, 59, 0, 0, time.UTC))
			c.run(&gateways{T: t, clock: clock, all: open(t, clock)})
		})
	}
}

type gateways struct {
	*testing.T
	clock *llm.FakeClock
	all   []*limit.Memory
	turn  atomic.Int64
}

// reserve asks the next gateway.
func (g *gateways) reserve(c *limit.Claim) (limit.Reservation, *limit.Denial) {
	r, d, err := g.all[int(g.turn.Add(1))%len(g.all)].Reserve(context.Background(), c)
	if err != nil {
		g.Error(err)
		return r, &limit.Denial{}
	}
	if d != nil {
		copied := *d
		d = &copied
	}
	return r, d
}

func (g *gateways) admit(c *limit.Claim) limit.Reservation {
	g.Helper()
	r, d := g.reserve(c)
	if d != nil {
		g.Fatalf("refused: %+v", *d)
	}
	return r
}

func (g *gateways) refuse(c *limit.Claim) limit.Denial {
	g.Helper()
	_, d := g.reserve(c)
	if d == nil {
		g.Fatal("admitted")
	}
	return *d
}

// eventually waits until what one gateway gave back is known to the others: that takes a round trip, no time of the clock.
func (g *gateways) eventually(what string, ok func() bool) {
	g.Helper()
	for range 1000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	g.Fatalf("%s: not within 5 s", what)
}

func (g *gateways) use(id limit.ID) limit.Use {
	g.Helper()
	u, err := g.all[int(g.turn.Add(1))%len(g.all)].Inspect(context.Background(), id)
	if err != nil {
		g.Fatal(err)
	}
	return u
}

func keyOf(n uint64) limit.ID { return limit.ID{Kind: limit.Key, Scope: n} }

func claimOf(key uint64, tokens llm.Tokens, l limit.Limits) *limit.Claim {
	c := &limit.Claim{Caller: limit.Caller{Org: 1, User: 1, Key: key}, Input: tokens, N: 1}
	c.Dims[0] = limit.Dim{ID: keyOf(key), Base: l, Effective: l}
	return c
}

func with(c *limit.Claim, id limit.ID, l limit.Limits) *limit.Claim {
	c.Dims[c.N] = limit.Dim{ID: id, Base: l, Effective: l}
	c.N++
	return c
}

// together asks n times at once and counts who was admitted.
func (g *gateways) together(n int, c func() *limit.Claim) (admitted []limit.Reservation, refused []limit.Denial) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			r, d := g.reserve(c())
			mu.Lock()
			defer mu.Unlock()
			if d == nil {
				admitted = append(admitted, r)
			} else {
				refused = append(refused, *d)
			}
		})
	}
	all.Wait()
	return admitted, refused
}

func fiveAtOnce(g *gateways) {
	in, out := g.together(5, func() *limit.Claim { return claimOf(7, 120, limit.Limits{TPM: 150}) })
	if len(in) != 1 || len(out) != 4 || out[0].Axis != limit.AxisTPM || out[0].Current != 120 || out[0].Requested != 120 {
		g.Fatalf("%d admitted, %+v", len(in), out)
	}
	in[0].Sent("primary")
	in[0].Commit(llm.Usage{InputTokens: 20, OutputTokens: 100}, true)
	g.eventually("the actuals", func() bool { return g.use(keyOf(7)).Concurrency == 0 })
	if d := g.refuse(claimOf(7, 120, limit.Limits{TPM: 150})); d.Current != 120 {
		g.Fatalf("%+v", d)
	}
}

func clamped(g *gateways) {
	c := claimOf(7, 20, limit.Limits{TPM: 500})
	c.Output, c.SoftOutput = 4096, true
	if r := g.admit(c); r.Granted() != 480 {
		g.Fatalf("granted %d of 500 beside 20", r.Granted())
	}
}

func tooLarge(g *gateways) {
	c := claimOf(7, 10, limit.Limits{TPM: 100})
	c.Output = 900
	if d := g.refuse(c); !d.TooLarge || d.Axis != limit.AxisTPM || d.Limit != 100 || d.Requested != 910 {
		g.Fatalf("%+v", d)
	}
	g.admit(claimOf(7, 100, limit.Limits{TPM: 100}))
}

func refusalsUseNoSlot(g *gateways) {
	l := limit.Limits{QPS: 10, Concurrency: 1}
	first := g.admit(claimOf(7, 1, l))
	for range 9 {
		if d := g.refuse(claimOf(7, 1, l)); d.Axis != limit.AxisConcurrency || d.Current != 1 || d.Exact {
			g.Fatalf("%+v", d)
		}
	}
	first.Release()
	g.eventually("the end of the first", func() bool { return g.use(keyOf(7)).Concurrency == 0 })
	g.admit(claimOf(7, 1, l))
	if u := g.use(keyOf(7)); u.QPS != 2 {
		g.Fatalf("%+v, want the two that were admitted", u)
	}
}

func hundredStreams(g *gateways) {
	in, out := g.together(100, func() *limit.Claim { return claimOf(7, 500, limit.Limits{TPM: 1000}) })
	if len(in) != 2 || len(out) != 98 {
		g.Fatalf("%d admitted", len(in))
	}
	for range 59 {
		g.clock.Advance(time.Second)
		g.refuse(claimOf(7, 500, limit.Limits{TPM: 1000}))
	}
	g.clock.Advance(time.Second)
	g.admit(claimOf(7, 500, limit.Limits{TPM: 1000}))
}

func refusedElsewhere(g *gateways) {
	model := limit.ID{Kind: limit.Model, Name: "m"}
	ask := func(key uint64, tokens llm.Tokens) *limit.Claim {
		return with(claimOf(key, tokens, limit.Limits{QPS: 5}), model, limit.Limits{TPM: 1000})
	}
	full := g.admit(ask(8, 1000))
	for range 5 {
		if d := g.refuse(ask(7, 10)); d.ID != model || d.Axis != limit.AxisTPM {
			g.Fatalf("%+v", d)
		}
	}
	full.Release()
	g.eventually("the model is free", func() bool {
		g.clock.Advance(25 * time.Millisecond) // loans are asked for again after 20
		_, d := g.reserve(ask(7, 10))
		return d == nil
	})
	if u := g.use(keyOf(7)); u.QPS != 1 {
		g.Fatalf("%+v, want the one that was admitted", u)
	}
}

func keysDoNotShare(g *gateways) {
	l := limit.Limits{TPM: 100}
	g.admit(claimOf(7, 100, l))
	g.refuse(claimOf(7, 1, l))
	g.admit(claimOf(8, 100, l))
}

// exactWait brings windows into random states and takes each refusal at its word: a millisecond before it is over the
// request is refused, and then it is admitted.
func exactWait(g *gateways) {
	rounds := 1500
	if testing.Short() {
		rounds = 150
	}
	random := rand.New(rand.NewPCG(7, 12))
	for round := range rounds {
		key := uint64(round + 1)
		l := limit.Limits{QPS: 1 + random.Int64N(5), TPM: 100 + random.Int64N(400)}
		for try := 0; try < 50; try++ {
			_, d := g.reserve(claimOf(key, llm.Tokens(1+random.Int64N(l.TPM)), l))
			if d == nil {
				g.clock.Advance(time.Duration(random.Int64N(700)) * time.Millisecond)
				continue
			}
			if !d.Exact || d.RetryAfterMS < 1 || d.RetryAfterMS > 60_000 {
				g.Fatalf("round %d: %+v", round, *d)
			}
			tokens := llm.Tokens(1)
			if d.Axis == limit.AxisTPM {
				tokens = llm.Tokens(d.Requested)
			}
			wait := time.Duration(d.RetryAfterMS) * time.Millisecond
			if d.Axis == limit.AxisQPS { // another size may fit sooner: ask for the wait of this one
				_, again := g.reserve(claimOf(key, tokens, l))
				if again == nil {
					g.Fatalf("round %d: refused, then admitted at once", round)
				}
				wait = time.Duration(again.RetryAfterMS) * time.Millisecond
			}
			g.clock.Advance(wait - time.Millisecond)
			g.refuse(claimOf(key, tokens, l))
			g.clock.Advance(time.Millisecond)
			g.admit(claimOf(key, tokens, l))
			break
		}
	}
}

func nothingHeld(g *gateways) {
	l := limit.Limits{QPS: 1000, TPM: 1_000_000, Concurrency: 50}
	model := limit.ID{Kind: limit.Model, Name: "m"}
	var all sync.WaitGroup
	for worker := range 8 {
		random := rand.New(rand.NewPCG(uint64(worker), 1))
		all.Go(func() {
			for range 100 {
				r, d := g.reserve(with(claimOf(7, 100, l), model, l))
				if d != nil {
					continue
				}
				switch random.IntN(4) {
				case 0:
					r.Release()
				case 1:
					r.Withdraw()
				case 2:
					r.Sent("primary")
					r.Relayed(llm.Tokens(random.IntN(400)))
					r.Release()
				default:
					r.Sent("primary")
					r.Commit(llm.Usage{InputTokens: 90, OutputTokens: 5}, true)
				}
			}
		})
	}
	all.Wait()
	g.eventually("nothing is open anywhere", func() bool {
		g.clock.Advance(25 * time.Millisecond)
		key, m := g.use(keyOf(7)), g.use(model)
		return key.Concurrency == 0 && key.TPMHeld == 0 && m.Concurrency == 0
	})
	for i, m := range g.all {
		if n := m.Open(); n != 0 {
			g.Errorf("gateway %d holds %d", i, n)
		}
	}
	g.clock.Advance(2 * time.Minute)
	g.eventually("everything is free again", func() bool {
		g.clock.Advance(25 * time.Millisecond)
		key, m := g.use(keyOf(7)), g.use(model)
		return key.QPS == 0 && key.TPM == 0 && m.QPS == 0 && m.TPM == 0
	})
}

// Counter is tokens in use under one limit: Reserve holds n if they fit, Settle brings a hold to what it came to.
type Counter interface {
	Reserve(n int64) (hold int, ok bool)
	Settle(hold int, n int64)
}

type counted struct {
	reserve bool
	n       int64 // asked for, or given back
}

// Linearizable lets clients use a counter at once and looks for an order of what they saw in which one counter with this
// limit would have said the same. Time must stand still, so that nothing becomes free by itself.
func Linearizable(t *testing.T, limit int64, counter Counter) {
	t.Helper()
	const clients, each = 6, 60
	var mu sync.Mutex
	var history []porcupine.Operation
	clock := llm.NewSystemClock()
	record := func(client int, in counted, do func() bool) bool {
		call := clock.Mono().Nanoseconds()
		ok := do()
		op := porcupine.Operation{ClientId: client, Input: in, Output: ok, Call: call, Return: clock.Mono().Nanoseconds()}
		mu.Lock()
		history = append(history, op)
		mu.Unlock()
		return ok
	}
	var all sync.WaitGroup
	for client := range clients {
		random := rand.New(rand.NewPCG(uint64(client), 5))
		all.Go(func() {
			for range each {
				n, hold := 1+random.Int64N(limit/2), 0
				if !record(client, counted{true, n}, func() (ok bool) { hold, ok = counter.Reserve(n); return ok }) {
					continue
				}
				left := random.Int64N(2) * random.Int64N(2) * min(n, 1)
				record(client, counted{false, n - left}, func() bool { counter.Settle(hold, left); return true })
			}
		})
	}
	all.Wait()
	model := porcupine.Model{
		Init: func() any { return int64(0) },
		Step: func(state, input, output any) (bool, any) {
			used, in := state.(int64), input.(counted)
			if !in.reserve {
				return true, used - in.n
			}
			fits := used+in.n <= limit
			if fits {
				used += in.n
			}
			return fits == output.(bool), used
		},
	}
	if result := porcupine.CheckOperationsTimeout(model, history, 20*time.Second); result != porcupine.Ok {
		t.Fatalf("%d operations: %s", len(history), result)
	}
}
