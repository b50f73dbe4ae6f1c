package tokens

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// Character classes of the pre-tokenizers' patterns, disjoint; a set of classes is an or of them.
const (
	upper  = 1 << iota // \p{Lu} \p{Lt}
	lower              // \p{Ll}
	letter             // \p{Lm} \p{Lo}: upper and lower at once
	mark               // \p{M}
	number             // \p{N}
	blank              // \s without line ends
	line               // \r \n
	other              // everything else

	letters = upper | lower | letter // \p{L}
	uppers  = upper | letter | mark  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
	lowers  = lower | letter | mark  // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
	symbols = mark | other           // [^\s\p{L}\p{N}]
	spaces  = blank | line           // \s
)

// classTable is the class of every rune of the first two planes. Its methods take valid UTF-8.
type classTable [0x20000]uint8

var loadClasses = sync.OnceValue(func() *classTable {
	t := new(classTable)
	for i := range t {
		t[i] = other
	}
	t.set(upper, unicode.Lu, unicode.Lt)
	t.set(lower, unicode.Ll)
	t.set(letter, unicode.Lm, unicode.Lo)
	t.set(mark, unicode.M)
	t.set(number, unicode.N)
	t.set(blank, unicode.White_Space)
	t['\r'], t['\n'] = line, line
	return t
})

func (t *classTable) set(class uint8, tables ...*unicode.RangeTable) {
	for _, table := range tables {
		for _, r := range table.R16 {
			for c := uint32(r.Lo); c <= uint32(r.Hi); c += uint32(r.Stride) {
				t[c] = class
			}
		}
		for _, r := range table.R32 {
			for c := r.Lo; c <= r.Hi && c < uint32(len(t)); c += r.Stride {
				t[c] = class
			}
		}
	}
}

// at is the class and the length of the rune at b[i].
func (t *classTable) at(b []byte, i int) (class uint8, n int) {
	if c := b[i]; c < utf8.RuneSelf {
		return t[c], 1
	}
	return t.wide(b, i)
}

func (t *classTable) wide(b []byte, i int) (class uint8, n int) {
	switch c := b[i]; {
	case c < 0xe0 && i+1 < len(b):
		return t[uint(c&0x1f)<<6|uint(b[i+1]&0x3f)], 2
	case c < 0xf0 && i+2 < len(b):
		return t[uint(c&0x0f)<<12|uint(b[i+1]&0x3f)<<6|uint(b[i+2]&0x3f)], 3
	}
	r, n := utf8.DecodeRune(b[i:])
	switch {
	case int(r) < len(t):
		return t[r], n
	case unicode.Is(unicode.Lo, r):
		return letter, n
	case unicode.Is(unicode.M, r):
		return mark, n
	}
	return other, n
}

// run is the end of the run of runes of set that begins at i.
func (t *classTable) run(b []byte, i int, set uint8) int {
	for i < len(b) {
		if c := b[i]; c < utf8.RuneSelf {
			if t[c]&set == 0 {
				return i
			}
			i++
			continue
		}
		class, n := t.wide(b, i)
		if class&set == 0 {
			return i
		}
		i += n
	}
	return i
}

// is reports that the rune at i, if there is one, is of set.
func (t *classTable) is(b []byte, i int, set uint8) bool {
	if i >= len(b) {
		return false
	}
	class, _ := t.at(b, i)
	return class&set != 0
}

// cl100k is the end of the piece that begins at i, by the pattern of cl100k_base:
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d) | [^\r\n\p{L}\p{N}]?\p{L}+ | \p{N}{1,3} | ?[^\s\p{L}\p{N}]+[\r\n]*
//	| \s*[\r\n]+ | \s+(?!\S) | \s+
func (t *classTable) cl100k(b []byte, i int) int {
	class, n := t.at(b, i)
	next := i + n
	switch {
	case class&letters != 0:
		return t.run(b, next, letters)
	case class == number:
		return t.digits(b, next)
	case b[i] == '\'':
		if end := contraction(b, i); end > i {
			return end
		}
	}
	if class != line && t.is(b, next, letters) {
		return t.run(b, next, letters)
	}
	if start := t.symbolStart(b, i, class, next); start >= 0 {
		end := t.run(b, start, symbols)
		for end < len(b) && (b[end] == '\n' || b[end] == '\r') {
			end++
		}
		return end
	}
	return t.space(b, i)
}

// o200k is the same for o200k_base:
//
//	[^\r\n\p{L}\p{N}]?U*L+C? | [^\r\n\p{L}\p{N}]?U+L*C? | \p{N}{1,3} | ?[^\s\p{L}\p{N}]+[\r\n/]*
//	| \s*[\r\n]+ | \s+(?!\S) | \s+
//
// with U = uppers, L = lowers, C = (?i:'s|'t|'re|'ve|'m|'ll|'d).
func (t *classTable) o200k(b []byte, i int) int {
	class, n := t.at(b, i)
	next := i + n
	switch {
	case class&letters != 0:
		end, _ := t.word(b, i)
		return contraction(b, end)
	case class == number:
		return t.digits(b, next)
	case class == mark:
		end, first := t.word(b, next)
		if !first { // only the first alternative may take the mark as its prefix
			end, _ = t.word(b, i)
		}
		return contraction(b, end)
	case class != line:
		if end, _ := t.word(b, next); end > next {
			return contraction(b, end)
		}
	}
	if start := t.symbolStart(b, i, class, next); start >= 0 {
		end := t.run(b, start, symbols)
		for end < len(b) && (b[end] == '\n' || b[end] == '\r' || b[end] == '/') {
			end++
		}
		return end
	}
	return t.space(b, i)
}

// word matches U*L+ (first) or else U+L* at i; i itself when neither. Where no lower letter follows the uppers,
// U* gives back all after the last one that is a lower letter too.
func (t *classTable) word(b []byte, i int) (end int, first bool) {
	back := -1
	for end = i; end < len(b); {
		class, n := t.at(b, end)
		if class&uppers == 0 {
			if class == lower {
				return t.run(b, end+n, lowers), true
			}
			break
		}
		end += n
		if class != upper {
			back = end
		}
	}
	if back >= 0 {
		return back, true
	}
	return end, false
}

// digits ends a group of up to three numbers, one of which has been read.
func (t *classTable) digits(b []byte, i int) int {
	for range 2 {
		if i >= len(b) {
			return i
		}
		class, n := t.at(b, i)
		if class != number {
			return i
		}
		i += n
	}
	return i
}

// symbolStart is where the symbols begin at i, perhaps after one space; -1 when none do.
func (t *classTable) symbolStart(b []byte, i int, class uint8, next int) int {
	switch {
	case class&symbols != 0:
		return i
	case b[i] == ' ' && t.is(b, next, symbols):
		return next
	}
	return -1
}

// space matches \s*[\r\n]+, else \s+(?!\S), else \s+: a run up to its last line end, else all of it but the blank
// that stands before something else.
func (t *classTable) space(b []byte, i int) int {
	end, last, lineEnd := i, i, -1
	for end < len(b) {
		class, n := t.at(b, end)
		if class&spaces == 0 {
			break
		}
		last = end
		end += n
		if class == line {
			lineEnd = end
		}
	}
	switch {
	case lineEnd >= 0:
		return lineEnd
	case end == len(b) || last == i:
		return end
	}
	return last
}

// contraction is the end of 's 't 're 've 'm 'll 'd at i, in any case, one of an s being ſ; i when there is none.
func contraction(b []byte, i int) int {
	if i+1 >= len(b) || b[i] != '\'' {
		return i
	}
	var second byte
	switch b[i+1] | 0x20 {
	case 's', 't', 'm', 'd':
		return i + 2
	case 'r', 'v':
		second = 'e'
	case 'l':
		second = 'l'
	default:
		if i+2 < len(b) && string(b[i+1:i+3]) == "ſ" {
			return i + 3
		}
		return i
	}
	if i+2 < len(b) && b[i+2]|0x20 == second {
		return i + 3
	}
	return i
}
