package upstream

import "github.com/weir-gateway/weir/core/llm"

// Told is what an answer says of its price beside its usage. It is valid until its parser reads on.
type Told struct {
	Tier []byte // the service tier that served it; empty: it does not say
}

// Tell reads a whole answer.
func Tell(ep llm.Endpoint, body []byte) (t Told) {
	t.answer(ep, cursor{b: body})
	return t
}

// Told is what the stream has said so far.
func (p *Parser) Told() *Told { return &p.told }

// answer reads the object that a whole answer is.
func (t *Told) answer(ep llm.Endpoint, c cursor) {
	if !c.enter('{') {
		return
	}
	for {
		name, ok := c.key()
		switch {
		case !ok:
			return
		case string(name) == "service_tier":
			t.tier(&c)
		case string(name) == "usage" && ep == llm.Messages:
			t.usage(c)
			c.skip()
		default:
			c.skip()
		}
	}
}

// usage reads the usage object of an Anthropic answer. The cursor is a copy: its reader goes on from where it was.
func (t *Told) usage(c cursor) {
	if !c.enter('{') {
		return
	}
	for {
		name, ok := c.key()
		if !ok {
			return
		}
		if string(name) == "service_tier" {
			t.tier(&c)
		} else {
			c.skip()
		}
	}
}

// tier takes the name of a tier; null says nothing, and "auto" is a wish.
func (t *Told) tier(c *cursor) {
	if v, ok := c.str(); ok && len(v) <= maxTierName && string(v) != autoTier {
		t.Tier = append(t.Tier[:0], v...)
	}
}
