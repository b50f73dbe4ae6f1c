// Package badger is the embedded store: a ledger.Store on Badger, in one folder owned by one process.
//
// # What it promises
//
//  1. Apply is one Badger transaction: all of it or nothing, also after a crash (Badger replays whole transactions).
//  2. When Apply returns, the bytes are in the kernel. Badger writes its write-ahead log through a shared memory map
//     of the file, and what is in a shared map belongs to the page cache: it survives the death of the process.
//  3. When Sync returns, everything applied before it is on stable storage, in order.
//
// Sync does not use Badger's own for the write-ahead log: that one covers only the newest log file, so that a
// file which was filled since the last Sync could be lost behind a newer one, and it holds the lock that
// writers need, so that every background sync would stall them. The log files are synced here, oldest first,
// through descriptors of our own:
//
//	Apply:  txn.Commit                       (Badger's lock)
//	Sync:   sync.mu { give the newest *.mem file blocks ahead; fsync each from the last one synced on, and the value log if it
//	        got a value; write the seal }
//
// # A sync that fails
//
// After a failed fsync the kernel may take the pages it could not write for clean: a second fsync of the same file
// succeeds and has written nothing. So no file is ever synced again after its sync failed. What is in doubt is still in
// memory, in Badger's tables of it; the next Apply or Sync closes Badger, which writes those as new files and syncs
// them, and opens it again on new logs. Until that has succeeded every Apply and Sync fails; so long as new files cannot
// be written either, it waits for them to be. A sync that cannot begin, for want of a file descriptor, leaves nothing
// in doubt: it fails, and the next one tries again.
//
// # Damage
//
// Every record, block and index has a checksum of Badger's, but not every reader of Badger's heeds them. Open
// therefore reads the whole folder first (some 1 s a GB) and names the file that is damaged; see seal.go for what a
// crash may have torn and what it cannot have. A byte that is damaged in what was written since the last sync, and
// was never synced after, cannot be told from a torn one: it costs what a power cut would.
//
// # A full disk
//
// Badger writes through shared maps of sparse files: the log, the value log, each new table. Touching a page of them
// that the file system has no block for is SIGBUS, which ends the process at once. So nothing is written below a
// reserve of free space: Apply asks statfs first and refuses with an error that says how much is missing; Open does the
// same; Close leaves the memory tables to the log, which the next start replays. That there is room for the reserve twice
// is believed for 20 ms, as no neighbour writes the half of it in that time; with less, and for values that go to the
// value log, every Apply asks, and the first one that finds room again goes through. Badger's own flushes and compactions
// follow from writes and end within a second or so of the last one, inside the reserve. What remains is a neighbour that
// takes the whole reserve within that second, or with one call both halves within the 20 ms: then the process dies as by
// kill -9, the log has every acknowledged entry, and the next start says what is missing.
//
// Rejected: fallocate. Badger creates a file, maps it and writes to it in one step, and refuses one that exists; so
// only the logs could be had, from outside and a moment late, and no table ever. A ballast file, given back in need:
// whoever filled the disk takes that too. Asking at intervals near the reserve: a neighbour is as fast as the disk.
//
// Rejected: SyncWrites, which syncs every transaction and is needed for none under durability "process"; and
// Badger's defaults, which take 400 MB: a table of 4 MB and no caches serve a store that is written all the
// time and read at start.
package badger

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
)

// Sizes. A batch may come to 15 % of the table, without the values that go to the value log.
const (
	tableBytes    = 2 << 20
	valueLogBytes = 80 << 20 // one file; also the largest value
	bigValue      = 48 << 10 // values from here on go to the value log

	sealEvery = time.Second
)

// Store is a folder of Badger's. Safe for concurrent use.
type Store struct {
	dir    string
	o      Options
	fsync  func(*os.File) error
	closed atomic.Bool
	plenty atomic.Int64          // until when, on the steady clock, the disk counts as having room
	doubt  atomic.Pointer[error] // why a sync failed; until what it left in doubt is written anew
	stop   chan struct{}
	idle   sync.WaitGroup // the sealer
	life   struct {
		sync.RWMutex            // held for writing while Badger is closed and opened again
		db           *badger.DB // never nil; closed for good after Close, or while doubt stands
	}
	commits struct { // one batch at a time, or none while the newest log is given room; taken after life
		sync.Mutex
		version uint64 // of the newest batch
	}
	versions versions // taken last
	big      struct {
		sync.Mutex
		keys [][]byte // whose values went to the value log since its last Sync
	}
	mu struct { // taken before life
		sync.Mutex
		seal   seal   // what is stable; log names the newest log file that Sync has seen, older ones are complete
		sealed string // as written
		reader bufio.Reader
		again  []ledger.Write // values whose log is in doubt
	}
}

// Options configure a store. Zero fields take the defaults.
type Options struct {
	Log          *slog.Logger                    // gets Badger's warnings and errors; nil is silence
	ReserveBytes int64                           // free space below which nothing is written; DefaultReserveBytes
	Free         func(dir string) (int64, error) // bytes left for a folder; the default asks the file system
	Clock        llm.Clock                       // the default is the machine's
	fsync        func(*os.File) error            // for tests
}

var _ ledger.Store = (*Store)(nil)

var errClosed = errors.New("the store is closed")

// Open opens or creates the folder. A *llm.Error of KindUnavailable says that another process has it (store_locked),
// or that its disk is full (store_full).
func Open(dir string, o Options) (*Store, error) {
	if o.ReserveBytes == 0 {
		o.ReserveBytes = DefaultReserveBytes
	}
	if o.Free == nil {
		o.Free = freeBytes
	}
	if o.Clock == nil {
		o.Clock = llm.NewSystemClock()
	}
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	if o.fsync == nil {
		o.fsync = (*os.File).Sync
	}
	s := &Store{dir: dir, o: o, fsync: stabilise(o.fsync), stop: make(chan struct{})}
	if err := s.room(nil); err != nil {
		return nil, err
	}
	if err := checkLocked(dir); err != nil {
		return nil, err
	}
	if err := s.openLocked(); err != nil {
		return nil, err
	}
	s.idle.Add(1)
	go s.sealer()
	return s, nil
}

// checkLocked checks a folder that nobody else has.
func checkLocked(dir string) error {
	release, err := lockDir(dir)
	if err != nil {
		return lockedError(dir, err)
	}
	defer release()
	return check(dir)
}

// sealer seals what Badger did to the manifest by itself, after the last write.
func (s *Store) sealer() {
	defer s.idle.Done()
	tick := time.NewTicker(sealEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		s.mu.Lock()
		if st, err := os.Stat(filepath.Join(s.dir, manifestName)); err == nil && st.Size() != s.mu.seal.manifest && s.doubt.Load() == nil {
			_ = s.syncLocked() // a failure is in doubt, which the next writer is told
		}
		s.mu.Unlock()
	}
}

func settings(dir string, log *slog.Logger) badger.Options {
	o := badger.DefaultOptions(dir).
		WithSyncWrites(false).
		WithDetectConflicts(false). // one writer
		WithNumVersionsToKeep(1).
		WithMemTableSize(tableBytes).
		WithBaseTableSize(tableBytes). // the buffers that a table is built in are twice that, or thrice when they must grow
		WithNumMemtables(1).           // that wait, beside the one that is written to and the one that becomes a table
		WithNumCompactors(2).
		WithNumGoroutines(1).
		WithCompression(options.None).
		WithBlockCacheSize(0).
		WithIndexCacheSize(0).
		WithValueThreshold(bigValue).
		WithValueLogFileSize(valueLogBytes).
		WithVerifyValueChecksum(true).
		WithMetricsEnabled(false)
	if log == nil {
		return o.WithLogger(nil)
	}
	return o.WithLogger(logger{log})
}

// Exists is nil when the folder holds a store; a *llm.Error of KindNotFound says that it does not. Nothing is made.
func Exists(dir string) error {
	there, err := isDir(dir)
	if err != nil {
		return err
	}
	if !there {
		return llm.Errorf(llm.KindNotFound, "there is no data folder at %s", dir)
	}
	_, err = os.Stat(filepath.Join(dir, badger.ManifestFilename))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return llm.Errorf(llm.KindNotFound, "there is no data folder at %s: the folder holds no store", dir)
	case err != nil:
		return unreadable(dir, err)
	}
	return nil
}

// makeDir makes the folder unless it is there.
func makeDir(dir string) error {
	there, err := isDir(dir)
	if there || err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("the data folder %s cannot be made: %w", dir, err)
	}
	return nil
}

// isDir says whether the folder is there, and fails when something else is in its place.
func isDir(dir string) (bool, error) {
	st, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, unreadable(dir, err)
	case !st.IsDir():
		return false, llm.Invalid("data", "the data folder %s is a file; name a folder", dir)
	}
	return true, nil
}

func unreadable(dir string, err error) error {
	return fmt.Errorf("the data folder %s cannot be read: %w", dir, err)
}

func openError(dir string, err error) error {
	if strings.Contains(err.Error(), "Another process is using this Badger database") {
		return lockedError(dir, err)
	}
	return fmt.Errorf("the data folder %s cannot be opened: %w", dir, err)
}

func lockedError(dir string, err error) error {
	holder := ""
	if pid, readErr := os.ReadFile(filepath.Join(dir, "LOCK")); readErr == nil {
		holder = " (pid " + strings.TrimSpace(string(pid)) + ")"
	}
	return &llm.Error{Kind: llm.KindUnavailable, Code: "store_locked",
		Message: fmt.Sprintf("the data folder %s is in use by another process%s; stop it, or name another folder", dir, holder), Err: err}
}

// Apply implements ledger.Store.
func (s *Store) Apply(b []ledger.Write, sync bool) error {
	if s.closed.Load() {
		return errClosed
	}
	if err := s.room(b); err != nil {
		return err
	}
	if s.doubt.Load() != nil {
		if err := s.Sync(); err != nil {
			return err
		}
	}
	if err := s.commit(b); err != nil {
		return err
	}
	if sync {
		return s.Sync()
	}
	return nil
}

// enter keeps Badger open until life is unlocked. It does not wait for a renewal: that waits for those who are in, and one
// of them may be a visitor that calls again.
func (s *Store) enter() error {
	if s.life.TryRLock() {
		if !s.life.db.IsClosed() {
			return nil
		}
		s.life.RUnlock()
	}
	if why := s.doubt.Load(); why != nil {
		return &llm.Error{Kind: llm.KindUnavailable, Code: "store_unavailable", Message: "the store is being written anew after a sync that failed; try again", Err: *why}
	}
	return errClosed
}

// commit writes a batch to Badger.
func (s *Store) commit(b []ledger.Write) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.life.RUnlock()
	entries := make([]badger.Entry, len(b))
	err := s.update(func(txn *badger.Txn) error {
		for i, w := range b {
			if err := s.set(txn, &entries[i], w); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return batchError(b, err)
	}
	return nil
}

func (s *Store) set(txn *badger.Txn, e *badger.Entry, w ledger.Write) error {
	if w.Value == nil {
		return txn.Delete(w.Key)
	}
	if len(w.Value) >= bigValue {
		s.big.Lock()
		s.big.keys = append(s.big.keys, slices.Clone(w.Key))
		s.big.Unlock()
	}
	e.Key, e.Value = w.Key, w.Value
	return txn.SetEntry(e)
}

func batchError(b []ledger.Write, err error) error {
	if !errors.Is(err, badger.ErrTxnTooBig) {
		return fmt.Errorf("writing to the store: %w", err)
	}
	size := 0
	for _, w := range b {
		size += len(w.Key) + len(w.Value)
	}
	return &llm.Error{Kind: llm.KindTooLarge, LimitBytes: tableBytes * 15 / 100, Err: err,
		Message: fmt.Sprintf("a batch of %d writes and %d bytes is too large for the store", len(b), size)}
}

// Get implements ledger.Store.
func (s *Store) Get(key []byte) (value []byte, ok bool, err error) {
	if err := s.enter(); err != nil {
		return nil, false, err
	}
	defer s.life.RUnlock()
	err = s.view(func(txn *badger.Txn) error {
		item, err := txn.Get(key)
		if err != nil {
			return err
		}
		if value, err = item.ValueCopy([]byte{}); err == nil {
			err = wholeValue(item, value)
		}
		return err
	})
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading the store: %w", err)
	}
	return value, true, nil
}

// wholeValue says that a value is damaged. Badger gives an empty one for a value it cannot read.
func wholeValue(item *badger.Item, value []byte) error {
	if len(value) == 0 && item.ValueSize() > 0 {
		return damagedValue(item.Key())
	}
	return nil
}

// Scan implements ledger.Store. Whoever visits everything, to verify it or to keep it, is told first of a table that was
// damaged since it was opened: Badger would panic over it, or pass over it.
func (s *Store) Scan(prefix, start []byte, reverse bool, visit func(key, value []byte) bool) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.life.RUnlock()
	if len(prefix) == 0 && start == nil {
		if err := checkTables(s.dir, true); err != nil {
			return err
		}
	}
	err := s.view(func(txn *badger.Txn) error {
		o := badger.DefaultIteratorOptions
		o.PrefetchSize = 16
		o.Reverse = reverse
		if !reverse {
			o.Prefix = prefix
		}
		it := txn.NewIterator(o)
		defer it.Close()
		for it.Seek(seek(prefix, start, reverse)); it.ValidForPrefix(prefix); it.Next() {
			more := false
			item := it.Item()
			err := item.Value(func(v []byte) error {
				if err := wholeValue(item, v); err != nil {
					return err
				}
				more = visit(item.Key(), v)
				return nil
			})
			if err != nil {
				return err
			}
			if !more {
				return nil
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the store: %w", err)
	}
	return nil
}

// seek is where a visit begins. Downwards that is start itself or, without one, the last key that can have the
// prefix: no key of the ledger goes on with 0xFF eight times and more.
func seek(prefix, start []byte, reverse bool) []byte {
	switch {
	case start != nil:
		return start
	case !reverse:
		return prefix
	}
	return append(slices.Clone(prefix), "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"...)
}

// Close implements ledger.Store. On a full disk it makes the log stable and leaves it at that, as closing Badger would
// write tables; the folder stays locked until the process ends.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	close(s.stop)
	s.idle.Wait()
	s.mu.Lock() // a Sync that runs comes to its end
	defer s.mu.Unlock()
	if err := s.room(nil); err != nil {
		if why := s.doubt.Load(); why != nil {
			return *why
		}
		return s.syncLocked()
	}
	if err := s.closeLocked(); err != nil {
		return fmt.Errorf("closing the store: %w", err)
	}
	return nil
}

// logger hands Badger's warnings and errors to slog.
type logger struct{ log *slog.Logger }

func (l logger) Errorf(format string, args ...any) {
	l.log.Error(strings.TrimSpace(fmt.Sprintf(format, args...)), "from", "badger")
}

func (l logger) Warningf(format string, args ...any) {
	l.log.Warn(strings.TrimSpace(fmt.Sprintf(format, args...)), "from", "badger")
}

func (l logger) Infof(string, ...any)  {}
func (l logger) Debugf(string, ...any) {}
