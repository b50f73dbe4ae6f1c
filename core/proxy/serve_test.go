package proxy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/core/proxy"
	"github.com/weir-gateway/weir/core/upstream"
)

func limits(k auth.Key) option {
	return func(s *setup) {
		s.key.QPSLimit, s.key.TPMLimit, s.key.ConcurrencyLimit, s.key.MonthlyQuota = k.QPSLimit, k.TPMLimit, k.ConcurrencyLimit, k.MonthlyQuota
	}
}

// Every route, buffered: the upstream's answer reaches the client as it is, and exactly its usage is charged.
func TestBufferedEveryRoute(t *testing.T) {
	r := newRig(t)
	for _, x := range everyRoute {
		before, _ := r.limits.Balance(idUser)
		p := r.post(x.path, x.body, "X-Request-Id", "mine\t1", "x-sim", "usage_in=40,usage_out=7").want(t, 200)
		if id := p.header.Get("X-Client-Request-Id"); id != "mine_1" {
			t.Errorf("%s: X-Client-Request-Id is %q", x.path, id)
		}
		e := r.journal.last(t)
		if e.Kind != llm.EntrySettle || e.Status != llm.StatusFinalized || e.HTTPStatus != 200 || e.Estimated {
			t.Errorf("%s: %+v", x.path, e)
		}
		want := llm.Usage{InputTokens: 40, OutputTokens: 7}
		switch {
		case strings.HasSuffix(x.path, "count_tokens"):
			want = llm.Usage{}
		case strings.HasSuffix(x.path, "embeddings"):
			want.OutputTokens = 0
		}
		after, held := r.limits.Balance(idUser)
		if e.Usage != want || e.Cost != price.Cost(want)*llm.Micro(min(1, want.Total())) || before-after != e.Cost || held != 0 {
			t.Errorf("%s: charged %+v at %d, balance moved by %d, held %d", x.path, e.Usage, e.Cost, before-after, held)
		}
	}
}

// S12 of the mission: usage that is not reported is counted, never free.
func TestBufferedWithoutUsage(t *testing.T) {
	r := newRig(t)
	r.post("/v1/chat/completions", chat("gpt-4o", ""), "x-sim", "usage=null,out=12").want(t, 200)
	if e := r.journal.last(t); e.Status != llm.StatusFinalized || !e.Estimated || e.Usage.OutputTokens < 5 || e.Usage.InputTokens < 5 {
		t.Errorf("%+v", e)
	}
}

// Every answer names the tightest limit in the dialect's own headers.
func TestRateHeadersOnAnswers(t *testing.T) {
	r := newRig(t, limits(auth.Key{QPSLimit: 5, TPMLimit: 10_000}))
	p := r.post("/v1/chat/completions", chat("gpt-4o", `,"max_tokens":50`)).want(t, 200)
	if p.header.Get("x-ratelimit-limit-requests") != "5" || p.header.Get("x-ratelimit-remaining-requests") != "4" || p.header.Get("x-ratelimit-reset-requests") != "1s" || p.header.Get("x-ratelimit-limit-tokens") != "10000" {
		t.Errorf("%v", p.header)
	}
	p = r.post("/v1/messages", everyRoute[4].with(`,"stream":true`)).want(t, 200)
	if p.header.Get("anthropic-ratelimit-requests-remaining") != "3" || p.header.Get("anthropic-ratelimit-tokens-limit") != "10000" || p.header.Get("request-id") != p.header.Get("x-request-id") {
		t.Errorf("%v", p.header)
	}
	if p = r.post("/v1/chat/completions", `{`).want(t, 400); p.header.Get("x-ratelimit-remaining-requests") != "3" {
		t.Errorf("a malformed body: %v", p.header)
	}
	if p = r.get("/v1/models").want(t, 200); p.header.Get("x-ratelimit-limit-requests") != "5" {
		t.Errorf("models: %v", p.header)
	}
}

// L05: refusals for concurrency use no QPS slot.
func TestL05ConcurrencyRefusalsUseNoSlot(t *testing.T) {
	r := newRig(t, limits(auth.Key{QPSLimit: 10, ConcurrencyLimit: 1}))
	done := make(chan reply)
	go func() { done <- r.post("/v1/chat/completions", chat("gpt-4o", ""), "x-sim", "latency=2s") }()
	eventually(t, func() bool { return r.limits.Open() == 1 }, "the first call never started")
	for range 9 {
		p := r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 429)
		if p.header.Get("x-ratelimit-limit-requests") != "10" || p.header.Get("x-ratelimit-remaining-requests") != "9" {
			t.Errorf("its concurrency is no rate: %v", p.header)
		}
		f := p.code(t, "rate_limit_exceeded")
		if f["kind"] != "concurrency" || f["dimension"] != "key" || f["limit_key"] != "key:1" || f["retry_after_exact"] != false || f["retry_after_ms"] != 1000.0 {
			t.Errorf("%v", f)
		}
	}
	(<-done).want(t, 200)
	p := r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200)
	if p.header.Get("x-ratelimit-remaining-requests") != "8" {
		t.Errorf("the refusals used slots: %v", p.header)
	}
}

// L03, L04: the largest cap counts, times n, on every route; what can never fit is told so.
func TestL03L04CapsCountOnEveryRoute(t *testing.T) {
	r := newRig(t, limits(auth.Key{TPMLimit: 100}))
	for _, x := range []struct{ path, body string }{
		{"/v1/chat/completions", chat("gpt-4o", `,"max_tokens":1,"max_completion_tokens":900`)},
		{"/v1/chat/completions", chat("gpt-4o", `,"max_tokens":10,"n":20`)},
		{"/v1/completions", `{"model":"gpt-4o","prompt":["a","b","c"],"max_tokens":40}`},
		{"/v1/responses", `{"model":"gpt-4o","input":"hello","max_output_tokens":500}`},
		{"/v1/messages", `{"model":"claude-sonnet-4-5","max_tokens":500,"messages":[{"role":"user","content":"hello"}]}`},
	} {
		p := r.post(x.path, x.body).want(t, 429)
		f := p.code(t, "request_exceeds_limit")
		if f["kind"] != "tpm" || f["limit"] != 100.0 || f["current"] != 0.0 || f["retry_after_ms"] != 60_000.0 || f["message"] != "tpm limit exceeded on dimension=key: the request alone is larger than the limit" {
			t.Errorf("%s: %v", x.path, f)
		}
		if p.header.Get("x-should-retry") != "false" || p.header.Get("Retry-After") != "60" {
			t.Errorf("%s: %v", x.path, p.header)
		}
	}
	if s := r.sim.Stats(); s.Requests != 0 {
		t.Errorf("%d requests reached the upstream", s.Requests)
	}
}

// S09, ours: the refusal says when, in both dialects, and then it is true.
func TestS09QPSDenial(t *testing.T) {
	r := newRig(t, limits(auth.Key{QPSLimit: 1}))
	r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200)
	r.clock.Advance(300 * time.Millisecond)
	p := r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 429)
	f := p.code(t, "rate_limit_exceeded")
	if f["type"] != "rate_limit_exceeded" || f["message"] != "qps limit exceeded on dimension=key" || f["limit_key"] != "key:1" || f["current"] != 1.0 || f["retry_after_ms"] != 700.0 {
		t.Errorf("%v", f)
	}
	if p.header.Get("Retry-After") != "1" || p.header.Get("retry-after-ms") != "700" || p.header.Get("x-ratelimit-remaining-requests") != "0" || p.header.Get("x-ratelimit-reset-requests") != "700ms" {
		t.Errorf("%v", p.header)
	}
	for _, x := range everyRoute {
		p := r.post(x.path, x.body).want(t, 429)
		f := p.code(t, "rate_limit_exceeded")
		if f["type"] != map[bool]string{true: "rate_limit_error", false: "rate_limit_exceeded"}[strings.HasPrefix(x.path, "/v1/messages")] ||
			f["retry_after_ms"] != 700.0 || p.header.Get("Retry-After") != "1" || p.header.Get("retry-after-ms") != "700" {
			t.Errorf("%s: %v %v", x.path, f, p.header)
		}
	}
	r.clock.Advance(700 * time.Millisecond)
	r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200)
}

// Balance and quota: 402, nothing held, nothing sent.
func TestMoneyDenials(t *testing.T) {
	r := newRig(t, func(s *setup) { s.balance = 10 })
	p := r.post("/v1/chat/completions", chat("gpt-4o", `,"max_tokens":1000`)).want(t, 402)
	f := p.code(t, "insufficient_quota")
	if f["available_micro_cny"] != 10.0 || f["required_micro_cny"].(float64) < 1000 || p.header.Get("x-should-retry") != "false" || p.header.Get("Retry-After") != "" {
		t.Errorf("%v %v", f, p.header)
	}
	q := newRig(t, limits(auth.Key{MonthlyQuota: 10}))
	p = q.post("/v1/messages", everyRoute[4].body).want(t, 402)
	f = p.code(t, "monthly_quota_exceeded")
	if f["type"] != "billing_error" || f["used_micro_cny"] != 0.0 || f["limit_micro_cny"] != 10.0 || f["reserving_micro_cny"].(float64) < 200 || f["resets_at"] != "2026-04-01T00:00:00Z" {
		t.Errorf("%v", f)
	}
	for _, x := range []struct {
		budget               auth.Budget
		code, window, resets string
	}{
		{auth.Budget{Window: llm.Week, Limit: 10, Terms: auth.Terms{Anchor: 3}}, "weekly_quota_exceeded", "week", "2026-03-05T00:00:00Z"},
		{auth.Budget{Window: llm.Day, Limit: 10, Terms: auth.Terms{Anchor: 6, Zone: "Asia/Shanghai"}}, "daily_quota_exceeded", "day", "2026-03-05T06:00:00+08:00"},
	} {
		q := newRig(t, limits(auth.Key{MonthlyQuota: 1 << 40}), func(s *setup) { s.key.Budgets = []auth.Budget{x.budget} })
		p = q.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 402)
		if f := p.code(t, x.code); f["window"] != x.window || f["limit_micro_cny"] != 10.0 || f["resets_at"] != x.resets || p.header.Get("x-should-retry") != "false" {
			t.Errorf("%v", f)
		}
	}
	if r.sim.Stats().Requests+q.sim.Stats().Requests != 0 {
		t.Error("a refused request reached the upstream")
	}
}

// Every window of a key is charged what a request cost, and GET /v1/key shows those that have a limit.
func TestBudgetWindows(t *testing.T) {
	r := newRig(t, limits(auth.Key{MonthlyQuota: 90_000}), func(s *setup) {
		s.key.Budgets = []auth.Budget{{Window: llm.Day, Limit: 30_000, Terms: auth.Terms{Anchor: 6}}}
	})
	r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200)
	cost := r.journal.last(t).Cost
	if e := r.journal.of(llm.EntryReserve)[0]; cost == 0 || e.Labels() != [...]int32{202603, 0, 20260303} {
		t.Errorf("cost %d, labels %v", cost, e.Labels())
	}
	var v map[string]any
	must(t, json.Unmarshal(r.get("/v1/key").want(t, 200).body, &v))
	day, month := v["daily"].(map[string]any), v["monthly"].(map[string]any)
	if day["used_micro_cny"] != float64(cost) || month["used_micro_cny"] != float64(cost) || day["limit_micro_cny"] != 30_000.0 ||
		day["resets_at"] != "2026-03-04T06:00:00Z" || v["weekly"] != nil {
		t.Errorf("%v", v)
	}
}

// M04: a model without a price and a key with money limits.
func TestM04PriceNotConfigured(t *testing.T) {
	r := newRig(t)
	f := r.post("/v1/chat/completions", chat("priceless", "")).want(t, 400).code(t, "price_not_configured")
	if f["model"] != "priceless" || r.sim.Stats().Requests != 0 || len(r.journal.of(llm.EntryReserve)) != 0 {
		t.Errorf("%v", f)
	}
	free := newRig(t, func(s *setup) { s.user.Unmetered = true })
	free.post("/v1/chat/completions", chat("priceless", "")).want(t, 200)
	if e := free.journal.last(t); e.Cost != 0 || e.Status != llm.StatusFinalized {
		t.Errorf("%+v", e)
	}
}

// A policy says no, in its own words; with a wait, or for good.
func TestPolicyDenial(t *testing.T) {
	r := newRig(t)
	r.policy.decide = func(f *policy.Facts, d *policy.Decision) {
		*d = policy.Decision{Verdict: policy.Deny, Tier: -1, Message: "not at night", Module: "night", Version: "ab12", Status: 451}
		if f.Attr[policy.AttrEndUser] == "bob/2" {
			d.Status, d.RetryAfterMS = 429, 1500
		}
	}
	p := r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 451)
	if f := p.code(t, "policy_denied"); f["policy"] != "night" || f["version"] != "ab12" || f["message"] != "not at night" || p.header.Get("x-should-retry") != "false" {
		t.Errorf("%v %v", f, p.header)
	}
	p = r.post("/v1/chat/completions", chat("gpt-4o", `,"user":"b\u006fb\/2"`)).want(t, 429)
	if p.header.Get("Retry-After") != "2" || p.header.Get("x-should-retry") != "" {
		t.Errorf("%v", p.header)
	}
}

// However a decision puts limits, multipliers and entries together, shared limits stay within the envelope of what is
// configured.
func TestEnvelopeBoundsSharedLimits(t *testing.T) {
	r := newRig(t, func(s *setup) {
		s.settings = proxy.Settings{Global: limit.Limits{QPS: 2}, Envelope: policy.Envelope{MaxMultiplier: 1500}}
	})
	r.policy.decide = func(_ *policy.Facts, d *policy.Decision) {
		d.N = 1
		d.Dims[0] = policy.Dimension{Kind: uint8(limit.Global), Tier: -1, QPS: 1_000_000, Multiplier: 1500}
	}
	for range 3 {
		r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200)
	}
	f := r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 429).code(t, "rate_limit_exceeded")
	if f["limit"] != 3.0 || f["dimension"] != "global" {
		t.Errorf("2 x 1.5 is the most: %v", f)
	}
}

// The decision's dimensions, multipliers, cap, tier and price all take effect.
func TestDecisionTakesEffect(t *testing.T) {
	r := newRig(t, limits(auth.Key{QPSLimit: 2}), func(s *setup) {
		s.settings = proxy.Settings{Tiers: []proxy.Tier{{Name: "free", Limits: limit.Limits{TPM: 5000}}, {Name: "pro", Limits: limit.Limits{TPM: 90}}},
			Defaults: map[limit.Kind]limit.Limits{limit.EndUser: {QPS: 1}}}
	})
	var facts policy.Facts
	r.policy.decide = func(f *policy.Facts, d *policy.Decision) {
		facts = *f
		facts.Attr[policy.AttrEndUser] = strings.Clone(f.Attr[policy.AttrEndUser])
		d.QPS, d.Price, d.OutputCap, d.N = 500, 2000, 30, 3
		d.Dims[0] = policy.Dimension{Kind: uint8(limit.Key), Tier: -1}
		d.Dims[1] = policy.Dimension{Kind: uint8(limit.EndUser), Tier: -1, SkipAbsent: true}
		d.Dims[2] = policy.Dimension{Kind: uint8(limit.Custom), Value: "hot", TPM: 400, Tier: -1, Multiplier: 500}
	}
	r.post("/v1/chat/completions", chat("gpt-4o", `,"max_tokens":1000`), "x-sim", "usage_in=10,usage_out=3").want(t, 200)
	if e := r.journal.last(t); e.Cost != price.Scale(2000).Cost(llm.Usage{InputTokens: 10, OutputTokens: 3}) {
		t.Errorf("the price is not doubled: %+v", e)
	}
	if facts.QPSLimit != 2 || facts.Endpoint != llm.Chat || facts.OutputMax != 1000 || facts.Org != idOrg || facts.DaysInMonth != 31 || facts.DayOfMonth != 4 ||
		facts.MinuteOfWeek != 2*1440+5*60+6 || facts.Attr[policy.AttrModel] != "gpt-4o" || facts.Attr[policy.AttrClientIP] != "127.0.0.1" {
		t.Errorf("%+v", facts)
	}
	f := r.post("/v1/chat/completions", chat("gpt-4o", `,"max_tokens":1000`)).want(t, 429).code(t, "rate_limit_exceeded")
	if f["limit"] != 1.0 {
		t.Errorf("2 x 0.5 is 1: %v", f)
	}
	r.clock.Advance(time.Second)
	r.policy.decide = func(f *policy.Facts, d *policy.Decision) {
		d.Tier, d.N = 1, 1
		d.Dims[0] = policy.Dimension{Kind: uint8(limit.Key), Tier: -1}
	}
	f = r.post("/v1/chat/completions", chat("gpt-4o", `,"max_tokens":1000`)).want(t, 429).code(t, "request_exceeds_limit")
	if f["limit"] != 90.0 {
		t.Errorf("the tier's limit does not hold: %v", f)
	}
}

// A key whose own limit is unlimited has none, whatever its tier says; one without its own has its tier's.
func TestUnlimitedWinsOverTheTier(t *testing.T) {
	for own, want := range map[int64]int{auth.Unlimited: 200, 0: 429, 3: 200} {
		r := newRig(t, func(s *setup) {
			s.key.QPSLimit, s.key.Tier = own, "free"
			s.settings = proxy.Settings{Tiers: []proxy.Tier{{Name: "free", Limits: limit.Limits{QPS: 1}}}}
		})
		r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200)
		if p := r.post("/v1/chat/completions", chat("gpt-4o", "")); p.status != want {
			t.Errorf("own limit %d: %d, want %d", own, p.status, want)
		}
	}
}

// A channel's own limits are tested per attempt; the next channel takes over, and when none has room that is said.
func TestChannelLimits(t *testing.T) {
	r := newRig(t, func(s *setup) {
		s.catalog = func(c *catalog) {
			c.channels[0].QPSLimit = 1
			c.channels = append(c.channels, upstream.Channel{ID: 3, Name: "openai-2", Provider: "openai", BaseURL: c.channels[0].BaseURL, Credential: "up", QPSLimit: 1})
		}
	})
	for range 2 {
		r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200)
	}
	f := r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 429).code(t, "rate_limit_exceeded")
	if f["dimension"] != "channel" || f["kind"] != "qps" || f["retry_after_exact"] != false {
		t.Errorf("%v", f)
	}
	if e := r.journal.last(t); e.Kind != llm.EntryVoid || e.HTTPStatus != 429 || e.Cost != 0 || len(r.journal.of(llm.EntrySettle)) != 2 {
		t.Errorf("%+v", e)
	}
	for _, id := range []limit.ID{{Kind: limit.Key, Scope: idKey}, {Kind: limit.Global}} {
		if use, err := r.limits.Inspect(t.Context(), id); err != nil || use.QPS != 2 {
			t.Errorf("%v: the refusal left a trace: %+v, %v", id, use, err)
		}
	}
}

// Of several channels without room the one that has some first is what a client waits for; its wait is a hint.
func TestNoRoomInAnyChannelIsAHintForTheFirstThatHasSome(t *testing.T) {
	r := newRig(t, func(s *setup) {
		s.catalog = func(c *catalog) {
			c.channels[0].TPMLimit = 100
			c.channels = append(c.channels, upstream.Channel{ID: 3, Name: "openai-2", Provider: "openai", BaseURL: c.channels[0].BaseURL, Credential: "up", TPMLimit: 100})
		}
	})
	body := chat("gpt-4o", `,"max_tokens":60`)
	for range 2 {
		r.post("/v1/chat/completions", body, "x-sim", "usage_in=40,usage_out=60").want(t, 200)
		r.clock.Advance(10 * time.Second)
	}
	before, _ := r.limits.Balance(idUser)
	f := r.post("/v1/chat/completions", body).want(t, 429).code(t, "rate_limit_exceeded")
	if f["retry_after_ms"] != 40_000.0 || f["retry_after_exact"] != false {
		t.Errorf("%v", f)
	}
	if after, held := r.limits.Balance(idUser); after != before || held != 0 || len(r.journal.of(llm.EntrySettle)) != 2 {
		t.Errorf("charged %d, held %d", before-after, held)
	}
}

// An attempt that fails gives its channel's room back at once, not at the request's end; the error names who was tried.
func TestFailedAttemptFreesItsChannel(t *testing.T) {
	r := newRig(t, func(s *setup) {
		s.catalog = func(c *catalog) {
			c.channels[0].Priority, c.channels[0].QPSLimit, c.channels[0].BaseURL = 9, 9, "http://127.0.0.1:1"
			c.channels = append(c.channels, upstream.Channel{ID: 3, Name: "openai-2", Provider: "openai", BaseURL: c.channels[1].BaseURL, Credential: "up", QPSLimit: 9})
		}
	})
	inUse := func(channel uint64) int64 {
		use, err := r.limits.Inspect(t.Context(), limit.ID{Kind: limit.Channel, Scope: channel})
		must(t, err)
		return use.Concurrency
	}
	done := make(chan reply)
	go func() { done <- r.post("/v1/chat/completions", chat("gpt-4o", ""), "x-sim", "latency=1s") }()
	eventually(t, func() bool { return inUse(3) == 1 }, "the second channel was never tried")
	if n := inUse(1); n != 0 {
		t.Errorf("the failed channel still has %d in use", n)
	}
	(<-done).want(t, 200)
	if inUse(3) != 0 {
		t.Error("room on the channel was not given back")
	}
	f := r.post("/v1/chat/completions", chat("gpt-4o", ""), "x-sim", "status=500").want(t, 502).code(t, "upstream_unavailable")
	if tried, _ := f["attempted_channels"].([]any); len(tried) == 0 {
		t.Errorf("%v", f)
	}
}

// The ledger is down: nothing is sent when the reserve cannot be written, nothing leaves when it is not acknowledged.
func TestLedgerDown(t *testing.T) {
	r := newRig(t)
	r.journal.refuse = errDown
	p := r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 503)
	p.code(t, "overloaded")
	if ms := p.header.Get("retry-after-ms"); len(ms) < 3 {
		t.Errorf("retry-after-ms is %q", ms)
	}
	if f := r.post("/v1/messages", everyRoute[4].body).want(t, 529).fields(t); f["type"] != "overloaded_error" {
		t.Errorf("%v", f)
	}
	r.get("/readyz").want(t, 503)
	if r.sim.Stats().Requests != 0 {
		t.Error("sent without a hold")
	}
	r.journal.refuse = nil
	for _, kind := range []llm.EntryKind{llm.EntryReserve, llm.EntrySettle} {
		r.journal.wait = func(e llm.Entry) error {
			if e.Kind == kind {
				return errDown
			}
			return nil
		}
		r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 503).code(t, "overloaded")
	}
}

// A hold that the ledger did not acknowledge gives the client nothing, so nothing is owed, and the upstream is cut.
func TestNothingIsOwedForAHoldThatWasNotAcknowledged(t *testing.T) {
	r := newRig(t, limits(auth.Key{TPMLimit: 10_000}))
	before, _ := r.limits.Balance(idUser)
	r.journal.wait = func(e llm.Entry) error {
		if e.Kind == llm.EntryReserve {
			return errDown
		}
		return nil
	}
	for _, more := range []string{"", `,"stream":true`} {
		r.post("/v1/chat/completions", chat("gpt-4o", more), "x-sim", "pace=50ms,out=400").want(t, 503).code(t, "overloaded")
		if e := r.journal.last(t); e.Kind != llm.EntryVoid || e.Status != llm.StatusFailed || e.Cost != 0 || e.HTTPStatus != 503 {
			t.Errorf("%+v", e)
		}
		use, err := r.limits.Inspect(t.Context(), limit.ID{Kind: limit.Key, Scope: idKey})
		must(t, err)
		if after, held := r.limits.Balance(idUser); after != before || held != 0 || use.TPM != 0 {
			t.Errorf("charged %d, held %d, %d tokens", before-after, held, use.TPM)
		}
	}
	eventually(t, func() bool { return r.sim.Stats().Open == 0 }, "the upstream goes on")
}

// An upstream's own refusal of the request is passed on as it is, and costs nothing.
func TestUpstream4xx(t *testing.T) {
	r := newRig(t)
	before, _ := r.limits.Balance(idUser)
	p := r.post("/v1/chat/completions", chat("gpt-4o", ""), "x-sim", "status=422").want(t, 422)
	if !json.Valid(p.body) || !strings.Contains(string(p.body), `"error"`) {
		t.Errorf("%s", p.body)
	}
	if after, _ := r.limits.Balance(idUser); after != before {
		t.Errorf("it cost %d", before-after)
	}
	if e := r.journal.last(t); e.Kind != llm.EntryVoid || e.HTTPStatus != 422 {
		t.Errorf("%+v", e)
	}
}

// S09, theirs: a 429 of the upstream never reaches the client raw.
func TestS09UpstreamRateLimited(t *testing.T) {
	r := newRig(t)
	for _, x := range everyRoute {
		for _, more := range []string{"", `,"stream":true`} {
			if more != "" && !slices.ContainsFunc(streams(), func(s route) bool { return s.path == x.path }) {
				continue
			}
			r.setCatalogFresh()
			p := r.post(x.path, x.with(more), "x-sim", "status=429,retry_after=7").want(t, 429)
			f := p.code(t, "upstream_rate_limited")
			typ := map[bool]string{true: "rate_limit_error", false: "rate_limit_exceeded"}[strings.HasPrefix(x.path, "/v1/messages")]
			if ms := f["retry_after_ms"].(float64); ms < 6000 || ms > 7000 || p.header.Get("Retry-After") != "7" || f["type"] != typ {
				t.Errorf("%s: %v %v", x.path, f, p.header)
			}
		}
	}
}

// M02: whatever the upstream does before the first byte, afterwards nothing is held and nothing owed.
func TestM02UpstreamFailures(t *testing.T) {
	r := newRig(t, func(s *setup) { s.upstream.HeaderTimeoutMS, s.upstream.IdleTimeoutMS = 500, 500 })
	for _, mode := range []struct {
		sim    string
		status []int
	}{{"reset=headers", []int{502}}, {"status=500", []int{502}}, {"latency=10s", []int{504}}, {"hang_after=1", []int{504}}, {"reset_after=1", []int{502}}} {
		for _, x := range everyRoute {
			r.setCatalogFresh()
			before, _ := r.limits.Balance(idUser)
			p := r.post(x.path, x.body, "x-sim", mode.sim)
			if p.status != mode.status[0] && p.status != 200 || p.status == 200 && !strings.Contains(mode.sim, "after") {
				t.Errorf("%s on %s: %d %s", mode.sim, x.path, p.status, p.body)
			}
			if after, held := r.limits.Balance(idUser); p.status != 200 && after != before || held != 0 {
				t.Errorf("%s on %s: cost %d, held %d", mode.sim, x.path, before-after, held)
			}
		}
	}
	use, err := r.limits.Inspect(t.Context(), limit.ID{Kind: limit.Key, Scope: idKey})
	must(t, err)
	if use.TPMHeld != 0 || use.Concurrency != 0 {
		t.Errorf("%+v", use)
	}
}

// setCatalogFresh renames the channels, so that no cool-down of an earlier request is met.
func (r *rig) setCatalogFresh() {
	for i := range r.cat.channels {
		r.cat.channels[i].Name += "x"
	}
	r.setCatalog()
}

// M06: a panic after the reservation, on every route: 5xx in the dialect, or an error event in a stream, nothing held, the process
// lives.
func TestM06Panic(t *testing.T) {
	r := newRig(t)
	for _, kind := range []llm.EntryKind{llm.EntryReserve, llm.EntrySettle} {
		r.journal.wait = func(e llm.Entry) error {
			if e.Kind == kind {
				panic("boom")
			}
			return nil
		}
		for _, x := range everyRoute {
			f := r.post(x.path, x.body).want(t, 500).code(t, "internal_error")
			if messages := strings.HasPrefix(x.path, "/v1/messages"); messages != (f["type"] == "api_error") {
				t.Errorf("%s: %v", x.path, f)
			}
		}
		for _, x := range streams() {
			p := r.post(x.path, x.with(`,"stream":true`))
			if kind == llm.EntryReserve {
				p.want(t, 500).code(t, "internal_error")
				continue
			}
			if ev := p.want(t, 200).events(); !strings.Contains(ev[len(ev)-1], "internal_error") || strings.Contains(string(p.body), `"`+terminal(x.path)+`"`) || strings.Contains(string(p.body), "[DONE]") {
				t.Errorf("%s: %s", x.path, p.body)
			}
		}
	}
	r.idle()
	if _, held := r.limits.Balance(idUser); held != 0 {
		t.Errorf("%d is held", held)
	}
	r.journal.wait = nil
	r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200)
	r.idle()
}

// S13: the exact path or 404, in the dialect of the prefix; the query is ignored and the limits hold.
func TestS13Paths(t *testing.T) {
	r := newRig(t, limits(auth.Key{QPSLimit: 1}))
	r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200) // spends the key
	for _, x := range everyRoute {
		r.post(x.path+"?a=/b&c", x.body).want(t, 429)
		for _, path := range []string{x.path + "/", "/" + x.path, strings.ToUpper(x.path), "/v1%2f" + x.path[4:], "/v1/." + x.path[3:], "/v1/x/.." + x.path[3:]} {
			raw := r.raw(r.rawHead(path, "Authorization: Bearer ", r.token, "\r\nConnection: close\r\nContent-Length: ", itoa(len(x.body)), "\r\n\r\n", x.body))
			if !strings.HasPrefix(raw, "HTTP/1.1 404 ") || !strings.Contains(raw, "route_not_found") {
				t.Errorf("%s: %.200s", path, raw)
			}
			if anthropic := strings.Contains(raw, `"type":"error"`); anthropic != strings.Contains(x.path, "messages") {
				t.Errorf("%s is answered in the wrong dialect: %s", path, raw)
			}
		}
	}
	if r.sim.Stats().Requests != 1 {
		t.Error("something got through")
	}
}

// A path that is nearly one of ours is told which.
func TestUnknownPathsAreToldTheNearest(t *testing.T) {
	r := newRig(t)
	for path, near := range map[string]string{"/v1/chat/completion": "/v1/chat/completions?", "/chat/completions?x=1": "/v1/chat/completions?",
		"/v1/messages/": "/v1/messages?", "/v1/tenant/rules/dryrun": "/v1/tenant/rules/dry-run?", "/v1/audio/transcriptions": ""} {
		f := r.post(path, "{}").want(t, 404).code(t, "route_not_found")
		if m, _ := f["message"].(string); !strings.HasSuffix(m, near) || near == "" && strings.Contains(m, "did you mean") {
			t.Errorf("%s: %v", path, f)
		}
	}
}

// Another method on a known path is no route either, and the answer says which method it takes.
func TestAnotherMethodIs404InTheDialect(t *testing.T) {
	r := newRig(t)
	for path, takes := range map[string]string{"/v1/chat/completions": "POST", "/v1/messages": "POST"} {
		f := r.get(path).want(t, 404).code(t, "route_not_found")
		if m, _ := f["message"].(string); f["type"] != "not_found_error" || !strings.HasSuffix(m, "it takes "+takes) {
			t.Errorf("%v", f)
		}
	}
	for _, path := range []string{"/v1/models", "/v1/models/gpt-4o", "/v1/key", "/healthz"} {
		f := r.post(path, "{}").want(t, 404).code(t, "route_not_found")
		if m, _ := f["message"].(string); !strings.Contains(m, "GET") {
			t.Errorf("%v", f)
		}
	}
	if raw := r.raw("DELETE /v1/messages HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(raw, "HTTP/1.1 404 ") || !strings.Contains(raw, `"type":"error"`) {
		t.Errorf("%s", raw)
	}
}

// Keys: missing, malformed, unknown, expired, revoked; of two sorts; not for this model.
func TestKeys(t *testing.T) {
	r := newRig(t, func(s *setup) { s.key.Models = []string{"gpt-4o"} })
	body := chat("gpt-4o", "")
	r.post("/v1/chat/completions", body, "Authorization", "").want(t, 401).code(t, "authentication_error")
	r.post("/v1/chat/completions", body, "Authorization", "Basic xyz").want(t, 401)
	r.post("/v1/chat/completions", body, "Authorization", "Bearer sk-weir-abcdefgh-0123456789012345678901234567890123456789012").want(t, 401)
	expired, revoked := r.another(auth.Key{ID: 8, UserID: idUser, ExpiresAtMS: r.clock.Wall().UnixMilli()}), r.another(auth.Key{ID: 9, UserID: idUser})
	r.dir.DeleteKey(9)
	for _, x := range everyRoute {
		r.post(x.path, x.body, expired...).want(t, 401).code(t, "authentication_error")
		r.post(x.path, x.body, revoked...).want(t, 401).code(t, "authentication_error")
	}
	if f := r.post("/v1/messages", everyRoute[4].body, "Authorization", "", "x-api-key", "nope").want(t, 401).fields(t); f["type"] != "authentication_error" {
		t.Errorf("%v", f)
	}
	r.post("/v1/chat/completions", body, "Authorization", "", "x-api-key", r.token).want(t, 200)
	r.post("/v1/chat/completions", body, "x-api-key", r.token).want(t, 200)
	r.post("/v1/chat/completions", body, "x-api-key", r.token+"x").want(t, 400)
	f := r.post("/v1/chat/completions", chat("gpt-4p", "")).want(t, 404).code(t, "model_not_found")
	if !strings.Contains(f["message"].(string), "gpt-4o") {
		t.Errorf("%v", f)
	}
	r.post("/v1/messages", everyRoute[4].body).want(t, 404).code(t, "model_not_found")
	r.post("/v1/chat/completions", body, "Content-Type", "application/x-www-form-urlencoded").want(t, 415)
	r.post("/v1/chat/completions", body, "Content-Encoding", "gzip").want(t, 415)
	req := r.request("/v1/chat/completions", body)
	req.Header["Authorization"] = []string{"Bearer " + r.token, "Bearer " + r.token}
	r.do(req).want(t, 400)
	if strings.Contains(r.log.String(), r.token) || strings.Contains(r.log.String(), "say hello") {
		t.Error("the log holds a secret or prompt text")
	}
}

// A key in the wrong place is neither said nor logged, and no query is.
func TestAMisplacedKeyIsHidden(t *testing.T) {
	r := newRig(t)
	for _, target := range []string{"/v1beta/models/x:generateContent?key=" + r.token, "/v1/" + r.token, "/v1/models/" + r.token, "/v1/foo?password=hunter2"} {
		if p := r.get(target).want(t, 404); strings.Contains(string(p.body), r.token) || strings.Contains(string(p.body), "hunter2") {
			t.Errorf("GET %s: %s", target, p.body)
		}
	}
	for _, body := range []string{chat(r.token, ""), `{"model":"gpt-4o","messages":[],"` + r.token + `":1,"` + r.token + `":1}`} {
		if p := r.post("/v1/chat/completions", body); p.status < 400 || strings.Contains(string(p.body), r.token) {
			t.Errorf("%d: %s", p.status, p.body)
		}
	}
	if log := r.log.String(); strings.Contains(log, r.token) || strings.Contains(log, "hunter2") || !strings.Contains(log, "why=") {
		t.Errorf("the log: %s", log)
	}
}

// The gateway's own routes.
func TestOwnRoutes(t *testing.T) {
	r := newRig(t, limits(auth.Key{QPSLimit: 3, TPMLimit: 1000, MonthlyQuota: 5_000_000}), func(s *setup) { s.key.Models = []string{"gpt-4o", "claude-*"} })
	if p := r.get("/v1/models").want(t, 200); string(p.body) != `{"data":[{"created":0,"id":"claude-sonnet-4-5","object":"model","owned_by":"weir"},{"created":0,"id":"gpt-4o","object":"model","owned_by":"weir"}],"object":"list"}` {
		t.Errorf("%s", p.body)
	}
	if p := r.get("/v1/models", "anthropic-version", "2023-06-01").want(t, 200); !strings.Contains(string(p.body), `"first_id":"claude-sonnet-4-5"`) || !strings.Contains(string(p.body), `"type":"model"`) {
		t.Errorf("%s", p.body)
	}
	r.get("/v1/models/gpt-4o").want(t, 200)
	r.get("/v1/models/text-embedding-3-small").want(t, 404).code(t, "model_not_found")
	if raw := r.raw("GET /v1/models/gpt%ZZ HTTP/1.1\r\nHost: h\r\nConnection: close\r\nx-api-key: " + r.token + "\r\n\r\n"); !strings.HasPrefix(raw, "HTTP/1.1 400 ") {
		t.Errorf("%s", raw)
	}
	r.get("/v1/models", "Authorization", "Bearer x").want(t, 401)
	r.post("/v1/chat/completions", chat("gpt-4o", `,"max_tokens":10`), "x-sim", "usage_in=10,usage_out=5").want(t, 200)
	var key map[string]any
	must(t, json.Unmarshal(r.get("/v1/key").want(t, 200).body, &key))
	monthly, balance := key["monthly"].(map[string]any), key["balance"].(map[string]any)
	if key["qps"].(map[string]any)["current"] != 1.0 || key["tpm"].(map[string]any)["current"] != 15.0 || monthly["used_micro_cny"] != 30.0 || monthly["limit_micro_cny"] != 5e6 ||
		balance["available_micro_cny"] != float64(startBalance-30) || balance["held_micro_cny"] != 0.0 || key["preview"] == "" {
		t.Errorf("%v", key)
	}
	r.get("/healthz", "Authorization", "").want(t, 200)
	r.get("/readyz", "Authorization", "").want(t, 200)
	req := r.request("/healthz", "")
	req.Method = http.MethodHead
	r.do(req).want(t, 200)
}

// L10: nothing a client chooses makes a metric series.
func TestL10NoSeriesFromClients(t *testing.T) {
	r := newRig(t)
	r.post("/v1/chat/completions", chat("nothing", "")).want(t, 404)
	r.post("/v1/nothing", "{}").want(t, 404)
	r.get("/v1/key", "Authorization", "Bearer x").want(t, 401)
	before := len(r.series())
	for i := range 50 {
		r.post("/v1/chat/completions", chat("m"+itoa(i), "")).want(t, 404)
		r.post("/v1/r"+itoa(i), "{}").want(t, 404)
		r.get("/v1/key", "Authorization", "Bearer x"+itoa(i)).want(t, 401)
	}
	if n := len(r.series()) - before; n != 0 {
		t.Errorf("%d new series", n)
	}
	var b strings.Builder
	r.server.WriteMetrics(&b)
	for _, want := range []string{`weir_requests_total{endpoint="chat",status="404"} 51`, `weir_reservations_open 0`, `weir_auth_failures_total 51`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in:\n%s", want, b.String())
		}
	}
}

// A server that is told to stop before it has begun does not begin.
func TestShutdownBeforeServe(t *testing.T) {
	r := newRig(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, r.server.Shutdown(t.Context()))
	must(t, r.server.Serve(ln))
}

// tenants is the admin API as the tenant routes know it.
type tenants struct{ asked []string }

func (f *tenants) note(what string, org uint64) ([]byte, error) {
	f.asked = append(f.asked, fmt.Sprintf("%s %d", what, org))
	return []byte(`{"ok":true}`), nil
}

func (f *tenants) TenantRules(_ context.Context, org uint64, _ string) ([]byte, error) {
	return f.note("get", org)
}
func (f *tenants) SetTenantRules(_ context.Context, org uint64, actor string, body []byte) ([]byte, error) {
	return f.note("set "+actor+" "+string(body), org)
}
func (f *tenants) TenantDryRun(_ context.Context, org, key uint64, body []byte) ([]byte, error) {
	return f.note(fmt.Sprintf("try key:%d %s", key, body), org)
}
func (f *tenants) RollbackTenantRules(_ context.Context, org uint64, actor string, body []byte) ([]byte, error) {
	return f.note("undo "+actor+" "+string(body), org)
}
func (f *tenants) TryTenantRules(_ context.Context, org uint64, actor string, body []byte) ([]byte, error) {
	return f.note("trial "+actor+" "+string(body), org)
}
func (f *tenants) TenantTrial(_ context.Context, org uint64) ([]byte, error) {
	return f.note("report", org)
}
func (f *tenants) TenantUsage(_ context.Context, org uint64, query string) ([]byte, error) {
	return f.note("usage "+query, org)
}

// The tenant routes are for keys with the scope, and always about the key's own org.
func TestTenantRoutes(t *testing.T) {
	none := newRig(t)
	none.get("/v1/tenant/rules").want(t, 404)
	f := &tenants{}
	r := newRig(t, func(s *setup) { s.key.Scopes = []string{proxy.ScopeTenant} })
	r.server.SetTenants(f)
	r.get("/v1/tenant/rules").want(t, 200)
	req := r.request("/v1/tenant/rules", `{"rules":[]}`)
	req.Method = http.MethodPut
	r.do(req).want(t, 200)
	r.post("/v1/tenant/rules/dry-run", `{}`).want(t, 200)
	r.get("/v1/tenant/usage?limit=2").want(t, 200)
	r.post("/v1/tenant/rules/trial", `{"percent":10}`).want(t, 200)
	r.get("/v1/tenant/rules/trial").want(t, 200)
	r.post("/v1/tenant/rules/rollback", `{}`).want(t, 200)
	r.post("/v1/tenant/rules", `{}`).want(t, 404)
	r.get("/v1/tenant/rules/rollback").want(t, 404)
	want := []string{"get 3", `set key:1 {"rules":[]} 3`, "try key:1 {} 3", "usage limit=2 3",
		`trial key:1 {"percent":10} 3`, "report 3", "undo key:1 {} 3"}
	if !slices.Equal(f.asked, want) {
		t.Errorf("asked %q, want %q", f.asked, want)
	}
	plain := newRig(t)
	plain.server.SetTenants(f)
	plain.get("/v1/tenant/rules").want(t, 403).code(t, "scope_required")
}

// X-Weir-Policy says who decided, where the settings ask for it.
func TestPolicyHeader(t *testing.T) {
	for _, on := range []bool{true, false} {
		r := newRig(t, func(s *setup) { s.settings.PolicyHeader = on })
		r.policy.decide = func(_ *policy.Facts, d *policy.Decision) { d.Module, d.Version = "mine", "ab12" }
		want := map[bool]string{true: "mine@ab12"}[on]
		for _, more := range []string{"", `,"stream":true`} {
			if got := r.post("/v1/chat/completions", chat("gpt-4o", more)).want(t, 200).header.Get("X-Weir-Policy"); got != want {
				t.Errorf("X-Weir-Policy is %q, want %q", got, want)
			}
		}
	}
}

// A header is a label up to a bound: a client cannot fill the facts and push the operator's labels out.
func TestHeaderLabelsAreBounded(t *testing.T) {
	r := newRig(t, func(s *setup) {
		s.settings.Labels = []proxy.Label{{Name: "team", Source: "header", Field: "X-Team"}}
	})
	var seen string
	r.policy.decide = func(f *policy.Facts, _ *policy.Decision) { seen = strings.Clone(f.Attr[policy.AttrLabel0]) }
	for n, want := range map[int]int{5: 5, 256: 256, 257: 0, 3700: 0} {
		r.post("/v1/chat/completions", chat("gpt-4o", ""), "X-Team", strings.Repeat("x", n)).want(t, 200)
		if len(seen) != want {
			t.Errorf("a header of %d bytes is a label of %d, want %d", n, len(seen), want)
		}
	}
}
