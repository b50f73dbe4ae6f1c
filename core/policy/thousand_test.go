package policy

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/policies"
)

// table64 is a table of 64 rules for the shipped module: 63 that do not hold, and one that sets the QPS multiplier to n.
// In a dear one each rule has conditions of many kinds.
func table64(n int, dear bool) []byte {
	var rules []string
	for i := range 63 {
		when := fmt.Sprintf(`"models":["o%d-*"]`, i)
		if dear {
			when += fmt.Sprintf(`,"users":["nobody-%d","nobody-else-%d"],"hours":{"from":"0%d:00","to":"%d:30"},"input_tokens":{"at_least":%d}`, i, i, i%9, 10+i%13, 1000+i)
		}
		rules = append(rules, fmt.Sprintf(`{"name":"rule %d of %d","when":{%s},"then":{"qps_permille":%d}}`, i, n, when, 1+i))
	}
	rules = append(rules, fmt.Sprintf(`{"name":"mine","then":{"qps_permille":%d}}`, n))
	return []byte(`{"rules":[` + strings.Join(rules, ",") + `]}`)
}

// tenants is a host with many orgs, each with its own table of the shipped rules.
type tenants struct {
	*Host
	n int
}

// manyTenants binds n of them, to a thousandth of so much memory each.
func manyTenants(t *testing.T, n int, mib int64, dear bool) tenants {
	t.Helper()
	h := tenants{openly(t, Options{Clock: llm.NewSystemClock(), TenantBytes: mib << 20 * int64(n) / 1000}), n}
	wasm, _ := policies.Shipped("rules")
	mustAdd(t, h.Host, "rules", wasm)
	var plans []OwnerPlan
	for i := 1; i <= n; i++ {
		plans = append(plans, OwnerPlan{Owner(i), Plan{Active: &Binding{Module: "rules", Params: table64(i, dear)}}})
	}
	began := time.Now()
	for i, err := range h.PlanAll(context.Background(), plans) {
		if err != nil {
			t.Fatalf("org %d: %v", i+1, err)
		}
	}
	t.Logf("%d orgs bound in %v, params of %d bytes each", n, time.Since(began), len(table64(1, dear)))
	return h
}

// call has each org decide once; what it decides tells it apart from the others.
func (h tenants) call(t *testing.T) {
	t.Helper()
	began := time.Now()
	for i := 1; i <= h.n; i++ {
		d := decide(h.Host, 1, uint64(i))
		if d.Tenant.Fault != "" || d.QPS != uint32(i) {
			t.Fatalf("org %d: QPS %d, fault %q", i, d.QPS, d.Tenant.Fault)
		}
		if n := h.Stats().TenantBytes; n > h.o.TenantBytes+1<<20 { // the newest one's, until the keeper has freed another's
			t.Fatalf("after org %d: %d bytes are booked of %d", i, n, h.o.TenantBytes)
		}
	}
	t.Logf("all decided in %v", time.Since(began))
}

// grown has all orgs call twice, and holds what that adds to resident memory against the orgs' bound.
func (h tenants) grown(t *testing.T) Stats {
	t.Helper()
	debug.FreeOSMemory()
	before := memoryKB(t)["VmRSS"]
	h.call(t)
	h.call(t)
	debug.FreeOSMemory()
	s, grown := h.Stats(), int64(memoryKB(t)["VmRSS"]-before)<<10
	t.Logf("booked %d KiB of %d, resident +%d KiB, %d live, %d evicted", s.TenantBytes>>10, h.o.TenantBytes>>10, grown>>10, s.TenantsLive, s.TenantEvictions)
	if most := 256<<20*int64(h.n)/1000 + 16<<20; patience == 1 && grown > most {
		t.Errorf("resident memory grew by %d bytes, want <= %d", grown, most)
	}
	return s
}

// TestThousandTables: a thousand orgs with 64 rules each decide at once within 256 MiB.
func TestThousandTables(t *testing.T) {
	n := 1000
	if testing.Short() || patience > 1 {
		n = 100
	}
	h := manyTenants(t, n, 256, false)
	if s := h.grown(t); s.TenantsLive != uint64(h.n) || s.TenantEvictions != 0 || s.TenantBuilds != uint64(h.n) {
		t.Errorf("stats %+v", s)
	}
}

// TestThousandTablesInLess: where they do not fit, the one that has not called for longest goes, and decides as before
// when it calls again.
func TestThousandTablesInLess(t *testing.T) {
	n := 100
	if *long {
		n = 1000
	}
	h := manyTenants(t, n, 128, true)
	if s := h.grown(t); s.TenantEvictions < uint64(h.n) || s.TenantsLive >= uint64(h.n) || s.TenantBuilds < 2*uint64(h.n) {
		t.Errorf("stats %+v; want each org's instances made twice", s)
	}
}
