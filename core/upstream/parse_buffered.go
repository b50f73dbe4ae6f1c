package upstream

import "github.com/weir-gateway/weir/core/llm"

// BufferedUsage extracts usage from a buffered answer. Only when it has none (ok is false), texts are the spans of the
// text it generated, to be counted instead. A count_tokens answer used nothing, and says so.
func BufferedUsage(ep llm.Endpoint, body []byte) (u llm.Usage, ok bool, texts []llm.Text) {
	if ep == llm.CountTokens {
		return llm.Usage{}, true, nil
	}
	var t tally
	c := cursor{b: body}
	found := false
	for in := c.enter('{'); in; {
		name, more := c.key()
		switch {
		case !more:
			in = false
		case string(name) != "usage":
			c.skip()
		case ep == llm.Messages:
			found = t.anthropic(&c, false) || found
		default:
			found = t.openAI(&c) || found
		}
	}
	if found && !c.bad {
		return t.usage(), true, nil
	}
	return llm.Usage{}, false, generated(ep, body)
}

// generated finds the texts of a buffered answer; of a broken one, those before the break.
func generated(ep llm.Endpoint, body []byte) []llm.Text {
	p := Parser{ep: ep, whole: true}
	c := cursor{b: body}
	switch ep {
	case llm.Embeddings, llm.CountTokens:
		return nil
	case llm.Messages:
		p.list(&c, "content", (*Parser).block)
	case llm.Responses:
		p.list(&c, "output", (*Parser).item)
	default:
		p.readChat(&c)
	}
	// What the cursor gives out are slices of body that keep its capacity: where they begin follows from theirs.
	texts := make([]llm.Text, 0, len(p.deltas)+len(p.raws))
	add := func(part []byte, raw bool) {
		off := cap(body) - cap(part)
		texts = append(texts, llm.Text{Span: llm.Span{Off: int32(off), End: int32(off + len(part))}, Raw: raw})
	}
	for _, d := range p.deltas {
		add(d, false)
	}
	for _, d := range p.raws {
		add(d, true)
	}
	return texts
}

// list visits the elements of the array that an object has under name.
func (p *Parser) list(c *cursor, name string, visit func(*Parser, *cursor)) {
	if !c.enter('{') {
		return
	}
	for {
		key, ok := c.key()
		if !ok {
			return
		}
		if string(key) != name {
			c.skip()
			continue
		}
		for ok := c.enter('['); ok && c.more(']'); {
			visit(p, c)
		}
	}
}

// item reads an output item of /v1/responses: a message, reasoning, or a tool call.
func (p *Parser) item(c *cursor) {
	if !c.enter('{') {
		return
	}
	for {
		key, ok := c.key()
		if !ok {
			return
		}
		switch string(key) {
		case "content", "summary":
			p.content(c)
		case "name", "arguments", "input", "code":
			p.text(c)
		default:
			c.skip()
		}
	}
}
