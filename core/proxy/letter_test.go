package proxy_test

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// S11: a message of 5 MB of one letter, on any route, is counted within bounds: small calls beside it do not notice. Ten times as
// much is let pass but under -long, for other load.
func TestS11ALargeMessageHarmsNobody(t *testing.T) {
	window, most := 300*time.Millisecond, 50*time.Millisecond*patience
	if *long {
		window, most = 3*time.Second, 5*time.Millisecond
	}
	letters := strings.Repeat("a", 5<<20)
	r := newRig(t, func(s *setup) { s.balance = 1 << 50 })
	r.leavesNothing()
	for _, x := range everyRoute {
		x.body = strings.NewReplacer("hello", letters, "some text", letters).Replace(x.body)
		moved, sent := time.Hour, 0
		for range 3 { // what else the machine does moves a p99 too
			alone := r.p99(window)
			beside, n := r.besideOne(x, window)
			if moved, sent = min(moved, beside-alone), sent+n; moved <= most {
				break
			}
		}
		t.Logf("%s: %d large ones moved the p99 by %v", x.path, sent, moved)
		if moved > most || sent == 0 {
			t.Errorf("%s: %d large ones moved the p99 of small ones by %v, want at most %v", x.path, sent, moved, most)
		}
	}
}

// besideOne is the p99 of good requests while one client sends a request again and again, and how often it did.
func (r *rig) besideOne(x route, window time.Duration) (p99 time.Duration, sent int) {
	over := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		for ; ; sent++ {
			select {
			case <-over:
				return
			default:
				r.post(x.path, x.body, "x-sim", "usage_in=9,usage_out=5").want(r.t, 200)
			}
		}
	})
	p99 = r.p99(window)
	close(over)
	sending.Wait()
	return p99, sent
}
