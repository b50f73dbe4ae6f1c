package tokens

import "github.com/weir-gateway/weir/core/llm"

// maxTail is how many bytes the last pieces may have for what comes next to go on with them; longer ones are counted for good.
const maxTail = 64

// Running counts a stream's text as it comes. However it is cut, it counts as one text, but for what the pre-tokenizer sees
// only by looking ahead. The factor of an unknown vocabulary applies to the sum: rounded up for each delta, it would make two
// tokens of every one. The zero Running is ready; owned by one stream.
type Running struct {
	plain llm.Tokens // before the factor, and before the tail
	last  llm.Tokens // what the tail counts as it stands
	tail  []byte     // the last two pieces: "don", "'" and "t" are one word
}

// Escaped adds the content of a JSON string as it stands on the wire, and returns the total so far, which may be less than
// before where two pieces have become one. It goes on where the text before ended; apart ends that text first.
func (r *Running) Escaped(c *Counter, e Encoding, content []byte, apart bool) llm.Tokens {
	if apart {
		r.close()
	}
	if len(content) > 0 {
		r.add(e.v, content)
	}
	return e.scale(r.plain + r.last)
}

// close counts the tail for good.
func (r *Running) close() {
	r.plain, r.last, r.tail = r.plain+r.last, 0, r.tail[:0]
}

func (r *Running) add(v *vocab, content []byte) {
	w := borrow(len(r.tail) + len(content))
	w.undo(append(w.buf[:0], r.tail...), content)
	text := w.valid(w.buf)
	before, last, at := w.pieces(v, text)
	r.plain, r.last = r.plain+before, last
	if len(text)-at > maxTail {
		r.close()
	} else {
		r.tail = append(r.tail[:0], text[at:]...)
	}
	w.giveBack()
}

// Reset makes r as new, keeping its memory.
func (r *Running) Reset() { *r = Running{tail: r.tail[:0]} }
