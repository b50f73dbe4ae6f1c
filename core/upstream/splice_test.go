package upstream

import (
	"bytes"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

func spliced(t *testing.T, req *Request) string {
	t.Helper()
	o := newOutgoing(req)
	defer o.free()
	l := &lane{channel: Channel{Provider: "openai"}}
	var out bytes.Buffer
	if err := o.send(&out, l); err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(out.String(), "\r\n\r\n")
	if int64(len(body)) != o.length {
		t.Fatalf("announced %d bytes, sent %d", o.length, len(body))
	}
	return body
}

func TestSplicesChangeOnlyWhatTheyMust(t *testing.T) {
	msgs := `"messages":[{"role":"user","content":"hi"}]`
	for _, tt := range []struct {
		name     string
		ep       llm.Endpoint
		model    Model
		granted  llm.Tokens
		in, want string
	}{
		{"nothing to change", llm.Chat, Model{Name: "m"}, 0,
			`{ "model" : "m", "max_tokens":5 , ` + msgs + ` }`, `{ "model" : "m", "max_tokens":5 , ` + msgs + ` }`},
		{"target", llm.Chat, Model{Name: "m", Target: "org/x"}, 0, `{"model":"m",` + msgs + `}`, `{"model":"org/x",` + msgs + `}`},
		{"M07 no cap", llm.Chat, Model{Name: "m"}, 100, `{"model":"m",` + msgs + `}`, `{"max_tokens":100,"model":"m",` + msgs + `}`},
		{"no cap, reasoning model", llm.Chat, Model{Name: "m", Target: "openai/gpt-5-mini"}, 100,
			`{"model":"m",` + msgs + `}`, `{"max_completion_tokens":100,"model":"openai/gpt-5-mini",` + msgs + `}`},
		{"no cap, responses", llm.Responses, Model{Name: "m"}, 100, `{"model":"m","input":"x"}`, `{"max_output_tokens":100,"model":"m","input":"x"}`},
		{"no cap, completions of a reasoning name", llm.Completions, Model{Name: "o3"}, 9, `{"model":"m","prompt":"x"}`, `{"max_tokens":9,"model":"m","prompt":"x"}`},
		{"null cap", llm.Chat, Model{Name: "m"}, 100, `{"max_tokens":null,"model":"m",` + msgs + `}`, `{"max_tokens":100,"model":"m",` + msgs + `}`},
		{"null cap of the other name", llm.Chat, Model{Name: "o3"}, 100,
			`{"max_tokens": null,"model":"m",` + msgs + `}`, `{"max_completion_tokens":100,"max_tokens": null,"model":"m",` + msgs + `}`},
		{"two nulls", llm.Chat, Model{Name: "gpt-4o"}, 100,
			`{"max_completion_tokens":null,"max_tokens" : null,"model":"m",` + msgs + `}`, `{"max_completion_tokens":null,"max_tokens" : 100,"model":"m",` + msgs + `}`},
		{"cap below the grant", llm.Chat, Model{Name: "m"}, 100, `{"model":"m","max_tokens":7,` + msgs + `}`, `{"model":"m","max_tokens":7,` + msgs + `}`},
		{"cap above the grant", llm.Chat, Model{Name: "m"}, 100, `{"model":"m","max_tokens":5000,` + msgs + `}`, `{"model":"m","max_tokens":100,` + msgs + `}`},
		{"L03 both caps", llm.Chat, Model{Name: "m"}, 100, `{"model":"m","max_tokens":1,"max_completion_tokens":900,` + msgs + `}`,
			`{"model":"m","max_tokens":1,"max_completion_tokens":100,` + msgs + `}`},
		{"shared by choices", llm.Chat, Model{Name: "m"}, 100, `{"model":"m","n":3,"max_tokens":64,` + msgs + `}`, `{"model":"m","n":3,"max_tokens":33,` + msgs + `}`},
		{"never below one", llm.Chat, Model{Name: "m"}, 2, `{"model":"m","n":3,"max_tokens":64,` + msgs + `}`, `{"model":"m","n":3,"max_tokens":1,` + msgs + `}`},
		{"embeddings have none", llm.Embeddings, Model{Name: "m"}, 100, `{"model":"m","input":"x"}`, `{"model":"m","input":"x"}`},
		{"count_tokens has none", llm.CountTokens, Model{Name: "m"}, 100, `{"model":"m",` + msgs + `}`, `{"model":"m",` + msgs + `}`},
		{"messages", llm.Messages, Model{Name: "m"}, 100, `{"model":"m","max_tokens":4096,"stream":true,` + msgs + `}`, `{"model":"m","max_tokens":100,"stream":true,` + msgs + `}`},
		{"S03 absent", llm.Chat, Model{Name: "m"}, 0, `{"model":"m","stream":true,` + msgs + `}`, `{"stream_options":{"include_usage":true},"model":"m","stream":true,` + msgs + `}`},
		{"S03 true", llm.Chat, Model{Name: "m"}, 0, `{"model":"m","stream":true,"stream_options":{"include_usage":true},` + msgs + `}`, `{"model":"m","stream":true,"stream_options":{"include_usage":true},` + msgs + `}`},
		{"S03 false", llm.Chat, Model{Name: "m"}, 0, `{"model":"m","stream":true,"stream_options":{"a":1, "include_usage" : false ,"b":2},` + msgs + `}`,
			`{"model":"m","stream":true,"stream_options":{"a":1, "include_usage" : true ,"b":2},` + msgs + `}`},
		{"S03 null value", llm.Chat, Model{Name: "m"}, 0, `{"model":"m","stream":true,"stream_options":{"include_usage":null},` + msgs + `}`,
			`{"model":"m","stream":true,"stream_options":{"include_usage":true},` + msgs + `}`},
		{"S03 null options", llm.Chat, Model{Name: "m"}, 0, `{"model":"m","stream":true,"stream_options":null,` + msgs + `}`,
			`{"model":"m","stream":true,"stream_options":{"include_usage":true},` + msgs + `}`},
		{"S03 empty options", llm.Completions, Model{Name: "m"}, 0, `{"model":"m","stream":true,"stream_options":{ },"prompt":"x"}`,
			`{"model":"m","stream":true,"stream_options":{"include_usage":true },"prompt":"x"}`},
		{"S03 other options", llm.Chat, Model{Name: "m"}, 0, `{"model":"m","stream":true,"stream_options":{"include_obfuscation":false},` + msgs + `}`,
			`{"model":"m","stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false},` + msgs + `}`},
		{"S03 not streamed", llm.Chat, Model{Name: "m"}, 0, `{"model":"m","stream":false,` + msgs + `}`, `{"model":"m","stream":false,` + msgs + `}`},
		{"S03 responses report by themselves", llm.Responses, Model{Name: "m"}, 0, `{"model":"m","stream":true,"input":"x"}`, `{"model":"m","stream":true,"input":"x"}`},
		{"all at once", llm.Chat, Model{Name: "m", Target: "inner"}, 10, `{"stream":true,"max_tokens":99,"model":"m",` + msgs + `}`,
			`{"stream_options":{"include_usage":true},"stream":true,"max_tokens":10,"model":"inner",` + msgs + `}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := &Request{Head: new(llm.Head), Body: []byte(tt.in), Model: &tt.model, Granted: tt.granted}
			if err := llm.ScanHead(tt.ep, req.Body, req.Head); err != nil {
				t.Fatal(err)
			}
			got := spliced(t, req)
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			var again llm.Head
			if err := llm.ScanHead(tt.ep, []byte(got), &again); err != nil {
				t.Errorf("what is sent is not what would be accepted: %v", err)
			}
			if string(req.Body) != tt.in {
				t.Error("the client's body was changed in place")
			}
		})
	}
}

// A long body goes out in pieces around the edits, each byte once.
func TestSpliceLongBodies(t *testing.T) {
	for _, size := range []int{100, sendBuffer - 200, sendBuffer, sendBuffer + 1, 3 * sendBuffer, 1 << 20} {
		in := `{"messages":[{"role":"user","content":"` + strings.Repeat("x", size) + `"}],"max_tokens":500,"model":"m"}`
		req := &Request{Head: new(llm.Head), Body: []byte(in), Model: &Model{Name: "m", Target: "target"}, Granted: 10}
		if err := llm.ScanHead(llm.Chat, req.Body, req.Head); err != nil {
			t.Fatal(err)
		}
		want := strings.Replace(strings.Replace(in, `"model":"m"`, `"model":"target"`, 1), ":500,", ":10,", 1)
		if got := spliced(t, req); got != want {
			t.Errorf("%d bytes: the body arrived changed", size)
		}
	}
}
