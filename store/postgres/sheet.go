package postgres

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weir-gateway/weir/core/ledger"
)

// sheet is a batch by tables. It is reused, and points into the ledger's batch until the next.
type sheet struct {
	seen map[string]struct{}

	entries         struct{ keys, values, gone [][]byte }
	balances        struct{ keys, gone [][]byte }
	credits, posted []int64
	uses            struct{ keys, gone [][]byte }
	used            []int64

	writes []ledger.Write // all of them, the last first
	size   int            // of their keys and values
	sync   bool           // the commit is flushed
}

var errEmptyKey = errors.New("empty key")

// sort takes a batch; of several writes to one key the last.
func (s *sheet) sort(b []ledger.Write) error {
	if s.seen == nil {
		s.seen = map[string]struct{}{}
	}
	clear(s.seen)
	for _, list := range []*[][]byte{&s.entries.keys, &s.entries.values, &s.entries.gone, &s.balances.keys, &s.balances.gone, &s.uses.keys, &s.uses.gone} {
		clear(*list)
		*list = (*list)[:0]
	}
	s.credits, s.posted, s.used = s.credits[:0], s.posted[:0], s.used[:0]
	clear(s.writes)
	s.writes, s.size = s.writes[:0], 0
	for i := len(b) - 1; i >= 0; i-- {
		w := b[i]
		if len(w.Key) == 0 {
			return errEmptyKey
		}
		if _, later := s.seen[string(w.Key)]; later {
			continue
		}
		s.seen[string(w.Key)] = struct{}{}
		s.writes = append(s.writes, w)
		s.size += len(w.Key) + len(w.Value)
		if err := s.add(w); err != nil {
			return fmt.Errorf("key %q: %w", w.Key, err)
		}
	}
	return nil
}

func (s *sheet) add(w ledger.Write) error {
	switch {
	case ledger.IsBalance(w.Key):
		if w.Value == nil {
			s.balances.gone = append(s.balances.gone, w.Key)
			return nil
		}
		b, err := ledger.ReadBalance(w.Value)
		s.balances.keys, s.credits, s.posted = append(s.balances.keys, w.Key), append(s.credits, int64(b.Credits)), append(s.posted, int64(b.Posted))
		return err
	case ledger.IsUse(w.Key):
		if w.Value == nil {
			s.uses.gone = append(s.uses.gone, w.Key)
			return nil
		}
		used, err := ledger.ReadUse(w.Value)
		s.uses.keys, s.used = append(s.uses.keys, w.Key), append(s.used, int64(used))
		return err
	case w.Value == nil:
		s.entries.gone = append(s.entries.gone, w.Key)
	default:
		s.entries.keys, s.entries.values = append(s.entries.keys, w.Key), append(s.entries.values, w.Value)
	}
	return nil
}

// copied are the writes, to keep.
func (s *sheet) copied() []ledger.Write {
	kept, slab := make([]ledger.Write, len(s.writes)), make([]byte, 0, s.size)
	piece := func(b []byte) []byte {
		if b == nil {
			return nil
		}
		slab = append(slab, b...)
		return slab[len(slab)-len(b) : len(slab) : len(slab)]
	}
	for i, w := range s.writes {
		kept[i] = ledger.Write{Key: piece(w.Key), Value: piece(w.Value)}
	}
	return kept
}

// batch is the sheet as one pipeline, which the server takes for one transaction. Totals go before entries, so that what
// says that the database is being restored goes last.
func (s *sheet) batch(epoch, after, this int64) *pgx.Batch {
	p := &pgx.Batch{}
	if !s.sync {
		p.Queue("SELECT set_config('synchronous_commit', 'off', true)")
	}
	p.Queue("SELECT weir_begin($1, $2, $3, $4)", node, epoch, after, this)
	if len(s.balances.keys) > 0 {
		p.Queue(`INSERT INTO weir_balance SELECT $1::text, * FROM unnest($2::bytea[], $3::bigint[], $4::bigint[])
			ON CONFLICT (node, key) DO UPDATE SET credits = EXCLUDED.credits, posted = EXCLUDED.posted`, node, s.balances.keys, s.credits, s.posted)
	}
	if len(s.balances.gone) > 0 {
		p.Queue("DELETE FROM weir_balance WHERE node = $1 AND key = ANY($2::bytea[])", node, s.balances.gone)
	}
	if len(s.uses.keys) > 0 {
		p.Queue(`INSERT INTO weir_use SELECT $1::text, * FROM unnest($2::bytea[], $3::bigint[])
			ON CONFLICT (node, key) DO UPDATE SET used = EXCLUDED.used`, node, s.uses.keys, s.used)
	}
	if len(s.uses.gone) > 0 {
		p.Queue("DELETE FROM weir_use WHERE node = $1 AND key = ANY($2::bytea[])", node, s.uses.gone)
	}
	if len(s.entries.keys) > 0 {
		p.Queue(`INSERT INTO weir_entry SELECT $1::text, * FROM unnest($2::bytea[], $3::bytea[])
			ON CONFLICT (node, key) DO UPDATE SET value = EXCLUDED.value`, node, s.entries.keys, s.entries.values)
	}
	if len(s.entries.gone) > 0 {
		p.Queue("DELETE FROM weir_entry WHERE node = $1 AND key = ANY($2::bytea[])", node, s.entries.gone)
	}
	return p
}
