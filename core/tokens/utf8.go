package tokens

import "encoding/binary"

// States of reading UTF-8, as shifts into a row of utf8Rows: six bits each. In between two characters it is whole.
const (
	whole   = 6 * iota
	broken  // no UTF-8; never left
	last    // one continuation is missing
	last2   // two are
	last3   // three are
	afterE0 // two are, the first of them from a0: else it would be too long a form
	afterED // two are, the first up to 9f: else half of a surrogate pair
	afterF0 // three are, the first from 90
	afterF4 // three are, the first up to 8f: else past the last character

	highBits = 0x8080808080808080 // of eight bytes: none is set where all are ASCII
)

// utf8Rows gives for each byte the next state of every state. One shift a byte and no branch: where characters of all
// lengths are mixed, the standard library's way, made for text of one kind, takes a fifth of the whole time of counting.
var utf8Rows = func() (rows [256]uint64) {
	set := func(lo, hi byte, from, to uint) {
		for b := int(lo); b <= int(hi); b++ {
			rows[b] = rows[b]&^(63<<from) | uint64(to)<<from
		}
	}
	for from := uint(whole); from <= afterF4; from += 6 {
		set(0, 0xff, from, broken)
	}
	set(0x00, 0x7f, whole, whole)
	set(0xc2, 0xdf, whole, last)
	set(0xe0, 0xef, whole, last2)
	set(0xe0, 0xe0, whole, afterE0)
	set(0xed, 0xed, whole, afterED)
	set(0xf0, 0xf0, whole, afterF0)
	set(0xf1, 0xf3, whole, last3)
	set(0xf4, 0xf4, whole, afterF4)
	set(0x80, 0xbf, last, whole)
	set(0x80, 0xbf, last2, last)
	set(0x80, 0xbf, last3, last2)
	set(0xa0, 0xbf, afterE0, last)
	set(0x80, 0x9f, afterED, last)
	set(0x90, 0xbf, afterF0, last2)
	set(0x80, 0x8f, afterF4, last2)
	return rows
}()

// isUTF8 is utf8.Valid.
func isUTF8(b []byte) bool {
	state := uint64(whole)
	for ; len(b) >= 8; b = b[8:] {
		if state&63 == whole && binary.LittleEndian.Uint64(b)&highBits == 0 {
			continue
		}
		for _, c := range b[:8] {
			state = utf8Rows[c] >> (state & 63)
		}
	}
	for _, c := range b {
		state = utf8Rows[c] >> (state & 63)
	}
	return state&63 == whole
}
