package upstream

import "github.com/weir-gateway/weir/core/llm"

// anthropic reads a usage object of /v1/messages. message_delta's counts are cumulative and replace message_start's;
// what it leaves out stays. The output of a start is a placeholder.
func (t *tally) anthropic(c *cursor, start bool) (found bool) {
	if !c.enter('{') {
		return false
	}
	n, split := blank(), llm.Tokens(0)
	t.disjoint, n.disjoint = true, true
	for {
		name, ok := c.key()
		if !ok {
			break
		}
		switch string(name) {
		case "input_tokens":
			set(&n.input, c)
		case "cache_read_input_tokens":
			set(&n.read, c)
		case "cache_creation_input_tokens":
			set(&n.written, c)
		case "cache_creation": // the same by how long it is kept
			split = 0
			each(c, func([]byte) {
				n := llm.Tokens(0)
				set(&n, c)
				split = min(split+n, mostTokens)
			})
		case "output_tokens":
			set(&n.output, c)
		default:
			c.skip()
		}
	}
	if split > 0 {
		n.written = max(n.written, split)
	}
	if was := *t; t.take(n) && start {
		t.sawOutput, t.stale = was.sawOutput, was.stale
	}
	return !c.bad && t.usage().Total() > 0
}

// readMessages reads one event of /v1/messages.
func (p *Parser) readMessages(c *cursor) {
	if !c.enter('{') {
		return
	}
	var kind []byte
	for {
		name, ok := c.key()
		if !ok {
			break
		}
		switch string(name) {
		case "type":
			kind, _ = c.str()
		case "message":
			p.messageStart(c)
		case "usage":
			p.told.usage(*c)
			p.ev.HasUsage = p.tally.anthropic(c, false) || p.ev.HasUsage
		case "content_block":
			p.told.block(*c)
			p.block(c)
		case "delta":
			p.block(c)
		default:
			p.other(name, c)
		}
	}
	switch string(kind) {
	case "message_stop":
		p.ev.Terminal = true
	case "error":
		p.ev.Error = true
	}
}

func (p *Parser) messageStart(c *cursor) {
	if !c.enter('{') {
		return
	}
	for {
		name, ok := c.key()
		if !ok {
			return
		}
		switch string(name) {
		case "usage":
			p.told.usage(*c)
			p.ev.HasUsage = p.tally.anthropic(c, true) || p.ev.HasUsage
		case "content":
			for ok := c.enter('['); ok && c.more(']'); {
				p.block(c)
			}
		default:
			c.skip()
		}
	}
}

// block reads what a content block's start or delta adds. Signatures, citations and what a server's tool found (content)
// are not generated text.
func (p *Parser) block(c *cursor) {
	if c.peek() != '{' {
		p.content(c)
		return
	}
	c.enter('{')
	for {
		name, ok := c.key()
		if !ok {
			return
		}
		switch string(name) {
		case "text", "thinking", "partial_json", "name":
			p.content(c)
		case "input":
			p.argument(c)
		case "stop_reason":
			p.reason(c)
		case "content":
			c.skip()
		default:
			p.other(name, c)
		}
	}
}
