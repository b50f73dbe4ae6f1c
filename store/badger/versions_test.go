package badger

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
)

// rewrite writes every one of a few keys anew, so often that Badger compacts.
func rewrite(t *testing.T, s *Store, rounds int) {
	for round := range rounds {
		b := make([]ledger.Write, 8)
		for i := range b {
			b[i] = ledger.Write{Key: fmt.Appendf(nil, "k%d", i), Value: bytes.Repeat([]byte{byte(round)}, 20<<10)}
		}
		must(t, s.Apply(b, false))
	}
}

// A visit sees the state of its beginning, however much is written and compacted before it ends.
func TestScanSeesOneState(t *testing.T) {
	s, err := Open(t.TempDir(), Options{})
	must(t, err)
	defer s.Close()
	rewrite(t, s, 30) // the last are of round 29
	n := 0
	must(t, s.Scan([]byte("k"), nil, false, func(key, value []byte) bool {
		if n == 0 {
			rewrite(t, s, 200)
		}
		if n++; value[0] != 29 {
			t.Errorf("%s is of round %d, which was not written when the visit began", key, value[0])
		}
		return true
	}))
	if n != 8 {
		t.Errorf("%d keys visited", n)
	}
	if value, ok, err := s.Get([]byte("k7")); !ok || err != nil || value[0] != 199 {
		t.Errorf("after it: %v, %v", ok, err)
	}
}

// What was written over is dropped, also what a visit has held for a while.
func TestOldVersionsAreDropped(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, Options{})
	must(t, err)
	defer s.Close()
	rewrite(t, s, 10)
	must(t, s.Scan(nil, nil, false, func(_, _ []byte) bool { rewrite(t, s, 10); return false }))
	const rounds = 500 // 80 MB
	rewrite(t, s, rounds)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
		must(t, err)
		var size int64
		for _, name := range tables {
			if st, err := os.Stat(name); err == nil {
				size += st.Size()
			}
		}
		if size < 30<<20 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d MB are left of 80 written to the same keys", size>>20)
		}
	}
}
