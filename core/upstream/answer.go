package upstream

import (
	"bytes"
	"errors"

	"github.com/weir-gateway/weir/core/llm"
)

var errNoAnswer = errors.New("it answered with what is no answer of this route")

// standing is what the JSON of an answer is, whatever its status.
type standing uint8

const (
	answers standing = iota // or may be one: servers differ in much
	refuses                 // an error, and nothing beside it
	nothing                 // certainly no answer: not a JSON object, or without any member that one has
)

// judge tells what a whole answer is or, with event, the data of a stream's first one. Nothing of an answer's content is looked
// at: what is generated may be anything.
func judge(ep llm.Endpoint, data []byte, event bool) standing {
	c := inBody(data)
	if c.peek() != '{' {
		return nothing
	}
	var known, filled, failed bool
	each(&c, func(name []byte) {
		list, proof := proves(ep, name, event)
		v := c.value()
		switch {
		case string(name) == "error":
			failed = failed || !hollow(v)
		case string(v) == `"error"` && (string(name) == "object" || string(name) == "type"):
			failed = true
		case proof:
			known = known || len(v) > 0 && v[0] != 'n'
			filled = filled || list && !hollow(v)
		}
	})
	switch {
	case c.bad || c.peek() != 0:
		return nothing
	case failed && !filled:
		return refuses
	case !known:
		return nothing
	}
	return answers
}

// proves tells a member that answers of a route have: list, what was asked for is in it; proof, its server answers such
// requests, as it tells the model or what was used. An event may have no more than what it calls itself.
func proves(ep llm.Endpoint, name []byte, event bool) (list, proof bool) {
	switch string(name) {
	case "choices":
		list = ep == llm.Chat || ep == llm.Completions
	case "data", "embedding", "embeddings":
		list = ep == llm.Embeddings
	case "output", "output_text":
		list = ep == llm.Responses
	case "content":
		list = ep == llm.Messages
	case "input_tokens":
		list = ep == llm.CountTokens
	case "model", "usage":
		return false, ep != llm.CountTokens
	case "type", "object", "id":
		return false, event
	}
	return list, list
}

// hollow tells a value that says nothing, as servers write where there is no error, or no answer.
func hollow(v []byte) bool {
	if len(v) == 0 {
		return true
	}
	switch v[0] {
	case '"', '{', '[':
		return len(bytes.TrimSpace(v[1:len(v)-1])) == 0
	}
	return v[0] == 'n' || v[0] == 'f' || string(v) == "0"
}

// opening judges a stream by the first of its events that has data, which it gives when it refuses.
func (p *Parser) opening(raw []byte) (is standing, data []byte) {
	p.Parse(firstEvent(raw), func(e *Event) {
		switch {
		case len(e.Deltas) > 0:
			return
		case e.Error:
			is = refuses
		default:
			is = judge(p.ep, e.Data, true)
		}
		if is == nothing && isPing(e.Raw) {
			is = answers
		}
		if is == refuses {
			data = bytes.Clone(e.Data)
		}
	})
	return is, data
}

// firstEvent is the first event that has data, alone.
func firstEvent(raw []byte) []byte {
	l, begin, says := walk(raw, 0), 0, false
	if bytes.HasPrefix(raw, bom) {
		l.pos, begin = len(bom), len(bom)
	}
	for {
		start, end, after, ok := l.next()
		says = says || saysData(raw[start:end])
		switch {
		case !ok:
			return raw[begin:]
		case start == end && says:
			return raw[begin:after]
		case start == end:
			begin = after
		}
	}
}

// isPing tells an event by a name that clients pass over, whatever its data.
func isPing(raw []byte) bool {
	l := walk(raw, 0)
	for {
		start, end, _, ok := l.next()
		if name, found := bytes.CutPrefix(raw[start:end], []byte("event:")); found {
			return string(bytes.TrimSpace(name)) == "ping"
		}
		if !ok {
			return false
		}
	}
}
