package badger

import (
	"sync"

	"github.com/dgraph-io/badger/v4"
)

// versions numbers the batches. Badger would do that by itself, with two goroutines that are told of the beginning and the
// end of every transaction, as it has many writers; here one batch is written at a time.
type versions struct {
	sync.Mutex
	seen    uint64 // the newest batch that is written whole, which is what readers read
	readers int
}

// begin gives what a reader reads until it ends.
func (v *versions) begin() uint64 {
	v.Lock()
	defer v.Unlock()
	v.readers++
	return v.seen
}

func (v *versions) end() {
	v.Lock()
	defer v.Unlock()
	v.readers--
}

// written lets readers see a batch. What it replaced may be dropped by compactions, unless somebody reads: who comes
// later reads this one.
func (v *versions) written(db *badger.DB, version uint64) {
	v.Lock()
	defer v.Unlock()
	v.seen = version
	if v.readers == 0 {
		db.SetDiscardTs(version)
	}
}

// openLocked opens Badger; life is locked, or nobody else has the store yet.
func (s *Store) openLocked() error {
	db, err := badger.OpenManaged(settings(s.dir, s.o.Log))
	if err != nil {
		return openError(s.dir, err)
	}
	s.life.db = db
	s.commits.version = max(s.commits.version, db.MaxVersion())
	s.versions.written(db, s.commits.version)
	return nil
}

// update writes a batch that fill makes, as the next version.
func (s *Store) update(fill func(*badger.Txn) error) error {
	txn := s.life.db.NewTransactionAt(0, true)
	defer txn.Discard()
	if err := fill(txn); err != nil {
		return err
	}
	s.commits.Lock()
	defer s.commits.Unlock()
	s.commits.version++ // also when it fails: it may have left something
	if err := txn.CommitAt(s.commits.version, nil); err != nil {
		return err
	}
	s.versions.written(s.life.db, s.commits.version)
	return nil
}

// view reads what is written now.
func (s *Store) view(read func(*badger.Txn) error) error {
	txn := s.life.db.NewTransactionAt(s.versions.begin(), false)
	defer s.versions.end()
	defer txn.Discard()
	return read(txn)
}
