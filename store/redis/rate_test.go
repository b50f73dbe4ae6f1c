package redis

import (
	"context"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/storetest"
)

// reserves makes a limiter with the mode for models and keys, and a claim on one of either.
func reserves(tb testing.TB, url string, gateway uint64, mode limit.Mode) (*limit.Memory, func() *limit.Claim) {
	var o limit.Options
	if mode != limit.Local {
		w, err := Open(url, Options{Gateways: 3})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(w.Close)
		o.Sharing = limit.Sharing{Server: w, Gateway: gateway, Gateways: 3, Timeout: time.Second, Modes: map[limit.Kind]limit.Mode{limit.Key: mode}}
	}
	m := limit.New(o, llm.NewSystemClock(), nil)
	tb.Cleanup(m.Close)
	return m, func() *limit.Claim {
		c := &limit.Claim{Caller: limit.Caller{Org: 1, User: 1, Key: 7}, Input: 10, N: 2}
		l := limit.Limits{QPS: 10_000_000, TPM: 100_000_000_000, Concurrency: 1_000_000}
		c.Dims[0] = limit.Dim{ID: limit.ID{Kind: limit.Key, Scope: 7}, Base: l, Effective: l}
		c.Dims[1] = limit.Dim{ID: limit.ID{Kind: limit.Model, Name: "m"}, Base: l, Effective: l}
		return c
	}
}

var scriptCalls = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`)

// TestLeasedCommands: 20,000 requests a second at three gateways, whose dimensions are lent, are at most 200 commands a second
// on each dimension at the server.
func TestLeasedCommands(t *testing.T) {
	const rps, dims = 20_000, 2
	seconds := 2
	s := storetest.Redis(t)
	var limiters []*limit.Memory
	var claim func() *limit.Claim
	for i := range 3 {
		m, c := reserves(t, s.URL, uint64(i+1), limit.Leased)
		limiters, claim = append(limiters, m), c
	}
	s.Say("CONFIG RESETSTAT")
	var all sync.WaitGroup
	clock := llm.NewSystemClock()
	from := clock.Mono()
	for _, m := range limiters {
		all.Go(func() {
			c := claim()
			for n := 0; n < rps/3*seconds; n++ {
				for clock.Mono()-from < time.Duration(n)*3*time.Second/rps {
					time.Sleep(200 * time.Microsecond)
				}
				r, d, err := m.Reserve(context.Background(), c)
				if d != nil || err != nil {
					t.Errorf("refused: %+v, %v", d, err)
					return
				}
				r.Release()
			}
		})
	}
	all.Wait()
	took := clock.Mono() - from
	calls := 0
	if m := scriptCalls.FindStringSubmatch(s.Say("INFO commandstats")); m != nil {
		calls, _ = strconv.Atoi(m[1])
	}
	if perDim := float64(calls) / took.Seconds() / dims; calls == 0 || perDim > 200 {
		t.Errorf("%.0f commands a second on one dimension, want at most 200", perDim)
	} else {
		t.Logf("%.0f commands a second on one dimension at %.0f requests a second", perDim, float64(rps*seconds)/took.Seconds())
	}
}

// BenchmarkReserve compares, in one run, windows in memory, from loans and asked exactly.
func BenchmarkReserve(b *testing.B) {
	s := storetest.Redis(b)
	for _, mode := range []limit.Mode{limit.Local, limit.Leased, limit.Exact} {
		for _, clients := range []int{1, 64} {
			b.Run(string(mode)+"/"+strconv.Itoa(clients), func(b *testing.B) {
				m, claim := reserves(b, s.URL, uint64(clients), mode)
				b.ReportAllocs()
				var all sync.WaitGroup
				for worker := range clients {
					all.Go(func() {
						c := claim()
						for n := worker; n < b.N; n += clients {
							if r, d, _ := m.Reserve(context.Background(), c); d == nil {
								r.Release()
							}
						}
					})
				}
				all.Wait()
			})
		}
	}
}
