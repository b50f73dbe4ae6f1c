package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-gateway/weir/core/llm"
)

// Server is what there is to know about a server before its database is trusted with money.
type Server struct {
	Name      string // the database, without secrets
	Version   int    // as 150018
	RoundTrip time.Duration
	Commit    time.Duration // a transaction of one small record, flushed
	Ahead     time.Duration // how far its clock is before this machine's

	Fsync, FullPageWrites, SynchronousCommit, Isolation string
	Standby                                             bool // it takes no writes

	Bytes                       int64 // size of the database
	Connections, MaxConnections int
}

// Examine asks a server about itself. It needs no ownership, and leaves nothing behind.
func Examine(ctx context.Context, url string, clock llm.Clock) (s Server, err error) {
	at, err := parse(url, DefaultTimeout)
	if err != nil {
		return s, err
	}
	ctx, cancel := context.WithTimeout(ctx, DefaultTimeout)
	defer cancel()
	c := at.pool.ConnConfig
	c.ValidateConnect = nil
	conn, err := pgx.ConnectConfig(ctx, c)
	if err != nil {
		return s, at.failed("connecting to", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	s.Name = at.name
	var now time.Time
	err = conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('fsync'), current_setting('full_page_writes'),
		current_setting('synchronous_commit'), current_setting('default_transaction_isolation'), pg_is_in_recovery(), pg_database_size(current_database()),
		(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'), current_setting('max_connections')::int`).Scan(
		&s.Version, &s.Fsync, &s.FullPageWrites, &s.SynchronousCommit, &s.Isolation, &s.Standby, &s.Bytes, &s.Connections, &s.MaxConnections)
	if err != nil {
		return s, at.failed("reading", err)
	}
	if s.RoundTrip, err = median(clock, func() error {
		from := clock.Wall()
		err := conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now)
		s.Ahead = now.Sub(from.Add(clock.Wall().Sub(from) / 2))
		return err
	}); err == nil && !s.Standby {
		s.Commit, err = median(clock, func() error {
			_, err := conn.Exec(ctx, "SELECT pg_logical_emit_message(true, 'weir', '')") // which no table has
			return err
		})
	}
	return s, at.failed("reading", err)
}

// median is what a call takes.
func median(clock llm.Clock, call func() error) (time.Duration, error) {
	var took [9]time.Duration
	for i := range took {
		from := clock.Mono()
		if err := call(); err != nil {
			return 0, err
		}
		took[i] = clock.Mono() - from
	}
	slices.Sort(took[:])
	return took[len(took)/2], nil
}
