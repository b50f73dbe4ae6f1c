package badger

import (
	"fmt"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
)

// DefaultReserveBytes is the free space below which nothing is written. It holds what may be under way when the last
// check said yes: a batch, the tables of the memory tables (2 MiB each, at most 3), the compactions they set off, and
// what others on the disk write meanwhile. A full load of 140,000 requests a second was seen to need 27 MiB at once.
const DefaultReserveBytes = 64 << 20

// plentyFor is how long an answer holds that there is twice the reserve, behind the batch at hand: whoever takes the first
// half within it would have to write 3 GiB a second.
const plentyFor = 20 * time.Millisecond

const mib = 1 << 20

// room says that the disk is too full for a batch, or for opening and closing when there is none. What goes to the value
// log comes on top of the reserve.
func (s *Store) room(b []ledger.Write) error {
	need := s.o.ReserveBytes
	for _, w := range b {
		if len(w.Value) >= bigValue {
			need += int64(len(w.Value))
		}
	}
	now := s.o.Clock.Mono()
	if len(b) > 0 && need == s.o.ReserveBytes && now < time.Duration(s.plenty.Load()) {
		return nil
	}
	return s.ask(need, now)
}

// ask asks the file system.
func (s *Store) ask(need int64, now time.Duration) error {
	left, err := s.o.Free(s.dir)
	if err != nil {
		return fmt.Errorf("asking how much space the data folder %s has left: %w", s.dir, err)
	}
	if left >= need+s.o.ReserveBytes {
		s.plenty.Store(int64(now + plentyFor))
	} else {
		s.plenty.Store(0)
	}
	if left >= need {
		return nil
	}
	return &llm.Error{Kind: llm.KindUnavailable, Code: "store_full",
		Message: fmt.Sprintf("the data folder %s is full: %d MiB free, %d MiB needed", s.dir, left/mib, (need+mib-1)/mib)}
}
