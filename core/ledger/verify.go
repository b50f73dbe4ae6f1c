package ledger

import (
	"fmt"

	"github.com/weir-gateway/weir/core/llm"
)

// maxProblems bounds a report; a damaged store has one cause and many consequences.
const maxProblems = 100

// verifier re-adds the books from the first entry and compares.
type verifier struct {
	store  Store
	books  *books
	next   uint64 // sequence the next chunk must start at
	report Report
	more   int
}

// Verify re-adds every account from the first entry and checks the audit chain. The store must be at rest. The
// error is of reading; what does not add up is in Report.Problems.
func Verify(store Store) (Report, error) {
	v := &verifier{store: store, books: newBooks(nil), next: 1}
	for _, step := range []func() error{v.log, v.users, v.quotas, v.opens, v.audit} {
		if err := step(); err != nil {
			return v.report, err
		}
	}
	for _, a := range v.books.users {
		v.report.Credits += a.credits
		v.report.Posted += a.posted
		v.report.Held += a.held
	}
	v.report.Open = len(v.books.opens)
	if v.more > 0 {
		v.report.Problems = append(v.report.Problems, fmt.Sprintf("and %d more", v.more))
	}
	return v.report, nil
}

func (v *verifier) problem(format string, args ...any) {
	if len(v.report.Problems) == maxProblems {
		v.more++
		return
	}
	v.report.Problems = append(v.report.Problems, fmt.Sprintf(format, args...))
}

// each visits a prefix; what visit returns is a problem, not an error.
func (v *verifier) each(prefix byte, visit func(key, value []byte) error) error {
	return v.store.Scan([]byte{prefix}, nil, false, func(k, value []byte) bool {
		if err := visit(k, value); err != nil {
			v.problem("key %q: %v", k, err)
		}
		return true
	})
}

// log folds every chunk.
func (v *verifier) log() error {
	return v.each(keyLog, func(k, value []byte) error {
		first, _ := keyNum(k, 0)
		if first != v.next {
			v.problem("the log goes from entry %d to entry %d", v.next-1, first)
		}
		h, err := readChunk(value, func(i int, e, reserve *llm.Entry) error {
			v.entry(first+uint64(i), e, reserve)
			return nil
		})
		if h.first != first {
			v.problem("chunk %d says that it starts at entry %d", first, h.first)
		}
		v.next = first + max(h.count, 1)
		return err
	})
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

func (v *verifier) users() error {
	seen := map[uint64]bool{}
	err := v.each(keyUser, func(k, value []byte) error {
		id, a, err := readUser(k, value)
		seen[id] = true
		want := v.books.user(id)
		if err == nil && (a.credits != want.credits || a.posted != want.posted) {
			v.problem("user %d: stored credits %d and posted %d, the log adds up to %d and %d", id, a.credits, a.posted, want.credits, want.posted)
		}
		return err
	})
	for id, want := range v.books.users {
		if !seen[id] && (want.credits != 0 || want.posted != 0) {
			v.problem("user %d: no stored totals, the log adds up to credits %d and posted %d", id, want.credits, want.posted)
		}
	}
	return err
}

func (v *verifier) quotas() error {
	seen := map[quotaID]bool{}
	err := v.each(keyQuota, func(k, value []byte) error {
		id, used, err := readQuota(k, value)
		seen[id] = true
		if want := v.books.quota(id); err == nil && used != want {
			v.problem("key %d, period %d: stored use %d, the log adds up to %d", id.key, id.label, used, want)
		}
		return err
	})
	for id, want := range v.books.quotas {
		if !seen[id] && want != 0 {
			v.problem("key %d, period %d: no stored use, the log adds up to %d", id.key, id.label, want)
		}
	}
	return err
}

// opens compares the reservations that are saved apart with the log's.
func (v *verifier) opens() error {
	return v.each(keyOpen, func(k, value []byte) error {
		r, err := readOpen(value)
		if err != nil {
			return err
		}
		if want := v.books.find(r.reserve.ID); want == nil || want.reserve != r.reserve || r.output > want.output {
			v.problem("reservation %d is saved as open, and the log does not say so", r.reserve.ID)
		}
		return nil
	})
}

// audit recomputes the chain.
func (v *verifier) audit() error {
	var head auditHead
	return v.each(keyAudit, func(k, value []byte) error {
		a, err := readAudit(value)
		if err != nil {
			return err
		}
		switch {
		case a.Seq != head.seq+1:
			v.problem("audit: line %d is followed by line %d", head.seq, a.Seq)
		case a.Prev != head.hash:
			v.problem("audit: line %d does not follow from line %d", a.Seq, head.seq)
		}
		if a.sum() != a.Hash {
			v.problem("audit: line %d was changed", a.Seq)
		}
		head = auditHead{a.Seq, a.Hash}
		return nil
	})
}
