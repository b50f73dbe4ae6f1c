package ledger_test

import (
	"testing"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
)

// A request that a killed process left open is settled at the service tier it was held at.
func TestRecoveryKeepsTheServiceTier(t *testing.T) {
	r := fresh(t)
	r.credit(1, 1_000_000)
	e := r.hold(50)
	e.Price, e.ServiceTier = price.Scale(2500), "priority"
	if err := r.wait(r.append(e)); err != nil {
		t.Fatal(err)
	}
	k := r.killed()
	n := 0
	for rec, err := range k.Records(ledger.Filter{}) {
		if n++; err != nil || rec.Reserve.ServiceTier != "priority" || rec.End.ServiceTier != "priority" ||
			rec.End.Cost != price.Scale(2500).Cost(llm.Usage{InputTokens: e.Usage.InputTokens}) {
			t.Errorf("%+v, %v", rec, err)
		}
	}
	if n != 1 {
		t.Errorf("%d records", n)
	}
}
