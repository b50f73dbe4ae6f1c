package ledger

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Waiters that give up while they are being woken leave nothing behind for those who use their place next.
func TestGivingUpWhileWoken(t *testing.T) {
	l := &Ledger{}
	l.acks.init()
	var next atomic.Uint64
	outcome := make([]error, 1)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 8 {
		random := rand.New(rand.NewPCG(uint64(i), 0))
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				seq := next.Load() + 1 + random.Uint64N(3)
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.IntN(40))*time.Microsecond)
				err := l.Wait(ctx, seq, time.Second)
				if done := l.acks.done.Load(); err == nil && done < seq {
					t.Errorf("ticket %d was told as written while %d are", seq, done)
				}
				cancel()
			}
		})
	}
	until := time.Now().Add(300 * time.Millisecond)
	for seq := uint64(1); time.Now().Before(until); seq++ {
		l.acks.advance(seq, seq, outcome)
		next.Store(seq)
		time.Sleep(time.Duration(seq%40) * time.Microsecond)
	}
	close(stop)
	wg.Wait()
	if n := len(l.acks.mu.waiting); n != 0 {
		t.Errorf("%d waiters are left", n)
	}
}

// One timer ends all waits, each at its own time, whatever the order they came in; those whose time is not up stay.
func TestEachWaitHasItsTime(t *testing.T) {
	l := &Ledger{}
	l.acks.init()
	ctx, late := context.Background(), make(chan error)
	long := make(chan error)
	go func() { long <- l.Wait(ctx, 1, time.Hour) }()
	for _, timeout := range []time.Duration{30 * time.Millisecond, time.Millisecond, 10 * time.Millisecond} {
		go func() {
			from := time.Now()
			err := l.Wait(ctx, 2, timeout)
			if took := time.Since(from); took < timeout {
				t.Errorf("gave up after %v of %v", took, timeout)
			}
			late <- err
		}()
	}
	for range 3 {
		if err := <-late; err != errLate {
			t.Errorf("late: %v", err)
		}
	}
	if err := l.Wait(ctx, 2, time.Millisecond); err != errLate {
		t.Errorf("late, after those: %v", err)
	}
	l.acks.advance(1, 1, []error{nil})
	if err := <-long; err != nil {
		t.Errorf("in time: %v", err)
	}
}
