package ledger_test

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/storetest"
)

// TestC3ExactlyOnceSettlement: a settle, a void and a crash with its recovery race for each of 10,000 reservations
// (100,000 with -long). One of them has its effect; whoever comes later is told by name what it lost to.
func TestC3ExactlyOnceSettlement(t *testing.T) {
	const perRound = 500
	rounds := 20
	if *ledger.Long {
		rounds = 200
	}
	random := rand.New(rand.NewPCG(3, 3))
	met := map[string]int{}
	for range rounds {
		settlementRound(t, perRound, random, met)
	}
	for _, how := range []string{"settled", "voided", "recovered"} {
		if met[how] == 0 {
			t.Errorf("no reservation was %s in the killed process: the race was not one", how)
		}
	}
	t.Logf("%d reservations; the log of the killed process had %v", rounds*perRound, met)
}

func settlementRound(t *testing.T, n int, random *rand.Rand, met map[string]int) {
	r := fresh(t)
	r.credit(1, 1_000_000)
	ids := make([]uint64, n)
	var last uint64
	for i := range ids {
		e := r.hold(50)
		ids[i], last = e.ID, r.append(e)
	}
	if err := r.wait(last); err != nil {
		t.Fatal(err)
	}
	killAt, killed := random.IntN(2*n), make(chan *storetest.Memory, 1)
	racers := r.race(ids, func(done int) {
		if done == killAt {
			killed <- r.store.Clone()
		}
	})
	ended := r.endings()
	for i, id := range ids {
		won := ended[id]
		if (racers[0][i] == "") == (racers[1][i] == "") || won.Kind == llm.EntrySettle != (racers[0][i] == "") {
			t.Fatalf("settle: %q, void: %q, and the log has %v", racers[0][i], racers[1][i], won)
		}
		if lost := racers[0][i] + racers[1][i]; lost != lostTo(won) {
			t.Fatalf("the loser was told %q, the log has %v", lost, won)
		}
	}
	r.sumsAgree(ended, n)

	k := start(t, <-killed, ledger.Options{})
	ended = k.endings()
	late := k.race(ids, func(int) {})
	for i, id := range ids {
		won := ended[id]
		if late[0][i] != lostTo(won) || late[1][i] != lostTo(won) {
			t.Fatalf("after the recovery settle: %q, void: %q, and the log has %v", late[0][i], late[1][i], won)
		}
		met[wayOut(won)]++
	}
	if again := k.endings(); len(again) != n {
		t.Fatalf("%d endings after late ones were refused, %d before", len(again), n)
	}
	k.sumsAgree(ended, n)
	for _, l := range []*rig{r, k} {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func lostTo(e llm.Entry) string {
	return map[llm.EntryKind]string{llm.EntrySettle: "already_settled", llm.EntryVoid: "already_voided"}[e.Kind]
}

func wayOut(e llm.Entry) string {
	switch {
	case e.Kind == llm.EntryVoid:
		return "voided"
	case e.Estimated:
		return "recovered"
	}
	return "settled"
}

// race settles and voids every reservation at once, from four goroutines each, and gives the codes of the outcomes.
// before is called ahead of each ending with how many began before it.
func (r *rig) race(ids []uint64, before func(done int)) (codes [2][]string) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	begun := 0
	for side := range codes {
		codes[side] = make([]string, len(ids))
		for g := range 4 {
			wg.Go(func() {
				for i := g; i < len(ids); i += 4 {
					mu.Lock()
					before(begun)
					begun++
					mu.Unlock()
					e := r.settle(ids[i], 10)
					if side == 1 {
						e = r.void(ids[i])
					}
					seq, err := r.Append(&e)
					if err == nil {
						err = r.wait(seq)
					}
					if err != nil {
						codes[side][i] = code(err)
					}
				}
			})
		}
	}
	wg.Wait()
	return codes
}

// endings gives the one ending of each reservation.
func (r *rig) endings() map[uint64]llm.Entry {
	r.t.Helper()
	ended := map[uint64]llm.Entry{}
	for _, rec := range r.records(ledger.Filter{}) {
		if before, twice := ended[rec.End.ID]; twice {
			r.t.Fatalf("reservation %d ended twice: %v and %v", rec.End.ID, before, rec.End)
		}
		ended[rec.End.ID] = rec.End
	}
	return ended
}

// sumsAgree: the totals have each ending once.
func (r *rig) sumsAgree(ended map[uint64]llm.Entry, n int) {
	r.t.Helper()
	var posted llm.Micro
	for _, e := range ended {
		posted += e.Cost
	}
	report := r.verify()
	if len(ended) != n || report.Posted != posted || report.Held != 0 || report.Open != 0 {
		r.t.Fatalf("%d of %d ended at %d in sum; the log adds up to %+v", len(ended), n, posted, report)
	}
}
