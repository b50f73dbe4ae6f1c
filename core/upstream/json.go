package upstream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// cursor walks a JSON text without copying or allocating. It takes what it needs and passes over the rest without
// checking it; whatever stops the walk makes it bad, once and for all, and every further call returns empty.
type cursor struct {
	b   []byte
	i   int
	bad bool
}

// inBody is at the beginning of a body. Clients pass over a byte order mark, and so does this.
func inBody(body []byte) cursor {
	if bytes.HasPrefix(body, bom) {
		return cursor{b: body, i: len(bom)}
	}
	return cursor{b: body}
}

// peek is the next byte that is not blank; 0 at the end.
func (c *cursor) peek() byte {
	for c.i < len(c.b) {
		switch c.b[c.i] {
		case ' ', '\t', '\n', '\r':
			c.i++
		default:
			return c.b[c.i]
		}
	}
	return 0
}

// enter steps into an object or array (open is its bracket); when the value is something else it is passed over.
func (c *cursor) enter(open byte) bool {
	if c.bad {
		return false
	}
	if c.peek() != open {
		c.skip()
		return false
	}
	c.i++
	return true
}

// more reports another member or element before the bracket closing, which it consumes.
func (c *cursor) more(closing byte) bool {
	if c.bad {
		return false
	}
	b := c.peek()
	if b == ',' {
		c.i++
		b = c.peek()
	}
	switch b {
	case closing:
		c.i++
		return false
	case 0, ',', '}', ']', ':':
		c.bad = true
		return false
	}
	return true
}

// key takes the next member's name of an object, as it stands, and its colon; false at the object's end.
func (c *cursor) key() ([]byte, bool) {
	if !c.more('}') {
		return nil, false
	}
	name, ok := c.str()
	if !ok || c.peek() != ':' {
		c.bad = true
		return nil, false
	}
	c.i++
	return name, true
}

// member is where the member stands that the cursor has just passed, with the comma before it or, of the first one, behind it.
// from is where the cursor was before the key.
func (c *cursor) member(from int) [2]int {
	start := cursor{b: c.b, i: from}
	if start.peek() != ',' && c.peek() == ',' {
		return [2]int{start.i, c.i + 1}
	}
	return [2]int{start.i, c.i}
}

// str takes a string, without its quotes and with its escapes; another value is passed over.
func (c *cursor) str() ([]byte, bool) {
	if c.bad {
		return nil, false
	}
	if c.peek() != '"' {
		c.skip()
		return nil, false
	}
	from := c.i + 1
	if !c.passString() {
		c.bad = true
		return nil, false
	}
	return c.b[from : c.i-1], true
}

// passString moves behind a string; c.i is at its opening quote.
func (c *cursor) passString() bool {
	at := c.i + 1
	for {
		n := bytes.IndexByte(c.b[at:], '"')
		if n < 0 {
			return false
		}
		at += n + 1
		slashes := 0
		for at-2-slashes > c.i && c.b[at-2-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			c.i = at
			return true
		}
	}
}

// value takes any value as it stands.
func (c *cursor) value() []byte {
	if c.bad {
		return nil
	}
	c.peek()
	from := c.i
	c.skip()
	if c.bad {
		return nil
	}
	return c.b[from:c.i]
}

// done reports OpenAI's word for the end of a stream, which is not JSON.
func (c *cursor) done() bool { return c.peek() == '[' && bytes.HasPrefix(c.b[c.i:], []byte("[DONE]")) }

const mostTokens = 1_000_000_000_000

// count takes a number of tokens, however it is written: not negative, a fraction cut off, at most 1e12. Other values are
// 0 and not ok.
func (c *cursor) count() (n int64, ok bool) {
	v := c.value()
	for _, b := range v {
		if b < '0' || b > '9' {
			return countOf(v)
		}
		n, ok = min(n*10+int64(b-'0'), mostTokens), true
	}
	return n, ok
}

// countOf reads 100.0 and 1e2.
func countOf(v []byte) (n int64, ok bool) {
	if v[0] < '0' || v[0] > '9' || len(bytes.Trim(v, "0123456789.eE+-")) > 0 {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, false
	}
	return int64(min(f, mostTokens)), true
}

// skip passes over any value.
func (c *cursor) skip() {
	if c.bad {
		return
	}
	depth := 0
	for {
		switch c.peek() {
		case 0:
			c.bad = true
			return
		case '"':
			if !c.passString() {
				c.bad = true
				return
			}
		case '{', '[':
			depth++
			c.i++
		case '}', ']':
			if depth--; depth < 0 {
				c.bad = true
				return
			}
			c.i++
		case ',', ':':
			if depth == 0 {
				c.bad = true
				return
			}
			c.i++
			continue
		default:
			if depth > 0 && c.passPlain() {
				continue
			}
			c.passWord()
		}
		if depth == 0 {
			return
		}
	}
}

// passPlain moves over eight bytes at a time that neither begin nor end anything, inside an array or object: long lists of
// numbers, which is what embeddings are. It tells whether there were any.
func (c *cursor) passPlain() (moved bool) {
	const ones, quotes, sixth, highs = 0x0101010101010101, 0x2222222222222222, 0x4040404040404040, 0x8080808080808080
	for c.i+8 <= len(c.b) {
		w := binary.LittleEndian.Uint64(c.b[c.i:])
		q := w ^ quotes
		if w&sixth|(w-ones)&^w&highs|(q-ones)&^q&highs != 0 { // a bracket or a letter, a NUL, a quote
			return moved
		}
		c.i += 8
		moved = true
	}
	return moved
}

// passWord moves behind a number or a literal.
func (c *cursor) passWord() {
	for c.i++; c.i < len(c.b); c.i++ {
		switch c.b[c.i] {
		case ',', '}', ']', ':', '"', '{', '[', ' ', '\t', '\n', '\r':
			return
		}
	}
}

// Unescape appends the text of a JSON string's inside to dst. Lone surrogates become U+FFFD; a broken escape stays as
// it is.
func Unescape(dst, raw []byte) []byte {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 || i+1 == len(raw) {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:i]...)
		raw = raw[i:]
		if raw[1] == 'u' {
			if r, n := unicodeEscape(raw); n > 0 {
				dst, raw = utf8.AppendRune(dst, r), raw[n:]
				continue
			}
		}
		if j := bytes.IndexByte([]byte(`"\/bfnrt`), raw[1]); j >= 0 {
			dst = append(dst, "\"\\/\b\f\n\r\t"[j])
		} else {
			dst = append(dst, raw[:2]...)
		}
		raw = raw[2:]
	}
}

// unicodeEscape reads \uXXXX, or a surrogate pair of them; n is how many bytes it took, 0 when it is broken.
func unicodeEscape(raw []byte) (r rune, n int) {
	r, ok := hex4(raw)
	if !ok {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if low, ok := hex4(raw[6:]); ok {
		if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
			return both, 12
		}
	}
	return utf8.RuneError, 6
}

func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, d := range b[2:6] {
		v := hexDigit(d)
		if v < 0 {
			return 0, false
		}
		r = r<<4 | rune(v)
	}
	return r, true
}
