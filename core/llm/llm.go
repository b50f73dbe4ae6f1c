// Package llm is the vocabulary that every other package speaks: tokens, money, usage, the facts of one
// request (Head), the error kinds, and the ledger's Entry. It does no I/O and takes no locks, so that it can
// stand below everything else.
package llm

import (
	"math"
	"math/bits"
)

// Tokens counts model tokens. Never negative where a limit or a usage is meant.
type Tokens int64

// Micro is money in millionths of the configured currency's unit. All arithmetic on money is integral.
type Micro int64

// MicroPerUnit is how many Micro make one unit (one yuan, one dollar) of the configured currency.
const MicroPerUnit Micro = 1_000_000

// MaxPrice is the most that a million tokens, or a request, may be given as a price: 100,000,000 units.
const MaxPrice = 100_000_000 * MicroPerUnit

// MaxCost is the most that one request is held or charged at: a million tokens at MaxPrice. It keeps what a provider
// reports by mistake, or a price multiplied by a thousand, from filling an account's int64 within a few requests.
const MaxCost = MaxPrice

// Usage is what one answered request consumed. InputTokens includes the cached and cache-write classes, as
// OpenTelemetry's GenAI conventions and OpenAI's prompt_tokens do; Anthropic's disjoint counts are summed on
// extraction.
type Usage struct {
	InputTokens       Tokens
	CachedInputTokens Tokens // part of InputTokens read from the provider's prompt cache
	CacheWriteTokens  Tokens // part of InputTokens written to the provider's prompt cache
	OutputTokens      Tokens
}

// Total is the number of tokens a TPM window is charged for: every class at weight one.
func (u Usage) Total() Tokens { return u.InputTokens + u.OutputTokens }

// Price is what one model costs: Micro per million tokens for each class, plus a flat Micro per request.
// A Price is copied into the reservation, so a later change of price cannot change a request in flight.
type Price struct {
	Input       Micro
	CachedInput Micro
	CacheWrite  Micro
	Output      Micro
	Request     Micro
}

// Dearest is the highest input class. Input is held at it, because the classes are known only afterwards.
func (p Price) Dearest() Micro { return max(p.Input, p.CachedInput, p.CacheWrite) }

// Cost is the price of u, rounded up once for the whole request, and MaxCost at most.
func (p Price) Cost(u Usage) Micro {
	plain := max(u.InputTokens-u.CachedInputTokens-u.CacheWriteTokens, 0)
	return product{}.plus(plain, p.Input).plus(u.CachedInputTokens, p.CachedInput).
		plus(u.CacheWriteTokens, p.CacheWrite).plus(u.OutputTokens, p.Output).cost(p.Request)
}

// Hold is the most that input and output tokens can come to under p, rounded up, and MaxCost at most.
func (p Price) Hold(input, output Tokens) Micro {
	return product{}.plus(input, p.Dearest()).plus(output, p.Output).cost(p.Request)
}

// OutputFor is the largest number of output tokens that p lets budget pay for beside input tokens; negative
// when budget does not even cover the input.
func (p Price) OutputFor(budget Micro, input Tokens) Tokens {
	left := AddMicro(budget, -p.Hold(input, 0))
	switch {
	case left < 0:
		return -1
	case p.Output == 0:
		return math.MaxInt64
	}
	hi, lo := bits.Mul64(uint64(left), 1_000_000)
	if hi >= uint64(p.Output) {
		return math.MaxInt64
	}
	n, _ := bits.Div64(hi, lo, uint64(p.Output))
	return Tokens(min(n, math.MaxInt64))
}

// Scale is p with every class multiplied by permille/1000, rounded up. A permille of 0 means 1000.
func (p Price) Scale(permille uint32) Price {
	if permille == 0 || permille == 1000 {
		return p
	}
	f := func(m Micro) Micro {
		hi, lo := bits.Mul64(uint64(m), uint64(permille))
		return divUp(hi, lo, 1000)
	}
	return Price{f(p.Input), f(p.CachedInput), f(p.CacheWrite), f(p.Output), f(p.Request)}
}

// Times is n times m, and MaxCost at most; neither is negative.
func (m Micro) Times(n int64) Micro {
	hi, lo := bits.Mul64(uint64(max(m, 0)), uint64(max(n, 0)))
	if hi > 0 || lo > uint64(MaxCost) {
		return MaxCost
	}
	return Micro(lo)
}

// product is a sum of tokens times prices, in 128 bits.
type product struct{ hi, lo uint64 }

func (p product) plus(n Tokens, m Micro) product {
	hi, lo := bits.Mul64(uint64(max(n, 0)), uint64(max(m, 0)))
	lo, c := bits.Add64(p.lo, lo, 0)
	return product{p.hi + hi + c, lo} // below 2^126 each: a handful cannot overflow
}

// cost rounds up once, so that four classes cannot round four times.
func (p product) cost(request Micro) Micro {
	return min(AddMicro(divUp(p.hi, p.lo, 1_000_000), request), MaxCost)
}

func divUp(hi, lo, by uint64) Micro {
	if hi >= by {
		return math.MaxInt64
	}
	q, r := lo/by, lo%by
	if hi > 0 { // seldom, and many times slower
		q, r = bits.Div64(hi, lo, by)
	}
	if r > 0 && q < math.MaxUint64 {
		q++
	}
	return Micro(min(q, math.MaxInt64))
}

// AddMicro is a+b, saturating at math.MaxInt64 on either side of 0, so that what it gives can always be negated.
func AddMicro(a, b Micro) Micro {
	s := a + b
	switch {
	case a > 0 && b > 0 && s < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && s >= 0:
		return -math.MaxInt64
	}
	return max(s, -math.MaxInt64)
}
