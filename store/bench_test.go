package store_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/storetest"
)

// BenchmarkSettled is whole requests over each store in one run: a reserve and an ending, each waited for, by so many callers
// at once. PostgreSQL is on this machine, and syncs.
//
//	go test ./store -run '^$' -bench Settled -benchtime 2s
func BenchmarkSettled(b *testing.B) {
	for _, d := range []ledger.Durability{ledger.Process, ledger.Power} {
		for _, name := range []string{"badger", "postgres"} {
			for _, callers := range []int{1, 64, 512} {
				b.Run(fmt.Sprintf("%s/%s/%d", d, name, callers), func(b *testing.B) {
					if name == "postgres" {
						srv, _ := storetest.Postgres(b)
						srv.Set(b, "fsync", "on")
					}
					s, err := stores[name](b)()
					if err != nil {
						b.Fatal(err)
					}
					defer s.Close()
					l, _, err := ledger.Open(s, ledger.Options{Durability: d}, llm.NewSystemClock())
					if err != nil {
						b.Fatal(err)
					}
					defer l.Close()
					b.ResetTimer()
					took := requests(b, l, b.N, callers)
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "settled/s")
					b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
					b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
				})
			}
		}
	}
}

// requests makes n requests of so many callers, and gives what each took, in order.
func requests(b *testing.B, l *ledger.Ledger, n, callers int) []time.Duration {
	var left atomic.Int64
	left.Store(int64(n))
	var all sync.WaitGroup
	took := make([][]time.Duration, callers)
	for c := range callers {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				from := time.Now()
				id, user := l.NextID(), uint64(c%8)
				u := llm.Usage{InputTokens: 10, OutputTokens: 20}
				for _, e := range []llm.Entry{
					{Kind: llm.EntryReserve, ID: id, UserID: user, KeyID: user, Label: month, Price: price, Billed: true, Model: "m", AtMS: from.UnixMilli(), Usage: llm.Usage{InputTokens: 10}, Held: price.Hold(10, 90)},
					{Kind: llm.EntrySettle, ID: id, Status: llm.StatusFinalized, Usage: u, Cost: price.Cost(u), AtMS: from.UnixMilli()},
				} {
					seq, err := l.Append(&e)
					if err == nil {
						err = l.Wait(b.Context(), seq, time.Minute)
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
				took[c] = append(took[c], time.Since(from))
			}
		})
	}
	all.Wait()
	every := slices.Concat(took...)
	slices.Sort(every)
	return every
}
