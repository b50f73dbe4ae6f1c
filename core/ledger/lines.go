package ledger

import (
	"context"
	"iter"
	"slices"

	"github.com/weir-gateway/weir/core/llm"
)

// Reservation is one that is open: held, and neither settled nor voided.
type Reservation struct {
	Reserve llm.Entry
	Output  llm.Tokens // relayed so far, as the last progress entry says
}

// Reservations gives what is open in a store that no ledger has, in the order it was made. Nothing is written: a start
// would settle them.
func Reservations(s Store) ([]Reservation, error) {
	o := newOwner(&Ledger{store: s})
	if err := o.readOpens(); err != nil {
		return nil, err
	}
	if err := o.readTail(); err != nil {
		return nil, err
	}
	return o.books.reservations(), nil
}

// Reservations is the package's Reservations for the ledger that is running: what is open at one moment, as the log has
// it. It fails while the ledger cannot write.
func (l *Ledger) Reservations(ctx context.Context) (all []Reservation, err error) {
	err = l.submit(ctx, &put{look: func(stored *books) { all = stored.reservations() }})
	return all, err
}

func (b *books) reservations() []Reservation {
	all := make([]Reservation, 0, len(b.opens))
	for _, r := range b.opens {
		all = append(all, Reservation{*r.reserve, r.output})
	}
	slices.SortFunc(all, func(a, b Reservation) int {
		if a.Reserve.ID < b.Reserve.ID {
			return -1
		}
		return 1
	})
	return all
}

// Line is one entry of the log with its number.
type Line struct {
	Seq   uint64
	Entry llm.Entry
	// Reserve is what a settle or void ends: the ending itself has no more than is new. Zero for other kinds.
	Reserve llm.Entry
}

// Lines visits the entries of the log in order, from a number on (0: the first that is there). What was dropped is left
// out: the first line's number tells. The next number after the last line resumes the visit, now or when there is more.
func Lines(s Store, from uint64) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		for {
			page, next, err := linePage(s, from)
			if err != nil {
				yield(Line{}, err)
				return
			}
			for _, line := range page {
				if !yield(line, nil) {
					return
				}
			}
			if next == from || len(page) == 0 {
				return
			}
			from = next
		}
	}
}

// Lines is the package's Lines for the ledger that is running.
func (l *Ledger) Lines(from uint64) iter.Seq2[Line, error] { return Lines(l.store, from) }

// linePage reads some chunks' lines from a number on, and the number after them.
func linePage(s Store, from uint64) (page []Line, next uint64, err error) {
	start, err := chunkOf(s, from)
	if err != nil {
		return nil, 0, err
	}
	next = from
	err = scanStore(s, []byte{keyLog}, start, false, func(_, v []byte) (bool, error) {
		h, _, err := readChunkHead(v)
		if err != nil {
			return false, err
		}
		_, err = readChunk(v, func(i int, e, reserve *llm.Entry) error {
			seq := h.first + uint64(i)
			if seq < from {
				return nil
			}
			line := Line{Seq: seq, Entry: *e}
			if reserve != nil {
				line.Reserve = *reserve
			}
			page = append(page, line)
			return nil
		})
		next = h.first + h.count
		return len(page) < 1_000, err
	})
	return page, next, err
}

// chunkOf is the key of the chunk that has an entry, or of where it would be.
func chunkOf(s Store, seq uint64) (key []byte, err error) {
	key = numKey(keyLog, seq)
	err = scanStore(s, []byte{keyLog}, key, true, func(k, _ []byte) (bool, error) {
		key = slices.Clone(k)
		return false, nil
	})
	return key, err
}
