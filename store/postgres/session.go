package postgres

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-gateway/weir/core/llm"
)

const (
	lockClass = 0x57454952 // WEIR, of advisory locks
	overCode  = "WE001"    // weir_begin's
	lockEvery = 25 * time.Millisecond

	// durable has a session's commits flushed, whatever the server's default is.
	durable = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)

// backend is a server's process for a connection.
type backend struct {
	pid   int32
	since time.Time
}

// lockID is the advisory lock of the node, beside lockClass.
func lockID() int32 { return int32(crc32.ChecksumIEEE([]byte(node))) }

// session sees to a connection that owns the node. On a new one, a batch that was in doubt turns out to have landed or not.
// REQUIRES: write is locked.
func (s *Store) session(ctx context.Context) (landed bool, err error) {
	w := &s.write
	if w.conn != nil && !w.conn.IsClosed() {
		return false, nil
	}
	if err := s.connect(ctx); err != nil {
		return false, err
	}
	if landed, err = s.resume(ctx); err != nil {
		s.drop()
		return false, err
	}
	s.o.Log.Warn("connected to the database again", "database", s.place.name)
	return landed, nil
}

// connect makes a connection that has the node's lock.
// REQUIRES: write is locked, or nobody has the store yet.
func (s *Store) connect(ctx context.Context) error {
	w := &s.write
	conn, err := pgx.ConnectConfig(ctx, s.place.pool.ConnConfig.Copy())
	if err != nil {
		return s.place.failed("connecting to", err)
	}
	w.conn = conn
	if err := s.claim(ctx, conn); err != nil {
		s.drop()
		return err
	}
	return nil
}

// claim ends the session before this one and takes its lock.
func (s *Store) claim(ctx context.Context, conn *pgx.Conn) error {
	w := &s.write
	var version int
	var now backend
	err := conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int, pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()").Scan(&version, &now.pid, &now.since)
	if err == nil {
		_, err = conn.Exec(ctx, durable)
	}
	if err != nil {
		return s.place.failed("connecting to", err)
	}
	if version < 130000 {
		return llm.Invalid("data", "the database %s is PostgreSQL %d; 13 or later is needed", s.place.name, version/10000)
	}
	if w.old.pid != 0 { // its transaction would still hold the node's row
		if _, err := conn.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND backend_start = $2", w.old.pid, w.old.since); err != nil {
			return s.place.failed("connecting to", err)
		}
	}
	w.old = now
	return s.lock(ctx, conn)
}

// lock takes the advisory lock, and waits a moment for an owner that may be dying.
func (s *Store) lock(ctx context.Context, conn *pgx.Conn) error {
	for wait := s.o.LockWait; ; wait -= lockEvery {
		var got bool
		if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1, $2)", int32(lockClass), lockID()).Scan(&got); err != nil {
			return s.place.failed("locking", err)
		}
		if got {
			return nil
		}
		if wait <= 0 {
			return s.locked(ctx, conn)
		}
		select {
		case <-time.After(lockEvery):
		case <-ctx.Done():
			return s.place.failed("locking", ctx.Err())
		}
	}
}

// locked is the error that names the owner.
func (s *Store) locked(ctx context.Context, conn *pgx.Conn) error {
	holder := "a session of another user's"
	var name *string
	var since *time.Time
	err := conn.QueryRow(ctx, `SELECT a.application_name, a.backend_start FROM pg_locks l JOIN pg_stat_activity a USING (pid)
		WHERE l.locktype = 'advisory' AND l.granted AND l.classid::bigint = $1 AND l.objid::bigint = $2
		AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`, int64(lockClass), int64(uint32(lockID()))).Scan(&name, &since)
	if err == nil && name != nil && since != nil {
		holder = fmt.Sprintf("%s, since %s", *name, since.UTC().Format(time.RFC3339))
	}
	return &llm.Error{Kind: llm.KindUnavailable, Code: "store_locked",
		Message: fmt.Sprintf("the database %s is in use by another process (%s); stop it, or name another database", s.place.name, holder)}
}

// resume compares the node with what this process knows of it. A server that crashed may have lost batches that were
// pending: they are written anew. Nothing is pending after it.
// REQUIRES: a connection that has the lock.
func (s *Store) resume(ctx context.Context) (landed bool, err error) {
	w := &s.write
	var epoch, batch int64
	if err := w.conn.QueryRow(ctx, "SELECT epoch, batch FROM weir_node WHERE node = $1", node).Scan(&epoch, &batch); err != nil {
		return false, s.place.failed("reading", err)
	}
	if s.pool == nil { // at Open
		w.epoch, w.batch = epoch, batch
		return false, nil
	}
	landed = w.doubt && batch == w.batch+1
	gone := w.batch - batch
	switch {
	case w.taken && epoch != w.epoch, !landed && (gone < 0 || gone > int64(len(w.pending))):
		return false, s.over(ctx)
	case gone > 0:
		err = s.rewrite(ctx, gone)
	case landed || len(w.pending) > 0:
		_, err = w.conn.Exec(ctx, flush, node)
	}
	if err != nil {
		return false, s.place.failed("writing to", err)
	}
	w.epoch, w.batch, w.doubt, w.pending = epoch, max(batch, w.batch), false, nil
	return landed, nil
}

// rewrite writes the newest pending batches as one.
func (s *Store) rewrite(ctx context.Context, batches int64) error {
	w := &s.write
	var lost sheet
	if err := lost.sort(slices.Concat(w.pending[int64(len(w.pending))-batches:]...)); err != nil {
		return err
	}
	lost.sync = true
	s.o.Log.Warn("the database crashed; what it had not made stable is written again", "database", s.place.name, "batches", batches)
	return w.conn.SendBatch(ctx, lost.batch(w.epoch, w.batch-batches, w.batch)).Close()
}

// take raises the epoch before the first batch, so that whoever wrote before writes no more.
// REQUIRES: write is locked, and has a session.
func (s *Store) take(ctx context.Context) error {
	w := &s.write
	if w.taken {
		return nil
	}
	err := w.conn.QueryRow(ctx, "UPDATE weir_node SET epoch = epoch + 1, host = $2, pid = $3, since = now() WHERE node = $1 AND epoch = $4 AND batch = $5 RETURNING epoch",
		node, plain(s.place.host), os.Getpid(), w.epoch, w.batch).Scan(&w.epoch)
	switch {
	case err == nil:
		w.taken = true
		return nil
	case errors.Is(err, pgx.ErrNoRows):
		return s.over(ctx)
	}
	s.drop()
	return s.place.failed("writing to", err)
}

// over finds out why this process may not write any more, and keeps it.
// REQUIRES: write is locked, and has a connection.
func (s *Store) over(ctx context.Context) error {
	w := &s.write
	var epoch, batch, pid int64
	var host string
	var since time.Time
	err := w.conn.QueryRow(ctx, "SELECT epoch, batch, host, pid, since FROM weir_node WHERE node = $1", node).Scan(&epoch, &batch, &host, &pid, &since)
	if err != nil {
		s.drop()
		return s.place.failed("reading", err)
	}
	text := fmt.Sprintf("the database %s has batch %d where this process wrote %d: it was restored, or is a copy that lagged; nothing more is written to it: start this process anew, and it goes on from what is there", s.place.name, batch, w.batch)
	if epoch != w.epoch {
		text = fmt.Sprintf("the database %s was taken over by another process (weir on %s, pid %d, since %s) while this one had no connection to it; nothing more is written to it: stop this process", s.place.name, host, pid, since.UTC().Format(time.RFC3339))
	}
	w.lost = &llm.Error{Kind: llm.KindUnavailable, Code: "store_lost", Message: text}
	s.drop() // and the lock
	return w.lost
}

// drop gives the connection up.
func (s *Store) drop() {
	if s.write.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.write.conn.Close(ctx)
}
