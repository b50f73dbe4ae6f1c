package ledger_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/storetest"
)

const stall = ledger.DefaultStallMS * time.Millisecond

// hang makes the next write, or sync, of a store wait until it is released, as on a disk that does not answer.
func hang(t *testing.T, s *storetest.Memory, write bool) (entered chan struct{}, release func()) {
	entered, gate := make(chan struct{}, 100), make(chan struct{})
	wait := func() error {
		entered <- struct{}{}
		<-gate
		return nil
	}
	if write {
		s.Before(func(int, []ledger.Write) error { return wait() })
	} else {
		s.BeforeSync(func(int) error { return wait() })
	}
	release = sync.OnceFunc(func() { s.Before(nil); s.BeforeSync(nil); close(gate) })
	t.Cleanup(release) // before the ledger is closed
	return entered, release
}

// TestC12HungDisk: a write or a sync that neither returns nor fails. Once it has taken stall_ms, new reserves and changes
// are refused as unavailable (a 503), whatever acknowledged means; what is in flight goes on from memory and is in the log
// when the disk answers again; then all goes on by itself, and it is told.
func TestC12HungDisk(t *testing.T) {
	for name, c := range map[string]struct {
		how   ledger.Durability
		write bool
	}{"process, sync": {ledger.Process, false}, "process, write": {ledger.Process, true}, "power, sync": {ledger.Power, false}, "power, write": {ledger.Power, true}} {
		t.Run(name, func(t *testing.T) { hungDisk(t, c.how, c.write) })
	}
}

func hungDisk(t *testing.T, how ledger.Durability, write bool) {
	var out bytes.Buffer
	r := start(t, storetest.NewMemory(), ledger.Options{Durability: how, Log: slog.New(slog.NewTextHandler(&out, nil))})
	open, other := r.hold(50), r.hold(50)
	r.write(open)
	r.write(other)
	entered, release := hang(t, r.store, write)
	early := r.append(llm.Entry{Kind: llm.EntryProgress, ID: open.ID, Usage: llm.Usage{OutputTokens: 10}})
	<-entered
	r.clock.Advance(stall - time.Millisecond)
	r.Look()
	admitted := r.append(r.hold(1)) // not late yet
	acknowledges := how == ledger.Process && !write
	held := func() bool { return !acknowledges }
	if err := r.waitUnless(held, admitted); (err == nil) != acknowledges {
		t.Errorf("a reserve before the stall: %v", err)
	}
	r.clock.Advance(time.Millisecond)
	r.Look()
	for range 3 {
		late := r.hold(1)
		if _, err := r.Append(&late); code(err) != "ledger_unavailable" || !unavailable(err) || !strings.Contains(err.Error(), "2000 ms") {
			t.Fatalf("a reserve on a hung disk: %v", err)
		}
	}
	if err := r.Put(context.Background(), ledger.Change{}, nil, nil); !unavailable(err) || r.Healthy() == nil {
		t.Errorf("a change on a hung disk: %v, health: %v", err, r.Healthy())
	}
	end := r.append(r.settle(open.ID, 20))
	r.append(llm.Entry{Kind: llm.EntryProgress, ID: other.ID, Usage: llm.Usage{OutputTokens: 30}})
	if err := r.waitUnless(held, end); (err == nil) != acknowledges {
		t.Errorf("an ending on a hung disk: %v", err)
	}
	r.clock.Advance(time.Hour)
	release()
	for _, seq := range []uint64{early, admitted, end} {
		if err := r.wait(seq); err != nil {
			t.Errorf("when the disk answers: %v", err)
		}
	}
	waitFor(t, "the ledger to be up again", func() bool { return r.Healthy() == nil })
	again := r.hold(1)
	r.write(again)
	if report := r.verify(); report.Open != 3 || report.Posted != 140 || report.Entries != 7 {
		t.Errorf("%+v", report)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if said := out.String(); strings.Count(said, "is down") != 1 || strings.Count(said, "recovered") != 1 || !strings.Contains(said, "after=1h0m2s") {
		t.Errorf("told: %q", said)
	}
	after := start(t, r.store.CloneSynced(), ledger.Options{})
	if after.state.Recovered != 3 {
		t.Errorf("%d open after a power cut, want 3", after.state.Recovered)
	}
}

// Nobody has to look: the ledger does by itself.
func TestStallIsNoticed(t *testing.T) {
	r := fresh(t)
	entered, release := hang(t, r.store, true)
	seq := r.append(r.hold(1))
	<-entered
	r.clock.Advance(stall)
	waitFor(t, "the stall to be noticed", func() bool { return r.Healthy() != nil })
	release()
	if err := r.wait(seq); err != nil {
		t.Error(err)
	}
}

// What fails is told when it begins, with its cause, and when it is over.
func TestOutageIsTold(t *testing.T) {
	var out bytes.Buffer
	r := start(t, storetest.NewMemory(), ledger.Options{Durability: ledger.Power, Log: slog.New(slog.NewTextHandler(&out, nil))})
	e := r.hold(1)
	r.write(e)
	r.store.FailNext(3)
	r.write(r.void(e.ID))
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "level=ERROR") || !strings.Contains(lines[0], storetest.ErrInjected.Error()) ||
		!strings.Contains(lines[1], "recovered") || !strings.Contains(lines[1], storetest.ErrInjected.Error()) {
		t.Errorf("told: %q", lines)
	}
}
