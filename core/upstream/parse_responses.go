package upstream

import "bytes"

// heard is how much text has come, in bytes as on the wire: what counts, and what each view has shown of it.
type heard struct {
	counted int
	views   [views]int
}

// The views of what was generated: each shows again, in its own grain, what deltas have said. The last is one event whole.
const (
	viewText  = iota // response.output_text.done and its relatives
	viewPart         // response.content_part.done
	viewAdded        // response.content_part.added
	viewItem         // response.output_item.done
	views
)

// said is what an event of /v1/responses has. Its members may come in any order, so they are found first.
type said struct{ kind, delta, text, part, item, response []byte }

// readResponses reads one event of /v1/responses.
func (p *Parser) readResponses(c *cursor) {
	if p.ev.Terminal = c.done(); p.ev.Terminal {
		return
	}
	if !c.enter('{') {
		return
	}
	var s said
	for {
		name, ok := c.key()
		if !ok {
			break
		}
		switch string(name) {
		case "type":
			s.kind, _ = c.str()
		case "delta":
			s.delta = c.value()
		case "response":
			s.response = c.value()
		case "item":
			s.item = c.value()
		case "part":
			s.part = c.value()
		case "text", "refusal", "arguments", "input", "code", "transcript":
			s.text = c.value()
		case "name": // of a function, which its item has said
			c.skip()
		case "error":
			p.ev.Error = c.peek() != 'n'
			c.skip()
		default:
			p.other(name, c)
		}
	}
	p.responsesEvent(c, &s)
}

func (p *Parser) responsesEvent(c *cursor, s *said) {
	p.usageIn(c, s.response)
	switch string(s.kind) {
	case "response.completed", "response.incomplete", "response.failed":
		p.ev.Terminal, p.ev.Error = true, string(s.kind) == "response.failed"
		p.told.answer(p.ep, cursor{b: s.response})
		if !p.ev.HasUsage {
			p.shown(c, s)
		}
	case "error":
		p.ev.Error = true
	case "ping", "keepalive":
		p.unread = 0
	case "response.output_item.added":
		p.finishes = 0
		in := cursor{b: s.item}
		p.call(&in)
		c.bad = c.bad || in.bad
	case "response.output_item.done":
		p.told.item(cursor{b: s.item})
		p.shown(c, s)
	case "response.audio.delta", "response.output_audio.delta", "response.image_generation_call.partial_image": // sound and pictures, not text
		p.unread = 0
	default:
		switch {
		case len(s.delta) > 0 && bytes.HasSuffix(s.kind, []byte(".delta")):
			in := cursor{b: s.delta}
			p.content(&in)
			c.bad = c.bad || in.bad
		case bytes.HasPrefix(s.kind, []byte("response.")):
			p.shown(c, s)
		default:
			p.unread += len(s.delta) + len(s.text) + len(s.part) + len(s.item) + len(s.response)
		}
	}
}

// shown reads an event that is no delta. Of a server that sends deltas it only repeats them.
func (p *Parser) shown(c *cursor, s *said) {
	p.again = true
	if bytes.HasSuffix(s.kind, []byte(".done")) && !bytes.HasPrefix(s.kind, []byte("response.reasoning")) {
		p.finishes = 1 // it is the last item until another is added
	}
	v, part, whole := &p.heard.views, viewPart, 0
	if bytes.HasSuffix(s.kind, []byte(".added")) {
		part = viewAdded
	}
	p.view(c, s.text, &v[viewText], (*Parser).argument)
	p.view(c, s.part, &v[part], (*Parser).content)
	p.view(c, s.item, &v[viewItem], (*Parser).item)
	p.view(c, s.response, &whole, (*Parser).output)
}

func (p *Parser) output(c *cursor) { p.list(c, "output", (*Parser).item) }

// view reads the texts of one member and takes as new what its view has by now shown beyond all that has counted: the last
// of them. Nothing else in it is taken for text.
func (p *Parser) view(c *cursor, json []byte, seen *int, read func(*Parser, *cursor)) {
	if len(json) == 0 {
		return
	}
	in, from, unread, size := cursor{b: json}, len(p.deltas), p.unread, 0
	read(p, &in)
	p.unread, c.bad = unread, c.bad || in.bad
	for _, d := range p.deltas[from:] {
		size += len(d)
	}
	*seen += size
	fresh := max(*seen-p.heard.counted, 0)
	p.heard.counted += fresh
	old, kept := size-fresh, from
	for _, d := range p.deltas[from:] {
		n := min(old, len(d))
		if old -= n; n < len(d) {
			p.deltas[kept] = d[n:]
			kept++
		}
	}
	p.deltas = p.deltas[:kept]
}

// usageIn reads the usage member of a response object.
func (p *Parser) usageIn(c *cursor, response []byte) {
	in := cursor{b: response}
	if !in.enter('{') {
		return
	}
	for {
		name, ok := in.key()
		if !ok {
			break
		}
		if string(name) != "usage" {
			in.skip()
			continue
		}
		p.ev.HasUsage = p.tally.openAI(&in) || p.ev.HasUsage
	}
	c.bad = c.bad || in.bad
}
