package tokens

import (
	"bytes"
	"sync"
	"unicode/utf8"

	"github.com/weir-gateway/weir/core/llm"
)

// The budget of exact counting. One unit of work is about ten nanoseconds; a call may spend workPer100kB for each
// 100 kB begun, whatever it is given, and counts what is left by its bytes.
const (
	maxPiece     = 512 // longer pieces count one token per byte
	pieceWork    = 3
	stepWork     = 8
	workPer100kB = 120_000
	workSpan     = 100_000
	keptScratch  = 1 << 20 // a larger unescaping buffer is not kept
	byteWork     = 1       // per workBytes of text walked over
	workBytes    = 8
)

// counting is the scratch of one call: its budget, a buffer to undo escapes in, and the stack of merging. Pooled.
type counting struct {
	left  int
	buf   []byte
	stack stack
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
	var total int
	for i := 0; i < len(b); {
		if c.left <= 0 {
			return llm.Tokens(total + len(b) - i)
		}
		var end int
		if v.o200k {
			end = v.classes.o200k(b, i)
		} else {
			end = v.classes.cl100k(b, i)
		}
		n := end - i
		c.left -= pieceWork + n/workBytes
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
		return len(p)
	case len(p) > shortKey && len(p) <= maxToken && v.findLong(p) != none:
		return 1
	}
	n, steps := c.stack.count(v, p)
	c.left -= steps * stepWork
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
	if utf8.Valid(b) {
		return c.text(v, b)
	}
	c.buf = c.buf[:0]
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		c.buf = utf8.AppendRune(c.buf, r)
		b = b[n:]
	}
	return c.text(v, c.buf)
}
