package badger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/dgraph-io/badger/v4"

	"github.com/weir-gateway/weir/core/ledger"
)

const logSuffix = ".mem" // Badger's write-ahead logs: a number of five digits or more

// Sync implements ledger.Store.
func (s *Store) Sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return errClosed
	}
	if s.doubt.Load() != nil {
		if err := s.renewLocked(); err != nil {
			return err
		}
	}
	return s.syncLocked()
}

// unstable is the failure of an fsync. Other failures of a sync come before one, and leave nothing in doubt.
type unstable struct{ error }

func (u unstable) Unwrap() error { return u.error }

// stabilise marks the failures of an fsync.
func stabilise(fsync func(*os.File) error) func(*os.File) error {
	return func(f *os.File) error {
		if err := fsync(f); err != nil {
			return unstable{err}
		}
		return nil
	}
}

// syncLocked makes the files stable. When an fsync fails, what they hold is in doubt from then on.
func (s *Store) syncLocked() error {
	err := s.syncFilesLocked()
	if err == nil {
		return nil
	}
	err = fmt.Errorf("syncing the store: %w", err)
	if u := (unstable{}); errors.As(err, &u) {
		s.doubt.Store(&err)
	}
	return err
}

// syncFilesLocked makes the values stable before the logs that point to them, and the logs oldest first, so that what
// survives a power cut is a prefix.
func (s *Store) syncFilesLocked() error {
	if keys := s.takeBig(); len(keys) > 0 {
		if err := s.syncLogsLocked(valueSuffix, &s.mu.seal.values); err != nil {
			s.putBig(keys)
			return err
		}
	}
	if err := s.syncLogsLocked(logSuffix, &s.mu.seal.log); err != nil {
		return err
	}
	if err := s.sealManifestLocked(); err != nil {
		return err
	}
	return s.sealLocked()
}

// syncLogsLocked makes the logs of one kind stable, from the newest one that was synced before on. A log file that
// vanishes meanwhile was flushed into a table, which Badger syncs itself.
func (s *Store) syncLogsLocked(suffix string, at *mark) error {
	logs, err := s.logsLocked(suffix, at.name)
	if err != nil {
		return err
	}
	for _, name := range logs {
		to, err := s.syncLogLocked(name, *at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err
		case name != at.name: // its name must survive, too
			if err := syncDir(s.dir, s.fsync); err != nil {
				return err
			}
		}
		*at = to
	}
	return nil
}

// logsLocked names the logs of one kind from the newest one that was synced before on. Names are probed one by one,
// because the folder may hold thousands of tables; when the trail is lost, as logs came and went since, the folder is
// read.
func (s *Store) logsLocked(suffix, synced string) ([]string, error) {
	if synced != "" {
		logs := []string{synced}
		for s.exists(logAfter(logs[len(logs)-1])) {
			logs = append(logs, logAfter(logs[len(logs)-1]))
		}
		if s.exists(logs[len(logs)-1]) { // the newest log is never deleted, so this is it
			return logs, nil
		}
	}
	logs, err := numbered(s.dir, suffix)
	if err == nil && len(logs) == 0 {
		err = fmt.Errorf("no file *%s in %s", suffix, s.dir)
	}
	return logs, err
}

func (s *Store) exists(name string) bool {
	if name == "" {
		return false
	}
	_, err := os.Lstat(filepath.Join(s.dir, name))
	return err == nil
}

// logAfter is the name that Badger gives to the log after this one.
func logAfter(name string) string {
	n, err := numberOf(name)
	if err != nil {
		return ""
	}
	if strings.HasSuffix(name, valueSuffix) {
		return fmt.Sprintf("%06d%s", n+1, valueSuffix)
	}
	return fmt.Sprintf("%05d%s", n+1, logSuffix)
}

func (s *Store) takeBig() [][]byte {
	s.big.Lock()
	defer s.big.Unlock()
	keys := s.big.keys
	s.big.keys = nil
	return keys
}

func (s *Store) putBig(keys [][]byte) {
	s.big.Lock()
	defer s.big.Unlock()
	s.big.keys = append(keys, s.big.keys...)
}

// renewLocked writes everything anew that a failed sync left in doubt: Badger's close makes tables of what it has in
// memory, in new files, and the next opening begins new logs. Values whose log is in doubt are put a second time.
func (s *Store) renewLocked() error {
	s.life.Lock()
	defer s.life.Unlock()
	if err := s.room(nil); err != nil {
		return err
	}
	if !s.life.db.IsClosed() {
		if err := s.unsealLogLocked(); err != nil {
			return fmt.Errorf("writing the store anew after a failed sync: %w", err)
		}
		if err := s.keepBigLocked(); err != nil {
			return fmt.Errorf("writing the store anew after a failed sync: %w", err)
		}
		if err := s.life.db.Close(); err != nil {
			return fmt.Errorf("writing the store anew after a failed sync: %w", err)
		}
	}
	if err := s.openLocked(); err != nil {
		return err
	}
	for _, w := range s.mu.again {
		err := s.update(func(txn *badger.Txn) error { return s.set(txn, &badger.Entry{}, w) })
		if err != nil {
			return fmt.Errorf("writing the store anew after a failed sync: %w", err)
		}
	}
	s.mu.again = nil
	s.doubt.Store(nil)
	return nil
}

// keepBigLocked reads the values whose log is in doubt, while they can be read.
func (s *Store) keepBigLocked() error {
	for _, key := range s.takeBig() {
		err := s.view(func(txn *badger.Txn) error {
			item, err := txn.Get(key)
			if err != nil {
				return err
			}
			value, err := item.ValueCopy([]byte{})
			s.mu.again = append(s.mu.again, ledger.Write{Key: key, Value: value})
			return err
		})
		if err != nil && !errors.Is(err, badger.ErrKeyNotFound) { // deleted since
			return err
		}
	}
	return nil
}

// closeLocked closes Badger, which turns the logs into tables, and seals what is left.
func (s *Store) closeLocked() error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.life.db.IsClosed() {
		return *s.doubt.Load() // it failed to open again
	}
	if err := s.unsealLogLocked(); err != nil {
		return err
	}
	if err := s.life.db.Close(); err != nil {
		return err
	}
	values := s.mu.seal.values
	if values.name != "" && s.exists(values.name) {
		if to, err := s.syncLogLocked(values.name, values); err == nil {
			s.mu.seal.values = to
		}
	}
	if err := s.sealManifestLocked(); err != nil {
		return err
	}
	return s.sealLocked()
}
