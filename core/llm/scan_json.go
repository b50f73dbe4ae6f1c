package llm

import (
	"encoding/binary"
	"math"
	"math/bits"
	"unicode/utf8"
)

// scanner is one pass over one body. The first failure sticks and moves to the end of the input, where every reader
// stops, so that callers need not look after each step.
type scanner struct {
	b       []byte
	i       int
	depth   int
	tokens  int  // names and values so far
	escaped bool // the last string had an escape
	seen    uint64
	name    Span // of the last member that was looked up
	h       *Head
	err     *Error

	prompts  int // of /v1/completions
	nullCaps [3]Span
	nulls    int
}

func (s *scanner) fail(param, format string, args ...any) {
	if s.err == nil {
		s.err = Invalid(param, format, args...)
	}
	s.i = len(s.b)
}

// syntax reports what was expected at the current byte.
func (s *scanner) syntax(expected string) {
	if s.i >= len(s.b) {
		s.fail("body", "the body is not valid JSON: it ends at byte %d where %s is expected", len(s.b), expected)
		return
	}
	s.fail("body", "the body is not valid JSON: expected %s at byte %d", expected, s.i)
}

// wrong reports a value of a wrong type; a value that is no JSON at all is reported as that.
func (s *scanner) wrong(param, expected string) {
	got := kindOf(s.peek())
	s.skip()
	s.fail(param, "%s must be %s, not %s", param, expected, got)
}

func kindOf(c byte) string {
	switch c {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// peek is the current byte, 0 at the end (which no value may begin with).
func (s *scanner) peek() byte {
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

// space steps over white space; mostly there is none.
func (s *scanner) space() {
	if s.i < len(s.b) && s.b[s.i] <= ' ' {
		s.spaces()
	}
}

func (s *scanner) spaces() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\n', '\r', '\t':
			s.i++
		default:
			return
		}
	}
}

func (s *scanner) span(start int) Span { return Span{int32(start), int32(s.i)} }

// enter steps over an opening bracket; it reports whether a first element follows.
func (s *scanner) enter(end byte) bool {
	if s.depth++; s.depth > MaxDepth {
		s.fail("body", "the body is nested deeper than %d levels at byte %d", MaxDepth, s.i)
		return false
	}
	s.i++
	s.space()
	if s.peek() == end {
		s.i++
		s.depth--
		return false
	}
	return s.count()
}

// count takes one more name or value into account; false when it is one too many.
func (s *scanner) count() bool {
	if s.tokens++; s.tokens > MaxTokens {
		s.fail("body", "the body has more than %d names and values at byte %d; send it in several requests", MaxTokens, s.i)
		return false
	}
	return true
}

// more steps over what follows an element; it reports whether another one comes.
func (s *scanner) more(end byte) bool {
	if s.err != nil {
		return false
	}
	s.space()
	switch s.peek() {
	case ',':
		s.i++
		s.space()
		return s.count()
	case end:
		s.i++
		s.depth--
		return false
	}
	s.syntax("a comma or the closing " + string(rune(end)))
	return false
}

// key reads a member's name and the colon.
func (s *scanner) key() Span {
	if s.peek() != '"' {
		s.syntax("a member name in double quotes")
		return Span{}
	}
	name := s.str()
	if name.End-name.Off > MaxKeyBytes {
		s.fail("body", "the member name at byte %d has %d bytes; at most %d are allowed", name.Off, name.End-name.Off, MaxKeyBytes)
		return Span{}
	}
	s.count()
	s.space()
	if s.peek() != ':' {
		s.syntax("a colon")
		return name
	}
	s.i++
	s.space()
	return name
}

// skip checks a value of any type.
func (s *scanner) skip() {
	switch c := s.peek(); c {
	case '"':
		s.str()
	case '{':
		for more := s.enter('}'); more; more = s.more('}') {
			s.key()
			s.skip()
		}
	case '[':
		for more := s.enter(']'); more; more = s.more(']') {
			s.skip()
		}
	case 't':
		s.literal("true")
	case 'f':
		s.literal("false")
	case 'n':
		s.literal("null")
	default:
		s.number()
	}
}

func (s *scanner) literal(word string) {
	if end := s.i + len(word); end <= len(s.b) && string(s.b[s.i:end]) == word {
		s.i = end
		return
	}
	s.syntax("a value")
}

func (s *scanner) number() {
	if s.peek() == '-' {
		s.i++
	}
	switch c := s.peek(); {
	case c == '0':
		if s.i++; s.peek()-'0' <= 9 {
			s.syntax("a number without leading zeros")
		}
	case c >= '1' && c <= '9':
		s.digits()
	default:
		s.syntax("a value")
		return
	}
	if s.peek() == '.' {
		s.i++
		s.digits()
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.i++
		if c := s.peek(); c == '+' || c == '-' {
			s.i++
		}
		s.digits()
	}
}

func (s *scanner) digits() {
	start := s.i
	for s.i < len(s.b) && s.b[s.i]-'0' <= 9 {
		s.i++
	}
	if s.i == start {
		s.syntax("a digit")
	}
}

// str reads a string, from quote to quote, and gives its content's span. It goes eight bytes at a time and ors them,
// for their high bits tell whether UTF-8 has to be checked.
func (s *scanner) str() Span {
	b, i := s.b, s.i+1
	start := i
	var high uint64
	s.escaped = false
	for i+8 <= len(b) {
		w := binary.LittleEndian.Uint64(b[i:])
		m := stops(w)
		if m == 0 {
			high |= w
			i += 8
			continue
		}
		high |= w & (m&-m - 1)
		i += bits.TrailingZeros64(m) >> 3
		if b[i] == '"' {
			return s.closed(start, i, high)
		}
		s.escaped = true
		if b[i] == '\\' && i+1 < len(b) && escapes[b[i+1]] == 2 {
			i += 2
			continue
		}
		n := escapeLen(b[i:])
		if n == 0 {
			return s.broken(i)
		}
		i += n
	}
	return s.strTail(start, i, high)
}

// strTail goes on byte by byte where fewer than eight are left.
func (s *scanner) strTail(start, i int, high uint64) Span {
	for i < len(s.b) {
		switch c := s.b[i]; {
		case c == '"':
			return s.closed(start, i, high)
		case c == '\\' || c < 0x20:
			n := escapeLen(s.b[i:])
			if n == 0 {
				return s.broken(i)
			}
			s.escaped = true
			i += n
		default:
			high |= uint64(c)
			i++
		}
	}
	s.i = i
	s.syntax("the end of a string")
	return Span{}
}

// closed ends a string at its closing quote.
func (s *scanner) closed(start, end int, high uint64) Span {
	s.i = end + 1
	if high&highs != 0 && !utf8.Valid(s.b[start:end]) {
		s.fail("body", "the body is not valid UTF-8 in the string at byte %d", start)
	}
	return Span{int32(start), int32(end)}
}

// broken ends a string at a byte that cannot be in one.
func (s *scanner) broken(i int) Span {
	if s.i = i; s.b[i] != '\\' {
		s.fail("body", "the body is not valid JSON: the control character at byte %d must be escaped", i)
	}
	s.syntax(`an escape (\" \\ \/ \b \f \n \r \t \uXXXX)`)
	return Span{}
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// stops marks the bytes of w that cannot stand in a string as they are: quote, backslash, control characters. Flipping
// bit 1 turns the quote into 0x20, so that one subtraction finds it along with the control characters. Only the lowest
// mark is exact (borrows may add marks above it), which is the one that is used.
func stops(w uint64) uint64 {
	return (((w ^ ones*2) - ones*0x21) | ((w ^ ones*'\\') - ones)) &^ w & highs
}

// escapeLen is the length of the escape that b begins with, 0 when it is none.
func escapeLen(b []byte) int {
	if len(b) < 2 || b[0] != '\\' {
		return 0
	}
	n := int(escapes[b[1]])
	if n == 6 && (len(b) < 6 || hex4(b[2:]) < 0) {
		return 0
	}
	return n
}

// escapes gives an escape's length by the character after the backslash.
var escapes = [256]uint8{'"': 2, '\\': 2, '/': 2, 'b': 2, 'f': 2, 'n': 2, 'r': 2, 't': 2, 'u': 6}

// hex4 reads four hexadecimal digits; -1 when one is none.
func hex4(b []byte) rune {
	var r rune
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// boolean reads true, false or null.
func (s *scanner) boolean(param string) Tri {
	switch s.peek() {
	case 't':
		s.literal("true")
		return True
	case 'f':
		s.literal("false")
		return False
	case 'n':
		s.literal("null")
		return Absent
	}
	s.wrong(param, "true or false")
	return Absent
}

// optionalString reads a string or null.
func (s *scanner) optionalString(param string) (v Span, given bool) {
	switch s.peek() {
	case '"':
		v = s.str()
		return v, s.err == nil
	case 'n':
		s.literal("null")
		return v, false
	}
	s.wrong(param, "a string")
	return v, false
}

// integer reads a whole number in plain digits between lo and hi, or null.
func (s *scanner) integer(param string, lo, hi int64) (n int64, at Span, given bool) {
	start := s.i
	switch c := s.peek(); {
	case c == 'n':
		s.literal("null")
		return 0, s.span(start), false
	case c != '-' && (c < '0' || c > '9'):
		s.wrong(param, "a whole number")
		return 0, Span{}, false
	}
	s.number()
	if s.err != nil {
		return 0, Span{}, false
	}
	at = s.span(start)
	n, plain := atoi(at.In(s.b))
	if !plain || n < lo || n > hi {
		s.fail(param, "%s must be a whole number from %d to %d in plain digits; got %s", param, lo, hi, Quote(at.In(s.b), 64))
		return 0, Span{}, false
	}
	return n, at, true
}

// atoi reads plain digits; a number too large to matter comes out as MaxInt64.
func atoi(digits []byte) (n int64, plain bool) {
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		if n > math.MaxInt64/16 {
			n = math.MaxInt64
			continue
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}
