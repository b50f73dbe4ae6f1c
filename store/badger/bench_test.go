package badger_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

// BenchmarkSettledAgainstTheDisk is settled requests at 64 concurrent through the whole ledger, beside what the same disk
// and the same store do in the same minute: one sync of 4 kB after another, and batches of 64 small keys (the entries that
// 64 callers have under way), synced or not as the ledger's. A request is two entries.
//
//	go test ./store/badger -run '^$' -bench Against -benchtime 3s
func BenchmarkSettledAgainstTheDisk(b *testing.B) {
	for _, d := range []ledger.Durability{ledger.Process, ledger.Power} {
		b.Run(string(d), func(b *testing.B) {
			const each = 700 * time.Millisecond
			syncs, batches := rawSyncs(b, each), ownBatches(b, each, d == ledger.Power)
			s := open(b, b.TempDir())
			defer s.Close()
			l, _, err := ledger.Open(s, ledger.Options{Durability: d}, llm.NewSystemClock())
			must(err)
			defer l.Close()
			b.ResetTimer()
			requests(l, b.N, 64)
			b.StopTimer()
			settled := float64(b.N) / b.Elapsed().Seconds()
			syncs, batches = (syncs+rawSyncs(b, each))/2, (batches+ownBatches(b, each, d == ledger.Power))/2
			b.ReportMetric(settled, "settled/s")
			b.ReportMetric(syncs, "raw-syncs/s")
			b.ReportMetric(batches*64, "batched-keys/s")
			b.ReportMetric(settled/syncs, "settled/raw-sync")
			b.ReportMetric(settled*2/(batches*64), "entries/batched-key")
		})
	}
}

// rawSyncs is how often a second 4 kB can be written and synced, in a file that has its size already.
func rawSyncs(b *testing.B, during time.Duration) float64 {
	f, err := os.Create(filepath.Join(b.TempDir(), "raw"))
	must(err)
	defer f.Close()
	block := make([]byte, 4096)
	for range 256 {
		_, err := f.Write(block)
		must(err)
	}
	must(f.Sync())
	n, from := 0, time.Now()
	for ; time.Since(from) < during; n++ {
		_, err := f.WriteAt(block, int64(n%256)*4096)
		must(err)
		must(f.Sync())
	}
	return float64(n) / time.Since(from).Seconds()
}

// ownBatches is how often a second the store alone takes 64 keys of 8 bytes with values of 70.
func ownBatches(b *testing.B, during time.Duration, sync bool) float64 {
	s := open(b, b.TempDir())
	defer s.Close()
	batch := make([]ledger.Write, 64)
	n, from := 0, time.Now()
	for ; time.Since(from) < during; n++ {
		for i := range batch {
			batch[i] = ledger.Write{Key: binary.BigEndian.AppendUint64(nil, uint64(n*64+i)), Value: make([]byte, 70)}
		}
		must(s.Apply(batch, sync))
	}
	return float64(n) / time.Since(from).Seconds()
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

// BenchmarkAlone is the latency of one caller at 500 a second on an otherwise idle machine, where what waits has been put
// to sleep by the kernel: append and wait, for an entry that is in the kernel then.
//
//	go test ./store/badger -run '^$' -bench Alone -benchtime 2000x
func BenchmarkAlone(b *testing.B) {
	s := open(b, b.TempDir())
	defer s.Close()
	l, _, err := ledger.Open(s, ledger.Options{}, llm.NewSystemClock())
	must(err)
	defer l.Close()
	took := make([]time.Duration, 0, b.N)
	for range b.N {
		time.Sleep(2 * time.Millisecond)
		from := time.Now()
		write(l, reserve(l.NextID(), 90))
		took = append(took, time.Since(from))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(took[len(took)*9/10].Nanoseconds()), "p90-ns")
}
