package tokens

import (
	"encoding/binary"
	"math/bits"
)

// findHalves works out, in order of rank, which two tokens each token is merged from, and enters that merge. The
// last merge that makes a token is always the same one: inside its bytes merging runs as it would alone. A token that
// no valid pair makes is never the result of merging, and counts only where it is a whole piece.
func (v *vocab) findHalves() {
	v.halves = make([][2]uint32, v.count())
	v.mBits = tableBits(v.count())
	v.merges = make([]uint32, 1<<v.mBits)
	for id := range uint32(v.count()) {
		t := v.token(id)
		v.halves[id] = [2]uint32{id, id}
		if len(t) == 1 {
			continue
		}
		if left, right, ok := v.halvesOf(t, id); ok {
			v.halves[id] = [2]uint32{left, right}
			v.addMerge(left, right, id)
		} else {
			v.halves[id] = [2]uint32{id | unmerged, id | unmerged}
		}
	}
}

func (v *vocab) halvesOf(t []byte, id uint32) (left, right uint32, ok bool) {
	left, n := v.match(t, len(t)-1)
	for {
		if left < id {
			right = v.find(t[n:])
			if right < id && v.merged(right) && v.validPair(left, right) {
				return left, right, true
			}
		}
		if n == 1 {
			return 0, 0, false
		}
		left, n = v.match(t, n-1)
	}
}

// merged reports that merging can make the token.
func (v *vocab) merged(id uint32) bool { return v.halves[id][0]&unmerged == 0 }

func mergeHash(left, right uint32) uint64 { return (uint64(left)<<18 | uint64(right)) * mix1 }

func (v *vocab) addMerge(left, right, id uint32) {
	h := mergeHash(left, right)
	slot := h >> (64 - v.mBits)
	for v.merges[slot] != 0 {
		slot = (slot + 1) & (1<<v.mBits - 1)
	}
	v.merges[slot] = uint32(h)>>18<<18 | (id + 1)
}

// merge is the token that left and right become, or none.
func (v *vocab) merge(left, right uint32) uint32 {
	h := mergeHash(left, right)
	for slot := h >> (64 - v.mBits); ; slot = (slot + 1) & (1<<v.mBits - 1) {
		s := v.merges[slot]
		if s == 0 {
			return none
		}
		if (s^uint32(h))>>18 == 0 {
			if id := s&idMask - 1; v.halves[id] == [2]uint32{left, right} {
				return id
			}
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
	if n > shortKey {
		if lens := v.longLens[hash8(key)]; lens != 0 {
			if id, size := v.matchLong(t, min(n, maxToken), lens); id != none {
				return id, size
			}
		}
		n = shortKey
	}
	if n > 2 {
		for lens := v.shortLens[hash3(key)] & (1<<n - 1); lens != 0; {
			size := bits.Len8(lens)
			if id := v.findShort(key&keyMask[size], size); id != none && v.merged(id) {
				return id, size
			}
			lens &^= 1 << (size - 1)
		}
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
			if id := v.findLong(t[:size]); id != none && v.merged(id) {
				return id, size
			}
		}
	}
	if n -= shortKey; n < longSteps {
		lens &= 1<<n - 1
	}
	for lens &^= 1 << longSteps; lens != 0; {
		step := bits.Len32(lens)
		if id := v.findLong(t[:shortKey+step]); id != none && v.merged(id) {
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
