package limit

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// Preauth limits failed authentications per address, before anybody is known: call Allow once per failure. Its
// memory is fixed whatever addresses come: colliding addresses share a cell. Safe for concurrent use.
type Preauth struct {
	clock llm.Clock
	seed  maphash.Seed
	cells [preauthCells]atomic.Int64 // when the cell is empty again, on Mono
}

const (
	preauthCells = 4096
	preauthSpan  = time.Minute
)

// NewPreauth makes a table in which nobody has failed yet.
func NewPreauth(clock llm.Clock) *Preauth {
	return &Preauth{clock: clock, seed: maphash.MakeSeed()}
}

// Allow counts one failure of an address (by IPName) against a token bucket of limit per minute. When it is spent ok
// is false, nothing is counted, and retryAfterMS is the wait, rounded up. A limit of 0 is unlimited.
func (p *Preauth) Allow(ip string, limit int64) (retryAfterMS int64, ok bool) {
	if limit <= 0 {
		return 0, true
	}
	cell := &p.cells[maphash.String(p.seed, ip)%preauthCells]
	step := max(int64(preauthSpan)/limit, 1)
	for {
		now := int64(p.clock.Mono())
		old := cell.Load()
		empty := max(old, now) + step
		if over := empty - now - int64(preauthSpan); over > 0 {
			return ceilMS(time.Duration(over)), false
		}
		if cell.CompareAndSwap(old, empty) {
			return 0, true
		}
	}
}
