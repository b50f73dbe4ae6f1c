// Package tokens counts prompt and completion tokens, exactly and in bounded time.
package tokens

import "github.com/weir-gateway/weir/core/llm"

// Options configure counting.
type Options struct {
	DefaultOutput   llm.Tokens        `yaml:"default_output_tokens"` // output bound when neither body nor model gives one
	ImageTokens     llm.Tokens        `yaml:"image_tokens"`          // flat, per image
	UnknownPermille int64             `yaml:"unknown_permille"`      // o200k counts times this / 1000 for models without a known encoding
	Encodings       map[string]string `yaml:"encodings"`             // model prefix -> cl100k | o200k
}

// Counter counts for all models; it is immutable and safe for concurrent use.
type Counter struct{}

// New loads the vocabularies once.
func New(o Options) (*Counter, error) { panic("skeleton") }

// Encoding is how one model counts: resolved once per model, kept by the catalog's user.
type Encoding struct{}

// For picks the encoding of a model name.
func (c *Counter) For(model string) Encoding { panic("skeleton") }

// Estimate is the number of input tokens of a request: texts, the dialect's overhead per message, tools, images.
func (c *Counter) Estimate(e Encoding, h *llm.Head, body []byte) llm.Tokens { panic("skeleton") }

// OutputBound is the largest number of output tokens a request may produce over all choices; soft reports that the
// body gave no cap.
func (c *Counter) OutputBound(h *llm.Head, modelMax llm.Tokens) (bound llm.Tokens, soft bool) {
	panic("skeleton")
}

// Text counts plain UTF-8 text (stream deltas, settlement without usage).
func (c *Counter) Text(e Encoding, text []byte) llm.Tokens { panic("skeleton") }
