package policy

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-gateway/weir/sdk/abi"
)

// Rules are counted by number and message, from every side at once, and beyond the bound together.
func TestFiringsAreCountedAndBounded(t *testing.T) {
	var f firings
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 40 {
				f.count(uint16(i+1), "rule")
			}
			f.count(1, "rule")
			f.count(0, "")
		})
	}
	wg.Wait()
	all := f.list()
	if len(all) != maxReasons || f.others.Load() != 8*8 || all[0].Count < 8 {
		t.Fatalf("%d rules, %d others, first %+v", len(all), f.others.Load(), all[0])
	}
	sum := f.others.Load()
	for _, r := range all {
		sum += r.Count
	}
	if sum != 8*41 {
		t.Errorf("%d firings, want %d", sum, 8*41)
	}
	if n := testing.AllocsPerRun(100, func() { f.count(all[0].Reason, "rule") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	others := uint64(0)
	more := addReasons(all, []ReasonCount{{all[1].Reason, "rule", 1000}, {99, "new", 5}}, &others)
	if len(more) != maxReasons || more[0].Reason != all[1].Reason || more[0].Count != all[1].Count+1000 || others != 5 {
		t.Errorf("added up: %+v, %d others", more[0], others)
	}
}

// What the headers say of a rule is bounded, and safe in any of them.
func TestAppendRule(t *testing.T) {
	long := strings.Repeat("é", 100)
	for _, c := range []struct {
		d            Decision
		rule, tenant string
	}{
		{Decision{}, "", ""},
		{Decision{Reason: 3, Message: "night-discount"}, "3 night-discount", ""},
		{Decision{Reason: 3}, "3", ""},
		{Decision{Message: "no number"}, "no number", ""},
		{Decision{Reason: 1, Message: "a\r\nX-Evil: 1"}, "1 a%0D%0AX-Evil: 1", ""},
		{Decision{Reason: 1, Message: "夜 100%"}, "1 %E5%A4%9C 100%25", ""},
		{Decision{Reason: 1, Message: long}, "1 " + strings.Repeat("%C3%A9", 20) + "...", ""},
		{Decision{Reason: 1, Message: strings.Repeat("x", 126)}, "1 " + strings.Repeat("x", 126), ""},
		{Decision{Reason: 1, Message: strings.Repeat("x", 127)}, "1 " + strings.Repeat("x", 123) + "...", ""},
		{Decision{Reason: 1, Message: "op", Tenant: TenantPart{Module: "rules", Reason: 2, Message: "org"}}, "1 op", "2 org"},
		{Decision{Verdict: Deny, Reason: 2, Message: "org", Tenant: TenantPart{Module: "rules", Reason: 2, Message: "org"}}, "", "2 org"},
		{Decision{Verdict: Deny, Message: "the policy could not decide", Fault: "trap"}, "", ""},
		{Decision{Tenant: TenantPart{Module: "rules", Message: "late", Fault: "trap"}}, "", ""},
	} {
		rule, tenant := string(c.d.AppendRule([]byte("> "))), string(c.d.Tenant.AppendRule(nil))
		if rule != "> "+c.rule || tenant != c.tenant || len(rule) > maxRule+2 {
			t.Errorf("%+v: %q and %q, want %q and %q", c.d.Message, rule, tenant, c.rule, c.tenant)
		}
	}
	d := Decision{Reason: 1, Message: "夜"}
	buf := make([]byte, 0, 256)
	if n := testing.AllocsPerRun(100, func() { d.AppendRule(buf) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// An org's usage says which of its rules fired, those of generations that are gone among them.
func TestUsageSaysWhichRulesFired(t *testing.T) {
	h := openly(t, Options{}, 800)
	mustAdd(t, h, "says", guest(st16(respAt, abi.Major), st16(respAt+abi.RespReason, 7), c32(abi.Decided)).bytes())
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "m800"}})
	mustPlan(t, h, 3, Plan{Active: &Binding{Module: "says"}})
	for i := range uint64(5) {
		if d := decide(h, i, 3); d.Tenant.Reason != 7 {
			t.Fatalf("%+v", d.Tenant)
		}
	}
	if u, _ := h.Usage(3); !slices.Equal(u.Rules, []ReasonCount{{Reason: 7, Count: 5}}) || u.OtherRules != 0 {
		t.Errorf("usage %+v, want 5 firings of rule 7", u)
	}
	g := h.orgs.get(3).cur.Load().active
	var past record
	past.add(g)
	past.add(g)
	if !slices.Equal(past.fired, []ReasonCount{{Reason: 7, Count: 10}}) {
		t.Errorf("two generations of 5 firings: %+v", past.fired)
	}
}
