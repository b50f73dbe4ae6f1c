package llm_test

import (
	"math/big"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

// perMillion reads prices as people write them: units per million tokens, and units per request.
func perMillion(t *testing.T, input, cached, write, output, request string) llm.Price {
	t.Helper()
	var m [5]llm.Micro
	for i, s := range []string{input, cached, write, output, request} {
		v, err := llm.ParseMicro(s)
		if err != nil {
			t.Fatal(err)
		}
		m[i] = v
	}
	return llm.Price{Input: m[0], CachedInput: m[1], CacheWrite: m[2], Output: m[3], Request: m[4]}
}

// TestC13PriceAndRounding: a request is rounded up once, to a millionth of the currency, and a thousand of them come to a
// thousand times that: no more, no less. The exact costs are in unbounded fractions.
func TestC13PriceAndRounding(t *testing.T) {
	const requests = 1_000
	p := perMillion(t, "0.15", "0.075", "0.1875", "0.6", "0")
	for _, c := range []struct {
		name  string
		price llm.Price
		usage llm.Usage
		exact string // millionths of one request, before rounding
		sum   llm.Micro
	}{
		{"1 token at 0.15 per million", p, llm.Usage{InputTokens: 1}, "0.15", 1_000},
		{"1,000 tokens at once", p, llm.Usage{InputTokens: 1_000}, "150", 150_000},
		{"1 cached token", p, llm.Usage{InputTokens: 1, CachedInputTokens: 1}, "0.075", 1_000},
		{"1 token written to the cache", p, llm.Usage{InputTokens: 1, CacheWriteTokens: 1}, "0.1875", 1_000},
		{"all classes, rounded once", p, llm.Usage{InputTokens: 3, CachedInputTokens: 1, CacheWriteTokens: 1, OutputTokens: 1}, "1.0125", 2_000},
		{"exact, nothing to round", p, llm.Usage{InputTokens: 20}, "3", 3_000},
		{"just above", p, llm.Usage{InputTokens: 20, CachedInputTokens: 0, OutputTokens: 0, CacheWriteTokens: 1}, "3.0375", 4_000},
		{"per request and nothing else", perMillion(t, "0", "0", "0", "0", "0.00001"), llm.Usage{InputTokens: 9}, "10", 10_000},
		{"per request and 1 token", perMillion(t, "0.15", "0", "0", "0", "0.00001"), llm.Usage{InputTokens: 1}, "10.15", 11_000},
		{"batch: half of everything", tier(t, p, "0.5"), llm.Usage{InputTokens: 1, OutputTokens: 1}, "0.375", 1_000},
		{"batch, 1,000 tokens", tier(t, p, "0.5"), llm.Usage{InputTokens: 1_000, OutputTokens: 1_000}, "375", 375_000},
		{"batch, per request", perMillion(t, "0.15", "0", "0", "0", "0.00002").Scale(500), llm.Usage{InputTokens: 2}, "10.15", 11_000},
		{"priority, 1 token", tier(t, p, "1.75"), llm.Usage{InputTokens: 1}, "0.2625", 1_000},
		{"priority, all classes, rounded once", tier(t, p, "2"), llm.Usage{InputTokens: 3, CachedInputTokens: 1, CacheWriteTokens: 1, OutputTokens: 1}, "2.025", 3_000},
		{"a factor that a class does not take evenly is rounded up for it", tier(t, perMillion(t, "0.000001", "0", "0", "0.000001", "0"), "0.5"),
			llm.Usage{InputTokens: 1_000_000, OutputTokens: 1_000_000}, "2", 2_000},
		{"two factors, rounded up each", tier(t, p, "0.333").Scale(1500), llm.Usage{InputTokens: 1_000}, "74.925", 75_000},
		{"free", llm.Price{}, llm.Usage{InputTokens: 5, OutputTokens: 5}, "0", 0},
	} {
		var sum llm.Micro
		for range requests {
			sum = llm.AddMicro(sum, c.price.Cost(c.usage))
		}
		exact, _ := new(big.Rat).SetString(c.exact)
		if got := new(big.Rat).SetFrac(exactMillionths(c.price, c.usage), big.NewInt(1_000_000)); got.Cmp(exact) != 0 {
			t.Errorf("%s: exactly %s millionths, want %s", c.name, got, exact)
		}
		up := new(big.Int).Div(new(big.Int).Add(exact.Num(), new(big.Int).Sub(exact.Denom(), big.NewInt(1))), exact.Denom())
		if want := llm.Micro(up.Int64()) * requests; sum != c.sum || sum != want {
			t.Errorf("%s: %d in sum; the table says %d, the rule %d", c.name, sum, c.sum, want)
		}
	}
}

// tier is a price at a service tier, whose factor is given as people write it.
func tier(t *testing.T, p llm.Price, factor string) llm.Price {
	t.Helper()
	permille, err := llm.ParseFactor(factor)
	if err != nil || llm.Factor(permille) != factor {
		t.Fatalf("%s is read as %d, %v", factor, permille, err)
	}
	return p.Scale(permille)
}

func TestParseFactorTakesNothingElse(t *testing.T) {
	for _, s := range []string{"", "0", "-1", "0.0005", "1.2345", "1000.001", "half", "1e1"} {
		if f, err := llm.ParseFactor(s); err == nil {
			t.Errorf("%q is read as %d", s, f)
		}
	}
}

// exactMillionths is the cost in millionths of a Micro.
func exactMillionths(p llm.Price, u llm.Usage) *big.Int {
	sum := new(big.Int).Mul(big.NewInt(int64(p.Request)), big.NewInt(1_000_000))
	for _, x := range [][2]int64{
		{int64(u.InputTokens - u.CachedInputTokens - u.CacheWriteTokens), int64(p.Input)}, {int64(u.CachedInputTokens), int64(p.CachedInput)},
		{int64(u.CacheWriteTokens), int64(p.CacheWrite)}, {int64(u.OutputTokens), int64(p.Output)},
	} {
		sum.Add(sum, new(big.Int).Mul(big.NewInt(x[0]), big.NewInt(x[1])))
	}
	return sum
}
