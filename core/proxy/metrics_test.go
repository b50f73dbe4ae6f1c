package proxy_test

import (
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/core/upstream"
)

// metered tells whether the metrics have a line.
func (r *rig) metered(line string) bool {
	var b strings.Builder
	r.server.WriteMetrics(&b)
	return strings.Contains("\n"+b.String(), "\n"+line+"\n")
}

// Each attempt counts for the channel that it was made on, and what was sent again for the budget of retries.
func TestAttemptsCountForTheirChannel(t *testing.T) {
	bad := failing(t, "overloaded_error")
	r := newRig(t, func(s *setup) {
		s.catalog = func(c *catalog) {
			c.channels = append(c.channels, upstream.Channel{ID: 3, Name: "spare", Provider: "openai", BaseURL: c.channels[0].BaseURL, Priority: -1})
			c.channels[0].BaseURL = bad
		}
	})
	r.post("/v1/chat/completions", chat("gpt-4o", `,"stream":true`), "x-sim", "out=5").want(t, 200)
	r.idle()
	for _, line := range []string{`weir_upstream_attempts_total{channel="openai-1"} 1`, `weir_upstream_attempts_total{channel="spare"} 1`,
		`weir_upstream_retries_total{result="sent"} 1`, `weir_upstream_retries_total{result="refused"} 0`} {
		if !r.metered(line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
}

// What a policy said of one org's request is not in the log of another's that is refused before any policy is asked.
func TestTheLogNamesNoPolicyOfAnotherRequest(t *testing.T) {
	r := newRig(t)
	d := &direct{r: r}
	d.ctx.Init(&fasthttp.Request{}, nil, nil)
	r.policy.decide = func(_ *policy.Facts, d *policy.Decision) {
		d.Tenant = policy.TenantPart{Module: "theirs", Version: "cd34", Message: "their rule"}
	}
	ask := func(status int, model string) (line string) {
		before := r.log.Len()
		d.is(t, status, "POST", "/v1/chat/completions", r.token, chat(model, `,"max_tokens":5`))
		return r.log.String()[before:]
	}
	for range 10 {
		if line := ask(200, "gpt-4o"); !strings.Contains(line, "tenant_policy=theirs") {
			t.Fatalf("the log has %s", line)
		}
		if line := ask(400, "priceless"); !strings.Contains(line, "price_not_configured") || strings.Contains(line, "theirs") || strings.Contains(line, "their rule") {
			t.Fatalf("no policy was asked, and the log has %s", line)
		}
	}
}

// Whoever scrapes sees how each channel fares, and histograms that Prometheus can take quantiles of.
func TestMetricsOfChannelsAndTimes(t *testing.T) {
	up := newPlayer(t)
	r := newRig(t, func(s *setup) {
		s.catalog = func(c *catalog) { c.channels[0].BaseURL, c.channels[0].ConcurrencyLimit = up.URL, 7 }
	})
	c, a := r.chunks("/v1/chat/completions", streamed(everyRoute[0])), up.play()
	name := `{channel="openai-1"}`
	for _, line := range []string{"weir_channel_up" + name + " 1", "weir_channel_in_flight" + name + " 1", "weir_channel_limit" + name + " 7", "weir_channel_waiting" + name + " 0"} {
		if !r.metered(line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
	end := []byte(`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n")
	a.send(end, len(end))
	a.end()
	for range 2 {
		_, err := c.next()
		must(t, err)
	}
	r.idle()
	for _, line := range []string{"weir_channel_in_flight" + name + " 0", `weir_request_duration_seconds_bucket{endpoint="chat",le="300"} 1`} {
		if !r.metered(line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
}
