package tokens

import (
	"math/rand/v2"
	"testing"
	"unicode/utf8"
)

// Every text of up to four bytes that are on either side of a rule, alone and behind others.
func TestUTF8IsTheStandardLibrarys(t *testing.T) {
	edges := []byte{0, 'a', 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef,
		0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff}
	text := make([]byte, 4)
	for i := range 25 * 25 * 25 * 25 {
		for at := range text {
			text[at] = edges[i%25]
			i /= 25
		}
		for n := 1; n <= len(text); n++ {
			if got, want := isUTF8(text[:n]), utf8.Valid(text[:n]); got != want {
				t.Fatalf("%x: %v, want %v", text[:n], got, want)
			}
		}
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		long := []byte(fill(r, r.IntN(40), randomRune))
		if r.IntN(2) == 0 && len(long) > 0 {
			long[r.IntN(len(long))] = edges[r.IntN(len(edges))]
		}
		if got, want := isUTF8(long), utf8.Valid(long); got != want {
			t.Fatalf("%x: %v, want %v", long, got, want)
		}
	}
}

func BenchmarkUTF8(b *testing.B) {
	for name, text := range map[string]string{"ascii": corpora(99_000)["english"], "han": corpora(99_000)["chinese"],
		"random": fill(rand.New(rand.NewPCG(3, 4)), 99_000, randomRune)} {
		for way, valid := range map[string]func([]byte) bool{"here": isUTF8, "standard": utf8.Valid} {
			b.Run(name+"/"+way, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					valid([]byte(text))
				}
			})
		}
	}
}
