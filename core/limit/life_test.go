package limit

import (
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// soon fails the test when f does not end.
func soon(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { f(); close(done) }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal(what + " does not end")
	}
}

func freeClaim() *Claim {
	c := claim(10, dim(keyID(3), Limits{TPM: 1000}))
	c.Output = 16
	c.Money = Money{Billed: true, Balance: true, Quotas: [llm.Windows]Quota{{Label: 202611, Limit: 1_000}}}
	return c
}

func TestMoneyMetersOutliveTheHoldsThatReferToThem(t *testing.T) {
	r := newRig(t, Options{})
	res := r.admit(freeClaim())
	r.clock.Advance(66 * time.Second)
	r.sweep()
	if r.Meters() != 3 {
		t.Fatalf("%d meters are left of the key's, the balance's and the quota's", r.Meters())
	}
	soon(t, "a top-up of a free model after a long silence", func() {
		if d, err := res.Extend(ctx, nil, 100); d != nil || err != nil {
			t.Errorf("%+v %v", d, err)
		}
	})
	res.Commit(llm.Usage{InputTokens: 10, OutputTokens: 116}, true)
	r.clock.Advance(200 * time.Second)
	r.sweep()
	if r.Meters() != 0 {
		t.Fatalf("%d meters are left, nothing uses them", r.Meters())
	}
}

func TestASweptMeterOfAHoldIsAnErrorAndNoLoop(t *testing.T) {
	r := newRig(t, Options{})
	res := r.admit(freeClaim())
	res.hold.balance.mu.dead = true // cannot happen
	soon(t, "Extend", func() {
		if _, err := res.Extend(ctx, nil, 100); err == nil {
			t.Error("no error")
		}
	})
	res.Release()
}

func TestTheLeakNetWaitsForNobody(t *testing.T) {
	r := newRig(t, Options{})
	res := r.admit(freeClaim())
	h := res.enter(stateBusy)
	r.clock.Advance(2 * leakAfter)
	soon(t, "the sweep", r.sweep)
	h.leave()
	if r.Open() != 1 {
		t.Fatal("a busy hold was ended")
	}
	r.sweep()
	if r.Open() != 0 {
		t.Fatal("a leaked hold stays open")
	}
	if s := res.Release(); s.First {
		t.Fatal("settled twice")
	}
}

// A first byte does not come after the last.
func TestTheFirstByteIsNotLaterThanTheEnd(t *testing.T) {
	r := newRig(t, Options{})
	res := r.admit(claim(1, dim(keyID(3), Limits{})))
	res.Sent("up")
	res.Answered(200)
	res.Commit(llm.Usage{InputTokens: 1}, true)
	if e := r.journal.last(t); e.FirstMS != 1 || e.LatencyMS != 1 {
		t.Fatalf("first byte after %d ms, all after %d ms", e.FirstMS, e.LatencyMS)
	}
}

// seeing is a journal that looks at a user's money as each entry comes.
type seeing struct {
	*tape
	look func(llm.EntryKind)
}

func (j *seeing) Append(e *llm.Entry) (uint64, error) {
	j.look(e.Kind)
	return j.tape.Append(e)
}

// Money is held before its reserve is queued, and free again only after its ending is: so every prefix of the log has room
// for what it admits.
func TestMoneyIsFreedBehindTheJournal(t *testing.T) {
	for _, commit := range []bool{true, false} {
		var m *Memory
		held := map[llm.EntryKind]llm.Micro{}
		j := &seeing{new(tape), nil}
		j.look = func(k llm.EntryKind) { _, held[k] = m.Balance(2) }
		m = New(Options{}, llm.NewFakeClock(start), j)
		m.LoadBalance(2, 1_000, 0)
		c := claim(10)
		c.Money = Money{Price: llm.Price{Request: 100}, Billed: true, Balance: true}
		soon(t, "a request whose journal looks at the balance", func() {
			res, d, err := m.Reserve(ctx, c)
			if d != nil || err != nil {
				t.Errorf("%+v %v", d, err)
			}
			if commit {
				res.Sent("c")
				res.Commit(llm.Usage{}, true)
			}
			res.Release()
		})
		end := map[bool]llm.EntryKind{true: llm.EntrySettle, false: llm.EntryVoid}[commit]
		if held[llm.EntryReserve] != 100 || held[end] != 100 {
			t.Errorf("as the entries came %v was held, want 100", held)
		}
		if _, after := m.Balance(2); after != 0 {
			t.Errorf("%d held after the end", after)
		}
		m.Close()
	}
}
