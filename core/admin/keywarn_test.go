package admin_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/admin"
	"github.com/weir-gateway/weir/core/limit"
)

// A label that names no tier gives a key no limits; whoever sets it is told.
func TestALabelOfNoTierIsToldToTheOperator(t *testing.T) {
	t.Parallel()
	f := openFixture(t, admin.Options{Currency: "cny", Tiers: map[string]limit.Limits{"free": {QPS: 1}, "pro": {QPS: 9}}})
	f.account()
	gold := j{"userId": 1, "name": "g", "labels": j{"tier": "prro"}}
	f.ok("POST", "/admin/keys", gold).has(t, "warnings", "[]") // no module looks at it
	f.ok("POST", "/admin/policies/default/activate", nil)
	says := func(a answer, words ...string) {
		t.Helper()
		for _, w := range words {
			if !strings.Contains(fmt.Sprint(a.at("warnings.0")), w) {
				t.Errorf("warnings %v do not say %q", a.at("warnings"), w)
			}
		}
	}
	says(f.ok("POST", "/admin/keys", gold), `label tier: no tier "prro"`, `did you mean "pro"?`, "no limit of requests and tokens of its own")
	says(f.ok("PATCH", "/admin/keys/1", j{"labels": j{"tier": "gold"}}), "the key's own limits hold", "valid are free, pro")
	f.ok("PATCH", "/admin/keys/1", j{"labels": j{"tier": "pro"}}).has(t, "warnings", "[]")
	f.ok("POST", "/admin/policies/default/activate", j{"params": j{"tier_label": "soft"}})
	f.ok("PATCH", "/admin/keys/1", j{"labels": j{"tier": "gold"}}).has(t, "warnings", "[]")
	f.ok("POST", "/admin/policies/priority/activate", nil)
	f.ok("GET", "/admin/keys/2", nil).has(t, "warnings", "[]")
}

// A band that is to slow a key down needs a rate to make smaller: the key's own, its tier's, or that of the tier a label says.
func TestABandThatSlowsNothingIsToldToTheOperator(t *testing.T) {
	t.Parallel()
	f := openFixture(t, admin.Options{Currency: "cny", Tiers: map[string]limit.Limits{"free": {QPS: 1}, "open": {Concurrency: 3}}})
	f.account()
	slow := j{"day": j{"limitCny": 5, "slowPercent": 80}, "week": j{"limitCny": 9, "slowPercent": 90}}
	all := f.ok("POST", "/admin/keys", j{"userId": 1, "name": "s", "budgets": slow})
	for i, w := range []string{"week", "day"} {
		if got := fmt.Sprint(all.at(fmt.Sprintf("warnings.%d", i))); !strings.HasPrefix(got, "budgets."+w+".slowPercent: it slows nothing down") {
			t.Errorf("warning %d: %s", i, got)
		}
	}
	f.ok("PATCH", "/admin/keys/2", j{"tpmLimit": 100}).has(t, "warnings", "[]")
	f.ok("PATCH", "/admin/keys/2", j{"tpmLimit": nil, "qpsLimit": nil, "tier": "free"}).has(t, "warnings", "[]")
	if got := f.ok("PATCH", "/admin/keys/2", j{"tier": "open"}).at("warnings"); len(got.([]any)) != 2 {
		t.Errorf("a tier without rates: %v", got)
	}
	f.ok("PATCH", "/admin/keys/2", j{"budgets": j{"day": nil, "week": j{"slowPercent": nil}}}).has(t, "warnings", "[]")
	f.ok("PATCH", "/admin/keys/2", j{"budgets": slow, "labels": j{"tier": "free"}})
	f.ok("POST", "/admin/policies/default/activate", nil)
	f.ok("GET", "/admin/keys/2", nil).has(t, "warnings", "[]")
}
