package llm

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestHostedToolsAreFound(t *testing.T) {
	for _, x := range []struct {
		ep         Endpoint
		more, want string // type/max_uses of each
	}{
		{Responses, `"tools":[]`, ``},
		{Responses, `"tools":null`, ``},
		{Responses, `"tools":[{"type":"function","name":"web_search","parameters":{"type":"object","properties":{"type":{"type":"web_search"}}}}]`, ``},
		{Responses, `"tools":[{"name":"f"},{"type":null},{"type":"custom"},{"type":"local_shell"},{"type":"apply_patch"}]`, ``},
		{Responses, `"tools":[{"type":"web_search"},{"type":"function"},{"max_uses":3,"type":"mcp"}]`, `web_search/-1 mcp/3`},
		{Responses, `"tools":["web_search",3,{"type":""}]`, `/-1 /-1 /-1`},
		{Responses, `"tools":[{"type":"func\u0074ion"}]`, `func\u0074ion/-1`},
		{Chat, `"web_search_options":{}`, `web_search/-1`},
		{Chat, `"web_search_options":null,"functions":[{"name":"f"}],"mcp_servers":[{}]`, ``},
		{Responses, `"web_search_options":{}`, ``},
		{Messages, `"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":5}]`, `web_search_20250305/5`},
		{Messages, `"tools":[{"type":"bash_20250124"},{"type":"memory_20250818"},{"type":"custom"},{"name":"f"}]`, ``},
		{Messages, `"tools":[{"type":"bash_x"},{"type":"function"}]`, `bash_x/-1 function/-1`},
		{Messages, `"mcp_servers": [ ] `, ``},
		{Messages, `"mcp_servers":[{"url":"u"}]`, `mcp/-1`},
	} {
		body := []byte(`{"model":"m",` + x.more + `,"input":"x","messages":[{"role":"user","content":"x"}]}`)
		h := Head{Hosted: make([]Hosted, 3)}
		if err := ScanHead(x.ep, body, &h); err != nil {
			t.Errorf("%s: %v", x.more, err)
		}
		var got []string
		for _, tool := range h.Hosted {
			got = append(got, fmt.Sprintf("%s/%d", tool.Type.In(body), tool.Uses))
		}
		if strings.Join(got, " ") != x.want {
			t.Errorf("%s: %q, want %q", x.more, got, x.want)
		}
	}
}

func TestToolCaps(t *testing.T) {
	for more, want := range map[string]int64{``: -1, `,"max_tool_calls":null`: -1, `,"max_tool_calls":3`: 3} {
		var h Head
		if err := ScanHead(Responses, []byte(`{"model":"m","input":"x"`+more+`}`), &h); err != nil || h.ToolCap != want || h.NullToolCap.Empty() == strings.Contains(more, "null") {
			t.Errorf("%q: %d, %v, %v", more, h.ToolCap, h.NullToolCap, err)
		}
	}
	for more, param := range map[string]string{
		`"max_tool_calls":0`: "max_tool_calls", `"max_tool_calls":"3"`: "max_tool_calls", `"max_tool_calls":1,"max_tool_calls":2`: "max_tool_calls",
		`"Max_Tool_Calls":1`: "max_tool_calls", `"tools":[{"type":"mcp","max_uses":1e9}]`: "tools.max_uses", `"tools":[{"type":7}]`: "tools.type",
		`"tools":[{"type":"function","type":"mcp"}]`: "tools.type", `"tools":[{"ty\u0070e":"mcp"}]`: "tools.type",
		`"tools":[` + strings.Repeat(`{"type":"mcp"},`, MaxHosted) + `{"type":"mcp"}]`: "tools",
	} {
		var h Head
		var e *Error
		if err := ScanHead(Responses, []byte(`{"model":"m","input":"x",`+more+`}`), &h); !errors.As(err, &e) || e.Param != param {
			t.Errorf("%.60s: %v", more, err)
		}
	}
}
