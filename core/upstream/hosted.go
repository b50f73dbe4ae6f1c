package upstream

import (
	"maps"
	"slices"
	"strings"

	"github.com/weir-gateway/weir/core/llm"
)

const (
	maxHostedTools   = 32 // of one model
	defaultToolCalls = 10
)

// uncountable are hosted tools that providers charge by something that no number of calls tells: containers by size and time,
// pictures by size and quality. They cannot be given a price.
var uncountable = [...]string{"code_interpreter", "code_execution", "shell", "image_generation"}

// HostedPrice is what one call of a tool costs that the provider runs, by its type in a request, such as
// web_search_20250305: the price of the longest name in HostedTools that the type begins with. False: it has none.
func (m *Model) HostedPrice(kind []byte) (price llm.Micro, ok bool) {
	longest := 0
	for name, p := range m.HostedTools {
		if len(name) > longest && begins(string(kind), name) {
			price, ok, longest = p, true, len(name)
		}
	}
	return price, ok && !Uncountable(string(kind))
}

// ToolCalls is how many calls of hosted tools a request may make that does not say.
func (m *Model) ToolCalls() int64 {
	if m.MaxToolCalls > 0 {
		return m.MaxToolCalls
	}
	return defaultToolCalls
}

// HostedNames lists the tools that have a price.
func (m *Model) HostedNames() []string { return slices.Sorted(maps.Keys(m.HostedTools)) }

// Uncountable tells that a tool cannot have a price by the call.
func Uncountable(kind string) bool {
	return slices.ContainsFunc(uncountable[:], func(name string) bool { return begins(kind, name) })
}

// begins tells that a type is a name, or the name and a version or variant.
func begins(kind, name string) bool {
	rest, ok := strings.CutPrefix(kind, name)
	return ok && (rest == "" || rest[0] == '_')
}

func (m *Model) checkHosted() error {
	if len(m.HostedTools) > maxHostedTools {
		return llm.Invalid("hosted_tools", "model %q: %d hosted tools; at most %d", m.Name, len(m.HostedTools), maxHostedTools)
	}
	if m.MaxToolCalls < 0 || m.MaxToolCalls > llm.MaxOutputCap {
		return llm.Invalid("max_tool_calls", "model %q: max_tool_calls %d; expected 1 to %d, or 0 for %d", m.Name, m.MaxToolCalls, llm.MaxOutputCap, defaultToolCalls)
	}
	for _, name := range m.HostedNames() {
		switch price := m.HostedTools[name]; {
		case !plainWord(name):
			return llm.Invalid("hosted_tools", "model %q: hosted tool %.80q; expected the type of a tool, such as web_search", m.Name, name)
		case Uncountable(name):
			return llm.Invalid("hosted_tools", "model %q: hosted tool %s is not charged by the call (containers by size and time, pictures by size), so it can have no price here and stays refused", m.Name, name)
		case price < 0 || price > llm.MaxPrice:
			return llm.Invalid("hosted_tools", "model %q: hosted tool %s: the price of a call is from 0 to %s, not %s", m.Name, name, llm.MaxPrice, price)
		}
	}
	return nil
}
