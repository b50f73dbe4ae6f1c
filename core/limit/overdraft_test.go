package limit

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

// TestC2NoOverdraftByAdmission lets 10,000 requests of 1 at a balance, and at a quota, of 5,000, twenty times: exactly
// 5,000 are admitted, whether they are still held or charged at once.
func TestC2NoOverdraftByAdmission(t *testing.T) {
	const all, most, label = 10_000, 5_000, 202611
	for run := range 20 {
		r := newRig(t, Options{})
		money := Money{Price: llm.Price{Request: 1}, Billed: true, Balance: true}
		r.LoadBalance(2, most, 0)
		axis := AxisBalance
		if run%2 == 1 {
			r.LoadBalance(2, all, 0)
			money.Quotas[0] = Quota{Window: llm.Window(run / 2 % llm.Windows), Label: label, Limit: most}
			axis = AxisQuota
		}
		var admitted atomic.Int64
		var wg sync.WaitGroup
		gate := make(chan struct{})
		for range all {
			wg.Go(func() {
				<-gate
				c := claim(1)
				c.Money = money
				res, d, err := r.Reserve(ctx, c)
				switch {
				case err != nil:
					t.Error(err)
				case d != nil && d.Axis != axis:
					t.Errorf("refused by %v, want %v", d.Axis, axis)
				case d == nil:
					admitted.Add(1)
					if run%4 > 1 {
						res.Sent("main")
						res.Answered(200)
						res.Commit(llm.Usage{}, true)
					}
				}
			})
		}
		close(gate)
		wg.Wait()
		available, held := r.Balance(2)
		if n := admitted.Load(); n != most || available < 0 || run%4 > 1 && held != 0 {
			t.Fatalf("run %d: %d admitted; %d available, %d held", run, n, available, held)
		}
	}
}
