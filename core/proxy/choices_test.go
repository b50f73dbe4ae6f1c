package proxy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
)

// spy is an upstream that keeps what it was sent.
type spy struct {
	*httptest.Server
	mu   sync.Mutex
	body map[string]any
}

func newSpy(t *testing.T) *spy {
	s := new(spy)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		b, _ := io.ReadAll(q.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.body = nil
		_ = json.Unmarshal(b, &s.body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5}}`)
	}))
	t.Cleanup(s.Close)
	return s
}

// take gives what was sent since the last take; nil: nothing.
func (s *spy) take() map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.body
	s.body = nil
	return b
}

func through(s *spy) option {
	return func(o *setup) {
		o.catalog = func(c *catalog) { c.channels[0].BaseURL = s.URL }
	}
}

// M09 through the walk: n, best_of and prompt arrays without a cap never reach an upstream with more than what is held.
func TestM09ChoicesWithoutACapAreHeldForAll(t *testing.T) {
	up := newSpy(t)
	r := newRig(t, through(up), limits(auth.Key{TPMLimit: 40_000}))
	prompts := `["a"` + strings.Repeat(`,"a"`, 99) + `]`
	for _, x := range []struct {
		path, body string
		choices    int
		status     int
	}{
		{"/v1/chat/completions", chat("gpt-4o", `,"n":128`), 128, 200},
		{"/v1/completions", `{"model":"gpt-4o","prompt":"hello","best_of":100}`, 100, 200},
		{"/v1/completions", `{"model":"gpt-4o","prompt":` + prompts + `}`, 100, 200},
		{"/v1/completions", `{"model":"gpt-4o","n":128,"prompt":` + prompts + `}`, 12_800, 429},
	} {
		r.clock.Advance(61e9)
		p := r.post(x.path, x.body).want(t, x.status)
		sent := up.take()
		if x.status == 429 {
			if f := p.code(t, "request_exceeds_limit"); sent != nil || f["requested"].(float64) < 12_800*16 {
				t.Errorf("%s: sent %v, refused with %v", x.body[:40], sent, f)
			}
			continue
		}
		each, _ := sent["max_tokens"].(float64)
		if each < 16 || each*float64(x.choices) > 40_000 {
			t.Errorf("%s: %v tokens for each of %d choices", x.body[:40], each, x.choices)
		}
	}
}

// M09: an array of 2,048 texts, or of token arrays, is held for as a whole, in tokens and in money.
func TestM09EveryEmbeddingIsHeldFor(t *testing.T) {
	array := func(item string) string {
		return `{"model":"text-embedding-3-small","input":[` + item + strings.Repeat(","+item, 2047) + `]}`
	}
	for item, each := range map[string]int{`"alpha beta gamma delta"`: 4, `[1,2,3,4,5]`: 5} {
		r := newRig(t)
		r.post("/v1/embeddings", array(item)).want(t, 200)
		held := r.journal.of(llm.EntryReserve)[0]
		if n := int(held.Usage.InputTokens); n < 2048*each || n > 2*2048*each || held.Held < price.Hold(llm.Tokens(2048*each), 0) {
			t.Errorf("%s: %+v", item, held)
		}
		q := newRig(t, limits(auth.Key{TPMLimit: int64(2047 * each)}))
		if f := q.post("/v1/embeddings", array(item)).want(t, 429).code(t, "request_exceeds_limit"); f["requested"] != float64(held.Usage.InputTokens) || q.sim.Stats().Requests != 0 {
			t.Errorf("%s: %v", item, f)
		}
		b := newRig(t, func(s *setup) { s.balance = held.Held - 1 })
		if f := b.post("/v1/embeddings", array(item)).want(t, 402).code(t, "insufficient_quota"); f["required_micro_cny"] != float64(held.Held) || b.sim.Stats().Requests != 0 {
			t.Errorf("%s: %v", item, f)
		}
	}
}

func TestM09ABalanceForOneChoiceDoesNotPayForMany(t *testing.T) {
	up := newSpy(t)
	r := newRig(t, through(up), func(s *setup) { s.balance = price.Hold(20, 100) })
	p := r.post("/v1/chat/completions", chat("gpt-4o", `,"n":128`)).want(t, 402)
	f := p.code(t, "insufficient_quota")
	if up.take() != nil || f["required_micro_cny"].(float64) < float64(price.Hold(10, 128*16)) {
		t.Errorf("%v", f)
	}
	r.post("/v1/chat/completions", chat("gpt-4o", `,"n":4`)).want(t, 200)
	if each, _ := up.take()["max_tokens"].(float64); each < 16 || each > 26 {
		t.Errorf("%v tokens for each of 4 choices", each)
	}
}

// A policy's cap is what each choice may say.
func TestAPolicysOutputCapIsPerChoice(t *testing.T) {
	up := newSpy(t)
	r := newRig(t, through(up), limits(auth.Key{TPMLimit: 10_000}))
	r.policy.decide = func(_ *policy.Facts, d *policy.Decision) { d.OutputCap = 20 }
	p := r.post("/v1/chat/completions", chat("gpt-4o", `,"n":32,"max_tokens":900`)).want(t, 200)
	if each := up.take()["max_tokens"]; each != 20.0 {
		t.Errorf("%v tokens for each choice", each)
	}
	left := p.header.Get("x-ratelimit-remaining-tokens")
	if held := r.journal.of(llm.EntryReserve)[0].Held; held < price.Hold(10, 32*20) {
		t.Errorf("held %d; %s tokens left", held, left)
	}
	var n int64
	if _, err := fmt.Sscan(left, &n); err != nil || n > 10_000-32*20 {
		t.Errorf("%s tokens left", left)
	}
	if u, err := r.limits.Inspect(t.Context(), limit.ID{Kind: limit.Key, Scope: idKey}); err != nil || u.TPM != 15 {
		t.Errorf("%+v %v", u, err)
	}
}

// What cannot be settled is refused; what cannot be counted is held for flat.
func TestResponsesThatHideTheirCost(t *testing.T) {
	up := newSpy(t)
	r := newRig(t, through(up), limits(auth.Key{TPMLimit: 8000}))
	r.cat.models[0].Stored = "allow"
	r.setCatalog()
	const body = `{"model":"gpt-4o","input":"x","max_output_tokens":10`
	p := r.post("/v1/responses", body+`,"background":true}`).want(t, 400)
	if f := p.code(t, "invalid_request_error"); f["param"] != "background" || up.take() != nil {
		t.Errorf("%v", f)
	}
	f := r.post("/v1/responses", body+`,"previous_response_id":"resp_1"}`).want(t, 429).code(t, "request_exceeds_limit")
	if f["requested"].(float64) < 8192 || up.take() != nil {
		t.Errorf("%v", f)
	}
	r.post("/v1/responses", body+`}`).want(t, 200)
}
