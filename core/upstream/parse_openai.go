package upstream

import "github.com/weir-gateway/weir/core/llm"

// tally merges the usage that a stream reports over several events.
type tally struct {
	input     llm.Tokens
	read      llm.Tokens // from the provider's cache
	written   llm.Tokens // to it
	output    llm.Tokens
	disjoint  bool // Anthropic: input leaves read and written out
	sawInput  bool
	sawOutput bool // but for Anthropic's message_start, which has a placeholder for it
	stale     bool // text came after the output
}

func (t *tally) usage() llm.Usage {
	u := llm.Usage{InputTokens: t.input, CachedInputTokens: t.read, CacheWriteTokens: t.written, OutputTokens: t.output}
	if t.disjoint {
		u.InputTokens += t.read + t.written
		return u
	}
	u.CachedInputTokens = min(u.CachedInputTokens, u.InputTokens)
	u.CacheWriteTokens = min(u.CacheWriteTokens, u.InputTokens-u.CachedInputTokens)
	return u
}

// reported tells which halves were. No request has no input, and an answer that spoke has output.
func (t *tally) reported(spoke bool) Reported {
	return Reported{Input: t.sawInput && t.usage().InputTokens > 0, Output: t.sawOutput && (t.output > 0 || !spoke)}
}

// blank is a report before it is read: what it leaves out stays negative.
func blank() tally { return tally{input: -1, read: -1, written: -1, output: -1} }

// take replaces what n reports, and tells whether that is the output: some servers repeat usage, growing, with each chunk,
// and correct it in the end. What n leaves out stays; so does what it has as zero where more is known, for that is what
// servers write that do not know.
func (t *tally) take(n tally) (output bool) {
	if max(n.input, n.read, n.written) > 0 {
		if n.input > 0 || n.input == 0 && n.disjoint {
			t.input, t.sawInput = n.input, true
		}
		if n.read >= 0 {
			t.read = n.read
		}
		if n.written >= 0 {
			t.written = n.written
		}
	}
	if output = n.output > 0 || n.output == 0 && (t.output == 0 || !t.sawOutput); output {
		t.output, t.sawOutput, t.stale = n.output, true, false
	}
	return output
}

// openAI reads a usage object of chat, completions, embeddings (prompt_tokens ...) or responses (input_tokens ...). One that
// counts nothing at all reports nothing. found: it has the output, or a total to infer it from.
func (t *tally) openAI(c *cursor) (found bool) {
	if !c.enter('{') {
		return false
	}
	n := blank()
	total, reasoning := llm.Tokens(-1), llm.Tokens(0)
	for {
		name, ok := c.key()
		if !ok {
			break
		}
		switch string(name) {
		case "prompt_tokens", "input_tokens":
			set(&n.input, c)
		case "completion_tokens", "output_tokens":
			set(&n.output, c)
		case "total_tokens":
			set(&total, c)
		case "prompt_tokens_details", "input_tokens_details":
			n.details(c)
		case "completion_tokens_details", "output_tokens_details":
			each(c, func(name []byte) {
				if string(name) == "reasoning_tokens" {
					set(&reasoning, c)
				} else {
					c.skip()
				}
			})
		case "prompt_cache_hit_tokens":
			set(&n.read, c)
		default:
			c.skip()
		}
	}
	n.withReasoning(total, reasoning)
	if c.bad || max(n.input, 0)+max(n.output, 0) == 0 {
		return false
	}
	return t.take(n)
}

// withReasoning makes reasoning a part of the output, which it is with OpenAI. Others count it beside the output, and some
// only in the total; what is more than the output cannot be a part of it. A total says nothing where the cached input stands
// beside the input, as that is in it, too.
func (t *tally) withReasoning(total, reasoning llm.Tokens) {
	beside := max(t.read, 0)+max(t.written, 0) > t.input
	switch {
	case t.input > 0 && !beside && total >= t.input+max(t.output, 0):
		t.output = total - t.input
	case t.output >= 0 && reasoning > t.output:
		t.output += reasoning
	}
}

func (t *tally) details(c *cursor) {
	each(c, func(name []byte) {
		switch string(name) {
		case "cached_tokens":
			set(&t.read, c)
		case "cache_write_tokens", "cache_creation_tokens":
			set(&t.written, c)
		default:
			c.skip()
		}
	})
}

func set(field *llm.Tokens, c *cursor) bool {
	n, ok := c.count()
	if ok {
		*field = llm.Tokens(n)
	}
	return ok
}

// readChat reads one chunk of /v1/chat/completions or /v1/completions.
func (p *Parser) readChat(c *cursor) {
	if p.ev.Terminal = c.done(); p.ev.Terminal {
		return
	}
	choices, reports := 0, false
	if !c.enter('{') {
		return
	}
	for {
		from := c.i
		name, ok := c.key()
		if !ok {
			break
		}
		switch string(name) {
		case "choices":
			choices += p.chatChoices(c)
		case "usage":
			kind := c.peek()
			reports = kind == '{'
			p.ev.HasUsage = p.tally.openAI(c) || p.ev.HasUsage
			if kind == 'n' {
				p.ev.Null = c.member(from)
			}
		case "error":
			p.ev.Error = c.peek() != 'n'
			c.skip()
		case "service_tier":
			p.told.tier(c)
		default:
			p.other(name, c)
		}
	}
	p.ev.Empty = reports && choices == 0 && !p.ev.Error
}

func (p *Parser) chatChoices(c *cursor) (n int) {
	if c.peek() != '[' {
		p.other(nil, c)
		return 0
	}
	c.enter('[')
	for c.more(']') {
		n++
		p.chatChoice(c)
	}
	return n
}

func (p *Parser) chatChoice(c *cursor) {
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
		case "delta", "message":
			p.message(c)
		case "text":
			p.content(c)
		case "finish_reason":
			p.reason(c)
		case "usage": // where some servers put it
			p.ev.HasUsage = p.tally.openAI(c) || p.ev.HasUsage
		default:
			p.other(name, c)
		}
	}
}

// reason is null until a choice is complete.
func (p *Parser) reason(c *cursor) {
	if why, ok := c.str(); ok && len(why) > 0 {
		p.finishes++
	}
}

// message reads what a chat delta adds, or a whole message.
func (p *Parser) message(c *cursor) {
	if c.peek() != '{' {
		p.content(c)
		return
	}
	c.enter('{')
	reasoned := false // all its names have the same text
	for {
		name, ok := c.key()
		if !ok {
			return
		}
		switch string(name) {
		case "content", "refusal":
			p.content(c)
		case "reasoning_content", "reasoning", "reasoning_details", "reasoning_text", "thinking", "thinking_blocks":
			if reasoned {
				c.skip()
				continue
			}
			had := len(p.deltas)
			p.content(c)
			reasoned = len(p.deltas) > had
		case "tool_calls":
			for ok := c.enter('['); ok && c.more(']'); {
				p.toolCall(c)
			}
		case "function_call", "audio":
			p.call(c)
		default:
			p.other(name, c)
		}
	}
}

// toolCall reads {"function":{"name","arguments"}}.
func (p *Parser) toolCall(c *cursor) {
	if !c.enter('{') {
		return
	}
	for {
		name, ok := c.key()
		if !ok {
			return
		}
		switch string(name) {
		case "function", "custom":
			p.call(c)
		default:
			p.other(name, c)
		}
	}
}

// call reads {"name","arguments"} and its relatives.
func (p *Parser) call(c *cursor) {
	if !c.enter('{') {
		return
	}
	for {
		name, ok := c.key()
		if !ok {
			return
		}
		switch string(name) {
		case "name", "arguments", "input", "transcript":
			p.argument(c)
		default:
			p.other(name, c)
		}
	}
}

// argument is a string, or JSON that is not wrapped in one.
func (p *Parser) argument(c *cursor) {
	if b := c.peek(); b != '{' && b != '[' {
		p.text(c)
		return
	}
	v := c.value()
	switch {
	case len(v) <= len("{}"):
	case p.whole:
		p.raws = append(p.raws, v)
	default:
		p.delta(v)
	}
}

// maxNested bounds content in content; deeper, it is taken as it stands.
const maxNested = 32

// content is a string, a part, or an array of either, in which a part may have content of its own.
func (p *Parser) content(c *cursor) {
	b := c.peek()
	if b != '[' && b != '{' {
		p.text(c)
		return
	}
	if p.depth == maxNested {
		p.delta(c.value())
		return
	}
	p.depth++
	if b == '{' {
		p.part(c)
	} else {
		for ok := c.enter('['); ok && c.more(']'); {
			p.content(c)
		}
	}
	p.depth--
}

// part reads a part of a message, in either dialect: whatever of its members is text.
func (p *Parser) part(c *cursor) {
	if !c.enter('{') {
		return
	}
	for {
		name, ok := c.key()
		if !ok {
			return
		}
		switch string(name) {
		case "text", "refusal", "thinking", "transcript", "content", "reasoning", "summary":
			p.content(c)
		default:
			p.other(name, c)
		}
	}
}

func (p *Parser) text(c *cursor) {
	if text, ok := c.str(); ok {
		p.delta(text)
	}
}
