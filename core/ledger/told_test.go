package ledger_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-gateway/weir/core/ledger"
)

// What was told is there after a kill, the newest of each key and window; a write that failed leaves the one before; and
// it is no entry and no line of the audit chain.
func TestToldSurvivesKill(t *testing.T) {
	both(t, func(t *testing.T, r *rig, fail func(int)) {
		tell := func(key uint64, label int32, percent int) error {
			return r.Tell(context.Background(), ledger.Told{Key: key, Label: label, Percent: percent})
		}
		for _, told := range []ledger.Told{{7, 202611, 50}, {8, 202611, 50}, {7, 20261130, 100}, {7, 2026334, 80}, {7, 202611, 80}, {7, 20261201, 50}} {
			if err := tell(told.Key, told.Label, told.Percent); err != nil {
				t.Fatal(err)
			}
		}
		fail(1)
		if err := tell(7, 202612, 50); !unavailable(err) {
			t.Errorf("Tell over a failing store: %v", err)
		}
		waitFor(t, "the store to be clean again", func() bool { return r.Healthy() == nil })
		for range r.Audit(0) {
			t.Fatal("an alert is in the audit chain")
		}
		if report := r.verify(); report.Entries != 0 {
			t.Errorf("an alert is in the log: %+v", report)
		}
		k := r.killed()
		want := []ledger.Told{{7, 202611, 80}, {7, 2026334, 80}, {7, 20261201, 50}, {8, 202611, 50}}
		if d := cmp.Diff(want, k.state.Told); d != "" {
			t.Error(d)
		}
	})
}
