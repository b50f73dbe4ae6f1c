package tokens

import (
	"bytes"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// unescape appends a JSON string's content with its escapes undone, as a JSON reader would: halves of surrogate
// pairs become U+FFFD. Broken escapes are copied as they stand. No escape is shorter than what it stands for.
func unescape(dst, b []byte) []byte {
	dst = slices.Grow(dst, len(b)+utf8.UTFMax)
	n := len(dst)
	dst = dst[:cap(dst)]
	for i := 0; i < len(b); {
		if b[i] != '\\' {
			run := plain(b[i:])
			copy(dst[n:], b[i:i+run])
			i, n = i+run, n+run
			continue
		}
		var c byte
		if i+1 < len(b) {
			c = short[b[i+1]]
		}
		if c != 0 {
			dst[n] = c
			i, n = i+2, n+1
			continue
		}
		read, wrote := unescapeLong(dst[n:], b[i:])
		i, n = i+read, n+wrote
	}
	return dst[:n]
}

// plain is the number of bytes before the next backslash. Where many stand, the next is near.
func plain(b []byte) int {
	for i, c := range b[:min(len(b), 16)] {
		if c == '\\' {
			return i
		}
	}
	if i := bytes.IndexByte(b, '\\'); i >= 0 {
		return i
	}
	return len(b)
}

// short is what the escapes of two bytes stand for, by their second.
var short = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// unescapeLong undoes the \uXXXX that b begins with, and a second one that completes a surrogate pair; what else
// begins with a backslash loses it, or stands as it is at the end.
func unescapeLong(dst, b []byte) (read, wrote int) {
	if len(b) < 2 {
		return 1, copy(dst, b)
	}
	if b[1] != 'u' {
		return 2, copy(dst, b[1:2])
	}
	r := hex4(b)
	if r < 0 {
		return 2, copy(dst, b[:2])
	}
	read = 6
	if utf16.IsSurrogate(r) {
		pair := utf16.DecodeRune(r, hex4(b[6:]))
		if r = pair; pair != utf8.RuneError {
			read = 12
		}
	}
	return read, utf8.EncodeRune(dst, r)
}

// hex4 reads \uXXXX; -1 when b begins with none.
func hex4(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	var r rune
	for _, c := range b[2:6] {
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
