package ledger

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// owner is the only writer of the store. Everything in it belongs to its goroutine.
type owner struct {
	l     *Ledger
	books *books // what the store holds
	sheet *books // what the group at hand would change

	log    uint64      // sequence of the next entry of the log
	recent []statement // reserves and progress, oldest first; those within the tail begin at passed
	passed int
	audit  auditHead
	base   baseHead
	// expiredMS is when old answers were last looked for.
	expiredMS int64
	// orphans are reserves whose write failed and whose ending has not come yet. An ending that charges brings its
	// reserve into the log with it, so that the log agrees with the limiter; one that does not, vanishes.
	orphans map[uint64]llm.Entry
	// scrub is what the keys of failed batches were before; the next batch begins with it.
	scrub map[string][]byte

	group group // the one being written
	spare []item
}

// statement says that a reservation said something new in a chunk.
type statement struct{ id, chunk uint64 }

// group is a batch in the making. It is reused.
type group struct {
	outcome []error // per item; nil: written
	body    []byte  // entries of the chunk
	last    bases
	head    chunkHead
	batch   []Write
	slab    []byte // keys and values of the batch: a store keeps nothing of them
	said    []statement
	passed  int             // statements of recent that leave the tail
	adopted []uint64        // orphans whose ending this group decides
	saved   []uint64        // reservations that get a key of their own
	seconds map[uint64]bool // unix seconds that have endings in this chunk
	changes int             // puts in this group: at most one, to keep a batch within what stores take
	numbers map[string]uint64
	olds    map[string][]byte // documents, and what was told, before this group
	audit   auditHead
	base    *baseHead // new with this group
}

func newOwner(l *Ledger) *owner {
	o := &owner{l: l, books: newBooks(nil), orphans: map[uint64]llm.Entry{},
		scrub: map[string][]byte{}, log: 1}
	o.sheet = newBooks(o.books)
	o.group.seconds = map[uint64]bool{}
	o.group.numbers = map[string]uint64{}
	o.group.olds = map[string][]byte{}
	return o
}

// run writes groups until the ledger is closed and the queue is empty.
func (o *owner) run() {
	defer o.l.running.Done()
	q := &o.l.queue
	for {
		q.gather()
		items, first, closed := q.take(o.spare)
		if len(items) > 0 {
			o.drain(items, first)
			clear(items)
			o.spare = items[:0]
			if cap(items) > 2*o.l.o.QueueEntries {
				o.spare = nil // grown by a storm of endings
			}
			continue
		}
		o.spare = items
		if closed {
			return
		}
		<-q.wake
	}
}

// drain writes items in groups.
func (o *owner) drain(items []item, first uint64) {
	for len(items) > 0 {
		n := o.write(items, first)
		items, first = items[n:], first+uint64(n)
	}
}

// write brings the first group of items into the store and acknowledges it. On failure the reserves and changes
// of everything that waits are told so at once, and the rest is tried again until it is written.
func (o *owner) write(items []item, first uint64) int {
	for attempt := 0; ; attempt++ {
		o.l.writes.begin()
		n := o.plan(items) // which may read the store
		err := o.apply()
		o.l.writes.end(err)
		if err == nil {
			o.commit()
			o.settle(items[:n], first)
			return n
		}
		o.undo()
		o.shed(items, first, o.l.Healthy())
		o.shedQueue()
		if !o.pause(attempt) {
			o.l.closed = fmt.Errorf("the ledger was closed with %d endings unwritten: %w", countEndings(items), err)
			o.abandon(items, first, err)
			return len(items)
		}
	}
}

// plan folds as many items as make a group and builds the batch. It gives how many it took.
func (o *owner) plan(items []item) int {
	g := &o.group
	g.head = chunkHead{first: o.log}
	g.audit = o.audit
	for key, value := range o.scrub {
		g.put([]byte(key), value)
	}
	n := 0
	for n < len(items) && n < groupEntries && len(g.body) < groupBytes {
		if items[n].put != nil && g.changes > 0 {
			break
		}
		g.outcome = append(g.outcome, o.fold(&items[n]))
		n++
	}
	o.saveOld()
	o.totals()
	return n
}

// fold takes one item into the sheet and the chunk.
func (o *owner) fold(it *item) error {
	switch {
	case it.shed:
		return nil // decided before
	case it.put != nil:
		return o.foldPut(it.put)
	}
	e := &it.entry
	if r, ok := o.orphans[e.ID]; ok && e.Kind != llm.EntryReserve {
		return o.foldOrphan(e, r)
	}
	return o.enter(e)
}

// foldOrphan decides an entry of a reservation whose reserve could not be written.
func (o *owner) foldOrphan(e *llm.Entry, r llm.Entry) error {
	if !ends(e.Kind) {
		return nil
	}
	o.group.adopted = append(o.group.adopted, e.ID)
	if !charged(e) || e.Cost == 0 {
		return nil
	}
	if err := o.enter(&r); err != nil {
		return err
	}
	return o.enter(e)
}

// enter folds an entry and appends it to the chunk.
func (o *owner) enter(e *llm.Entry) error {
	g := &o.group
	reserve, err := o.sheet.fold(e, g.head.first)
	if err != nil {
		return err
	}
	g.body = appendPair(g.body, e, reserve, &g.last)
	g.head.count++
	switch {
	case ends(e.Kind):
		g.seconds[second(e.AtMS)] = true
	case e.Kind != llm.EntryCredit:
		g.said = append(g.said, statement{e.ID, g.head.first})
	}
	return nil
}

// saveOld gives a key of its own to every open reservation whose reserve leaves the tail with this group, or whose
// newest statement does.
func (o *owner) saveOld() {
	g := &o.group
	tail := o.recent[o.passed:]
	for _, s := range tail {
		if s.chunk+tailEntries > g.head.first {
			break
		}
		g.passed++
		if r := o.sheet.find(s.id); r != nil && (r.at == s.chunk || !r.saved) {
			kept := *r
			kept.saved = true
			o.sheet.opens[s.id] = &kept
			g.saved = append(g.saved, s.id)
		}
	}
	g.head.tail = g.head.first
	if g.passed < len(tail) {
		g.head.tail = tail[g.passed].chunk
	}
}

// totals completes the batch: the chunk, its time keys, and every total the sheet touched.
func (o *owner) totals() {
	g := &o.group
	if g.head.count > 0 {
		value := g.carve(append(appendChunkHead(g.slab, g.head), g.body...))
		g.put(g.key(keyLog, g.head.first), value)
		for s := range g.seconds {
			g.put(g.key(keyTime, s, g.head.first), []byte{codecVersion})
		}
	}
	for id, a := range o.sheet.users {
		if below := o.books.user(id); a.credits != below.credits || a.posted != below.posted || !o.books.hasUser(id) {
			g.put(g.key(keyUser, id), g.total(int64(a.credits), int64(a.posted)))
		}
	}
	for id, used := range o.sheet.quotas {
		key := g.carve(appendQuotaKey(g.slab, id))
		g.put(key, g.total(int64(used)))
	}
	for _, id := range g.saved {
		value := g.carve(appendOpen(g.slab, o.sheet.find(id)))
		g.put(g.key(keyOpen, id), value)
	}
	for id, r := range o.sheet.opens {
		if r != nil {
			continue
		}
		if below := o.books.find(id); below != nil && below.saved {
			g.put(g.key(keyOpen, id), nil)
		}
	}
}

func (g *group) key(kind byte, n ...uint64) []byte { return g.carve(appendKey(g.slab, kind, n...)) }
func (g *group) total(n ...int64) []byte           { return g.carve(appendNumbers(g.slab, n...)) }

// carve gives what was appended to the slab, which may have moved. What was carved before stays as it is.
func (g *group) carve(grown []byte) []byte {
	piece := grown[len(g.slab):len(grown):len(grown)]
	g.slab = grown
	return piece
}

func (g *group) put(key, value []byte) { g.batch = append(g.batch, Write{key, value}) }

func (o *owner) apply() error {
	if len(o.group.batch) == 0 {
		return nil
	}
	return o.l.store.Apply(o.group.batch, o.l.o.Durability == Power)
}

// commit makes memory what the store now is.
func (o *owner) commit() {
	g := &o.group
	o.sheet.merge()
	o.log += g.head.count
	o.forget(g.passed)
	o.recent = append(o.recent, g.said...)
	o.audit = g.audit
	if g.base != nil {
		o.base = *g.base
		o.l.base.Store(g.base.first)
	}
	for _, id := range g.adopted {
		delete(o.orphans, id)
	}
	for kind, next := range g.numbers {
		o.l.numbers.save(kind, next)
	}
	clear(o.scrub)
	if len(g.batch) > 0 {
		o.l.dirty.Store(true)
	}
}

// forget takes statements out of the tail. Their room is used again once it is half of all.
func (o *owner) forget(passed int) {
	o.passed += passed
	if o.passed > len(o.recent)/2 {
		o.recent = slices.Delete(o.recent, 0, o.passed)
		o.passed = 0
	}
}

// settle tells everyone what became of their items and empties the group.
func (o *owner) settle(items []item, first uint64) {
	o.l.acks.advance(first, first+uint64(len(items))-1, o.group.outcome)
	for i := range items {
		if p := items[i].put; p != nil && !items[i].shed {
			p.finish(o.group.outcome[i])
		}
	}
	o.group.reset()
}

func (g *group) reset() {
	clear(g.batch)
	g.outcome, g.body, g.batch, g.slab = g.outcome[:0], g.body[:0], g.batch[:0], g.slab[:0]
	g.said, g.adopted, g.saved = g.said[:0], g.adopted[:0], g.saved[:0]
	g.passed, g.changes, g.last, g.base = 0, 0, bases{}, nil
	clear(g.seconds)
	clear(g.numbers)
	clear(g.olds)
}

// undo throws the failed group away. A store that failed after it wrote (a sync that broke) must not keep it
// either, so the next batch begins with what each of its keys was before; what is written again comes later in
// the batch and wins.
func (o *owner) undo() {
	for _, w := range o.group.batch {
		if _, ok := o.scrub[string(w.Key)]; !ok {
			o.scrub[string(w.Key)] = o.before(w.Key)
		}
	}
	o.sheet.clear()
	o.group.reset()
}

// before is the value of a key as of the last written group.
func (o *owner) before(key []byte) []byte {
	id, _ := keyNum(key, 0)
	switch key[0] {
	case keyUser:
		if a := o.books.user(id); o.books.hasUser(id) {
			return putNumbers(int64(a.credits), int64(a.posted))
		}
	case keyQuota:
		if q, ok := quotaOf(key); ok && o.books.quota(q) != 0 {
			return putNumbers(int64(o.books.quota(q)))
		}
	case keyOpen:
		if r := o.books.find(id); r != nil && r.saved {
			return appendOpen(nil, r)
		}
	case keyDoc, keyTold:
		return o.group.olds[string(key)]
	case keyNumber:
		if n := o.l.numbers.stored(string(key[1:])); n != 0 {
			return putNumbers(int64(n))
		}
	case keyBase:
		if key[1] == baseHeadTag && o.base.count != 0 {
			return o.base.value()
		}
	case keyMeta:
		if o.audit.seq != 0 {
			return o.audit.value()
		}
	}
	return nil // the others are only ever new, or old and given up
}

// shed decides the reserves and changes among items as failed; endings and progress stay.
func (o *owner) shed(items []item, first uint64, err error) {
	var tickets []uint64
	for i := range items {
		it := &items[i]
		switch {
		case it.shed:
			continue
		case it.put != nil:
			it.put.finish(err)
		case it.entry.Kind == llm.EntryReserve:
			o.orphans[it.entry.ID] = it.entry
		default:
			continue
		}
		it.shed = true
		tickets = append(tickets, first+uint64(i))
	}
	o.l.acks.fail(tickets, err)
}

// shedQueue does the same to what was queued before the failure was known.
func (o *owner) shedQueue() {
	q := &o.l.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	o.shed(q.mu.items, q.mu.first, o.l.Healthy())
}

// pause waits before the next attempt: 1 ms, doubling to 1 s. False: the ledger is closing and has tried enough.
func (o *owner) pause(attempt int) bool {
	t := time.NewTimer(min(time.Millisecond<<min(attempt, 10), time.Second))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-o.l.stop:
		<-t.C
		return attempt < closeAttempts
	}
}

const closeAttempts = 5

// abandon gives up on items at close.
func (o *owner) abandon(items []item, first uint64, err error) {
	var lost error = &llm.Error{Kind: llm.KindUnavailable, Code: "ledger_unavailable",
		Message: "the ledger was closed before the entry could be written", Err: err}
	o.group.reset()
	for range items {
		o.group.outcome = append(o.group.outcome, lost)
	}
	o.settle(items, first)
}

func countEndings(items []item) int {
	n := 0
	for i := range items {
		if items[i].put == nil && ends(items[i].entry.Kind) {
			n++
		}
	}
	return n
}

// second is the time bucket of an ending.
func second(atMS int64) uint64 { return uint64(max(atMS, 0)) / 1000 }

var errNotOpen = errors.New("not the form of an open reservation")

// appendOpen is the stored form of an open reservation.
func appendOpen(b []byte, r *open) []byte {
	progress := llm.Entry{Kind: llm.EntryProgress, ID: r.reserve.ID, Usage: llm.Usage{OutputTokens: r.output}}
	return appendEntry(appendEntry(b, r.reserve, &llm.Entry{}), &progress, &llm.Entry{})
}

func readOpen(b []byte) (*open, error) {
	r := &open{reserve: new(llm.Entry), saved: true}
	rest, err := readEntry(b, r.reserve, alone)
	if err != nil {
		return nil, err
	}
	var p llm.Entry
	if rest, err = readEntry(rest, &p, alone); err != nil {
		return nil, err
	}
	if len(rest) != 0 || r.reserve.Kind != llm.EntryReserve || p.Kind != llm.EntryProgress {
		return nil, errNotOpen
	}
	r.output = p.Usage.OutputTokens
	return r, nil
}
