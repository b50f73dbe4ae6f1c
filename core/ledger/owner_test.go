package ledger

import (
	"bytes"
	"testing"
)

// What was carved from a group's slab stays as it is when more is, and when the slab moves.
func TestCarvedPiecesStay(t *testing.T) {
	var g group
	g.slab = make([]byte, 0, 16)
	var pieces [][]byte
	for i := range byte(100) {
		pieces = append(pieces, g.carve(append(g.slab, bytes.Repeat([]byte{i}, int(i%7)+1)...)))
	}
	for i, p := range pieces {
		_ = append(p, 'x') // has no room in the slab
		if want := bytes.Repeat([]byte{byte(i)}, i%7+1); !bytes.Equal(p, want) {
			t.Fatalf("piece %d is %v; want %v", i, p, want)
		}
	}
}

// The tail moves on over the statements in their order, and takes no more room however long the log is.
func TestTailKeepsItsRoom(t *testing.T) {
	const tail, said = 1_000, 7
	var o owner
	room := 0
	for chunk := range uint64(20_000) {
		o.forget(max(0, len(o.recent)-o.passed-tail))
		for i := range uint64(said) {
			o.recent = append(o.recent, statement{id: chunk*said + i, chunk: chunk})
		}
		for i, s := range o.recent[o.passed:] {
			if last := chunk*said + said - 1; s.id != last-uint64(len(o.recent)-o.passed-1-i) {
				t.Fatalf("statement %d of the tail is %d, and the newest %d", i, s.id, last)
			}
			if i > 20 {
				break
			}
		}
		switch {
		case chunk == 1_000:
			room = cap(o.recent)
		case chunk > 1_000 && cap(o.recent) != room:
			t.Fatalf("room for %d statements became %d", room, cap(o.recent))
		}
	}
}
