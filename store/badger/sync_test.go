package badger

import (
	"encoding/binary"
	"path/filepath"
	"testing"

	"github.com/weir-gateway/weir/core/ledger"
)

// Sync finds the newest log, however many came and went since the last one.
func TestSyncFollowsTheLogs(t *testing.T) {
	s, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	n := uint64(0)
	write := func(bytes int) {
		t.Helper()
		for ; bytes > 0; bytes -= 20_000 {
			n++
			if err := s.Apply([]ledger.Write{{Key: binary.BigEndian.AppendUint64(nil, n), Value: make([]byte, 20_000)}}, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	seen := map[string]bool{}
	for _, bytes := range []int{1, 1, tableBytes + 1<<18, 3 * tableBytes, 8 * tableBytes, 1} {
		write(bytes)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		synced := s.mu.seal.log.name
		s.mu.Unlock()
		all, err := numbered(s.dir, logSuffix)
		if err != nil {
			t.Fatal(err)
		}
		if newest := all[len(all)-1]; synced != newest {
			t.Errorf("after %d bytes %s was synced last; the newest is %s of %q", bytes, synced, newest, all)
		}
		seen[synced] = true
	}
	if len(seen) < 4 {
		t.Errorf("the test did not make the logs change: %v", seen)
	}
}

func TestLogAfter(t *testing.T) {
	for name, want := range map[string]string{"00001.mem": "00002.mem", "99999.mem": "100000.mem", "x.mem": "", "000009.vlog": "000010.vlog"} {
		if got := logAfter(name); got != want {
			t.Errorf("after %s comes %q, want %q", name, got, want)
		}
	}
}

// On a full disk Close writes no table: what the log has, the next start replays.
func TestCloseOnFullDisk(t *testing.T) {
	dir, left := t.TempDir(), int64(DefaultReserveBytes)
	s, err := Open(dir, Options{Free: func(string) (int64, error) { return left, nil }})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Apply([]ledger.Write{{Key: []byte("a"), Value: []byte("1")}}, false); err != nil {
		t.Fatal(err)
	}
	left--
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if tables, _ := filepath.Glob(filepath.Join(dir, "*.sst")); len(tables) != 0 {
		t.Errorf("Close wrote %q", tables)
	}
	left++
	if err := s.Apply([]ledger.Write{{Key: []byte("b"), Value: []byte("2")}}, false); err == nil {
		t.Error("a closed store took a write")
	}
	if err := s.Sync(); err == nil {
		t.Error("a closed store was synced")
	}
	if err := s.life.db.Close(); err != nil { // what the end of the process does, more or less
		t.Fatal(err)
	}
	if s, err = Open(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if v, _, err := s.Get([]byte("a")); string(v) != "1" || err != nil {
		t.Errorf("after a Close on a full disk: %q, %v", v, err)
	}
}
