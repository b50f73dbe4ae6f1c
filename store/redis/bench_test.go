//go:build unix

package redis

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/store/storetest"
)

func benchWindows(b *testing.B) *Windows {
	server := storetest.Redis(b)
	w, err := Open(server.URL, Options{Gateways: 3})
	if err != nil {
		b.Fatal(err)
	}
	before := serverCPU(server)
	b.Cleanup(func() {
		b.ReportMetric(float64(serverCPU(server)-before)/float64(time.Microsecond)/float64(b.N), "server-us/op")
		w.Close()
	})
	b.ReportAllocs()
	return w
}

// serverCPU is what the server has computed so far: other than a time by the wall, it does not depend on who else does.
func serverCPU(s *storetest.Server) time.Duration {
	var all float64
	for _, line := range strings.Split(s.Say("INFO cpu"), "\r\n") {
		for _, name := range []string{"used_cpu_sys:", "used_cpu_user:"} {
			if v, ok := strings.CutPrefix(line, name); ok {
				seconds, _ := strconv.ParseFloat(v, 64)
				all += seconds
			}
		}
	}
	return time.Duration(all * float64(time.Second))
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
