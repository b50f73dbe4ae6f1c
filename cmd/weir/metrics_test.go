package main

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
)

var sampleLine = regexp.MustCompile(`^([a-z_]+)(?:\{[a-zA-Z_]+="[^"]*"(?:, ?[a-zA-Z_]+="[^"]*")*\})? -?[0-9.e+-]+$`)

// families reads Prometheus' text format as its strictest readers do: it gives the samples of each family, which has one
// TYPE, ahead of them, and nothing of another family between them.
func families(t *testing.T, text string) map[string]int {
	t.Helper()
	types, samples, current := map[string]string{}, map[string]int{}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "# HELP ") {
			continue
		}
		if typed, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(typed, " ")
			if types[name] != "" || kind != "counter" && kind != "gauge" && kind != "histogram" && kind != "summary" {
				t.Errorf("%s: no type, or it had %q", line, types[name])
			}
			types[name], current = kind, name
			continue
		}
		m := sampleLine.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("no sample: %q", line)
			continue
		}
		name := m[1]
		if types[current] == "histogram" || types[current] == "summary" {
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				name = strings.TrimSuffix(name, part)
			}
		}
		if name != current {
			t.Errorf("%s: it stands in the family %q", line, current)
		}
		samples[name]++
	}
	for name := range types {
		if samples[name] == 0 {
			t.Errorf("%s has a type and no samples", name)
		}
	}
	return samples
}

// Every family of the metrics is typed, once, and its samples are together.
func TestMetricsAreTyped(t *testing.T) {
	p, f := serveTLS(t)
	p.kill()
	text, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, p.file, strings.Replace(string(text), "channels: [", `channels: [{name: spare, provider: openai, base_url: "http://127.0.0.1:9/v1", credential: sk-spare}, `, 1)+
		"alerts: {url: \"http://127.0.0.1:9\", secret: \"s3cr3t-s3cr3t-s3cr3t\", at: [50]}\n")
	p.launch()
	eventually(t, "it is up", func() bool { return strings.Contains(p.log(), "clients="+p.env["WEIR_URL"]+" admin=https:") })
	client := trusting(t, f)
	get := func(method, url, token string) string {
		req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	get("POST", p.env["WEIR_URL"]+"/v1/chat/completions", "nobody")
	get("POST", p.env["WEIR_URL"]+"/v1/messages", "nobody")
	samples := families(t, get("GET", p.env["WEIR_ADMIN_URL"]+"/metrics", p.env["WEIR_ADMIN_TOKEN"]))
	for name, atLeast := range map[string]int{"weir_requests_total": 2, "weir_request_duration_seconds": 2 * 19, "weir_tokens_total": 3, "weir_upstream_retries_total": 2,
		"weir_channel_up": 2, "weir_channel_waiting": 2, "weir_alerts_total": 3, "weir_alerts_waiting": 1, "weir_certificate_expires_timestamp_seconds": 2,
		"weir_policy_rollbacks_total": 2, "weir_policy_faults_total": 5, "weir_policy_calls_total": 1, "process_resident_memory_bytes": 1} {
		if samples[name] < atLeast {
			t.Errorf("%s has %d samples; want %d", name, samples[name], atLeast)
		}
	}
}
