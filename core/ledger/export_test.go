package ledger

import (
	goflag "flag"

	"github.com/weir-gateway/weir/core/llm"
)

// Long runs the numbered promises at their full numbers: go test ./core/ledger -run TestC -long
var Long = goflag.Bool("long", false, "run the numbered promises at their full numbers")

// Look is what the ledger does by itself ten times a second.
func (l *Ledger) Look() { l.look() }

// Account is what the owner has in memory about a user. Only for a caller that has waited for all it appended.
func (l *Ledger) Account(user uint64) (credits, posted, held llm.Micro) {
	a := l.owner.books.user(user)
	return a.credits, a.posted, a.held
}

// AuditLines makes the writes of a chain of n lines and of its end.
func AuditLines(n int) []Write {
	lines := make([]Write, 0, n+1)
	var head auditHead
	for i := range n {
		a := AuditLine{Seq: head.seq + 1, AtMS: int64(i), Prev: head.hash,
			Change: Change{Actor: "admin", Action: "key.limits", Target: "key:42", Before: []byte(`{"qpsLimit":10}`), After: []byte(`{"qpsLimit":20}`)}}
		a.Hash = a.sum()
		head = auditHead{a.Seq, a.Hash}
		lines = append(lines, Write{numKey(keyAudit, a.Seq), appendAudit(nil, &a)})
	}
	return append(lines, Write{[]byte(auditKey), head.value()})
}

// ForgeAudit changes one line together with its hash, and what the next line says of that hash; whole: with the next one's
// own hash as well, so that only the line after it can tell.
func ForgeAudit(lines []Write, i int, whole bool) {
	a, err := readAudit(lines[i].Value)
	next, err2 := readAudit(lines[i+1].Value)
	if err != nil || err2 != nil {
		panic("not audit lines")
	}
	a.Change.Actor = "nobody"
	a.Hash = a.sum()
	next.Prev = a.Hash
	if whole {
		next.Hash = next.sum()
	}
	lines[i].Value, lines[i+1].Value = appendAudit(nil, &a), appendAudit(nil, &next)
}

// FoldFromZero folds the log from its first entry and gives the totals as the store should have them, by key.
func FoldFromZero(s Store) (map[string][]byte, error) {
	b, seq := newBooks(nil), uint64(1)
	err := scanStore(s, []byte{keyLog}, nil, false, func(_, v []byte) (bool, error) {
		_, err := readChunk(v, func(_ int, e, _ *llm.Entry) error {
			_, err := b.fold(e, seq)
			seq++
			return err
		})
		return true, err
	})
	totals := map[string][]byte{}
	for id, a := range b.users {
		totals[string(numKey(keyUser, id))] = putNumbers(int64(a.credits), int64(a.posted))
	}
	for id, used := range b.quotas {
		totals[string(quotaKey(id))] = putNumbers(int64(used))
	}
	return totals, err
}
