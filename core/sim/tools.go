package sim

import (
	"slices"
	"strconv"
	"strings"

	"github.com/weir-gateway/weir/core/llm"
)

// tool is one that a request offers.
type tool struct {
	name   string
	schema []byte // of its arguments; nil: none given
}

// toolCall is one call in an answer.
type toolCall struct {
	name  string
	raw   string   // the arguments, which are JSON
	parts []string // the same as they will be streamed, each escaped
}

// tokens is what a call costs: one token for every 4 bytes of its arguments.
func (c *toolCall) tokens() int { return (len(c.raw) + 3) / 4 }

// escaped is how the arguments stand in a JSON string.
func (c *toolCall) escaped() string { return strings.Join(c.parts, "") }

// toolOf reads a tool in any of the three shapes: flat, with input_schema, or below function.
func toolOf(val []byte) (t tool) {
	members(val, func(key string, val []byte) {
		switch key {
		case "name":
			t.name = unquote(val)
		case "parameters", "input_schema":
			t.schema = val
		case "function":
			t = toolOf(val)
		}
	})
	return t
}

// choose reads tool_choice: a word, or an object whose type says whether a tool must be called, and maybe which.
func (a *ask) choose(val []byte) {
	word := unquote(val)
	members(val, func(key string, val []byte) {
		if key == "type" {
			word = unquote(val)
		}
	})
	a.mustCall = slices.Contains([]string{"required", "any", "tool", "function"}, word)
	a.toolNamed = toolOf(val).name
}

// schemaOf finds the schema that the answer's text must fit, in response_format, text, output_format or output_config.
func schemaOf(val []byte) (schema []byte) {
	members(val, func(key string, val []byte) {
		switch key {
		case "schema":
			schema = val
		case "format", "json_schema":
			schema = schemaOf(val)
		case "type":
			if unquote(val) == "json_object" {
				schema = []byte(`{"type":"object"}`)
			}
		}
	})
	return schema
}

// callsOf are the tool calls of an answer: as many as the behaviour wants, one where the request demands it. The tools take
// turns unless the request names one.
func callsOf(a *ask, b *Behaviour) (calls []toolCall) {
	if a.endpoint != llm.Chat && a.endpoint != llm.Responses && a.endpoint != llm.Messages {
		return nil
	}
	n, tools := b.Calls, a.tools
	if n == 0 && a.mustCall {
		n = 1
	}
	if a.toolNamed != "" {
		tools = slices.DeleteFunc(slices.Clone(tools), func(t tool) bool { return t.name != a.toolNamed })
	}
	if len(tools) == 0 {
		return nil
	}
	for i := range n {
		t := tools[i%len(tools)]
		raw := string(sample(nil, t.schema))
		calls = append(calls, toolCall{name: t.name, raw: raw, parts: split(raw)})
	}
	return calls
}

// sample adds a value that fits a schema, always the same one: every property, one element, the first alternative. What it
// does not know is a string.
func sample(dst, schema []byte) []byte {
	var kind string
	var properties, items, first []byte
	members(schema, func(key string, val []byte) {
		switch key {
		case "type":
			kind = firstWord(val)
		case "properties":
			properties = val
		case "items":
			items = val
		case "const":
			first = val
		case "enum":
			first = firstElement(val)
		case "anyOf", "oneOf":
			first = sample(nil, firstElement(val))
		}
	})
	switch {
	case first != nil:
		return append(dst, first...)
	case kind == "object" || kind == "" && properties != nil || len(schema) == 0:
		return sampleObject(dst, properties)
	case kind == "array":
		return append(sample(append(dst, '['), orString(items)), ']')
	case kind == "number":
		return append(dst, "1.5"...)
	case kind == "integer":
		return append(dst, '7')
	case kind == "boolean":
		return append(dst, "true"...)
	case kind == "null":
		return append(dst, kind...)
	}
	return append(dst, `"still \"water\" at the Möhne weir"`...)
}

func sampleObject(dst, properties []byte) []byte {
	dst = append(dst, '{')
	n := 0
	members(properties, func(key string, val []byte) {
		dst = append(append(dst, comma(n)...), '"')
		dst = append(append(dst, quoted(key)...), `":`...)
		dst = sample(dst, orString(val))
		n++
	})
	return append(dst, '}')
}

// orString is a schema, or that of a string where there is none.
func orString(schema []byte) []byte {
	if len(schema) == 0 {
		return []byte(`{"type":"string"}`)
	}
	return schema
}

func firstElement(list []byte) (first []byte) {
	elements(list, func(val []byte) {
		if first == nil {
			first = val
		}
	})
	return first
}

// firstWord is a string, or the first of a list of strings.
func firstWord(val []byte) string {
	if first := firstElement(val); first != nil {
		val = first
	}
	return unquote(val)
}

// callID is the id of the i-th call of an answer, after the dialect's prefix.
func (r *reply) callID(dst []byte, prefix string, i int) []byte {
	dst = append(append(append(dst, prefix...), r.id...), '_')
	return strconv.AppendInt(dst, int64(i), 10)
}

// chatCalls is the tool_calls member of a buffered message.
func (r *reply) chatCalls(dst []byte) []byte {
	if len(r.calls) == 0 {
		return dst
	}
	dst = append(dst, `,"tool_calls":[`...)
	for i := range r.calls {
		dst = append(append(dst, comma(i)...), '{')
		dst = r.chatCall(dst, i, r.calls[i].escaped())
	}
	return append(dst, ']')
}

// chatCall is the rest of a call's object.
func (r *reply) chatCall(dst []byte, i int, arguments string) []byte {
	dst = r.callID(append(dst, `"id":"`...), "call_", i)
	dst = append(dst, `","type":"function","function":{"name":"`...)
	dst = append(dst, quoted(r.calls[i].name)...)
	dst = append(append(dst, `","arguments":"`...), arguments...)
	return append(dst, `"}}`...)
}

// chatCallChunks bring the calls of one choice: of each its name, then its arguments in parts.
func (r *reply) chatCallChunks(head []byte, choice int) (chunks []event) {
	for i := range r.calls {
		at := `"delta":{"tool_calls":[{"index":` + strconv.Itoa(i) + `,`
		chunks = append(chunks, event{data: r.chunk(head, choice, at+string(r.chatCall(nil, i, ""))+"]}", "")})
		for _, part := range r.calls[i].parts {
			chunks = append(chunks, event{data: r.chunk(head, choice, at+`"function":{"arguments":"`+part+`"}}]}`, "")})
		}
		chunks[len(chunks)-1].tokens = r.calls[i].tokens()
	}
	return chunks
}
