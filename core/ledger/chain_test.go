package ledger_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/storetest"
)

// sorted is a store to read from: writes in the order of their keys.
type sorted struct {
	*storetest.Memory
	writes []ledger.Write
}

func (s sorted) Scan(_, _ []byte, _ bool, visit func(key, value []byte) bool) error {
	for _, w := range s.writes {
		if !visit(w.Key, w.Value) {
			break
		}
	}
	return nil
}

func problems(t *testing.T, writes []ledger.Write) []string {
	t.Helper()
	report, err := ledger.Verify(sorted{writes: writes})
	if err != nil {
		t.Fatal(err)
	}
	return report.Problems
}

// TestC9AuditIsQuick: 1,000,000 lines verify within 5 s.
func TestC9AuditIsQuick(t *testing.T) {
	n := 100_000
	if *ledger.Long {
		n = 1_000_000
	}
	lines := ledger.AuditLines(n)
	at := time.Now()
	if p := problems(t, lines); len(p) > 0 {
		t.Fatal(p)
	}
	if took := time.Since(at); took > 5*time.Second {
		t.Errorf("%d lines took %v", n, took)
	} else {
		t.Logf("%d lines took %v", n, took)
	}
}

// TestC9AuditNamesTheLine: whichever line is changed, taken out, doubled under another number or put in another's place,
// the first problem names it; the last ones too.
func TestC9AuditNamesTheLine(t *testing.T) {
	const n = 200
	random := rand.New(rand.NewPCG(9, 9))
	whole := ledger.AuditLines(n)
	if p := problems(t, whole); len(p) > 0 {
		t.Fatal(p)
	}
	for i := range n {
		line := fmt.Sprintf("audit: line %d ", i+1)
		edited := slices.Clone(whole)
		edited[i].Value = bytes.Clone(edited[i].Value)
		edited[i].Value[random.IntN(len(edited[i].Value))] ^= byte(1 + random.IntN(255))
		if p := problems(t, edited); len(p) == 0 || !strings.HasPrefix(p[0], line) {
			t.Errorf("line %d edited: %q", i+1, p)
		}
		if p := problems(t, slices.Delete(slices.Clone(whole), i, i+1)); len(p) == 0 || p[0] != line+"is missing" {
			t.Errorf("line %d removed: %q", i+1, p)
		}
		swapped := slices.Clone(whole)
		j := (i + 1 + random.IntN(n-1)) % n
		swapped[i].Value, swapped[j].Value = swapped[j].Value, swapped[i].Value
		if p := problems(t, swapped); len(p) == 0 || !strings.HasPrefix(p[0], fmt.Sprintf("audit: line %d ", min(i, j)+1)) {
			t.Errorf("lines %d and %d swapped: %q", i+1, j+1, p)
		}
		if p := problems(t, slices.Delete(slices.Clone(whole), i, n)); len(p) == 0 || !strings.Contains(p[0], fmt.Sprint(i+1)) {
			t.Errorf("lines from %d removed: %q", i+1, p)
		}
	}
	forged := slices.Clone(whole)
	ledger.ForgeAudit(forged, 41, false)
	if p := problems(t, forged); len(p) == 0 || p[0] != "audit: line 43 was changed" {
		t.Errorf("line 42 forged with its hash: %q", p)
	}
	forged = slices.Clone(whole)
	ledger.ForgeAudit(forged, 41, true)
	if p := problems(t, forged); len(p) != 1 || p[0] != "audit: line 44 does not follow from line 43" {
		t.Errorf("line 42 forged with its hash, and the next: %q", p)
	}
	if p := problems(t, whole[:n]); len(p) != 1 || !strings.Contains(p[0], "line 200 is the last") {
		t.Errorf("without its end: %q", p)
	}
}

// A chain whose newest line is gone is not continued.
func TestC9AuditEndGone(t *testing.T) {
	r := fresh(t)
	r.credit(1, 1)
	r.credit(1, 1)
	if err := r.store.Apply([]ledger.Write{{Key: []byte("a\x00\x00\x00\x00\x00\x00\x00\x02")}}, false); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ledger.Open(r.store.Clone(), ledger.Options{}, llm.NewFakeClock(noon)); err == nil || !strings.Contains(err.Error(), "ends at line 1, and line 2 was written last") {
		t.Errorf("opened: %v", err)
	}
}
