package upstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/weir-gateway/weir/core/llm"
)

// told is what a visitor of a stream sees, in words.
func told(ep llm.Endpoint, stream string) string {
	var b strings.Builder
	p := NewParser(ep)
	p.Parse([]byte(stream), func(e *Event) {
		for _, d := range e.Deltas {
			fmt.Fprintf(&b, "%s|", Unescape(nil, d))
		}
		if e.Delta != nil && string(e.Delta) != string(e.Deltas[0]) {
			b.WriteString("WRONG DELTA|")
		}
		if e.Unread > 0 {
			fmt.Fprintf(&b, "~%d", e.Unread)
		}
		for word, on := range map[string]bool{"<empty>": e.Empty, "<end>": e.Terminal, "<error>": e.Error} {
			if on {
				b.WriteString(word)
			}
		}
	})
	if u, _, ok := p.Usage(); u.Total() > 0 {
		fmt.Fprintf(&b, " in %d (%d read, %d written) out %d final %v", u.InputTokens, u.CachedInputTokens, u.CacheWriteTokens, u.OutputTokens, ok)
	}
	return b.String()
}

// sse makes a stream of data lines.
func sse(data ...string) string { return "data: " + strings.Join(data, "\n\ndata: ") + "\n\n" }

func TestStreamsOfChat(t *testing.T) {
	chunk := func(delta string) string { return `{"id":"x","choices":[{"index":0,"delta":` + delta + `}]}` }
	for _, tt := range []struct{ name, in, want string }{
		{"content", sse(chunk(`{"role":"assistant","content":""}`), chunk(`{"content":"h\u00e9\n\"l\""}`), chunk(`{"content":null}`), "[DONE]"), "hé\n\"l\"|<end>"},
		{"usage chunk", sse(chunk(`{"content":"a"}`), `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13,"prompt_tokens_details":{"cached_tokens":5,"audio_tokens":0}}}`, "[DONE]"),
			"a|<empty><end> in 9 (5 read, 0 written) out 4 final true"},
		{"usage before the choices", sse(`{"usage":{"prompt_tokens":9,"completion_tokens":4},"choices":[]}`), "<empty> in 9 (0 read, 0 written) out 4 final true"},
		{"S02 usage null", sse(`{"choices":[{"delta":{"content":"a"}}],"usage":null}`, `{"choices":[],"usage":null}`, "[DONE]"), "a|<end>"},
		{"usage of nothing", sse(`{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`), "<empty>"},
		{"text after the usage", sse(`{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":0}}`, chunk(`{"content":"a"}`), chunk(`{"content":"b"}`), "[DONE]"),
			"<empty>a|b|<end> in 5 (0 read, 0 written) out 0 final false"},
		{"another choice after the usage", sse(`{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":1}}`, chunk(`{"content":"a"}`)),
			"a| in 5 (0 read, 0 written) out 1 final false"},
		{"usage behind the end", sse(chunk(`{"content":"a"}`), "[DONE]", `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":9}}`, chunk(`{"content":"b"}`), "[DONE]"), "a|<end>"},
		{"usage with the last chunk", sse(`{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_cache_hit_tokens":4}}`), " in 9 (4 read, 0 written) out 2 final true"},
		{"usage inside a choice", sse(`{"choices":[{"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":9,"completion_tokens":2}}]}`), " in 9 (0 read, 0 written) out 2 final true"},
		{"cached beyond input", sse(`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":500,"cache_write_tokens":30}}}`), "<empty> in 9 (9 read, 0 written) out 2 final true"},
		{"total only", sse(`{"choices":[],"usage":{"prompt_tokens":9,"total_tokens":12}}`), "<empty> in 9 (0 read, 0 written) out 3 final true"},
		{"fractions and signs", sse(`{"choices":[],"usage":{"prompt_tokens":9.7,"completion_tokens":-2}}`), "<empty> in 9 (0 read, 0 written) out 0 final false"},
		{"absurd", sse(`{"choices":[],"usage":{"prompt_tokens":99999999999999999999999999,"completion_tokens":1e3}}`), "<empty> in 1000000000000 (0 read, 0 written) out 1000 final true"},
		{"other ways to write a number", sse(`{"choices":[],"usage":{"prompt_tokens":1e2,"completion_tokens":100.0,"prompt_tokens_details":{"cached_tokens":2.5E1}}}`), "<empty> in 100 (25 read, 0 written) out 100 final true"},
		{"no numbers", sse(`{"choices":[],"usage":{"prompt_tokens":0x10,"completion_tokens":1e,"total_tokens":1_0}}`), "<empty>"},
		{"1e999", sse(`{"choices":[],"usage":{"prompt_tokens":1e999,"completion_tokens":1e-9}}`), "<empty> in 1000000000000 (0 read, 0 written) out 0 final true"},
		{"the output null behind a count", sse(`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}`, `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":null}}`), "<empty><empty> in 10 (0 read, 0 written) out 2 final true"},
		{"0 output of a text", sse(chunk(`{"content":"a"}`), `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":0}}`), "a|<empty> in 9 (0 read, 0 written) out 0 final false"},
		{"no choices at all", sse(`{"usage":{"prompt_tokens":1,"completion_tokens":1}}`), "<empty> in 1 (0 read, 0 written) out 1 final true"},
		{"content filter first", sse(`{"choices":[],"prompt_filter_results":[{}]}`), ""},
		{"reasoning", sse(chunk(`{"reasoning_content":"why"}`), chunk(`{"reasoning":"because","reasoning_content":"because"}`), chunk(`{"refusal":"no"}`)), "why|because|no|"},
		{"tools", sse(chunk(`{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"get","arguments":""}}]}`),
			chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}},{"index":1,"function":{"arguments":"1}"}}]}`), chunk(`{"function_call":{"name":"old","arguments":"{}"}}`)), "get|{\"a\":|1}|old|{}|"},
		{"choices", sse(`{"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"}}]}`), "a|b|"},
		{"completions", sse(`{"choices":[{"text":"a","logprobs":{"tokens":["x"]}}]}`), "a|"},
		{"parts", sse(chunk(`{"content":[{"type":"text","text":"a"},{"type":"image"}]}`), chunk(`{"audio":{"data":"AAAA","transcript":"said"}}`)), "a|said|"},
		{"error", sse(`{"error":{"message":"boom","type":"server_error"}}`), "<error>"},
		{"error null", sse(`{"choices":[{"delta":{"content":"a"}}],"error":null}`), "a|"},
		{"not JSON", sse(`{"choices":[{"delta":{"content":"a"}}`, `nonsense`, `{"choices":[{"delta":{"content":"b`, `"str"`, `7`, `null`, `{]`, `{"a"}`), "~37~8~34~5~1~4~2~5"},
		{"usage in a broken event", sse(`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4},`), "~64"},
		{"odd types", sse(`{"choices":{"delta":1},"usage":[1]}`, `{"choices":[1,null,"x",{"delta":[]},{"delta":{"content":{"a":1},"tool_calls":{}}}]}`), "~11x|"},
		{"multi-line", "data: {\"choices\":[{\"delta\":\ndata: {\"content\":\ndata: \"a\"}}]}\n\n", "a|"},
		{"no blank", "data:{\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata:[DONE]\n\n", "a|<end>"},
		{"other fields", ": hi\nevent: error\nid: 1\nretry: 5\ndatax: [DONE]\nxdata: [DONE]\n\n", ""},
		{"no empty line at the end", "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}", "a|"},
		{"blank around DONE", "data:  [DONE]\n\n", "<end>"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := told(llm.Chat, tt.in); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestStreamsOfResponses(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"text", sse(`{"type":"response.created","response":{"id":"r","usage":null,"error":null}}`, `{"type":"response.output_text.delta","delta":"hi","logprobs":[]}`,
			`{"delta":" there","type":"response.output_text.delta"}`, `{"type":"response.output_text.done","text":"hi there"}`,
			`{"type":"response.completed","response":{"output":[{"content":[{"text":"hi there"}]}],"usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":4},"output_tokens":3,"output_tokens_details":{"reasoning_tokens":1},"total_tokens":12}}}`),
			"hi| there|<end> in 9 (4 read, 0 written) out 3 final true"},
		{"incomplete", sse(`{"type":"response.incomplete","response":{"usage":{"input_tokens":9,"output_tokens":3}}}`), "<end> in 9 (0 read, 0 written) out 3 final true"},
		{"tool", sse(`{"type":"response.output_item.added","item":{"type":"function_call","name":"get","arguments":""}}`, `{"type":"response.function_call_arguments.delta","delta":"{}"}`,
			`{"type":"response.reasoning_summary_text.delta","delta":"think"}`, `{"type":"response.output_audio.delta","delta":"UklGR"}`, `{"type":"response.refusal.delta","delta":"no"}`), "get|{}|think|no|"},
		{"error", sse(`{"type":"error","code":"x","message":"boom"}`), "<error>"},
		{"broken", sse(`{"type":"response.output_text.delta","delta":"hi"`, `{"type":"response.completed","response":{"usage":{"input_tokens":9`), "~49~66"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := told(llm.Responses, tt.in); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
	failed := told(llm.Responses, sse(`{"type":"response.failed","response":{"error":{"code":"x"},"usage":null}}`))
	contains(t, failed, "<end>")
	contains(t, failed, "<error>")
}

func TestStreamsOfMessages(t *testing.T) {
	start := `{"type":"message_start","message":{"id":"m","content":[],"usage":{"input_tokens":10,"cache_creation_input_tokens":20,"cache_read_input_tokens":30,"output_tokens":1,"cache_creation":{"ephemeral_5m_input_tokens":20}}}}`
	for _, tt := range []struct{ name, in, want string }{
		{"M10 whole", sse(start, `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`, `{"type":"ping"}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}`, `{"type":"content_block_stop","index":0}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":15}}`, `{"type":"message_stop"}`),
			"hi|<end> in 60 (30 read, 20 written) out 15 final true"},
		{"start only", sse(start), " in 60 (30 read, 20 written) out 1 final false"},
		{"usage before the reason", sse(start, `{"usage":{"output_tokens":15,"input_tokens":11},"delta":{"stop_reason":"max_tokens"},"type":"message_delta"}`), " in 61 (30 read, 20 written) out 15 final true"},
		{"a stop without a delta", sse(start, `{"type":"content_block_delta","delta":{"type":"text_delta","text":"hi"}}`, `{"type":"message_stop"}`), "hi|<end> in 60 (30 read, 20 written) out 1 final false"},
		{"text after the delta", sse(start, `{"type":"message_delta","delta":{},"usage":{"output_tokens":5}}`, `{"type":"content_block_delta","delta":{"type":"text_delta","text":"hi"}}`), "hi| in 60 (30 read, 20 written) out 5 final false"},
		{"nulls keep what was", sse(start, `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":null,"cache_read_input_tokens":null,"output_tokens":15}}`), " in 60 (30 read, 20 written) out 15 final true"},
		{"no reason yet", sse(start, `{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":5}}`), " in 60 (30 read, 20 written) out 5 final true"},
		{"no usage", sse(`{"type":"message_start","message":{}}`, `{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`, `{"type":"message_stop"}`), "<end>"},
		{"thinking and tools", sse(`{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"hm"}}`, `{"type":"content_block_delta","delta":{"type":"signature_delta","signature":"EqQB"}}`,
			`{"type":"content_block_start","content_block":{"type":"tool_use","id":"t","name":"get","input":{}}}`, `{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{\"a\":1}"}}`), "hm|get|{\"a\":1}|"},
		{"error", "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n", "<error>"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := told(llm.Messages, tt.in); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// Events of the latest shape take a short cut; what only resembles them must not.
func TestShapes(t *testing.T) {
	a := `{"choices":[{"delta":{"content":"a"},"finish_reason":null}]}`
	for _, tt := range []struct{ second, want string }{
		{a, "a|"},
		{`{"choices":[{"delta":{"content":"x\\"},"finish_reason":null}]}`, `x\|`},
		{`{"choices":[{"delta":{"content":"x\""},"finish_reason":null}]}`, `x"|`},
		{`{"choices":[{"delta":{"content":""},"finish_reason":null}]}`, ""},
		{`{"choices":[{"delta":{"content":"x"},"finish_reason":null}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`, "x| in 1 (0 read, 0 written) out 1 final true"},
		{`{"choices":[{"delta":{"content":"x"},"finish_reason":null}]`, "~59"},
		{`{"choices":[{"delta":{"content":"x"},"finish_reason":null}]}}`, "x|"},
		{`{"choices":[{"delta":{"content":"x","refusal":"y"},"finish_reason":null}]}`, "x|y|"},
		{`{"choices":[{"delta":{"content":"x"},"refusal":"y"},"finish_reason":null}]}`, "~75"},
		{`{"choices":[{"delta":{"content":"`, "~33"},
		{`{"choices":[{"delta":{"content":null},"finish_reason":null}]}`, ""},
	} {
		if got := told(llm.Chat, sse(a, tt.second)); got != "a|"+tt.want {
			t.Errorf("%s: %s", tt.second, got)
		}
	}
}

func TestParserIsReusable(t *testing.T) {
	p := NewParser(llm.Chat)
	p.Parse([]byte(sse(`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4}}`)), func(*Event) {})
	p.Reset(llm.Messages)
	if u, of, _ := p.Usage(); of != (Reported{}) || u.Total() != 0 {
		t.Error("usage of another stream", u)
	}
}

func TestEventsKeepEveryByte(t *testing.T) {
	in := "\n: c\n\ndata: a\r\n\r\ndata: b\r\rid: 1\n\n\n\ntail"
	var out strings.Builder
	NewParser(llm.Chat).Parse([]byte(in), func(e *Event) { out.Write(e.Raw) })
	if out.String() != in {
		t.Errorf("%q", out.String())
	}
}

func TestBufferedUsage(t *testing.T) {
	both, input, output := Reported{Input: true, Output: true}, Reported{Input: true}, Reported{Output: true}
	said := `{"choices":[{"message":{"content":"hi"}}],"usage":`
	for _, tt := range []struct {
		name  string
		ep    llm.Endpoint
		body  string
		usage llm.Usage
		of    Reported
		texts []string
	}{
		{"chat", llm.Chat, `{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":9,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":2}}}`, llm.Usage{InputTokens: 9, CachedInputTokens: 2, OutputTokens: 4}, both, nil},
		{"chat without", llm.Chat, `{"choices":[{"message":{"content":"h\"i","tool_calls":[{"function":{"name":"f","arguments":"{}"}}],"reasoning_content":"r"}},{"message":{"refusal":"no"}}]}`, llm.Usage{}, Reported{}, []string{`h\"i`, "f", "{}", "r", "no"}},
		{"chat null", llm.Chat, `{"choices":[{"message":{"content":"hi"}}],"usage":null}`, llm.Usage{}, Reported{}, []string{"hi"}},
		{"chat zeros", llm.Chat, `{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":0}}`, llm.Usage{}, Reported{}, []string{"hi"}},
		{"completions", llm.Completions, `{"choices":[{"text":"a"},{"text":"b"}]}`, llm.Usage{}, Reported{}, []string{"a", "b"}},
		{"embeddings", llm.Embeddings, `{"data":[{"embedding":[1,2]}],"usage":{"prompt_tokens":7,"total_tokens":7}}`, llm.Usage{InputTokens: 7}, both, nil},
		{"embeddings without", llm.Embeddings, `{"data":[{"embedding":[1,2]}]}`, llm.Usage{}, output, nil},
		{"responses", llm.Responses, `{"output":[],"usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":3},"output_tokens":4}}`, llm.Usage{InputTokens: 9, CachedInputTokens: 3, OutputTokens: 4}, both, nil},
		{"responses without", llm.Responses, `{"output":[{"type":"reasoning","summary":[{"text":"s"}]},{"type":"message","content":[{"type":"output_text","text":"hi"}]},{"type":"function_call","name":"f","arguments":"{}"}]}`, llm.Usage{}, Reported{}, []string{"s", "hi", "f", "{}"}},
		{"M10 messages", llm.Messages, `{"content":[{"text":"hi"}],"usage":{"input_tokens":1,"cache_read_input_tokens":2,"cache_creation_input_tokens":3,"output_tokens":4}}`, llm.Usage{InputTokens: 6, CachedInputTokens: 2, CacheWriteTokens: 3, OutputTokens: 4}, both, nil},
		{"messages without", llm.Messages, `{"content":[{"type":"text","text":"hi"},{"type":"thinking","thinking":"hm","signature":"x"},{"type":"tool_use","id":"i","name":"f","input":{"a": [1]}}]}`, llm.Usage{}, Reported{}, []string{"hi", "hm", "f", `{"a": [1]}`}},
		{"count_tokens", llm.CountTokens, `{"input_tokens":14}`, llm.Usage{}, both, nil},
		{"cut off", llm.Chat, `{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":9`, llm.Usage{}, Reported{}, []string{"hi"}},
		{"not JSON", llm.Chat, `<html>`, llm.Usage{}, Reported{}, nil},
		{"no output", llm.Chat, said + `{"prompt_tokens":9}}`, llm.Usage{InputTokens: 9}, input, []string{"hi"}},
		{"output null", llm.Chat, said + `{"prompt_tokens":9,"completion_tokens":null}}`, llm.Usage{InputTokens: 9}, input, []string{"hi"}},
		{"output -1", llm.Chat, said + `{"prompt_tokens":9,"completion_tokens":-1}}`, llm.Usage{InputTokens: 9}, input, []string{"hi"}},
		{"output in words", llm.Chat, said + `{"prompt_tokens":9,"completion_tokens":"400"}}`, llm.Usage{InputTokens: 9}, input, []string{"hi"}},
		{"output an object", llm.Chat, said + `{"prompt_tokens":9,"completion_tokens":{}}}`, llm.Usage{InputTokens: 9}, input, []string{"hi"}},
		{"output 0 of a text", llm.Chat, said + `{"prompt_tokens":9,"completion_tokens":0}}`, llm.Usage{InputTokens: 9}, input, []string{"hi"}},
		{"output 0 of nothing", llm.Chat, `{"choices":[{"message":{"content":""}}],"usage":{"prompt_tokens":9,"completion_tokens":0}}`, llm.Usage{InputTokens: 9}, both, nil},
		{"reasoning in words", llm.Chat, said + `{"prompt_tokens":9,"completion_tokens":4,"completion_tokens_details":{"reasoning_tokens":"7","x":{}}}}`, llm.Usage{InputTokens: 9, OutputTokens: 4}, both, nil},
		{"reasoning beside", llm.Responses, `{"usage":{"input_tokens":9,"output_tokens":4,"output_tokens_details":{"x":1,"reasoning_tokens":7}}}`, llm.Usage{InputTokens: 9, OutputTokens: 11}, both, nil},
		{"reasoning in the total", llm.Chat, said + `{"prompt_tokens":9,"completion_tokens":4,"total_tokens":20}}`, llm.Usage{InputTokens: 9, OutputTokens: 11}, both, nil},
		{"what is cached in the total", llm.Chat, said + `{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":500},"completion_tokens":4,"total_tokens":513}}`, llm.Usage{InputTokens: 9, CachedInputTokens: 9, OutputTokens: 4}, both, nil},
		{"output by the total", llm.Chat, said + `{"prompt_tokens":9,"total_tokens":13}}`, llm.Usage{InputTokens: 9, OutputTokens: 4}, both, nil},
		{"a total below its part", llm.Chat, said + `{"prompt_tokens":9,"total_tokens":8}}`, llm.Usage{InputTokens: 9}, input, []string{"hi"}},
		{"no input", llm.Chat, said + `{"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":5}}}`, llm.Usage{OutputTokens: 4}, output, nil},
		{"input null", llm.Chat, said + `{"prompt_tokens":null,"completion_tokens":4,"total_tokens":13}}`, llm.Usage{OutputTokens: 4}, output, nil},
		{"twice, once in words", llm.Chat, said + `{"prompt_tokens":9,"completion_tokens":4,"output_tokens":null}}`, llm.Usage{InputTokens: 9, OutputTokens: 4}, both, nil},
		{"responses, no output", llm.Responses, `{"output":[{"content":[{"text":"hi"}]}],"usage":{"input_tokens":9}}`, llm.Usage{InputTokens: 9}, input, []string{"hi"}},
		{"messages, no output", llm.Messages, `{"content":[{"text":"hi"}],"usage":{"input_tokens":9,"output_tokens":null}}`, llm.Usage{InputTokens: 9}, input, []string{"hi"}},
		{"messages, no input", llm.Messages, `{"content":[{"text":"hi"}],"usage":{"output_tokens":4}}`, llm.Usage{OutputTokens: 4}, output, nil},
		{"empty", llm.Chat, ``, llm.Usage{}, Reported{}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body := append(make([]byte, 0, len(tt.body)+7), tt.body...)
			u, of, texts, _ := BufferedUsage(tt.ep, body)
			var got []string
			for _, x := range texts {
				got = append(got, string(x.In(body)))
				if x.Raw != strings.HasPrefix(got[len(got)-1], `{"a"`) {
					t.Errorf("%s: raw is %v", x.In(body), x.Raw)
				}
			}
			if d := cmp.Diff(tt.usage, u); d != "" || of != tt.of {
				t.Error(d, of)
			}
			if d := cmp.Diff(tt.texts, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestUnescape(t *testing.T) {
	for _, s := range []string{"", "plain", "a\"b\\c/d\b\f\n\r\t", "é漢字", "😀𝄞", "\u2028<>&"} {
		quoted, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(Unescape(nil, quoted[1:len(quoted)-1])); got != s {
			t.Errorf("%s became %q", quoted, got)
		}
	}
	for in, want := range map[string]string{`\/`: "/", `\ud83d\ude00`: "😀", `\ud83d`: "\ufffd", `\ud83dx`: "\ufffdx", `\ude00\ud83d`: "\ufffd\ufffd",
		`\u12`: `\u12`, `\uzzzz`: `\uzzzz`, `\x41`: `\x41`, `a\`: `a\`, `\ud83d\u0041`: "\ufffdA"} {
		if got := string(Unescape([]byte("-"), []byte(in))); got != "-"+want {
			t.Errorf("%s became %q", in, got)
		}
	}
}

// Streams as the providers document them, kept as they are on the wire.
func TestRecordedStreams(t *testing.T) {
	for name, want := range map[string]struct {
		ep   llm.Endpoint
		told string
	}{
		"openai-chat.sse":        {llm.Chat, "Hello|!|<empty><end> in 19 (0 read, 0 written) out 10 final true"},
		"anthropic-messages.sse": {llm.Messages, "Okay|, let me check|get_weather|{\"location\":| \"San Francisco|, CA\"}|<end> in 472 (0 read, 0 written) out 89 final true"},
		"openai-responses.sse":   {llm.Responses, "Hi| there!|<end> in 37 (0 read, 0 written) out 11 final true"},
	} {
		raw, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if got := told(want.ep, string(raw)); got != want.told {
			t.Errorf("%s: got  %s\nwant %s", name, got, want.told)
		}
	}
}

// FuzzParse: no stream makes the parser panic, loses a byte, or reports a negative count.
// TestNullUsage: without the part that Null names an event is the same JSON but for its usage.
func TestNullUsage(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{`{"id":1,"choices":[{"delta":{"content":"a"}}],"usage":null}`, `{"id":1,"choices":[{"delta":{"content":"a"}}]}`},
		{`{"id":1,"choices":[{"delta":{"content":"ö,\"usage\":null"}}],"usage":null}`, `{"id":1,"choices":[{"delta":{"content":"ö,\"usage\":null"}}]}`},
		{`{ "usage" : null , "choices":[{"delta":{"content":"a"}}]}`, `{  "choices":[{"delta":{"content":"a"}}]}`},
		{`{ "usage" : null , "choices":[{"delta":{"content":"bc"}}]}`, `{  "choices":[{"delta":{"content":"bc"}}]}`},
		{`{"choices":[{"delta":{"content":"a"}}] , "usage" : null , "x":2}`, `{"choices":[{"delta":{"content":"a"}}]  , "x":2}`},
		{`{"usage":null}`, `{}`},
		{`{"choices":[{"delta":{"content":"a"},"usage":null}],"x":{"usage":null}}`, `{"choices":[{"delta":{"content":"a"},"usage":null}],"x":{"usage":null}}`},
		{`{"choices":[],"usage":{"prompt_tokens":1}}`, `{"choices":[],"usage":{"prompt_tokens":1}}`},
		{`[DONE]`, `[DONE]`},
	} {
		stream := ": a comment\ndata: " + tt.in + "\nid: 7\n\n"
		p, want := NewParser(llm.Chat), ": a comment\ndata: "+tt.want+"\nid: 7\n\n"
		check := func(e *Event) {
			if got := string(e.Raw[:e.Null[0]]) + string(e.Raw[e.Null[1]:]); got != want {
				t.Errorf("%s\n got %q\nwant %q", tt.in, got, want)
			}
		}
		p.Parse([]byte(stream+stream+stream), check)                           // the second and third by the shape of the first
		want = "data:" + tt.want[:1] + "\r\ndata: " + tt.want[1:] + "\r\n\r\n" // data in two lines
		p.Parse([]byte("data:"+tt.in[:1]+"\r\ndata: "+tt.in[1:]+"\r\n\r\n"), check)
	}
	NewParser(llm.Chat).Parse([]byte("data: {\ndata: \"usage\":\ndata: null}\n\n"), func(e *Event) {
		if e.Null != [2]int{} {
			t.Errorf("a member over two lines: %v", e.Null)
		}
	})
}

// dataWithoutNull is the data of the one event of raw, without the part that Null names.
func (p *Parser) dataWithoutNull(raw []byte) (data []byte) {
	p.Parse(raw, func(e *Event) {
		short := append(append([]byte(nil), e.Raw[:e.Null[0]]...), e.Raw[e.Null[1]:]...)
		NewParser(p.ep).Parse(short, func(e *Event) { data = append([]byte(nil), e.Data...) })
	})
	return data
}

func FuzzParse(f *testing.F) {
	f.Add(uint8(1), []byte(sse(`{"choices":[{"delta":{"content":"a","tool_calls":[{"function":{"name":"f"}}]}}],"usage":{"prompt_tokens":1}}`, "[DONE]")))
	f.Add(uint8(1), []byte(sse(`{"choices":[{"delta":{"content":"a"}}],"usage":null}`, `{ "usage":null ,"choices":[{"delta":{"content":"bc"}}]}`, `{"usage":null}`)))
	f.Add(uint8(4), []byte(sse(`{"type":"response.completed","response":{"usage":{"input_tokens":9}}}`)))
	f.Add(uint8(5), []byte(sse(`{"type":"message_start","message":{"usage":{"input_tokens":9}}}`)))
	f.Fuzz(func(t *testing.T, ep uint8, raw []byte) {
		p := NewParser(llm.Endpoint(ep%6 + 1))
		n := 0
		over := false
		p.Parse(raw, func(e *Event) {
			n += len(e.Raw)
			for _, d := range e.Deltas {
				_ = Unescape(nil, d)
			}
			// A parser that has seen nothing takes the event in the same way.
			other := NewParser(p.ep)
			other.Parse(append([]byte(nil), e.Raw...), func(alone *Event) {
				if !over && !other.again && (fmt.Sprintf("%q", alone.Deltas) != fmt.Sprintf("%q", e.Deltas) || alone.Terminal != e.Terminal || alone.Error != e.Error || alone.Empty != e.Empty || alone.Null != e.Null) {
					t.Fatalf("%q gives %q among others and %q alone", e.Raw, e.Deltas, alone.Deltas)
				}
			})
			over = over || e.Terminal
			if valid := json.Valid(e.Data); valid && !json.Valid(NewParser(p.ep).dataWithoutNull(e.Raw)) {
				t.Fatalf("%q without %v is no JSON", e.Raw, e.Null)
			}
		})
		if n != len(raw) {
			t.Fatalf("%d of %d bytes were visited", n, len(raw))
		}
		u, _, _ := p.Usage()
		if min(u.InputTokens, u.OutputTokens, u.CachedInputTokens, u.CacheWriteTokens) < 0 || u.CachedInputTokens+u.CacheWriteTokens > u.InputTokens {
			t.Fatalf("%+v", u)
		}
		_, _, texts, _ := BufferedUsage(llm.Endpoint(ep%6+1), raw)
		for _, x := range texts {
			_ = x.In(raw)
		}
	})
}

// FuzzSplit: in whatever pieces a stream arrives, the events are the same.
func FuzzSplit(f *testing.F) {
	f.Add([]byte("data: a\r\n\r\ndata: b\r\rdata: c\n\n: x\n\r\n\xef\xbb\xbf"), uint16(1))
	f.Add([]byte("\xef\xbb\xbfdata: a\ndata: b\n\n"), uint16(2))
	f.Add([]byte("data: a\r\ndata: b\r\n\r\n"), uint16(1)) // a packet ends between the first CR and its LF
	f.Fuzz(func(t *testing.T, raw []byte, step uint16) {
		split := func(step int) (all []string) {
			var ev events
			var out []byte
			defer func() {
				if !bytes.HasPrefix(bytes.TrimPrefix(raw, bom), out) {
					t.Fatalf("%q came out as %q", raw, out)
				}
			}()
			for at := 0; ; {
				ev.shift()
				if b := ev.complete(); b != nil {
					out = append(out, b...)
					NewParser(llm.Chat).Parse(b, func(e *Event) {
						if len(e.Data) > 0 {
							all = append(all, string(e.Data))
						}
					})
					continue
				}
				if at == len(raw) {
					break
				}
				n := copy(ev.room(), raw[at:min(at+step, len(raw))])
				ev.grew(n)
				at += n
			}
			ev.free()
			return all
		}
		whole, pieces := split(len(raw)+1), split(int(step)%16+1)
		if d := cmp.Diff(whole, pieces); d != "" {
			t.Fatal(d)
		}
	})
}
