package tokens

// heap merges a piece by the definition: of all neighbours that make a token, those that make the one of the lowest rank are
// joined first, and of several the leftmost. It is the scratch for it.
type heap struct {
	pairs []uint64 // a heap of rank and where the pair begins
	ends  []int32  // of the part that begins here; 0: none does any more
	last  []int32  // where the part before the one that begins here begins
}

// merge leaves the tokens in out, which has room for as many as piece has bytes; nil once the work allowed is spent. It takes
// n log n steps whatever the piece is.
func (h *heap) merge(v *vocab, piece []byte, out []uint32, allowed int) (tokens []uint32, work int) {
	n := len(piece)
	if n > len(h.ends) {
		h.ends, h.last = make([]int32, n), make([]int32, n)
	}
	h.pairs = h.pairs[:0]
	for i := range n {
		h.ends[i], h.last[i] = int32(i+1), int32(i-1)
	}
	for i := 0; i < n-1 && work <= allowed; i++ {
		work += h.push(v, piece, i, i+2)
	}
	for len(h.pairs) > 0 && work <= allowed {
		pair := h.pop()
		i, id := int(uint32(pair)), uint32(pair>>32)
		right := int(h.ends[i])
		if right == 0 || right == n || int(h.ends[right])-i != v.size(id) {
			continue // one of them has been joined to something else
		}
		end := int(h.ends[right])
		h.ends[i], h.ends[right] = int32(end), 0
		if end < n {
			h.last[end] = int32(i)
			work += h.push(v, piece, i, int(h.ends[end]))
		}
		if before := int(h.last[i]); before >= 0 {
			work += h.push(v, piece, before, end)
		}
	}
	if work > allowed {
		return nil, work
	}
	tokens = out[:0]
	for i := 0; i < n; i = int(h.ends[i]) {
		tokens = append(tokens, v.find(piece[i:h.ends[i]]))
	}
	return tokens, work
}

// push adds the pair of piece[from:to], if it makes a token, and tells the work.
func (h *heap) push(v *vocab, piece []byte, from, to int) int {
	if id := v.find(piece[from:to]); id != none {
		h.pairs = append(h.pairs, uint64(id)<<32|uint64(from))
		for i := len(h.pairs) - 1; i > 0; {
			up := (i - 1) / 2
			if h.pairs[up] <= h.pairs[i] {
				break
			}
			h.pairs[up], h.pairs[i] = h.pairs[i], h.pairs[up]
			i = up
		}
	}
	return heapWork + (to-from)/8
}

func (h *heap) pop() uint64 {
	top, last := h.pairs[0], len(h.pairs)-1
	h.pairs[0] = h.pairs[last]
	h.pairs = h.pairs[:last]
	for i := 0; ; {
		down := 2*i + 1
		if down+1 < last && h.pairs[down+1] < h.pairs[down] {
			down++
		}
		if down >= last || h.pairs[i] <= h.pairs[down] {
			return top
		}
		h.pairs[i], h.pairs[down] = h.pairs[down], h.pairs[i]
		i = down
	}
}
