package proxy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/llm"
)

// doubtful is a text that the upstream takes for one token a word, and we, in one word of seventeen, for several.
const doubtful = "the sun was in the sky and the moon was at the sea and far from zyzzyvas"

// overrunCase is one rule under one way of using more than was held.
type overrunCase struct {
	rule, how  string
	whole, cut bool // cut: the stream ends with an error event
	below      bool // the balance ends below its floor
	house      bool // the house pays a part
	beyond     bool // more output is recorded than was held
}

func (x overrunCase) name() string {
	return fmt.Sprintf("%s, %s, whole %t", x.rule, x.how, x.whole)
}

// upstreams are the ways of using more than was held.
func overrunSims() map[string]string {
	return map[string]string{
		"reports more":     "out=40,usage_out=900",
		"no usage":         "out=10000,usage=none",
		"ignores its cap":  "nocap,out=2000,usage=none",
		"ignores, reports": "nocap,out=2000",
	}
}

// The three rules, each against an upstream that reports more than was held, one that reports nothing and whose text we
// count as more than its cap, and one that ignores the cap it was sent.
func TestOverrunRules(t *testing.T) {
	for _, x := range []overrunCase{
		{rule: "debt", how: "reports more", below: true, beyond: true},
		{rule: "debt", how: "no usage"},
		{rule: "debt", how: "ignores its cap", cut: true},
		{rule: "debt", how: "ignores, reports", cut: true},
		{rule: "clip", how: "reports more", house: true, beyond: true},
		{rule: "clip", how: "no usage", house: true, beyond: true},
		{rule: "clip", how: "ignores its cap", house: true, beyond: true},
		{rule: "clip", how: "ignores, reports", house: true, beyond: true},
		{rule: "cut", how: "reports more", below: true, beyond: true},
		{rule: "cut", how: "no usage"},
		{rule: "cut", how: "ignores its cap", cut: true},
		{rule: "cut", how: "ignores, reports", cut: true},

		{rule: "debt", how: "reports more", whole: true, below: true, beyond: true},
		{rule: "debt", how: "no usage", whole: true},
		{rule: "debt", how: "ignores its cap", whole: true},
		{rule: "debt", how: "ignores, reports", whole: true, below: true, beyond: true},
		{rule: "clip", how: "reports more", whole: true, house: true, beyond: true},
		{rule: "clip", how: "no usage", whole: true, house: true, beyond: true},
		{rule: "clip", how: "ignores its cap", whole: true, house: true, beyond: true},
		{rule: "clip", how: "ignores, reports", whole: true, house: true, beyond: true},
		{rule: "cut", how: "reports more", whole: true, below: true, beyond: true},
		{rule: "cut", how: "no usage", whole: true},
		{rule: "cut", how: "ignores its cap", whole: true},
		{rule: "cut", how: "ignores, reports", whole: true, below: true, beyond: true},
	} {
		t.Run(x.name(), func(t *testing.T) { x.run(t) })
	}
}

func (x overrunCase) run(t *testing.T) {
	const path, granted = "/v1/chat/completions", 100
	r := newRig(t, func(s *setup) {
		s.user.Overrun = x.rule
		s.sim.Default.Text = doubtful
		s.balance = price.Hold(60, granted)
	})
	more := `,"stream":true`
	if x.whole {
		more = ""
	}
	p := r.post(path, chat("gpt-4o", more), "x-sim", overrunSims()[x.how]).want(t, 200)
	if !x.whole {
		ev := p.events()
		if last := ev[len(ev)-1]; strings.Contains(last, broke) != x.cut || (last == "[DONE]") == x.cut {
			t.Errorf("%d events, the last is %s", len(ev), last)
		}
	}
	r.idle()
	held, e := r.journal.of(llm.EntryReserve)[0], r.journal.last(t)
	left, _ := r.limits.Balance(idUser)
	if x.below != (left < 0) {
		t.Errorf("%d left", left)
	}
	if most := price.OutputFor(held.Held, held.Usage.InputTokens); x.beyond != (e.Usage.OutputTokens > most) {
		t.Errorf("%d output tokens recorded, %d held", e.Usage.OutputTokens, most)
	}
	house := price.Cost(e.Usage) - e.Cost
	if x.house != (house > 0) || x.house && e.Cost != held.Held {
		t.Errorf("the house pays %d, the user %d of %d held", house, e.Cost, held.Held)
	}
	if line := fmt.Sprintf("weir_overrun_clipped_micro_total %d\n", house); !strings.Contains(r.metrics(), line) {
		t.Errorf("no %q in the metrics", line)
	}
}

// Under clip the same answer costs the same whether it comes whole or as a stream, and whatever the balance has left: what
// was held before it.
func TestClipCostsTheSameBothWays(t *testing.T) {
	for how, sim := range overrunSims() {
		for _, balance := range []llm.Micro{price.Hold(60, 100), price.Hold(60, 1_000_000)} {
			for _, more := range []string{`,"max_tokens":90`, `,"max_tokens":90,"stream":true`} {
				r := newRig(t, func(s *setup) { s.user.Overrun, s.sim.Default.Text, s.balance = "clip", doubtful, balance })
				r.post("/v1/chat/completions", chat("gpt-4o", more), "x-sim", sim).want(t, 200)
				r.idle()
				held, e := r.journal.of(llm.EntryReserve)[0], r.journal.last(t)
				if held.Held != price.Hold(held.Usage.InputTokens, 90) || e.Cost != held.Held || price.Cost(e.Usage) <= e.Cost {
					t.Errorf("%s, %s, balance %d: charged %d of %d held for %+v", how, more, balance, e.Cost, held.Held, e.Usage)
				}
			}
		}
	}
}

// Under debt and clip, tokens beyond the hold are posted as debt of the window and the stream goes on; the next request
// meets them. Under cut it ends.
func TestOverrunOfTokens(t *testing.T) {
	for rule, cut := range map[string]bool{"": false, "debt": false, "clip": false, "cut": true} {
		r := newRig(t, limits(auth.Key{TPMLimit: 200}), func(s *setup) { s.user.Overrun = rule })
		ev := r.post("/v1/chat/completions", chat("gpt-4o", `,"stream":true`), "x-sim", "nocap,out=1000").want(t, 200).events()
		if last := ev[len(ev)-1]; strings.Contains(last, "rate_limit_exceeded") != cut || (last == "[DONE]") == cut {
			t.Errorf("%q: %d events, the last is %s", rule, len(ev), last)
		}
		r.idle()
		e, owed := r.journal.last(t), price.Cost(r.journal.last(t).Usage)
		if rule == "clip" {
			owed = r.journal.of(llm.EntryReserve)[0].Held
		}
		if !cut && (e.Cost != owed || e.Usage.OutputTokens < 1000) {
			t.Errorf("%q: charged %d, not %d, for %+v", rule, e.Cost, owed, e.Usage)
		}
		if !cut {
			r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 429)
		}
	}
}

// A client that leaves while our count is in doubt owes no more than the hold.
func TestOverrunOfAClientThatLeft(t *testing.T) {
	r := newRig(t, func(s *setup) {
		s.sim.Default.Text = doubtful
		s.balance = price.Hold(60, 100)
	})
	r.leave(r.request("/v1/chat/completions", chat("gpt-4o", `,"stream":true`), "x-sim", "out=10000,usage=none,pace=2ms,hang_after=114"), 113, nil)
	r.idle()
	if left, _ := r.limits.Balance(idUser); left < 0 || left > price.Output/10_000 {
		t.Errorf("%d left", left)
	}
}
