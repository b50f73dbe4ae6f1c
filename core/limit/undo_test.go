package limit

import (
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// A request that Extend refuses may be withdrawn: nothing of it is left. Once it was sent, its requests count.
func TestWithdraw(t *testing.T) {
	r := newRig(t, Options{})
	c := claim(1, dim(keyID(3), Limits{QPS: 5, TPM: 1000}))
	channel := dim(ID{Kind: Channel, Scope: 1}, Limits{QPS: 1})
	for _, sent := range []bool{true, false, false} {
		res := r.admit(c)
		if sent {
			if d, err := res.Extend(ctx, []Dim{channel}, 0); d != nil || err != nil {
				t.Fatal(d, err)
			}
			res.Sent("primary")
		} else if d, err := res.Extend(ctx, []Dim{channel}, 0); d == nil || err != nil {
			t.Fatal(d, err)
		}
		if s := res.Withdraw(); !s.First || (s.Status == llm.StatusPartial) != sent {
			t.Fatalf("%+v", s)
		}
		use, err := r.Inspect(ctx, keyID(3))
		if err != nil || use.QPS != 1 || use.TPMHeld != 0 || use.Concurrency != 0 {
			t.Fatalf("%+v, %v", use, err)
		}
		if s := res.Release(); s.First {
			t.Fatal("settled twice")
		}
	}
}

// What a stream was counted as beyond its hold, second by second, is taken back in each of those seconds when its provider
// reports less: the tokens of the window come to the actuals.
func TestOverrunComesToTheActuals(t *testing.T) {
	for _, algorithm := range []Algorithm{Sliding, Fixed} {
		r := newRig(t, Options{Algorithms: map[Kind]Windows{Key: {TPM: algorithm}}})
		c := claim(1, dim(keyID(3), Limits{TPM: 100_000}))
		c.Input, c.Output = 10, 100
		res := r.admit(c)
		res.Sent("primary")
		for total := llm.Tokens(100); total <= 1000; total += 100 {
			res.Relayed(total)
			r.clock.Advance(1100 * time.Millisecond)
		}
		if use, _ := r.Inspect(ctx, keyID(3)); use.TPM != 1010 || use.TPMHeld != 1010 {
			t.Errorf("%s: %+v while it runs", algorithm, use)
		}
		res.Commit(llm.Usage{InputTokens: 10, OutputTokens: 50}, true)
		if use, _ := r.Inspect(ctx, keyID(3)); use.TPM != 60 || use.TPMHeld != 0 {
			t.Errorf("%s: %+v, want the 60 of the report", algorithm, use)
		}
	}
}
