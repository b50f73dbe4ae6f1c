package doctor

import (
	"context"
	"fmt"
	"time"
)

// Database is what the server of a database says of itself.
type Database struct {
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

const (
	leastVersion = 130000
	slowTrip     = 5 * time.Millisecond // each request waits for two commits
	clockApart   = 2 * time.Second
)

func checkDatabase(ctx context.Context, data string, ask func(context.Context, string) (Database, error)) []Check {
	d, err := ask(ctx, data)
	if err != nil {
		return []Check{{"database", Fail, err.Error(), "see that the server runs, and that data: names a database of it whose user may connect and make tables"}}
	}
	return []Check{d.reach(), d.settings(), d.clock(), d.room()}
}

func (d Database) reach() Check {
	c := Check{Name: "database", Detail: fmt.Sprintf("%s, PostgreSQL %d.%d: round trip %v, commit %v (medians of 9)", d.Name, d.Version/10_000, d.Version%10_000,
		d.RoundTrip.Round(10*time.Microsecond), d.Commit.Round(10*time.Microsecond))}
	switch {
	case d.Version < leastVersion:
		c.Status, c.Fix = Fail, "use PostgreSQL 13 or later"
	case d.Standby:
		c.Status, c.Detail, c.Fix = Fail, d.Name+" is a standby, and takes no writes", "name the primary, or all hosts: postgres://user@host1,host2/database"
	case d.RoundTrip > slowTrip:
		c.Status, c.Fix = Warn, "bring gateway and database nearer together; each request waits for two commits"
	case d.Commit > slowSync:
		c.Status, c.Fix = Warn, "give the server a faster disk for its write-ahead log; each request waits for two commits"
	}
	return c
}

// settings looks for what lets a crash destroy what was acknowledged. The store has no session without synchronous_commit.
func (d Database) settings() Check {
	c := Check{Name: "database settings", Detail: fmt.Sprintf("fsync %s, full_page_writes %s, synchronous_commit %s, isolation %s", d.Fsync, d.FullPageWrites, d.SynchronousCommit, d.Isolation)}
	switch {
	case d.Fsync != "on":
		c.Status, c.Fix = Warn, "set fsync = on; without it a crash of the server's machine can destroy the whole database"
	case d.FullPageWrites != "on":
		c.Status, c.Fix = Warn, "set full_page_writes = on, unless the file system cannot tear a page"
	case d.Isolation != "read committed":
		c.Status, c.Fix = Warn, "connect without a pooler, or with one that keeps sessions and their parameters; the owner's lock is a session's"
	}
	return c
}

func (d Database) clock() Check {
	c := Check{Name: "database clock", Detail: fmt.Sprintf("%v from this machine's", d.Ahead.Abs().Round(time.Millisecond))}
	if d.Ahead.Abs() > clockApart {
		c.Status, c.Fix = Warn, "set both clocks (NTP); monthly quotas follow the gateway's"
	}
	return c
}

func (d Database) room() Check {
	c := Check{Name: "database room", Detail: fmt.Sprintf("%d MiB, %d of %d connections in use", d.Bytes>>20, d.Connections, d.MaxConnections)}
	if d.Connections*10 > d.MaxConnections*8 {
		c.Status, c.Fix = Warn, "raise max_connections; a gateway takes up to 17"
	}
	return c
}
