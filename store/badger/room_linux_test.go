package badger

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/weir-gateway/weir/core/ledger"
)

// A log has blocks before they are needed, and what is written while it gets them is there after a crash.
func TestLogHasRoom(t *testing.T) {
	live, killed := t.TempDir(), t.TempDir()
	s, err := Open(live, Options{})
	must(t, err)
	defer s.Close()
	const writers, each = 4, 3_000
	var busy atomic.Int64
	busy.Store(writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			defer busy.Add(-1)
			for i := range each {
				key := binary.BigEndian.AppendUint64(nil, uint64(w*each+i))
				if err := s.Apply([]ledger.Write{{Key: key, Value: make([]byte, 30)}}, false); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for synced := 0; busy.Load() > 0 || synced == 0; synced++ {
		must(t, s.Sync())
	}
	wg.Wait()
	for range 2 { // the first may find that much was written
		must(t, s.Sync())
	}
	st, err := os.Stat(filepath.Join(live, s.mu.seal.log.name))
	must(t, err)
	if ahead := st.Sys().(*syscall.Stat_t).Blocks*512 - s.mu.seal.log.bytes; ahead < roomBytes/16 {
		t.Errorf("%d bytes of room", ahead)
	}
	copyFolder(t, live, killed)
	crashed, err := Open(killed, Options{})
	must(t, err)
	defer crashed.Close()
	n := 0
	must(t, crashed.Scan(nil, nil, false, func(_, _ []byte) bool { n++; return true }))
	if n != writers*each {
		t.Errorf("%d of %d keys are there after a crash", n, writers*each)
	}
}
