package tokens

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// findHalves works out, in order of rank, which two tokens each token is merged from, and enters that merge. The
// last merge that makes a token is always the same one: inside its bytes merging runs as it would alone.
func (v *vocab) findHalves() error {
	v.merges, v.mergeShift = make([]uint32, tableSize(v.count())), tableShift(v.count())
	v.mergeBits = make([]uint64, len(v.merges)*4/64)
	for id := range uint32(v.count()) {
		t := v.token(id)
		if len(t) == 1 {
			v.made[id].left, v.made[id].right = id, id
			continue
		}
		left, right, ok := v.halvesOf(t, id)
		if !ok {
			return fmt.Errorf("token %d (%q) is not the merge of two earlier ones", id, t)
		}
		v.made[id].left, v.made[id].right = left, right
		v.addMerge(left, right, id)
		v.borders.add(t, v.size(left))
	}
	return nil
}

func (v *vocab) halvesOf(t []byte, id uint32) (left, right uint32, ok bool) {
	for n := len(t); n > 1; {
		left, n, _ = v.match(t, n-1)
		if left >= id {
			continue
		}
		if right = v.find(t[n:]); right < id {
			if ok, _ := v.validPair(left, right); ok {
				return left, right, true
			}
		}
	}
	return 0, 0, false
}

// borders tells of a place between two tokens, by two bytes on each side, whether a merge can be across it. Each token
// is made by one merge, so its bytes beside that one place are all that can stand beside a border that goes; a side of a
// single byte says nothing of the byte behind it. These are bits of hashes: a yes may be wrong, a no is not, and
// saves asking in most scripts but Latin.
type borders struct {
	twoTwo [1 << 14]uint64 // by two bytes before and two after
	oneTwo [1 << 11]uint64
	twoOne [1 << 11]uint64
	oneOne [1 << 10]uint64
}

// beside packs the bytes beside the place at in t, 0 for what is not there, as before<<8 | after and each with one more.
func beside(t []byte, at int) (oneOne, oneTwo, twoOne, twoTwo uint64) {
	var before, after uint64
	if at > 1 {
		before = uint64(t[at-2])
	}
	if at+1 < len(t) {
		after = uint64(t[at+1])
	}
	oneOne = uint64(t[at-1])<<8 | uint64(t[at])
	return oneOne, (oneOne<<8 | after) * mix1 >> (64 - 17), (oneOne<<8 | before) * mix1 >> (64 - 17),
		(oneOne<<16 | before<<8 | after) * mix1 >> (64 - 20)
}

// add enters the token t, merged at the place at.
func (s *borders) add(t []byte, at int) {
	oneOne, oneTwo, twoOne, twoTwo := beside(t, at)
	switch before, after := at, len(t)-at; {
	case before == 1 && after == 1:
		s.oneOne[oneOne/64] |= 1 << (oneOne % 64)
	case before == 1:
		s.oneTwo[oneTwo/64] |= 1 << (oneTwo % 64)
	case after == 1:
		s.twoOne[twoOne/64] |= 1 << (twoOne % 64)
	default:
		s.twoTwo[twoTwo/64] |= 1 << (twoTwo % 64)
	}
}

// hold reports that no merge can be across the place at in t, so that tokens that end and begin there are valid side
// by side.
func (s *borders) hold(t []byte, at int) bool {
	oneOne, oneTwo, twoOne, twoTwo := beside(t, at)
	return (s.oneOne[oneOne/64]>>(oneOne%64)|s.oneTwo[oneTwo/64]>>(oneTwo%64)|
		s.twoOne[twoOne/64]>>(twoOne%64)|s.twoTwo[twoTwo/64]>>(twoTwo%64))&1 == 0
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
		if s&^idMask == tagOf(h) {
			if m := &v.made[s&idMask-1]; m.left == left && m.right == right {
				return s&idMask - 1
			}
		}
	}
}

// validPair reports that merging the bytes of left and right together would leave them as these two tokens, and how
// many pairs it looked up. It undoes the merges on both sides of the border, latest first, and asks at each stage whether
// a merge across it would have come earlier. (The published linear algorithm of the bpe crate; ties go to the left, as in
// merging.)
func (v *vocab) validPair(left, right uint32) (ok bool, lookups int) {
	limit := uint32(none)
	for {
		lookups++
		if id := v.merge(left, right); id < limit {
			return false, lookups
		}
		if left > right {
			limit = left
			if left = v.made[left].right; left == limit {
				limit = right + 1
				if right = v.made[right].left; right+1 == limit {
					return true, lookups
				}
			}
		} else {
			limit = right + 1
			if right = v.made[right].left; right+1 == limit {
				limit = left
				if left = v.made[left].right; left == limit {
					return true, lookups
				}
			}
		}
	}
}

// match is the longest token that merging can make and that t begins with, of at most n bytes (n >= 1), and the number
// of lookups that took.
func (v *vocab) match(t []byte, n int) (id uint32, size, lookups int) {
	key := loadKey(t)
	lens := v.beginnings[hash3(key)]
	lookups = 1
	if n > shortKey {
		if lens&goesOn != 0 {
			if id, size, lookups = v.matchLong(t, min(n, maxToken)); id != none {
				return id, size, lookups
			}
		}
		n = shortKey
	}
	for lens &= (1<<n - 1) &^ goesOn; lens != 0; {
		lookups++
		size := bits.Len8(lens)
		if id := v.findShort(key&keyMask[size], size); id != none {
			return id, size, lookups
		}
		lens &^= 1 << (size - 1)
	}
	if n > 1 {
		if id := v.two[uint16(key)]; id != none {
			return id, 2, lookups
		}
	}
	return v.one[byte(key)], 1, lookups
}

// matchLong is match for tokens of 9 to n bytes: it follows the blocks of t for as long as tokens begin so, and tries
// the lengths there are from there back.
func (v *vocab) matchLong(t []byte, n int) (id uint32, size, lookups int) {
	h := hashBlock(0, t)
	lens := v.longLens[lensSlot(h)]
	lookups = 2
	if lens&longer != 0 && n > 2*block {
		if id, size, lookups = v.matchLonger(t, n, h); id != none {
			return id, size, lookups
		}
	}
	id, size, tries := v.matchBlock(t, n, block, h, lens)
	return id, size, lookups + tries
}

// matchBlock tries the lengths of tokens that begin with the first done bytes, whose hash is h, and have one block more.
func (v *vocab) matchBlock(t []byte, n, done int, h uint64, lens uint16) (id uint32, size, lookups int) {
	if n -= done; n < block {
		lens &= 1<<n - 1
	}
	for lens &^= longer; lens != 0; {
		lookups++
		size = bits.Len16(lens)
		if id := v.findEnd(h, t[:done+size]); id != none {
			return id, done + size, lookups
		}
		lens &^= 1 << (size - 1)
	}
	return none, 0, lookups
}

// matchLonger is matchLong for tokens of more than two blocks; h is the hash of the first.
func (v *vocab) matchLonger(t []byte, n int, h uint64) (id uint32, size, lookups int) {
	var hashes [maxToken / block]uint64
	var lens [maxToken / block]uint16
	lookups = 2
	blocks := 1
	for on := true; on && (blocks+1)*block < n; lookups++ {
		h = hashBlock(h, t[blocks*block:])
		blocks++
		hashes[blocks-1], lens[blocks-1] = h, v.longLens[lensSlot(h)]
		on = lens[blocks-1]&longer != 0
	}
	for ; blocks > 1; blocks-- {
		id, size, tries := v.matchBlock(t, n, blocks*block, hashes[blocks-1], lens[blocks-1])
		lookups += tries
		if id != none {
			return id, size, lookups
		}
	}
	return none, 0, lookups
}

// stack is the scratch of one piece: the tokens so far and the positions found to lead nowhere.
type stack struct {
	tokens []uint32
	dead   []uint64
	heap   heap
}

// fit makes room for a piece of n bytes.
func (s *stack) fit(n int) {
	if n > len(s.tokens) {
		n = max(n, shortPiece)
		s.tokens, s.dead = make([]uint32, n), make([]uint64, n/64+1)
	}
}

// count is the number of tokens that merging makes of piece, and the work it took. Greedy from the left: take
// the longest token that is valid after the one before; when none is, the position is dead and the token before is
// shortened. No position dies twice, so the steps are linear in the piece, times the tokens that begin at a position: for a long
// run of one sign those are many, and merging by its definition is less work. The tokens are left in the stack. Once the work
// allowed is spent there are none, and the piece counts by its bytes.
func (s *stack) count(v *vocab, piece []byte, allowed int) (tokens []uint32, work int) {
	s.fit(len(piece))
	clear(s.dead[:len(piece)/64+1])
	pos, depth := 0, 0
	id, n, lookups := v.match(piece, len(piece))
	for work <= allowed {
		if work > heapAfter*len(piece) {
			tokens, more := s.heap.merge(v, piece, s.tokens, allowed-work)
			return tokens, work + more
		}
		work += stepWork + lookups*lookupWork
		end := pos + n
		ok := s.dead[end/64]&(1<<(end%64)) == 0
		if ok && depth > 0 && !v.borders.hold(piece, pos) {
			ok, lookups = v.validPair(s.tokens[depth-1], id)
			work += lookups * pairWork
		}
		switch {
		case ok:
			s.tokens[depth] = id
			depth++
			if pos = end; pos == len(piece) {
				return s.tokens[:depth], work
			}
			id, n, lookups = v.match(piece[pos:], len(piece)-pos)
		case n > 1:
			id, n, lookups = v.match(piece[pos:], n-1)
		case depth == 0:
			return nil, work
		default:
			s.dead[pos/64] |= 1 << (pos % 64)
			depth--
			id, lookups = s.tokens[depth], 0
			n = v.size(id)
			pos -= n
		}
	}
	return nil, work
}

// wholeKey packs b[i:end], at most 8 bytes, with one load where b is long enough.
func wholeKey(b []byte, i, end int) uint64 {
	if i+8 <= len(b) {
		return binary.LittleEndian.Uint64(b[i:]) & keyMask[end-i]
	}
	return loadKey(b[i:end])
}
