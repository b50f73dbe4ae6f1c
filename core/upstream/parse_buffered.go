package upstream

import "github.com/weir-gateway/weir/core/llm"

// BufferedUsage extracts usage from a buffered answer. Only when it has not that of the output, texts are the spans of the
// text it generated, to be counted instead; of an answer in which no text is found, unread is how many bytes were not
// understood, as in Event. A count_tokens answer used nothing, and says so; embeddings have no output.
func BufferedUsage(ep llm.Endpoint, body []byte) (u llm.Usage, of Reported, texts []llm.Text, unread int) {
	if ep == llm.CountTokens {
		return llm.Usage{}, Reported{Input: true, Output: true}, nil, 0
	}
	var t tally
	c := inBody(body)
	for in := c.enter('{'); in; {
		name, more := c.key()
		switch {
		case !more:
			in = false
		case string(name) != "usage":
			c.skip()
		case ep == llm.Messages:
			t.anthropic(&c, false)
		default:
			t.openAI(&c)
		}
	}
	if c.bad {
		t = tally{}
	}
	if t.output == 0 {
		texts, unread = Generated(ep, body)
	}
	of = t.reported(len(texts) > 0)
	if of.Output = of.Output || ep == llm.Embeddings; of.Output {
		texts, unread = nil, 0
	}
	return t.usage(), of, texts, unread
}

// Generated finds the texts of a buffered answer, whatever usage it reports; of a broken one, those before the break.
func Generated(ep llm.Endpoint, body []byte) (found []llm.Text, unread int) {
	p := Parser{ep: ep, whole: true}
	c := inBody(body)
	known := c.peek() == '{'
	switch ep {
	case llm.Embeddings, llm.CountTokens:
		return nil, 0
	case llm.Messages:
		known = p.list(&c, "content", (*Parser).block) && known
	case llm.Responses:
		known = p.list(&c, "output", (*Parser).item) && known
	default:
		p.readChat(&c)
	}
	switch {
	case len(p.deltas)+len(p.raws) > 0 || p.ev.Error:
	case c.bad || !known:
		unread = len(body)
	default:
		unread = p.unread
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
	return texts, unread
}

// list visits the elements of the array that an object has under name; found tells that it has one.
func (p *Parser) list(c *cursor, name string, visit func(*Parser, *cursor)) (found bool) {
	if !c.enter('{') {
		return false
	}
	for {
		key, ok := c.key()
		switch {
		case !ok:
			return found
		case string(key) == name && c.peek() == '[':
			found = true
			for ok := c.enter('['); ok && c.more(']'); {
				visit(p, c)
			}
		case string(key) == "error":
			p.ev.Error = p.ev.Error || c.peek() != 'n'
			c.skip()
		default:
			c.skip()
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
			p.argument(c)
		default:
			p.other(key, c)
		}
	}
}
