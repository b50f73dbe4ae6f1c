package proxy

import (
	"bytes"
	"slices"
	"strings"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/upstream"
)

// terms are what a request is paid by beside its tokens. They are fixed at admission: neither a failover nor a reload
// changes them, and what an answer says can only make the price cheaper.
type terms struct {
	list     llm.Price // the model's standard price; none where nothing is paid
	tier     string    // service tier, as the model names it; empty: the standard price
	permille uint32    // of list at the tier
	once     llm.Micro // for tools that a chat calls once for each choice
	calls    llm.Micro // held for calls of the other hosted tools, and for keeping in a cache
	most     int64     // of those calls
	open     bool      // what the answer says of its price counts
}

// agree settles on the terms, or refuses what the model has no price for. It gives the price to hold the request at.
func (c *call) agree(m *upstream.Model, who *auth.Caller) (llm.Price, error) {
	list, err := priceFor(m, who)
	if err != nil {
		return llm.Price{}, err
	}
	if c.head.Refers != "" && m.Stored != upstream.StoredAllow {
		return llm.Price{}, c.strangers(m)
	}
	if list, err = c.premiums(m, list); err != nil {
		return llm.Price{}, err
	}
	tier, permille, ok := m.Asked(c.head.ServiceTier.In(c.body))
	if !ok {
		return llm.Price{}, c.unpricedTier(m)
	}
	c.terms = terms{list: list, tier: tier, permille: permille}
	if c.endpoint() == llm.CountTokens {
		return list.Scale(permille), nil // it runs nothing, so nothing of it is charged
	}
	c.terms.open = len(m.ServiceTiers)+len(m.HostedTools) > 0
	if c.dialect == llm.Anthropic && bytes.Contains(c.body, []byte(`"1h"`)) {
		c.terms.calls = keptPrice(list.Scale(permille), c.input)
	}
	if err := c.allowTools(m); err != nil {
		return llm.Price{}, err
	}
	return c.terms.price(permille), nil
}

// price is that of a tier; calls cost the same at each.
func (t *terms) price(permille uint32) llm.Price {
	p := t.list.Scale(permille)
	p.Request = llm.AddMicro(p.Request, t.once)
	return p
}

// strangers refuses what the provider keeps: it asks for no more than an id, whosever it is, since to the provider all
// callers are one account.
func (c *call) strangers(m *upstream.Model) error {
	return llm.Invalid(c.head.Refers, "%s refers to what the provider keeps, and whose it is cannot be told; send the content itself, "+
		"or have the operator set stored: allow for model %s", c.head.Refers, m.Name)
}

// premiums multiplies the price by the factors of a speed and of a place other than the usual, of what is not text, and of
// more input than the usual.
func (c *call) premiums(m *upstream.Model, list llm.Price) (llm.Price, error) {
	for _, p := range [...]struct {
		member, usual string
		value         []byte
	}{{"speed", "standard", c.head.Speed.In(c.body)}, {"inference_geo", "global", c.head.Geo.In(c.body)}, {"modalities", "text", c.head.Modality.In(c.body)},
		{"anthropic-beta", "the usual context", longContext(c.beta())}} {
		value := p.value
		if len(value) == 0 || string(value) == p.usual {
			continue
		}
		permille, ok := m.ServiceTiers[string(value)]
		if !ok {
			return list, llm.Invalid(p.member, "model %q has no price for %s %s; it has %s. The operator can give it a factor among the model's service tiers",
				m.Name, p.member, said(value), p.usual)
		}
		list = list.Scale(permille)
	}
	return list, nil
}

// said is a string of the body as an error may say it.
func said(raw []byte) string { return llm.Quote(upstream.Unescape(nil, raw), 64) }

// beta is what the client asks Anthropic for that is not in its standard API; empty in another dialect, where it is not passed on.
// Several lines are one list.
func (c *call) beta() []byte {
	if c.dialect != llm.Anthropic {
		return nil
	}
	lines := slices.DeleteFunc(c.ctx.Request.Header.PeekAll("Anthropic-Beta"), func(line []byte) bool { return len(line) == 0 })
	switch len(lines) {
	case 0:
		return nil
	case 1:
		return lines[0]
	}
	return bytes.Join(lines, []byte{','})
}

// longContext is the name, without its date, of a beta in a list of them by which input beyond 200,000 tokens is taken, at
// another price; empty: there is none.
func longContext(betas []byte) []byte {
	const name = "context-1m"
	for beta := range bytes.SplitSeq(betas, []byte{','}) {
		if beta = bytes.TrimSpace(beta); len(beta) >= len(name) && bytes.EqualFold(beta[:len(name)], []byte(name)) {
			return []byte(name)
		}
	}
	return nil
}

func (c *call) unpricedTier(m *upstream.Model) error {
	asked, names := string(c.head.ServiceTier.In(c.body)), m.TierNames(c.dialect)
	e := llm.Invalid("service_tier", "model %q has no price for service tier %s; it has %s", m.Name, said(c.head.ServiceTier.In(c.body)), strings.Join(names, ", "))
	if near := llm.Nearest(asked, names); near != "" {
		e.Message += "; did you mean " + near + "?"
	} else {
		e.Message += "; the operator's service_tiers can give it one"
	}
	return e
}

// allowTools adds up what the hosted tools may cost at most, or refuses one that has no price.
func (c *call) allowTools(m *upstream.Model) error {
	t, shared := &c.terms, llm.Micro(0)
	for i := range c.head.Hosted {
		h := &c.head.Hosted[i]
		price, ok := m.HostedPrice(h.Type.In(c.body))
		if !ok || c.endpoint() == llm.Chat && h.Open != 0 {
			return c.unpricedTool(m, h)
		}
		most := m.ToolCalls()
		switch c.endpoint() {
		case llm.Responses:
			shared = max(shared, price) // one cap for all of them
		case llm.Messages:
			if h.Uses > 0 {
				most = h.Uses
			}
			t.most += most
			t.calls = llm.AddMicro(t.calls, price.Times(most))
		default:
			t.once = llm.AddMicro(t.once, price.Times(int64(c.head.Choices)))
		}
	}
	if c.endpoint() == llm.Responses && len(c.head.Hosted) > 0 {
		if t.most = c.head.ToolCap; t.most < 0 {
			t.most = m.ToolCalls()
		}
		t.calls = shared.Times(t.most)
	}
	return nil
}

func (c *call) unpricedTool(m *upstream.Model, h *llm.Hosted) error {
	kind := string(h.Type.In(c.body))
	e := llm.Invalid("tools", "tool %s is run by the provider, which charges for it beside the tokens", said(h.Type.In(c.body)))
	if h.Open == 0 {
		e.Param = map[bool]string{true: "web_search_options", false: "mcp_servers"}[c.endpoint() == llm.Chat]
	}
	switch names := m.HostedNames(); {
	case upstream.Uncountable(kind):
		e.Message += ", and not by the call, so it is never allowed"
	case c.endpoint() == llm.Chat && h.Open != 0:
		e.Message += ", and a chat does not tell how often; use /v1/responses"
	case len(names) == 0:
		e.Message += "; model " + m.Name + " allows none (the operator's hosted_tools)"
	default:
		e.Message += "; of those model " + m.Name + " allows " + strings.Join(names, ", ") + " (the operator's hosted_tools)"
	}
	e.Message += ". Tools of your own (function, custom) are always allowed"
	return e
}

// heed tells the hold what the answer says of its price. A provider may serve a request at a cheaper tier than it asked for;
// a dearer one is the provider's own affair. Calls are charged as often as they are told.
func (c *call) heed(res limit.Reservation, told *upstream.Told) {
	t := &c.terms
	tier, permille := t.tier, t.permille
	if len(told.Tier) > 0 {
		if served, factor, ok := c.model.Tier(told.Tier); ok && factor <= permille {
			tier, permille = served, factor
		}
	}
	calls := llm.Micro(0)
	for i := range told.Calls {
		call := &told.Calls[i]
		calls = llm.AddMicro(calls, c.callPrice(call.Tool).Times(min(call.N, int64(farOff)*max(t.most, 1))))
	}
	price := t.price(permille)
	if kept := llm.Tokens(told.Kept); kept <= max(disbelieved, farOff*c.input) {
		calls = llm.AddMicro(calls, keptPrice(price, kept))
	}
	res.Priced(price.Scale(c.outcome.price), tier, c.multiplied(calls))
}

// keptPrice is what it costs to keep tokens in Anthropic's cache for an hour, beyond what writing them costs by the price: such a
// write is twice the input.
func keptPrice(p llm.Price, kept llm.Tokens) llm.Micro {
	more := max(llm.AddMicro(p.Input, p.Input)-p.CacheWrite, 0)
	return llm.Price{Input: more}.Cost(llm.Usage{InputTokens: kept})
}

// multiplied is an amount by the decision's price multiplier.
func (c *call) multiplied(m llm.Micro) llm.Micro {
	return llm.Price{Request: m}.Scale(c.outcome.price).Request
}

// callPrice is the price of a call by the name that answers have for its tool. One that none of the request's tools explains
// costs as much as the dearest of them, or by its name where the request has none: a prompt that the provider keeps may have.
func (c *call) callPrice(tool string) (price llm.Micro) {
	for i := range c.head.Hosted {
		kind := c.head.Hosted[i].Type.In(c.body)
		p, _ := c.model.HostedPrice(kind)
		if bytes.HasPrefix(kind, []byte(tool)) {
			return p
		}
		price = max(price, p)
	}
	if len(c.head.Hosted) == 0 {
		price, _ = c.model.HostedPrice([]byte(tool))
	}
	return price
}
