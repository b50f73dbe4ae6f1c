package badger_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/badger"
)

// The test binary runs itself as a child that works on a folder until it is killed.
const (
	childDir  = "WEIR_TEST_CHILD_DIR"
	childWork = "WEIR_TEST_CHILD_WORK"
)

var price = llm.Price{Input: 1_000_000, Output: 1_000_000} // one micro a token

// works are what a child may do. A work prints what was acknowledged, line by line, and never ends.
func works() map[string]func(l *ledger.Ledger) {
	return map[string]func(l *ledger.Ledger){
		"spend":  spend,
		"stream": stream,
		"load":   load,
	}
}

func child(dir string) {
	s, err := badger.Open(dir, badger.Options{})
	must(err)
	l, _, err := ledger.Open(s, ledger.Options{}, llm.NewSystemClock())
	must(err)
	must(l.Put(context.Background(), ledger.Change{Actor: "test"}, []ledger.Doc{{Kind: "user", ID: "1", Data: []byte("{}")}},
		[]llm.Entry{{Kind: llm.EntryCredit, UserID: 1, Cost: 1000}}))
	if os.Getenv(childWork) == "full" {
		liveThroughFull(dir, s, l)
	}
	works()[os.Getenv(childWork)](l)
	fmt.Println("ready")
	select {}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func reserve(id uint64, out llm.Tokens) *llm.Entry {
	return &llm.Entry{Kind: llm.EntryReserve, ID: id, UserID: 1, KeyID: 7, Label: 202611, Price: price, Billed: true, Model: "m",
		AtMS: time.Now().UnixMilli(), Usage: llm.Usage{InputTokens: 10}, Held: price.Hold(10, out)}
}

func settle(id uint64, out llm.Tokens) *llm.Entry {
	u := llm.Usage{InputTokens: 10, OutputTokens: out}
	return &llm.Entry{Kind: llm.EntrySettle, ID: id, Status: llm.StatusFinalized, Usage: u, Cost: price.Cost(u), AtMS: time.Now().UnixMilli()}
}

func write(l *ledger.Ledger, e *llm.Entry) {
	seq, err := l.Append(e)
	must(err)
	must(l.Wait(context.Background(), seq, time.Minute))
}

// spend uses up 900 of 1,000.
func spend(l *ledger.Ledger) {
	for range 9 {
		id := l.NextID()
		write(l, reserve(id, 90))
		write(l, settle(id, 90))
	}
}

// stream is in the middle of an answer.
func stream(l *ledger.Ledger) {
	id := l.NextID()
	write(l, reserve(id, 500))
	write(l, &llm.Entry{Kind: llm.EntryProgress, ID: id, Usage: llm.Usage{OutputTokens: 30}})
}

// load settles requests as fast as it can and tells each that was acknowledged.
func load(l *ledger.Ledger) {
	fmt.Println("ready")
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for {
				id := l.NextID()
				write(l, reserve(id, 90))
				write(l, settle(id, 20))
				fmt.Println(id)
			}
		})
	}
	wg.Wait()
}

// kill runs a work in a child, kills it the given time after it is ready, and gives the lines it printed.
func kill(t *testing.T, dir, work string, after time.Duration) []string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir, childWork+"="+work)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(err)
	must(cmd.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "ready" {
	}
	time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	var said []string
	for lines.Scan() {
		said = append(said, lines.Text())
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the child ended by itself: %v", err)
	}
	return said
}

// reopen is the next process's start. It closes and verifies when the test ends.
func reopen(t *testing.T, dir string) (*ledger.Ledger, ledger.State) {
	t.Helper()
	s := open(t, dir)
	l, state, err := ledger.Open(s, ledger.Options{}, llm.NewSystemClock())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		report, err := ledger.Verify(s)
		if err != nil || len(report.Problems) > 0 || report.Held != 0 {
			t.Errorf("Verify: %v, %q, held %d", err, report.Problems, report.Held)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, state
}

func TestM05KilledAt90Percent(t *testing.T) {
	dir := t.TempDir()
	kill(t, dir, "spend", 0)
	_, state := reopen(t, dir)
	if got := state.Balances[1].Available(); got != 100 {
		t.Errorf("available after a spend of 900 of 1,000 and kill -9: %d", got)
	}
	if len(state.Used) != 1 || state.Used[0] != (ledger.QuotaUse{Key: 7, Label: 202611, Used: 900}) {
		t.Errorf("used: %v", state.Used)
	}
}

func TestM08KilledInMidStream(t *testing.T) {
	dir := t.TempDir()
	kill(t, dir, "stream", 0)
	l, state := reopen(t, dir)
	if state.Recovered != 1 || state.Balances[1].Available() != 1000-40 {
		t.Errorf("recovered %d, available %d; want 1 and 960", state.Recovered, state.Balances[1].Available())
	}
	for r, err := range l.Records(ledger.Filter{}) {
		if err != nil || r.End.Status != llm.StatusPartial || !r.End.Estimated || r.End.Cost != 40 || r.End.Usage.OutputTokens != 30 {
			t.Errorf("record %+v, %v", r, err)
		}
	}
}

// Whatever was acknowledged before kill -9 is there after it, time and again in one folder.
func TestKilledUnderLoad(t *testing.T) {
	dir := t.TempDir()
	acknowledged := map[string]bool{}
	for _, after := range []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, 600 * time.Millisecond} {
		for _, id := range kill(t, dir, "load", after) {
			acknowledged[id] = true
		}
	}
	l, state := reopen(t, dir)
	recorded := map[string]bool{}
	var posted llm.Micro
	for r, err := range l.Records(ledger.Filter{Newest: true}) {
		if err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprint(r.End.ID)
		if recorded[id] {
			t.Fatalf("%s is recorded twice", id)
		}
		recorded[id] = true
		posted += r.End.Cost
	}
	for id := range acknowledged {
		if !recorded[id] {
			t.Errorf("%s was acknowledged and is not there", id)
		}
	}
	if got := state.Balances[1].Available(); got != 3*1000-posted {
		t.Errorf("available %d, want %d", got, 3*1000-posted)
	}
	t.Logf("%d acknowledged, %d recorded", len(acknowledged), len(recorded))
}
