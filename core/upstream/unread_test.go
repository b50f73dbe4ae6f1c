package upstream

import (
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

// Text counts wherever in a known container it stands, and what nobody understands counts by its bytes.
func TestTextWhereverItStands(t *testing.T) {
	chunk := func(delta string) string { return `{"choices":[{"index":0,"delta":` + delta + `}]}` }
	block := func(delta string) string { return `{"type":"content_block_delta","index":0,"delta":` + delta + `}` }
	for _, tt := range []struct {
		name string
		ep   llm.Endpoint
		data string
		want string
	}{
		{"parts in a part", llm.Chat, chunk(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"},{"type":"text","text":"so"}]},{"type":"text","text":"yes"}]}`), "hm|so|yes|"},
		{"strings as parts", llm.Chat, chunk(`{"content":["a",["b"]]}`), "a|b|"},
		{"one part", llm.Chat, chunk(`{"content":{"type":"text","text":"a"}}`), "a|"},
		{"reasoning details", llm.Chat, chunk(`{"reasoning_details":[{"type":"reasoning.text","text":"hm","format":"x"},{"type":"reasoning.summary","summary":"so"},{"type":"reasoning.encrypted","data":"EqQB"}]}`), "hm|so|"},
		{"reasoning twice", llm.Chat, chunk(`{"content":"","reasoning":"hm","reasoning_details":[{"type":"reasoning.text","text":"hm"}]}`), "hm|"},
		{"thinking blocks", llm.Chat, chunk(`{"thinking_blocks":[{"type":"thinking","thinking":"hm","signature":"EqQB"}],"reasoning_content":"hm"}`), "hm|"},
		{"arguments as JSON", llm.Chat, chunk(`{"tool_calls":[{"function":{"name":"f","arguments":{"a":"b"}}}]}`), `f|{"a":"b"}|`},
		{"a delta that is text", llm.Chat, chunk(`"a"`), "a|"},
		{"deep", llm.Chat, chunk(`{"content":` + strings.Repeat("[", 40) + `"a"` + strings.Repeat("]", 40) + `}`), strings.Repeat("[", 8) + `"a"` + strings.Repeat("]", 8) + "|"},
		{"unknown member of a delta", llm.Chat, chunk(`{"monologue":"four"}`), "~6"},
		{"unknown member beside text", llm.Chat, chunk(`{"content":"a","monologue":"four"}`), "a|"},
		{"unknown member of a choice", llm.Chat, `{"choices":[{"said":["four"]}]}`, "~8"},
		{"unknown member", llm.Chat, `{"said":"four"}`, "~6"},
		{"another API's answer", llm.Chat, `{"message":{"role":"assistant","content":"four"},"done":false}`, "~37"},
		{"name with escapes", llm.Chat, chunk(`{"cont\u0065nt":"four"}`), "~6"},
		{"choices with escapes", llm.Chat, `{"choic\u0065s":[{"delta":{"content":"a"}}]}`, "~27"},
		{"not JSON", llm.Chat, `hello world`, "~11"},
		{"a string", llm.Chat, `"hello"`, "~7"},
		{"broken off", llm.Chat, `{"choices":[{"delta":{"content":"hel`, "~36"},
		{"unknown block", llm.Messages, block(`{"type":"new_delta","said":"four"}`), "~6"},
		{"unknown event", llm.Messages, `{"type":"monologue","said":"four"}`, "~6"},
		{"nested thinking", llm.Messages, block(`{"type":"thinking_delta","thinking":[{"type":"text","text":"hm"}]}`), "hm|"},
		{"not JSON, messages", llm.Messages, `hello`, "~5"},
		{"whole input", llm.Messages, `{"type":"content_block_start","content_block":{"type":"tool_use","id":"t","name":"f","input":{"a":1}}}`, `f|{"a":1}|`},
		{"text in the start", llm.Messages, `{"type":"message_start","message":{"content":[{"type":"text","text":"hi"}],"usage":{}}}`, "hi|"},
		{"delta with parts", llm.Responses, `{"type":"response.output_text.delta","delta":[{"text":"a"}]}`, "a|"},
		{"delta without", llm.Responses, `{"type":"response.output_text.delta","said":"four"}`, "~6"},
		{"unknown kind", llm.Responses, `{"type":"monologue","delta":"four"}`, "~6"},
		{"nothing but the whole", llm.Responses, `{"type":"response.completed","response":{"output":[{"type":"message","content":[{"type":"output_text","text":"hi"}]}]}}`, "hi|<end>"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := told(tt.ep, sse(tt.data)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// Text of /v1/responses counts once, whichever of the events shows it first and how many do: a delta, the end of a text, of a
// part, of an item, or the whole.
func TestEveryViewOfAText(t *testing.T) {
	delta := `{"type":"response.output_text.delta","delta":"hello"}`
	text := `{"type":"response.output_text.done","text":"hello there"}`
	part := `{"type":"response.content_part.done","part":{"type":"output_text","text":"hello there"}}`
	item := `{"type":"response.output_item.done","item":{"type":"message","content":[{"type":"output_text","text":"hello there"}]}}`
	call := `{"type":"response.output_item.done","item":{"type":"function_call","name":"get","arguments":"{1}"}}`
	whole := func(kind string) string {
		return `{"type":"response.` + kind + `","response":{"instructions":"be kind","output":[{"type":"message","content":[{"type":"output_text","text":"hello there"}]}]}}`
	}
	for _, tt := range []struct{ name, in, want string }{
		{"all", sse(delta, text, part, item, whole("completed")), "hello| there|<end>"},
		{"text", sse(text), "hello there|"},
		{"part", sse(part, part), "hello there|hello there|"},
		{"item", sse(item, whole("completed")), "hello there|<end>"},
		{"a delta and the whole", sse(delta, whole("incomplete")), "hello| there|<end>"},
		{"the beginning and the whole", sse(whole("created"), whole("in_progress"), delta), "hello there|hello|"},
		{"failed", sse(strings.Replace(whole("failed"), `"output"`, `"error":null,"output"`, 1)), "hello there|<end><error>"},
		{"two items, one in deltas", sse(item, delta, text, item), "hello there|hello| there|"},
		{"a call", sse(`{"type":"response.output_item.added","item":{"type":"function_call","name":"get","arguments":""}}`,
			`{"type":"response.function_call_arguments.delta","delta":"{1}"}`, `{"type":"response.function_call_arguments.done","name":"get","arguments":"{1}"}`, call), "get|{1}|"},
		{"a call without deltas", sse(call), "get|{1}|"},
		{"refused", sse(`{"type":"response.refusal.done","refusal":"no"}`), "no|"},
		{"a new kind", sse(`{"type":"response.foo","text":"four"}`), "four|"},
		{"a new kind with a new member", sse(`{"type":"response.foo","said":"four"}`), "~6"},
		{"a delta by another name", sse(`{"type":"response.foo.delta","text":"four"}`), "four|"},
		{"a usage", sse(strings.Replace(whole("completed"), `"output"`, `"usage":{"input_tokens":9,"output_tokens":2},"output"`, 1)), "<end> in 9 (0 read, 0 written) out 2 final true"},
		{"half a usage", sse(strings.Replace(whole("completed"), `"output"`, `"usage":{"input_tokens":9},"output"`, 1)), "hello there|<end> in 9 (0 read, 0 written) out 0 final false"},
		{"broken", sse(`{"type":"response.output_item.done","item":{"content":["hello there"}]}}`, text), "~72hello there|"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := strings.ReplaceAll(told(llm.Responses, tt.in), "<error><end>", "<end><error>"); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// What providers send beside the text is not taken for text.
func TestNothingIsCountedThatIsNotText(t *testing.T) {
	for _, tt := range []struct {
		name string
		ep   llm.Endpoint
		in   string
		want string
	}{
		{"OpenAI", llm.Chat, sse(`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-4o","service_tier":"default","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"aGk"}`,
			`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-4o","choices":[{"index":0,"delta":{"content":"hi"},"logprobs":{"content":[{"token":"hi","bytes":[1]}]},"finish_reason":null}],"usage":null,"obfuscation":"aGk"}`,
			`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-4o","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null,"obfuscation":"aGk"}`, "[DONE]"), "hi|<end>"},
		{"Azure", llm.Chat, sse(`{"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}}}]}`,
			`{"choices":[{"content_filter_offsets":{"check_offset":1},"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}},"finish_reason":null,"index":0}],"id":"","object":""}`, "[DONE]"), "<end>"},
		{"DeepSeek", llm.Chat, sse(`{"id":"1","object":"chat.completion.chunk","created":1,"model":"deepseek-reasoner","system_fingerprint":"fp","choices":[{"index":0,"delta":{"role":"assistant","content":null,"reasoning_content":""},"logprobs":null,"finish_reason":null}]}`,
			`{"id":"1","object":"chat.completion.chunk","created":1,"model":"deepseek-reasoner","system_fingerprint":"fp","choices":[{"index":0,"delta":{"content":null,"reasoning_content":"hm"},"logprobs":null,"finish_reason":null}]}`,
			`{"id":"1","choices":[{"index":0,"delta":{"content":"","reasoning_content":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2,"prompt_cache_hit_tokens":0,"prompt_cache_miss_tokens":5}}`, "[DONE]"),
			"hm|<end> in 5 (0 read, 0 written) out 2 final true"},
		{"Groq and others", llm.Chat, sse(`{"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null,"native_finish_reason":null}],"x_groq":{"id":"req_1"},"provider":"p"}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","extra_content":{"google":{"thought_signature":"EqQB"}},"function":{"name":"","arguments":""}}]}}]}`,
			`{"choices":[{"delta":{"images":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}}]}`, `{"choices":[{"delta":{"audio":{"id":"a","data":"UklGRg=="}}}]}`), ""},
		{"Anthropic", llm.Messages, "event: ping\n" + sse(`{"type":"ping"}`, `{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"c","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":5,"output_tokens":1,"service_tier":"standard"}}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"t","name":"web_search","input":{}}}`,
			`{"type":"content_block_start","index":1,"content_block":{"type":"web_search_tool_result","tool_use_id":"t","content":[{"type":"web_search_result","title":"T","url":"u","encrypted_content":"EqQB","page_age":"x"}]}}`,
			`{"type":"content_block_start","index":2,"content_block":{"type":"redacted_thinking","data":"EqQB"}}`,
			`{"type":"content_block_delta","index":3,"delta":{"type":"citations_delta","citation":{"type":"char_location","cited_text":"c"}}}`,
			`{"type":"content_block_delta","index":3,"delta":{"type":"signature_delta","signature":"EqQB"}}`, `{"type":"content_block_stop","index":3}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null,"container":{"id":"c"}},"context_management":{"applied_edits":[]}}`, `{"type":"message_stop"}`),
			"web_search|<end> in 5 (0 read, 0 written) out 1 final false"},
		{"Responses", llm.Responses, "event: x\n" + sse(`{"type":"response.created","sequence_number":0,"response":{"id":"r","object":"response","instructions":"be kind","tools":[],"text":{"format":{"type":"text"}}}}`,
			`{"type":"response.output_item.added","output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","content":[],"role":"assistant"}}`,
			`{"type":"response.content_part.added","item_id":"msg_1","part":{"type":"output_text","text":"","annotations":[]}}`,
			`{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"content_index":0,"delta":"hi","logprobs":[],"obfuscation":"aGk"}`,
			`{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"content_index":0,"delta":"","logprobs":[],"obfuscation":"aGk"}`,
			`{"type":"response.output_text.done","item_id":"msg_1","text":"hi","logprobs":[]}`, `{"type":"response.output_text.annotation.added","annotation":{"type":"url_citation","title":"t"}}`,
			`{"type":"response.image_generation_call.partial_image","partial_image_b64":"AAAA"}`, `{"type":"response.output_item.done","item":{"id":"msg_1","content":[{"type":"output_text","text":"hi"}]}}`,
			`{"type":"keepalive","sequence_number":9}`, `{"type":"response.completed","response":{"output":[{"content":[{"text":"hi"}]}]}}`), "hi|<end>"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := told(tt.ep, tt.in); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// The same of whole answers: unread bytes are those of an answer in which no text is found.
func TestUnreadAnswers(t *testing.T) {
	for _, tt := range []struct {
		name   string
		ep     llm.Endpoint
		body   string
		texts  int
		unread int
	}{
		{"nested", llm.Chat, `{"choices":[{"message":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"a"}]}}]}`, 2, 0},
		{"unknown member", llm.Chat, `{"choices":[{"message":{"role":"assistant","content":null,"monologue":"four"}}]}`, 0, 6},
		{"not JSON", llm.Chat, `hello world`, 0, 11},
		{"another API's", llm.Messages, `{"completion":"four"}`, 0, 21},
		{"unknown block", llm.Messages, `{"content":[{"type":"new","said":"four"}]}`, 0, 6},
		{"unknown item", llm.Responses, `{"instructions":"be kind","output":[{"type":"new","said":"four"}]}`, 0, 6},
		{"another API's item", llm.Responses, `{"said":"four"}`, 0, 15},
		{"arguments as JSON", llm.Responses, `{"output":[{"type":"function_call","name":"f","arguments":{"a":1}}]}`, 2, 0},
		{"nothing said", llm.Chat, `{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":""},"finish_reason":"stop"}]}`, 0, 0},
		{"nothing said in messages", llm.Messages, `{"id":"x","type":"message","content":[],"stop_reason":"end_turn"}`, 0, 0},
		{"an error", llm.Responses, `{"error":{"message":"no"}}`, 0, 0},
		{"embeddings", llm.Embeddings, `{"data":[{"embedding":"AAAA"}]}`, 0, 0},
		{"empty", llm.Chat, ``, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, of, texts, unread := BufferedUsage(tt.ep, []byte(tt.body)); of.Whole() || len(texts) != tt.texts || unread != tt.unread {
				t.Errorf("%d texts, %d bytes unread", len(texts), unread)
			}
		})
	}
}
