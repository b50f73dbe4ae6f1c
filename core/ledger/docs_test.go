package ledger_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
)

func (r *rig) docs(kind string) []string {
	r.t.Helper()
	var all []string
	for d, err := range r.Docs(kind) {
		if err != nil {
			r.t.Fatalf("Docs: %v", err)
		}
		all = append(all, d.ID+"="+string(d.Data))
	}
	return all
}

func (r *rig) putDocs(docs ...ledger.Doc) error {
	return r.Put(context.Background(), ledger.Change{Actor: "admin", Action: "test"}, docs, nil)
}

func TestDocs(t *testing.T) {
	r := fresh(t)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(r.putDocs(ledger.Doc{"key", "10", []byte("ten")}, ledger.Doc{"key", "9", []byte("nine")}, ledger.Doc{"key", "a", []byte("A")},
		ledger.Doc{"keys", "1", []byte("another kind")}, ledger.Doc{"key", "007", []byte("text")}, ledger.Doc{"key", "100", []byte{}}))
	want := []string{"9=nine", "10=ten", "100=", "007=text", "a=A"}
	if got := r.docs("key"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	check(r.putDocs(ledger.Doc{"key", "10", nil}, ledger.Doc{"key", "a", nil}))
	if d, ok, err := r.Doc("key", "10"); ok || err != nil {
		t.Errorf("a deleted document: %v %v", d, err)
	}
	if d, ok, err := r.Doc("key", "9"); !ok || err != nil || string(d.Data) != "nine" {
		t.Errorf("Doc: %v %v %v", d, ok, err)
	}
	if err := r.putDocs(ledger.Doc{"key", "10", []byte("back")}); code(err) != "deleted" {
		t.Errorf("a deleted number came back: %v", err)
	}
	check(r.putDocs(ledger.Doc{"key", "a", []byte("B")})) // names may
	r = r.killed()
	if got, want := r.docs("key"), []string{"9=nine", "100=", "007=text", "a=B"}; !slices.Equal(got, want) {
		t.Errorf("after a restart: %q, want %q", got, want)
	}
	if id := r.NextDocID("key"); id != 101 {
		t.Errorf("next is %d, want 101", id)
	}
}

func TestDocsInPages(t *testing.T) {
	r := fresh(t)
	for i := range 200 {
		if err := r.putDocs(ledger.Doc{"key", fmt.Sprint(i + 1), []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for d, err := range r.Docs("key") {
		if n++; err != nil || d.ID != fmt.Sprint(n) {
			t.Fatalf("document %d is %v, %v", n, d, err)
		}
		if err := r.putDocs(ledger.Doc{"key", d.ID, nil}); err != nil { // changing on the way is fine
			t.Fatal(err)
		}
	}
	if n != 200 {
		t.Errorf("%d documents, want 200", n)
	}
}

func TestNextDocID(t *testing.T) {
	r := fresh(t)
	for want := uint64(1); want <= 3; want++ {
		if id := r.NextDocID("org"); id != want {
			t.Errorf("got %d, want %d", id, want)
		}
	}
	if err := r.putDocs(ledger.Doc{"org", "3", []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if err := r.putDocs(ledger.Doc{"org", "3", nil}); err != nil {
		t.Fatal(err)
	}
	r = r.killed()
	if id := r.NextDocID("org"); id != 4 {
		t.Errorf("after a restart: %d, want 4", id)
	}
}

func TestPutRefuses(t *testing.T) {
	r := fresh(t)
	ctx := context.Background()
	many := make([]ledger.Doc, 1000)
	for _, c := range []struct {
		name    string
		change  ledger.Change
		docs    []ledger.Doc
		credits []llm.Entry
	}{
		{name: "no kind", docs: []ledger.Doc{{"", "1", nil}}},
		{name: "no id", docs: []ledger.Doc{{"key", "", nil}}},
		{name: "NUL", docs: []ledger.Doc{{"k\x00", "1", nil}}},
		{name: "long id", docs: []ledger.Doc{{"key", strings.Repeat("x", 1000), nil}}},
		{name: "many", docs: many},
		{name: "much", docs: []ledger.Doc{{"a", "1", make([]byte, 40_000)}, {"a", "2", make([]byte, 40_000)}, {"a", "3", make([]byte, 40_000)}, {"a", "4", make([]byte, 40_000)}, {"a", "5", make([]byte, 40_000)}}},
		{name: "long key", change: ledger.Change{Idempotency: strings.Repeat("x", 1000)}},
		{name: "not a credit", credits: []llm.Entry{{Kind: llm.EntrySettle}}},
	} {
		if err := r.Put(ctx, c.change, c.docs, c.credits); err == nil {
			t.Errorf("%s: was taken", c.name)
		}
	}
	for range r.Audit(0) {
		t.Fatal("a refused change is in the audit chain")
	}
}

func TestPutCancelled(t *testing.T) {
	r := fresh(t)
	gate, entered := make(chan struct{}), make(chan struct{}, 9)
	r.store.Before(func(int, []ledger.Write) error { entered <- struct{}{}; <-gate; return nil })
	r.append(r.hold(1))
	<-entered
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(5*time.Millisecond, cancel)
	if err := r.Put(ctx, ledger.Change{}, []ledger.Doc{{"key", "1", []byte("x")}}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Put: %v", err)
	}
	close(gate)
	r.credit(1, 1)
	if got := r.docs("key"); len(got) != 0 {
		t.Errorf("a withdrawn change was written: %q", got)
	}
}

func TestM11Idempotency(t *testing.T) {
	r := fresh(t)
	ctx := context.Background()
	change := func(body string) ledger.Change {
		return ledger.Change{Actor: "admin", Action: "user.credit", Idempotency: "top-up-1",
			Request: sha256.Sum256([]byte(body)), Answer: []byte("answer to " + body)}
	}
	credit := []llm.Entry{{Kind: llm.EntryCredit, UserID: 1, Cost: 100}}
	gate, entered := make(chan struct{}), make(chan struct{}, 200) // until all hundred are in the queue
	r.store.Before(func(int, []ledger.Write) error { entered <- struct{}{}; <-gate; return nil })
	r.append(llm.Entry{Kind: llm.EntryReserve, ID: r.NextID()})
	<-entered
	time.AfterFunc(50*time.Millisecond, func() { close(gate) })
	var wg sync.WaitGroup
	var mu sync.Mutex
	applied, answers := 0, map[string]int{}
	for range 100 {
		wg.Go(func() {
			did, answer, err := r.PutOnce(ctx, change("a"), nil, credit)
			if err != nil {
				t.Errorf("PutOnce: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			answers[string(answer)]++
			if did {
				applied++
			}
		})
	}
	wg.Wait()
	if applied != 1 || answers["answer to a"] != 100 {
		t.Errorf("applied %d times, answers %v", applied, answers)
	}
	var e *llm.Error
	if err := r.Put(ctx, change("b"), nil, credit); !errors.As(err, &e) || e.Kind != llm.KindConflict {
		t.Errorf("the same key for another body: %v", err)
	}
	if _, _, err := r.Replay("top-up-1", change("b").Request); !errors.As(err, &e) || e.Kind != llm.KindConflict {
		t.Errorf("Replay of another body: %v", err)
	}
	r = r.restart()
	r.wantMoney(100, 0)
	if a, ok, err := r.Replay("top-up-1", change("a").Request); string(a) != "answer to a" || !ok || err != nil {
		t.Errorf("Replay after a restart: %q %v %v", a, ok, err)
	}
	lines := 0
	for range r.Audit(0) {
		lines++
	}
	if lines != 1 {
		t.Errorf("%d audit lines of one change", lines)
	}
}

func TestAnswersAreKeptADay(t *testing.T) {
	r := fresh(t)
	c := ledger.Change{Idempotency: "k", Answer: []byte("first")}
	if err := r.Put(context.Background(), c, nil, nil); err != nil {
		t.Fatal(err)
	}
	r.clock.Advance(24*time.Hour - time.Second)
	if _, ok, _ := r.Replay("k", [32]byte{}); !ok {
		t.Error("forgotten within the day")
	}
	r.clock.Advance(2 * time.Second)
	if _, ok, _ := r.Replay("k", [32]byte{}); ok {
		t.Error("kept after the day")
	}
	other := ledger.Change{Idempotency: "other"}
	if err := r.Put(context.Background(), other, nil, nil); err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := r.store.Get([]byte("ik")); ok {
		t.Error("an expired answer stays in the store")
	}
	c.Request[0] = 1
	if did, _, err := r.PutOnce(context.Background(), c, nil, nil); !did || err != nil {
		t.Errorf("the key used anew: %v %v", did, err)
	}
}

func TestAudit(t *testing.T) {
	r := fresh(t)
	for i := range 150 {
		c := ledger.Change{Actor: "admin", Action: "key.limits", Target: fmt.Sprint("key:", i), Before: []byte(`{"a":1}`),
			After: []byte(`{"a":2}`), Idempotency: fmt.Sprint(i), Request: [32]byte{1}, Answer: []byte("secret")}
		if err := r.Put(context.Background(), c, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	r = r.restart()
	want := uint64(150)
	for a, err := range r.Audit(0) {
		if err != nil || a.Seq != want || a.Change.Target != fmt.Sprint("key:", want-1) || a.AtMS != noon.UnixMilli() {
			t.Fatalf("line %d: %+v, %v", want, a, err)
		}
		if a.Change.Answer != nil || a.Change.Request != [32]byte{} {
			t.Fatal("an answer, which may hold a secret, is in the chain")
		}
		want--
	}
	if want != 0 {
		t.Errorf("the visit ended at line %d", want)
	}
	var seqs []uint64
	for a := range r.Audit(3) {
		seqs = append(seqs, a.Seq)
	}
	if d := cmp.Diff([]uint64{3, 2, 1}, seqs); d != "" {
		t.Error(d)
	}
	r.verify()
}
