package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// restore reads the totals and the tail of the log, bumps the epoch, and settles what was left open. It runs
// before the owner's goroutine and uses the owner's own way of writing.
func (l *Ledger) restore() (State, error) {
	o := newOwner(l)
	l.owner = o
	o.books.load = l.loadQuota
	if err := l.refuseRestoring(); err != nil {
		return State{}, err
	}
	if err := l.openStore(); err != nil {
		return State{}, err
	}
	for _, step := range []func() error{o.readBase, o.readUsers, o.readQuotas, o.readNumbers, o.readAuditHead, o.readOpens, o.readTail} {
		if err := step(); err != nil {
			return State{}, err
		}
	}
	for _, r := range o.books.opens {
		o.books.hold(r.reserve)
	}
	recovered, err := o.recover()
	if err != nil {
		return State{}, fmt.Errorf("settling what was left open: %w", err)
	}
	s := o.state()
	s.Recovered, s.Recoveries = len(recovered), recovered
	s.Told, err = l.readTold()
	return s, err
}

// openStore checks that the store is this ledger's to open and marks the opening, durably, before anything else.
func (l *Ledger) openStore() error {
	currency, err := l.fixCurrency()
	if err != nil {
		return err
	}
	epoch, err := l.bumpEpoch()
	if err != nil {
		return err
	}
	return l.store.Apply(append(currency, epoch), true)
}

// fixCurrency gives the write that fixes the currency of a store that has none yet.
func (l *Ledger) fixCurrency() ([]Write, error) {
	kept, ok, err := l.store.Get([]byte(currencyKey))
	switch {
	case err != nil || l.o.Currency == "":
		return nil, err
	case !ok:
		return []Write{{[]byte(currencyKey), []byte(l.o.Currency)}}, nil
	case string(kept) != l.o.Currency:
		return nil, conflict("currency_differs", "the amounts of this ledger are in %s and cannot become %s; set currency to %s, or name another data folder",
			kept, l.o.Currency, kept)
	}
	return nil, nil
}

// Currency is what the amounts of a store are counted in; empty when no Open has named one.
func Currency(s Store) (string, error) {
	kept, _, err := s.Get([]byte(currencyKey))
	return string(kept), err
}

// bumpEpoch makes this opening's reservation numbers new.
func (l *Ledger) bumpEpoch() (Write, error) {
	var epoch int64
	v, ok, err := l.store.Get([]byte(epochKey))
	if err != nil {
		return Write{}, err
	}
	if ok {
		if err := getNumbers(v, &epoch); err != nil || epoch < 0 {
			return Write{}, corrupt([]byte(epochKey), "not an epoch")
		}
	}
	if l.epoch = uint64(epoch) + 1; l.epoch >= 1<<23 {
		return Write{}, llm.Errorf(llm.KindInternal, "the ledger was opened %d times; reservation numbers are used up", epoch)
	}
	return Write{[]byte(epochKey), putNumbers(int64(l.epoch))}, nil
}

// scan visits a prefix and stops at the first error, naming the key.
func (l *Ledger) scan(prefix, start []byte, reverse bool, visit func(k, v []byte) (more bool, err error)) error {
	return scanStore(l.store, prefix, start, reverse, visit)
}

func scanStore(s Store, prefix, start []byte, reverse bool, visit func(k, v []byte) (more bool, err error)) error {
	var bad error
	err := s.Scan(prefix, start, reverse, func(k, v []byte) bool {
		more, err := visit(k, v)
		if err != nil {
			bad = corrupt(k, err.Error())
		}
		return more && err == nil
	})
	if err != nil {
		return err
	}
	return bad
}

func (o *owner) readUsers() error {
	return o.l.scan([]byte{keyUser}, nil, false, func(k, v []byte) (bool, error) {
		id, a, err := readUser(k, v)
		o.books.users[id] = a
		return true, err
	})
}

func readUser(k, v []byte) (id uint64, a account, err error) {
	id, ok := keyNum(k, 0)
	if !ok {
		return 0, a, errShort
	}
	return id, a, getNumbers(v, (*int64)(&a.credits), (*int64)(&a.posted))
}

func readQuota(k, v []byte) (id quotaID, used llm.Micro, err error) {
	id, ok := quotaOf(k)
	if !ok {
		return id, 0, errShort
	}
	return id, used, getNumbersInto(v, &used)
}

func getNumbersInto(v []byte, m *llm.Micro) error { return getNumbers(v, (*int64)(m)) }

// readQuotas keeps the newest two periods of each key and window in memory, and those that are not long over: a clock that
// was ahead may have begun newer ones than the present. Older ones are read when an entry names them. Labels of one window
// are beside each other, oldest first.
func (o *owner) readQuotas() error {
	var last, before quotaID
	return o.l.scan([]byte{keyQuota}, nil, false, func(k, v []byte) (bool, error) {
		id, used, err := readQuota(k, v)
		if err != nil {
			return false, err
		}
		if before.follows(id) && last.follows(id) && before.label < longOver(llm.WindowOf(id.label), o.l.opened.wall) {
			delete(o.books.quotas, before)
		}
		o.books.quotas[id] = used
		before, last = last, id
		return true, nil
	})
}

// longOver is a label below which periods of a window are over at a time, wherever they begin and however zones change.
func longOver(w llm.Window, at time.Time) int32 {
	y, m, d := at.UTC().AddDate(0, 0, -[...]int{64, 16, 4}[w]).Date()
	switch w {
	case llm.Week:
		return int32(y*1_000 + time.Date(y, m, d, 0, 0, 0, 0, time.UTC).YearDay())
	case llm.Day:
		return int32((y*100+int(m))*100 + d)
	}
	return int32(y*100 + int(m))
}

// follows tells whether two periods are of the same key and window.
func (q quotaID) follows(o quotaID) bool {
	return q.key == o.key && llm.WindowOf(q.label) == llm.WindowOf(o.label)
}

// loadQuota reads one total. A damaged or unreadable one cannot be told to the fold that asks; it shows in Verify.
func (l *Ledger) loadQuota(id quotaID) (used llm.Micro) {
	v, ok, err := l.store.Get(quotaKey(id))
	if err != nil || !ok {
		return 0
	}
	_ = getNumbersInto(v, &used)
	return used
}

func (o *owner) readNumbers() error {
	return o.l.scan([]byte{keyNumber}, nil, false, func(k, v []byte) (bool, error) {
		var n int64
		err := getNumbers(v, &n)
		o.l.numbers.save(string(k[1:]), uint64(n))
		return true, err
	})
}

// readAuditHead finds the end of the audit chain, and refuses to go on from another one than was written last.
func (o *owner) readAuditHead() error {
	err := o.l.scan([]byte{keyAudit}, nil, true, func(k, v []byte) (bool, error) {
		a, err := readAudit(v)
		o.audit = auditHead{a.Seq, a.Hash}
		return false, err
	})
	if err != nil {
		return err
	}
	v, ok, err := o.l.store.Get([]byte(auditKey))
	if err != nil || !ok { // no line yet; or none since the end is kept
		return err
	}
	if kept, err := readAuditHead(v); err != nil || kept != o.audit {
		return corrupt([]byte(auditKey), fmt.Sprintf("the audit chain ends at line %d, and line %d was written last", o.audit.seq, kept.seq))
	}
	return nil
}

func (o *owner) readOpens() error {
	return o.l.scan([]byte{keyOpen}, nil, false, func(k, v []byte) (bool, error) {
		r, err := readOpen(v)
		if err == nil {
			o.books.opens[r.reserve.ID] = r
		}
		return true, err
	})
}

// readTail replays the end of the log for what it says about open reservations; the totals already have it.
func (o *owner) readTail() error {
	var last *chunkHead
	err := o.l.scan([]byte{keyLog}, nil, true, func(k, v []byte) (bool, error) {
		h, _, err := readChunkHead(v)
		last = &h
		return false, err
	})
	if err != nil || last == nil {
		return err
	}
	o.log = last.first + last.count
	return o.l.scan([]byte{keyLog}, numKey(keyLog, last.tail), false, func(k, v []byte) (bool, error) {
		chunk, _ := keyNum(k, 0)
		_, err := readChunk(v, func(_ int, e, _ *llm.Entry) error {
			o.retell(e, chunk)
			return nil
		})
		return true, err
	})
}

// retell applies one entry of the tail to the open reservations.
func (o *owner) retell(e *llm.Entry, chunk uint64) {
	r := o.books.opens[e.ID]
	switch {
	case e.Kind == llm.EntryReserve && r == nil:
		reserve := *e
		r = &open{reserve: &reserve}
		o.books.opens[e.ID] = r
	case e.Kind == llm.EntryProgress && r != nil:
		r.output = max(r.output, e.Usage.OutputTokens)
	case ends(e.Kind):
		o.books.close(e.ID, e.Kind)
		return
	}
	if r != nil {
		r.at = chunk
		o.recent = append(o.recent, statement{e.ID, chunk})
	}
}

// recover settles every open reservation: input plus last progress at the price of its admission, flagged
// estimated. An open reservation counts as sent, because nobody can know any more.
func (o *owner) recover() ([]Recovery, error) {
	left := make([]Recovery, 0, len(o.books.opens))
	for _, r := range o.books.opens {
		left = append(left, Recovery{Reserve: *r.reserve, Output: r.output, Reason: r.reason()})
	}
	slices.SortFunc(left, func(a, b Recovery) int { return cmp.Compare(a.Reserve.ID, b.Reserve.ID) })
	items := make([]item, len(left))
	for i := range left {
		end := left[i].ending(o.l.clock.Wall().UnixMilli())
		items[i].entry, left[i].Cost = end, end.Cost
	}
	for len(items) > 0 {
		n := o.plan(items)
		if err := o.apply(); err != nil {
			return nil, err
		}
		o.commit()
		o.group.reset()
		items = items[n:]
	}
	return left, o.l.store.Sync()
}

func (r *open) reason() Reason {
	switch {
	case !r.reserve.Billed:
		return ReasonNotBilled
	case r.output > 0:
		return ReasonRelayed
	}
	return ReasonUnanswered
}

// ending is the entry that settles it.
func (r *Recovery) ending(nowMS int64) llm.Entry {
	e := llm.Entry{Kind: llm.EntrySettle, ID: r.Reserve.ID, AtMS: nowMS, Status: llm.StatusPartial, Estimated: true, ServiceTier: r.Reserve.ServiceTier,
		Usage: llm.Usage{InputTokens: r.Reserve.Usage.InputTokens, OutputTokens: r.Output}}
	if r.Reserve.Billed {
		e.Cost = r.Reserve.Price.Cost(e.Usage)
	}
	return e
}

// state is what the limiter needs to know before traffic.
func (o *owner) state() State {
	s := State{Balances: make(map[uint64]Balance, len(o.books.users))}
	for id, a := range o.books.users {
		s.Balances[id] = Balance{a.credits, a.posted}
	}
	for q, used := range o.books.quotas {
		s.Used = append(s.Used, QuotaUse{q.key, q.label, used})
	}
	slices.SortFunc(s.Used, func(a, b QuotaUse) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Label, b.Label))
	})
	return s
}
