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
