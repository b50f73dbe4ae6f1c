package limit

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-gateway/weir/core/llm"
)

// TestNeverAboveTheLimitInAnySpan adds up what was admitted, span by span, with nothing but the admission times: at most
// the limit in any second and any minute, and with a burst at most ten times the limit in any ten.
func TestNeverAboveTheLimitInAnySpan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock := llm.NewFakeClock(start)
		m := New(Options{}, clock, nil)
		defer m.Close()
		const qps, tpm = 3, 100
		burst := rapid.SampledFrom([]uint32{1000, 1500, 3000}).Draw(t, "burst")
		type admitted struct {
			at     time.Duration
			tokens int64
		}
		var log []*admitted
		open := map[*admitted]Reservation{}
		for range rapid.IntRange(20, 200).Draw(t, "steps") {
			clock.Advance(time.Duration(rapid.SampledFrom([]int{0, 0, 1, 37, 333, 999, 1000, 20_000}).Draw(t, "ms")) * time.Millisecond)
			n := rapid.Int64Range(0, 60).Draw(t, "tokens")
			d := dim(keyID(3), Limits{QPS: qps, TPM: tpm})
			d.Burst = burst
			r, refused, err := m.Reserve(ctx, claim(llm.Tokens(n), d))
			if err != nil {
				t.Fatal(err)
			}
			if refused == nil {
				a := &admitted{clock.Mono(), n}
				log, open[a] = append(log, a), r
			}
			for a, r := range open { // settle one in the past, at no more than it held
				if rapid.Bool().Draw(t, "settle") {
					a.tokens = rapid.Int64Range(0, a.tokens).Draw(t, "actual")
					r.Commit(llm.Usage{InputTokens: llm.Tokens(a.tokens)}, true)
					delete(open, a)
				}
				break
			}
			now := clock.Mono()
			within := func(span time.Duration) (requests, tokens int64) {
				for _, a := range log {
					if a.at > now-span {
						requests++
						tokens += a.tokens
					}
				}
				return requests, tokens
			}
			check := func(what string, got, limit int64) {
				if got > limit {
					t.Fatalf("%s: %d admitted, at most %d", what, got, limit)
				}
			}
			q, _ := within(time.Second)
			check("requests in a second", q, Scale(qps, burst))
			q, _ = within(10 * time.Second)
			check("requests in ten", q, 10*qps)
			_, n = within(time.Minute)
			check("tokens in a minute", n, Scale(tpm, burst))
			_, n = within(10 * time.Minute)
			check("tokens in ten", n, 10*tpm)
		}
	})
}

// randomState charges a few dimensions at random, over up to two minutes, settles some of it, and returns a claim on them.
func randomState(rnd *rand.Rand, m *Memory, clock *llm.FakeClock) *Claim {
	ids := []ID{{Kind: Key, Scope: 3}, {Kind: Model, Name: "m"}, {Kind: Global}, {Kind: Custom, Scope: 1, Name: "x"}}
	draw := func() *Claim {
		c := claim(llm.Tokens(rnd.IntN(60)))
		for _, id := range ids {
			if rnd.IntN(3) == 0 {
				continue
			}
			d := dim(id, Limits{QPS: 1 + rnd.Int64N(6), TPM: 60 + rnd.Int64N(200)})
			d.Effective.QPS += rnd.Int64N(3)
			d.Burst = []uint32{0, 0, 1500, 4000}[rnd.IntN(4)]
			d.Cost = []uint32{0, 0, 700, 1300}[rnd.IntN(4)]
			c.Dims[c.N] = d
			c.N++
		}
		return c
	}
	for range 5 + rnd.IntN(60) {
		clock.Advance(time.Duration(rnd.Int64N([]int64{2, 1_000, 300_000_000, 2_500_000_000}[rnd.IntN(4)])))
		r, d, err := m.Reserve(ctx, draw())
		if err != nil {
			panic(err)
		}
		if d == nil && rnd.IntN(2) == 0 {
			r.Sent("c")
			r.Commit(llm.Usage{InputTokens: llm.Tokens(rnd.IntN(80))}, true)
		}
	}
	c := draw()
	for range 50 { // press on until something refuses
		if d, _ := m.Peek(ctx, c); d != nil {
			break
		}
		if _, _, err := m.Reserve(ctx, c); err != nil {
			panic(err)
		}
	}
	return c
}

// TestL12 waits exactly retry_after_ms in 10,000 random states of every window kind, with one refuser or several: alone,
// it is admitted then and never a millisecond earlier.
func TestL12RetryAfterIsExact(t *testing.T) {
	rnd := rand.New(rand.NewPCG(12, 12))
	algorithms := []Algorithm{Sliding, Fixed, TokenBucket}
	exact := 0
	for exact < 10_000 {
		clock := llm.NewFakeClock(start)
		o := Options{Algorithms: map[Kind]Windows{}}
		for _, k := range []Kind{Key, Model, Global, Custom} {
			o.Algorithms[k] = Windows{QPS: algorithms[rnd.IntN(3)], TPM: algorithms[rnd.IntN(3)]}
		}
		m := unswept(o, clock, nil)
		c := randomState(rnd, m, clock)
		d, err := m.Peek(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		if d == nil || !d.Exact {
			continue
		}
		exact++
		told := *d
		if told.RetryAfterMS < 1 {
			t.Fatalf("no wait: %+v", told)
		}
		clock.Advance(time.Duration(told.RetryAfterMS-1) * time.Millisecond)
		if early, _ := m.Peek(ctx, c); early == nil {
			t.Fatalf("state %d: admitted 1 ms early: %+v", exact, told)
		}
		clock.Advance(time.Millisecond)
		if _, late, _ := m.Reserve(ctx, c); late != nil {
			t.Fatalf("state %d: told %+v, then refused by %+v", exact, told, *late)
		}
	}
}

// TestExactlyTheLimit lets 10,000 goroutines at a meter of 5,000.
func TestExactlyTheLimit(t *testing.T) {
	for name, l := range map[string]Limits{"tpm": {TPM: 5000}, "qps": {QPS: 5000}, "concurrency": {Concurrency: 5000}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{})
			var admitted atomic.Int64
			var wg sync.WaitGroup
			gate := make(chan struct{})
			for range 10_000 {
				wg.Go(func() {
					<-gate
					res, d, err := r.Reserve(ctx, claim(1, dim(keyID(3), l), dim(ID{Kind: Global}, Limits{QPS: 1 << 30})))
					if err != nil || (d == nil) == (res == Reservation{}) {
						t.Errorf("%v %v %v", res, d, err)
					}
					if d == nil {
						admitted.Add(1)
					}
				})
			}
			close(gate)
			wg.Wait()
			if admitted.Load() != 5000 || r.Open() != 5000 {
				t.Fatalf("%d admitted, %d open", admitted.Load(), r.Open())
			}
		})
	}
}

// TestSettledExactlyOnce races every way to end one reservation, and the calls that report progress.
func TestSettledExactlyOnce(t *testing.T) {
	r := newRig(t, Options{})
	r.LoadBalance(2, 1_000_000, 0)
	const rounds = 2_000
	for range rounds {
		c := claim(10, dim(keyID(3), Limits{Concurrency: 2}))
		c.Money = Money{Price: llm.Price{Request: 7}, Billed: true, Balance: true}
		res := r.admit(c)
		res.Sent("c")
		var first atomic.Int64
		var wg sync.WaitGroup
		count := func(s Settlement) {
			if s.First {
				first.Add(1)
			}
		}
		var ready atomic.Int64
		race := func(f func()) {
			wg.Go(func() {
				for ready.Add(1); ready.Load() < 4; { // all start within nanoseconds of each other
					runtime.Gosched()
				}
				f()
			})
		}
		race(func() { count(res.Release()) })
		race(func() { count(res.Commit(llm.Usage{InputTokens: 5}, true)) })
		race(func() { count(res.Move().Release()) })
		race(func() { res.Relayed(3); res.UsageKnown(llm.Usage{InputTokens: 10, OutputTokens: 4}) })
		wg.Wait()
		if first.Load() != 1 {
			t.Fatalf("settled %d times", first.Load())
		}
	}
	if r.Open() != 0 || r.use(keyID(3)).Concurrency != 0 {
		t.Fatalf("%d open", r.Open())
	}
	if a, h := r.Balance(2); a != 1_000_000-7*rounds || h != 0 {
		t.Fatalf("available %d, held %d", a, h)
	}
	settled := map[uint64]int{}
	for _, e := range r.journal.all() {
		if e.Kind == llm.EntrySettle || e.Kind == llm.EntryVoid {
			settled[e.ID]++
		}
	}
	for id, n := range settled {
		if n != 1 {
			t.Fatalf("#%d was settled %d times", id, n)
		}
	}
	if len(settled) != rounds {
		t.Fatalf("%d settled, not %d", len(settled), rounds)
	}
}

// TestStaleHandlesAreInert keeps a handle while its slot of the open table serves others.
func TestStaleHandlesAreInert(t *testing.T) {
	r := newRig(t, Options{})
	key := dim(keyID(3), Limits{TPM: 1000})
	old := r.admit(claim(10, key))
	old.Commit(llm.Usage{InputTokens: 10}, true)
	next := r.admit(claim(20, key))
	if old.hold != next.hold {
		t.Fatal("the slot was not used again")
	}
	before := dump(r.Memory)
	for name, call := range map[string]func(Reservation){
		"sent": func(s Reservation) { s.Sent("x") }, "refused": Reservation.Refused, "shrink": Reservation.Shrink,
		"relayed": func(s Reservation) { s.Relayed(500) }, "known": func(s Reservation) { s.UsageKnown(llm.Usage{InputTokens: 500}) },
		"answered": func(s Reservation) { s.Answered(500) },
		"extend": func(s Reservation) {
			if d, err := s.Extend(ctx, []Dim{key}, 50); d != nil || err != ErrEnded {
				t.Errorf("extend: %v %v", d, err)
			}
		},
		"end": func(s Reservation) {
			if s.Release().First || s.Commit(llm.Usage{}, true).First || s.Move().Release().First {
				t.Error("a stale handle settled")
			}
			if s.ID() != 0 || s.Seq() != 0 || s.Granted() != 0 {
				t.Error("a stale handle reads another's hold")
			}
		},
	} {
		for _, stale := range []Reservation{old, {}} {
			if call(stale); dump(r.Memory) != before {
				t.Errorf("%s through a stale handle changed something", name)
			}
		}
	}
	if s := next.Release(); !s.First || s.Status != llm.StatusRefunded {
		t.Fatalf("%+v", s)
	}
}

// TestOneCallWins has two goroutines enter one open slot at the same instant, again and again: the CAS lets one in.
func TestOneCallWins(t *testing.T) {
	const rounds = 50_000
	h := new(hold)
	var round, wins, done atomic.Int64
	wait := func(until func() bool) {
		for spin := 0; !until(); spin++ {
			if spin > 200 {
				runtime.Gosched()
			}
		}
	}
	enter := func(i int64) {
		if (Reservation{hold: h, generation: uint64(i)}).enter(stateEnding) != nil {
			wins.Add(1)
		}
		done.Add(1)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range int64(rounds) {
			wait(func() bool { return round.Load() > i })
			enter(i)
		}
	})
	for i := range int64(rounds) {
		h.word.Store(uint64(i)<<stateBits | stateOpen)
		round.Store(i + 1)
		enter(i)
		wait(func() bool { return done.Load() == 2*(i+1) })
		if wins.Load() != i+1 {
			t.Fatalf("round %d: %d got in", i, wins.Load()-i)
		}
	}
	wg.Wait()
}
