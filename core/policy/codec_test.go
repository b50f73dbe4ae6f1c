package policy

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/sdk/abi"
)

func TestParseFacts(t *testing.T) {
	tiers, labels := []string{"free", "gold"}, []string{"soft", "region"}
	got, err := ParseFacts([]byte(`{"now_ms":5,"entropy":6,"flags":3,"endpoint":"messages","input_tokens":7,"output_tokens_max":8,
		"choices":2,"body_bytes":9,"key_id":10,"user_id":11,"org_id":12,"key_qps_limit":13,"key_qps_current":14,"key_tpm_limit":15,
		"key_tpm_current":16,"key_concurrency_limit":17,"key_concurrency_current":18,"quota_limit_micro":19,"quota_used_micro":20,
		"balance_available_micro":-21,"estimated_cost_micro":22,"minute_of_week":23,"day_of_month":24,"days_in_month":28,"tier":"gold",
		"attributes":{"model":"m","client_ip":"::1","region":"eu"}}`), tiers, labels)
	if err != nil {
		t.Fatal(err)
	}
	want := &Facts{NowMS: 5, Entropy: 6, Flags: 3, Endpoint: llm.Messages, Input: 7, OutputMax: 8, Choices: 2, BodyBytes: 9,
		Key: 10, User: 11, Org: 12, QPSLimit: 13, QPSCurrent: 14, TPMLimit: 15, TPMCurrent: 16, ConcurrencyLimit: 17,
		ConcurrencyCurrent: 18, QuotaLimit: 19, QuotaUsed: 20, BalanceAvailable: -21, EstimatedCost: 22, MinuteOfWeek: 23,
		DayOfMonth: 24, DaysInMonth: 28, Tier: 1}
	want.Attr[AttrModel], want.Attr[AttrClientIP], want.Attr[AttrLabel0+1] = "m", "::1", "eu"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	for _, c := range []struct{ raw, want string }{
		{`{"nowms":1}`, `facts.nowms: unknown field (nearest: "now_ms")`},
		{`{"tier":"glod"}`, `facts.tier: unknown name "glod" (nearest: "gold")`},
		{`{"tier":2}`, "facts.tier: 2, want 0 to 1"},
		{`{"tier":null}`, "facts.tier: null, want a name or a number"},
		{`{"endpoint":[]}`, "want a name or a number"},
		{`{"endpoint":null}`, "want a name or a number"},
		{`{"attributes":{"modle":"x"}}`, `unknown attribute "modle" (nearest: "model")`},
		{`{"qps":1}`, `facts.qps: unknown field (nearest: "key_qps_current" or "key_qps_limit")`},
		{`{"colour":1}`, "facts.colour: unknown field; known are balance_available_micro, body_bytes, "},
		{`{"input_tokens":"7"}`, `facts.input_tokens: "7", want a whole number from 0 to 9223372036854775807`},
		{`{"input_tokens":-5}`, "facts.input_tokens: -5, want a whole number from 0 to 9223372036854775807"},
		{`{"output_tokens_max":9223372036854775808}`, "facts.output_tokens_max: 9223372036854775808, want"},
		{`{"choices":4294967296}`, "facts.choices: 4294967296, want a whole number from 0 to 4294967295"},
		{`{"choices":1.5}`, "facts.choices: 1.5, want a whole number"},
		{`{"key_id":-1}`, "facts.key_id: -1, want a whole number from 0 to 18446744073709551615"},
		{`{"key_tpm_limit":null}`, "facts.key_tpm_limit: null, want a whole number"},
		{`{"estimated_cost_micro":-1}`, "facts.estimated_cost_micro: -1, want"},
		{`{"now_ms":253402300800000}`, "facts.now_ms: 253402300800000, want a whole number from 0 to 253402300799999"},
		{`{"minute_of_week":10080}`, "facts.minute_of_week: 10080, want a whole number from 0 to 10079"},
		{`{"day_of_month":70000}`, "facts.day_of_month: 70000, want a whole number from 1 to 31"},
		{`{"day_of_month":0}`, "facts.day_of_month: 0, want"},
		{`{"days_in_month":27}`, "facts.days_in_month: 27, want a whole number from 28 to 31"},
		{`{"balance_available_micro":-9223372036854775809}`, "facts.balance_available_micro"},
		{`{"attributes":{"model":5}}`, `facts.attributes: "model": 5, want a text`},
		{`{"attributes":[]}`, "facts.attributes: [], want an object of texts"},
		{`{} {}`, "something follows"},
		{`[]`, "facts: want a JSON object, got array"},
	} {
		if _, err := ParseFacts([]byte(c.raw), tiers, labels); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.raw, err, c.want)
		}
	}
	if _, err := ParseFacts([]byte(`{"tier":0}`), nil, nil); err == nil || !strings.Contains(err.Error(), "there are no names") {
		t.Errorf("a tier of none: %v", err)
	}
}

// The ends of the ranges are inside them.
func TestParseFactsAtTheEnds(t *testing.T) {
	got, err := ParseFacts([]byte(`{"now_ms":253402300799999,"minute_of_week":10079,"day_of_month":31,"days_in_month":28,"input_tokens":9223372036854775807,
		"key_id":18446744073709551615,"choices":4294967295,"balance_available_micro":-9223372036854775808,"estimated_cost_micro":9223372036854775807}`), nil, nil)
	if err != nil || got.MinuteOfWeek != 10079 || got.DayOfMonth != 31 || got.DaysInMonth != 28 || got.Input != math.MaxInt64 || got.Key != math.MaxUint64 ||
		got.Choices != math.MaxUint32 || got.BalanceAvailable != math.MinInt64 || got.EstimatedCost != math.MaxInt64 {
		t.Errorf("%+v, %v", got, err)
	}
}

// A label may have the name of an attribute: facts say which is meant, and what was logged is read back as it was.
func TestFactsOfLabelsNamedLikeAttributes(t *testing.T) {
	labels := []string{"team", "tier"}
	got, err := ParseFacts([]byte(`{"attributes":{"tier":"gold","label:tier":"x","label:team":"red"}}`), nil, labels)
	if err != nil || got.Attr[AttrTier] != "gold" || got.Attr[AttrLabel0] != "red" || got.Attr[AttrLabel0+1] != "x" {
		t.Fatalf("%v %q", err, got.Attr)
	}
	raw, err := MarshalFacts(got, nil, labels)
	if err != nil || !strings.Contains(string(raw), `"label:tier":"x"`) || !strings.Contains(string(raw), `"team":"red"`) {
		t.Errorf("%s %v", raw, err)
	}
	if again, err := ParseFacts(raw, nil, labels); err != nil || *again != *got {
		t.Errorf("read back as %+v, %v", again, err)
	}
	if _, err := ParseFacts([]byte(`{"attributes":{"label:tire":"x"}}`), nil, labels); err == nil || !strings.Contains(err.Error(), `nearest: "label:tier"`) {
		t.Error(err)
	}
}

func TestRunCases(t *testing.T) {
	a := guest(sixDims()).section(abi.SectionCases, `{
		"configure":{"tiers":["free","gold"],"labels":["soft"],"params":{}},
		"cases":[
			{"name":"all","facts":{"tier":"gold","attributes":{"soft":"1"}},"want":{"abstain":false,"verdict":"allow","tpm_permille":900,"tier":"",
				"dims":[{"kind":"key","tier":"","skip_if_absent":true},{"kind":"model"},{},{"kind":"org","qps_limit":10},{"kind":"key+model"},{"kind":"custom","value":"eu1"}]}},
			{"name":"wrong number","facts":{},"want":{"tpm_permille":901}},
			{"name":"wrong dimension","facts":{},"want":{"dims":[{"kind":"user"},{},{},{},{},{"value":"us"}]}},
			{"name":"fewer dimensions","facts":{},"want":{"dims":[]}}]}`)
	results, err := RunCases(context.Background(), Options{}, a.bytes(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{nil, {"tpm_permille: got 900, want 901"},
		{"dims[0].kind: got key, want user", "dims[5].value: got eu1, want us"}, {"dims: got 6, want 0"}}
	for i, r := range results {
		if diff := cmp.Diff(want[i], r.Diff); diff != "" || r.Passed != (want[i] == nil) {
			t.Errorf("%s: passed %v\n%s", r.Name, r.Passed, diff)
		}
	}
}

// More results than the child may give are a refusal that says so.
func TestRunCasesRefusesTooMany(t *testing.T) {
	if patience > 1 {
		t.Skip("the child of a race build runs out of its CPU before")
	}
	cases := `{"cases":[` + strings.Repeat(`{"facts":{},"want":{}},`, 6000) + `{"facts":{},"want":{}}]}`
	dims := manyDims(slices.Repeat([]uint32{abi.KindKey}, abi.MaxDims)...)
	_, err := RunCases(context.Background(), Options{}, guest(dims).bytes(), "", []byte(cases))
	if err == nil || !strings.Contains(err.Error(), "results of more than 16 MiB") {
		t.Errorf("error %v", err)
	}
}

func TestRunCasesRefusals(t *testing.T) {
	run := func(a *asm, cases string) error {
		var raw []byte
		if cases != "" {
			raw = []byte(cases)
		}
		_, err := RunCases(context.Background(), Options{}, a.bytes(), "", raw)
		return err
	}
	ok := guest(allow(5))
	for _, c := range []struct {
		a           *asm
		cases, want string
	}{
		{ok, "", "no section weir.cases and none were given"},
		{ok, `{"cases":[{"name":"x","facts":{},"want":{"qps":5}}]}`, `case "x": want.qps: unknown`},
		{ok, `{"cases":[{"name":"x","facts":{"atributes":{}},"want":{}}]}`, `case "x": facts.atributes: unknown field (nearest: "attributes")`},
		{ok, `{"cases":[{"name":"x","facts":{},"want":7}]}`, `case "x": want: not an object`},
		{ok, `{"cases":[{"name":"x","facts":{}}]}`, `case "x": it has no want`},
		{ok, `{"cases":[{"name":"x","want":{}}]}`, `case "x": facts: want a JSON object, got nothing`},
	} {
		if err := run(c.a, c.cases); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.cases, err, c.want)
		}
	}
}

// A module that counts its calls is not a function of the facts; the cases find that out.
func TestRunCasesSeesState(t *testing.T) {
	count := cat(c32(0x8000), ld32(0x8000), c32(1), []byte{0x6a, 0x36, 0, 0})
	a := guest(count, st16(respAt, 1), c32(respAt+abi.RespRetryAfterMS), ld32(0x8000), []byte{0x36, 0, 0}, c32(0))
	results, err := RunCases(context.Background(), Options{}, a.bytes(), "", []byte(`{"cases":[{"name":"x","facts":{},"want":{}}]}`))
	if err != nil || results[0].Passed || !strings.Contains(results[0].Diff[0], "another decision later") {
		t.Errorf("results %+v, error %v", results, err)
	}
}

// A fault is a failed case unless it is what the case wants.
func TestRunCasesSeesFaults(t *testing.T) {
	cases := `{"cases":[{"name":"x","facts":{"entropy":0},"want":{}},{"name":"y","facts":{"entropy":0},"want":{"fault":"trap"}},
		{"name":"z","facts":{"entropy":1},"want":{"qps_permille":5}}]}`
	results, err := RunCases(context.Background(), Options{}, guest(trapWhenEntropyIs(0), allow(5)).bytes(), "", []byte(cases))
	if err != nil {
		t.Fatal(err)
	}
	if results[0].Passed || results[0].Diff[0] != "fault: got trap, want a decision (no fault)" || !results[1].Passed || !results[2].Passed {
		t.Errorf("results %+v", results)
	}
}

func TestMarshalDecision(t *testing.T) {
	var d Decision
	d.reset()
	d.Verdict, d.Tier, d.Message, d.N = Deny, 1, "no", 1
	d.Dims[0] = Dimension{Kind: abi.KindModelChannel, Tier: 0, Multiplier: 1000, Burst: 1000, Cost: 500}
	got, err := MarshalDecision(&d, []string{"free", "gold"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"verdict":"deny"`, `"tier":"gold"`, `"status":403`, `"kind":"model+channel"`, `"tier":"free"`, `"cost_permille":500`} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%s lacks %s", got, want)
		}
	}
}
