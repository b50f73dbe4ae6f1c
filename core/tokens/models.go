package tokens

import (
	"fmt"
	"slices"
	"strings"
)

// families are the model names whose encoding is known: exact for them and what follows with a dash, a dot or a colon.
var families = map[string]string{
	"gpt-4o": "o200k", "gpt-4.1": "o200k", "gpt-4.5": "o200k", "gpt-5": "o200k", "chatgpt-4o": "o200k",
	"o1": "o200k", "o3": "o200k", "o4": "o200k", "gpt-oss": "o200k", "codex": "o200k", "gpt-realtime": "o200k",
	"gpt-audio": "o200k", "computer-use-preview": "o200k",
	"gpt-4": "cl100k", "gpt-3.5": "cl100k", "gpt-35": "cl100k", "text-embedding-3": "cl100k",
	"text-embedding-ada-002": "cl100k", "davinci-002": "cl100k", "babbage-002": "cl100k",
}

// family is the encoding of a known model, "" for an unknown one. A provider's prefix ("openai/") and the one of
// fine-tuned models ("ft:") do not matter.
func family(model string) string {
	model = model[strings.LastIndexByte(model, '/')+1:]
	model = strings.TrimPrefix(model, "ft:")
	for end := len(model); end > 0; end-- {
		if end < len(model) && strings.IndexByte("-.:@", model[end]) < 0 {
			continue
		}
		if name, ok := families[model[:end]]; ok {
			return name
		}
	}
	return ""
}

// override is the encoding that the longest matching prefix of the options names, "" for none.
func (o *Options) override(model string) string {
	best, name := -1, ""
	for prefix, encoding := range o.Encodings {
		if len(prefix) > best && strings.HasPrefix(model, prefix) {
			best, name = len(prefix), encoding
		}
	}
	return name
}

// encodingNames are the values of Options.Encodings.
var encodingNames = []string{"cl100k", "o200k"}

func checkEncoding(prefix, name string) error {
	if !slices.Contains(encodingNames, name) {
		return fmt.Errorf("tokens.encodings: %q is no encoding (for models %q); expected one of %s",
			name, prefix, strings.Join(encodingNames, ", "))
	}
	return nil
}
