package limit

import (
	"context"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

var benchPrice = llm.Price{Input: 2_000_000, CachedInput: 1_000_000, CacheWrite: 2_500_000, Output: 8_000_000}

// benchClaim has n dimensions, none of which ever refuses, and money.
func benchClaim(n int) *Claim {
	c := &Claim{Caller: Caller{Org: 1, User: 2, Key: 3}, N: n, Input: 100, Output: 200}
	ids := [...]ID{{Key, 3, ""}, {Model, 0, "gpt-4o-mini"}, {Global, 0, ""}, {User, 2, ""}, {Org, 1, ""},
		{KeyModel, 3, "gpt-4o-mini"}, {EndUser, 1, "bob"}, {Custom, 1, "team-a"}}
	for i := range n {
		l := Limits{QPS: 1 << 40, TPM: 1 << 50, Concurrency: 1 << 20}
		c.Dims[i] = Dim{ID: ids[i], Base: l, Effective: l}
	}
	c.Money = Money{Price: benchPrice, Billed: true, Balance: true, Quotas: [llm.Windows]Quota{{Label: 202611, Limit: 1 << 60}}}
	return c
}

func benchReserveCommit(b *testing.B, n int, more ...Quota) {
	m := New(Options{}, llm.NewSystemClock(), nil)
	defer m.Close()
	m.LoadBalance(2, 1<<60, 0)
	c := benchClaim(n)
	copy(c.Money.Quotas[1:], more)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		r, d, err := m.Reserve(ctx, c)
		if d != nil || err != nil {
			b.Fatal(d, err)
		}
		r.Sent("primary")
		r.Commit(llm.Usage{InputTokens: 90, OutputTokens: 50}, true)
	}
}

func BenchmarkReserveCommit(b *testing.B) {
	for _, n := range []int{1, 3, 8} {
		b.Run(strconv.Itoa(n)+"dims", func(b *testing.B) { benchReserveCommit(b, n) })
	}
	b.Run("3dims-3windows", func(b *testing.B) {
		benchReserveCommit(b, 3, Quota{Window: llm.Week, Label: 2026334, Limit: 1 << 60}, Quota{Window: llm.Day, Label: 20261130, Limit: 1 << 60})
	})
}

// BenchmarkReserveCommitParallel is one goroutine per core: all of one key, or each of its own key and user, so that
// they meet at the model and the global dimension only.
func BenchmarkReserveCommitParallel(b *testing.B) {
	for _, own := range []bool{false, true} {
		b.Run(map[bool]string{false: "one-key", true: "own-keys"}[own], func(b *testing.B) { benchParallel(b, own) })
	}
}

func benchParallel(b *testing.B, own bool) {
	m := New(Options{}, llm.NewSystemClock(), nil)
	defer m.Close()
	m.LoadBalance(2, 1<<60, 0)
	var keys atomic.Uint64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		c := benchClaim(3)
		if own {
			k := 100 + keys.Add(1)
			c.Caller.Key, c.Caller.User, c.Dims[0].ID.Scope = k, k, k
			m.LoadBalance(k, 1<<60, 0)
		}
		for pb.Next() {
			r, d, err := m.Reserve(context.Background(), c)
			if d != nil || err != nil {
				b.Fatal(d, err)
			}
			r.Sent("primary")
			r.Commit(llm.Usage{InputTokens: 90, OutputTokens: 50}, true)
		}
	})
}

// BenchmarkAttempt is what one attempt adds: its channel's dimensions, asked for and given back.
func BenchmarkAttempt(b *testing.B) {
	m := New(Options{}, llm.NewSystemClock(), nil)
	defer m.Close()
	m.LoadBalance(2, 1<<60, 0)
	r, _, err := m.Reserve(context.Background(), benchClaim(3))
	if err != nil {
		b.Fatal(err)
	}
	defer r.Release()
	l := Limits{QPS: 1 << 40, TPM: 1 << 50}
	dims := []Dim{dim(ID{Kind: Channel, Scope: 1}, l), dim(ID{Kind: ModelChannel, Scope: 1, Name: "gpt-4o-mini"}, l)}
	b.ReportAllocs()
	for b.Loop() {
		if d, err := r.Extend(context.Background(), dims, 0); d != nil || err != nil {
			b.Fatal(d, err)
		}
		r.Shrink()
	}
}

// BenchmarkRelayed is one event of a stream within its hold.
func BenchmarkRelayed(b *testing.B) {
	m := New(Options{}, llm.NewSystemClock(), nil)
	defer m.Close()
	c := benchClaim(3)
	c.Money, c.Output = Money{}, 1<<32
	r, _, err := m.Reserve(context.Background(), c)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Release()
	b.ReportAllocs()
	for n := llm.Tokens(1); b.Loop(); n++ {
		r.Relayed(n)
	}
}

// BenchmarkRefuse is the answer a storm gets when the cheap look is off.
func BenchmarkRefuse(b *testing.B) {
	m := New(Options{}, llm.NewFakeClock(time.Unix(0, 0)), nil)
	defer m.Close()
	m.LoadBalance(2, 1<<60, 0)
	c := benchClaim(3)
	c.Dims[0].Effective.QPS = 100
	for range 100 {
		if _, d, _ := m.Reserve(context.Background(), c); d != nil {
			b.Fatal(d)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, d, _ := m.Reserve(context.Background(), c); d == nil {
			b.Fatal("admitted")
		}
	}
}

func BenchmarkStorm(b *testing.B) {
	m := New(Options{}, llm.NewFakeClock(time.Unix(0, 0)), nil)
	defer m.Close()
	m.LoadBalance(2, 1<<60, 0)
	c, d := benchClaim(1), Denial{}
	b.Run("calm", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m.Storm(c.Dims[0].ID, 1, 0, &d)
		}
	})
	c.Dims[0].Effective.QPS = 1
	for range 40 {
		if _, _, err := m.Reserve(context.Background(), c); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("storming", func(b *testing.B) {
		b.ReportAllocs()
		refused := 0
		for b.Loop() {
			if m.Storm(c.Dims[0].ID, 1, 0, &d) {
				refused++
			}
		}
		if refused < b.N/2 {
			b.Fatal("let through")
		}
	})
}

// BenchmarkSlidingLog is one gauge alone, as the exact log was measured before.
func BenchmarkSlidingLog(b *testing.B) {
	b.Run("allow", func(b *testing.B) {
		g := newQPS(ruleSliding)
		bd := g.boundOf(1_000, 1_000, 0)
		now := time.Duration(0)
		for b.Loop() {
			now += 2 * time.Millisecond
			if g.left(now, bd) >= 1 {
				g.charge(now, bd, 1, false)
			}
		}
	})
	b.Run("refuse", func(b *testing.B) {
		g := newQPS(ruleSliding)
		bd := g.boundOf(1_000, 1_000, 0)
		for i := range 1000 {
			g.charge(time.Duration(i)*time.Microsecond, bd, 1, false)
		}
		for b.Loop() {
			if g.left(time.Millisecond, bd) >= 1 {
				b.Fatal("admitted")
			}
		}
	})
}

// BenchmarkManyKeys walks 10,000 keys, so that no meter of a key is in a cache.
func BenchmarkManyKeys(b *testing.B) {
	m := New(Options{}, llm.NewSystemClock(), nil)
	defer m.Close()
	c := benchClaim(3)
	c.Money.Overdraft = 1 << 50
	call := func(i int) {
		k := uint64(i*7919%10_000) + 1
		c.Caller.Key, c.Caller.User, c.Dims[0].ID.Scope = k, k, k
		r, d, err := m.Reserve(context.Background(), c)
		if d != nil || err != nil {
			b.Fatal(d, err)
		}
		r.Commit(llm.Usage{InputTokens: 90, OutputTokens: 50}, true)
	}
	for i := range 10_000 {
		call(i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		call(i)
	}
}

// TestIdleKeyIsSmall: a key that was used once, with its quota and its user's balance, keeps within 1 kB.
func TestIdleKeyIsSmall(t *testing.T) {
	m := New(Options{}, llm.NewFakeClock(start), nil)
	defer m.Close()
	c := benchClaim(1)
	c.Money.Overdraft = 1 << 50
	const keys = 10_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for k := range uint64(keys) {
		c.Caller.Key, c.Caller.User, c.Dims[0].ID.Scope = k, k, k
		r, d, err := m.Reserve(context.Background(), c)
		if d != nil || err != nil {
			t.Fatal(d, err)
		}
		r.Commit(llm.Usage{InputTokens: 90, OutputTokens: 50}, true)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / keys
	t.Logf("%d bytes per key", each)
	if each > 1024 {
		t.Fatalf("%d bytes per key", each)
	}
}
