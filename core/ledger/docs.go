package ledger

import (
	"context"
	"iter"
	"math"
	"sync"
	"sync/atomic"

	"github.com/weir-gateway/weir/core/llm"
)

// Bounds of one change.
const (
	maxDocs     = 256
	maxDocBytes = 64 << 20
	maxCredits  = 256
	bigDoc      = 48 << 10  // a document from here on does not count against maxSmall
	maxSmall    = 128 << 10 // bytes of the other documents, the audit line and the answer together

	docLive      = 1
	docTombstone = 0
)

// put is a change of the control plane on its way through the queue.
type put struct {
	change  Change
	docs    []Doc
	credits []llm.Entry

	writes []Write             // of a Prune or a Tell, in place of all that
	base   *baseHead           // the one that they complete
	look   func(stored *books) // in place of any change

	state   atomic.Int32 // queued -> taken | withdrawn
	done    chan struct{}
	err     error
	applied bool
	answer  []byte
}

const (
	putQueued = iota
	putTaken
	putWithdrawn
)

func (p *put) finish(err error) {
	p.err = err
	if err != nil {
		p.applied = false
	}
	close(p.done)
}

// Put writes documents and money movements with one audit line, in one batch, through the same queue as entries.
// It returns when they are acknowledged. A repeated Idempotency key with the same Request changes nothing and is
// nil; with another it is a *llm.Error of KindConflict. An error always means that nothing was changed.
func (l *Ledger) Put(ctx context.Context, c Change, docs []Doc, credits []llm.Entry) error {
	_, _, err := l.PutOnce(ctx, c, docs, credits)
	return err
}

// PutOnce is Put for callers who act on the change themselves: applied is false when an earlier Put with the same
// Idempotency key did it, and answer is the one stored by whoever did.
func (l *Ledger) PutOnce(ctx context.Context, c Change, docs []Doc, credits []llm.Entry) (applied bool, answer []byte, err error) {
	if err := checkPut(&c, docs, credits); err != nil {
		return false, nil, err
	}
	if err := ctx.Err(); err != nil {
		return false, nil, err
	}
	p := &put{change: c, docs: docs, credits: credits}
	err = l.submit(ctx, p)
	return p.applied, p.answer, err
}

// submit brings a put to the owner and waits for its outcome.
func (l *Ledger) submit(ctx context.Context, p *put) error {
	p.done = make(chan struct{})
	if _, err := l.queue.push(nil, p, l.Healthy()); err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		if p.state.CompareAndSwap(putQueued, putWithdrawn) {
			return ctx.Err()
		}
		<-p.done // being written: decided at once, one way or the other
	}
	return p.err
}

func checkPut(c *Change, docs []Doc, credits []llm.Entry) error {
	if len(docs) > maxDocs || len(credits) > maxCredits {
		return tooLarge("one change may have %d documents and %d credits; this has %d and %d", maxDocs, maxCredits, len(docs), len(credits))
	}
	if len(c.Idempotency) > maxKeyText {
		return llm.Invalid("Idempotency-Key", "an idempotency key may have %d bytes; this has %d", maxKeyText, len(c.Idempotency))
	}
	small := len(c.Before) + len(c.After) + len(c.Answer) + len(c.Actor) + len(c.Action) + len(c.Target)
	for _, d := range docs {
		if d.Kind == "" || d.ID == "" || len(d.Kind)+len(d.ID) > maxKeyText {
			return llm.Invalid("id", "a document needs a kind and an id of together at most %d bytes", maxKeyText)
		}
		for i := range len(d.Kind) {
			if d.Kind[i] == 0 {
				return llm.Invalid("kind", "a document's kind may not contain NUL")
			}
		}
		if len(d.Data) > maxDocBytes {
			return tooLarge("document %s %s has %d bytes; the limit is %d", d.Kind, d.ID, len(d.Data), maxDocBytes)
		}
		if len(d.Data) < bigDoc {
			small += len(d.Data)
		}
	}
	if small > maxSmall {
		return tooLarge("one change may come to %d bytes; this has %d", maxSmall, small)
	}
	for i := range credits {
		if credits[i].Kind != llm.EntryCredit {
			return llm.Errorf(llm.KindInternal, "entry kind %d cannot be put; only credits can", credits[i].Kind)
		}
	}
	return nil
}

func tooLarge(format string, args ...any) error {
	e := llm.Errorf(llm.KindTooLarge, format, args...)
	e.LimitBytes = maxSmall
	return e
}

// checkCredits refuses what would take a user's credits to where they cannot be counted any more.
func (o *owner) checkCredits(credits []llm.Entry) error {
	after := make(map[uint64]llm.Micro, len(credits))
	for i := range credits {
		id := credits[i].UserID
		was, seen := after[id]
		if !seen {
			was = o.sheet.user(id).credits
		}
		after[id] = llm.AddMicro(was, credits[i].Cost)
		if full(after[id]) {
			return conflict("balance_out_of_range", "user %d: credits of %s and %s more are beyond what can be counted, %s; give the money to a new user",
				id, was, credits[i].Cost, llm.Micro(math.MaxInt64))
		}
	}
	return nil
}

// full tells that a total is at its end, so that what was added last may be missing from it.
func full(m llm.Micro) bool { return m == math.MaxInt64 || m <= -math.MaxInt64 }

// foldPut takes a change into the group: first its checks, then, with nothing left to fail, its writes.
func (o *owner) foldPut(p *put) error {
	if !p.state.CompareAndSwap(putQueued, putTaken) {
		return nil // its caller left
	}
	o.group.changes++
	switch {
	case p.look != nil:
		p.look(o.books)
		return nil
	case p.writes != nil:
		return o.foldWrites(p)
	}
	if known, err := o.repeated(p); known || err != nil {
		return err
	}
	if err := o.checkCredits(p.credits); err != nil {
		return err
	}
	olds, err := o.oldDocs(p.docs)
	if err != nil {
		return err
	}
	g := &o.group
	now := o.l.clock.Wall().UnixMilli()
	for i, d := range p.docs {
		key := docKey(d.Kind, d.ID)
		if _, ok := g.olds[string(key)]; !ok {
			g.olds[string(key)] = olds[i]
		}
		g.put(key, docValue(d.Data))
		o.countDoc(d)
	}
	for i := range p.credits {
		e := p.credits[i]
		if e.AtMS == 0 {
			e.AtMS = now
		}
		if err := o.enter(&e); err != nil {
			return err
		}
	}
	o.writeAudit(now, &p.change)
	p.applied, p.answer = true, p.change.Answer
	steady := o.l.steadyMS()
	o.expireAnswers(steady)
	if k := p.change.Idempotency; k != "" {
		g.put(textKey(keyAnswer, k), appendAnswer(nil, steady+idempotencyTTL.Milliseconds(), &p.change))
	}
	return nil
}

// repeated answers a change whose idempotency key was used before.
func (o *owner) repeated(p *put) (known bool, err error) {
	k := p.change.Idempotency
	if k == "" {
		return false, nil
	}
	p.answer, known, err = o.l.Replay(k, p.change.Request)
	return known, err
}

// oldDocs reads what the documents were, and refuses to bring a deleted number back.
func (o *owner) oldDocs(docs []Doc) ([][]byte, error) {
	olds := make([][]byte, len(docs))
	for i, d := range docs {
		v, ok, err := o.l.store.Get(docKey(d.Kind, d.ID))
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		olds[i] = v
		if _, numbered := docNumber(d.ID); numbered && d.Data != nil && len(v) > 0 && v[0] == docTombstone {
			return nil, conflict("deleted", "%s %s was deleted; its number is not used again", d.Kind, d.ID)
		}
	}
	return olds, nil
}

// countDoc keeps the next number of a kind above every number used.
func (o *owner) countDoc(d Doc) {
	n, ok := docNumber(d.ID)
	if !ok || n < max(o.l.numbers.stored(d.Kind), o.group.numbers[d.Kind]) {
		return
	}
	o.group.numbers[d.Kind] = n + 1
	o.group.put(textKey(keyNumber, d.Kind), putNumbers(int64(n+1)))
}

func docValue(data []byte) []byte {
	if data == nil {
		return []byte{docTombstone}
	}
	return append(append(make([]byte, 0, len(data)+1), docLive), data...)
}

func errOtherRequest(key string) error {
	return conflict("idempotency_conflict", "idempotency key %q was used for another request", key)
}

// Replay gives the stored answer of an idempotency key: ok when it is known; a *llm.Error of KindConflict when the
// request differs. Answers are kept for 24 hours, whatever the wall clock does meanwhile; a process that starts with a
// wall clock that is a day ahead forgets them.
func (l *Ledger) Replay(key string, request [32]byte) (answer []byte, ok bool, err error) {
	v, ok, err := l.store.Get(textKey(keyAnswer, key))
	if err != nil || !ok {
		return nil, false, err
	}
	until, hash, answer, err := readAnswer(v)
	switch {
	case err != nil:
		return nil, false, corrupt(textKey(keyAnswer, key), err.Error())
	case until <= l.steadyMS():
		return nil, false, nil
	case hash != request:
		return nil, false, errOtherRequest(key)
	}
	return answer, true, nil
}

// expireAnswers deletes answers that are past their time, at most once an hour and a thousand at a time.
func (o *owner) expireAnswers(nowMS int64) {
	const hour, most = 3_600_000, 1_000
	if nowMS-o.expiredMS < hour {
		return
	}
	o.expiredMS = nowMS
	var old []Write
	err := o.l.store.Scan([]byte{keyAnswer}, nil, false, func(k, v []byte) bool {
		if until, _, _, err := readAnswer(v); err == nil && until <= nowMS {
			old = append(old, Write{Key: append([]byte(nil), k...)})
		}
		return len(old) < most
	})
	if err == nil { // else they are deleted an hour later
		o.group.batch = append(o.group.batch, old...)
	}
}

func appendAnswer(b []byte, untilMS int64, c *Change) []byte {
	b = append(b, putNumbers(untilMS)...)
	return append(append(b, c.Request[:]...), c.Answer...)
}

func readAnswer(b []byte) (untilMS int64, request [32]byte, answer []byte, err error) {
	if len(b) == 0 || b[0] != codecVersion {
		return 0, request, nil, errVersion
	}
	c := coder{buf: b[1:]}
	untilMS = c.varint()
	if c.err != nil || len(c.buf) < len(request) {
		return 0, request, nil, errShort
	}
	return untilMS, [32]byte(c.buf), c.buf[len(request):], nil
}

// Docs visits the live documents of one kind in the order of their ids: numbers first, then names. It reads in
// pages, so that a caller may change documents on the way.
func (l *Ledger) Docs(kind string) iter.Seq2[Doc, error] { return Docs(l.store, kind) }

// Docs is Ledger.Docs for a store whose ledger is not running.
func Docs(store Store, kind string) iter.Seq2[Doc, error] {
	return func(yield func(Doc, error) bool) {
		var next []byte
		for {
			page, after, err := docPage(store, kind, next)
			if err != nil {
				yield(Doc{}, err)
				return
			}
			for _, d := range page {
				if !yield(d, nil) {
					return
				}
			}
			if after == nil {
				return
			}
			next = after
		}
	}
}

// docPage reads some documents from a key on, and the key where the next page starts (nil: none).
func docPage(store Store, kind string, from []byte) (page []Doc, next []byte, err error) {
	const pageDocs, pageBytes = 64, 1 << 20
	size := 0
	var bad error
	err = store.Scan(docPrefix(kind), from, false, func(k, v []byte) bool {
		if len(page) == pageDocs || size > pageBytes {
			next = append([]byte(nil), k...)
			return false
		}
		id, ok := docID(kind, k)
		if !ok || len(v) == 0 {
			bad = corrupt(k, "not a document")
			return false
		}
		if v[0] == docLive {
			page = append(page, Doc{Kind: kind, ID: id, Data: append([]byte{}, v[1:]...)})
			size += len(v)
		}
		return true
	})
	if err == nil {
		err = bad
	}
	return page, next, err
}

// Doc gives one live document.
func (l *Ledger) Doc(kind, id string) (d Doc, ok bool, err error) {
	v, ok, err := l.store.Get(docKey(kind, id))
	if err != nil || !ok || len(v) == 0 || v[0] != docLive {
		return Doc{}, false, err
	}
	return Doc{Kind: kind, ID: id, Data: v[1:]}, true, nil
}

// numbers hands out document numbers. What was handed out and never written may be handed out again after a
// restart; what was written never is, deleted or not.
type numbers struct {
	mu struct {
		sync.Mutex
		next  map[string]uint64
		saved map[string]uint64 // as in the store
	}
}

func (n *numbers) init() {
	n.mu.next, n.mu.saved = map[string]uint64{}, map[string]uint64{}
}

func (n *numbers) stored(kind string) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.saved[kind]
}

func (n *numbers) save(kind string, next uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.saved[kind] = next
	n.mu.next[kind] = max(n.mu.next[kind], next)
}

// NextDocID is a document number of this kind that was never used before.
func (l *Ledger) NextDocID(kind string) uint64 {
	n := &l.numbers
	n.mu.Lock()
	defer n.mu.Unlock()
	id := max(n.mu.next[kind], 1)
	n.mu.next[kind] = id + 1
	return id
}
