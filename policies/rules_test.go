package policies_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/policies"
)

// TestRules: tables that the module's own cases, which share one, cannot have.
func TestRules(t *testing.T) {
	const both = `{"mode":"all","rules":[
		{"name":"half","then":{"qps_permille":500,"month_permille":1100,"output_tokens_cap":800,"tier":"pro","dimensions":[{"kind":"ip","qps_limit":9}]}},
		{"name":"never","when":{"stream":true},"then":{"qps_permille":1}},
		{"name":"third","when":{"models":["m*"]},"then":{"qps_permille":333,"price_permille":1500,"output_tokens_cap":900,"tier":"free","dimensions":[{"kind":"custom","value":"x"}]}},
		{"name":"watch","when":{"models":["mm"]},"then":{"deny":{"shadow":true}}},
		{"name":"stop","when":{"models":["mmm*"]},"then":{"deny":{"status":418}}},
		{"name":"after","then":{"price_permille":2000,"tpm_permille":1}}]}`
	const east = `{"zone":"+05:30","rules":[{"name":"night","when":{"hours":{"weekdays":["thu"],"from":"05:00","to":"06:00"}}},{"name":"second","when":{"days_of_month":[2]}},{"name":"last","when":{"days_of_month":[-1]}}]}`
	const west = `{"zone":"-08:00","rules":[{"name":"wed","when":{"hours":{"weekdays":["wed"]}}}]}`
	const team = `{"dimensions":["global","end_user"],"rules":[{"then":{"dimensions":[{"kind":"custom","value":"{org_name}|{label.soft}"}]}}]}`
	long := strings.Repeat("é", 100)
	names := longNames()
	look(t, "rules", []try{
		{"all: factors multiply, caps and tiers by the first and the smallest", both, `{"attributes":{"model":"m"}}`, `{"qps_permille":166,"quota_permille":1100,"price_permille":3000,"tpm_permille":1,
			"output_tokens_cap":800,"tier":"pro","reason":1,"message":"half, third, after","verdict":"allow","dims":[{"kind":"key"},{"kind":"model"},{"kind":"global"},{"kind":"user"},{"kind":"org"},{"kind":"ip","qps_limit":9,"skip_if_absent":true},{"kind":"custom","value":"x"}]}`},
		{"all: a shadow goes on", both, `{"attributes":{"model":"mm"}}`, `{"verdict":"shadow_deny","reason":4,"message":"half, third, watch, after","price_permille":3000}`},
		{"all: a denial ends it", both, `{"attributes":{"model":"mmm"}}`, `{"verdict":"deny","status":418,"reason":5,"message":"half, third, stop","price_permille":1500}`},
		{"05:00 of the first of 1970 in India", east, `{"now_ms":0,"minute_of_week":0,"day_of_month":2}`, `{"message":"night"}`},
		{"06:00 there", east, `{"now_ms":1800000,"minute_of_week":4620,"day_of_month":2}`, `{"abstain":true}`},
		{"the second day there", east, `{"now_ms":66600000}`, `{"message":"second"}`},
		{"the last of february 2024 there", east, `{"now_ms":1709231340000}`, `{"message":"last"}`},
		{"a minute later it is march", east, `{"now_ms":1709231460000}`, `{"abstain":true}`},
		{"tuesday, still, in the west", west, `{"now_ms":547199999}`, `{"abstain":true}`},
		{"wednesday", west, `{"now_ms":547200000}`, `{"message":"wed"}`},
		{"dimensions of one's own choice", team, `{"attributes":{"org_name":"Acme","soft":"1"}}`, `{"message":"rule 1","dims":[{"kind":"global","skip_if_absent":true},{"kind":"end_user","skip_if_absent":true},{"kind":"custom","value":"Acme|1"}]}`},
		{"a missing part leaves the dimension out", team, `{"attributes":{"org_name":"Acme"}}`, `{"message":"rule 1","dims":[]}`},
		{"values up to 128 bytes are whole", team, `{"attributes":{"org_name":"` + long[:126] + `","soft":"1"}}`, `{"dims":[{},{},{"value":"` + long[:126] + `|1"}]}`},
		{"a longer one still has its dimension", team, `{"attributes":{"org_name":"` + long + `","soft":"1"}}`, `{"dims":[{},{},{"kind":"custom"}]}`},
		{"names that do not fit the message", names, `{}`, `{"reason":1,"message":"` + strings.Repeat("ü", 60) + ", " + strings.Repeat("ü", 60) + ", " + strings.Repeat("ü", 60) + ", " + strings.Repeat("ü", 60) + `…"}`},
		{"escapes", `{"rules":[{"name":"\u0041\ud83d\ude00\n\"\\","when":{"models":["caf\u00e9*"]}}]}`, `{"attributes":{"model":"café"}}`, `{"message":"A😀\n\"\\"}`},
		{"no rules", `{"rules":[]}`, `{}`, `{"abstain":true}`},
		{"no conditions, nothing to change", `{"rules":[{}]}`, `{}`, `{"abstain":false,"reason":1,"message":"rule 1","dims":[]}`},
		{"an unmetered balance is above any bound", `{"rules":[{"when":{"balance_micro":{"at_least":1000000000000000}}}]}`, `{"balance_available_micro":9223372036854775807}`, `{"reason":1}`},
	})
}

// TestRulesLongValue: what a decision has no room for is cut between characters and ends in a hash of the whole.
func TestRulesLongValue(t *testing.T) {
	h := host(t, "rules")
	if err := activate(t, h, "rules", `{"rules":[{"then":{"dimensions":[{"kind":"custom","value":"é{org_name}|{user_name}"}]}}]}`); err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for n := 40; n < 200; n++ {
		for _, end := range []string{"", "x", "y", "xy", "yx"} {
			org := strings.Repeat("é", n)
			dims := decide(t, h, fmt.Sprintf(`{"attributes":{"org_name":%q,"user_name":"u%s"}}`, org, end))["dims"].([]any)
			value := dims[5].(map[string]any)["value"].(string)
			whole := "é" + org + "|u" + end
			if len(whole) <= 128 && value != whole || len(whole) > 128 && (len(value) > 128 || len(value) < 126 || !strings.HasPrefix(value, strings.Repeat("é", 55))) {
				t.Errorf("%s is %s", whole, value)
			}
			if other, known := seen[value]; known {
				t.Errorf("%s and %s are both %s", whole, other, value)
			}
			seen[value] = whole
		}
	}
}

// TestRulesMessage: whatever names meet, the message has room.
func TestRulesMessage(t *testing.T) {
	h := host(t, "rules")
	for _, n := range []int{1, 5, 6, 7, 13, 14, 15, 29, 30, 31, 59, 60} { // n + 2 divides 512 for 6, 14 and 30
		name := strings.Repeat("n", n)
		if err := activate(t, h, "rules", `{"mode":"all","rules":[`+strings.Repeat(`{"name":"`+name+`"},`, 63)+`{"name":"last"}]}`); err != nil {
			t.Fatal(err)
		}
		d := decide(t, h, `{}`)
		message := d["message"].(string)
		if d["fault"] != "" || len(message) > 512 || !strings.HasPrefix(message, name) || !strings.HasSuffix(message, "…") && !strings.HasSuffix(message, ", last") {
			t.Errorf("names of %d bytes: %v", n, d)
		}
	}
}

func longNames() string {
	rule := `{"name":"` + strings.Repeat("ü", 60) + `"}`
	return `{"mode":"all","rules":[` + rule + strings.Repeat(","+rule, 7) + `]}`
}

// TestRulesRefused: what the schema refuses names the member, what the module refuses names the rule, the member and a code.
func TestRulesRefused(t *testing.T) {
	many := func(n int, one string) string { return strings.Repeat(one+",", n-1) + one }
	refuse(t, "rules", []refusal{
		{`{"rulez":[]}`, `params: rulez: unknown; did you mean "rules"?`},
		{`{"mode":"any"}`, `mode: expected "first" or "all"; got "any"`},
		{`{"zone":""}`, `zone: expected text of at least 1 character, such as "key"; got ""`},
		{`{"zone":"Europe/Berln"}`, `no time zone "Europe/Berln" (nearest: "Europe/Berlin")`},
		{`{"zone":"+15:00"}`, `an offset as "+08:00" or a name as "Europe/Berlin" (weir_configure gave code 1)`},
		{`{"zone":"Europe/Berlin","zone_table":{"name":"Europe/Berlin","offsets":[60,9,120,8,60]}}`, "out of order"},
		{`{"rules":{}}`, "rules: expected a list; got {}"},
		{`{"rules":[` + many(65, "{}") + `]}`, "rules: expected a list of at most 64 elements, got 65"},
		{`{"rules":[{},{"when":{"model":["x"]}}]}`, `rules[1].when.model: unknown; did you mean "models"?`},
		{`{"rules":[{"when":{"models":"x"}}]}`, `rules[0].when.models: expected a list, such as ["gpt-4o","claude-*"]; got "x"`},
		{`{"rules":[{"when":{"models":["a*b"]}}]}`, "rules[0].when.models[0]: expected a name, or the beginning of one and *; got "},
		{`{"rules":[{"when":{"hours":{"from":"25:00"}}}]}`, `rules[0].when.hours.from: expected a time of day as HH:MM, from 00:00 to 24:00, such as "08:30"; got "25:00"`},
		{`{"rules":[{"when":{"hours":{"weekdays":["monday"]}}}]}`, `rules[0].when.hours.weekdays[0]: expected "mon", "tue", `},
		{`{"rules":[{"when":{"days_of_month":[0]}}]}`, "rules[0].when.days_of_month[0]: expected a day from 1 to 31, or from -1 to -31 counted from the last; got 0"},
		{`{"rules":[{"when":{"input_tokens":{}}}]}`, "rules[0].when.input_tokens: expected at least 1 member of at_least, below; got {}"},
		{`{"rules":[{"then":{"price_permille":999}}]}`, "rules[0].then.price_permille: expected a whole number from 1000 to 1000000; got 999"},
		{`{"rules":[{"then":{"qps_permille":1.5}}]}`, "rules[0].then.qps_permille: expected a whole number; got 1.5"},
		{`{"rules":[{"then":{"deny":{"status":200}}}]}`, "rules[0].then.deny.status: expected a whole number from 400 to 499; got 200"},
		{`{"rules":[{"then":{"dimensions":[{"kind":"custom"}]}}]}`, `rules[0].then.dimensions[0]: needs "value"`},
		{`{"rules":[{"then":{"dimensions":[{"qps_limit":1}]}}]}`, `needs "kind"`},

		{`{"rules":[{"then":{"qps_permille":1e3}}]}`, `rule 1: qps_permille: want a whole number in plain digits from 1 to 1000000`},
		{`{"rules":[{"wehn":{}}],"rules":[]}`, `rule 1: unknown member wehn`},
		{`{"rules":[{}],"rules":[{}]}`, `unknown member rules`},
		{`{"mode":"both","mode":"all"}`, `mode: want one of first all`},
		{`{"rules":[{"when":{"\u006dodels":["x"]}}]}`, `rule 1: unknown member`},
		{`{"rules":[{"when":{"models":[` + many(64, `"m"`) + `]}},` + many(8, `{"when":{"keys":[`+many(60, `"k"`)+`]}}`) + `]}`, `rule 9: more than 512 patterns, or 16384 bytes of them`},
		{`{"rules":[{"then":{"dimensions":[` + many(12, `{"kind":"ip"}`) + `]}}]}`, `rule 1: more than 11 added dimensions, or 7 custom ones`},
		{`{"mode":"all","rules":[` + many(4, `{"then":{"dimensions":[`+many(3, `{"kind":"ip"}`)+`]}}`) + `]}`, `all rules up to 4: more than 11 added dimensions, or 7 custom ones`},
		{`{"rules":[{"then":{"dimensions":[` + many(8, `{"kind":"custom","value":"x"}`) + `]}}]}`, `rule 1: more than 11 added dimensions, or 7 custom ones`},
		{`{"rules":[{"then":{"dimensions":[{"kind":"custom","value":"` + strings.Repeat("{model}", 9) + `"}]}}]}`, `code 2`},
		{`{"rules":[{"when":{"labels":{"sotf":["x"]}}}]}`, `label "sotf" is not in policies.labels: tier, soft, hot; did you mean "soft"? (weir_configure gave code 3)`},
		{`{"rules":[{"when":{"tiers":["prro"]}}]}`, `tiers: free, pro; did you mean "pro"?`},
		{`{"rules":[{},{"when":{"labels":{"team":["x"]}}}]}`, `rule 2: label "team" is not in policies.labels: tier, soft, hot`},
		{`{"rules":[{"then":{"dimensions":[{"kind":"custom","value":"{label.team}"}]}}]}`, `code 3`},
		{`{"rules":[{"when":{"tiers":["gold"]}}]}`, `rule 1: tier "gold" is not configured; tiers: free, pro`},
		{`{"rules":[{"then":{"tier":"gold"}}]}`, `code 4`},
		{`{"rules":[{"when":{"hours":{"from":"10:00","to":"10:00"}}}]}`, `rule 1: from and to are the same time; a whole day is 00:00 to 24:00`},
		{`{"rules":[{"then":{"dimensions":[{"kind":"custom","value":"x{modle}"}]}}]}`, `rule 1: "modle" in braces is none of model key_name`},
		{`{"rules":[{"then":{"dimensions":[{"kind":"custom","value":"x{model"}]}}]}`, `rule 1: a brace is not closed in "x{model"`},
		{`{"rules":[{"then":{"dimensions":[{"kind":"user","value":"x"}]}}]}`, `rule 1: value: a custom dimension needs one, and no other has one`},
		{`{"rules":[{"when":{"models":["` + strings.Repeat("é", 100) + `"]}}]}`, `rule 1: a pattern of more than 128 bytes`},
		{`{"rules":[{"then":{"deny":{"message":"` + strings.Repeat("é", 300) + `"}}}]}`, `rule 1: a text of more than 512 bytes`},
	})
}

// TestRulesCut: who makes an attribute too long for the facts does not get past a rule that looks at it.
func TestRulesCut(t *testing.T) {
	h := host(t, "rules")
	if err := activate(t, h, "rules", `{"rules":[{"when":{"end_users":["eve"]},"then":{"deny":{}}}]}`); err != nil {
		t.Fatal(err)
	}
	decide := func(end, hot string) (d policy.Decision) {
		f := policy.Facts{}
		f.Attr[policy.AttrEndUser], f.Attr[policy.AttrLabel0] = end, hot
		h.Decide(&f, &d)
		return d
	}
	long := strings.Repeat("x", 5000)
	if d := decide(long, ""); d.Verdict != policy.Deny || d.Status != 400 || d.Reason != 0 {
		t.Errorf("a long end user: %+v", d)
	}
	if d := decide("bob", long); !d.Abstained {
		t.Errorf("another attribute is too long: %+v", d)
	}
	if d := decide("eve", long); d.Verdict != policy.Deny || d.Reason != 1 {
		t.Errorf("the rule fires all the same: %+v", d)
	}
}

// TestRulesClock compares the module's own calendar with Go's over years, at offsets and around midnights, Mondays and ends
// of months.
func TestRulesClock(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 9))
	for _, zone := range []string{"UTC", "+05:45", "-11:30", "+14:00"} {
		var cases [2][]string
		offset := offsetOf(t, zone)
		for range 1500 {
			at := time.Unix(rnd.Int64N(130*365*86400), 0).In(offset)
			switch rnd.IntN(3) {
			case 0:
				at = time.Date(at.Year(), at.Month()+1, 1, 0, 0, -1, 0, offset)
			case 1:
				at = time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, offset)
			}
			day, days := at.Day(), time.Date(at.Year(), at.Month()+1, 0, 0, 0, 0, 0, offset).Day()
			if at.Year() < 1970 || at.Unix() < 0 {
				continue
			}
			week := (int(at.Weekday())+6)%7*24 + at.Hour()
			for i, message := range []string{fmt.Sprintf("d%d, e%d", day, days+1-day), fmt.Sprintf("w%d, h%d", week/24, week%24)} {
				cases[i] = append(cases[i], fmt.Sprintf(`{"name":%q,"facts":{"now_ms":%d},"want":{"message":%q}}`, at.Format(time.RFC3339), at.UnixMilli(), message))
			}
		}
		runCases(t, table(zone, daysOfMonth()), cases[0])
		runCases(t, table(zone, hoursOfWeek()), cases[1])
	}
}

func offsetOf(t *testing.T, zone string) *time.Location {
	if zone == "UTC" {
		return time.UTC
	}
	at, err := time.Parse("-07:00", zone)
	if err != nil {
		t.Fatal(err)
	}
	_, offset := at.Zone()
	return time.FixedZone(zone, offset)
}

func table(zone string, rules []string) string {
	return fmt.Sprintf(`{"mode":"all","zone":%q,"rules":[%s]}`, zone, strings.Join(rules, ","))
}

// daysOfMonth has a rule for each day from the beginning, then from the end.
func daysOfMonth() (rules []string) {
	for _, format := range []string{`{"name":"d%d","when":{"days_of_month":[%[1]d]}}`, `{"name":"e%d","when":{"days_of_month":[-%[1]d]}}`} {
		for d := 1; d <= 31; d++ {
			rules = append(rules, fmt.Sprintf(format, d))
		}
	}
	return rules
}

// hoursOfWeek has a rule for each weekday, then for each hour.
func hoursOfWeek() (rules []string) {
	for i, name := range []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"} {
		rules = append(rules, fmt.Sprintf(`{"name":"w%d","when":{"hours":{"weekdays":[%q]}}}`, i, name))
	}
	for h := range 24 {
		rules = append(rules, fmt.Sprintf(`{"name":"h%d","when":{"hours":{"from":"%02[1]d:00","to":"%02d:00"}}}`, h, h+1))
	}
	return rules
}

// runCases holds the module to cases with params.
func runCases(t *testing.T, params string, cases []string) []policy.CaseResult {
	t.Helper()
	file := fmt.Sprintf(`{"configure":{"tiers":["free","pro"],"labels":["tier","soft","hot"],"params":%s},"cases":[%s]}`, params, strings.Join(cases, ","))
	wasm, _ := policies.Shipped("rules")
	results, err := policy.RunCases(t.Context(), policy.Options{}, wasm, policy.ProfileSmall, []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if !r.Passed {
			t.Errorf("%s: %v", r.Name, r.Diff)
		}
	}
	return results
}

// TestExample is the dry look: the table that README.md shows, and what it says to requests.
func TestExample(t *testing.T) {
	table, err := os.ReadFile("rules/example.json")
	if err != nil {
		t.Fatal(err)
	}
	look(t, "rules", []try{
		{"a large request at night", string(table), `{"minute_of_week":1380,"estimated_cost_micro":10000,"attributes":{"key_name":"trial-7"}}`, `{"verdict":"deny","status":429,"reason":1}`},
		{"the same by day", string(table), `{"minute_of_week":720,"estimated_cost_micro":10000,"attributes":{"key_name":"trial-7"}}`, `{"abstain":true}`},
		{"images of a free key", string(table), `{"minute_of_week":720,"flags":4,"tier":"free"}`, `{"verdict":"shadow_deny","reason":2,"message":"images, tried out"}`},
		{"a batch job on saturday", string(table), `{"minute_of_week":7200,"tier":"pro","attributes":{"key_name":"batch-1"}}`, `{"reason":3,"tpm_permille":2000}`},
		{"a spent month at its end", string(table), `{"minute_of_week":720,"day_of_month":29,"days_in_month":31,"quota_limit_micro":10,"quota_used_micro":10}`, `{"reason":4,"quota_permille":1100,"tier":"free"}`},
		{"one nearly spent", string(table), `{"minute_of_week":720,"day_of_month":3,"days_in_month":31,"quota_limit_micro":10,"quota_used_micro":9}`, `{"reason":5,"output_tokens_cap":2048}`},
		{"a hot model", string(table), `{"minute_of_week":720,"tier":"free","attributes":{"hot":"yes"}}`, `{"reason":6,"tpm_permille":500}`},
		{"an end user", string(table), `{"minute_of_week":720,"tier":"pro","endpoint":"chat","attributes":{"end_user":"eve","model":"gpt-4o"}}`, `{"reason":7,"message":"each end user has a share"}`},
		{"a short answer", string(table), `{"minute_of_week":720,"tier":"pro","output_tokens_max":100,"attributes":{"model":"gpt-4o-mini"}}`, `{"reason":8,"burst_permille":2000}`},
	})
}

// dear is a table that costs most: every condition holds but the names, which differ in the middle, as many and as long as
// there may be, of each length.
func dear(size int) (params string, facts map[string]any) {
	name := strings.Repeat("n", size/2)
	per := min(512, 16384/size) / 64
	var rules []string
	for range 64 {
		rules = append(rules, fmt.Sprintf(`{"when":{"stream":true,"endpoints":["chat"],"tiers":["free"],"days_of_month":[1],"hours":{"to":"23:00"},
			"input_tokens":{"at_least":1},"output_tokens_max":{"at_least":1},"month_used_permille":{"at_least":1},"balance_micro":{"at_least":0},"estimated_cost_micro":{"at_least":1},
			"models":[%s]}}`, strings.Repeat(fmt.Sprintf("%q,", name+"x"+name[1:]), per-1)+fmt.Sprintf("%q", name+"x"+name[1:])))
	}
	params = strings.Join(strings.Fields(`{"zone":"+01:00","rules":[`+strings.Join(rules, ",")+`]}`), "")
	return params, map[string]any{"flags": 1, "endpoint": "chat", "tier": "free", "day_of_month": 1, "days_in_month": 31, "input_tokens": 9, "output_tokens_max": 9,
		"quota_limit_micro": 10, "quota_used_micro": 9, "balance_available_micro": 9, "estimated_cost_micro": 9, "attributes": map[string]string{"model": name + name}}
}

// TestRulesFuel: the dearest table stays within a call's fuel, and a usual one of 64 rules within a tenth of it.
func TestRulesFuel(t *testing.T) {
	const allowance = 200_000
	var dearest uint64
	for size := 16; size <= 128; size += 8 {
		params, facts := dear(size)
		raw, err := json.Marshal(facts)
		if err != nil {
			t.Fatal(err)
		}
		r := runCases(t, params, []string{fmt.Sprintf(`{"name":"dear","facts":%s,"want":{"abstain":true}}`, raw)})
		dearest = max(dearest, r[0].Fuel)
	}
	usual := runCases(t, usualTable(), []string{`{"name":"usual","facts":` + usualFacts + `,"want":{"message":"last"}}`})[0].Fuel
	if dearest == 0 || dearest > allowance/2 || usual > allowance/10 {
		t.Errorf("of %d units of fuel the dearest table took %d, a usual one %d", allowance, dearest, usual)
	}
	t.Logf("of %d units of fuel the dearest table took %d, a usual one %d", allowance, dearest, usual)
}

// usualTable has 64 rules of four sorts that do not fire, and a last one that adds three dimensions to five.
func usualTable() string {
	var rules []string
	for i := range 63 {
		rules = append(rules, fmt.Sprintf([]string{
			`{"when":{"models":["gpt-4o-2024-%02d*","claude-sonnet-%[1]d"]},"then":{"qps_permille":500}}`,
			`{"when":{"hours":{"weekdays":["sat","sun"],"from":"22:00","to":"06:00"},"tiers":["free"]},"then":{"tpm_permille":%d}}`,
			`{"when":{"labels":{"soft":["team-%d"]},"input_tokens":{"at_least":1}},"then":{"tpm_permille":500}}`,
			`{"when":{"month_used_permille":{"at_least":900},"end_users":["u-%d*"]},"then":{"tier":"free"}}`,
		}[i%4], i+1))
	}
	rules = append(rules, `{"name":"last","when":{"models":["gpt-*"]},"then":{"dimensions":[{"kind":"end_user"},{"kind":"custom","value":"team:{label.soft}"},{"kind":"key+model"}]}}`)
	return `{"mode":"all","rules":[` + strings.Join(rules, ",") + `]}`
}

const usualFacts = `{"endpoint":"chat","input_tokens":10,"quota_limit_micro":1000,"quota_used_micro":950,"minute_of_week":2000,"day_of_month":1,"days_in_month":31,
	"attributes":{"model":"gpt-4o-2024-99","soft":"team-x","end_user":"eve"}}`

// BenchmarkRules: 64 rules, all tried, eight dimensions out; and the least a table can cost.
func BenchmarkRules(b *testing.B) {
	for name, params := range map[string]string{"64 rules, 8 dimensions": usualTable(), "1 rule": `{"rules":[{"when":{"models":["gpt-*"]},"then":{"qps_permille":500}}]}`} {
		b.Run(name, func(b *testing.B) {
			h := host(b, "rules")
			if err := activate(b, h, "rules", params); err != nil {
				b.Fatal(err)
			}
			f, err := policy.ParseFacts([]byte(usualFacts), tiers(), labels())
			if err != nil {
				b.Fatal(err)
			}
			if d := measure(b, h, f); d.Abstained || strings.HasPrefix(name, "64") && (d.N != 8 || f.Endpoint != llm.Chat) {
				b.Fatalf("%+v", d)
			}
		})
	}
}
