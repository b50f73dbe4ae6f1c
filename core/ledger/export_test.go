package ledger

import (
	goflag "flag"

	"github.com/weir-gateway/weir/core/llm"
)

// Long runs the numbered promises at their full numbers: go test ./core/ledger -run TestC -long
var Long = goflag.Bool("long", false, "run the numbered promises at their full numbers")

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
