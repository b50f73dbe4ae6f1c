package tokens

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Where borders say that no merge can be, asking pair by pair agrees; and they say so of no place where a token is merged.
func TestBordersAreNeverWrong(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, encoding := range encodingNames {
		v := vocabOf(encoding)
		for id := range uint32(v.count()) {
			if token := v.token(id); len(token) > 1 && v.borders.hold(token, v.size(v.made[id].left)) {
				t.Fatalf("%s: %q is merged where no merge can be", encoding, token)
			}
		}
		var held int
		const pairs = 2_000_000
		for range pairs {
			left, right := uint32(r.IntN(v.count())), uint32(r.IntN(v.count()))
			both := slices.Concat(v.token(left), v.token(right))
			if !v.borders.hold(both, v.size(left)) {
				continue
			}
			held++
			if ok, _ := v.validPair(left, right); !ok {
				t.Fatalf("%s: %q: a merge across %d", encoding, both, v.size(left))
			}
		}
		if held < pairs/4 {
			t.Errorf("%s: %d of %d pairs are answered; expected at least a quarter", encoding, held, pairs)
		}
	}
}
