package admin_test

import (
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
)

func TestBudgets(t *testing.T) {
	f := newFixture(t)
	token := f.account()
	f.ok("PATCH", "/admin/keys/1", j{"budgets": j{"day": j{"limitCny": 2.5, "anchor": 6, "timezone": "Asia/Shanghai"}, "week": j{"limitCny": 10, "anchor": "thursday"}}}).
		has(t, "budgets.day.limitMicroCny", 2_500_000, "budgets.day.anchor", 6, "budgets.day.timezone", "Asia/Shanghai", "budgets.day.next", nil,
			"budgets.week.anchor", "thursday", "budgets.week.timezone", nil, "budgets.month.limitCny", 10000, "monthlyQuotaCny", 10000)
	f.restart()
	c, err := f.dir.Resolve([]byte(token))
	if err != nil || c.Key.Budget(llm.Day) != (auth.Budget{Window: llm.Day, Limit: 2_500_000, Terms: auth.Terms{Anchor: 6, Zone: "Asia/Shanghai"}}) {
		t.Fatalf("%+v, %v", c, err)
	}
	f.limiter.LoadQuota(1, 20261105, 70)
	f.limiter.LoadQuota(1, 2026309, 80)
	f.ok("GET", "/admin/keys/1/usage-window", nil).has(t, "daily.usedMicroCny", 70, "daily.limitCny", "2.5", "daily.period", "2026-11-05", "daily.resetAt", "2026-11-06T06:00:00+08:00",
		"weekly.usedMicroCny", 80, "weekly.period", "2026-11-05", "weekly.resetAt", "2026-11-12T00:00:00Z", "monthly.period", "2026-11")
	f.ok("POST", "/admin/keys/1/limits", j{"budgets": j{"month": j{"limitCny": 7}, "week": nil}}).has(t, "monthlyQuotaCny", 7, "budgets.week", nil, "budgets.day.limitCny", "2.5")
	f.ok("PATCH", "/admin/keys/1", j{"budgets": j{"month": j{"warnPercent": 60, "slowPercent": 90, "hardPercent": 110}}}).
		has(t, "budgets.month.warnPercent", 60, "budgets.month.slowPercent", 90, "budgets.month.slowToPercent", 50, "budgets.month.hardPercent", 110, "budgets.month.limitCny", 7)
	f.ok("PATCH", "/admin/keys/1", j{"budgets": j{"month": j{"warnPercent": nil, "slowPercent": nil, "hardPercent": nil}}}).
		has(t, "budgets.month.warnPercent", nil, "budgets.month.slowToPercent", nil, "budgets.month.hardPercent", 100)
	f.ok("POST", "/admin/keys/1/limits", j{"monthlyQuotaCny": 0}).has(t, "budgets.month", nil)
	f.ok("GET", "/admin/keys/1/usage-window", nil).has(t, "weekly", nil, "monthly.limitCny", 0)
}

func TestBudgetsRefuse(t *testing.T) {
	f := newFixture(t)
	f.account()
	for _, x := range []struct {
		body  j
		words []string
	}{
		{j{"dya": j{}}, []string{`"budgets.dya"`, `did you mean "day"?`}},
		{j{"day": j{"limit": 1}}, []string{`"budgets.day.limit"`, "valid are anchor, hardPercent, limitCny"}},
		{j{"day": j{"anchor": 24}}, []string{"budgets.day.anchor: expected an hour from 0 to 23, got 24"}},
		{j{"month": j{"anchor": 29}}, []string{"budgets.month.anchor: expected a day of the month from 1 to 28, got 29"}},
		{j{"week": j{"anchor": "mondya"}}, []string{"budgets.week.anchor", `did you mean "monday"?`}},
		{j{"week": j{"timezone": "Mars"}}, []string{"budgets.week.timezone", "IANA"}},
		{j{"week": 5}, []string{"budgets.week: expected a JSON object, got 5"}},
		{j{"day": j{"slowPercent": 0}}, []string{"budgets.day.slowPercent: expected a percentage from 1 to 1000, or null, got 0"}},
		{j{"day": j{"slowPercent": 110, "hardPercent": 110}}, []string{"budgets.day.slowPercent: 110 is never reached"}},
		{j{"day": j{"warnPercent": 101}}, []string{"budgets.day.warnPercent: 101 is never reached"}},
		{j{"day": j{"slowToPercent": 20}}, []string{"budgets.day.slowToPercent: it needs slowPercent"}},
		{j{"day": j{"limitCny": -1}}, []string{"budgets.day.limitCny", "at least 0"}},
	} {
		f.refused(400, "PATCH", "/admin/keys/1", j{"budgets": x.body}, x.words...)
	}
	f.refused(400, "PATCH", "/admin/keys/1", j{"monthlyQuotaCny": 1, "budgets": j{"month": j{"limitCny": 2}}}, "given as monthlyQuotaCny too")
	f.refused(400, "PATCH", "/admin/keys/1", j{"monthlyQuotaCny": 1, "budgets": j{"month": nil}}, "budgets.month: given as monthlyQuotaCny too")
	f.ok("GET", "/admin/keys/1", nil).has(t, "monthlyQuotaCny", 10000)
}

// M12: new terms wait for the end of the present period and survive a restart; asking for the old ones takes them back.
func TestM12BudgetTermsChangeAtThePeriodsEnd(t *testing.T) {
	f := newFixture(t)
	f.account()
	f.ok("PATCH", "/admin/keys/1", j{"budgets": j{"day": j{"limitCny": 2}, "month": j{"anchor": 15}}}).
		has(t, "budgets.day.next", nil, "budgets.month.anchor", 1, "budgets.month.next.anchor", 15, "budgets.month.next.at", "2026-12-01T00:00:00.000Z")
	f.ok("PATCH", "/admin/keys/1", j{"budgets": j{"day": j{"anchor": 6}}}).
		has(t, "budgets.day.anchor", 0, "budgets.day.next.anchor", 6, "budgets.day.next.at", "2026-11-06T00:00:00.000Z")
	f.ok("PATCH", "/admin/keys/1", j{"budgets": j{"month": j{"anchor": 1}}}).has(t, "budgets.month.next", nil, "budgets.day.next.anchor", 6)
	f.clock.Advance(13 * time.Hour)
	f.ok("GET", "/admin/keys/1/usage-window", nil).has(t, "daily.period", "2026-11-05", "daily.resetAt", "2026-11-06T06:00:00Z")
	f.restart()
	f.ok("GET", "/admin/keys/1", nil).has(t, "budgets.day.anchor", 6, "budgets.day.next", nil)
	f.ok("GET", "/admin/keys/1/usage-window", nil).has(t, "daily.period", "2026-11-05")
}

// A budget that begins has its own terms at once, however its limit is said.
func TestNewBudgetBeginsWithItsTerms(t *testing.T) {
	f := newFixture(t)
	f.account()
	f.ok("POST", "/admin/keys", j{"userId": 1, "name": "new", "monthlyQuotaCny": 5, "budgets": j{"month": j{"anchor": 15}, "day": j{"limitCny": 1, "anchor": 6}}}).
		has(t, "budgets.month.limitCny", 5, "budgets.month.anchor", 15, "budgets.month.next", nil, "budgets.day.anchor", 6, "budgets.day.next", nil)
	f.ok("POST", "/admin/keys", j{"userId": 1, "name": "none yet"})
	f.ok("PATCH", "/admin/keys/3", j{"monthlyQuotaCny": 5, "budgets": j{"month": j{"anchor": 15}}}).has(t, "budgets.month.anchor", 15, "budgets.month.next", nil)
}

// A lower limit of any window is in memory before it is durable: when the ledger cannot write it, the old one is back.
func TestBudgetCutIsTakenBack(t *testing.T) {
	f := newFixture(t)
	token := f.account()
	f.ok("PATCH", "/admin/keys/1", j{"budgets": j{"day": j{"limitCny": 2}}})
	f.must(f.ledger.Close())
	f.refused(503, "PATCH", "/admin/keys/1", j{"budgets": j{"day": j{"limitCny": 1}, "week": j{"limitCny": 1}}})
	c, _ := f.dir.Resolve([]byte(token))
	if c.Key.Budget(llm.Day).Limit != 2_000_000 || c.Key.Budget(llm.Week).Limit != 0 {
		t.Errorf("%+v", c.Key.Budgets)
	}
}

// A record and an exported entry name the periods of all windows; a restart knows what each has counted.
func TestRecordsNameTheirPeriods(t *testing.T) {
	f := newFixture(t)
	f.account()
	f.ok("PATCH", "/admin/keys/1", j{"budgets": j{"day": j{"limitCny": 2}, "week": j{"limitCny": 9}}})
	f.spendWith(1, "gpt", func(m *limit.Money) {
		m.Quotas = [llm.Windows]limit.Quota{{Label: 202611, Limit: 1 << 40}, {Window: llm.Week, Label: 2026306, Limit: 1 << 40}, {Window: llm.Day, Label: 20261105, Limit: 1 << 40}}
	})
	f.ok("GET", "/admin/usage", nil).has(t, "data.0.period", "2026-11", "data.0.periodWeek", "2026-11-02", "data.0.periodDay", "2026-11-05", "data.0.costMicroCny", 19)
	f.restart()
	f.ok("GET", "/admin/keys/1/usage-window", nil).has(t, "daily.usedMicroCny", 19, "weekly.usedMicroCny", 19, "monthly.usedMicroCny", 19)
}
