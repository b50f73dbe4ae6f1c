package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/storetest"
)

// outage is a store that fails from some call on, until it is over.
type outage struct {
	begun, over atomic.Bool
}

func (o *outage) at(n int) func(call int) error {
	return func(call int) error {
		if call < n || o.over.Load() {
			return nil
		}
		o.begun.Store(true)
		return storetest.ErrInjected
	}
}

func (o *outage) on() bool { return o.begun.Load() && !o.over.Load() }

// TestC12OutageFromTheNthCall: whichever write or sync is the first to fail, as on a full disk, from then on new reserves
// are refused as unavailable (a 503) and nothing is acknowledged; what was in flight is written when the store is back;
// then all goes on, and nothing is lost or doubled, also not by a power cut right after.
func TestC12OutageFromTheNthCall(t *testing.T) {
	for _, how := range []string{"write", "landed write", "sync"} {
		for n := 1; n <= 16; n++ {
			t.Run(fmt.Sprintf("%s/%d", how, n), func(t *testing.T) { outageFrom(t, how, n) })
		}
	}
}

func outageFrom(t *testing.T, how string, n int) {
	r := start(t, storetest.NewMemory(), ledger.Options{Durability: ledger.Power})
	o := &outage{}
	switch how {
	case "write":
		fail := o.at(r.store.Applies() + n)
		r.store.Before(func(call int, _ []ledger.Write) error { return fail(call) })
	case "landed write":
		r.store.After(o.at(r.store.Applies() + n))
	case "sync":
		r.store.BeforeSync(o.at(r.store.Syncs() + n))
	}
	var posted llm.Micro
	var late []uint64 // tickets of endings that the outage holds up
	for i := 0; !o.begun.Load(); i++ {
		e, out := r.hold(50), llm.Tokens(i)
		if err := r.wait(r.append(e)); (err == nil) == o.on() || err != nil && code(err) != "ledger_unavailable" {
			t.Fatalf("reserve %d: %v, the outage is on: %v", i, err, o.on())
		} else if err != nil {
			r.append(r.void(e.ID))
			break
		}
		end := r.settle(e.ID, out)
		posted += end.Cost
		seq := r.append(end)
		if err := r.waitUnless(o.on, seq); (err == nil) == o.on() {
			t.Fatalf("ending %d: %v, the outage is on: %v", i, err, o.on())
		} else if err != nil {
			late = append(late, seq)
		}
	}
	if r.Healthy() == nil {
		t.Fatal("healthy in an outage")
	}
	refused := r.hold(1)
	if _, err := r.Append(&refused); !unavailable(err) {
		t.Errorf("a new reserve: %v", err)
	}
	if err := r.Put(context.Background(), ledger.Change{}, nil, []llm.Entry{{Kind: llm.EntryCredit, UserID: 1, Cost: 1}}); !unavailable(err) {
		t.Errorf("a top-up: %v", err)
	}
	o.over.Store(true)
	for _, seq := range late {
		if err := r.wait(seq); err != nil {
			t.Errorf("an ending, when the store is back: %v", err)
		}
	}
	waitFor(t, "Healthy", func() bool { return r.Healthy() == nil })
	e := r.hold(50)
	r.write(e)
	r.write(r.settle(e.ID, 10))
	posted += 120
	if report := r.verify(); report.Posted != posted || report.Open != 0 {
		t.Errorf("%+v, want %d posted", report, posted)
	}
	after := start(t, r.store.CloneSynced(), ledger.Options{})
	after.wantMoney(-posted, posted)
}

func unavailable(err error) bool {
	var e *llm.Error
	return errors.As(err, &e) && e.Kind == llm.KindUnavailable
}

// waitUnless waits as long as it takes, but when the store is held up.
func (r *rig) waitUnless(held func() bool, seq uint64) error {
	err := r.Wait(context.Background(), seq, 20*time.Millisecond)
	if code(err) == "ledger_timeout" && !held() {
		err = r.wait(seq)
	}
	return err
}
