package weir

import (
	"unicode/utf16"
	"unicode/utf8"
)

// Config is what the operator configured.
type Config struct {
	Params JSON // the module's own
	tiers  JSON
	labels JSON
}

func newConfig(text string) Config {
	root := JSON{text}
	return Config{Params: root.Get("params"), tiers: root.Get("tiers"), labels: root.Get("labels")}
}

// Tier is the index of the tier of that name; -1: there is none.
func (c Config) Tier(name string) int { return c.tiers.index(name) }

// Label is the number of the attribute that carries the label of that name; -1: it is not configured.
func (c Config) Label(name string) int {
	i := c.labels.index(name)
	if i < 0 {
		return -1
	}
	return i + AttrLabel0
}

func (j JSON) index(name string) int {
	for i, e := range j.Elements() {
		if s, ok := e.text(); ok && s == name {
			return i
		}
	}
	return -1
}

// JSON is one value in the configuration's text. The host wrote it, so it is valid JSON; a value that is missing or of
// another type reads as the fallback. It is small on purpose: encoding/json doubles a module and pays for reflection.
type JSON struct{ raw string }

func (j JSON) first() byte {
	if j.raw == "" {
		return 0
	}
	return j.raw[0]
}

// Absent reports that there is no such value, or that it is null.
func (j JSON) Absent() bool { return j.raw == "" || j.raw[0] == 'n' }

// Get gives a member of an object.
func (j JSON) Get(name string) JSON {
	if j.first() != '{' {
		return JSON{}
	}
	for rest := blank(j.raw[1:]); rest != "" && rest[0] == '"'; {
		var key, value JSON
		key.raw, rest = cut(rest, textEnd(rest))
		_, rest = cut(blank(rest), 1) // :
		rest = blank(rest)
		value.raw, rest = cut(rest, valueEnd(rest))
		if s, ok := key.text(); ok && s == name {
			return value
		}
		rest = next(rest)
	}
	return JSON{}
}

// Elements gives the elements of an array; none for anything else.
func (j JSON) Elements() (list []JSON) {
	if j.first() != '[' {
		return nil
	}
	for rest := blank(j.raw[1:]); rest != "" && rest[0] != ']'; rest = next(rest) {
		var e JSON
		if e.raw, rest = cut(rest, valueEnd(rest)); e.raw == "" {
			break
		}
		list = append(list, e)
	}
	return list
}

// Bool reads true or false.
func (j JSON) Bool(fallback bool) bool {
	switch j.first() {
	case 't':
		return true
	case 'f':
		return false
	}
	return fallback
}

// Integer reads a whole number; a fraction or an exponent reads as the fallback.
func (j JSON) Integer(fallback int64) int64 {
	digits, negative := j.raw, j.first() == '-'
	if negative {
		digits = digits[1:]
	}
	if digits == "" {
		return fallback
	}
	n := int64(0)
	for i := range len(digits) {
		c := digits[i]
		if c < '0' || c > '9' || n > 900_000_000_000_000_000 {
			return fallback
		}
		n = n*10 + int64(c-'0')
	}
	if negative {
		return -n
	}
	return n
}

// String reads a string.
func (j JSON) String(fallback string) string {
	if s, ok := j.text(); ok {
		return s
	}
	return fallback
}

// text decodes a string; one without escapes is not copied.
func (j JSON) text() (string, bool) {
	if j.first() != '"' {
		return "", false
	}
	for i := 1; i < len(j.raw); i++ {
		switch j.raw[i] {
		case '"':
			return j.raw[1:i], true
		case '\\':
			return unescape(j.raw[1:]), true
		}
	}
	return j.raw[1:], true
}

func unescape(s string) string {
	out := make([]byte, 0, len(s))
	for s != "" && s[0] != '"' {
		if s[0] != '\\' {
			out, s = append(out, s[0]), s[1:]
			continue
		}
		var r rune
		r, s = escape(s[1:])
		out = utf8.AppendRune(out, r)
	}
	return string(out)
}

// escape gives what the escape behind a backslash stands for. Half a surrogate pair is U+FFFD.
func escape(s string) (r rune, rest string) {
	letter, rest := cut(s, 1)
	switch letter {
	case "":
		return utf8.RuneError, ""
	case "b":
		return '\b', rest
	case "f":
		return '\f', rest
	case "n":
		return '\n', rest
	case "r":
		return '\r', rest
	case "t":
		return '\t', rest
	case "u":
		r, rest = hex4(rest)
		if utf16.IsSurrogate(r) && len(rest) >= 6 && rest[:2] == `\u` {
			low, after := hex4(rest[2:])
			if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
				return both, after
			}
		}
		return r, rest
	}
	return rune(letter[0]), rest
}

func hex4(s string) (r rune, rest string) {
	digits, rest := cut(s, 4)
	for i := range len(digits) {
		c := rune(digits[i])
		if c <= '9' {
			c -= '0'
		} else {
			c = c | 0x20 - 'a' + 10
		}
		r = r<<4 | c&15
	}
	return r, rest
}

func cut(s string, n int) (before, after string) {
	n = min(n, len(s))
	return s[:n], s[n:]
}

func isBlank(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

func blank(s string) string {
	for s != "" && isBlank(s[0]) {
		s = s[1:]
	}
	return s
}

// next is what follows a value: past a comma.
func next(s string) string {
	if s = blank(s); s != "" && s[0] == ',' {
		return blank(s[1:])
	}
	return s
}

// textEnd is where the string that s starts with ends.
func textEnd(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return len(s)
}

// valueEnd is where the value that s starts with ends.
func valueEnd(s string) int {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			i += textEnd(s[i:]) - 1
			if depth == 0 {
				return i + 1
			}
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth == 0 {
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case depth == 0 && (c == ',' || isBlank(c)):
			return i
		}
	}
	return len(s)
}
