package proxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/upstream"
)

// Who waits for a place on one channel is sent to another as soon as that one's own QPS has room again.
func TestWhoWaitsIsSentWhereTheRateHasRoomAgain(t *testing.T) {
	asked := make(chan string, 4)
	serve := func(name string, until <-chan struct{}) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			_, _ = io.Copy(io.Discard, q.Body)
			asked <- name
			<-until
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"a"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	now, later := make(chan struct{}), make(chan struct{})
	close(now)
	first, second := serve("a", now), serve("b", later)
	r := newRig(t, func(o *setup) {
		o.upstream = upstream.Options{QueueWaitMS: 20_000}
		o.catalog = func(c *catalog) {
			a := &c.channels[0]
			a.Name, a.Provider, a.BaseURL, a.QPSLimit, a.Priority = "a", "openai", first, 1, 2
			b := *a
			b.ID, b.Name, b.BaseURL, b.QPSLimit, b.ConcurrencyLimit, b.Priority = 77, "b", second, 0, 1, 1
			c.channels = append(c.channels[:1], b)
			for i := range c.models {
				c.models[i].Channels = nil
			}
		}
	})
	answered := make(chan int, 3)
	ask := func(want string) {
		go func() { answered <- r.post("/v1/chat/completions", chat("gpt-4o", "")).status }()
		if got := <-asked; got != want {
			t.Errorf("sent to %s, want %s", got, want)
		}
	}
	ask("a")
	ask("b") // and stays there
	went := make(chan struct{})
	go func() { defer close(went); ask("a") }()
	for waits := false; !waits; runtime.Gosched() {
		for _, h := range r.client.Health(r.server.Snapshot().Catalog) {
			waits = waits || h.Channel == "b" && h.Waiting == 1
		}
	}
	r.clock.Advance(time.Second)
	<-went
	close(later)
	for range 3 {
		if status := <-answered; status != 200 {
			t.Errorf("status %d", status)
		}
	}
}
