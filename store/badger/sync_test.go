package badger

import (
	"encoding/binary"
	"testing"

	"github.com/weir-gateway/weir/core/ledger"
)

// Sync finds the newest log, however many came and went since the last one.
func TestSyncFollowsTheLogs(t *testing.T) {
	s, err := Open(t.TempDir(), nil)
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
		synced := s.mu.synced
		s.mu.Unlock()
		all, err := s.allLogs()
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
	for name, want := range map[string]string{"00001.mem": "00002.mem", "99999.mem": "100000.mem", "x.mem": ""} {
		if got := logAfter(name); got != want {
			t.Errorf("after %s comes %q, want %q", name, got, want)
		}
	}
}
