package admin_test

import (
	"context"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/upstream"
)

// standing is a hold that keeps its place on a channel until ctx ends, and then sends nothing.
type standing struct {
	ctx context.Context
	on  chan string // the channel it has a place on
}

func (h standing) Attempt(ch *upstream.Channel) (room bool, wait time.Duration) {
	select {
	case h.on <- ch.Name:
	case <-h.ctx.Done():
	}
	<-h.ctx.Done()
	return false, 0
}
func (standing) Sent(*upstream.Channel)    {}
func (standing) Refused(*upstream.Channel) {}

// Whoever waits for a place on a channel hears of a change at once, not when the next request comes.
func TestAChangedChannelIsHeardOfByWhoWaits(t *testing.T) {
	f := newFixture(t)
	f.ok("POST", "/admin/channels", j{"name": "main", "provider": "openai", "baseUrl": "http://127.0.0.1:9", "priority": 1, "concurrencyLimit": 1})
	f.ok("POST", "/admin/channels", j{"name": "spare", "provider": "openai", "baseUrl": "http://127.0.0.1:9", "concurrencyLimit": 1})
	f.ok("PUT", "/admin/models/gpt-4o", j{"free": true})
	cat := f.proxy.catalog
	body := []byte(`{"model":"gpt-4o","messages":[{"role":"user","content":"hi"}]}`)
	var head llm.Head
	f.must(llm.ScanHead(llm.Chat, body, &head))
	model, _ := cat.Model([]byte("gpt-4o"))
	hold := standing{t.Context(), make(chan string)}
	for range 4 {
		go func() {
			_, _ = f.client.Do(t.Context(), cat, &upstream.Request{Head: &head, Body: body, Model: model, Caller: upstream.Caller{Org: 1, Key: 1}}, hold)
		}()
	}
	sent := func() string {
		t.Helper()
		select {
		case name := <-hold.on:
			return name
		case <-time.After(10 * time.Second):
			t.Fatal("nobody got a place")
			return ""
		}
	}
	_, _ = sent(), sent()
	for end := time.Now().Add(10 * time.Second); f.client.Health(cat)[0].Waiting < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody waits")
		}
	}
	f.ok("PATCH", "/admin/channels/1", j{"concurrencyLimit": 2})
	if got := sent(); got != "main" {
		t.Errorf("its limit was raised, and a place was had on %s", got)
	}
	f.ok("PATCH", "/admin/channels/1", j{"state": "disabled"})
	f.ok("PATCH", "/admin/channels/2", j{"concurrencyLimit": 2})
	if got := sent(); got != "spare" {
		t.Errorf("it was disabled, and a place was had on %s", got)
	}
}
