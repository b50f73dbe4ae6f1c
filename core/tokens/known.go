package tokens

import (
	"hash/maphash"
	"math"
	"sync/atomic"

	"github.com/weir-gateway/weir/core/llm"
)

// Who talks to a model sends the whole conversation with every turn, and the same instructions and tools with each: most
// texts of a request have been counted before.
const (
	knownBits  = 15  // 32,768 texts, 512 KiB
	knownBytes = 128 // a shorter text is counted as fast as it is found
	knownWork  = 40  // looking a text up: its slot is in no cache
	hashBytes  = 64  // hashing: one unit for each so many bytes
)

// known remembers what whole texts count, exactly: texts that the budget ended are not kept. A text is known by 111 bits of
// two hashes under seeds of this process, so that nobody can make two that are taken for one. New texts replace old ones,
// whatever they are: who floods it costs others the time of counting, no more. Who sends a text that somebody else has sent,
// word for word, is answered some microseconds sooner, and learns no other way. Safe for concurrent use, without a lock: a
// slot of which two halves were written by two callers is no one's.
type known struct {
	first, second maphash.Seed
	slots         [1 << knownBits]struct{ check, value atomic.Uint64 }
}

func newKnown() *known { return &known{first: maphash.MakeSeed(), second: maphash.MakeSeed()} }

// span counts one text of a request.
func (k *known) span(w *counting, v *vocab, t *llm.Text, body []byte) llm.Tokens {
	text := t.In(body)
	if len(text) < knownBytes || v == nil {
		return w.span(v, text, t.Raw)
	}
	w.left -= knownWork + len(text)/hashBytes
	place, sum := maphash.Bytes(k.first, text), maphash.Bytes(k.second, text)
	if v.o200k {
		sum = ^sum
	}
	if t.Raw {
		place = ^place
	}
	slot := &k.slots[place%(1<<knownBits)]
	value := slot.value.Load()
	if slot.check.Load()^value == sum && value>>32 == place>>32 {
		return llm.Tokens(value & math.MaxUint32)
	}
	n := w.span(v, text, t.Raw)
	if w.left > 0 && n <= math.MaxUint32 {
		value = place>>32<<32 | uint64(n)
		slot.value.Store(value)
		slot.check.Store(sum ^ value)
	}
	return n
}
