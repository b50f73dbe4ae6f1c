package load_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/load"
)

// twoThenRefuse lets two requests through and refuses the rest as the gateway would.
func twoThenRefuse(t *testing.T) *httptest.Server {
	var mu sync.Mutex
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/chat/completions" || r.Header.Get("Authorization") != "Bearer k" {
			t.Errorf("unexpected request %s %q", r.URL.Path, r.Header.Get("Authorization"))
		}
		mu.Lock()
		n++
		pass := n <= 2
		mu.Unlock()
		if pass {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"error":{"kind":"qps"}}`)
	}))
	t.Cleanup(s.Close)
	return s
}

func TestAttackCountsAndFindsTheFirstRefusal(t *testing.T) {
	s := twoThenRefuse(t)
	last := 0
	res, err := load.Attack(context.Background(), load.Options{Base: s.URL + "/v1/", Key: "k", Model: "m", Total: 20, Concurrency: 5,
		Progress: func(done, total int) { last = done }}, llm.NewSystemClock())
	if err != nil {
		t.Fatal(err)
	}
	if res.Total != 20 || last != 20 || res.ByStatus["502"] != 2 || res.ByStatus["429"] != 18 {
		t.Errorf("got %+v after %d, want 20 = 2 x 502 + 18 x 429", res, last)
	}
	if res.FirstAt == nil || *res.FirstAt > 4 || res.FirstRetryAfter == nil || *res.FirstRetryAfter != "1" {
		t.Errorf("first 429: %+v", res)
	}
	body, _ := res.FirstBody.(map[string]any)
	if body["error"] == nil || res.Latency.Max < res.Latency.P50 || res.RPS <= 0 {
		t.Errorf("got %+v", res)
	}
}

func TestAttackEndsWithItsContext(t *testing.T) {
	hold := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hold }))
	defer s.Close()
	defer close(hold)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	res, err := load.Attack(ctx, load.Options{Base: s.URL, Model: "m", Total: 1000, Concurrency: 2}, llm.NewSystemClock())
	if err != nil || res.Total != 0 {
		t.Errorf("got %+v, %v; want an empty result", res, err)
	}
}

// Who ends an attack on a gateway that does not answer gets the result then, not after the timeout of a request.
func TestAttackEndsInTheMiddle(t *testing.T) {
	reached, release := make(chan bool, 8), make(chan bool)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached <- true
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer s.Close()
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-reached
		<-reached
		cancel()
	}()
	start := time.Now()
	res, err := load.Attack(ctx, load.Options{Base: s.URL, Model: "m", Total: 1000, Concurrency: 2, Timeout: time.Minute}, llm.NewSystemClock())
	if err != nil || res.Total != 0 || len(res.ByStatus) != 0 || time.Since(start) > 30*time.Second {
		t.Errorf("%+v, %v after %v", res, err, time.Since(start))
	}
}

func TestAttackPaces(t *testing.T) {
	s := twoThenRefuse(t)
	clock := llm.NewSystemClock()
	_, err := load.Attack(context.Background(), load.Options{Base: s.URL, Key: "k", Model: "m", Total: 11, Concurrency: 11, Rate: 100}, clock)
	if took := clock.Mono(); err != nil || took < 100*time.Millisecond {
		t.Errorf("11 requests at 100/s took %v (%v); the last is due after 100ms", took, err)
	}
}

// TestAttackOverIPv6: a gateway may have an address of either kind.
func TestAttackOverIPv6(t *testing.T) {
	ln, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skip("there is no IPv6 here: ", err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	_ = s.Listener.Close()
	s.Listener = ln
	s.Start()
	defer s.Close()
	res, err := load.Attack(t.Context(), load.Options{Base: s.URL, Model: "m", Total: 2, Concurrency: 1}, llm.NewSystemClock())
	if err != nil || res.ByStatus["200"] != 2 {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestAttackRefusesNonsense(t *testing.T) {
	for want, o := range map[string]load.Options{
		"base":        {Base: "localhost:3000", Total: 1, Concurrency: 1},
		"total":       {Base: "http://h", Total: 0, Concurrency: 1},
		"concurrency": {Base: "http://h", Total: 1},
		"rate":        {Base: "http://h", Total: 1, Concurrency: 1, Rate: -1},
	} {
		if _, err := load.Attack(context.Background(), o, llm.NewSystemClock()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want an error about %s", o, err, want)
		}
	}
}

func TestAttackCountsUnansweredRequests(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	res, err := load.Attack(context.Background(), load.Options{Base: s.URL, Model: "m", Total: 3, Concurrency: 1}, llm.NewSystemClock())
	if err != nil || res.ByStatus["error"] != 3 || res.FirstError == "" {
		t.Errorf("got %+v, %v; want 3 errors", res, err)
	}
}

// TestAttackTellsWhatWasWrong: the first error that is no 429 is reported in its own words, and an attack with a wrong key
// is in vain.
func TestAttackTellsWhatWasWrong(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   string
		inVain bool
	}{
		{401, `{"error":{"message":"no such key"}}`, "401: no such key", true},
		{404, `{"error":{"message":"no such model"}}`, "404: no such model", true},
		{502, "<html>", `502: "<html>"`, false},
		{402, `{"error":{"message":"balance short"}}`, "402: balance short", false},
		{429, `{"error":{"message":"qps"}}`, "", false},
		{200, "{}", "", false},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			fmt.Fprint(w, c.body)
		}))
		res, err := load.Attack(context.Background(), load.Options{Base: s.URL, Model: "m", Total: 3, Concurrency: 1}, llm.NewSystemClock())
		s.Close()
		if err != nil || res.FirstError != c.want || res.InVain() != c.inVain {
			t.Errorf("%d: %q, in vain %v, %v; want %q, %v", c.status, res.FirstError, res.InVain(), err, c.want, c.inVain)
		}
	}
}
