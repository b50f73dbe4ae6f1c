package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

// One absurd number does not take a fortune: it counts as not reported, and is told to the operator once.
func TestAbsurdUsageIsNotBelieved(t *testing.T) {
	for _, usage := range []string{
		`"usage":{"prompt_tokens":20000000,"completion_tokens":2}`, `"usage":{"prompt_tokens":2,"completion_tokens":999999999999}`, `"usage":{"prompt_tokens":2,"completion_tokens":1e11}`,
	} {
		for _, x := range []struct {
			up   option
			body string
		}{
			{answering(t, `{"choices":[{"message":{"content":"one two three"}}],`+usage+`}`), everyRoute[0].body},
			{saying(t, false, lines(`{"choices":[{"delta":{"content":"one two three"}}],`+usage+`}`), lines(`{"choices":[],`+usage+`}`, "[DONE]")), streamed(everyRoute[0])},
		} {
			r := newRig(t, x.up)
			r.post("/v1/chat/completions", x.body).want(t, 200)
			r.idle()
			if e := r.journal.last(t); e.Usage.OutputTokens != 3 || e.Usage.InputTokens > 100 || !e.Estimated || e.Status != llm.StatusFinalized {
				t.Errorf("%s: %+v", usage, e)
			}
			if n := strings.Count(r.log.String(), "not believed"); n != 1 {
				t.Errorf("%s: told %d times", usage, n)
			}
			if !strings.Contains(r.metrics(), "weir_usage_disbelieved_total ") {
				t.Error("not counted")
			}
		}
	}
	granted := newRig(t, saying(t, false, lines(`{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":12000000}}`, "[DONE]")))
	granted.post("/v1/chat/completions", chat("gpt-4o", `,"stream":true,"n":100,"max_tokens":2000`)).want(t, 200)
	granted.idle()
	if e := granted.journal.last(t); e.Usage.OutputTokens != 12_000_000 || e.Estimated {
		t.Errorf("much, but 100 times what was granted is more: %+v", e)
	}
	r := newRig(t, answering(t, `{"choices":[],"usage":{"prompt_tokens":9000000,"completion_tokens":100.0}}`))
	r.post("/v1/chat/completions", everyRoute[0].body).want(t, 200)
	if e := r.journal.last(t); e.Usage.InputTokens != 9_000_000 || e.Usage.OutputTokens != 100 || e.Estimated {
		t.Errorf("much, but possible: %+v", e)
	}
}

// An upstream that answers with nothing has not answered: nothing is owed.
func TestEmptyAnswersAreNotPaid(t *testing.T) {
	for _, status := range []int{200, 204, 205, 304} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		t.Cleanup(s.Close)
		r := newRig(t, func(o *setup) {
			o.catalog = func(c *catalog) { c.channels[0].BaseURL = s.URL }
		})
		r.post("/v1/chat/completions", everyRoute[0].body).want(t, 502).code(t, "upstream_unavailable")
		if left, _ := r.limits.Balance(idUser); left != startBalance {
			t.Errorf("%d costs %d", status, startBalance-left)
		}
	}
}

// Another major version than 1 in the request line is no request that can be read here.
func TestHTTP2InARequestLine(t *testing.T) {
	r := newRig(t)
	body := chat("gpt-4o", "")
	raw := r.raw(strings.Replace(r.rawHead("/v1/chat/completions", "Authorization: Bearer ", r.token, "\r\nContent-Length: ", itoa(len(body)), "\r\n\r\n", body), "HTTP/1.1", "HTTP/2.0", 1))
	if !strings.HasPrefix(raw, "HTTP/1.1 505 ") || !strings.Contains(raw, "http_version_not_supported") {
		t.Errorf("%s", raw)
	}
}
