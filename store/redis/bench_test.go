//go:build unix

package redis

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/store/storetest"
)

func benchWindows(b *testing.B) *Windows {
	w, err := Open(storetest.Redis(b).URL, Options{Gateways: 3})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(w.Close)
	b.ReportAllocs()
	return w
}

// BenchmarkTakeEnd is a request's whole life at the server: three dimensions, taken and ended.
func BenchmarkTakeEnd(b *testing.B) {
	for _, c := range []struct {
		name string
		n    int
	}{{"1", 1}, {"64", 32}} { // times GOMAXPROCS
		b.Run(c.name, func(b *testing.B) {
			w := benchWindows(b)
			var next atomic.Uint64
			if c.n == 1 {
				for b.Loop() {
					takeEnd(b, w, next.Add(1))
				}
				return
			}
			b.SetParallelism(c.n)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					takeEnd(b, w, next.Add(1))
				}
			})
		})
	}
}

func threeDims(n uint64) limit.Order {
	o := limit.Order{Hold: hold(n), Org: 7, Asks: make([]limit.Ask, 3)}
	for i := range o.Asks {
		o.Asks[i] = limit.Ask{ID: limit.ID{Kind: []limit.Kind{limit.Key, limit.User, limit.Org}[i], Scope: 1}, QPS: limit.Bound{Most: 1 << 30},
			TPM: limit.Bound{Most: 1 << 40}, Concurrency: 1 << 20, Requests: 1, Tokens: 1000}
	}
	return o
}

func takeEnd(b *testing.B, w *Windows, n uint64) {
	o := threeDims(n)
	if err := w.Take(context.Background(), &o); err != nil || !o.Admitted {
		b.Error(err, o.Admitted)
	}
	e := []limit.Ending{{Hold: o.Hold, Org: 7, Dims: []limit.EndingDim{{ID: o.Asks[0].ID, Tokens: 300}, {ID: o.Asks[1].ID, Tokens: 300}, {ID: o.Asks[2].ID, Tokens: 300}}}}
	if err := w.End(context.Background(), e); err != nil {
		b.Error(err)
	}
}

func BenchmarkTake(b *testing.B) {
	for _, c := range []struct {
		name string
		n    int
	}{{"1", 1}, {"64", 32}} {
		b.Run(c.name, func(b *testing.B) {
			w := benchWindows(b)
			var next atomic.Uint64
			take := func() {
				o := threeDims(next.Add(1))
				if err := w.Take(context.Background(), &o); err != nil || !o.Admitted {
					b.Error(err, o.Admitted)
				}
			}
			if c.n == 1 {
				for b.Loop() {
					take()
				}
				return
			}
			b.SetParallelism(c.n)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					take()
				}
			})
		})
	}
}

func BenchmarkBorrow(b *testing.B) {
	w := benchWindows(b)
	e := &limit.Exchange{ID: limit.ID{Kind: limit.Model, Name: "gpt-4o"}, Gateway: 1, QPS: limit.Bound{Most: 20_000}, TPM: limit.Bound{Most: 1 << 30},
		Concurrency: 1000, WantRequests: 100, WantTokens: 100_000, Open: 100, WantOpen: 120}
	for b.Loop() {
		e.Number++
		if err := w.Borrow(context.Background(), []*limit.Exchange{e}); err != nil {
			b.Fatal(err)
		}
		e.Back = append(e.Back[:0], limit.Back{Slot: e.RequestsSlot, N: e.Requests / 2}, limit.Back{Tokens: true, Slot: e.TokensSlot, N: e.Tokens / 2})
	}
}
