package ledger

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"slices"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// Retention. The log may lose its beginning: what it added up to is kept as a base, a copy of the totals and of the open
// reservations as they were at one entry, and whoever folds the log starts from it. The base has a checksum, which is
// also the content of an audit line, so that it cannot be exchanged without breaking the chain.
//
//	Prune:  fold from the old base up to the last chunk that is old throughout      (reading only)
//	        write the copies, under the number of the first entry that stays        (nobody looks at them)
//	        one batch: the head, which makes them the base, and the audit line
//	        delete the old base, the chunks before and their time keys
//
// A crash on the way leaves copies without a head, which the next Prune deletes, or chunks before the base, which
// everyone passes over and the next Prune deletes.

// baseHead names the base: the first entry that is not in it, how many copies there are, and their checksum.
type baseHead struct {
	first, count uint64
	sum          [32]byte
}

const (
	keyBase     = 'b'
	baseHeadTag = 0
	baseCopyTag = 1
	pruneAction = "ledger.prune"
	pruneBytes  = 64 << 10 // keys and values of one batch, about
)

func baseHeadKey() []byte { return []byte{keyBase, baseHeadTag} }

// baseKey is where the base that begins at first keeps its copy of a key.
func baseKey(first uint64, key []byte) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{keyBase, baseCopyTag}, first), key...)
}

// baseOf undoes baseKey.
func baseOf(k []byte) (first uint64, key []byte, ok bool) {
	if len(k) < 11 || k[1] != baseCopyTag {
		return 0, nil, false
	}
	return binary.BigEndian.Uint64(k[2:]), k[10:], true
}

func (h baseHead) value() []byte {
	return append(putNumbers(int64(h.first), int64(h.count)), h.sum[:]...)
}

func readBaseHead(b []byte) (h baseHead, err error) {
	if len(b) == 0 || b[0] != codecVersion {
		return h, errVersion
	}
	c := coder{buf: b[1:]}
	h.first, h.count = uint64(c.varint()), uint64(c.varint())
	if c.err != nil || len(c.buf) != len(h.sum) {
		return h, errShort
	}
	h.sum = [32]byte(c.buf)
	return h, nil
}

// after is what the audit line says.
func (h baseHead) after() []byte {
	return fmt.Appendf(nil, `{"first":%d,"copies":%d,"sha256":"%s"}`, h.first, h.count, hex.EncodeToString(h.sum[:]))
}

// copySum is the running checksum of the copies, in the order of their keys.
type copySum struct{ h hash.Hash }

func newCopySum() copySum { return copySum{sha256.New()} }

func (s copySum) add(key, value []byte) {
	s.h.Write(binary.AppendUvarint(nil, uint64(len(key))))
	s.h.Write(key)
	s.h.Write(binary.AppendUvarint(nil, uint64(len(value))))
	s.h.Write(value)
}

func (s copySum) sum() [32]byte { return [32]byte(s.h.Sum(nil)) }

// takeCopy puts one copy into the books that start from the base.
func (b *books) takeCopy(key, value []byte) error {
	switch key[0] {
	case keyUser:
		id, a, err := readUser(key, value)
		a.held = b.users[id].held
		b.users[id] = a
		return err
	case keyQuota:
		id, used, err := readQuota(key, value)
		b.quotas[id] = used
		return err
	case keyOpen:
		r, err := readOpen(value)
		if err == nil {
			b.opens[r.reserve.ID] = r
			b.hold(r.reserve)
		}
		return err
	}
	return errMalform
}

// copies are the books as copies, in the order of their keys.
func (b *books) copies() []Write {
	var all []Write
	for id, r := range b.opens {
		all = append(all, Write{numKey(keyOpen, id), appendOpen(nil, r)})
	}
	for id, used := range b.quotas {
		all = append(all, Write{quotaKey(id), putNumbers(int64(used))})
	}
	for id, a := range b.users {
		all = append(all, Write{numKey(keyUser, id), putNumbers(int64(a.credits), int64(a.posted))})
	}
	slices.SortFunc(all, func(a, b Write) int { return slices.Compare(a.Key, b.Key) })
	return all
}

// Pruned is what Prune did.
type Pruned struct {
	First   uint64 // the log begins with this entry now
	Entries uint64 // that were dropped
}

// Prune drops the usage records of requests that ended before a time, with all else the log has from then. Balances,
// the use of every period, open reservations and documents stay, and so does everything that Verify can check: it
// starts from a checked copy of the totals. The log is dropped in whole chunks and from its start only, so what is
// younger than the oldest entry that must stay, stays as well; and the newest 8,192 entries always do. c names the
// actor; action and content of the audit line are set here. It may take as long as Verify; the ledger goes on meanwhile.
func (l *Ledger) Prune(ctx context.Context, c Change, before time.Time) (Pruned, error) {
	l.pruning.Lock()
	defer l.pruning.Unlock()
	old := l.base.Load()
	at, b, err := l.foldOld(old, before.UnixMilli())
	if err != nil {
		return Pruned{}, err
	}
	if at > old {
		if err := l.writeBase(ctx, c, baseHead{first: at}, b.copies()); err != nil {
			return Pruned{}, err
		}
	}
	return Pruned{First: at, Entries: at - old}, l.dropBelow(ctx, at)
}

// foldOld folds the base and every chunk after it that is old throughout, and gives the first entry after those.
func (l *Ledger) foldOld(from uint64, beforeMS int64) (at uint64, b *books, err error) {
	b, at = newBooks(nil), from
	err = l.scan(baseKey(from, nil), nil, false, func(k, v []byte) (bool, error) {
		_, key, _ := baseOf(k)
		return true, b.takeCopy(key, v)
	})
	if err != nil {
		return 0, nil, err
	}
	tail := from
	err = l.scan([]byte{keyLog}, nil, true, func(_, v []byte) (bool, error) {
		h, _, err := readChunkHead(v)
		tail = h.tail
		return false, err
	})
	if err != nil {
		return 0, nil, err
	}
	err = l.scan([]byte{keyLog}, numKey(keyLog, from), false, func(k, v []byte) (bool, error) {
		first, _ := keyNum(k, 0)
		young := false
		h, err := readChunk(v, func(_ int, e, _ *llm.Entry) error {
			young = young || e.AtMS >= beforeMS
			return nil
		})
		if err != nil || young || first+h.count > tail {
			return false, err
		}
		_, err = readChunk(v, func(_ int, e, _ *llm.Entry) error {
			_, err := b.fold(e, first)
			return err
		})
		at = first + h.count
		return true, err
	})
	return at, b, err
}

// writeBase makes the copies the base.
func (l *Ledger) writeBase(ctx context.Context, c Change, head baseHead, copies []Write) error {
	sum := newCopySum()
	for i, w := range copies {
		sum.add(w.Key, w.Value)
		copies[i].Key = baseKey(head.first, w.Key)
	}
	if err := l.writeAll(ctx, copies); err != nil {
		return err
	}
	head.count, head.sum = uint64(len(copies)), sum.sum()
	c.Action, c.Target, c.Before, c.After = pruneAction, "ledger", nil, head.after()
	return l.submit(ctx, &put{change: c, base: &head, writes: []Write{{baseHeadKey(), head.value()}}})
}

// dropBelow deletes what comes before the base: other bases' copies, chunks and their time keys.
func (l *Ledger) dropBelow(ctx context.Context, first uint64) error {
	var old []Write
	err := l.scan([]byte{keyBase, baseCopyTag}, nil, false, func(k, _ []byte) (bool, error) {
		if of, _, ok := baseOf(k); ok && of != first {
			old = append(old, Write{Key: slices.Clone(k)})
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	err = l.scan([]byte{keyLog}, nil, false, func(k, v []byte) (bool, error) {
		chunk, _ := keyNum(k, 0)
		if chunk >= first {
			return false, nil
		}
		seconds := map[uint64]bool{}
		_, err := readChunk(v, func(_ int, e, reserve *llm.Entry) error {
			if reserve != nil {
				seconds[second(e.AtMS)] = true
			}
			return nil
		})
		for _, s := range slices.Sorted(maps.Keys(seconds)) {
			old = append(old, Write{Key: numKey(keyTime, s, chunk)})
		}
		old = append(old, Write{Key: slices.Clone(k)}) // last: while it is there, its time keys can be found again
		return true, err
	})
	if err != nil {
		return err
	}
	return l.writeAll(ctx, old)
}

// writeAll brings writes into the store through the queue, some at a time.
func (l *Ledger) writeAll(ctx context.Context, all []Write) error {
	for len(all) > 0 {
		n, size := 0, 0
		for n < len(all) && n < 256 && size < pruneBytes {
			size += len(all[n].Key) + len(all[n].Value)
			n++
		}
		if err := l.submit(ctx, &put{writes: all[:n]}); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// foldWrites takes the writes of a Prune, or of a Tell, into the group.
func (o *owner) foldWrites(p *put) error {
	g := &o.group
	for _, w := range p.writes {
		if w.Key[0] == keyTold {
			old, _, err := o.l.store.Get(w.Key)
			if err != nil {
				return err
			}
			g.olds[string(w.Key)] = old
		}
		g.put(w.Key, w.Value)
	}
	if p.base != nil {
		g.base = p.base
		o.writeAudit(o.l.clock.Wall().UnixMilli(), &p.change)
	}
	p.applied = true
	return nil
}

// readBase finds where the log begins.
func (o *owner) readBase() error {
	v, ok, err := o.l.store.Get(baseHeadKey())
	if err != nil {
		return err
	}
	o.base = baseHead{first: 1}
	if ok {
		if o.base, err = readBaseHead(v); err != nil {
			return corrupt(baseHeadKey(), err.Error())
		}
	}
	o.l.base.Store(o.base.first)
	return nil
}
