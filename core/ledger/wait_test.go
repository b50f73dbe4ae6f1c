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
