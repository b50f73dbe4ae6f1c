package proxy

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestAnOutageIsToldOnceAndCounted: 28,000 failures in 8 s are a line, not 28,000; then a count every 10 s; and the next
// outage is told anew.
func TestAnOutageIsToldOnceAndCounted(t *testing.T) {
	var out bytes.Buffer
	log, o, now := slog.New(slog.NewTextHandler(&out, nil)), outage{}, time.Minute
	fail := func(n int, step time.Duration) (lines []string) {
		out.Reset()
		for range n {
			o.tell(log, now, "id", errors.New("disk full"))
			now += step
		}
		return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	}
	wants := func(lines []string, words ...string) {
		t.Helper()
		if len(lines) != len(words) {
			t.Fatalf("%d lines: %q", len(lines), lines)
		}
		for i, w := range words {
			if !strings.Contains(lines[i], w) || !strings.Contains(lines[i], "disk full") {
				t.Errorf("line %q has no %q", lines[i], w)
			}
		}
	}
	wants(fail(80_000, 100*time.Microsecond), "requests fail")
	wants(fail(200_000, 100*time.Microsecond), "more=100000", "more=100000")
	now += time.Minute
	wants(fail(10, time.Millisecond), "requests fail")
}
