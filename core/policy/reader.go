package policy

import (
	"fmt"
	"unicode/utf8"
)

// reader walks bytes of a module. The first failure sticks: every later read returns zero and moves nothing, so
// that callers check err once per construct; loops are bounded by count, which never promises more than is left.
type reader struct {
	b   []byte
	pos int // offset in the module, so that messages can say where
	end int
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("malformed at byte %d: "+format, append([]any{r.pos}, args...)...)
	}
	r.pos = r.end
}

func (r *reader) more() bool { return r.err == nil && r.pos < r.end }

func (r *reader) u8() byte {
	if r.err != nil || r.pos >= r.end {
		r.fail("it ends in the middle")
		return 0
	}
	c := r.b[r.pos]
	r.pos++
	return c
}

func (r *reader) skip(n int) {
	if r.err != nil || n < 0 || n > r.end-r.pos {
		r.fail("it ends in the middle")
		return
	}
	r.pos += n
}

// u32 reads an unsigned LEB128 of at most 32 bits, as the specification bounds it.
func (r *reader) u32() uint32 {
	if r.pos < r.end && r.b[r.pos] < 0x80 {
		r.pos++
		return uint32(r.b[r.pos-1])
	}
	var v uint32
	for shift := 0; shift < 35; shift += 7 {
		c := r.u8()
		if shift == 28 && c > 0x0f {
			break
		}
		v |= uint32(c&0x7f) << shift
		if c < 0x80 {
			return v
		}
	}
	r.fail("not a 32-bit number")
	return 0
}

// signed skips a signed LEB128 of at most bits bits.
func (r *reader) signed(bits int) {
	for n := (bits + 6) / 7; n > 0; n-- {
		c := r.u8()
		if c >= 0x80 {
			continue
		}
		if spare := 7*((bits+6)/7) - bits; n == 1 && spare > 0 {
			sign := int8(c<<1) >> (7 - spare) // the sign bit and the unused ones must agree
			if sign != 0 && sign != -1 {
				break
			}
		}
		return
	}
	r.fail("not a %d-bit number", bits)
}

// count reads the length of a vector whose items take at least one byte each.
func (r *reader) count() int {
	n := r.u32()
	if int64(n) > int64(r.end-r.pos) {
		r.fail("%d items announced, %d bytes left", n, r.end-r.pos)
		return 0
	}
	return int(n)
}

func (r *reader) name() string {
	n := r.count()
	s := r.b[r.pos : r.pos+n]
	r.skip(n)
	if !utf8.Valid(s) {
		r.fail("a name that is not UTF-8")
		return ""
	}
	return string(s)
}

// sub gives a reader of the next n bytes and steps over them.
func (r *reader) sub(n int) *reader {
	s := &reader{b: r.b, pos: r.pos, end: r.pos + n}
	r.skip(n)
	if r.err != nil {
		s.end, s.err = s.pos, r.err
	}
	return s
}
