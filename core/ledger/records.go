package ledger

import (
	"encoding/binary"
	"encoding/hex"
	"iter"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// place is where a record is: second of its end, chunk, position in the chunk. A cursor is a place in hex.
type place struct {
	second, chunk uint64
	pos           uint32
}

func (p place) cursor() string {
	b := numKey(keyTime, p.second, p.chunk)[1:]
	return hex.EncodeToString(binary.BigEndian.AppendUint32(b, p.pos))
}

func parseCursor(s string) (p place, err error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != 20 {
		return p, llm.Invalid("cursor", "the cursor %q is not one that a list gave; leave it out to start over", s[:min(len(s), 64)])
	}
	return place{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint32(b[16:])}, nil
}

// Records visits usage records by the second of their end, and within a second in log order (both backwards when
// Newest). It reads in pages; a record that ends meanwhile may or may not be seen.
func (l *Ledger) Records(f Filter) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		start, after, err := f.start()
		for err == nil {
			var keys []place
			if keys, err = l.timeKeys(start, &f); err != nil || len(keys) == 0 {
				break
			}
			for _, k := range keys {
				var page []Record
				if page, err = l.chunkRecords(k, &f, after); err != nil {
					break
				}
				for i := range page {
					if !yield(page[i], nil) {
						return
					}
				}
			}
			start = next(keys[len(keys)-1], f.Newest)
		}
		if err != nil {
			yield(Record{}, err)
		}
	}
}

// start is the first time key to look at (nil: the end of the index), and the place to resume after.
func (f *Filter) start() (key []byte, after *place, err error) {
	if f.Cursor != "" {
		p, err := parseCursor(f.Cursor)
		return numKey(keyTime, p.second, p.chunk), &p, err
	}
	switch {
	case f.Newest && !f.To.IsZero():
		return numKey(keyTime, second(f.To.UnixMilli()), ^uint64(0)), nil, nil
	case !f.Newest && !f.From.IsZero():
		return numKey(keyTime, second(f.From.UnixMilli()), 0), nil, nil
	}
	return nil, nil, nil
}

// next is the time key after (or, newest first, before) one.
func next(p place, newest bool) []byte {
	switch {
	case !newest:
		return numKey(keyTime, p.second, p.chunk+1)
	case p.chunk > 0:
		return numKey(keyTime, p.second, p.chunk-1)
	}
	return numKey(keyTime, p.second-1, ^uint64(0))
}

// timeKeys reads some keys of the time index from one on, within the filter's times.
func (l *Ledger) timeKeys(start []byte, f *Filter) (keys []place, err error) {
	err = l.scan([]byte{keyTime}, start, f.Newest, func(k, _ []byte) (bool, error) {
		s, ok := keyNum(k, 0)
		chunk, ok2 := keyNum(k, 1)
		if !ok || !ok2 {
			return false, errShort
		}
		from, to := time.Unix(int64(s), 0), time.Unix(int64(s)+1, 0)
		if f.Newest && !f.From.IsZero() && !to.After(f.From) || !f.Newest && !f.To.IsZero() && !from.Before(f.To) {
			return false, nil
		}
		keys = append(keys, place{second: s, chunk: chunk})
		return len(keys) < 64, nil
	})
	return keys, err
}

// chunkRecords gives the records of one chunk and second that match, in the order asked for.
func (l *Ledger) chunkRecords(at place, f *Filter, after *place) (page []Record, err error) {
	key := numKey(keyLog, at.chunk)
	v, ok, err := l.store.Get(key)
	if err != nil {
		return nil, err
	}
	if !ok && at.chunk < l.base.Load() {
		return nil, nil // dropped since its time key was read
	}
	if !ok {
		return nil, corrupt(key, "the time index names a chunk that is not there")
	}
	_, err = readChunk(v, func(i int, e, reserve *llm.Entry) error {
		p := place{at.second, at.chunk, uint32(i)}
		if reserve != nil && second(e.AtMS) == at.second && !f.passed(p, after) && f.match(e, reserve) {
			page = append(page, Record{Cursor: p.cursor(), Reserve: *reserve, End: *e})
		}
		return nil
	})
	if err != nil {
		return nil, corrupt(key, err.Error())
	}
	if f.Newest {
		for i, j := 0, len(page)-1; i < j; i, j = i+1, j-1 {
			page[i], page[j] = page[j], page[i]
		}
	}
	return page, nil
}

// passed reports whether p was given before the cursor or is the cursor's own.
func (f *Filter) passed(p place, after *place) bool {
	if after == nil || p.second != after.second || p.chunk != after.chunk {
		return false
	}
	if f.Newest {
		return p.pos >= after.pos
	}
	return p.pos <= after.pos
}

func (f *Filter) match(e, r *llm.Entry) bool {
	return (f.Key == 0 || f.Key == r.KeyID) &&
		(f.User == 0 || f.User == r.UserID) &&
		(f.Org == 0 || f.Org == r.OrgID) &&
		(f.Model == "" || f.Model == r.Model) &&
		(f.Status == "" || f.Status == e.Status.String()) &&
		(f.From.IsZero() || e.AtMS >= f.From.UnixMilli()) &&
		(f.To.IsZero() || e.AtMS < f.To.UnixMilli())
}
