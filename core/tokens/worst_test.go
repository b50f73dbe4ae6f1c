package tokens

import (
	"math/rand/v2"
	"strings"
	"sync"
	"unicode/utf8"
)

// shapes are ways to make a text dear: each makes a short piece of one, from a few bytes to a few hundred.
type shapes map[string]func(r *rand.Rand) string

// fill joins what bit makes to at least size bytes.
func fill(r *rand.Rand, size int, bit func(r *rand.Rand) string) string {
	var b strings.Builder
	for b.Len() < size {
		b.WriteString(bit(r))
	}
	return b.String()
}

// runes makes words of lo to hi runes between first and last, and what ends them.
func runes(lo, hi int, first, last rune, end string) func(r *rand.Rand) string {
	return func(r *rand.Rand) string {
		var b strings.Builder
		for range lo + r.IntN(hi-lo+1) {
			b.WriteRune(first + rune(r.IntN(int(last-first)+1)))
		}
		return b.String() + end
	}
}

// tokensOf are the vocabulary's tokens of lo to hi bytes that are text.
func tokensOf(v *vocab, lo, hi int) (list []string) {
	for id := range uint32(v.count()) {
		if n := v.size(id); n >= lo && n <= hi && utf8.Valid(v.token(id)) {
			list = append(list, string(v.token(id)))
		}
	}
	return list
}

// dear are the shapes, by what is dear about them: characters of many classes, long pieces that merge to little, pieces
// that no memo holds, and tokens from all over a vocabulary, whose tables are in no cache.
var dear = sync.OnceValue(func() shapes {
	b := shapes{
		"han":           runes(4, 17, 0x4e00, 0x9fa5, "，"),
		"han, long":     runes(160, 168, 0x4e00, 0x9fa5, " "),
		"hangul":        runes(1, 6, 0xac00, 0xd7a3, " "),
		"cyrillic":      runes(2, 11, 0x430, 0x44f, " "),
		"thai":          runes(5, 24, 0xe01, 0xe4d, " "),
		"devanagari":    runes(2, 9, 0x905, 0x94d, " "),
		"two bytes":     runes(1, 1, 0x80, 0x7ff, ""),
		"three bytes":   runes(1, 1, 0x800, 0xd7ff, ""),
		"four bytes":    runes(1, 1, 0x10000, 0x1ffff, ""),
		"letters of 4":  runes(1, 1, 0x20000, 0x2ffff, ""),
		"ascii":         runes(1, 1, 0x20, 0x7e, ""),
		"control":       runes(1, 1, 0, 0x7f, ""),
		"symbols":       runes(1, 9, '!', '/', "x"),
		"words of 3":    runes(3, 3, 'a', 'z', " "),
		"words of 8":    runes(8, 8, 'a', 'z', " "),
		"words of 15":   runes(15, 15, 'a', 'z', " "),
		"words of 16":   runes(16, 16, 'a', 'z', " "),
		"words of 500":  runes(500, 500, 'a', 'z', " "),
		"two letters":   func(*rand.Rand) string { return strings.Repeat("ab", 255) + " " },
		"any character": randomRune,
	}
	for _, run := range []string{"-", "=", " ", "\t", "\n", "/"} {
		b["runs of "+run] = func(r *rand.Rand) string { return strings.Repeat(run, 7+r.IntN(40)) + "._"[:r.IntN(3)] }
	}
	v := vocabOf("o200k")
	for name, list := range map[string][]string{"short tokens": tokensOf(v, 1, 8), "long tokens": tokensOf(v, 9, maxToken), "longest tokens": tokensOf(v, 24, maxToken)} {
		b[name] = func(r *rand.Rand) string { return list[r.IntN(len(list))] }
		b[name+", apart"] = func(r *rand.Rand) string { return list[r.IntN(len(list))] + " " }
		b[name+", cut"] = func(r *rand.Rand) string {
			t := list[r.IntN(len(list))]
			_, n := utf8.DecodeLastRuneInString(t)
			return t[:len(t)-n]
		}
	}
	return b
})

// hostile are texts made to be dear.
func hostile(size int) map[string]string {
	texts := corpora(300_000)
	for name, unit := range map[string]string{
		"one letter": "a", "blanks": " ", "line ends": "\n", "blank and end": " \n", "digits": "7", "apostrophes": "'s",
		"alternating case": "aB", "letters and marks": "漢A\u0301", "astral": "\U00020000\U000E0100",
		"dashes": "-", "stars": "*", "lines of dashes": strings.Repeat("-", 2000) + "\n",
		"long words": strings.Repeat("x", 511) + " ", "long lines": strings.Repeat("=", 509) + "\n",
	} {
		texts[name] = strings.Repeat(unit, size/len(unit))
	}
	for name, bit := range dear() {
		texts["many "+name] = fill(rand.New(rand.NewPCG(9, 9)), 300_000, bit)
	}
	return texts
}
