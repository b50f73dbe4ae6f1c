package weir

import (
	"strings"
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
	root := read(text)
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

// JSON is one value of the configuration. The host wrote that, so it is valid JSON; a value that is missing or of another
// type reads as the fallback. The document is read once, into nodes: a value is followed by what it contains, in an object
// a name, then its value. It is small on purpose: encoding/json doubles a module and pays for reflection.
type JSON struct {
	doc   string
	nodes []node // this value, then what it contains; none: there is no such value
}

type node struct {
	from, to int32 // in the document
	size     int32 // nodes, with this one
	parent   int32 // only while reading; -1: none
}

// reader makes the nodes of a document, front to back. Its functions are small and it finds them in a table on purpose: in a
// module of standard Go nearly every branch pays for the whole function that it is in.
type reader struct {
	doc    string
	at     int
	nodes  []node
	parent int32 // the value that is open; -1: none
}

func read(doc string) JSON {
	r := &reader{doc: doc, parent: -1}
	for r.step() {
	}
	for r.parent >= 0 {
		r.close() // a broken document
	}
	value, _ := JSON{doc, r.nodes}.split()
	return value
}

// steps says by a value's first byte what to do with it.
var steps = makeSteps()

func makeSteps() (steps [256]func(*reader)) {
	for c := range steps {
		steps[c] = (*reader).word
	}
	steps['"'], steps['{'], steps['['] = (*reader).quoted, (*reader).open, (*reader).open
	steps['}'], steps[']'] = (*reader).close, (*reader).close
	return steps
}

// step reads the next beginning or end of a value; false: there is none.
//
//go:noinline
func (r *reader) step() bool {
	r.at = separatorsEnd(r.doc, r.at)
	if r.at >= len(r.doc) {
		return false
	}
	steps[r.doc[r.at]](r)
	return true
}

func (r *reader) word() { r.push(wordEnd(r.doc, r.at)) }

func (r *reader) quoted() { r.push(textEnd(r.doc, r.at)) }

func (r *reader) open() {
	r.push(r.at + 1)
	r.parent = int32(len(r.nodes)) - 1
}

// close ends the value that is open; without one the document is broken, and ends.
func (r *reader) close() {
	if r.parent < 0 {
		r.at = len(r.doc)
		return
	}
	r.at = min(r.at+1, len(r.doc))
	n := &r.nodes[r.parent]
	n.to, n.size = int32(r.at), int32(len(r.nodes))-r.parent
	r.parent = n.parent
}

// push adds a value whose text goes to `to`, and goes there.
//
//go:noinline
func (r *reader) push(to int) {
	r.nodes = append(r.nodes, node{from: int32(r.at), to: int32(to), size: 1, parent: r.parent})
	r.at = to
}

// split gives the value that the nodes of j start with, and the nodes behind it.
func (j JSON) split() (value, rest JSON) {
	if len(j.nodes) == 0 {
		return JSON{}, JSON{}
	}
	n := j.nodes[0].size
	return JSON{j.doc, j.nodes[:n]}, JSON{j.doc, j.nodes[n:]}
}

// inside is what a value of that kind contains; nothing for another kind.
func (j JSON) inside(open byte) JSON {
	if j.first() != open {
		return JSON{}
	}
	return JSON{j.doc, j.nodes[1:]}
}

func (j JSON) raw() string {
	if len(j.nodes) == 0 {
		return ""
	}
	return j.doc[j.nodes[0].from:j.nodes[0].to]
}

func (j JSON) first() byte {
	if len(j.nodes) == 0 {
		return 0
	}
	return j.doc[j.nodes[0].from]
}

// Absent reports that there is no such value, or that it is null.
func (j JSON) Absent() bool { return j.first() == 0 || j.first() == 'n' }

// Get gives a member of an object.
func (j JSON) Get(name string) JSON {
	for rest := j.inside('{'); len(rest.nodes) >= 2; {
		var key, value JSON
		key, rest = rest.split()
		value, rest = rest.split()
		if s, ok := key.text(); ok && s == name {
			return value
		}
	}
	return JSON{}
}

// Elements gives the elements of an array; none for anything else.
func (j JSON) Elements() (list []JSON) {
	for rest := j.inside('['); len(rest.nodes) > 0; {
		var e JSON
		e, rest = rest.split()
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
	digits, negative := j.raw(), j.first() == '-'
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
	s := strings.TrimSuffix(j.raw()[1:], `"`)
	if strings.IndexByte(s, '\\') < 0 {
		return s, true
	}
	return unescape(s), true
}

func unescape(s string) string {
	out := make([]byte, 0, len(s))
	for {
		i := strings.IndexByte(s, '\\')
		if i < 0 {
			return string(append(out, s...))
		}
		var r rune
		out = append(out, s[:i]...)
		r, s = escape(s[i+1:])
		out = utf8.AppendRune(out, r)
	}
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

// What a byte is, in classes: a blank, comma or colon; what ends a number or word.
const (
	separates = 1 << iota
	ends
)

var classes = makeClasses()

func makeClasses() (classes [256]uint8) {
	for c := range classes {
		if c <= ' ' || c == ',' || c == ':' {
			classes[c] = separates | ends
		}
	}
	classes[']'], classes['}'] = ends, ends
	return classes
}

// separatorsEnd is where the separators from i on end.
//
//go:noinline
func separatorsEnd(s string, i int) int {
	for i < len(s) && classes[s[i]]&separates != 0 {
		i++
	}
	return i
}

// textEnd is where the string that starts at i ends.
func textEnd(s string, i int) int {
	i++
	quote := find(s, i, '"')
	for {
		escape := find(s[:quote], i, '\\')
		if escape == quote {
			return min(quote+1, len(s))
		}
		if i = escape + 2; i > quote {
			quote = find(s, i, '"')
		}
	}
}

// find is where the first c from i on is, or where s ends.
func find(s string, i int, c byte) int {
	i = min(i, len(s))
	if n := strings.IndexByte(s[i:], c); n >= 0 {
		return i + n
	}
	return len(s)
}

// wordEnd is where the number or word that starts at i ends.
//
//go:noinline
func wordEnd(s string, i int) int {
	for i++; i < len(s) && classes[s[i]]&ends == 0; i++ {
	}
	return i
}
