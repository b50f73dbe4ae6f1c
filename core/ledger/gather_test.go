package ledger_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/store/storetest"
)

// TestCallersShareAWrite: callers that each wait for their own entries share the next write with those that wait for it
// already, rather than forming two halves that take turns.
func TestCallersShareAWrite(t *testing.T) {
	for _, d := range []ledger.Durability{ledger.Process, ledger.Power} {
		t.Run(string(d), func(t *testing.T) { shareAWrite(t, d) })
	}
}

func shareAWrite(t *testing.T, d ledger.Durability) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const callers, each = 64, 50
	r := start(t, storetest.NewMemory(), ledger.Options{Durability: d})
	r.store.Before(func(int, []ledger.Write) error {
		for range 8 { // a disk takes its time, and others run meanwhile
			runtime.Gosched()
		}
		return nil
	})
	before := r.store.Applies()
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				e := r.hold(1)
				seq, err := r.Append(&e)
				if err == nil {
					err = r.wait(seq)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	per := float64(callers*each) / float64(r.store.Applies()-before)
	if per < callers*5/8 { // two halves would be 32
		t.Errorf("%.1f entries a write, by %d callers", per, callers)
	}
}
