package badger

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"github.com/weir-gateway/weir/core/ledger"
)

func read(t *testing.T, s *Store, key string) string {
	t.Helper()
	value, ok, err := s.Get([]byte(key))
	if !ok || err != nil {
		t.Fatalf("%s: %v, %v", key, ok, err)
	}
	return string(value)
}

// A folder whose batches Badger numbered by itself is read and written on, after a close and after a kill, again and again.
func TestBatchesThatBadgerNumbered(t *testing.T) {
	for _, killed := range []bool{false, true} {
		dir := t.TempDir()
		db, err := badger.Open(settings(dir, nil))
		must(t, err)
		for i := range 200 {
			must(t, db.Update(func(txn *badger.Txn) error { return txn.Set([]byte("k"), fmt.Appendf(nil, "old %d", i)) }))
		}
		if killed {
			dir = kill(t, dir)
		}
		must(t, db.Close())
		want := "old 199"
		for round := range 4 {
			s, err := Open(dir, Options{})
			must(t, err)
			if got := read(t, s, "k"); got != want {
				t.Fatalf("killed %v, round %d: %q, want %q", killed, round, got, want)
			}
			want = fmt.Sprintf("new %d", round)
			must(t, s.Apply([]ledger.Write{{Key: []byte("k"), Value: []byte(want)}}, true))
			if round%2 == 0 {
				dir = kill(t, dir)
			}
			must(t, s.Close())
		}
	}
}

// kill gives a copy of a folder in use, as a process leaves it that is killed.
func kill(t *testing.T, dir string) string {
	to := t.TempDir()
	names, err := os.ReadDir(dir)
	must(t, err)
	for _, name := range names {
		if name.Name() == "LOCK" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, name.Name()))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(to, name.Name()), b, 0o600))
	}
	return to
}
