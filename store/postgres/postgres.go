package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
)

// Defaults and fixed bounds.
const (
	DefaultTimeout  = 10 * time.Second
	DefaultLockWait = time.Second

	node     = "main" // whose rows are read and written
	readers  = 16     // connections beside the owner's
	scanners = 12     // of them, for visits; the rest is for whom a visitor calls
	attempts = 3      // of a read, over as many connections

	asyncBytes = 1 << 20 // a larger batch is written synchronously, rather than kept until it is stable

	flush = "INSERT INTO weir_flush VALUES ($1, now()) ON CONFLICT (node) DO UPDATE SET at = EXCLUDED.at"
)

// Options configure a store. Zero fields take the defaults.
type Options struct {
	Log      *slog.Logger  // is told when a lost connection is back; nil is silence
	Timeout  time.Duration // of one call, or one page of a visit
	LockWait time.Duration // how long Open waits for the lock of a process that may just be dying
	// Existing has Open find a ledger and make none: without one it fails with a *llm.Error of KindNotFound.
	Existing bool
}

// Store is one node's part of a database. Safe for concurrent use.
type Store struct {
	o     Options
	place place
	pool  *pgxpool.Pool // for reading
	scans chan struct{}
	made  atomic.Int64 // connections for reading, ever
	sure  atomic.Int64 // of them, those that were made before the owner's was last seen alive
	write struct {     // the owner's session
		sync.Mutex
		conn    *pgx.Conn        // nil or closed: to be made anew
		old     backend          // of the newest connection
		epoch   int64            // under which this process writes, once it has taken the node
		batch   int64            // that it wrote last
		pending [][]ledger.Write // the newest batches, up to that one, that may not be stable yet
		taken   bool
		doubt   bool  // the batch after may have been written too
		lost    error // why this process never writes again
		closed  bool
		sheet   sheet
	}
}

var _ ledger.Store = (*Store)(nil)

var errClosed = errors.New("the store is closed")

// Open connects to the database that a URL of PostgreSQL's names, brings its tables up to this program's, and owns it until
// Close. A *llm.Error of KindUnavailable says that another process owns it (store_locked) or that it cannot be reached
// (store_unavailable), one of KindConflict with code store_newer that a newer program has been there.
func Open(url string, o Options) (*Store, error) {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.LockWait == 0 {
		o.LockWait = DefaultLockWait
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	at, err := parse(url, o.Timeout)
	if err != nil {
		return nil, err
	}
	s := &Store{o: o, place: at, scans: make(chan struct{}, scanners)}
	if err := s.open(); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Store) open() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.o.Timeout+s.o.LockWait)
	defer cancel()
	if err := s.connect(ctx); err != nil {
		return err
	}
	if err := s.prepare(ctx, s.write.conn); err != nil {
		return err
	}
	if _, err := s.resume(ctx); err != nil {
		return err
	}
	s.place.pool.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		s.made.Add(1)
		_, err := conn.Exec(ctx, durable)
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, s.place.pool)
	s.pool = pool
	return s.place.failed("opening", err)
}

// Apply implements ledger.Store.
func (s *Store) Apply(b []ledger.Write, sync bool) error {
	w := &s.write
	w.Lock()
	defer w.Unlock()
	if w.closed {
		return errClosed
	}
	if w.lost != nil {
		return w.lost
	}
	if len(b) == 0 {
		return nil
	}
	if err := w.sheet.sort(b); err != nil {
		return fmt.Errorf("writing to the store: %w", err)
	}
	w.sheet.sync = sync || w.sheet.size > asyncBytes
	ctx, cancel := context.WithTimeout(context.Background(), s.o.Timeout)
	defer cancel()
	done, err := s.send(ctx, false)
	if !done && ctx.Err() == nil {
		_, err = s.send(ctx, true)
	}
	return err
}

// send writes the sheet. It is not done when the connection was lost over it: then it is in doubt, and who sends it again
// finds out whether it is there.
// REQUIRES: write is locked.
func (s *Store) send(ctx context.Context, again bool) (done bool, err error) {
	w := &s.write
	if landed, err := s.session(ctx); err != nil || again && landed {
		return true, err
	}
	if err := s.take(ctx); err != nil {
		return true, err
	}
	err = w.conn.SendBatch(ctx, w.sheet.batch(w.epoch, w.batch, w.batch+1)).Close()
	if err == nil {
		w.batch++
		if w.sheet.sync {
			w.pending = nil
		} else {
			w.pending = append(w.pending, w.sheet.copied())
		}
		return true, nil
	}
	if refused := s.refusal(err); refused != nil {
		if refused.Code == overCode {
			return true, s.over(ctx)
		}
		return true, fmt.Errorf("writing to the store: %w", refused)
	}
	w.doubt = true
	return false, s.place.failed("writing to", err)
}

// refusal is the server's word that a transaction was undone; nil: its connection is given up, and the outcome unknown.
// REQUIRES: write is locked.
func (s *Store) refusal(err error) *pgconn.PgError {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.SeverityUnlocalized == "ERROR" && !s.write.conn.IsClosed() {
		return e
	}
	s.drop()
	return nil
}

// Sync implements ledger.Store. It does not hold up who applies.
func (s *Store) Sync() error {
	w := &s.write
	w.Lock()
	upTo, pending, closed, lost := w.batch, len(w.pending), w.closed, w.lost
	w.Unlock()
	switch {
	case closed:
		return errClosed
	case pending == 0:
		return nil
	case lost != nil:
		return lost
	}
	err := s.ask(func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, flush, node)
		return err
	})
	if err != nil {
		return s.place.failed("writing to", err)
	}
	w.Lock()
	defer w.Unlock()
	if since := int(w.batch - upTo); since < len(w.pending) { // all of them may be stable by now
		w.pending = slices.Clone(w.pending[len(w.pending)-since:])
	}
	return nil
}

// Get implements ledger.Store.
func (s *Store) Get(key []byte) (value []byte, ok bool, err error) {
	var r row
	err = s.ask(func(ctx context.Context, conn *pgxpool.Conn) error {
		return r.read(conn.QueryRow(ctx, "SELECT key, value, credits, spent FROM weir_all WHERE node = $1 AND key = $2", node, key))
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, false, nil
	}
	return r.value, err == nil, s.place.failed("reading", err)
}

// ask makes one call on a connection for reading, and on another one when that turns out to be lost.
func (s *Store) ask(call func(ctx context.Context, conn *pgxpool.Conn) error) (err error) {
	for range attempts {
		ctx, cancel := context.WithTimeout(context.Background(), s.o.Timeout)
		var conn *pgxpool.Conn
		if conn, err = s.reader(ctx); err == nil {
			err = call(ctx, conn)
			conn.Release()
		}
		cancel()
		if err == nil || !again(err) {
			break
		}
	}
	return err
}

// reader is a connection to read with. One that is new may be so because the server crashed, and does not have what was
// pending: the owner's connection has to be seen alive first, or a new one has to write that anew.
func (s *Store) reader(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := s.pool.Acquire(ctx)
	if err == nil && s.sure.Load() < s.made.Load() {
		if err = s.confirm(ctx); err != nil {
			conn.Release()
		}
	}
	return conn, err
}

func (s *Store) confirm(ctx context.Context) error {
	w := &s.write
	w.Lock()
	defer w.Unlock()
	made := s.made.Load()
	if w.closed {
		return errClosed
	}
	if len(w.pending) > 0 && w.lost == nil {
		if !w.conn.IsClosed() && w.conn.Ping(ctx) != nil {
			s.drop()
		}
		if _, err := s.session(ctx); err != nil {
			return err
		}
	}
	s.sure.Store(made)
	return nil
}

// again tells of a failed call whether another connection may have a better answer: not to what the server has decided, and
// not when it took all the time there was.
func again(err error) bool {
	_, decided := errors.AsType[*pgconn.PgError](err)
	_, told := errors.AsType[*llm.Error](err)
	return !decided && !told && !errors.Is(err, pgx.ErrNoRows) && !pgconn.Timeout(err) && !errors.Is(err, context.DeadlineExceeded)
}

// Close makes what was applied stable and gives the node up. Visits under way come to their end first.
func (s *Store) Close() error {
	err := s.leave()
	if s.pool != nil {
		s.pool.Close() // without the lock: a visitor may write
	}
	return err
}

func (s *Store) leave() (err error) {
	w := &s.write
	w.Lock()
	defer w.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	if len(w.pending) > 0 && w.lost == nil {
		ctx, cancel := context.WithTimeout(context.Background(), s.o.Timeout)
		defer cancel()
		_, err = w.conn.Exec(ctx, flush, node)
	}
	s.drop()
	return s.place.failed("closing", err)
}
