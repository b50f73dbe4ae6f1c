package policies_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/policies"
)

func TestTiers(t *testing.T) {
	const usual = `{"orgs":{"Acme":"enterprise"}}`
	look(t, "tiers", []try{
		{"the price list without numbers: an org", usual, `{"attributes":{"org_name":"Acme"}}`, `{"message":"enterprise","reason":3,"burst_permille":3000,"quota_permille":1100,"dims":[{"kind":"key","qps_limit":200,"tpm_limit":4000000},{},{},{},{"kind":"org","qps_limit":0}]}`},
		{"without a default others are left alone", usual, `{"attributes":{"org_name":"Other"}}`, `{"abstain":true}`},
		{"another label", `{"label":"hot"}`, `{"attributes":{"hot":"pro"}}`, `{"message":"pro","dims":[{"qps_limit":20,"tpm_limit":400000},{},{},{},{}]}`},
		{"dimensions of one's own choice", `{"label":"hot","dimensions":["org","ip"]}`, `{"attributes":{"hot":"free"}}`, `{"output_tokens_cap":1024,"dims":[{"kind":"org"},{"kind":"ip","skip_if_absent":true},{"kind":"key","qps_limit":2}]}`},
		{"a whole name comes first", `{"orgs":{"A*":"free","Acme":"pro","Acm*":"enterprise"}}`, `{"attributes":{"org_name":"Acme"}}`, `{"message":"pro"}`},
		{"then the longest beginning", `{"orgs":{"A*":"free","Acme":"pro","Acm*":"enterprise"}}`, `{"attributes":{"org_name":"Acme2"}}`, `{"message":"enterprise"}`},
		{"then shorter ones", `{"orgs":{"A*":"free","Acme":"pro","Acm*":"enterprise"}}`, `{"attributes":{"org_name":"Ac"}}`, `{"message":"free"}`},
	})
	refuse(t, "tiers", []refusal{
		{`{"tables":{"free":{"qps":1}}}`, "tables.free.qps: unknown; known are burst_permille, "},
		{`{"tables":{"a*":{}}}`, "a*"},
		{`{"tables":{"gold":{"tier":"gold"}}}`, `table "gold": tier "gold" is not configured; tiers: free, pro`},
		{`{"default":"gold"}`, `"gold" is none of the tables`},
		{`{"orgs":{"A":"gold"}}`, `code 8`},
		{`{"label":"plan"}`, `label "plan" is not in policies.labels: tier, soft, hot`},
	})
}

func TestSoftQuota(t *testing.T) {
	const month = `"day_of_month":30,"days_in_month":30,"quota_limit_micro":1000`
	look(t, "soft-quota", []try{
		{"every key, the last three days", `{}`, `{"day_of_month":28,"days_in_month":30,"quota_limit_micro":1000}`, `{"quota_permille":1100,"reason":1}`},
		{"the fourth from the end", `{}`, `{"day_of_month":27,"days_in_month":30,"quota_limit_micro":1000}`, `{"abstain":true}`},
		{"spent, nothing cheaper asked for", `{}`, `{` + month + `,"quota_used_micro":1000}`, `{"quota_permille":1100,"tier":"","reason":2}`},
		{"the whole month", `{"last_days":31}`, `{"day_of_month":1,"days_in_month":31,"quota_limit_micro":1}`, `{"quota_permille":1100}`},
		{"no day at all", `{"last_days":0,"tier":"free","spent_permille":800}`, `{` + month + `,"quota_used_micro":799}`, `{"abstain":true}`},
		{"cheaper before the end", `{"last_days":0,"tier":"free","spent_permille":800}`, `{` + month + `,"quota_used_micro":800}`, `{"tier":"free","quota_permille":1000}`},
	})
	refuse(t, "soft-quota", []refusal{
		{`{"permille":900}`, "permille: expected a whole number from 1000 to 1000000; got 900"},
		{`{"last_days":32}`, "last_days: expected a whole number from 0 to 31; got 32"},
		{`{"tier":"cheap"}`, "code 4"},
		{`{"permille":1.1e3}`, `permille: want a whole number`},
	})
}

func TestBurst(t *testing.T) {
	look(t, "burst", []try{
		{"every key", `{}`, `{}`, `{"burst_permille":3000,"reason":1}`},
		{"a month without a quota has no end", `{"until_month_permille":1}`, `{}`, `{"burst_permille":3000}`},
		{"a tier without a burst of its own", `{}`, `{"tier":1}`, `{"burst_permille":3000}`},
	})
	refuse(t, "burst", []refusal{
		{`{"burst_permille":999}`, "burst_permille: expected a whole number from 1000"},
		{`{"tiers":{"gold":2000}}`, `tier "gold" is not configured`},
		{`{"models":["a*b"]}`, "models[0]: expected a name, or the beginning of one and *; got \"a*b\""},
	})
}

func TestChannel(t *testing.T) {
	look(t, "channel", []try{
		{"counted only", `{}`, `{"attributes":{"model":"m"}}`, `{"reason":0,"dims":[{"kind":"key"},{"kind":"model"},{"kind":"global"},{"kind":"user"},{"kind":"org"},{"kind":"model+channel","qps_limit":0}]}`},
		{"every model", `{"limits":[{"qps_limit":7}],"dimensions":["key","model+channel"]}`, `{}`, `{"reason":1,"dims":[{"kind":"key"},{"kind":"model+channel","qps_limit":7}]}`},
	})
	refuse(t, "channel", []refusal{
		{`{"limits":[{"model":["m"]}]}`, `limits[0].model: unknown; did you mean "models"?`},
		{`{"channel":{}}`, "channel: expected at least 1 member of burst_permille, qps_limit, shadow, tpm_limit; got {}"},
		{`{"limits":[{},{"qps_limit":1e2}]}`, `limit 2: qps_limit: want a whole number`},
	})
}

func TestBusinessHours(t *testing.T) {
	const night = `{"weekdays":["sun"],"from":"22:00","to":"06:00","closed":{}}`
	look(t, "business-hours", []try{
		{"nothing asked for", `{}`, `{"minute_of_week":0}`, `{"abstain":true}`},
		{"outside of nine to six", `{"outside":{"tpm_permille":500}}`, `{"minute_of_week":539}`, `{"tpm_permille":500,"reason":2}`},
		{"nine", `{"outside":{"tpm_permille":500}}`, `{"minute_of_week":540}`, `{"abstain":true}`},
		{"saturday noon", `{"outside":{"tpm_permille":500}}`, `{"minute_of_week":7920}`, `{"reason":2}`},
		{"saturday 00:00", `{"outside":{"tpm_permille":500}}`, `{"minute_of_week":7200}`, `{"reason":2}`},
		{"the night into monday", night, `{"minute_of_week":359}`, `{"abstain":true}`},
		{"its end", night, `{"minute_of_week":360}`, `{"verdict":"deny","status":403,"message":"closed outside business hours","retry_after_ms":576000000}`},
		{"sunday 21:59", night, `{"minute_of_week":9959}`, `{"verdict":"deny","retry_after_ms":60000}`},
	})
	refuse(t, "business-hours", []refusal{
		{`{"from":"9:00"}`, `from: expected a time of day as HH:MM, from 00:00 to 24:00, such as "08:30"; got "9:00"`},
		{`{"from":"18:00"}`, `from and to are the same time`},
		{`{"outside":{}}`, `, such as {"tpm_permille":500}; got {}`},
		{`{"closed":{"status":503}}`, "closed.status: expected a whole number from 400 to 499; got 503"},
		{`{"inside":{"tier":"gold"}}`, "code 4"},
		{`{"closed":{"message":"` + strings.Repeat("門", 200) + `"}}`, `closed: a message of more than 512 bytes`},
	})
}

// TestBusinessHoursWait: after the wait that a denial gives it is open, and a moment earlier it is not.
func TestBusinessHoursWait(t *testing.T) {
	h := host(t, "business-hours")
	rnd := rand.New(rand.NewPCG(3, 5))
	at := func(ms int64) map[string]any { return decide(t, h, fmt.Sprintf(`{"now_ms":%d}`, ms)) }
	for _, hours := range []string{`"from":"09:00","to":"18:00"`, `"from":"22:30","to":"06:00","weekdays":["fri","sun"]`, `"from":"00:00","to":"24:00","weekdays":["wed"]`, `"from":"23:59","to":"00:01"`} {
		if err := activate(t, h, "business-hours", `{"zone":"+05:45","closed":{},`+hours+`}`); err != nil {
			t.Fatal(err)
		}
		denied := 0
		for range 200 {
			now := 1_700_000_000_000 + rnd.Int64N(1000*86400*14)
			d := at(now)
			if d["abstain"] == true {
				continue
			}
			denied++
			wait := int64(d["retry_after_ms"].(float64))
			if wait <= 0 || wait > 7*86400*1000 || at(now + wait)["abstain"] != true || at(now + wait - 1)["verdict"] != "deny" {
				t.Errorf("%s: at %d the wait is %d", hours, now, wait)
			}
		}
		if denied < 50 {
			t.Errorf("%s: only %d of 200 were denied", hours, denied)
		}
	}
}

// TestREADMEs: the params that the READMEs show are accepted.
func TestREADMEs(t *testing.T) {
	h, err := policy.NewHost(policy.Options{CacheDir: t.TempDir(), Tiers: tiers(), Labels: []string{"plan", "soft", "batch", "team"}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, name := range policies.Names() {
		wasm, _ := policies.Shipped(name)
		if _, err := h.Add(t.Context(), name, wasm, policy.ProfileSmall); err != nil {
			t.Fatal(err)
		}
		readme, err := os.ReadFile(filepath.Join(name, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, shows := strings.Cut(string(readme), "```json\n")
		params, _, _ := strings.Cut(rest, "```")
		if !shows {
			params = "{}"
		}
		if err := activate(t, h, name, params); err != nil {
			t.Errorf("%s/README.md: %v", name, err)
		}
	}
}
