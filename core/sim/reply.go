package sim

import (
	"strings"
	"unicode"

	"github.com/weir-gateway/weir/core/llm"
)

// fixedText is what the simulated model always says.
const fixedText = "The river does not hurry, and yet it arrives. A weir lets it pass at the height that was agreed, no more and " +
	"no less. What is held back is counted, and what was counted is paid for once."

// filler is repeated where a text of a given size is asked for; it needs no escapes.
const filler = "water under the bridge and over the weir, "

// fillerPiece is the text of one event of a long answer, in bytes.
const fillerPiece = 4 << 10

// pieces is the text of one choice, cut as it will be streamed. Each piece is JSON-escaped.
type pieces struct {
	words []string // cycled
	n     int
	bytes int64 // filler of that size instead of words
	big   int   // the piece that carries bigLen bytes of filler; -1: none
	size  int64
}

// split cuts a text into words with the blanks before them, and punctuation marks.
func split(text string) (words []string) {
	start := 0
	for i, r := range text {
		cut := unicode.IsPunct(r) || unicode.IsSpace(r)
		if cut && i > start && strings.TrimSpace(text[start:i]) != "" {
			words = append(words, quoted(text[start:i]))
			start = i
		}
	}
	if start < len(text) {
		words = append(words, quoted(text[start:]))
	}
	return words
}

// textOf decides what a choice says and whether a cap cut it short.
func (s *Sim) textOf(a *ask, b *Behaviour) (p pieces, capped bool) {
	p = pieces{words: s.words, big: -1}
	switch {
	case b.Text != "":
		p.words = split(b.Text)
	case a.schema != nil:
		p.words = split(string(sample(nil, a.schema)))
	}
	p.n = len(p.words)
	if b.Out > 0 {
		p.n = b.Out
	}
	if a.cap >= 0 && !b.NoCap && p.n > a.cap {
		p.n, capped = a.cap, true
	}
	switch {
	case b.Echo == EchoText:
		return pieces{words: []string{quoted(string(a.body))}, n: 1, big: -1, size: int64(len(a.body))}, false
	case b.Bytes > 0:
		return pieces{bytes: b.Bytes, n: int((b.Bytes + fillerPiece - 1) / fillerPiece), big: -1}, false
	case b.BigEvent > 0:
		p.big, p.size = p.n/2, b.BigEvent
	}
	return p, capped
}

// append adds piece i to dst.
func (p *pieces) append(dst []byte, i int) []byte {
	switch {
	case p.bytes > 0:
		return appendFiller(dst, min(fillerPiece, p.bytes-int64(i)*fillerPiece))
	case i == p.big:
		return appendFiller(dst, p.size)
	case i > 0 && i%len(p.words) == 0:
		dst = append(dst, ' ')
	}
	return append(dst, p.words[i%len(p.words)]...)
}

// all adds the whole text to dst.
func (p *pieces) all(dst []byte) []byte {
	for i := range p.n {
		dst = p.append(dst, i)
	}
	return dst
}

// tokens is what the first n pieces cost.
func (p *pieces) tokens(n int) int {
	switch {
	case p.bytes > 0:
		return int((min(int64(n)*fillerPiece, p.bytes) + 3) / 4)
	case p.big < 0 && p.size > 0 && n > 0: // echo
		return int((p.size + 3) / 4)
	case p.big >= 0 && n > p.big:
		return n - 1 + int((p.size+3)/4)
	}
	return n
}

func appendFiller(dst []byte, n int64) []byte {
	for ; n > int64(len(filler)); n -= int64(len(filler)) {
		dst = append(dst, filler...)
	}
	return append(dst, filler[:n]...)
}

// say decides what the answer says and reports: thinking, then tool calls or the text.
func (r *reply) say(s *Sim) {
	r.thought = pieces{words: s.words, n: r.b.Thinking, big: -1}
	if r.calls = callsOf(r.ask, &r.b); len(r.calls) > 0 {
		r.text = pieces{big: -1}
	} else {
		r.text, r.capped = s.textOf(r.ask, &r.b)
	}
	output := r.thought.n + r.text.tokens(r.text.n)
	for i := range r.calls {
		output += r.calls[i].tokens()
	}
	r.usage = usageOf(r.ask, &r.b, output)
}

// usageOf is what the whole answer reports; output is what one choice costs.
func usageOf(a *ask, b *Behaviour, output int) llm.Usage {
	u := llm.Usage{
		InputTokens:       llm.Tokens(max(a.input, 1)),
		OutputTokens:      llm.Tokens(output * a.generated),
		CachedInputTokens: llm.Tokens(b.Cached),
		CacheWriteTokens:  llm.Tokens(b.CacheWrite),
	}
	if a.endpoint == llm.Embeddings || a.endpoint == llm.CountTokens {
		u.OutputTokens = 0
	} else if b.UsageOut > 0 {
		u.OutputTokens = llm.Tokens(b.UsageOut)
	}
	if b.UsageIn > 0 {
		u.InputTokens = llm.Tokens(b.UsageIn)
	}
	u.InputTokens = max(u.InputTokens, u.CachedInputTokens+u.CacheWriteTokens)
	return u
}

// reply is one answer being made: what was asked, how to behave, and what is said.
type reply struct {
	*ask
	b        Behaviour
	text     pieces
	thought  pieces
	calls    []toolCall // instead of the text
	replayed []event    // instead of all of it, when streamed
	capped   bool
	usage    llm.Usage
	id       []byte // digits and letters, to be prefixed by the dialect
	created  int64  // unix seconds
}

// reports says whether usage appears at all, given that the client is owed it.
func (r *reply) reports(owed bool) bool { return owed && r.b.Usage == UsageReported }
