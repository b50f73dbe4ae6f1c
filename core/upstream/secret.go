package upstream

import "bytes"

const (
	minSecret = 8  // bytes; a shorter credential is not looked for, as it would be found where it does not stand
	minAnchor = 6  // bytes
	maxAnchor = 32 // bytes
)

var blot = []byte("[redacted]")

// secret finds a channel's credential in what its provider says, plain or with some of it escaped as JSON writers do
// ("sk\u002dproj"). They escape no letters and no digits, so a run of those, the anchor, tells cheaply where to look.
type secret struct {
	text   []byte // empty: nothing to look for
	anchor []byte
	at     int // of the anchor in text
}

func newSecret(credential string) (s secret) {
	if len(credential) < minSecret {
		return s
	}
	s.text = []byte(credential)
	run := 0
	for i, c := range s.text {
		if run++; !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9') {
			run = 0
		}
		if run > len(s.anchor) {
			s.at = i + 1 - run
			s.anchor = s.text[s.at : i+1]
		}
	}
	if len(s.anchor) < minAnchor {
		s.anchor, s.at = s.text, 0
		return s
	}
	best := 0 // a rare first letter makes the search fast
	for i, c := range s.anchor[:len(s.anchor)-minAnchor+1] {
		if rarity(c) > rarity(s.anchor[best]) {
			best = i
		}
	}
	s.anchor, s.at = s.anchor[best:min(best+maxAnchor, len(s.anchor))], s.at+best
	return s
}

// rarity ranks characters by how seldom they stand in the events of a stream.
func rarity(c byte) int {
	switch {
	case c >= 'A' && c <= 'Z', c == 'j', c == 'q', c == 'z':
		return 2
	case c >= '0' && c <= '9', c == 'k', c == 'v', c == 'w', c == 'x':
		return 1
	}
	return 0
}

// hide gives b with every credential in it blotted out: b itself, untouched, when there is none.
func (s *secret) hide(b []byte) []byte {
	if len(s.text) == 0 {
		return b
	}
	var clean []byte
	for from := 0; ; {
		i := bytes.Index(b[from:], s.anchor)
		if i < 0 {
			if clean == nil {
				return b
			}
			return append(clean, b...)
		}
		start, end, ok := s.around(b, from+i)
		if !ok {
			from += i + 1
			continue
		}
		clean = append(append(clean, b[:start]...), blot...)
		b, from = b[end:], 0
	}
}

// around matches the rest of the credential before and behind the anchor at i.
func (s *secret) around(b []byte, i int) (start, end int, ok bool) {
	start, end = i, i+len(s.anchor)
	for k := s.at - 1; k >= 0; k-- {
		n := endsWith(b[:start], s.text[k])
		if n == 0 {
			return 0, 0, false
		}
		start -= n
	}
	for _, c := range s.text[s.at+len(s.anchor):] {
		n := beginsWith(b[end:], c)
		if n == 0 {
			return 0, 0, false
		}
		end += n
	}
	return start, end, true
}

// endsWith is how many bytes the character c takes at the end of b, escaped or not; 0 when it is not there.
func endsWith(b []byte, c byte) int {
	n := len(b)
	switch {
	case n >= 6 && isEscape(b[n-6:], c):
		return 6
	case n >= 2 && b[n-2] == '\\' && b[n-1] == c && (c == '/' || c == '"' || c == '\\'):
		return 2
	case n >= 1 && b[n-1] == c:
		return 1
	}
	return 0
}

func beginsWith(b []byte, c byte) int {
	switch {
	case len(b) >= 6 && isEscape(b, c):
		return 6
	case len(b) >= 2 && b[0] == '\\' && b[1] == c && (c == '/' || c == '"' || c == '\\'):
		return 2
	case len(b) >= 1 && b[0] == c:
		return 1
	}
	return 0
}

func isEscape(b []byte, c byte) bool {
	r, ok := hex4(b)
	return ok && r == rune(c)
}
