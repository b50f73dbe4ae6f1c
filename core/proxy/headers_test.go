package proxy

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
)

func TestDuration(t *testing.T) {
	for ms, want := range map[int64]string{-1: "0s", 0: "0s", 20: "20ms", 999: "999ms", 1000: "1s", 1500: "1.5s", 1050: "1.05s", 1005: "1.005s",
		59_999: "59.999s", 60_000: "1m0s", 360_000: "6m0s", 90_500: "1m30.5s", 7_200_000: "120m0s"} {
		if got := string(appendDuration(nil, ms)); got != want {
			t.Errorf("%d ms is %q, want %q", ms, got, want)
		}
		if d, err := time.ParseDuration(want); err != nil || ms >= 0 && d.Milliseconds() != ms {
			t.Errorf("%q does not read back as %d ms", want, ms)
		}
	}
}

func TestRateHeaders(t *testing.T) {
	r := rates{requests: limit.Rate{OK: true, Limit: 60, Remaining: 59, ResetMS: 1000}, tokens: limit.Rate{OK: true, Limit: 150_000, Remaining: 149_984, ResetMS: 360_000}}
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	var h fasthttp.ResponseHeader
	r.set(&h, llm.OpenAI, now, make([]byte, 40))
	for name, want := range map[string]string{"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "59", "x-ratelimit-reset-requests": "1s",
		"x-ratelimit-limit-tokens": "150000", "x-ratelimit-remaining-tokens": "149984", "x-ratelimit-reset-tokens": "6m0s"} {
		if got := string(h.Peek(name)); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	h.Reset()
	r.set(&h, llm.Anthropic, now, make([]byte, 40))
	for name, want := range map[string]string{"anthropic-ratelimit-requests-limit": "60", "anthropic-ratelimit-requests-remaining": "59",
		"anthropic-ratelimit-requests-reset": "2026-01-02T03:04:07Z", "anthropic-ratelimit-tokens-limit": "150000", "anthropic-ratelimit-tokens-reset": "2026-01-02T03:10:06Z"} {
		if got := string(h.Peek(name)); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	h.Reset()
	new(rates).set(&h, llm.OpenAI, now, nil)
	if strings.Contains(h.String(), "atelimit") {
		t.Errorf("nothing is limited, yet: %s", h.String())
	}
}

func TestIdentifiers(t *testing.T) {
	var ids identifiers
	if err := ids.seedFrom(bytes.NewReader([]byte{1, 2, 3, 4, 5, 6, 7, 8})); err != nil {
		t.Fatal(err)
	}
	seen := map[uint64]bool{}
	for range 100_000 {
		id := ids.next()
		if seen[id] {
			t.Fatal("an id came twice")
		}
		seen[id] = true
	}
	if got := string(appendID(nil, 0x0123456789abcdef)); got != "0123456789abcdef" {
		t.Error(got)
	}
	if ids.seedFrom(bytes.NewReader(nil)) == nil {
		t.Error("a source without bytes is an error")
	}
}

func TestClientID(t *testing.T) {
	if got := string(appendClientID(nil, []byte("a-B_9.:/+=\r\nX: y\x80"))); got != "a-B_9.:/+=__X:_y_" {
		t.Errorf("%q", got)
	}
	if n := len(appendClientID(nil, bytes.Repeat([]byte{'a'}, 5000))); n != maxClientID {
		t.Errorf("%d bytes are echoed", n)
	}
}
