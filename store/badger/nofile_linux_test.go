package badger

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weir-gateway/weir/core/ledger"
)

// A sync that finds no file descriptor fails, and the next one makes up for it: nothing was in doubt, so the store goes
// on with the files it has.
func TestSyncWithoutDescriptors(t *testing.T) {
	s, err := Open(t.TempDir(), Options{})
	must(t, err)
	defer s.Close()
	must(t, s.Apply([]ledger.Write{{Key: []byte("a"), Value: []byte("1")}}, true))
	db := s.life.db
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: was.Max}))
	err = s.Apply([]ledger.Write{{Key: []byte("b"), Value: []byte("2")}}, true)
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was))
	if err == nil {
		t.Error("a write was called stable that could not be synced")
	}
	must(t, s.Sync())
	if s.life.db != db {
		t.Error("the store was opened anew over files that were in no doubt")
	}
	if v, ok, err := s.Get([]byte("b")); !ok || err != nil || string(v) != "2" {
		t.Errorf("%q, %v, %v", v, ok, err)
	}
}
