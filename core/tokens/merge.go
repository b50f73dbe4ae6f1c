package tokens

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// findHalves works out, in order of rank, which two tokens each token is merged from, and enters that merge. The
// last merge that makes a token is always the same one: inside its bytes merging runs as it would alone.
func (v *vocab) findHalves() error {
	v.halves = make([][2]uint32, v.count())
	v.merges, v.mergeShift = make([]uint32, tableSize(v.count())), tableShift(v.count())
	v.mergeBits = make([]uint64, len(v.merges)*4/64)
	for id := range uint32(v.count()) {
		t := v.token(id)
		if len(t) == 1 {
			v.halves[id] = [2]uint32{id, id}
			continue
		}
		left, right, ok := v.halvesOf(t, id)
		if !ok {
			return fmt.Errorf("token %d (%q) is not the merge of two earlier ones", id, t)
		}
		v.halves[id] = [2]uint32{left, right}
		v.addMerge(left, right, id)
	}
	return nil
}

func (v *vocab) halvesOf(t []byte, id uint32) (left, right uint32, ok bool) {
	for n := len(t); n > 1; {
		left, n = v.match(t, n-1)
		if left >= id {
			continue
		}
		if right = v.find(t[n:]); right < id && v.validPair(left, right) {
			return left, right, true
		}
	}
	return 0, 0, false
}

func mergeHash(left, right uint32) uint64 { return (uint64(left)<<18 | uint64(right)) * mix1 }

func (v *vocab) addMerge(left, right, id uint32) {
	h := mergeHash(left, right)
	slot := h >> v.mergeShift
	for v.merges[slot] != 0 {
		slot = (slot + 1) & uint64(len(v.merges)-1)
	}
	v.merges[slot] = tagOf(h) | (id + 1)
	bit := h >> (v.mergeShift - 2)
	v.mergeBits[bit/64] |= 1 << (bit % 64)
}

// merge is the token that left and right become, or none.
func (v *vocab) merge(left, right uint32) uint32 {
	h := mergeHash(left, right)
	bit := h >> (v.mergeShift - 2)
	if v.mergeBits[bit/64]&(1<<(bit%64)) == 0 {
		return none
	}
	for slot := h >> v.mergeShift; ; slot++ {
		s := v.merges[slot&uint64(len(v.merges)-1)]
		if s == 0 {
			return none
		}
		if s&^idMask == tagOf(h) && v.halves[s&idMask-1] == [2]uint32{left, right} {
			return s&idMask - 1
		}
	}
}

// validPair reports that merging the bytes of left and right together would leave them as these two tokens. It
// undoes the merges on both sides of the border, latest first, and asks at each stage whether a merge across it
// would have come earlier. (The published linear algorithm of the bpe crate; ties go to the left, as in merging.)
func (v *vocab) validPair(left, right uint32) bool {
	limit := uint32(none)
	for {
		if id := v.merge(left, right); id < limit {
			return false
		}
		if left > right {
			limit = left
			if left = v.halves[left][1]; left == limit {
				limit = right + 1
				if right = v.halves[right][0]; right+1 == limit {
					return true
				}
			}
		} else {
			limit = right + 1
			if right = v.halves[right][0]; right+1 == limit {
				limit = left
				if left = v.halves[left][1]; left == limit {
					return true
				}
			}
		}
	}
}

// match is the longest token that merging can make and that t begins with, of at most n bytes (n >= 1).
func (v *vocab) match(t []byte, n int) (id uint32, size int) {
	key := loadKey(t)
	lens := v.beginnings[hash3(key)]
	if n > shortKey {
		if lens&goesOn != 0 {
			if id, size := v.matchLong(t, min(n, maxToken), v.longLens[hash8(key)]); id != none {
				return id, size
			}
		}
		n = shortKey
	}
	for lens &= (1<<n - 1) &^ goesOn; lens != 0; {
		size := bits.Len8(lens)
		if id := v.findShort(key&keyMask[size], size); id != none {
			return id, size
		}
		lens &^= 1 << (size - 1)
	}
	if n > 1 {
		if id := v.two[uint16(key)]; id != none {
			return id, 2
		}
	}
	return v.one[byte(key)], 1
}

func (v *vocab) matchLong(t []byte, n int, lens uint32) (uint32, int) {
	if lens>>longSteps != 0 {
		for size := n; size > shortKey+longSteps; size-- {
			if id := v.findLong(t[:size]); id != none {
				return id, size
			}
		}
	}
	if n -= shortKey; n < longSteps {
		lens &= 1<<n - 1
	}
	for lens &^= 1 << longSteps; lens != 0; {
		step := bits.Len32(lens)
		if id := v.findLong(t[:shortKey+step]); id != none {
			return id, shortKey + step
		}
		lens &^= 1 << (step - 1)
	}
	return none, 0
}

// stack is the scratch of one piece: the tokens so far and the positions found to lead nowhere.
type stack struct {
	tokens [maxPiece]uint32
	dead   [maxPiece/64 + 1]uint64
}

// count is the number of tokens that merging makes of piece, and the steps it took. Greedy from the left: take
// the longest token that is valid after the one before; when none is, the position is dead and the token before is
// shortened. No position dies twice, so the steps are linear in the piece.
func (s *stack) count(v *vocab, piece []byte) (tokens, steps int) {
	clear(s.dead[:len(piece)/64+1])
	pos, depth := 0, 0
	id, n := v.match(piece, len(piece))
	for {
		steps++
		end := pos + n
		switch {
		case s.dead[end/64]&(1<<(end%64)) == 0 && (depth == 0 || v.validPair(s.tokens[depth-1], id)):
			s.tokens[depth] = id
			depth++
			if pos = end; pos == len(piece) {
				return depth, steps
			}
			id, n = v.match(piece[pos:], len(piece)-pos)
		case n > 1:
			id, n = v.match(piece[pos:], n-1)
		case depth == 0:
			return len(piece), steps
		default:
			s.dead[pos/64] |= 1 << (pos % 64)
			depth--
			id = s.tokens[depth]
			n = v.size(id)
			pos -= n
		}
	}
}

// wholeKey packs b[i:end], at most 8 bytes, with one load where b is long enough.
func wholeKey(b []byte, i, end int) uint64 {
	if i+8 <= len(b) {
		return binary.LittleEndian.Uint64(b[i:]) & keyMask[end-i]
	}
	return loadKey(b[i:end])
}
