package policy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/policies"
)

const zoneSchema = `{"properties":{"zone":{"type":"string","format":"time-zone"},"other":{"type":"string"}}}`

func TestWithZones(t *testing.T) {
	const plain = `{ "zone":"+08:00", "other":"Europe/Berlin" }`
	for _, c := range []struct{ schema, params, want string }{
		{zoneSchema, plain, plain},
		{zoneSchema, ``, ``},
		{zoneSchema, `{"zone":7}`, `{"zone":7}`},
		{`{"properties":{"zone":{"type":"string"}}}`, `{"zone":"Europe/Berlin"}`, `{"zone":"Europe/Berlin"}`},
		{`{"properties":{"zone":true}}`, `{"zone":"Europe/Berlin"}`, `{"zone":"Europe/Berlin"}`},
		{zoneSchema, `{"zone":"Asia/Kolkata","other":"<a>"}`, `{"other":"<a>","zone":"Asia/Kolkata","zone_table":{"name":"Asia/Kolkata","offsets":[330]}}`},
		{zoneSchema, `{"zone":"key","zone_table":{"name":"Asia/Kolkata","offsets":[330]}}`, `{"zone":"key"}`},
		{zoneSchema, `{"zone":"Asia/Kolkata","zone_table":{"name":"Asia/Kolkata","offsets":[1]}}`, `{"zone":"Asia/Kolkata","zone_table":{"name":"Asia/Kolkata","offsets":[330]}}`},
	} {
		got, err := WithZones([]byte(c.schema), []byte(c.params))
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s, %v; want %s", c.params, got, err, c.want)
		}
	}
	const recorded = `{"zone":"Asia/Kolkata","zone_table":{"name":"Asia/Kolkata","offsets":[1]}}`
	if got, err := withZones([]byte(zoneSchema), []byte(recorded), true); err != nil || string(got) != recorded {
		t.Errorf("a table that was kept became %s, %v", got, err)
	}
	for zone, says := range map[string]string{"Europe/Berln": `no time zone "Europe/Berln" (nearest: "Europe/Berlin")`, "Local": `no time zone "Local"`, "localtime": `no time zone "localtime"`, "./Europe/Berlin": `no time zone "./Europe/Berlin"`, "../x": "want"} {
		if _, err := WithZones([]byte(zoneSchema), []byte(`{"zone":"`+zone+`"}`)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", zone, err, says)
		}
	}
	for _, name := range llm.ZoneNames() {
		if _, err := time.LoadLocation(name); err != nil {
			t.Errorf("%s is proposed and does not exist", name)
		}
	}
}

// The shipped rules look at times in a named zone as the zone's clocks show them, whenever they are changed.
func TestRulesInNamedZones(t *testing.T) {
	wasm, _ := policies.Shipped("rules")
	h := newHost(t, Options{})
	mustAdd(t, h, "rules", wasm)
	const rules = `"rules":[{"name":"night","when":{"hours":{"weekdays":["sat","mon"],"from":"01:30","to":"03:00"}}},{"name":"last","when":{"days_of_month":[-1]}}]`
	r := rand.New(rand.NewPCG(1, 2))
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Asia/Kolkata", "Africa/Casablanca", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Gaza"} {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		run, err := h.Open(t.Context(), Binding{Module: "rules", Params: fmt.Appendf(nil, `{"zone":%q,%s}`, zone, rules)})
		if err != nil {
			t.Fatal(err)
		}
		from, to := tablesReach()
		changes := offsetsOf(loc)
		for i := range 4000 {
			at := from.Add(time.Duration(r.Int64N(int64(to.Sub(from)))))
			if i%2 == 0 && len(changes) > 1 {
				at = time.Unix(changes[1+r.IntN(len(changes)/2)*2]*60, 0).Add(time.Duration(r.Int64N(int64(6*time.Hour))) - 3*time.Hour) // around a change
			}
			local := at.In(loc)
			want := uint16(0)
			if clock := local.Hour()*60 + local.Minute(); (local.Weekday() == time.Saturday || local.Weekday() == time.Monday) && clock >= 90 && clock < 180 {
				want = 1
			} else if local.AddDate(0, 0, 1).Day() == 1 {
				want = 2
			}
			var d Decision
			if trace := run.Run(&Facts{NowMS: uint64(at.UnixMilli()), Choices: 1}, &d); d.Reason != want || trace.Fault != "" {
				t.Fatalf("%s, %v: rule %d, want %d (%s)", zone, local, d.Reason, want, trace.Fault)
			}
		}
		run.Close()
	}
	_, err := h.Open(t.Context(), Binding{Module: "rules", Params: []byte(`{"zone":"Europe/Berln","rules":[]}`)})
	if err == nil || !strings.Contains(err.Error(), `nearest: "Europe/Berlin"`) {
		t.Error(err)
	}
}

// A zone's rules may change after a decision was logged: params that carry their table decide as they did.
func TestAKeptTableDecides(t *testing.T) {
	wasm, _ := policies.Shipped("business-hours")
	h := newHost(t, Options{})
	mustAdd(t, h, "business-hours", wasm)
	for _, c := range []struct {
		offsets []int64
		reason  uint16
	}{{[]int64{0}, 2}, {[]int64{0, 29_000_000, 120}, 1}, {[]int64{0, 29_000_000, 120, 29_000_061, 0}, 1}, {[]int64{0, 29_000_000, 120, 29_000_060, 0}, 2}} {
		at := time.Unix(29_000_060*60, 0).UTC() // a Wednesday, 22:20
		table, err := json.Marshal(zoneTable{"Europe/Berlin", c.offsets})
		if err != nil {
			t.Fatal(err)
		}
		run, err := h.Open(t.Context(), Binding{Module: "business-hours", Params: fmt.Appendf(nil,
			`{"zone":"Europe/Berlin","zone_table":%s,"weekdays":["thu"],"from":"00:00","to":"24:00","inside":{"qps_permille":500},"outside":{"qps_permille":700}}`, table)})
		if err != nil {
			t.Fatal(err)
		}
		var d Decision
		run.Run(&Facts{NowMS: uint64(at.UnixMilli()), Choices: 1}, &d)
		if run.Close(); d.Reason != c.reason {
			t.Errorf("%v at %v: %d, want %d", c.offsets, at, d.Reason, c.reason)
		}
	}
}
