package tokens

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// unescape appends a JSON string's content with its escapes undone, as a JSON reader would: halves of surrogate
// pairs become U+FFFD. Broken escapes are copied as they stand.
func unescape(dst, b []byte) []byte {
	for {
		i := bytes.IndexByte(b, '\\')
		if i < 0 || i+1 >= len(b) {
			return append(dst, b...)
		}
		dst = append(dst, b[:i]...)
		b = b[i:]
		if b[1] == 'u' {
			dst, b = unescapeUnicode(dst, b)
			continue
		}
		dst = append(dst, unescaped(b[1]))
		b = b[2:]
	}
}

func unescaped(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

// unescapeUnicode undoes the \uXXXX that b begins with, and a second one that completes a surrogate pair.
func unescapeUnicode(dst, b []byte) (out, rest []byte) {
	r := hex4(b)
	if r < 0 {
		return append(dst, b[:2]...), b[2:]
	}
	b = b[6:]
	if utf16.IsSurrogate(r) {
		pair := utf16.DecodeRune(r, hex4(b))
		if r = pair; pair != utf8.RuneError {
			b = b[6:]
		}
	}
	return utf8.AppendRune(dst, r), b
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
