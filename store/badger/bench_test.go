package badger_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
)

// BenchmarkSettled is whole requests: a reserve and an ending, each waited for, by so many callers at once.
func BenchmarkSettled(b *testing.B) {
	for _, d := range []ledger.Durability{ledger.Process, ledger.Power} {
		for _, callers := range []int{1, 64, 512} {
			b.Run(fmt.Sprintf("%s/%d", d, callers), func(b *testing.B) {
				s := open(b, b.TempDir())
				defer s.Close()
				l, _, err := ledger.Open(s, ledger.Options{Durability: d}, llm.NewSystemClock())
				must(err)
				defer l.Close()
				b.ReportAllocs()
				b.ResetTimer()
				requests(l, b.N, callers)
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "settled/s")
			})
		}
	}
}

func requests(l *ledger.Ledger, n, callers int) {
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				id := l.NextID()
				r, e := reserve(id, 90), settle(id, 20)
				r.UserID, r.KeyID = uint64(c%8), uint64(c%16)
				write(l, r)
				write(l, e)
			}
		})
	}
	wg.Wait()
}

// BenchmarkAppend is the request path's own part, with the owner writing behind it.
func BenchmarkAppend(b *testing.B) {
	s := open(b, b.TempDir())
	defer s.Close()
	l, _, err := ledger.Open(s, ledger.Options{}, llm.NewSystemClock())
	must(err)
	defer l.Close()
	e := settle(1, 1)
	var seq uint64
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		e.ID = uint64(i)
		if seq, err = l.Append(e); err != nil {
			b.Fatal(err)
		}
		if i%256 == 255 {
			must(ignoreConflict(l.Wait(context.Background(), seq, time.Minute)))
		}
	}
}

func ignoreConflict(err error) error {
	if e, ok := err.(*llm.Error); ok && e.Kind == llm.KindConflict {
		return nil
	}
	return err
}
