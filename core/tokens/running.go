package tokens

import "github.com/weir-gateway/weir/core/llm"

// Running counts a stream's text as it comes, each piece for itself. The factor of an unknown vocabulary applies to the
// sum: rounded up for each piece, it would make two tokens of every one. The zero Running is ready; owned by one stream.
type Running struct {
	plain llm.Tokens // before the factor
}

// Escaped adds the content of a JSON string as it stands on the wire, and returns the total so far.
func (r *Running) Escaped(c *Counter, e Encoding, content []byte) llm.Tokens {
	r.plain += c.Escaped(Encoding{e.v, permille}, content)
	return e.scale(r.plain)
}
