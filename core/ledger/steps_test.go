package ledger_test

import (
	"context"
	"testing"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/storetest"
)

// What a kill between any two writes leaves is what the table in the package's documentation says.
func TestKilledBetweenSteps(t *testing.T) {
	r := fresh(t)
	a, b := r.hold(50), r.hold(50) // 100 tokens of input each, at 1; output at 2
	top := ledger.Change{Actor: "admin", Idempotency: "k", Answer: []byte("yes")}
	put := func(l *ledger.Ledger) (bool, []byte, error) {
		return l.PutOnce(context.Background(), top, nil, []llm.Entry{{Kind: llm.EntryCredit, UserID: 1, Cost: 1_000}})
	}
	for _, step := range []struct {
		name          string
		write         func()
		before, after llm.Micro // available, when killed before and after the write
	}{
		{"top-up", func() { _, _, _ = put(r.Ledger) }, 0, 1_000},
		{"reserve", func() { r.append(a) }, 1_000, 900},
		{"progress", func() { r.append(llm.Entry{Kind: llm.EntryProgress, ID: a.ID, Usage: llm.Usage{OutputTokens: 30}}) }, 900, 840},
		{"settle", func() { r.append(r.settle(a.ID, 50)) }, 840, 800},
		{"another reserve", func() { r.append(b) }, 800, 700},
		{"void", func() { r.append(r.void(b.ID)) }, 700, 800},
	} {
		clones := make(chan *storetest.Memory, 2)
		r.store.Before(func(int, []ledger.Write) error { clones <- r.store.Clone(); return nil })
		r.store.After(func(int) error { clones <- r.store.Clone(); return nil })
		step.write()
		for i, want := range []llm.Micro{step.before, step.after} {
			k := start(t, <-clones, ledger.Options{})
			if got := k.state.Balances[1].Available(); got != want {
				t.Errorf("killed %s the %s was written: available %d, want %d", []string{"before", "after"}[i], step.name, got, want)
			}
			if report := k.verify(); report.Held != 0 {
				t.Errorf("%s: held %d", step.name, report.Held)
			}
			if applied, answer, err := put(k.Ledger); err != nil || string(answer) != "yes" || applied != (step.name == "top-up" && i == 0) {
				t.Errorf("%s: the top-up repeated: %v %q %v", step.name, applied, answer, err)
			}
			_ = k.Close()
		}
	}
}
