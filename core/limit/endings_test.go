package limit

import (
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

// TestEndings is the table of the design: every progress with every ending, and what it costs in tokens and money.
func TestEndings(t *testing.T) {
	var (
		input   = llm.Usage{InputTokens: 20}
		partial = llm.Usage{InputTokens: 20, OutputTokens: 7}
		actual  = llm.Usage{InputTokens: 19, CachedInputTokens: 4, OutputTokens: 11}
		counted = llm.Usage{InputTokens: 20, OutputTokens: 9}
		early   = llm.Usage{InputTokens: 19, CachedInputTokens: 4, OutputTokens: 1}
		raised  = llm.Usage{InputTokens: 19, CachedInputTokens: 4, OutputTokens: 300}
		none    = llm.Usage{}
	)
	release := ending{}
	for _, c := range []struct {
		name string
		p    progress
		e    ending
		want outcome
	}{
		{"refused, nothing was sent", progress{stage: stageUnsent, input: 20}, release,
			outcome{llm.StatusRefunded, none, false}},
		{"all attempts failed before a first byte", progress{stage: stageUnsent, input: 20, status: 502}, release,
			outcome{llm.StatusFailed, none, false}},
		{"upstream 4xx passed through", progress{stage: stageUnsent, input: 20, status: 400}, release,
			outcome{llm.StatusRefunded, none, false}},
		{"sent, client left before the first byte", progress{stage: stageSent, input: 20}, release,
			outcome{llm.StatusPartial, input, true}},
		{"sent, then an error of ours", progress{stage: stageSent, input: 20, status: 504}, release,
			outcome{llm.StatusPartial, input, true}},
		{"complete, usage reported", progress{stage: stageSent, input: 20}, ending{true, actual, true},
			outcome{llm.StatusFinalized, actual, false}},
		{"complete, no usage", progress{stage: stageRelayed, input: 20, relayed: 7}, ending{true, counted, false},
			outcome{llm.StatusFinalized, counted, true}},
		{"complete, usage came on the way", progress{stage: stageKnown, input: 20, relayed: 7, usage: actual}, ending{true, counted, false},
			outcome{llm.StatusFinalized, actual, false}},
		{"client left in mid-stream", progress{stage: stageRelayed, input: 20, relayed: 7, status: 200}, release,
			outcome{llm.StatusPartial, partial, true}},
		{"upstream broke in mid-stream, usage had come", progress{stage: stageKnown, input: 20, relayed: 7, usage: actual, status: 200}, release,
			outcome{llm.StatusPartial, actual, false}},
		{"client left, text had come after the usage", progress{stage: stageKnown, input: 20, relayed: 300, usage: early, status: 200}, release,
			outcome{llm.StatusPartial, raised, true}},
		{"complete, text had come after the usage", progress{stage: stageKnown, input: 20, relayed: 299, usage: early}, ending{true, llm.Usage{InputTokens: 20, OutputTokens: 300}, false},
			outcome{llm.StatusFinalized, raised, true}},
		{"complete, the usage that counts is the last", progress{stage: stageKnown, input: 20, relayed: 300, usage: early}, ending{true, actual, true},
			outcome{llm.StatusFinalized, actual, false}},
		{"client closed right after the terminal event", progress{stage: stageKnown, input: 20, relayed: 11, usage: actual, status: 200}, ending{true, actual, true},
			outcome{llm.StatusFinalized, actual, false}},
		{"panic after sending", progress{stage: stageRelayed, input: 20, relayed: 7, status: 500}, release,
			outcome{llm.StatusPartial, partial, true}},
	} {
		if got := endings(&c.p, &c.e); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestOnlyFinalizedAndPartialCostMoney walks every state of progress through both endings.
func TestOnlyFinalizedAndPartialCostMoney(t *testing.T) {
	for s := stageUnsent; s <= stageKnown; s++ {
		for _, status := range []int{0, 200, 400, 503} {
			for _, e := range []ending{{}, {complete: true}, {complete: true, reported: true}} {
				o := endings(&progress{stage: s, input: 5, relayed: 6, usage: llm.Usage{InputTokens: 1}, status: status}, &e)
				if !o.owed() && o.usage != (llm.Usage{}) {
					t.Errorf("stage %d, status %d, %+v: %v with usage %+v", s, status, e, o.status, o.usage)
				}
				if o.owed() != (e.complete || s >= stageSent) {
					t.Errorf("stage %d, status %d, %+v: %v", s, status, e, o.status)
				}
			}
		}
	}
}
