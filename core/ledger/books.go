package ledger

import (
	"github.com/weir-gateway/weir/core/llm"
)

// account is a user's money: available = credits - posted - held.
type account struct{ credits, posted, held llm.Micro }

// quotaID names what a key used in one period.
type quotaID struct {
	key   uint64
	label int32
}

// open is a reservation without an ending.
type open struct {
	reserve *llm.Entry // never changed, and shared by what progress makes of it
	output  llm.Tokens // relayed so far, as the last progress entry says
	at      uint64     // chunk of its newest statement
	saved   bool       // it has a key of its own, because that chunk is older than the tail
}

// books are the totals that follow from the entries folded in so far. Books may lie over others: what they do not
// have is read from below, and what they change stays in them until merge. The ledger folds a group into a sheet
// over the real books and merges it when the group is written; replay and verification fold straight into a
// bottom. Not safe for concurrent use: they belong to one goroutine.
type books struct {
	under  *books
	users  map[uint64]account
	quotas map[quotaID]llm.Micro
	opens  map[uint64]*open // nil: ended here
	ended  map[uint64]llm.EntryKind

	// load reads a total that is not in memory, at the bottom only.
	load func(quotaID) llm.Micro
	// forget limits ended at the bottom to the newest.
	forget []uint64
	oldest int
}

const rememberEnds = 16_384 // endings whose kind is still known, to name what a second ending lost to

func newBooks(under *books) *books {
	return &books{under: under, users: map[uint64]account{}, quotas: map[quotaID]llm.Micro{},
		opens: map[uint64]*open{}, ended: map[uint64]llm.EntryKind{}}
}

func (b *books) user(id uint64) account {
	a, ok := b.users[id]
	if !ok && b.under != nil {
		return b.under.user(id)
	}
	return a
}

// hasUser reports whether the user is in these books themselves.
func (b *books) hasUser(id uint64) bool {
	_, ok := b.users[id]
	return ok
}

func (b *books) quota(id quotaID) llm.Micro {
	u, ok := b.quotas[id]
	switch {
	case ok:
		return u
	case b.under != nil:
		return b.under.quota(id)
	case b.load != nil:
		u = b.load(id)
		b.quotas[id] = u
	}
	return u
}

// find gives the open reservation, or nil.
func (b *books) find(id uint64) *open {
	o, ok := b.opens[id]
	if !ok && b.under != nil {
		return b.under.find(id)
	}
	return o
}

func (b *books) endOf(id uint64) (llm.EntryKind, bool) {
	k, ok := b.ended[id]
	if !ok && b.under != nil {
		return b.under.endOf(id)
	}
	return k, ok
}

// fold applies one entry in log order. For an ending it gives the reserve that it ends, and lowers e.Cost to what
// is charged: nothing unless the reservation is billed and the status is finalized or partial. An error means that
// the entry changes nothing and is not part of the log.
func (b *books) fold(e *llm.Entry, chunk uint64) (reserve *llm.Entry, err error) {
	switch e.Kind {
	case llm.EntryReserve:
		return nil, b.reserve(e, chunk)
	case llm.EntryProgress:
		o := b.find(e.ID)
		if o == nil {
			return nil, b.lost(e)
		}
		next := *o
		next.output, next.at = max(o.output, e.Usage.OutputTokens), chunk
		b.opens[e.ID] = &next
		return nil, nil
	case llm.EntryCredit:
		a := b.user(e.UserID)
		a.credits = llm.AddMicro(a.credits, e.Cost)
		b.users[e.UserID] = a
		return nil, nil
	}
	return b.end(e)
}

func (b *books) reserve(e *llm.Entry, chunk uint64) error {
	if _, ended := b.endOf(e.ID); ended || b.find(e.ID) != nil {
		return conflict("already_reserved", "reservation %d was made before", e.ID)
	}
	made := &struct { // in one piece
		open
		entry llm.Entry
	}{open{at: chunk}, *e}
	made.reserve = &made.entry
	b.opens[e.ID] = &made.open
	b.hold(e)
	return nil
}

func (b *books) end(e *llm.Entry) (*llm.Entry, error) {
	o := b.find(e.ID)
	if o == nil {
		return nil, b.lost(e)
	}
	r := o.reserve
	if !charged(e) || !r.Billed {
		e.Cost = 0
	}
	b.close(e.ID, e.Kind)
	if held(r) != 0 || e.Cost != 0 {
		a := b.user(r.UserID)
		a.held = llm.AddMicro(a.held, -held(r))
		a.posted = llm.AddMicro(a.posted, e.Cost)
		b.users[r.UserID] = a
	}
	if e.Cost != 0 {
		for _, label := range r.Labels() {
			if label != 0 {
				q := quotaID{r.KeyID, label}
				b.quotas[q] = llm.AddMicro(b.quota(q), e.Cost)
			}
		}
	}
	return r, nil
}

func (b *books) close(id uint64, k llm.EntryKind) {
	if b.under == nil {
		delete(b.opens, id)
		b.remember(id, k)
		return
	}
	b.opens[id], b.ended[id] = nil, k
}

// charged reports whether an ending adds to the balance and the month.
func charged(e *llm.Entry) bool {
	return e.Kind == llm.EntrySettle && (e.Status == llm.StatusFinalized || e.Status == llm.StatusPartial)
}

func (b *books) hold(r *llm.Entry) {
	if held(r) == 0 {
		return
	}
	a := b.user(r.UserID)
	a.held = llm.AddMicro(a.held, r.Held)
	b.users[r.UserID] = a
}

// held is what a reservation takes from the balance.
func held(r *llm.Entry) llm.Micro {
	if !r.Billed {
		return 0
	}
	return r.Held
}

// lost names what an ending or a progress came too late for. An ending that is no longer remembered was written
// long ago or by the recovery of an earlier start; both are told as settled.
func (b *books) lost(e *llm.Entry) error {
	if k, ok := b.endOf(e.ID); ok && k == llm.EntryVoid {
		return conflict("already_voided", "reservation %d was voided before", e.ID)
	}
	return conflict("already_settled", "reservation %d was settled before", e.ID)
}

// merge moves everything into the books below and leaves b empty.
func (b *books) merge() {
	u := b.under
	for id, a := range b.users {
		u.users[id] = a
	}
	for id, v := range b.quotas {
		u.quotas[id] = v
	}
	for id, o := range b.opens {
		if o == nil {
			delete(u.opens, id)
		} else {
			u.opens[id] = o
		}
	}
	for id, k := range b.ended {
		u.remember(id, k)
	}
	b.clear()
}

func (b *books) remember(id uint64, k llm.EntryKind) {
	if len(b.forget) < rememberEnds {
		b.forget = append(b.forget, id)
	} else {
		delete(b.ended, b.forget[b.oldest])
		b.forget[b.oldest] = id
		b.oldest = (b.oldest + 1) % rememberEnds
	}
	b.ended[id] = k
}

func (b *books) clear() {
	clear(b.users)
	clear(b.quotas)
	clear(b.opens)
	clear(b.ended)
}

func conflict(code, format string, args ...any) error {
	e := llm.Errorf(llm.KindConflict, format, args...)
	e.Code = code
	return e
}
