package tokens

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// nasty is a text of a few bits, each of a kind that the patterns or the merging could trip on.
func nasty(r *rand.Rand) string {
	var b strings.Builder
	for range 1 + r.IntN(5) {
		b.WriteString(kinds[r.IntN(len(kinds))](r))
	}
	return b.String()
}

var kinds = []func(r *rand.Rand) string{
	func(r *rand.Rand) string { return assigned(randomRune(r)) },
	func(r *rand.Rand) string { return oneOf(r, " ", "") + some(r, script(r), 1, 5) },
	func(r *rand.Rand) string { return some(r, script(r), 1, 2) + some(r, unicode.M, 1, 3) },
	func(r *rand.Rand) string { return some(r, unicode.N, 1, 4) },
	func(r *rand.Rand) string { return strings.Repeat(oneOf(r, "1", "07", "9", "٣", "४"), 1+r.IntN(4)) },
	func(r *rand.Rand) string {
		return oneOf(r, " ", "") + some(r, unicode.P, 1, 3) + oneOf(r, "", "\n", "\r\n", "/", "/\n")
	},
	func(r *rand.Rand) string { return oneOf(r, " ", "") + some(r, unicode.S, 1, 3) },
	func(r *rand.Rand) string {
		return strings.Repeat(oneOf(r, " ", "\t", "\n", "\r\n", " \n"), 1+r.IntN(9))
	},
	func(r *rand.Rand) string { return some(r, unicode.White_Space, 1, 4) },
	func(r *rand.Rand) string {
		return oneOf(r, "I", "you", "É", "漢", "1", " ") + oneOf(r, "'", "'", "’") +
			oneOf(r, "s", "t", "re", "ve", "m", "ll", "d", "S", "T", "rE", "Ve", "LL", "ſ", "l", "r") + oneOf(r, "", "a", "A")
	},
	func(r *rand.Rand) string {
		return oneOf(r, "😀", "👩‍👩‍👧‍👦", "🇩🇪", "❤️", "👍🏽", "1️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "e\u0301", "\u1112\u1161\u11ab")
	},
	func(r *rand.Rand) string {
		return oneOf(r, "\xff", "\xc0\xaf", "\xe6\xbc", "\xf0\x9f\x98", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80", "\xe6", "\xef\xbf", "\xfe")
	},
	func(r *rand.Rand) string { return oneOf(r, vocabulary()...) },
	func(r *rand.Rand) string {
		token := oneOf(r, vocabulary()...)
		return token[r.IntN(len(token)):]
	},
	func(r *rand.Rand) string {
		return oneOf(r, "<|endoftext|>", "<|im_start|>", "camelCase", "HTTPServer", "snake_case", "\x00", `%5d\n`, " 3.14", "https://a.b/c?d=1")
	},
}

// assigned is the character unless Go's edition of Unicode has not got it: the official core's is younger.
func assigned(s string) string {
	if unicode.Is(unicode.Cn, []rune(s)[0]) {
		return "\U0010FFFF" // never a character
	}
	return s
}

// script is the characters of one of the world's scripts.
func script(r *rand.Rand) *unicode.RangeTable { return unicode.Scripts[oneOf(r, scriptNames...)] }

var scriptNames = slices.Sorted(maps.Keys(unicode.Scripts))

// vocabulary is every token of both encodings, be it text or not.
var vocabulary = sync.OnceValue(func() (list []string) {
	for _, encoding := range encodingNames {
		v := vocabOf(encoding)
		for id := range uint32(v.count()) {
			list = append(list, string(v.token(id)))
		}
	}
	return list
})

func oneOf(r *rand.Rand, list ...string) string { return list[r.IntN(len(list))] }

// some are lo to hi characters of a table, each from any of its ranges.
func some(r *rand.Rand, t *unicode.RangeTable, lo, hi int) string {
	var b strings.Builder
	for range lo + r.IntN(hi-lo+1) {
		n := r.IntN(len(t.R16) + len(t.R32))
		if n < len(t.R16) {
			x := t.R16[n]
			b.WriteRune(rune(x.Lo) + rune(x.Stride)*rune(r.IntN(int((x.Hi-x.Lo)/x.Stride)+1)))
			continue
		}
		x := t.R32[n-len(t.R16)]
		b.WriteRune(rune(x.Lo) + rune(x.Stride)*rune(r.IntN(int((x.Hi-x.Lo)/x.Stride)+1)))
	}
	return b.String()
}
