package proxy_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/upstream"
)

// failing is an upstream that answers 200 and then says in its first event what is wrong.
func failing(t *testing.T, kind string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		event := `{"error":{"message":"as it is","type":"` + kind + `","code":null}}`
		switch q.URL.Path {
		case "/v1/responses":
			event = `{"type":"error","code":"` + kind + `","message":"as it is","param":null,"sequence_number":0}`
		case "/v1/messages":
			event = `{"type":"error","error":{"type":"` + kind + `","message":"as it is"}}`
		}
		_, _ = io.WriteString(w, "event: error\ndata: "+event+"\n\n")
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// An upstream that is overloaded says so behind a status of 200: another channel serves the stream, and the client sees
// nothing of it. Where there is none it gets an error that its SDK tries again, and owes nothing.
func TestAnErrorInTheFirstEventFailsOver(t *testing.T) {
	url := failing(t, "overloaded_error")
	for _, spare := range []bool{true, false} {
		r := newRig(t, func(s *setup) {
			s.catalog = func(c *catalog) { c.channels[0].BaseURL, c.channels[1].BaseURL = url, url }
		})
		if spare {
			r.cat.channels = append(r.cat.channels,
				upstream.Channel{ID: 3, Name: "openai-2", Provider: "openai", BaseURL: r.simURL, Priority: -1},
				upstream.Channel{ID: 4, Name: "anthropic-2", Provider: "anthropic", BaseURL: r.simURL, Priority: -1})
			r.setCatalog()
		}
		for _, x := range streams() {
			p := r.post(x.path, x.with(`,"stream":true`), "x-sim", "out=20,usage_in=30,usage_out=20")
			r.idle()
			e := r.journal.last(t)
			if spare {
				p.want(t, 200)
				if ev := p.events(); !strings.Contains(ev[len(ev)-1], terminal(x.path)) || strings.Contains(string(p.body), "as it is") || e.Usage.OutputTokens != 20 || !strings.HasSuffix(e.Channel, "-2") {
					t.Errorf("%s: %+v\n%s", x.path, e, p.body)
				}
				continue
			}
			if p.want(t, 502).code(t, "upstream_unavailable"); e.Cost != 0 || e.Usage.Total() != 0 {
				t.Errorf("%s: %+v", x.path, e)
			}
		}
	}
}

// What is wrong with the request itself is a status too, and no other channel is asked.
func TestARefusalInTheFirstEventIsAStatus(t *testing.T) {
	kinds := map[string]string{"/v1/responses": "invalid_prompt"}
	for _, x := range streams() {
		kind := kinds[x.path]
		if kind == "" {
			kind = "invalid_request_error"
		}
		url := failing(t, kind)
		r := newRig(t, func(s *setup) {
			s.catalog = func(c *catalog) { c.channels[0].BaseURL, c.channels[1].BaseURL = url, url }
		})
		p := r.post(x.path, x.with(`,"stream":true`)).want(t, 400)
		if !strings.Contains(string(p.body), "as it is") || p.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %v %s", x.path, p.header, p.body)
		}
		r.idle()
		if e := r.journal.last(t); e.Cost != 0 || e.HTTPStatus != 400 {
			t.Errorf("%s: %+v", x.path, e)
		}
	}
}

// A client that leaves before the first event is noticed on every route, and the upstream is closed.
func TestS05ClientLeavesWhileTheFirstEventIsAwaited(t *testing.T) {
	r := newRig(t)
	for _, x := range streams() {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, err := http.DefaultClient.Do(r.request(x.path, streamed(x), "x-sim", "silent=60s").WithContext(ctx)); err == nil {
				t.Errorf("%s: a head before the first event: %d", x.path, resp.StatusCode)
				_ = resp.Body.Close()
			}
		}()
		eventually(t, func() bool { return r.sim.Stats().Open == 1 }, "never sent")
		start := time.Now()
		cancel()
		<-done
		r.idle()
		eventually(t, func() bool { return r.sim.Stats().Open == 0 }, "the upstream still works")
		if took := time.Since(start); took > patience*time.Second {
			t.Errorf("%s: the upstream is closed after %v", x.path, took)
		}
		if e := r.journal.last(t); e.Status != llm.StatusPartial || e.Usage.InputTokens == 0 || e.Usage.OutputTokens != 0 {
			t.Errorf("%s: %+v", x.path, e)
		}
	}
}
