package upstream

import (
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

var endpoints = []llm.Endpoint{llm.Chat, llm.Completions, llm.Embeddings, llm.Responses, llm.Messages, llm.CountTokens}

// asks are requests that work.
var asks = map[llm.Endpoint]string{
	llm.Chat: plainBody, llm.Completions: `{"model":"m","prompt":"hi"}`, llm.Embeddings: `{"model":"m","input":"hi"}`,
	llm.Responses: `{"model":"m","input":"hi"}`, llm.Messages: `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`,
	llm.CountTokens: `{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
}

// wholes are answers as each route has them, one that is all there is and others as servers vary them.
var wholes = map[llm.Endpoint][]string{
	llm.Chat: {
		`{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`,
		`{"choices":[{"message":{"content":null,"tool_calls":[{"id":"t","type":"function","function":{"name":"f","arguments":"{}"}}]}}]}`,
		`{"choices":[{"message":{"content":null,"refusal":"no"}}]}`,
		`{"choices":[{"message":{"content":""},"finish_reason":"content_filter"}],"moderation":{"results":[{"flagged":true}]}}`,
		`{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":0},"prompt_filter_results":[{}]}`,
		`{"choices":[]}`, `{"choices":[],"error":null}`, `{"choices":[],"error":{}}`, `{"choices":[],"error":""}`,
		`{"usage":{"prompt_tokens":1,"completion_tokens":1}}`,
		`{"error":{"code":429},"choices":[{"message":{"content":"a"}}]}`,
		`{"model":"m","message":{"role":"assistant","content":"hi"},"done":true}`,
		"\xef\xbb\xbf{\"choices\":[{\"message\":{\"content\":\"hi\"}}]}",
		" \r\n\t{ \"choices\" : [ { } ] } \n\n",
		`{"choices":[{"message":{"content":"{\"error\":{\"type\":\"error\"}}"}}]}`,
		`{"\u0063hoices":[{"message":{"content":"hi"}}]}`,
	},
	llm.Completions: {
		`{"id":"c","object":"text_completion","choices":[{"text":"hi","finish_reason":"stop"}]}`,
		`{"choices":[{"text":""}],"usage":{"prompt_tokens":1,"completion_tokens":0}}`,
	},
	llm.Embeddings: {
		`{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1,-2e-3]}],"model":"m","usage":{"prompt_tokens":1}}`,
		`{"data":[{"embedding":[` + strings.Repeat("-0.0123456, 1.5E-3,\n0,", 20) + `null,[1234567812345678],{"a":12345678}]}]}`,
		`{"object":"list","data":[{"embedding":"AACAPw=="}]}`, `{"data":[]}`, `{"model":"m","embeddings":[[1]]}`, `{"embedding":[1]}`,
	},
	llm.Responses: {
		`{"id":"r","object":"response","status":"completed","error":null,"output":[{"type":"message","content":[{"type":"output_text","text":"hi"}]}],"usage":{"input_tokens":1,"output_tokens":1}}`,
		`{"object":"response","status":"incomplete","error":null,"incomplete_details":{"reason":"max_output_tokens"},"output":[]}`,
		`{"output":[{"type":"message","content":[{"type":"refusal","refusal":"no"}]}]}`,
		`{"status":"failed","error":{"code":"server_error"},"output":[{"type":"reasoning","summary":[]}]}`,
	},
	llm.Messages: {
		`{"id":"m","type":"message","role":"assistant","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`,
		`{"type":"message","content":[],"stop_reason":"end_turn"}`, `{"content":[{"type":"tool_use","id":"t","name":"f","input":{}}],"stop_reason":"tool_use"}`,
		`{"type":"message","content":[],"stop_reason":"refusal","usage":{"input_tokens":1,"output_tokens":0}}`,
	},
	llm.CountTokens: {`{"input_tokens":7}`, `{"input_tokens":0}`, `{"input_tokens":7,"context_management":{"original_input_tokens":9}}`},
}

// noAnswers are what no route answers with: what else answers 200.
var noAnswers = []string{
	`OK`, `null`, `true`, `7`, `"fine"`, `{}`, `[]`, `[{}]`, `{ }`, " ", "\xef\xbb\xbf", "\xef\xbb\xbf{}", `{"ok":true}`, `{"status":"ok"}`, `{"error":null}`, `{"error":{}}`, `{"error":false,"msg":"x"}`,
	`{"detail":"Not Found"}`, `{"message":"no Route matched"}`, `{"code":0,"msg":"x"}`, `{"choices":null,"data":null,"output":null,"content":null,"usage":null}`,
	`<html>hi</html>`, `upstream connect error`, `data: {"choices":[]}`, `{"error":{"message":"x"`, `{"object":"error","message":`, `{"choices`, `{"choices":[]} and more`, `{"usage":{}}{"usage":{}}`,
}

// What passes is passed as it is, and half of it never is: a beginning of an answer is no answer, wherever it was cut.
func TestWholeAnswers(t *testing.T) {
	for _, ep := range endpoints {
		for _, body := range wholes[ep] {
			if is := judge(ep, []byte(body), false); is != answers {
				t.Errorf("%s: %s is taken for %d", ep.Path(), body, is)
			}
			for n := range len(strings.TrimRight(body, " \n")) {
				if is := judge(ep, []byte(body[:n]), false); is != nothing {
					t.Errorf("%s: %s is taken for %d", ep.Path(), body[:n], is)
				}
			}
			s := newStub(t, func(x *exchange) bool { return x.answer(200, "", body) })
			r := newRig(t, Options{}, channelsFor(ep, s.url, vacant(t))...)
			resp, err := r.client.Do(t.Context(), r.cat, newRequest(t, r.cat, ep, asks[ep]), new(watcher))
			if err != nil {
				t.Fatalf("%s: %s: %v", ep.Path(), body, err)
			}
			if got, err := resp.Body(); string(got) != body || err != nil || resp.Status != 200 || resp.Refusal != nil {
				t.Errorf("%s: %d %s, %v", ep.Path(), resp.Status, got, err)
			}
			resp.Close()
			if h := r.client.Health(r.cat)[0]; h.Failures != 0 {
				t.Errorf("%s: %s: %+v", ep.Path(), body, h)
			}
		}
	}
}

// What is no answer is a failure of its channel, on every route: another one is asked, and where there is none nobody answers.
func TestWhatIsNoAnswer(t *testing.T) {
	for _, ep := range endpoints {
		for _, body := range noAnswers {
			if is := judge(ep, []byte(body), false); is != nothing {
				t.Errorf("%s: %s is taken for %d", ep.Path(), body, is)
			}
		}
		for _, body := range noAnswers[:12] {
			odd := newStub(t, func(x *exchange) bool { return x.answer(200, "", body) })
			good := newStub(t, func(x *exchange) bool { return x.answer(200, "", wholes[ep][0]) })
			r := newRig(t, Options{}, channelsFor(ep, odd.url, good.url)...)
			w := new(watcher)
			resp, err := r.client.Do(t.Context(), r.cat, newRequest(t, r.cat, ep, asks[ep]), w)
			if err != nil {
				t.Fatalf("%s: %s: %v", ep.Path(), body, err)
			}
			if got, err := resp.Body(); string(got) != wholes[ep][0] || err != nil || w.String() != "attempt a, sent a, refused a, attempt b, sent b" {
				t.Errorf("%s: %s: %s, %v; %s", ep.Path(), body, got, err, w)
			}
			resp.Close()
			if h := r.client.Health(r.cat)[0]; h.Failures != 1 {
				t.Errorf("%s: %s: %+v", ep.Path(), body, h)
			}
			if _, idle := r.conns("a"); idle != 1 {
				t.Errorf("%s: %s: its connection is not kept", ep.Path(), body)
			}
			alone := newRig(t, Options{}, channelsFor(ep, odd.url, odd.url)[0])
			_, err = alone.client.Do(t.Context(), alone.cat, newRequest(t, alone.cat, ep, asks[ep]), new(watcher))
			if e := asError(t, err, llm.KindUpstream); e.Code != "upstream_unavailable" {
				t.Errorf("%s: %s: %+v", ep.Path(), body, e)
			}
		}
	}
}

// An error is one by whatever it says so, and has the status that it stands for.
func TestWhatSaysItIsAnError(t *testing.T) {
	for body, status := range map[string]int{
		`{"object":"error","message":"too long","type":"BadRequestError","param":null,"code":400}`: 400,
		`{"object":"error","message":"x","type":"InternalServerError","code":500}`:                 500,
		`{"object":"error","message":"x","code":429}`:                                              429,
		`{"type":"error","message":"x"}`:                                                           500,
		"\xef\xbb\xbf{\"error\":{\"type\":\"rate_limit_error\"}}":                                  429,
		`{"\u0065rror":{"c\u006fde":"rate_limit_exceeded"}}`:                                       429,
		`{"\u0065rror":"x"}`: 500,
		`{"choices":[],"output":[],"content":[],"data":[],"error":{"code":503}}`:                                   503,
		`{"model":"m","error":{"code":503},"usage":{"prompt_tokens":0}}`:                                           503,
		`{"id":"r","object":"response","status":"failed","output":[],"error":{"code":"server_is_overloaded"}}`:     529,
		`{"choices":null,"error":{"message":"x","type":"invalid_request_error","code":"context_length_exceeded"}}`: 400,
	} {
		for _, ep := range endpoints {
			if is := judge(ep, []byte(body), false); is != refuses {
				t.Errorf("%s: %s is taken for %d", ep.Path(), body, is)
			}
			odd := newStub(t, func(x *exchange) bool { return x.answer(200, "", body) })
			good := newStub(t, func(x *exchange) bool { return x.answer(200, "", wholes[ep][0]) })
			r := newRig(t, Options{}, channelsFor(ep, odd.url, good.url)...)
			resp, err := r.client.Do(t.Context(), r.cat, newRequest(t, r.cat, ep, asks[ep]), new(watcher))
			if err != nil {
				t.Fatalf("%s: %s: %v", ep.Path(), body, err)
			}
			if h := r.client.Health(r.cat)[0]; h.LastStatus != status || (status == 400) != (resp.Status == 400) || (status == 400) != (good.requests.Load() == 0) {
				t.Errorf("%s: %s: %d, %+v", ep.Path(), body, resp.Status, h)
			}
			resp.Close()
		}
	}
}

// A member is what it is by its name, not by how it is written, and is then read so.
func TestRefusalsAreReadBehindAMark(t *testing.T) {
	for body, want := range map[string]string{
		"\xef\xbb\xbf{\"error\":{\"message\":\"long\",\"type\":\"invalid_request_error\"}}": "{\"error\":{\"message\":\"long\",\"type\":\"invalid_request_error\"}}",
		`{"\u0065rror":{"message":"long","type":"invalid_request_error"}}`:                  `{"\u0065rror":{"message":"long","type":"invalid_request_error"}}`,
		"\xef\xbb\xbf{\"object\":\"error\",\"message\":\"long\",\"code\":400}":              "",
	} {
		s := newStub(t, func(x *exchange) bool { return x.answer(200, "", body) })
		r := newRig(t, Options{}, openai("a", s.url))
		resp, err := r.do(t.Context(), plainBody, new(watcher))
		if err != nil {
			t.Fatal(err)
		}
		got, err := resp.Body()
		if err != nil || resp.Status != 400 || want != "" && (resp.Refusal != nil || string(got) != want) || want == "" && (resp.Refusal == nil || resp.Refusal.Message != "long") {
			t.Errorf("%q: %d %q %+v, %v", body, resp.Status, got, resp.Refusal, err)
		}
		resp.Close()
	}
}

// The usage of an answer behind a mark is its usage.
func TestUsageBehindAMark(t *testing.T) {
	body := "\xef\xbb\xbf" + `{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":3,"completion_tokens":2}}`
	if u, of, _, _ := BufferedUsage(llm.Chat, []byte(body)); !of.Whole() || u.InputTokens != 3 || u.OutputTokens != 2 {
		t.Errorf("%+v %+v", u, of)
	}
	body = "\xef\xbb\xbf" + `{"choices":[{"message":{"content":"hi"}}]}`
	if texts, unread := Generated(llm.Chat, []byte(body)); len(texts) != 1 || string(texts[0].In([]byte(body))) != "hi" || unread != 0 {
		t.Errorf("%v, %d unread", texts, unread)
	}
}

// streamAsk is a request of an endpoint for a stream.
func streamAsk(ep llm.Endpoint) string { return strings.TrimSuffix(asks[ep], "}") + `,"stream":true}` }

// A stream's first event is judged likewise, and a stream without one is no answer, whatever it is called.
func TestStreamsThatAreNoAnswer(t *testing.T) {
	streams := []string{"", ": hi\n\n", "data:\n\n", "event: ping\ndata:\n\n", "data: \n\ndata: \r\n\r\n", "OK", `{"choices":[]}`, sse("[DONE]"), "\xef\xbb\xbfdata: {}\n\n",
		sse(`{"object":"error","message":"x"}`), sse(`{"\u0065rror":{"message":"x"}}`), sse(`{"choices":[],"error":{"message":"x"}}`), sse(`{"choices":[],"\u0065rror":"x"}`),
		": hi\n\ndata:\n\n" + sse(`{}`), "event: x\r\ndata:{\r\ndata:}\r\n\r\n", "data: nul\n\n" + chunkEvent(1)}
	for _, data := range noAnswers {
		if strings.TrimSpace(data) != "" && !strings.HasPrefix(data, "data:") {
			streams = append(streams, sse(data))
		}
	}
	for _, ep := range []llm.Endpoint{llm.Chat, llm.Completions, llm.Responses, llm.Messages} {
		for _, stream := range streams {
			if stream == sse(`{"usage":{}}{"usage":{}}`) {
				continue
			}
			bad := newStub(t, func(x *exchange) bool {
				if stream == "" {
					return x.stream()
				}
				return x.stream(stream)
			})
			good := newStub(t, func(x *exchange) bool { return x.stream(sse(`{"type":"x","choices":[{"delta":{}}]}`)) })
			r := newRig(t, Options{}, channelsFor(ep, bad.url, good.url)...)
			req := newRequest(t, r.cat, ep, streamAsk(ep))
			req.Peek = 20e9
			w := new(watcher)
			resp, err := r.client.Do(t.Context(), r.cat, req, w)
			if err != nil {
				t.Fatalf("%s: %q: %v", ep.Path(), stream, err)
			}
			if h := r.client.Health(r.cat)[0]; w.String() != "attempt a, sent a, refused a, attempt b, sent b" || h.Failures != 1 {
				t.Errorf("%s: %q: %s; %+v", ep.Path(), stream, w, h)
			}
			resp.Close()
		}
	}
}

// How streams begin at servers of all kinds.
var beginnings = map[llm.Endpoint][]string{
	llm.Chat: {
		`{"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":{}}]}`,
		`{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}`,
		`{"choices":[{"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"t","function":{"name":"f","arguments":""}}]}}]}`,
		`{"choices":[{"delta":{"refusal":"no"}}]}`, `{"choices":[{"delta":{"content":"\"error\""}}]}`, `{"choices":[{"delta":{}}],"error":null}`, `{"choices":[]}`,
		`{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":0}}`, `{"type":"ping"}`, `{"id":"c","object":"chat.completion.chunk"}`, `{"model":"m","x_groq":{"id":"r"}}`,
		`{"choices":[{"delta":{"content":"a"}}],"error":{"code":500}}`,
	},
	llm.Completions: {`{"choices":[{"text":""}]}`, `{"choices":[{"text":"a","logprobs":null}]}`},
	llm.Responses: {`{"type":"response.created","response":{"id":"r","status":"in_progress","error":null,"output":[]}}`, `{"type":"ping"}`, `{"type":"keepalive","sequence_number":0}`,
		`{"type":"response.output_text.delta","delta":"a"}`, `{"type":"response.completed","response":{"output":[]}}`},
	llm.Messages: {`{"type":"message_start","message":{"id":"m","type":"message","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}`, `{"type":"ping"}`, `{"type": "ping"}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`},
}

// What begins as an answer may is passed to the byte, also in an event of several lines, behind a mark or by another name than a
// stream's.
func TestStreamsThatAreAnswers(t *testing.T) {
	for ep, first := range beginnings {
		for _, data := range first {
			for _, stream := range []string{sse(data), "event: ping\ndata: pong\n\n" + sse(data), ": hi\n\nevent: x\ndata:\n\n" + sse(data), strings.ReplaceAll("data:"+data, ":[", ":\ndata: [") + "\n\n"} {
				for _, head := range []string{"Content-Type: text/event-stream\r\n", "", "Content-Type: text/plain\r\n", "Content-Type: application/json\r\n"} {
					s := newStub(t, func(x *exchange) bool {
						return x.send("HTTP/1.1 200 OK\r\n"+head+"Transfer-Encoding: chunked\r\n\r\n") && x.chunk(stream) && x.send("0\r\n\r\n")
					})
					r := newRig(t, Options{}, channelsFor(ep, s.url, vacant(t))...)
					req := newRequest(t, r.cat, ep, streamAsk(ep))
					req.Peek = 20e9
					resp, err := r.client.Do(t.Context(), r.cat, req, new(watcher))
					if err != nil {
						t.Fatalf("%s: %q, %q: %v", ep.Path(), stream, head, err)
					}
					var got string
					if resp.Stream {
						var parts []string
						parts, err = readAll(resp)
						got = strings.Join(parts, "")
					} else {
						var body []byte
						body, err = resp.Body()
						got = string(body)
					}
					if got != stream || err != nil || resp.Status != 200 {
						t.Errorf("%s: %d %q of %q, %v", ep.Path(), resp.Status, got, stream, err)
					}
					resp.Close()
				}
			}
		}
	}
}
