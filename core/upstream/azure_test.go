package upstream

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/weir-gateway/weir/core/llm"
)

// Azure OpenAI wants the deployment and a version in the path, and its key in a header of its own.
func TestAzure(t *testing.T) {
	var got *http.Request
	var body string
	st := newStub(t, func(x *exchange) bool { got, body = x.req, x.body; return fine(x) })
	azure := openai("a", st.url)
	azure.APIVersion = "2024-10-21"
	r := newRig(t, Options{}, azure)
	r.cat = mustCatalog(t, []Model{{Name: "m"}, {Name: "renamed", Target: "our gpt/4o"}}, []Channel{azure})
	for _, tt := range []struct {
		ep         llm.Endpoint
		body, want string
	}{
		{llm.Chat, `{"model":"renamed","messages":[{"role":"user","content":"hi"}]}`, "/openai/deployments/our%20gpt%2F4o/chat/completions?api-version=2024-10-21"},
		{llm.Chat, `{"model":"m","messages":[{"role":"user","content":"hi"}]}`, "/openai/deployments/m/chat/completions?api-version=2024-10-21"},
		{llm.Completions, `{"model":"m","prompt":"x"}`, "/openai/deployments/m/completions?api-version=2024-10-21"},
		{llm.Embeddings, `{"model":"m","input":"x"}`, "/openai/deployments/m/embeddings?api-version=2024-10-21"},
		{llm.Responses, `{"model":"renamed","input":"x"}`, "/openai/responses?api-version=2024-10-21"},
	} {
		resp, err := r.client.Do(context.Background(), r.cat, newRequest(t, r.cat, tt.ep, tt.body), new(watcher))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := resp.Body(); err != nil {
			t.Fatal(err)
		}
		resp.Close()
		if got.RequestURI != tt.want {
			t.Errorf("asked %s, want %s", got.RequestURI, tt.want)
		}
	}
	want := http.Header{"Api-Key": {"sk-secret-a"}, "Content-Type": {"application/json"}, "Accept": {"application/json"}, "Accept-Encoding": {"identity"},
		"X-Request-Id": {"req-1"}, "User-Agent": {"weir"}, "Content-Length": got.Header["Content-Length"]}
	if d := cmp.Diff(want, got.Header); d != "" || !strings.Contains(body, `"our gpt/4o"`) {
		t.Error(d, body)
	}
}

// Azure's streams begin with what its filters found in the prompt, without choices: it is passed on, and is no end.
func TestAzureStream(t *testing.T) {
	parts := []string{
		`data: {"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}}}]}` + "\n\n",
		`data: {"choices":[{"content_filter_results":{},"delta":{"content":"hi","role":"assistant"},"finish_reason":null,"index":0}],"id":"chatcmpl-1","model":"gpt-4o-mini"}` + "\n\n",
		`data: {"choices":[],"id":"chatcmpl-1","usage":{"completion_tokens":1,"prompt_tokens":9,"total_tokens":10}}` + "\n\n",
		"data: [DONE]\n\n",
	}
	st := newStub(t, func(x *exchange) bool { return x.stream(parts...) })
	azure := openai("a", st.url)
	azure.APIVersion = "2024-10-21"
	r := newRig(t, Options{}, azure)
	resp, err := r.do(context.Background(), streamBody, new(watcher))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Close()
	p := NewParser(llm.Chat)
	var shape []string
	var usage llm.Usage
	for {
		raw, err := resp.Next()
		if err != nil {
			break
		}
		p.Parse(raw, func(e *Event) {
			switch {
			case e.Terminal:
				shape = append(shape, "end")
			case e.Empty:
				shape, usage = append(shape, "usage"), e.Usage
			default:
				shape = append(shape, "event")
			}
		})
	}
	if !cmp.Equal(shape, []string{"event", "event", "usage", "end"}) || usage.InputTokens != 9 || usage.OutputTokens != 1 {
		t.Error(shape, usage)
	}
}

func TestAPIVersionsAreChecked(t *testing.T) {
	for _, tt := range []struct{ provider, url, version, want string }{
		{"openai", "https://r.openai.azure.com", "2024-10-21", ""},
		{"openai", "https://r.openai.azure.com/", "2025-04-01-preview", ""},
		{"openai", "https://r.openai.azure.com/openai/v1", "", ""},
		{"openai", "https://r.openai.azure.com/openai/v1", "2024-10-21", "leave the api-version out"},
		{"openai", "https://r.openai.azure.com/openai", "2024-10-21", "ends with the host"},
		{"openai", "https://r.openai.azure.com/openai/deployments/d", "2024-10-21", "ends with the host"},
		{"openai", "https://r.openai.azure.com", "2024-10-21 HTTP/1.1", "expected something like 2024-10-21"},
		{"openai", "https://r.openai.azure.com", "x&y=z", "expected something like 2024-10-21"},
		{"anthropic", "https://r.openai.azure.com", "2024-10-21", "whose provider is openai"},
	} {
		_, err := NewCatalog(nil, []Channel{{Name: "a", Provider: tt.provider, BaseURL: tt.url, APIVersion: tt.version}})
		if tt.want == "" && err == nil {
			continue
		}
		if tt.want == "" {
			t.Errorf("%s %s: %v", tt.url, tt.version, err)
			continue
		}
		contains(t, asError(t, err, llm.KindInvalid).Message, tt.want)
	}
}
