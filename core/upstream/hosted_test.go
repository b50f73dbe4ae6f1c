package upstream

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

func TestHostedPriceIsOfTheLongestName(t *testing.T) {
	m := Model{Name: "m", HostedTools: map[string]llm.Micro{"web_search": 1, "web_search_preview": 2, "code": 3}}
	for kind, want := range map[string]llm.Micro{"web_search": 1, "web_search_20250305": 1, "web_search_preview": 2, "web_search_preview_2025_03_11": 2,
		"web_searching": -1, "web": -1, "": -1, "code_interpreter": -1, "code_execution_20250825": -1} {
		if p, ok := m.HostedPrice([]byte(kind)); ok != (want >= 0) || ok && p != want {
			t.Errorf("%q costs %d, %v", kind, p, ok)
		}
	}
	for says, tools := range map[string]map[string]llm.Micro{"not charged by the call": {"code_interpreter": 1}, "web_search": {"Web Search": 1},
		"from 0": {"mcp": -1}, "so it can have no price": {"image_generation": 0}} {
		if _, err := NewCatalog([]Model{{Name: "m", HostedTools: tools}}, nil); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v", tools, err)
		}
	}
	if _, err := NewCatalog([]Model{{Name: "m", MaxToolCalls: -1}}, nil); err == nil {
		t.Error("a negative cap passes")
	}
}

// What a stream tells of calls is what the whole answer tells.
func TestToldCalls(t *testing.T) {
	const search, page = `{"type":"web_search_call","action":{"type":"search","sources":[{"type":"open_page"}]}}`, `{"action":{"type":"open_page"},"type":"web_search_call"}`
	done := func(items ...string) (events []string) {
		for _, item := range items {
			events = append(events, `{"type":"response.output_item.added","item":`+item+`}`, `{"type":"response.output_item.done","item":`+item+`}`)
		}
		return events
	}
	use := func(name string) string {
		return `{"type":"content_block_start","content_block":{"type":"server_tool_use","name":"` + name + `","input":{"type":"x"}}}`
	}
	for _, x := range []struct {
		ep          llm.Endpoint
		whole, want string
		events      []string
	}{
		{llm.Responses, `{"output":[` + search + `,` + page + `,{"type":"mcp_call"},{"type":"function_call"},{"type":"custom_tool_call"},{"type":"mcp_list_tools"},` + search + `]}`,
			"web_search=2 mcp=1", done(search, page, `{"type":"mcp_call"}`, `{"type":"function_call"}`, search)},
		{llm.Responses, `{"output":[` + search + `]}`, "web_search=1",
			append(done(search, search), `{"type":"response.completed","response":{"output":[`+search+`]}}`)},
		{llm.Responses, `{"output":[` + search + `]}`, "web_search=1",
			append(done(search), `{"type":"response.incomplete","response":{"output":[]}}`)},
		{llm.Messages, `{"content":[{"type":"server_tool_use","name":"web_search"}],"usage":{"server_tool_use":{"web_search_requests":2,"web_fetch_requests":0}}}`,
			"web_search=2 web_fetch=0", []string{use("web_search"), `{"type":"message_delta","usage":{"server_tool_use":{"web_search_requests":2,"web_fetch_requests":0}}}`, use("web_search")}},
		{llm.Messages, `{"usage":{"server_tool_use":null},"content":[{"type":"server_tool_use","name":"web_fetch"},{"type":"mcp_tool_use","name":"x"},{"type":"tool_use","name":"f"}]}`,
			"web_fetch=1 mcp=1", []string{use("web_fetch"), `{"type":"content_block_start","content_block":{"type":"mcp_tool_use","name":"x"}}`,
				`{"type":"content_block_start","content_block":{"type":"tool_use","name":"f"}}`}},
		{llm.Chat, `{"choices":[{"message":{"tool_calls":[{"type":"web_search_call"}]}}]}`, "", []string{`{"choices":[{"delta":{"content":"x"}}]}`}},
	} {
		if got := calls(Tell(x.ep, []byte(x.whole))); got != x.want {
			t.Errorf("%s tells %q", x.whole, got)
		}
		p := NewParser(x.ep)
		p.Parse([]byte("data: "+strings.Join(x.events, "\n\ndata: ")+"\n\n"), func(*Event) {})
		if got := calls(*p.Told()); got != x.want {
			t.Errorf("%s tell %q", x.events, got)
		}
		if p.Reset(x.ep); len(p.Told().Calls) > 0 {
			t.Error("a reset parser remembers")
		}
	}
}

func calls(t Told) string {
	var all []string
	for _, c := range t.Calls {
		all = append(all, fmt.Sprintf("%s=%d", c.Tool, c.N))
	}
	return strings.Join(all, " ")
}
