package sim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/sim"
)

// parameters is a schema with one of each.
const parameters = `{"type":"object","properties":{"city":{"type":"string"},"unit":{"enum":["C","F"]},"days":{"type":"integer"},
	"share":{"type":["number","null"]},"now":{"type":"boolean"},"tags":{"type":"array","items":{"const":"wet"}},
	"at":{"anyOf":[{"type":"object","properties":{"x":{"type":"null"}}},{"type":"string"}]},"any":{}}}`

// arguments is the value that fits it.
const arguments = `{"city":"still \"water\" at the Möhne weir","unit":"C","days":7,"share":1.5,"now":true,"tags":["wet"],"at":{"x":null},"any":"still \"water\" at the Möhne weir"}`

// offers are the tools and the demand for one, in the shape of each route.
var offers = map[string]string{
	"/v1/chat/completions": `,"tools":[{"type":"function","function":{"name":"first"}},{"type":"function","function":{"name":"weather","parameters":` + parameters + `}}],
		"tool_choice":{"type":"function","function":{"name":"weather"}}`,
	"/v1/responses": `,"tools":[{"type":"function","name":"first"},{"type":"function","name":"weather","parameters":` + parameters + `}],
		"tool_choice":{"type":"function","name":"weather"}`,
	"/v1/messages": `,"tools":[{"name":"first"},{"name":"weather","input_schema":` + parameters + `}],"tool_choice":{"type":"tool","name":"weather"}`,
}

var bodies = map[string]string{"/v1/chat/completions": chat, "/v1/responses": response, "/v1/messages": message}

func TestToolCalls(t *testing.T) {
	u := start(t, sim.Options{})
	for path, expected := range map[string]map[string]any{
		"/v1/chat/completions": {"choices/0/message/content": nil, "choices/0/finish_reason": "tool_calls",
			"choices/0/message/tool_calls/0/function/name": "weather", "choices/0/message/tool_calls/0/function/arguments": arguments},
		"/v1/responses": {"status": "completed", "output/0/type": "function_call", "output/0/name": "weather", "output/0/arguments": arguments},
		"/v1/messages":  {"stop_reason": "tool_use", "content/0/type": "tool_use", "content/0/name": "weather", "content/0/input/unit": "C"},
	} {
		_, answer := u.ask(path, fmt.Sprintf(bodies[path], offers[path]), "")
		for at, v := range expected {
			want(t, answer, v, steps(at)...)
		}
		auto := strings.Replace(offers[path], `"tool_choice":{`, `"tool_choice":{"type":"auto"},"ignored":{`, 1)
		if _, answer = u.ask(path, fmt.Sprintf(bodies[path], auto), ""); !strings.Contains(answer, "The river") {
			t.Errorf("%s: nobody demanded a call: %s", path, answer)
		}
		if _, answer = u.ask(path, fmt.Sprintf(bodies[path], auto), "calls=3"); strings.Count(answer, `"first"`) != 2 || strings.Count(answer, `"weather"`) != 1 {
			t.Errorf("%s: three calls: %s", path, answer)
		}
		if _, answer = u.ask(path, fmt.Sprintf(bodies[path], ""), "calls=3"); !strings.Contains(answer, "The river") {
			t.Errorf("%s: there is nothing to call: %s", path, answer)
		}
	}
}

// TestStreamedToolCalls: the parts of the arguments make the whole, and a call costs the same as in one piece.
func TestStreamedToolCalls(t *testing.T) {
	u := start(t, sim.Options{})
	for path, part := range map[string][]any{
		"/v1/chat/completions": {"choices", 0, "delta", "tool_calls", 0, "function", "arguments"},
		"/v1/responses":        {"delta"},
		"/v1/messages":         {"delta", "partial_json"},
	} {
		before := u.Stats().OutputTokens
		u.ask(path, fmt.Sprintf(bodies[path], offers[path]), "calls=2")
		whole := u.Stats().OutputTokens - before
		_, events, err := u.stream(path, strings.Replace(bodies[path], "%s", offers[path]+"%s", 1), "calls=2")
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, e := range events {
			if json.Valid([]byte(e)) && !(strings.Contains(e, `"choices"`) && !strings.Contains(e, `"tool_calls":[`)) {
				if s, ok := dig(t, e, part...).(string); ok {
					got += s
				}
			}
		}
		if got != arguments+arguments {
			t.Errorf("%s: the parts make %s", path, got)
		}
		if n := u.Stats().OutputTokens - before - whole; n != whole || n != 2*int64((len(arguments)+3)/4) {
			t.Errorf("%s: %d tokens streamed, %d buffered", path, n, whole)
		}
	}
}

func TestTextThatFitsASchema(t *testing.T) {
	u := start(t, sim.Options{})
	for path, c := range map[string][2]string{
		"/v1/chat/completions": {`,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":` + parameters + `}}`, "choices/0/message/content"},
		"/v1/responses":        {`,"text":{"format":{"type":"json_schema","name":"n","schema":` + parameters + `}}`, "output/0/content/0/text"},
		"/v1/messages":         {`,"output_config":{"format":{"type":"json_schema","schema":` + parameters + `}}`, "content/0/text"},
	} {
		_, answer := u.ask(path, fmt.Sprintf(bodies[path], c[0]), "nocap")
		want(t, answer, arguments, steps(c[1])...)
	}
	_, answer := u.ask("/v1/chat/completions", fmt.Sprintf(chat, `,"response_format":{"type":"json_object"}`), "")
	want(t, answer, "{}", "choices", 0, "message", "content")
}

func TestThinking(t *testing.T) {
	u := start(t, sim.Options{})
	_, answer := u.ask("/v1/messages", fmt.Sprintf(message, ""), "thinking=2,out=1")
	want(t, answer, "The river", "content", 0, "thinking")
	want(t, answer, "The", "content", 1, "text")
	want(t, answer, 3, "usage", "output_tokens")
	_, answer = u.ask("/v1/responses", fmt.Sprintf(response, ""), "thinking=2,out=1")
	want(t, answer, "The river", "output", 0, "summary", 0, "text")
	want(t, answer, 2, "usage", "output_tokens_details", "reasoning_tokens")
	_, answer = u.ask("/v1/chat/completions", fmt.Sprintf(chat, `,"n":2`), "thinking=2,out=1")
	want(t, answer, 4, "usage", "completion_tokens_details", "reasoning_tokens")
	want(t, answer, 6, "usage", "completion_tokens")

	names, data, err := u.stream("/v1/messages", message, "thinking=2,out=1")
	expected := "message_start content_block_start content_block_delta content_block_delta content_block_delta content_block_stop " +
		"content_block_start ping content_block_delta content_block_stop message_delta message_stop"
	if got := strings.Join(names, " "); err != nil || got != expected {
		t.Fatalf("%v: %s", err, got)
	}
	want(t, data[4], "signature_delta", "delta", "type")
	want(t, data[8], 1, "index")
	names, data, err = u.stream("/v1/responses", response, "thinking=2,out=1")
	if got := strings.Join(names, " "); err != nil || !strings.Contains(got, "response.reasoning_summary_part.added response.reasoning_summary_text.delta "+
		"response.reasoning_summary_text.delta response.reasoning_summary_text.done response.reasoning_summary_part.done response.output_item.done response.output_item.added") {
		t.Fatalf("%v: %s", err, got)
	}
	for i, d := range data {
		want(t, d, i, "sequence_number")
	}
	want(t, data[10], 1, "output_index")
}

// TestThinkingThatIsCut: what was written before the peer left counts, thinking and calls too.
func TestThinkingThatIsCut(t *testing.T) {
	u := start(t, sim.Options{})
	_, _, _ = u.stream("/v1/messages", message, "thinking=9,reset_after=6") // start, start, 4 deltas
	eventually(t, "the stream has ended", func() bool { return u.Stats().Cut == 1 })
	if n := u.Stats().PartialOutput; n != 4 {
		t.Errorf("%d tokens written, want 4", n)
	}
}

func TestEchoOfEvents(t *testing.T) {
	u := start(t, sim.Options{})
	given := []string{`{"type":"response.created"}`, `{"type":"response.mcp_call.failed","x":"ö"}`}
	text, _ := json.Marshal("[" + strings.Join(given, " , ") + "]")
	for path, body := range map[string]string{
		"/v1/responses":        `{"model":"m","input":` + string(text) + `%s}`,
		"/v1/chat/completions": `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":` + string(text) + `}]}]%s}`,
	} {
		names, data, err := u.stream(path, body, "echo=events")
		if err != nil || len(data) != 2 || data[0] != given[0] || data[1] != given[1] || names[1] != "response.mcp_call.failed" {
			t.Errorf("%s: %v %q %q", path, err, names, data)
		}
	}
	resp, err := u.post(context.Background(), "/v1/responses", `{"model":"m","input":"[]","stream":true}`, "echo=events")
	if err != nil || resp.StatusCode != 400 {
		t.Fatalf("no events: %v %v", resp, err)
	}
	_ = resp.Body.Close()
}
