package ledger_test

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/storetest"
)

// busy appends n requests of 40 users and 90 keys over three periods; some are voided, some talk, some stay open.
func (r *rig) busy(n int, random *rand.Rand) {
	r.t.Helper()
	var last uint64
	for i := range n {
		e := r.hold(llm.Tokens(random.IntN(100)))
		e.UserID, e.KeyID, e.Label = 1+random.Uint64N(40), 1+random.Uint64N(90), 202610+int32(random.IntN(3))
		e.Billed = random.IntN(20) > 0
		last = r.append(e)
		if random.IntN(4) == 0 {
			r.append(llm.Entry{Kind: llm.EntryProgress, ID: e.ID, Usage: llm.Usage{OutputTokens: llm.Tokens(random.IntN(100))}})
		}
		switch random.IntN(10) {
		case 0:
			last = r.append(r.void(e.ID))
		case 1: // stays open
		default:
			last = r.append(r.settle(e.ID, llm.Tokens(random.IntN(100))))
		}
		if i%2_000 == 1_999 {
			if err := r.wait(last); err != nil {
				r.t.Fatal(err)
			}
		}
		r.clock.Jump(10 * time.Millisecond) // the steady clock stands still: no write takes long
	}
	if err := r.wait(last); err != nil {
		r.t.Fatal(err)
	}
}

// wantSnapshot: the totals in the store are those of the log, and nothing else, byte for byte.
func wantSnapshot(t *testing.T, s *storetest.Memory) {
	t.Helper()
	folded, err := ledger.FoldFromZero(s)
	if err != nil {
		t.Fatal(err)
	}
	stored := 0
	for _, prefix := range []string{"u", "q"} {
		err := s.Scan([]byte(prefix), nil, false, func(k, v []byte) bool {
			stored++
			if want, ok := folded[string(k)]; !ok || !bytes.Equal(v, want) {
				t.Errorf("key %q: stored %x, the log folds to %x", k, v, want)
			}
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if stored != len(folded) {
		t.Errorf("%d totals are stored, the log folds to %d", stored, len(folded))
	}
}

// TestC10ReplayEqualsSnapshot: after credits, requests, failures, crashes and their recoveries.
func TestC10ReplayEqualsSnapshot(t *testing.T) {
	random := rand.New(rand.NewPCG(10, 10))
	r := fresh(t)
	for life := range 4 {
		for user := range uint64(50) {
			r.credit(user+1, llm.Micro(random.IntN(10_000))-2_000)
		}
		r.store.FailNext(life)
		orphan := r.hold(5)
		_ = r.wait(r.append(orphan))
		r.write(r.settle(orphan.ID, 5))
		waitFor(t, "the store to be up", func() bool { return r.Healthy() == nil })
		r.busy(2_000, random)
		wantSnapshot(t, r.store)
		r.verify()
		r = r.killed()
		wantSnapshot(t, r.store)
		r.verify()
	}
}

// TestC10ReplayIsQuick: 1,000,000 entries verify within 10 s (100,000 without -long).
func TestC10ReplayIsQuick(t *testing.T) {
	n := 100_000
	if *ledger.Long {
		n = 1_000_000
	}
	r := fresh(t)
	r.busy(n*100/215, rand.New(rand.NewPCG(1, 1)))
	at := time.Now()
	report, err := ledger.Verify(r.store)
	took := time.Since(at)
	if err != nil || len(report.Problems) > 0 || report.Entries < n*98/100 {
		t.Fatalf("%v, %+v", err, report)
	}
	if took > 10*time.Second {
		t.Errorf("%d entries took %v", report.Entries, took)
	}
	t.Logf("%d entries took %v", report.Entries, took)
}
