package tokens

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/weir-gateway/weir/core/llm"
)

// Options configure counting.
type Options struct {
	DefaultOutput   llm.Tokens        `yaml:"default_output_tokens"` // output bound when neither body nor model gives one; /v1/completions has 16
	ImageTokens     llm.Tokens        `yaml:"image_tokens"`          // flat, per image
	FileTokens      llm.Tokens        `yaml:"file_tokens"`           // flat, per audio clip or file
	StoredTokens    llm.Tokens        `yaml:"stored_tokens"`         // flat, for input that the provider keeps: an earlier response, a conversation
	UnknownPermille int64             `yaml:"unknown_permille"`      // o200k counts times this / 1000 for models without a known encoding
	Encodings       map[string]string `yaml:"encodings"`             // model prefix -> cl100k | o200k
}

// The defaults of Options, and the largest values that are taken.
const (
	defaultOutput  = 4096 // what a chat without a cap may come to
	legacyOutput   = 16   // what a completion without a cap comes to at OpenAI, and at the servers that follow it
	defaultImage   = 765  // one 1024 x 1024 picture in high detail, by OpenAI's rule of 85 + 170 per tile
	defaultFile    = 2000 // some three pages, or three minutes of sound
	defaultStored  = 8192 // a conversation of some twenty turns
	defaultUnknown = 1150 // other vocabularies need up to about 15 % more tokens for the same prose
	maxFlat        = 10_000_000
	maxPermille    = 10_000
	permille       = 1000
)

// Defaults fills what is not set.
func (o *Options) Defaults() {
	fill := func(field *llm.Tokens, value llm.Tokens) {
		if *field == 0 {
			*field = value
		}
	}
	fill(&o.DefaultOutput, defaultOutput)
	fill(&o.ImageTokens, defaultImage)
	fill(&o.FileTokens, defaultFile)
	fill(&o.StoredTokens, defaultStored)
	if o.UnknownPermille == 0 {
		o.UnknownPermille = defaultUnknown
	}
}

// Validate checks filled options. The error names every field that is out of range.
func (o *Options) Validate() error {
	var errs []error
	check := func(name string, v, lo, hi int64) {
		if v < lo || v > hi {
			errs = append(errs, fmt.Errorf("tokens.%s: expected %d to %d, got %d", name, lo, hi, v))
		}
	}
	check("default_output_tokens", int64(o.DefaultOutput), 1, llm.MaxOutputCap)
	check("image_tokens", int64(o.ImageTokens), 1, maxFlat)
	check("file_tokens", int64(o.FileTokens), 1, maxFlat)
	check("stored_tokens", int64(o.StoredTokens), 1, maxFlat)
	check("unknown_permille", o.UnknownPermille, permille, maxPermille)
	for prefix, name := range o.Encodings {
		errs = append(errs, checkEncoding(prefix, name))
	}
	return errors.Join(errs...)
}

// Counter counts for all models; it is safe for concurrent use.
type Counter struct {
	o      Options
	o200k  *vocab
	cl100k *vocab
	known  *known
}

// New loads the vocabularies, once per process (about 100 ms), and fills unset options.
func New(o Options) (*Counter, error) {
	o.Defaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	c := &Counter{o: o, known: newKnown()}
	var first, second error
	var wg sync.WaitGroup
	wg.Go(func() { c.cl100k, first = loadCL100K() })
	c.o200k, second = loadO200K()
	wg.Wait()
	if err := errors.Join(first, second); err != nil {
		return nil, err
	}
	return c, nil
}

// Encoding is how one model counts: resolved once per model, kept by the catalog's user. The zero Encoding counts a token
// per byte.
type Encoding struct {
	v        *vocab
	permille int64
}

// For picks the encoding of a model name: what the options say of its longest prefix, else the model's own, else
// o200k times UnknownPermille.
func (c *Counter) For(model string) Encoding {
	name := c.o.override(model)
	if name == "" {
		name = family(model)
	}
	switch name {
	case "o200k":
		return Encoding{c.o200k, permille}
	case "cl100k":
		return Encoding{c.cl100k, permille}
	}
	return Encoding{c.o200k, c.o.UnknownPermille}
}

// scale applies the factor of an unknown vocabulary, rounding up.
func (e Encoding) scale(n llm.Tokens) llm.Tokens {
	if e.permille == permille || e.permille == 0 {
		return n
	}
	return (n*llm.Tokens(e.permille) + permille - 1) / permille
}

// What surrounds the texts. Chat: every message is framed by <|start|>{role}<|message|>..<|end|> and the answer is
// primed (OpenAI's cookbook, "How to count tokens with tiktoken"). Tools are injected as text by both providers: a few
// tokens around the definitions at OpenAI; at Anthropic a system prompt of 346 tokens.
const (
	perMessage     = 3
	perName        = 1
	priming        = 3
	perTools       = 12
	anthropicTools = 346
)

// overhead is what a dialect adds to the texts.
func overhead(h *llm.Head) llm.Tokens {
	var n llm.Tokens
	switch h.Endpoint {
	case llm.Completions, llm.Embeddings:
		return 0
	}
	n = llm.Tokens(h.Messages)*perMessage + llm.Tokens(h.Names)*perName + priming
	if h.Tools && h.Endpoint.Dialect() == llm.Anthropic {
		n += anthropicTools
	} else if h.Tools {
		n += perTools
	}
	return n
}

// Estimate is the number of input tokens of a request: texts, the dialect's overhead per message, tools, images, files,
// and a flat amount for input that the provider keeps.
func (c *Counter) Estimate(e Encoding, h *llm.Head, body []byte) llm.Tokens {
	w := borrow(len(body))
	var n llm.Tokens
	for i := range h.Texts {
		n += c.known.span(w, e.v, &h.Texts[i], body)
	}
	w.giveBack()
	n = e.scale(n) + h.TextTokens + overhead(h)
	if h.Stored {
		n += c.o.StoredTokens
	}
	return n +
		llm.Tokens(h.Images)*c.o.ImageTokens + llm.Tokens(h.Attachments)*c.o.FileTokens
}

// OutputBound is the largest number of output tokens a request may produce over all choices; soft reports that the
// body gave no cap. A legacy completion has a cap of 16 then, by its protocol, however much the model could say: whoever
// wants more says so, there as here.
func (c *Counter) OutputBound(h *llm.Head, modelMax llm.Tokens) (bound llm.Tokens, soft bool) {
	if h.Endpoint == llm.Embeddings || h.Endpoint == llm.CountTokens {
		return 0, false
	}
	bound = h.OutputCap
	if bound < 0 {
		soft = true
		if bound = modelMax; bound <= 0 {
			bound = c.o.DefaultOutput
		}
		if h.Endpoint == llm.Completions {
			bound = min(bound, legacyOutput)
		}
	}
	choices := llm.Tokens(max(h.Choices, 1))
	if bound > math.MaxInt64/choices {
		return math.MaxInt64, soft
	}
	return bound * choices, soft
}

// Text counts plain text (stream deltas, settlement without usage); bytes that are not UTF-8 count as U+FFFD.
func (c *Counter) Text(e Encoding, text []byte) llm.Tokens {
	w := borrow(len(text))
	n := w.any(e.v, text)
	w.giveBack()
	return e.scale(n)
}

// Escaped counts the content of a JSON string as it stands on the wire, undoing its escapes first.
func (c *Counter) Escaped(e Encoding, content []byte) llm.Tokens {
	w := borrow(len(content))
	n := w.escaped(e.v, content)
	w.giveBack()
	return e.scale(n)
}
