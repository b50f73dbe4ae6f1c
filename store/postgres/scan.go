package postgres

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
)

// Rows of a page. A visit often ends with its first ones.
const (
	firstRows = 16
	laterRows = 1024
	pageBytes = 1 << 20 // a page ends with the value that reaches them
)

// row is a key and its value.
type row struct{ key, value []byte }

// read takes a row of weir_all, whose totals have their value in numbers.
func (r *row) read(from pgx.Row) error {
	var credits, spent int64
	if err := from.Scan(&r.key, &r.value, &credits, &spent); err != nil {
		return err
	}
	switch {
	case ledger.IsBalance(r.key):
		r.value = ledger.Balance{Credits: llm.Micro(credits), Posted: llm.Micro(spent)}.Value()
	case ledger.IsUse(r.key):
		r.value = ledger.UseValue(llm.Micro(spent))
	}
	return nil
}

// span is the keys from lo up to hi, without hi; nil: without an end.
type span struct {
	lo, hi  []byte
	reverse bool
}

func newSpan(prefix, start []byte, reverse bool) span {
	s := span{lo: append([]byte{}, prefix...), hi: after(prefix), reverse: reverse}
	switch {
	case start == nil:
	case !reverse:
		s.lo = slices.MaxFunc([][]byte{s.lo, start}, bytes.Compare)
	default:
		if next := append(slices.Clone(start), 0); s.hi == nil || bytes.Compare(next, s.hi) < 0 {
			s.hi = next
		}
	}
	return s
}

// after is the first key behind those with a prefix; nil: there is none.
func after(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			next := slices.Clone(prefix[:i+1])
			next[i]++
			return next
		}
	}
	return nil
}

// advance leaves out everything up to and including key.
func (s *span) advance(key []byte) {
	if s.reverse {
		s.hi = slices.Clone(key)
	} else {
		s.lo = append(slices.Clone(key), 0)
	}
}

// query is a page of the span.
func (s *span) query(rows int) (sql string, args []any) {
	order, end := "", ""
	args = []any{node, s.lo, rows, pageBytes}
	if s.reverse {
		order = " DESC"
	}
	if s.hi != nil {
		end, args = " AND key < $5", append(args, s.hi)
	}
	return fmt.Sprintf(`SELECT key, value, credits, spent FROM (
		SELECT *, coalesce(sum(octet_length(value)) OVER (ORDER BY key%[1]s ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before FROM (
			SELECT key, value, credits, spent FROM weir_all WHERE node = $1 AND key >= $2%[2]s ORDER BY key%[1]s LIMIT $3) page) sized
		WHERE before < $4 ORDER BY key%[1]s`, order, end), args
}

// Scan implements ledger.Store. It reads one state of the database, in pages.
func (s *Store) Scan(prefix, start []byte, reverse bool, visit func(key, value []byte) bool) error {
	wait := time.NewTimer(s.o.Timeout)
	defer wait.Stop()
	select {
	case s.scans <- struct{}{}:
		defer func() { <-s.scans }()
	case <-wait.C:
		return llm.Errorf(llm.KindUnavailable, "%d visits to the database %s are under way, as many as there can be at once", scanners, s.place.name)
	}
	p := newSpan(prefix, start, reverse)
	conn, page, err := s.firstPage(&p)
	if err != nil {
		return s.place.failed("reading", err)
	}
	defer s.endVisit(conn)
	for rows := firstRows; ; rows = laterRows {
		size := 0
		for _, r := range page {
			size += len(r.value)
			if !visit(r.key, r.value) {
				return nil
			}
		}
		if len(page) == 0 || len(page) < rows && size < pageBytes {
			return nil
		}
		p.advance(page[len(page)-1].key)
		if page, err = s.nextPage(conn.Conn(), &p, laterRows); err != nil {
			return s.place.failed("reading", err)
		}
	}
}

// firstPage begins the visit's transaction, on another connection when one turns out to be lost.
func (s *Store) firstPage(p *span) (conn *pgxpool.Conn, page []row, err error) {
	for range attempts {
		ctx, cancel := context.WithTimeout(context.Background(), s.o.Timeout)
		if conn, err = s.reader(ctx); err == nil {
			if _, err = conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"); err == nil {
				page, err = s.nextPage(conn.Conn(), p, firstRows)
			}
			if err != nil {
				s.endVisit(conn)
			}
		}
		cancel()
		if err == nil || !again(err) {
			break
		}
	}
	return conn, page, err
}

func (s *Store) nextPage(conn *pgx.Conn, p *span, rows int) ([]row, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.o.Timeout)
	defer cancel()
	sql, args := p.query(rows)
	found, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, func(from pgx.CollectableRow) (r row, err error) {
		err = r.read(from)
		return r, err
	})
}

// endVisit ends the transaction and gives the connection back.
func (s *Store) endVisit(conn *pgxpool.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), s.o.Timeout)
	defer cancel()
	_, _ = conn.Exec(ctx, "ROLLBACK") // one that fails is closed by the pool
	conn.Release()
}
