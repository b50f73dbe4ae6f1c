package proxy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/tokens"
)

// broke is the error code every stream ends with that has outgrown the money of its user.
const broke = "insufficient_quota"

// ends tells whether a stream came to its end, be it that of its cap.
func ends(events []string, path string) bool {
	last := events[len(events)-1]
	return strings.Contains(last, terminal(path)) || strings.Contains(last, "response.incomplete")
}

// M07: no cap in the body, a balance for about 100 tokens: the granted cap goes upstream, and the stream ends well within it.
func TestM07CapGoesUpstream(t *testing.T) {
	for _, x := range streams() {
		r := newRig(t, func(s *setup) { s.balance = price.Hold(60, 100) })
		body := strings.NewReplacer(`,"max_tokens":50`, "", `,"max_output_tokens":50`, "").Replace(x.with(`,"stream":true`))
		if strings.HasSuffix(x.path, "messages") {
			body = x.with(`,"stream":true`) // the dialect insists on a cap
		}
		p := r.post(x.path, body, "x-sim", "out=10000").want(t, 200)
		if ev := p.events(); !ends(ev, x.path) || len(ev) > 200 {
			t.Errorf("%s: %d events, the last is %s", x.path, len(ev), ev[len(ev)-1])
		}
		r.idle()
		if left, _ := r.limits.Balance(idUser); left < 0 {
			t.Errorf("%s: the floor is passed by %d", x.path, -left)
		}
	}
}

// M07: an upstream that ignores the cap it was sent. The stream is cut where the hold ends, whatever the packets, and
// what is charged never passes the floor.
func TestM07UpstreamIgnoresItsCap(t *testing.T) {
	for _, x := range streams() {
		var cut []string
		for _, packing := range []string{"pace=200us", "batch=7", "batch=10000"} {
			r := newRig(t, func(s *setup) { s.balance = price.Hold(60, 100) })
			p := r.post(x.path, x.with(`,"stream":true`), "x-sim", "nocap,out=2000,"+packing).want(t, 200)
			ev := p.events()
			if !strings.Contains(ev[len(ev)-1], broke) || strings.Contains(string(p.body), terminal(x.path)) {
				t.Fatalf("%s %s: %d events, the last is %s", x.path, packing, len(ev), ev[len(ev)-1])
			}
			r.idle()
			if left, held := r.limits.Balance(idUser); left < 0 || held != 0 || left > price.Output/10_000 {
				t.Errorf("%s %s: %d left, %d held", x.path, packing, left, held)
			}
			if e := r.journal.last(t); e.Status != llm.StatusPartial || !e.Estimated || e.Usage.OutputTokens < 50 {
				t.Errorf("%s %s: settled as %+v", x.path, packing, e)
			}
			if cut == nil {
				cut = ev
			}
			if len(ev) != len(cut) {
				t.Errorf("%s %s: %d events, with other packets %d", x.path, packing, len(ev), len(cut))
			}
			eventually(t, func() bool { return r.sim.Stats().Open == 0 }, "the upstream was not cut")
		}
	}
}

// M07: one event that is larger than what is left passes nothing on and charges no more than the hold.
func TestM07OneLargeEvent(t *testing.T) {
	r := newRig(t, func(s *setup) { s.balance = price.Hold(60, 100) })
	p := r.post("/v1/chat/completions", chat("gpt-4o", `,"stream":true`), "x-sim", "nocap,big_event=100KB").want(t, 200)
	if ev := p.events(); !strings.Contains(ev[len(ev)-1], broke) || len(p.body) > 10_000 {
		t.Errorf("%d bytes, the last event is %s", len(p.body), ev[len(ev)-1])
	}
	r.idle()
	left, _ := r.limits.Balance(idUser)
	if e := r.journal.last(t); left < 0 || e.Usage.OutputTokens > llm.Tokens(len(p.events())) {
		t.Errorf("%d left, and charged for what was not relayed: %+v", left, e.Usage)
	}
}

// M07: a stream that has reached its hold holds more, of every meter at once, up to the first of them that has no more; under the rule
// cut it ends there, and no meter has more than its limit.
func TestM07EveryMeterBoundsAStream(t *testing.T) {
	const tokens = 300
	money := price.Hold(60, 200)
	key := limit.ID{Kind: limit.Key, Scope: idKey}
	for name, x := range map[string]struct {
		code  string
		setup option
		meter limit.ID
	}{
		"key":     {"rate_limit_exceeded", limits(auth.Key{TPMLimit: tokens}), key},
		"user":    {"rate_limit_exceeded", func(s *setup) { s.user.TPMLimit = tokens }, limit.ID{Kind: limit.User, Scope: idUser}},
		"global":  {"rate_limit_exceeded", func(s *setup) { s.settings.Global.TPM = tokens }, limit.ID{Kind: limit.Global}},
		"model":   {"rate_limit_exceeded", func(s *setup) { s.catalog = func(c *catalog) { c.models[0].TPMLimit = tokens } }, limit.ID{Kind: limit.Model, Name: "gpt-4o"}},
		"channel": {"rate_limit_exceeded", func(s *setup) { s.catalog = func(c *catalog) { c.channels[0].TPMLimit = tokens } }, limit.ID{Kind: limit.Channel, Scope: 1}},
		"balance": {"insufficient_quota", func(s *setup) { s.balance = money }, key},
		"month":   {"monthly_quota_exceeded", limits(auth.Key{MonthlyQuota: money}), key},
		"day":     {"daily_quota_exceeded", func(s *setup) { s.key.Budgets = []auth.Budget{{Window: llm.Day, Limit: money}} }, key},
	} {
		r := newRig(t, x.setup, func(s *setup) { s.user.Overrun = "cut" })
		ev := r.post("/v1/chat/completions", chat("gpt-4o", `,"stream":true,"max_tokens":20`), "x-sim", "nocap,out=1000").want(t, 200).events()
		if last := ev[len(ev)-1]; !strings.Contains(last, x.code) {
			t.Errorf("%s: %d events, the last is %s", name, len(ev), last)
		}
		r.idle()
		e := r.journal.last(t)
		use, err := r.limits.Inspect(t.Context(), x.meter)
		over := use.TPM > tokens
		if x.code != "rate_limit_exceeded" {
			over = e.Cost > money
		}
		if err != nil || over || e.Usage.OutputTokens < 100 || use.TPM != int64(e.Usage.Total()) || use.TPMHeld != 0 {
			t.Errorf("%s: %+v, charged %d for %+v, %v", name, use, e.Cost, e.Usage, err)
		}
	}
}

// An upstream that keeps its cap, but whose text we count as up to a quarter more, is not cut, and under the rule cut
// nobody pays for the difference: here it takes each word for a token, and we take one word in seventeen for several.
func TestDoubtIsNotCharged(t *testing.T) {
	r := newRig(t, func(s *setup) {
		s.balance = price.Hold(60, 100)
		s.sim.Default.Text = doubtful
	})
	p := r.post("/v1/chat/completions", chat("gpt-4o", `,"stream":true`), "x-sim", "out=10000,usage=none").want(t, 200)
	ev := p.events()
	if ev[len(ev)-1] != "[DONE]" {
		t.Fatalf("cut: %s", ev[len(ev)-1])
	}
	r.idle()
	e, words := r.journal.last(t), llm.Tokens(strings.Count(string(p.body), `"content":"`))
	if left, _ := r.limits.Balance(idUser); left < 0 || e.Status != llm.StatusFinalized || e.Usage.OutputTokens > words {
		t.Errorf("%d left, %d words, %+v", left, words, e)
	}
	counter, err := tokens.New(tokens.Options{})
	must(t, err)
	if n := counter.Text(counter.For("gpt-4o"), []byte(" "+doubtful)) * words / 17; n <= e.Usage.OutputTokens {
		t.Fatalf("the text counts as %d, within the hold of %d: nothing was in doubt", n, e.Usage.OutputTokens)
	}
}

// M07, not streamed: without usage, text beyond the cap that went upstream is not owed either.
func TestM07WholeAnswerBeyondItsCap(t *testing.T) {
	for _, x := range streams() {
		r := newRig(t, func(s *setup) { s.balance = price.Hold(60, 100) })
		r.post(x.path, x.body, "x-sim", "nocap,out=2000,usage=none").want(t, 200)
		r.idle()
		left, _ := r.limits.Balance(idUser)
		if e := r.journal.last(t); left < 0 || e.Usage.OutputTokens != 50 || !e.Estimated {
			t.Errorf("%s: %d left, %+v", x.path, left, e)
		}
	}
}

// What is owed for a text does not depend on how the upstream cuts it into events, so one that keeps its cap is not cut.
func TestTheCutsOfAStreamCostNothing(t *testing.T) {
	var events []string
	for range 100 {
		events = append(events, `{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"hello "}}]}`)
	}
	events = append(events, `{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`)
	text, err := json.Marshal("[" + strings.Join(events, ",") + "]")
	must(t, err)
	body := `{"model":"gpt-4o","stream":true,"max_tokens":110,"messages":[{"role":"user","content":` + string(text) + `}]}`
	r := newRig(t)
	p := r.post("/v1/chat/completions", body, "x-sim", "echo=events").want(t, 200)
	if n := strings.Count(string(p.body), "hello "); n != 100 {
		t.Errorf("cut after %d events: %s", n, p.body)
	}
	r.idle()
	if e := r.journal.last(t); e.Usage.OutputTokens != 101 || !e.Estimated {
		t.Errorf("%+v", e.Usage)
	}
}
