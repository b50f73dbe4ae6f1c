package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/storetest"
)

func restore(t *testing.T, backup []byte) (*storetest.Memory, error) {
	t.Helper()
	s := storetest.NewMemory()
	_, err := ledger.Restore(bytes.NewReader(backup), s)
	return s, err
}

// A backup that is taken while requests go on is one moment of the ledger: what is restored verifies, and is what a
// start at that moment would have found.
func TestBackupWhileRunning(t *testing.T) {
	r, third := grown(t)
	r.prune(third)
	if err := r.putDocs(ledger.Doc{Kind: "module", ID: "m", Data: bytes.Repeat([]byte("wasm"), 1<<18)}); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				r.busy(10, rand.New(rand.NewPCG(1, 1)))
			}
		}
	}()
	for range 2 {
		var b bytes.Buffer
		c, err := r.Backup(&b)
		if err != nil || c.Bytes != int64(b.Len()) {
			t.Fatalf("%+v of %d bytes, %v", c, b.Len(), err)
		}
		if checked, err := ledger.CheckBackup(bytes.NewReader(b.Bytes())); err != nil || checked != c {
			t.Fatalf("CheckBackup: %+v, %v; want %+v", checked, err, c)
		}
		s, err := restore(t, b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		start(t, s.CloneSynced(), ledger.Options{}).verify()
	}
	close(stop)
	<-stopped
	var b bytes.Buffer
	if _, err := r.Backup(&b); err != nil {
		t.Fatal(err)
	}
	s, err := restore(t, b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	back, killed := start(t, s, ledger.Options{}), r.killed()
	if d := cmp.Diff(killed.state, back.state); d != "" {
		t.Errorf("restored is not what was: %s", d)
	}
	if d, ok, err := back.Doc("module", "m"); !ok || err != nil || len(d.Data) != 1<<20 {
		t.Errorf("a large document: %d bytes, %v, %v", len(d.Data), ok, err)
	}
}

// A backup that is cut or changed anywhere is refused, and what was restored of it is not opened.
func TestBackupDamaged(t *testing.T) {
	r := history(t)
	var b bytes.Buffer
	if _, err := r.Backup(&b); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(2, 2))
	for i := range 60 {
		bad := bytes.Clone(b.Bytes())
		if at := random.IntN(len(bad)); i%2 == 0 {
			bad = bad[:at]
		} else {
			bad[at] ^= byte(1 + random.IntN(255))
		}
		s, err := restore(t, bad)
		if err == nil {
			t.Fatalf("restored a damaged backup")
		}
		if _, err := ledger.CheckBackup(bytes.NewReader(bad)); err == nil {
			t.Error("CheckBackup took it")
		}
		if _, _, err := ledger.Open(s, ledger.Options{}, llm.NewFakeClock(noon)); code(err) != "restore_unfinished" {
			t.Fatalf("opened half a restore: %v", err)
		}
	}
	longer := append(bytes.Clone(b.Bytes()), b.Bytes()...)
	for _, n := range []int{1, 22, b.Len()} {
		s, err := restore(t, longer[:b.Len()+n])
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("ends at byte %d", b.Len())) {
			t.Errorf("%d bytes behind the end: %v", n, err)
		}
		if _, _, err := ledger.Open(s, ledger.Options{}, llm.NewFakeClock(noon)); code(err) != "restore_unfinished" {
			t.Errorf("opened a restore that was refused: %v", err)
		}
	}
	if _, err := ledger.Restore(bytes.NewReader(b.Bytes()), r.store); code(err) != "store_not_empty" {
		t.Errorf("restored over a store in use: %v", err)
	}
	r.verify()
}

// A backup that is whole, of a ledger that does not add up, is not served either.
func TestBackupOfWrongTotals(t *testing.T) {
	r := history(t)
	user := append([]byte{'u'}, 0, 0, 0, 0, 0, 0, 0, 1)
	if err := r.store.Apply([]ledger.Write{{Key: user, Value: []byte{1, 2, 2}}}, false); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := r.Backup(&b); err != nil {
		t.Fatal(err)
	}
	s, err := restore(t, b.Bytes())
	if err == nil || !strings.Contains(err.Error(), "user 1: stored credits 1 ") && !strings.Contains(err.Error(), "user 1: stored credits 0.000001") {
		t.Errorf("restored: %v", err)
	}
	if _, _, err := ledger.Open(s, ledger.Options{}, llm.NewFakeClock(noon)); code(err) != "restore_unfinished" {
		t.Errorf("opened: %v", err)
	}
}

type fullWriter struct{ left int }

func (w *fullWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errors.New("no space left")
	}
	return len(p), nil
}

func TestBackupCannotBeWritten(t *testing.T) {
	r := history(t)
	for _, left := range []int{0, 10_000} {
		if _, err := r.Backup(&fullWriter{left}); err == nil || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("%v", err)
		}
	}
}

// Reservations lists what is open, running or stopped, and changes nothing.
func TestReservations(t *testing.T) {
	r, _ := grown(t)
	running, err := r.Ledger.Reservations(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	stopped, err := ledger.Reservations(r.store.Clone())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(running, stopped); d != "" {
		t.Error(d)
	}
	applies := r.store.Applies()
	k := r.killed()
	if len(running) != k.state.Recovered || len(running) == 0 || r.store.Applies() != applies {
		t.Errorf("%d listed, %d recovered", len(running), k.state.Recovered)
	}
	for i, rec := range k.state.Recoveries {
		if running[i] != (ledger.Reservation{Reserve: rec.Reserve, Output: rec.Output}) {
			t.Fatalf("listed %+v, recovered %+v", running[i], rec)
		}
	}
}

// Lines gives every entry once, from any number on, while there are more to come.
func TestLines(t *testing.T) {
	r, third := grown(t)
	collect := func(from uint64, most int) (all []ledger.Line) {
		for line, err := range r.Lines(from) {
			if err != nil {
				t.Fatal(err)
			}
			if all = append(all, line); len(all) == most {
				break
			}
		}
		return all
	}
	whole := collect(0, -1)
	for i, line := range whole {
		if line.Seq != uint64(i+1) {
			t.Fatalf("line %d has number %d", i+1, line.Seq)
		}
	}
	if n := r.verify().Entries; n != len(whole) {
		t.Errorf("%d lines, %d entries", len(whole), n)
	}
	var parts []ledger.Line
	for next := uint64(0); len(parts) < len(whole); {
		part := collect(next, 777)
		parts = append(parts, part...)
		next = part[len(part)-1].Seq + 1
	}
	if fmt.Sprint(parts) != fmt.Sprint(whole) {
		t.Error("in parts it is another log")
	}
	if more := collect(uint64(len(whole)+1), -1); len(more) != 0 {
		t.Errorf("%d lines after the last", len(more))
	}
	r.write(r.hold(1))
	if more := collect(uint64(len(whole)+1), -1); len(more) != 1 || more[0].Entry.Kind != llm.EntryReserve {
		t.Errorf("after one more: %+v", more)
	}
	p := r.prune(third)
	if left := collect(5, -1); left[0].Seq != p.First || len(left) != len(whole)+1-int(p.Entries) {
		t.Errorf("after %+v the first line is %d of %d", p, left[0].Seq, len(left))
	}
}
