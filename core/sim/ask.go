package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-gateway/weir/core/llm"
)

// imageTokens is the flat cost of an image or a file.
const imageTokens = 85

// maxChoices is how many answers one request may ask for.
const maxChoices = 2048

// ask is what one request's body wants.
type ask struct {
	endpoint     llm.Endpoint
	body         []byte
	named        string // the model's whole name, suffix included
	model        string // without the suffix
	stream       bool
	includeUsage bool
	cap          int // -1: none given
	choices      int // answers wanted: n times the prompts
	generated    int // answers made: best_of may be larger than n
	input        int // tokens
	inputs       int // embeddings: how many
	dimensions   int // embeddings
	base64       bool
	tools        []tool
	mustCall     bool   // a tool must be called
	toolNamed    string // and which; "": any
	schema       []byte // that the text must fit; nil: none
}

// failure is an answer that is an error: its status and what the dialect's error object says.
type failure struct {
	status     int
	message    string
	param      string
	code       string
	retryAfter int // seconds
}

func badRequest(param, format string, args ...any) *failure {
	return &failure{status: 400, param: param, message: fmt.Sprintf(format, args...)}
}

// parseAsk reads a body. The endpoint says which members must be there.
func parseAsk(ep llm.Endpoint, body []byte) (*ask, *failure) {
	a := &ask{endpoint: ep, body: body, cap: -1, choices: 1, dimensions: 64}
	if !json.Valid(body) || bytes.TrimSpace(body)[0] != '{' {
		return nil, badRequest("", "expected the body to be one JSON object")
	}
	seen := map[string]bool{}
	n, best, prompts := 1, 1, 1
	members(body, func(key string, val []byte) {
		seen[key] = true
		switch key {
		case "n":
			n = min(max(1, number(val)), maxChoices+1)
		case "best_of":
			best = min(number(val), maxChoices+1)
		case "prompt":
			prompts = max(countInputs(val), 1)
		default:
			a.member(key, val)
		}
		if billed[key] {
			a.input += tokensOf(val)
		}
	})
	a.choices, a.generated = n*prompts, max(n, best)*prompts
	a.model, _, _ = strings.Cut(a.named, "+")
	return a, a.check(seen)
}

// billed are the top-level members whose strings count as input.
var billed = map[string]bool{"messages": true, "system": true, "instructions": true, "prompt": true, "input": true, "tools": true}

func (a *ask) member(key string, val []byte) {
	switch key {
	case "model":
		a.named = unquote(val)
	case "stream":
		a.stream = string(val) == "true"
	case "max_tokens", "max_completion_tokens", "max_output_tokens":
		a.cap = max(a.cap, number(val))
	case "stream_options":
		members(val, func(key string, val []byte) {
			a.includeUsage = a.includeUsage || key == "include_usage" && string(val) == "true"
		})
	case "input":
		a.inputs = max(countInputs(val), 1)
	case "dimensions":
		a.dimensions = number(val)
	case "tools":
		elements(val, func(el []byte) { a.tools = append(a.tools, toolOf(el)) })
	case "tool_choice":
		a.choose(val)
	case "response_format", "text", "output_format", "output_config":
		a.schema = schemaOf(val)
	case "encoding_format":
		a.base64 = unquote(val) == "base64"
	}
}

func (a *ask) check(seen map[string]bool) *failure {
	if a.named == "" {
		return badRequest("model", "you must provide a model parameter")
	}
	for _, name := range required[a.endpoint] {
		if !seen[name] {
			return badRequest(name, "%s: field required", name)
		}
	}
	switch {
	case a.cap == 0 && a.endpoint != llm.Embeddings:
		return badRequest("max_tokens", "max_tokens: expected at least 1")
	case a.generated > maxChoices:
		return badRequest("n", "expected at most %d choices", maxChoices)
	case a.dimensions < 1 || a.dimensions > 8192:
		return badRequest("dimensions", "expected 1 to 8192 dimensions")
	}
	return nil
}

// required are the members that a body of the endpoint must have, beside the model.
var required = map[llm.Endpoint][]string{
	llm.Chat: {"messages"}, llm.Completions: {"prompt"}, llm.Embeddings: {"input"}, llm.Responses: {"input"},
	llm.Messages: {"messages", "max_tokens"}, llm.CountTokens: {"messages"},
}

// number is a whole number of a body; null counts as absent, anything else as 0.
func number(val []byte) int {
	if string(val) == "null" {
		return -1
	}
	n, err := strconv.Atoi(string(val))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// countInputs is how many texts a prompt or an input is: a string or an array of tokens is one.
func countInputs(val []byte) (n int) {
	tokens := false
	elements(val, func(el []byte) {
		n++
		tokens = tokens || el[0] != '"' && el[0] != '['
	})
	if tokens {
		return 1
	}
	return n
}

// tokensOf counts a value by the package's stated rule.
func tokensOf(val []byte) (n int) {
	switch val[0] {
	case '"':
		return (len(val) - 2 + 3) / 4
	case '[':
		elements(val, func(el []byte) {
			if el[0] >= '0' && el[0] <= '9' {
				n++
			} else {
				n += tokensOf(el)
			}
		})
	case '{':
		members(val, func(key string, val []byte) {
			switch key {
			case "role", "type":
			case "image_url", "source", "file", "file_data", "input_audio":
				n += imageTokens
			default:
				n += tokensOf(val)
			}
		})
	}
	return n
}
