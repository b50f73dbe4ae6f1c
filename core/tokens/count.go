package tokens

import (
	"bytes"
	"sync"
	"unicode/utf8"

	"github.com/weir-gateway/weir/core/llm"
)

// The budget of exact counting, meant to be 2 ms for each 100 kB begun, whatever a call is given. Work is deterministic,
// its time is not: a unit is 8 to 13 ns for most text, but up to 23 for random and Chinese text in o200k, which so take
// up to 2.8 ms. What is left after the budget counts by its bytes (bound).
const (
	workPer100kB = 120_000
	workSpan     = 100_000
	pieceWork    = 2  // cutting off a piece and looking it up
	pieceBytes   = 8  // one more unit for each so many of its bytes
	stepWork     = 10 // one step of merging

	maxPiece    = 512     // bytes; a longer piece counts by its bytes
	memoBits    = 10      // 1,024 slots, 24 kB
	memoBytes   = 16      // longest piece that is remembered
	keptScratch = 1 << 20 // bytes; a larger buffer for undoing escapes is not kept
)

// counting is the scratch of one call: its budget, a buffer to undo escapes in, the stack of merging, and the counts
// of short pieces merged lately (text repeats its rare words). Pooled, so the memo outlives the call.
type counting struct {
	left  int
	buf   []byte
	stack stack
	memo  [1 << memoBits]remembered
}

// remembered is the count of one piece, which it holds whole, so that no collision can make it wrong.
type remembered struct {
	lo, hi uint64
	of     uint8 // its bytes, and in the high bit which vocabulary
	tokens uint8
}

var pool = sync.Pool{New: func() any { return new(counting) }}

// borrow takes scratch with the budget for size bytes.
func borrow(size int) *counting {
	c := pool.Get().(*counting)
	c.left = workPer100kB * (1 + size/workSpan)
	return c
}

func (c *counting) giveBack() {
	if cap(c.buf) > keptScratch {
		c.buf = nil
	}
	pool.Put(c)
}

// text counts valid UTF-8: pieces that are tokens as they stand count one, the others are merged.
func (c *counting) text(v *vocab, b []byte) llm.Tokens {
	if v == nil {
		return llm.Tokens(len(b))
	}
	var total int
	for i := 0; i < len(b); {
		if c.left <= 0 {
			return llm.Tokens(total + v.bound(b[i:]))
		}
		var end int
		if v.o200k {
			end = v.classes.o200k(b, i)
		} else {
			end = v.classes.cl100k(b, i)
		}
		n := end - i
		c.left -= pieceWork + n/pieceBytes
		switch {
		case n == 1:
			total++
		case n <= shortKey && v.findShort(wholeKey(b, i, end), n) != none:
			total++
		default:
			total += c.piece(v, b[i:end])
		}
		i = end
	}
	return llm.Tokens(total)
}

// piece counts a piece that is no short token.
func (c *counting) piece(v *vocab, p []byte) int {
	switch {
	case len(p) > maxPiece:
		return v.bound(p)
	case len(p) > shortKey && len(p) <= maxToken && v.findLong(p) != none:
		return 1
	case len(p) > memoBytes:
		n, steps := c.stack.count(v, p)
		c.left -= steps * stepWork
		return n
	}
	r := remembered{lo: loadKey(p), of: uint8(len(p))}
	if len(p) > 8 {
		r.hi = loadKey(p[8:])
	}
	if v.o200k {
		r.of |= 1 << 7
	}
	slot := &c.memo[(r.lo^r.hi*mix2)*mix1>>(64-memoBits)]
	if slot.lo == r.lo && slot.hi == r.hi && slot.of == r.of {
		return int(slot.tokens)
	}
	n, steps := c.stack.count(v, p)
	c.left -= steps * stepWork
	r.tokens = uint8(n)
	*slot = r
	return n
}

// bound is an upper bound of the tokens of b, without counting. A token has at least one byte. Of a character of
// three or four bytes at least one byte begins no token where its first two bytes are a token: were each of the first
// three bytes the beginning of one, the first two would stand alone side by side, and would have merged.
func (v *vocab) bound(b []byte) int {
	n := len(b)
	for i, c := range b {
		if c >= 0xe0 && i+2 < len(b) && v.two[uint16(c)|uint16(b[i+1])<<8] != none {
			n--
		}
	}
	return n
}

// content counts a JSON string's content, undoing its escapes first.
func (c *counting) content(v *vocab, b []byte) llm.Tokens {
	if bytes.IndexByte(b, '\\') < 0 {
		return c.text(v, b)
	}
	c.buf = unescape(c.buf[:0], b)
	return c.text(v, c.buf)
}

// any counts text that may not be UTF-8: each byte that is none counts as U+FFFD, as it would reach a model.
func (c *counting) any(v *vocab, b []byte) llm.Tokens {
	if !utf8.Valid(b) {
		b = []byte(string([]rune(string(b))))
	}
	return c.text(v, b)
}
