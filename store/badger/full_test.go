package badger_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/badger"
)

func wantFull(t *testing.T, what string, err error, says string) {
	t.Helper()
	var e *llm.Error
	if !errors.As(err, &e) || e.Kind != llm.KindUnavailable || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: %v; want one line with %q", what, err, says)
	}
}

// With less than the reserve nothing is written; with it, all goes on.
func TestReserve(t *testing.T) {
	var left atomic.Int64
	left.Store(64 << 20)
	o := badger.Options{Free: func(string) (int64, error) { return left.Load(), nil }}
	s, err := badger.Open(t.TempDir(), o)
	must(err)
	defer s.Close()
	one := []ledger.Write{{Key: []byte("a"), Value: []byte("1")}}
	big := []ledger.Write{{Key: []byte("b"), Value: make([]byte, 10<<20)}}
	must(s.Apply(one, false))
	wantFull(t, "10 MiB above the reserve", s.Apply(big, false), "is full: 64 MiB free, 74 MiB needed")
	left.Store(64<<20 - 1)
	wantFull(t, "a byte less", s.Apply(one, true), "is full: 63 MiB free, 64 MiB needed")
	if _, ok, err := s.Get([]byte("b")); ok || err != nil {
		t.Errorf("a refused batch left something: %v, %v", ok, err)
	}
	_, err = badger.Open(t.TempDir(), o)
	wantFull(t, "opening", err, "is full: 63 MiB free, 64 MiB needed")
	left.Store(74 << 20)
	must(s.Apply(big, true))
	s2, err := badger.Open(t.TempDir(), badger.Options{ReserveBytes: 74 << 20, Free: o.Free})
	must(err)
	must(s2.Close())
	_, err = badger.Open(t.TempDir(), badger.Options{ReserveBytes: 74<<20 + 1, Free: o.Free})
	wantFull(t, "a larger reserve", err, "is full: 74 MiB free, 75 MiB needed")
}

// Where there is plenty of room the file system is not asked for every batch; near the reserve, and for what may be larger
// than all that is left, it is.
func TestRoomIsAskedForSeldom(t *testing.T) {
	clock := llm.NewFakeClock(time.Unix(0, 0))
	var left, asked atomic.Int64
	left.Store(128 << 20)
	o := badger.Options{Clock: clock, Free: func(string) (int64, error) { asked.Add(1); return left.Load(), nil }}
	s, err := badger.Open(t.TempDir(), o)
	must(err)
	defer s.Close()
	one := []ledger.Write{{Key: []byte("a"), Value: []byte("1")}}
	big := []ledger.Write{{Key: []byte("b"), Value: make([]byte, 48<<10)}}
	wantAsked := func(when string, batch []ledger.Write, want int64) {
		t.Helper()
		before := asked.Load()
		for range 5 {
			must(s.Apply(batch, false))
		}
		if n := asked.Load() - before; n != want {
			t.Errorf("%s: asked %d times for 5 batches, want %d", when, n, want)
		}
	}
	wantAsked("with twice the reserve", one, 0)
	clock.Advance(20*time.Millisecond - 1)
	wantAsked("just before the answer is old", one, 0)
	wantAsked("values that may be large", big, 5)
	wantAsked("behind one, which has taken of it", one, 1)
	clock.Advance(20 * time.Millisecond)
	left.Store(128<<20 - 1)
	wantAsked("with less", one, 5)
	left.Store(128 << 20)
	wantAsked("with twice the reserve again", one, 1)
	left.Store(0)
	clock.Advance(20 * time.Millisecond)
	wantFull(t, "with none", s.Apply(one, false), "is full: 0 MiB free, 64 MiB needed")
	left.Store(64 << 20)
	wantAsked("with the reserve", one, 5)
	left.Store(128 << 20)
	must(s.Apply(one, false))
	before := asked.Load()
	must(s.Close())
	if asked.Load() == before {
		t.Error("not asked before closing, which writes tables")
	}
}

func TestFreeSpaceUnknown(t *testing.T) {
	_, err := badger.Open(t.TempDir(), badger.Options{Free: func(string) (int64, error) { return 0, os.ErrPermission }})
	if !errors.Is(err, os.ErrPermission) {
		t.Errorf("opening: %v", err)
	}
}

// Over a full store the ledger refuses reserves, keeps endings until there is room, and says why it is not well.
func TestLedgerOnFullDisk(t *testing.T) {
	var left atomic.Int64
	left.Store(1 << 30)
	clock := llm.NewFakeClock(time.Unix(0, 0))
	s, err := badger.Open(t.TempDir(), badger.Options{Clock: clock, Free: func(string) (int64, error) { return left.Load(), nil }})
	must(err)
	defer s.Close()
	l, _, err := ledger.Open(s, ledger.Options{}, llm.NewSystemClock())
	must(err)
	defer l.Close()
	ctx := context.Background()
	id := l.NextID()
	write(l, reserve(id, 90))
	left.Store(12 << 20)
	clock.Advance(time.Second)
	const says = "is full: 12 MiB free, 64 MiB needed"
	seq, err := l.Append(reserve(l.NextID(), 90))
	must(err) // nobody knows yet
	wantFull(t, "the reserve that finds out", l.Wait(ctx, seq, time.Minute), says)
	end, err := l.Append(settle(id, 20))
	must(err)
	wantFull(t, "health", l.Healthy(), says)
	_, err = l.Append(reserve(l.NextID(), 90))
	wantFull(t, "the next reserve", err, says)
	wantFull(t, "a change", l.Put(ctx, ledger.Change{}, nil, nil), says)
	left.Store(1 << 30)
	must(l.Wait(ctx, end, time.Minute))
	must(l.Healthy())
	write(l, reserve(l.NextID(), 90))
}

// liveThroughFull is the child of TestDiskFull.
func liveThroughFull(dir string, s *badger.Store, l *ledger.Ledger) {
	open := l.NextID()
	write(l, reserve(open, 90))
	fill := fillDisk(filepath.Dir(dir))
	end, err := l.Append(settle(open, 20))
	must(err)
	var last error
	for n := 0; n < 20_000 && last == nil; n++ { // far beyond the pages that the write-ahead log has already
		var seq uint64
		if seq, last = l.Append(reserve(l.NextID(), 90)); last == nil {
			last = l.Wait(context.Background(), seq, time.Minute)
		}
	}
	mustBeFull("a reserve", last)
	mustBeFull("health", l.Healthy())
	if err := l.Wait(context.Background(), end, 50*time.Millisecond); err == nil {
		panic("an ending was acknowledged on a full disk")
	}
	must(os.Remove(fill))
	must(l.Wait(context.Background(), end, time.Minute))
	must(l.Healthy())
	id := l.NextID()
	write(l, reserve(id, 90))
	write(l, settle(id, 20))

	fill = fillDisk(filepath.Dir(dir))
	must(l.Close())
	must(s.Close())
	_, err = badger.Open(filepath.Join(filepath.Dir(dir), "other"), badger.Options{})
	mustBeFull("opening", err)
	must(os.Remove(fill))
	fmt.Println("lived")
	os.Exit(0)
}

func mustBeFull(what string, err error) {
	var e *llm.Error
	if !errors.As(err, &e) || e.Kind != llm.KindUnavailable || !strings.Contains(err.Error(), "is full: 0 MiB free, 64 MiB needed") {
		panic(fmt.Sprintf("%s on a full disk: %v", what, err))
	}
}

// fillDisk takes all that is free, to the last page.
func fillDisk(dir string) (name string) {
	f, err := os.Create(filepath.Join(dir, "fill"))
	must(err)
	defer f.Close()
	for size := 1 << 20; size > 0; {
		n, err := f.Write(make([]byte, size))
		if err != nil && (n == 0 || errors.Is(err, io.ErrShortWrite)) {
			size /= 2
		}
	}
	return f.Name()
}
