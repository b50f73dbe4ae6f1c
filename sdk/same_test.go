package sdk_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/sdk"
)

const same = "testdata/same"

const sameParams = `{
	"night": {"from_hour": 20, "to_hour": 5, "qps_permille": 2500}, "soft_share_permille": 700, "soft_tpm_permille": 250,
	"big_tokens": 4000, "team_qps": 7, "downgrade": "free", "strict": true, "sample_percent": 30,
	"blocked": ["mallory", "tr\u00fcdi \ud83d\ude00", "x\"y"],
	"models": [{"prefix": "", "cost_permille": 900}, {"prefix": "gpt-4", "cost_permille": 2000}, {"prefix": "gpt", "cost_permille": 1500}]
}`

func newHost(t testing.TB) *policy.Host {
	t.Helper()
	h, err := policy.NewHost(policy.Options{CacheDir: t.TempDir(), Tiers: []string{"free", "pro", "enterprise"}, Labels: []string{"team", "soft", "region"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// activate puts the fixture in that language into force, with an envelope that lets everything through.
func activate(t testing.TB, h *policy.Host, lang string, wasm []byte, params string) {
	t.Helper()
	m, err := h.Add(t.Context(), lang, wasm, sdk.Profile(lang))
	if err != nil {
		t.Fatal(err)
	}
	if m.Cases != 8 {
		t.Errorf("%s: %d cases", lang, m.Cases)
	}
	all := policy.Envelope{MaxMultiplier: 1e6, MaxBurst: 1e6, MaxOverdraft: 1 << 62, MaxCustomDims: 16, MinPrice: 1,
		MayDeny: true, MaySkipBilling: true, MaySkipLimits: true, MayDropKey: true}
	b := policy.Binding{Module: lang, Hash: m.Hash, Params: []byte(params), OnError: policy.OnErrorDefault}
	if err := h.Activate(t.Context(), &b, all); err != nil {
		t.Fatalf("%s: params of %d bytes: %v", lang, len(params), err)
	}
}

// TestSameDecisions: the policy that is written in all languages decides the same on 10,000 random facts.
func TestSameDecisions(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	facts := randomFacts(10_000)
	var first []policy.Decision
	var firstLang string
	compared := 0
	for _, lang := range sdk.Languages() {
		wasm, ok := module(t, same, lang)
		if !ok {
			continue
		}
		activate(t, h, lang, wasm, sameParams)
		decisions := decideAll(t, h, lang, facts)
		compared++
		if first == nil {
			first, firstLang = decisions, lang
			continue
		}
		for i := range facts {
			if text(&decisions[i]) != text(&first[i]) {
				t.Fatalf("facts %d: %+v\n%s decides %s\n%s decides %s", i, facts[i], firstLang, text(&first[i]), lang, text(&decisions[i]))
			}
		}
	}
	covers(t, first)
	t.Logf("%d languages agree", compared)
}

func decideAll(t *testing.T, h *policy.Host, lang string, facts []policy.Facts) []policy.Decision {
	t.Helper()
	decisions := make([]policy.Decision, len(facts))
	for i := range facts {
		d := &decisions[i]
		h.Decide(&facts[i], d)
		if d.Fault != "" || d.Clamped {
			t.Fatalf("%s: facts %d: fault %q, clamped %v", lang, i, d.Fault, d.Clamped)
		}
	}
	return decisions
}

// TestLargeParams: what the ABI allows as configuration, 64 KiB, every language reads with the fuel of one start.
func TestLargeParams(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	names := make([]string, 64)
	for i := range names {
		names[i] = fmt.Sprintf(`%d \"é😀 %s`, i, strings.Repeat("x", 440))
	}
	users := `"` + strings.Join(names, `","`) + `"`
	models := `{"prefix":"` + strings.Join(names, `","cost_permille":7},{"prefix":"`) + `","cost_permille":8}`
	params := map[string]string{
		"long texts":   fmt.Sprintf(`{"blocked":[%s],"models":[%s],"strict":true}`, users, models),
		"many numbers": fmt.Sprintf(`{"ignored":[%s7],"blocked":[%s]}`, strings.Repeat("123456,", 4_500), users),
		"many objects": fmt.Sprintf(`{"ignored":[%s7],"blocked":[%s]}`, strings.Repeat(`{"prefix":"gpt-4","cost_permille":1500},`, 780), users),
	}
	blocked := policy.Facts{Endpoint: llm.Chat}
	blocked.Attr[policy.AttrEndUser] = strings.ReplaceAll(names[63], `\`, "")
	for _, lang := range sdk.Languages() {
		wasm, ok := module(t, same, lang)
		if !ok {
			continue
		}
		for name, p := range params {
			if len(p) < 60_000 || len(p) > 64<<10-200 {
				t.Fatalf("%s: %d bytes", name, len(p))
			}
			activate(t, h, lang, wasm, p)
			var d policy.Decision
			if h.Decide(&blocked, &d); d.Reason != 1 {
				t.Errorf("%s, %s: %s", lang, name, text(&d))
			}
		}
	}
}

func text(d *policy.Decision) string {
	raw, err := json.Marshal(d)
	return fmt.Sprintf("%s %v", raw, err)
}

// covers wants every branch of the policy taken often enough to mean something.
func covers(t *testing.T, decisions []policy.Decision) {
	t.Helper()
	seen := map[string]int{}
	for i := range decisions {
		d := &decisions[i]
		for what, ok := range map[string]bool{
			"abstained": d.Abstained, "blocked": d.Reason == 1, "too many tokens": d.Reason == 2, "shadow denied": d.Verdict == policy.ShadowDeny,
			"soft": d.Quota == 1100, "last day": d.Quota == 1050, "hard": d.TPM == 250, "downgraded": d.Tier == 0, "night": d.QPS == 2500,
			"burst": d.Burst == 3000, "overdraft": d.Overdraft > 0, "retry": d.Price == 1100, "cap": d.OutputCap > 0, "free": d.NoBill,
			"unlimited": d.NoLimit, "hour": d.Reason >= 100, "7 dimensions": d.N == 7, "10 dimensions": d.N == 10,
			"big": d.N > 0 && d.Dims[0].Cost == 1500, "long prefix": d.N > 0 && d.Dims[1].Cost == 2000, "no prefix": d.N > 0 && d.Dims[1].Cost == 900,
			"sampled": d.N > 0 && d.Dims[3].Shadow, "not sampled": d.N > 0 && d.Dims[3].CountOnly && !d.Dims[3].Shadow,
		} {
			if ok {
				seen[what]++
			} else if _, named := seen[what]; !named {
				seen[what] = 0
			}
		}
	}
	for what, n := range seen {
		if n < 30 {
			t.Errorf("%s: only %d of %d decisions", what, n, len(decisions))
		}
	}
}

// randomFacts are drawn so that every branch is common and extremes occur.
func randomFacts(n int) []policy.Facts {
	r := rand.New(rand.NewPCG(7, 11))
	one := func(words ...string) string { return words[r.IntN(len(words))] }
	wide := func() int64 { return int64(r.Uint64() >> (1 + r.IntN(62))) }
	count := func() int64 {
		return []int64{0, 1, int64(r.IntN(100)), int64(r.IntN(1_000_000)), 1<<32 - 1, 1 << 40}[r.IntN(6)]
	}
	facts := make([]policy.Facts, n)
	for i := range facts {
		f := &facts[i]
		days := uint16(28 + r.IntN(4))
		*f = policy.Facts{
			NowMS: uint64(wide()), Entropy: r.Uint64(), Flags: uint32(r.IntN(32)), Endpoint: llm.Endpoint(1 + r.IntN(5)),
			Input: llm.Tokens(r.IntN(10_000)), OutputMax: llm.Tokens(r.IntN(8_000)), Choices: uint32(1 + r.IntN(4)), BodyBytes: r.Uint32(),
			Key: uint64(wide()), User: uint64(wide()), Org: uint64(wide()), QPSLimit: count(), QPSCurrent: count(), TPMLimit: count(),
			TPMCurrent: count(), ConcurrencyLimit: count(), ConcurrencyCurrent: count(), QuotaLimit: llm.Micro(wide()),
			BalanceAvailable: llm.Micro(wide()>>2) * llm.Micro(1-2*r.IntN(2)), EstimatedCost: llm.Micro(r.IntN(1_000_000)), MinuteOfWeek: uint32(r.IntN(7 * 1440)),
			DayOfMonth: uint16(1 + r.IntN(int(days))), DaysInMonth: days, Tier: uint32(r.IntN(3)),
		}
		f.QuotaUsed = f.QuotaLimit / 1000 * llm.Micro(r.IntN(2_000))
		if r.IntN(20) == 0 {
			f.Input, f.OutputMax = 1<<32-1, 1<<32-1
		}
		f.Attr = [policy.NAttr]string{one("gpt-4o", "gpt-3.5", "claude", "", "gpt-4"), one("", "k"), one("", "u"), "org", one("", "eve", "mallory", "trüdi 😀", "x\"y", "ev"),
			one("", "10.0.0.1"), one("free", "pro"), "p", one("", "red", "blau-grün"), one("", "yes", "no", "0", "1"), one("", "west-eu", "us", "-eu", "eu")}
	}
	return facts
}

// BenchmarkDecide is the price of one decision of ten dimensions, through the host.
func BenchmarkDecide(b *testing.B) {
	for _, lang := range sdk.Languages() {
		wasm, ok := module(b, same, lang)
		if !ok {
			continue
		}
		b.Run(lang, func(b *testing.B) {
			h := newHost(b)
			activate(b, h, lang, wasm, sameParams)
			f := randomFacts(1)[0]
			f.Tier, f.Endpoint, f.Input, f.OutputMax = 1, llm.Chat, 1000, 1000
			f.Attr[policy.AttrModel], f.Attr[policy.AttrEndUser], f.Attr[policy.AttrLabel0], f.Attr[policy.AttrLabel0+2] = "gpt-4o", "eve", "blue", "west-eu"
			var d policy.Decision
			b.ReportAllocs()
			for b.Loop() {
				h.Decide(&f, &d)
			}
			if d.Fault != "" || d.N != 10 {
				b.Fatalf("fault %q, %d dimensions", d.Fault, d.N)
			}
		})
	}
}
