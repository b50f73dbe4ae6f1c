package proxy

import (
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/upstream"
)

// meters are the proxy's metrics. Every label value comes from a fixed set or from the operator's own names: what a
// client sends never makes a series.
type meters struct {
	set          *metrics.Set
	requests     [routes][600]atomic.Pointer[metrics.Counter]         // by endpoint and status
	denials      [len(axisNames)][256]atomic.Pointer[metrics.Counter] // by axis and kind of dimension
	seconds      [routes]*metrics.PrometheusHistogram
	firstByte    *metrics.PrometheusHistogram
	input        *metrics.Counter
	cached       *metrics.Counter
	output       *metrics.Counter
	clipped      *metrics.Counter
	clientGone   *metrics.Counter
	authFailures *metrics.Counter
	panics       *metrics.Counter
	disbelieved  *metrics.Counter
	abnormal     *metrics.Counter
	shadowPolicy *metrics.Counter
	shadowLimit  *metrics.Counter
	attempts     sync.Map // channel name -> *metrics.Counter
}

// buckets of the histograms, in seconds: from an answer of the gateway's own to the longest stream.
var buckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

func newMeters(l limit.Limiter) *meters {
	set := metrics.NewSet()
	m := &meters{set: set,
		firstByte:    set.NewPrometheusHistogramExt("weir_upstream_first_byte_seconds", buckets),
		input:        set.NewCounter(`weir_tokens_total{class="input"}`),
		cached:       set.NewCounter(`weir_tokens_total{class="cached_input"}`),
		output:       set.NewCounter(`weir_tokens_total{class="output"}`),
		clipped:      set.NewCounter("weir_overrun_clipped_micro_total"),
		clientGone:   set.NewCounter("weir_client_gone_total"),
		authFailures: set.NewCounter("weir_auth_failures_total"),
		panics:       set.NewCounter("weir_panics_total"),
		disbelieved:  set.NewCounter("weir_usage_disbelieved_total"),
		abnormal:     set.NewCounter("weir_abnormal_usage_total"),
		shadowPolicy: set.NewCounter(`weir_shadow_denials_total{by="policy"}`),
		shadowLimit:  set.NewCounter(`weir_shadow_denials_total{by="limit"}`),
	}
	for r := range routes {
		m.seconds[r] = set.NewPrometheusHistogramExt(`weir_request_duration_seconds{endpoint="`+names[r]+`"}`, buckets)
	}
	if open, ok := l.(interface{ Open() int }); ok {
		set.NewGauge("weir_reservations_open", func() float64 { return float64(open.Open()) })
	}
	return m
}

// WriteMetrics writes the proxy's metrics in Prometheus' text format.
func (s *Server) WriteMetrics(w io.Writer) {
	s.meter.set.WritePrometheus(w)
	sent, refused := s.p.Client.Retries()
	metrics.WriteMetadataIfNeeded(w, "weir_upstream_retries_total", "counter")
	_, _ = fmt.Fprintf(w, "weir_upstream_retries_total{result=\"sent\"} %d\nweir_upstream_retries_total{result=\"refused\"} %d\n", sent, refused)
	if cat := s.snap.Load().Catalog; cat != nil {
		writeHealth(w, s.p.Client.Health(cat))
	}
}

// writeHealth writes how the channels fare, a metric at a time.
func writeHealth(w io.Writer, channels []upstream.Health) {
	for _, m := range [...]struct {
		name string
		of   func(h *upstream.Health) float64
	}{
		{"weir_channel_up", func(h *upstream.Health) float64 {
			if h.State == "up" {
				return 1
			}
			return 0
		}},
		{"weir_channel_in_flight", func(h *upstream.Health) float64 { return float64(h.InFlight) }},
		{"weir_channel_limit", func(h *upstream.Health) float64 { return float64(h.Limit) }},
		{"weir_channel_waiting", func(h *upstream.Health) float64 { return float64(h.Waiting) }},
	} {
		metrics.WriteMetadataIfNeeded(w, m.name, "gauge")
		for i := range channels {
			_, _ = fmt.Fprintf(w, "%s{channel=%q} %g\n", m.name, channels[i].Channel, m.of(&channels[i]))
		}
	}
}

func (m *meters) observe(c *call, took time.Duration) {
	r := &c.record
	m.request(c.route, r.status).Inc()
	m.seconds[c.route].Update(took.Seconds())
	if r.first > 0 {
		m.firstByte.Update(r.first.Seconds())
	}
	if r.gone {
		m.clientGone.Inc()
	}
	if n := c.outcome.shadowed; n > 0 && r.settlement != llm.StatusOpen {
		m.shadowLimit.Add(n)
	}
	if r.house > 0 {
		m.clipped.AddInt64(int64(r.house))
	}
	m.input.Add(int(r.usage.InputTokens - r.usage.CachedInputTokens))
	m.cached.Add(int(r.usage.CachedInputTokens))
	m.output.Add(int(r.usage.OutputTokens))
}

// request is the counter of an endpoint and a status, made when it is first needed.
func (m *meters) request(r route, status int) *metrics.Counter {
	slot := &m.requests[r][min(max(status, 0), len(m.requests[r])-1)]
	if n := slot.Load(); n != nil {
		return n
	}
	n := m.set.GetOrCreateCounter(`weir_requests_total{endpoint="` + names[r] + `",status="` + strconv.Itoa(status) + `"}`)
	slot.Store(n)
	return n
}

// denied counts a denial; money has no dimension.
func (m *meters) denied(d *limit.Denial) {
	slot := &m.denials[d.Axis][d.ID.Kind]
	n := slot.Load()
	if n == nil {
		dimension := "none"
		if d.Axis != limit.AxisBalance && d.Axis != limit.AxisQuota {
			dimension = d.ID.Kind.String()
		}
		n = m.set.GetOrCreateCounter(`weir_denials_total{kind="` + axisNames[d.Axis] + `",dimension="` + dimension + `"}`)
		slot.Store(n)
	}
	n.Inc()
}

// attempt is the counter of a channel's attempts, made when it is first needed.
func (m *meters) attempt(channel string) *metrics.Counter {
	if n, ok := m.attempts.Load(channel); ok {
		return n.(*metrics.Counter)
	}
	n := m.set.GetOrCreateCounter("weir_upstream_attempts_total{channel=" + strconv.Quote(channel) + "}")
	m.attempts.Store(channel, n)
	return n
}
