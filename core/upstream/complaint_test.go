package upstream

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

func page(code int, kind, body string) func(*exchange) bool {
	return func(x *exchange) bool {
		return x.send(fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", code, kind, len(body), body))
	}
}

// A 404 or 405 that no API says is a channel that leads nowhere: the next one is asked, and it cools.
func TestAPathThatIsNotThereIsTheChannels(t *testing.T) {
	for _, tt := range []struct {
		name string
		bad  func(*exchange) bool
		over bool
	}{
		{"a web page", page(404, "text/html", "<html>nginx</html>"), true},
		{"nothing", page(404, "application/json", ""), true},
		{"a list", page(404, "application/json", "[1]"), true},
		{"null", page(404, "application/json", "null"), true},
		{"half an error", page(404, "application/json", `{"error":{"message":"x"}`), true},
		{"FastAPI's", page(404, "application/json", `{"detail":"Not Found"}`), true},
		{"a gateway's", page(404, "application/json", `{"statusCode":404,"message":"Resource not found"}`), true},
		{"no error", page(404, "application/json", `{"error":null}`), true},
		{"405", page(405, "text/plain", "Method Not Allowed"), true},
		{"OpenAI's", page(404, "application/json", `{"error":{"message":"no such model","type":"invalid_request_error"}}`), false},
		{"Ollama's", page(404, "application/json", `{"error":"model 'm' not found"}`), false},
		{"vLLM's", page(404, "application/json", `{"object":"error","message":"no such model","code":404}`), false},
		{"a broken one", func(x *exchange) bool {
			x.send("HTTP/1.1 400 X\r\nContent-Length: 100\r\n\r\n{\"error\":{\"message\":")
			return false
		}, true},
	} {
		first, second := newStub(t, tt.bad), newStub(t, fine)
		a, b := openai("a", first.url), openai("b", second.url)
		a.Priority = 1
		r := newRig(t, Options{}, a, b)
		for range threshold + 2 {
			st, _, err := r.call()
			if err != nil || (st == 200) != tt.over {
				t.Fatalf("%s: %d, %v", tt.name, st, err)
			}
		}
		if h := r.client.Health(r.cat)[0]; (h.State == "cooling") != tt.over {
			t.Errorf("%s: %+v", tt.name, h)
		}
		alone := newRig(t, Options{}, a)
		_, _, err := alone.call()
		if !tt.over {
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if e := asError(t, err, llm.KindUpstream); e.Code != "upstream_unavailable" || strings.Contains(e.Message, "nginx") {
			t.Errorf("%s: %+v", tt.name, e)
		}
	}
}

// That a server lacks what not all have does not keep its channel from what it has.
func TestARouteThatIsNotThereSaysNothingOfOthers(t *testing.T) {
	st := newStub(t, func(x *exchange) bool {
		if strings.HasSuffix(x.req.URL.Path, "/embeddings") {
			return page(404, "text/plain", "404 page not found")(x)
		}
		return fine(x)
	})
	r := newRig(t, Options{}, openai("a", st.url))
	for range 2 * threshold {
		_, err := r.client.Do(context.Background(), r.cat, newRequest(t, r.cat, llm.Embeddings, `{"model":"m","input":"hi"}`), new(watcher))
		e := asError(t, err, llm.KindUpstream)
		contains(t, e.Err.Error(), "/v1/embeddings")
	}
	if _, _, err := r.call(); err != nil {
		t.Error(err)
	}
}

// What refuses a request in words that are not the dialect's is told in ours, with no more of it than its text.
func TestWhatRefusesARequestInOtherWords(t *testing.T) {
	long := strings.Repeat("é", complaintText)
	for _, tt := range []struct{ body, want string }{
		{`<html>nginx/1.25</html>`, "the upstream refused the request with status 400"},
		{``, "the upstream refused the request with status 400"},
		{`[1]`, "the upstream refused the request with status 400"},
		{`{"code":7}`, "the upstream refused the request with status 400"},
		{`{"detail":"x is \u00fcber"}`, "x is über"},
		{`{"detail":[{"loc":["body"],"msg":"field required"}]}`, `[{"loc":["body"],"msg":"field required"}]`},
		{`{"object":"error","message":"too long","code":40001}`, "too long"},
		{`{"error":"no such luck"}`, "no such luck"},
		{`{"detail":"` + long + `"}`, long[:complaintText]},
		{`{"detail":"a sk-secret-a b"}`, "a [redacted] b"},
		{`{"error":{"message":"` + strings.Repeat("x", complaintBytes) + `"}}`, "the upstream refused the request with status 400"},
		{`{"error":{"message":"its own"}}`, ""},
		{` {"type":"error","error":{"type":"invalid_request_error"}}`, ""},
	} {
		st := newStub(t, page(400, "text/html", tt.body))
		r := newRig(t, Options{}, openai("a", st.url))
		resp, err := r.do(context.Background(), plainBody, new(watcher))
		if err != nil {
			t.Fatal(err)
		}
		body, err := resp.Body()
		switch e := resp.Refusal; {
		case resp.Status != 400 || err != nil:
			t.Errorf("%.60s: %d, %v", tt.body, resp.Status, err)
		case (e == nil) != (tt.want == "") || e == nil && (string(body) != tt.body || resp.ContentType != "application/json"):
			t.Errorf("%.60s: %+v, %s", tt.body, e, body)
		case e != nil && (e.Message != tt.want || e.Status != 400):
			t.Errorf("%.60s: %+v", tt.body, e)
		}
		resp.Close()
		if open, _ := r.conns("a"); len(tt.body) < complaintBytes && open != 1 {
			t.Errorf("%.60s: the connection was not kept", tt.body)
		}
	}
}
