package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

// An error with the status of a success is an error, and its channel's as it would be with its own status: nothing is owed for
// it.
func TestErrorsThatSay200(t *testing.T) {
	var body string
	for _, x := range everyRoute {
		for _, tt := range []struct {
			body   string
			status int
		}{
			{`{"error":{"message":"quota exceeded at the provider","code":429}}`, 429},
			{`{"type":"error","error":{"type":"overloaded_error","message":"x"},"request_id":"r"}`, 502},
			{`{"error":"no such luck"}`, 502},
			{`{"error":{"type":"authentication_error","message":"your key sk-1"}}`, 502},
			{`{"error":{"type":"invalid_request_error","message":"too long"}}`, 400},
		} {
			body = tt.body
			r := sameAnswers(t, &body)
			p := r.post(x.path, x.body).want(t, tt.status)
			if line := r.accessLine(p.header.Get("X-Request-Id")); !strings.Contains(line, " code=upstream_") {
				t.Errorf("the log does not say why: %s", line)
			}
			if tt.status == 502 && strings.Contains(string(p.body), "sk-1") {
				t.Errorf("%s", p.body)
			}
			if e := r.journal.last(t); e.Cost != 0 || e.Usage != (llm.Usage{}) || e.Status == llm.StatusFinalized || e.Status == llm.StatusPartial {
				t.Errorf("%s, %s: %+v", x.path, tt.body, e)
			}
			if left, held := r.limits.Balance(idUser); left != startBalance || held != 0 {
				t.Errorf("%d is left", left)
			}
			if strings.Contains(r.log.String(), "no such luck") {
				t.Error("the upstream's words, which may repeat the prompt, are in the log")
			}
		}
	}
	r := sameAnswers(t, &body)
	for _, fine := range []string{`{"error":null,"choices":[{"message":{"content":"a"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`,
		`{"choices":[{"message":{"content":"\"error\""}}],"error":{"code":429},"usage":{"prompt_tokens":1,"completion_tokens":1}}`} {
		body = fine
		r.post("/v1/chat/completions", everyRoute[0].body).want(t, 200)
		if e := r.journal.last(t); e.Usage.OutputTokens != 1 {
			t.Errorf("%s: %+v", fine, e)
		}
	}
}

// A web page is no answer: the next channel is asked.
func TestWebPages(t *testing.T) {
	for _, kind := range []string{"text/html", "Text/HTML; charset=utf-8", "application/xhtml+xml"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = w.Write([]byte("<script>alert(1)</script>"))
		}))
		t.Cleanup(s.Close)
		r := newRig(t, func(o *setup) {
			o.catalog = func(c *catalog) { c.channels[0].BaseURL, c.channels[1].BaseURL = s.URL, s.URL }
		})
		for _, more := range []string{"", `,"stream":true`} {
			p := r.post("/v1/chat/completions", chat("gpt-4o", more)).want(t, 502)
			if strings.Contains(string(p.body), "script") {
				t.Errorf("%s: %s", kind, p.body)
			}
		}
		if left, _ := r.limits.Balance(idUser); left != startBalance {
			t.Errorf("%s: %d is left", kind, left)
		}
	}
}

// What refuses a request in other words than an API's reaches the client as an error of the dialect, and a path that is not there
// as an upstream that is not available; nothing of a page does.
func TestRefusalsInOtherWords(t *testing.T) {
	for _, tt := range []struct {
		code         int
		body, kind   string
		want         int
		message, typ string // typ is Anthropic's
	}{
		{400, "<html>nginx SECRET</html>", "text/html", 400, "the upstream refused the request with status 400", "invalid_request_error"},
		{413, "<html>nginx SECRET</html>", "text/html", 413, "the upstream refused the request with status 413", "request_too_large"},
		{422, `{"detail":"x is \"short\""}`, "application/json", 422, `x is "short"`, "invalid_request_error"},
		{400, `{"object":"error","message":"too long","SECRET":1}`, "application/json", 400, "too long", "invalid_request_error"},
		{400, `["SECRET"]`, "application/json", 400, "the upstream refused the request with status 400", "invalid_request_error"},
		{404, "<html>nginx SECRET</html>", "text/html", 502, "", ""},
		{405, "", "", 502, "", ""},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", tt.kind)
			w.WriteHeader(tt.code)
			_, _ = w.Write([]byte(tt.body))
		}))
		t.Cleanup(s.Close)
		r := newRig(t, func(o *setup) {
			o.catalog = func(c *catalog) { c.channels[0].BaseURL, c.channels[1].BaseURL = s.URL, s.URL }
		})
		for _, x := range everyRoute {
			p := r.post(x.path, x.body).want(t, tt.want)
			if kind := p.header.Get("Content-Type"); kind != "application/json" || strings.Contains(string(p.body), "SECRET") {
				t.Errorf("%d, %s: %s %s", tt.code, x.path, kind, p.body)
			}
			if tt.want == 502 {
				p.code(t, "upstream_unavailable")
				continue
			}
			f := p.code(t, "upstream_refused")
			if typ := f["type"]; f["message"] != tt.message || strings.Contains(x.path, "messages") && typ != tt.typ {
				t.Errorf("%d, %s: %s", tt.code, x.path, p.body)
			}
			if log := r.accessLine(p.header.Get("X-Request-Id")); strings.Contains(log, "short") || !strings.Contains(log, "code=upstream_refused") {
				t.Errorf("%s", log)
			}
			if e := r.journal.last(t); e.Cost != 0 {
				t.Errorf("%d, %s: %+v", tt.code, x.path, e)
			}
		}
		if left, held := r.limits.Balance(idUser); left != startBalance || held != 0 {
			t.Errorf("%d: %d is left, %d held", tt.code, left, held)
		}
	}
}
