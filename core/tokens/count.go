package tokens

import (
	"bytes"
	"math"
	"sync"
	"unicode/utf8"

	"github.com/weir-gateway/weir/core/llm"
)

// The budget of exact counting, meant to keep 100 kB within 2 ms whatever a call is given: the dearest texts known come to
// 1.5 to 1.7 ms. A unit is 5 to 7 ns where tables are cold and 3 to 5 where they are warm; each kind of work is charged what
// it costs cold, the first use of a token most of all. How busy the machine is does not count, nor what was counted before,
// but for whole texts that known remembers. What is left after the budget counts by its bytes: of a full 100 kB that is the
// last quarter to two fifths of prose and code, and most of random text.
const (
	workPer100kB = 250_000
	workSpan     = 100_000
	pieceWork    = 4  // cutting off a piece and looking it up
	pieceBytes   = 4  // one more unit for each so many of its bytes
	wholeWork    = 36 // a piece that is a token not met lately: its tables are not in the core's own cache
	longWork     = 16 // such a piece of more than 8 bytes: it is compared with the vocabulary's own bytes
	stepWork     = 8  // one step of merging
	lookupWork   = 3  // looking bytes up
	pairWork     = 3  // looking a pair up
	heapWork     = 16 // looking a pair up to merge it, and its way through the heap; and one more for each 8 of its bytes
	heapAfter    = 32 // for each byte of a piece: then it is merged by the heap
	firstWork    = 40 // a token of a merged piece not met lately
	rareWork     = 30 // a short piece that is no token and not remembered from this call
	contentWork  = 4  // beginning a text
	escapeBytes  = 2  // undoing escapes: one unit for each so many bytes that it saves
	strayWork    = 2  // replacing what is no UTF-8: for each byte that it adds

	shortPiece  = 512     // bytes that scratch has room for from the beginning
	maxPiece    = 1 << 17 // bytes; a longer piece counts by its bytes
	memoBits    = 10      // 1,024 slots, 24 kB
	memoBytes   = 16      // longest piece that is remembered
	metBits     = 12      // 4,096 slots, 16 kB
	keptScratch = 1 << 20 // bytes; a larger buffer for undoing escapes is not kept
	keptPiece   = 1 << 16 // bytes; nor is a stack for longer pieces
)

// counting is the scratch of one call: its budget, a buffer to undo escapes in, the stack of merging, the tokens met,
// and the counts of short pieces merged lately (text repeats its rare words). Pooled, so the memo outlives the call.
type counting struct {
	left  int
	buf   []byte
	stack stack
	met   met
	memo  [1 << memoBits]remembered
}

// remembered is the count of one piece, which it holds whole, so that no collision can make it wrong.
type remembered struct {
	lo, hi uint64
	of     uint8 // its bytes, and in the high bit which vocabulary
	tokens uint8
	work   uint16 // what it took, spent again by every call that meets it, else a count would depend on the calls before
	call   uint32 // the last call that spent it
	ids    [memoBytes]uint32
}

// met tells which tokens a call has met lately, and so what their lookups cost: a slot holds the call and the token.
type met struct {
	call uint32
	ids  [1 << metBits]uint32
}

// first reports that id was not met lately, and meets it.
func (m *met) first(id uint32) bool {
	slot, key := &m.ids[id%(1<<metBits)], m.call<<idBits|id
	if *slot == key {
		return false
	}
	*slot = key
	return true
}

// next begins a call. The number of a call has the bits that an id leaves; when they are used up, all is forgotten.
func (c *counting) next() {
	if c.met.call++; c.met.call == 1<<(32-idBits) {
		c.met = met{call: 1}
		for i := range c.memo {
			c.memo[i].call = 0
		}
	}
}

var pool = sync.Pool{New: func() any { return new(counting) }}

// borrow takes scratch with the budget for size bytes.
func borrow(size int) *counting {
	c := pool.Get().(*counting)
	c.next()
	c.left = workPer100kB * (1 + size/workSpan)
	return c
}

func (c *counting) giveBack() {
	if cap(c.buf) > keptScratch {
		c.buf = nil
	}
	if len(c.stack.tokens) > keptPiece {
		c.stack = stack{}
	}
	llm.Mangle(c.buf)
	pool.Put(c)
}

// text counts valid UTF-8: pieces that are tokens as they stand count one, the others are merged.
func (c *counting) text(v *vocab, b []byte) llm.Tokens {
	before, last, _ := c.pieces(v, b)
	return before + last
}

// pieces is text in two parts: the last two pieces, which begin at at, and what comes before them. Bytes that are not cut
// into pieces have no last ones.
func (c *counting) pieces(v *vocab, b []byte) (before, last llm.Tokens, at int) {
	if v == nil {
		return llm.Tokens(len(b)), 0, len(b)
	}
	var total, one, tokens, start int
	for i := 0; i < len(b); {
		if c.left <= 0 {
			return llm.Tokens(total + one + tokens + v.bound(b[i:])), 0, len(b)
		}
		var end int
		if v.o200k {
			end = v.classes.o200k(b, i)
		} else {
			end = v.classes.cl100k(b, i)
		}
		total += one
		at, start = start, i
		one, tokens = tokens, 1
		n := end - i
		c.left -= pieceWork + n/pieceBytes
		id := uint32(none)
		switch {
		case n == 1:
			id = v.one[b[i]]
		case n <= shortKey:
			id = v.findShort(wholeKey(b, i, end), n)
		case n <= maxToken:
			id = v.findLong(b[i:end])
		}
		if id == none {
			tokens = c.piece(v, b[i:end])
		} else if c.met.first(id) {
			c.left -= wholeWork
			if n > shortKey {
				c.left -= longWork
			}
		}
		i = end
	}
	return llm.Tokens(total), llm.Tokens(one + tokens), at
}

// piece counts a piece that is no token.
func (c *counting) piece(v *vocab, p []byte) int {
	switch {
	case len(p) > maxPiece:
		return v.bound(p)
	case len(p) > memoBytes:
		tokens, work := c.stack.count(v, p, c.left)
		c.left -= work
		c.meet(tokens)
		if len(tokens) == 0 {
			return v.bound(p)
		}
		return len(tokens)
	}
	r := remembered{lo: loadKey(p), of: uint8(len(p))}
	if len(p) > 8 {
		r.hi = loadKey(p[8:])
	}
	if v.o200k {
		r.of |= 1 << 7
	}
	slot := &c.memo[(r.lo^r.hi*mix2)*mix1>>(64-memoBits)]
	if slot.lo != r.lo || slot.hi != r.hi || slot.of != r.of {
		tokens, work := c.stack.count(v, p, math.MaxInt)
		r.tokens, r.work = uint8(copy(r.ids[:], tokens)), uint16(work)
		*slot = r
	}
	if slot.call != c.met.call {
		slot.call = c.met.call
		c.left -= rareWork + int(slot.work)
		c.meet(slot.ids[:slot.tokens])
	}
	return int(slot.tokens)
}

// meet spends what the first use of each token costs.
func (c *counting) meet(tokens []uint32) {
	for _, id := range tokens {
		if c.met.first(id) {
			c.left -= firstWork
		}
	}
}

// bound is an upper bound of the tokens of b, without counting. A token has at least one byte. Of a character of
// three or four bytes at least one byte begins no token where its first two bytes are a token: were each of the first
// three bytes the beginning of one, the first two would stand alone side by side, and would have merged. Every byte is
// looked up, without a branch: in text of many kinds, guessing wrong costs more.
func (v *vocab) bound(b []byte) int {
	n := len(b)
	for i := 0; i+2 < len(b); i++ {
		pair := uint(b[i])<<8 | uint(b[i+1])
		n -= int(v.joined[pair/64] >> (pair % 64) & 1)
	}
	return n
}

// span counts a span of a request: JSON as it stands, or a string's content.
func (c *counting) span(v *vocab, b []byte, raw bool) llm.Tokens {
	if raw {
		return c.text(v, b)
	}
	return c.content(v, b)
}

// content counts a JSON string's content, undoing its escapes first.
func (c *counting) content(v *vocab, b []byte) llm.Tokens {
	c.left -= contentWork
	if bytes.IndexByte(b, '\\') >= 0 {
		c.undo(c.buf[:0], b)
		b = c.buf
	}
	return c.text(v, b)
}

// escaped is content that may not be UTF-8.
func (c *counting) escaped(v *vocab, b []byte) llm.Tokens {
	c.undo(c.buf[:0], b)
	return c.text(v, c.valid(c.buf))
}

// undo appends b to what is in the buffer, without its escapes.
func (c *counting) undo(buf, b []byte) {
	c.buf = unescape(buf, b)
	c.left -= (len(b) - (len(c.buf) - len(buf))) / escapeBytes
}

// any counts text that may not be UTF-8: each byte that is none counts as U+FFFD, as it would reach a model.
func (c *counting) any(v *vocab, b []byte) llm.Tokens {
	c.buf = c.buf[:0]
	return c.text(v, c.valid(b))
}

// valid is b with U+FFFD for what is no UTF-8. b may stand in the buffer, behind which it is written then.
func (c *counting) valid(b []byte) []byte {
	if isUTF8(b) {
		return b
	}
	start := len(c.buf)
	c.buf = appendValid(c.buf, b)
	c.left -= (len(c.buf) - start - len(b)) * strayWork
	return c.buf[start:]
}

// appendValid appends b with U+FFFD for each byte that is no UTF-8.
func appendValid(dst, b []byte) []byte {
	for i := 0; i < len(b); {
		c := b[i]
		if c < utf8.RuneSelf {
			dst = append(dst, c)
			i++
			continue
		}
		_, n := utf8.DecodeRune(b[i:])
		if n == 1 {
			dst = append(dst, 0xef, 0xbf, 0xbd)
		} else {
			dst = append(dst, b[i:i+n]...)
		}
		i += n
	}
	return dst
}
