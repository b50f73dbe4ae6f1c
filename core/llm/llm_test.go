package llm_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-gateway/weir/core/llm"
)

var price = llm.Price{Input: 1_000_000, CachedInput: 500_000, CacheWrite: 1_250_000, Output: 4_000_000, Request: 7}

// M10: each class at its own price, one rounding for the whole request.
func TestM10CostByClass(t *testing.T) {
	for _, c := range []struct {
		name  string
		usage llm.Usage
		want  llm.Micro
	}{
		{"nothing", llm.Usage{}, 7},
		{"plain", llm.Usage{InputTokens: 10}, 17},
		{"cached", llm.Usage{InputTokens: 10, CachedInputTokens: 10}, 12},
		{"written", llm.Usage{InputTokens: 4, CacheWriteTokens: 4}, 12},
		{"all", llm.Usage{InputTokens: 12, CachedInputTokens: 4, CacheWriteTokens: 4, OutputTokens: 1}, 7 + 4 + 2 + 5 + 4},
		{"one rounding, not three", llm.Usage{InputTokens: 2, CachedInputTokens: 1, CacheWriteTokens: 1}, 7 + 2},
		{"classes above the sum", llm.Usage{InputTokens: 1, CachedInputTokens: 4}, 9},
		{"negative counts are nothing", llm.Usage{InputTokens: -5, OutputTokens: -5}, 7},
	} {
		if got := price.Cost(c.usage); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	if got := (llm.Usage{InputTokens: 12, CachedInputTokens: 4, CacheWriteTokens: 4, OutputTokens: 5}).Total(); got != 17 {
		t.Errorf("TPM weight %d, want every class at one", got)
	}
}

func TestPriceSaturates(t *testing.T) {
	p := llm.Price{Input: math.MaxInt64, CachedInput: math.MaxInt64, CacheWrite: math.MaxInt64, Output: math.MaxInt64, Request: math.MaxInt64}
	u := llm.Usage{InputTokens: math.MaxInt64, OutputTokens: math.MaxInt64}
	for name, got := range map[string]llm.Micro{
		"cost": p.Cost(u), "hold": p.Hold(math.MaxInt64, math.MaxInt64),
		"request": llm.Price{Request: math.MaxInt64, Output: 1}.Cost(llm.Usage{OutputTokens: 1}),
		"dearest": llm.Price{Output: llm.MaxPrice}.Cost(llm.Usage{OutputTokens: 1_000_000}),
	} {
		if got != llm.MaxCost {
			t.Errorf("%s: %d, want %d", name, got, llm.MaxCost)
		}
	}
	if got := p.Scale(math.MaxUint32).Output; got != math.MaxInt64 {
		t.Errorf("scale: %d", got)
	}
	if got := p.OutputFor(-math.MaxInt64, 1); got != -1 {
		t.Errorf("the lowest budget pays for %d tokens", got)
	}
	for _, c := range [][3]llm.Micro{{math.MaxInt64, 1, math.MaxInt64}, {math.MinInt64, -1, -math.MaxInt64},
		{-math.MaxInt64, -1, -math.MaxInt64}, {math.MinInt64, 0, -math.MaxInt64}, {-math.MaxInt64, math.MaxInt64, 0}} {
		if got := llm.AddMicro(c[0], c[1]); got != c[2] {
			t.Errorf("%d + %d = %d, want %d", c[0], c[1], got, c[2])
		}
	}
}

func TestScale(t *testing.T) {
	if got := price.Scale(0); got != price {
		t.Errorf("0 means 1000: %+v", got)
	}
	if got := price.Scale(1000); got != price {
		t.Errorf("1000: %+v", got)
	}
	if got := (llm.Price{Input: 3, Request: 10}).Scale(1500); got != (llm.Price{Input: 5, Request: 15}) {
		t.Errorf("rounded up: %+v", got)
	}
}

// exactCost is Cost in unbounded arithmetic.
func exactCost(p llm.Price, u llm.Usage) *big.Int {
	sum := new(big.Int)
	add := func(n llm.Tokens, m llm.Micro) {
		if n > 0 {
			sum.Add(sum, new(big.Int).Mul(big.NewInt(int64(n)), big.NewInt(int64(m))))
		}
	}
	add(u.InputTokens-u.CachedInputTokens-u.CacheWriteTokens, p.Input)
	add(u.CachedInputTokens, p.CachedInput)
	add(u.CacheWriteTokens, p.CacheWrite)
	add(u.OutputTokens, p.Output)
	sum.Add(sum, big.NewInt(999_999))
	sum.Div(sum, big.NewInt(1_000_000))
	return sum.Add(sum, big.NewInt(int64(p.Request)))
}

func TestPriceAgainstBigIntegers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		micro := rapid.Custom(func(t *rapid.T) llm.Micro {
			return llm.Micro(rapid.Int64Range(0, 1<<rapid.IntRange(0, 62).Draw(t, "bits")).Draw(t, "m"))
		})
		count := rapid.Custom(func(t *rapid.T) llm.Tokens {
			return llm.Tokens(rapid.Int64Range(0, 1<<rapid.IntRange(0, 60).Draw(t, "bits")).Draw(t, "n"))
		})
		p := llm.Price{Input: micro.Draw(t, "input"), CachedInput: micro.Draw(t, "cached"), CacheWrite: micro.Draw(t, "write"),
			Output: micro.Draw(t, "output"), Request: micro.Draw(t, "request")}
		u := llm.Usage{InputTokens: count.Draw(t, "in"), OutputTokens: count.Draw(t, "out")}
		u.CachedInputTokens = min(count.Draw(t, "c"), u.InputTokens)
		u.CacheWriteTokens = min(count.Draw(t, "w"), u.InputTokens-u.CachedInputTokens)
		want := exactCost(p, u)
		if most := big.NewInt(int64(llm.MaxCost)); want.Cmp(most) > 0 {
			want = most
		}
		got := p.Cost(u)
		if int64(got) != want.Int64() {
			t.Fatalf("cost %d, want %s", got, want)
		}
		if hold := p.Hold(u.InputTokens, u.OutputTokens); hold < got {
			t.Fatalf("held %d, cost %d", hold, got)
		}
		checkOutputFor(t, p, micro.Draw(t, "budget"), u.InputTokens)
	})
}

// checkOutputFor: what OutputFor allows fits the budget, and one token more does not.
func checkOutputFor(t *rapid.T, p llm.Price, budget llm.Micro, input llm.Tokens) {
	n := p.OutputFor(budget, input)
	switch {
	case n < 0:
		if p.Hold(input, 0) <= budget {
			t.Fatalf("budget %d pays for the input", budget)
		}
	case n == math.MaxInt64:
	default:
		if p.Hold(input, n) > budget {
			t.Fatalf("%d tokens cost %d of %d", n, p.Hold(input, n), budget)
		}
		if more := p.Hold(input, n+2); more <= budget && more < llm.MaxCost && p.Output >= 1_000_000 {
			t.Fatalf("%d tokens would still fit: %d of %d", n+2, more, budget)
		}
	}
}

func TestClocks(t *testing.T) {
	wall := time.Date(2026, 11, 30, 7, 0, 0, 0, time.UTC)
	c := llm.NewFakeClock(wall)
	c.Advance(3 * time.Second)
	c.Jump(-2 * time.Hour)
	if c.Mono() != 3*time.Second || !c.Wall().Equal(wall.Add(3*time.Second-2*time.Hour)) {
		t.Errorf("%v %v", c.Mono(), c.Wall())
	}
	s := llm.NewSystemClock()
	a, b := s.Mono(), s.Mono()
	if a < 0 || b < a || s.Wall().Before(wall.AddDate(-30, 0, 0)) {
		t.Errorf("%v %v", a, b)
	}
}

func TestWords(t *testing.T) {
	for s, want := range map[llm.Status]string{llm.StatusOpen: "open", llm.StatusFinalized: "finalized",
		llm.StatusPartial: "partial", llm.StatusRefunded: "refunded", llm.StatusFailed: "failed", 99: "failed"} {
		if s.String() != want {
			t.Errorf("%d: %q", s, s.String())
		}
	}
	if llm.Chat.Path() != "/v1/chat/completions" || llm.Messages.Dialect() != llm.Anthropic || llm.Responses.Dialect() != llm.OpenAI {
		t.Error("endpoints")
	}
	e := llm.Invalid("n", "n is %d", 3)
	if e.Error() != "n is 3" || e.Kind != llm.KindInvalid || e.Param != "n" || e.Unwrap() != nil {
		t.Errorf("%+v", e)
	}
}
