package upstream

import (
	"bytes"

	"github.com/weir-gateway/weir/core/llm"
)

const maxTold = 32 // kinds of tools that an answer's calls are counted by; the rest count as the last of them

// Told is what an answer says of its price beside its usage. It is valid until its parser reads on.
type Told struct {
	Tier  []byte // the service tier that served it; empty: it does not say
	Calls []Call // of tools that the provider ran
	Kept  int64  // tokens written to the provider's cache for an hour, which costs more than the usual time
}

// Call is how often an answer says a hosted tool was called.
type Call struct {
	Tool  string // as answers name it: the beginning of its type in a request
	N     int64
	final bool // the provider's own count
}

// Tell reads a whole answer.
func Tell(ep llm.Endpoint, body []byte) (t Told) {
	t.answer(ep, inBody(body))
	return t
}

// Told is what the stream has said so far.
func (p *Parser) Told() *Told { return &p.told }

// answer reads the object that a whole answer is: the last word about what parts of it have said.
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
		case string(name) == "content" && ep == llm.Messages:
			elements(&c, t.block)
		case string(name) == "output" && ep == llm.Responses:
			streamed := t.Calls
			t.Calls = nil
			if n := elements(&c, t.item); n == 0 {
				t.Calls = streamed
			}
		default:
			c.skip()
		}
	}
}

// elements visits those of an array, each with a cursor of its own.
func elements(c *cursor, visit func(cursor)) (n int) {
	if !c.enter('[') {
		return 0
	}
	for c.more(']') {
		visit(*c)
		c.skip()
		n++
	}
	return n
}

// usage reads the usage object of an Anthropic answer. The cursor is a copy: its reader goes on from where it was.
func (t *Told) usage(c cursor) {
	each(&c, func(name []byte) {
		switch string(name) {
		case "service_tier":
			t.tier(&c)
		case "cache_creation":
			each(&c, func(name []byte) {
				if n, ok := c.count(); ok && string(name) == "ephemeral_1h_input_tokens" {
					t.Kept = n
				}
			})
		case "server_tool_use":
			each(&c, func(name []byte) {
				tool, requests := bytes.CutSuffix(name, []byte("_requests"))
				if n, ok := c.count(); ok && requests {
					call := t.call(tool)
					call.N, call.final = n, true
				}
			})
		default:
			c.skip()
		}
	})
}

// each visits the members of an object, by their names without escapes; the visit takes the value.
func each(c *cursor, visit func(name []byte)) {
	for ok := c.enter('{'); ok; {
		var name []byte
		if name, ok = c.key(); ok {
			if bytes.IndexByte(name, '\\') >= 0 {
				name = Unescape(nil, name)
			}
			visit(name)
		}
	}
}

// block counts a call that an Anthropic answer shows; what its usage counts stands for it.
func (t *Told) block(c cursor) {
	var kind, name []byte
	each(&c, func(member []byte) {
		switch string(member) {
		case "type":
			kind, _ = c.str()
		case "name":
			name, _ = c.str()
		default:
			c.skip()
		}
	})
	switch string(kind) {
	case "server_tool_use":
		t.add(name)
	case "mcp_tool_use":
		t.add([]byte("mcp"))
	}
}

// item counts an output item of /v1/responses that is a call of a hosted tool. Of a web search only the searching is one, not
// the reading of what was found.
func (t *Told) item(c cursor) {
	var kind, action []byte
	each(&c, func(member []byte) {
		switch string(member) {
		case "type":
			kind, _ = c.str()
		case "action":
			each(&c, func(member []byte) {
				if string(member) == "type" {
					action, _ = c.str()
				} else {
					c.skip()
				}
			})
		default:
			c.skip()
		}
	})
	tool, called := bytes.CutSuffix(kind, []byte("_call"))
	switch string(tool) {
	case "function", "local_shell", "apply_patch", "custom_tool":
		return
	case "web_search":
		called = called && string(action) != "open_page" && string(action) != "find_in_page"
	}
	if called {
		t.add(tool)
	}
}

func (t *Told) add(tool []byte) {
	if call := t.call(tool); !call.final {
		call.N++
	}
}

// call finds the count of a tool.
func (t *Told) call(tool []byte) *Call {
	for i := range t.Calls {
		if t.Calls[i].Tool == string(tool) {
			return &t.Calls[i]
		}
	}
	if len(t.Calls) < maxTold {
		t.Calls = append(t.Calls, Call{Tool: string(tool)})
	}
	return &t.Calls[len(t.Calls)-1]
}

// tier takes the name of a tier; null says nothing, and "auto" is a wish.
func (t *Told) tier(c *cursor) {
	if v, ok := c.str(); ok && len(v) <= maxTierName && string(v) != autoTier {
		t.Tier = append(t.Tier[:0], v...)
	}
}
