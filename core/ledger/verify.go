package ledger

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-gateway/weir/core/llm"
)

// maxProblems bounds a report; a damaged store has one cause and many consequences.
const maxProblems = 100

// verifier re-adds the books from the first entry and compares. It sees the keys in their order, so that the log
// comes before the totals that follow from it.
type verifier struct {
	books  *books
	next   uint64 // sequence the next chunk must start at
	head   baseHead
	copies copySum
	copied uint64
	pruned []byte // what the newest audit line of a Prune says
	chain  auditHead
	ended  bool   // the end of the chain is on record
	times  uint64 // fingerprint of the time keys that the log asks for, less those that are there
	users  map[uint64]bool
	quotas map[quotaID]bool
	report Report
	more   int
}

// Verify re-adds every account from the first entry and checks the audit chain, in one pass over one snapshot of the
// store, which may be in use. The error is of reading; what does not add up is in Report.Problems.
func Verify(store Store) (Report, error) {
	v := &verifier{books: newBooks(nil), next: 1, head: baseHead{first: 1}, copies: newCopySum(), users: map[uint64]bool{}, quotas: map[quotaID]bool{}}
	visits := map[byte]func(key, value []byte) error{
		keyAudit: v.audit, keyBase: v.base, keyMeta: v.meta, keyLog: v.chunk, keyOpen: v.open, keyQuota: v.quota, keyTime: v.time, keyUser: v.user,
	}
	err := store.Scan(nil, nil, false, func(k, value []byte) bool {
		if visit := visits[k[0]]; visit != nil {
			if err := visit(k, value); err != nil {
				v.problem("key %q: %v", k, err)
			}
		}
		return true
	})
	if err != nil {
		return v.report, err
	}
	return v.sum(), nil
}

// Verify is the package's Verify for the ledger that is running.
func (l *Ledger) Verify() (Report, error) { return Verify(l.store) }

// sum finds the totals that are missing and completes the report.
func (v *verifier) sum() Report {
	for _, id := range slices.Sorted(maps.Keys(v.books.users)) {
		a := v.books.users[id]
		if !v.users[id] && (a.credits != 0 || a.posted != 0) {
			v.wrong(userName(id), "no stored totals, the log adds up to credits %d and posted %d", a.credits, a.posted)
		}
		if full(a.credits) || full(a.posted) {
			v.problem("%s: credits %s, posted %s: a total that stands at its end does not hold all that was added", userName(id), a.credits, a.posted)
		}
		v.add("credits", &v.report.Credits, a.credits)
		v.add("posted", &v.report.Posted, a.posted)
		v.add("held", &v.report.Held, a.held)
	}
	for _, id := range slices.SortedFunc(maps.Keys(v.books.quotas), quotaID.compare) {
		want := v.books.quotas[id]
		if !v.quotas[id] && want != 0 {
			v.wrong(id.String(), "no stored use, the log adds up to %d", want)
		}
		if full(want) {
			v.problem("%s: use %s: a total that stands at its end does not hold all that was added", id, want)
		}
	}
	v.checkBase()
	if v.times != 0 {
		v.problem("the time index does not name the chunks of the log: usage records are missing from lists")
	}
	if !v.ended && v.chain.seq > 0 {
		v.problem("audit: nothing says that line %d is the last", v.chain.seq)
	}
	v.report.Open = len(v.books.opens)
	if v.more > 0 {
		v.report.Problems = append(v.report.Problems, fmt.Sprintf("and %d more", v.more))
	}
	return v.report
}

// add adds an account to a sum of all. The first that does not fit is a problem, and the sum stays at its end.
func (v *verifier) add(what string, sum *llm.Micro, m llm.Micro) {
	was := *sum
	*sum = llm.AddMicro(was, m)
	if full(*sum) && !full(was) {
		v.problem("the sum of %s over all users is beyond what can be counted and stands at %s", what, *sum)
	}
}

// wrong is a problem of one account.
func (v *verifier) wrong(account, format string, args ...any) {
	if v.report.FirstWrong == "" {
		v.report.FirstWrong = account
	}
	v.problem("%s: "+format, append([]any{account}, args...)...)
}

func userName(id uint64) string { return fmt.Sprintf("user %d", id) }

func (q quotaID) String() string { return fmt.Sprintf("key %d, period %d", q.key, q.label) }

func (q quotaID) compare(r quotaID) int {
	return cmp.Or(cmp.Compare(q.key, r.key), cmp.Compare(q.label, r.label))
}

func (v *verifier) problem(format string, args ...any) {
	if len(v.report.Problems) == maxProblems {
		v.more++
		return
	}
	v.report.Problems = append(v.report.Problems, fmt.Sprintf(format, args...))
}

// chunk folds one chunk of the log.
func (v *verifier) chunk(k, value []byte) error {
	first, _ := keyNum(k, 0)
	if first < v.head.first {
		return nil // dropped, but for the deletion
	}
	if first != v.next {
		v.problem("the log goes from entry %d to entry %d", v.next-1, first)
	}
	seconds := map[uint64]bool{}
	h, err := readChunk(value, func(i int, e, reserve *llm.Entry) error {
		v.entry(first+uint64(i), e, reserve)
		if reserve != nil {
			seconds[second(e.AtMS)] = true
		}
		return nil
	})
	if h.first != first {
		v.problem("chunk %d says that it starts at entry %d", first, h.first)
	}
	for s := range seconds {
		v.times += fingerprint(s, first)
	}
	v.next = first + max(h.count, 1)
	return err
}

// fingerprint mixes two numbers into one, so that the sum over a set tells the set (MurmurHash3's finalizer).
func fingerprint(a, b uint64) uint64 {
	x := a*0x9e3779b97f4a7c15 ^ b
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

func (v *verifier) time(k, _ []byte) error {
	s, ok := keyNum(k, 0)
	chunk, ok2 := keyNum(k, 1)
	if !ok || !ok2 {
		return errShort
	}
	if chunk >= v.head.first {
		v.times -= fingerprint(s, chunk)
	}
	return nil
}

func (v *verifier) entry(seq uint64, e, reserve *llm.Entry) {
	v.report.Entries++
	cost := e.Cost
	was, err := v.books.fold(e, seq)
	switch {
	case err != nil:
		v.problem("entry %d: %v", seq, err)
	case e.Cost != cost:
		v.problem("entry %d: reservation %d ended with cost %d where %d is owed", seq, e.ID, cost, e.Cost)
	case was != nil && *was != *reserve:
		v.problem("entry %d: reservation %d is not the one that was made", seq, e.ID)
	}
}

func (v *verifier) user(k, value []byte) error {
	id, ok := keyNum(k, 0)
	if !ok {
		return errShort
	}
	v.users[id] = true
	want := v.books.user(id)
	_, a, err := readUser(k, value)
	if err != nil {
		v.wrong(userName(id), "the stored totals do not read: %v; the log adds up to credits %d and posted %d", err, want.credits, want.posted)
	} else if !bytes.Equal(value, putNumbers(int64(want.credits), int64(want.posted))) {
		v.wrong(userName(id), "stored credits %d and posted %d, the log adds up to %d and %d", a.credits, a.posted, want.credits, want.posted)
	}
	return nil
}

func (v *verifier) quota(k, value []byte) error {
	id, ok := quotaOf(k)
	if !ok {
		return errShort
	}
	v.quotas[id] = true
	want := v.books.quota(id)
	_, used, err := readQuota(k, value)
	if err != nil {
		v.wrong(id.String(), "the stored use does not read: %v; the log adds up to %d", err, want)
	} else if !bytes.Equal(value, putNumbers(int64(want))) {
		v.wrong(id.String(), "stored use %d, the log adds up to %d", used, want)
	}
	return nil
}

// open compares a reservation that is saved apart with the log's.
func (v *verifier) open(_, value []byte) error {
	r, err := readOpen(value)
	if err != nil {
		return err
	}
	if want := v.books.find(r.reserve.ID); want == nil || *want.reserve != *r.reserve || r.output > want.output {
		v.problem("reservation %d is saved as open, and the log does not say so", r.reserve.ID)
	}
	return nil
}

// audit checks that a line follows from the one before and is what was written.
func (v *verifier) audit(k, value []byte) error {
	seq, _ := keyNum(k, 0)
	if next := v.chain.seq + 1; seq != next {
		v.problem("audit: %s", missing("line", next, seq-1))
	}
	a, err := readAudit(value)
	switch {
	case err != nil:
		v.problem("audit: line %d does not read: %v", seq, err)
	case a.sum() != a.Hash || a.Seq != seq:
		v.problem("audit: line %d was changed", seq)
	case a.Prev != v.chain.hash && seq == v.chain.seq+1:
		v.problem("audit: line %d does not follow from line %d", seq, v.chain.seq)
	}
	v.chain = auditHead{seq, a.Hash}
	if a.Change.Action == pruneAction {
		v.pruned = a.Change.After
	}
	return nil
}

// base takes the head, and then the copies, into the books. It comes before the log.
func (v *verifier) base(k, value []byte) (err error) {
	if k[1] == baseHeadTag {
		v.head, err = readBaseHead(value)
		v.next = v.head.first
		return err
	}
	first, key, ok := baseOf(k)
	switch {
	case !ok:
		return errMalform
	case first != v.head.first:
		return nil // of a Prune that did not come to its end
	}
	v.copied++
	v.copies.add(key, value)
	return v.books.takeCopy(key, value)
}

// checkBase compares the base with its checksum, and that with the audit line.
func (v *verifier) checkBase() {
	switch {
	case v.head.first == 1:
	case v.copied != v.head.count || v.copies.sum() != v.head.sum:
		v.problem("the base at entry %d is not the one that was written", v.head.first)
	case !bytes.Equal(v.pruned, v.head.after()):
		v.problem("the base at entry %d is not the one that the audit chain tells of: %s", v.head.first, v.pruned)
	}
}

// missing names a gap in a sequence.
func missing(what string, from, to uint64) string {
	if from == to {
		return fmt.Sprintf("%s %d is missing", what, from)
	}
	return fmt.Sprintf("%ss %d to %d are missing", what, from, to)
}

// meta checks that the audit chain ends where it was written last. It comes after the lines.
func (v *verifier) meta(k, value []byte) error {
	if string(k) != auditKey {
		return nil
	}
	v.ended = true
	kept, err := readAuditHead(value)
	switch {
	case err != nil:
		return err
	case kept.seq > v.chain.seq:
		v.problem("audit: %s", missing("line", v.chain.seq+1, kept.seq))
	case kept != v.chain:
		v.problem("audit: line %d is not the one that was written last, line %d", v.chain.seq, kept.seq)
	}
	return nil
}
