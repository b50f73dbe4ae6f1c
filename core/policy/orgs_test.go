package policy

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/sdk/abi"
)

// fixed answers with the number that its params are, {"n":123}: as QPS multiplier, and as first of its dimensions' org
// limit.
func fixed() *asm {
	// weir_configure adds up the digits after `"n":` and keeps the number at 0x9000.
	const at, num = 0x9000, 0x9004
	i32load8, add, sub, mul, ltu := []byte{0x2d, 0, 0}, []byte{0x6a}, []byte{0x6b}, []byte{0x6c}, []byte{0x49}
	put := func(addr uint32, v ...[]byte) []byte { return cat(c32(addr), cat(v...), []byte{0x36, 0, 0}) }
	char := cat(ld32(at), i32load8)
	find := cat( // at = position after the last `"n":`
		put(at, c32(paramsAt)),
		[]byte{opLoop, blockEmpty}, put(at, ld32(at), c32(1), add),
		cat(ld32(at), []byte{0x28, 0, 0}), c32(0x3a226e22), []byte{0x47, opBrIf, 0, opEnd}, // until the bytes are "n":
		put(at, ld32(at), c32(4), add))
	digits := cat(put(num, c32(0)),
		[]byte{opBlock, blockEmpty, opLoop, blockEmpty},
		char, c32('0'), sub, c32(10), ltu, []byte{0x45, opBrIf, 1}, // not a digit
		put(num, ld32(num), c32(10), mul, char, add, c32('0'), sub),
		put(at, ld32(at), c32(1), add),
		[]byte{0x0c, 0, opEnd, opEnd})
	answer := cat(st16(respAt, abi.Major), c32(respAt+abi.RespQPSMultiplier), ld32(num), []byte{0x36, 0, 0}, c32(0))
	return guest(answer).configurable(find, digits, c32(0))
}

func number(n int) []byte { return []byte(fmt.Sprintf(`{"n":%d}`, n)) }

func TestOrgsModuleComesAfterTheOperators(t *testing.T) {
	h := openly(t, Options{Tiers: []string{"free", "gold"}}, 800)
	mustAdd(t, h, "fixed", fixed().bytes())
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "m800"}})
	mustPlan(t, h, 3, Plan{Active: &Binding{Module: "fixed", Params: number(500)}})
	d := decide(h, 1, 3)
	if d.QPS != 400 || d.Module != "m800" || d.Tenant.Module != "fixed" || d.Tenant.Fault != "" || d.Tenant.Clamped {
		t.Fatalf("decision %+v", d)
	}
	b, _ := h.PlanOf(3)
	if got := string(d.AppendPolicy(nil)); got != d.Module+"@"+d.Version+", fixed@"+b.Active.Version() || strings.Count(got, ".") != 1 {
		t.Errorf("X-Weir-Policy: %s", got)
	}
	if d := decide(h, 1, 4); d.QPS != 800 || d.Tenant.Module != "" {
		t.Errorf("another org: %+v", d)
	}
	mustPlan(t, h, 3, Plan{})
	if d := decide(h, 1, 3); d.QPS != 800 || d.Tenant.Module != "" || len(h.Owners()) != 1 {
		t.Errorf("after the plan is gone: %+v", d)
	}
}

// P06: what an org asks beyond its envelope is cut off, and its usage and the report say so.
func TestP06AnOrgAsksTenTimesItsEnvelope(t *testing.T) {
	h := openly(t, Options{}, 800)
	mustAdd(t, h, "fixed", fixed().bytes())
	if err := h.SetEnvelopes(Envelopes{Operator: Envelope{MaxMultiplier: 1000}, Tenant: Envelope{MaxMultiplier: 1200}}); err != nil {
		t.Fatal(err)
	}
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "m800"}})
	mustPlan(t, h, 3, Plan{Active: &Binding{Module: "fixed", Params: number(12_000)}})
	if d := decide(h, 1, 3); d.QPS != 960 || !d.Tenant.Clamped || d.Clamped {
		t.Errorf("decision %+v", d)
	}
	if u, ok := h.Usage(3); !ok || u.Clamped != 1 || u.Calls != 1 || !u.Live || u.Bytes < 64<<10 || u.Module != "fixed" {
		t.Errorf("usage %+v", u)
	}
	mustPlan(t, h, 3, Plan{Active: &Binding{Module: "fixed", Params: number(900)}, Candidate: &Binding{Module: "fixed", Params: number(12_000)}, Stage: StageShadow})
	if d := decide(h, 1, 3); d.QPS != 720 || d.Tenant.Clamped {
		t.Errorf("decision %+v", d)
	}
	r, ok := h.Report(3)
	if !ok || r.Compared != 1 || r.Clamped != 1 || r.Changed != 1 || r.Owner != "org:3" {
		t.Fatalf("report %+v", r)
	}
	if c, err := ParseDecision(r.Examples[0].Candidate, nil); err != nil || c.QPS != 960 || !c.Clamped {
		t.Errorf("example %s %v", r.Examples[0].Candidate, err)
	}
	// The envelope around the chain bounds the product, too.
	if err := h.SetEnvelopes(Envelopes{Operator: Envelope{MaxMultiplier: 1000}, Tenant: Envelope{MaxMultiplier: 2000}}); err != nil {
		t.Fatal(err)
	}
	mustPlan(t, h, 3, Plan{Active: &Binding{Module: "fixed", Params: number(2000)}})
	if d := decide(h, 1, 3); d.QPS != 1000 || !d.Tenant.Clamped {
		t.Errorf("decision %+v", d)
	}
	if s := h.Stats(); s.TenantClamped != 2 {
		t.Errorf("stats %+v", s)
	}
}

// What an org may loosen depends on the tier that the key has by configuration, whichever a module puts it in.
func TestAnOrgsEnvelopeGoesByTheKeysTier(t *testing.T) {
	h := openly(t, Options{Tiers: []string{"free", "pro"}})
	mustAdd(t, h, "fixed", fixed().bytes())
	up := guest(st16(respAt, abi.Major), st16(respAt+abi.RespTier, 2), c32(abi.Decided))
	mustAdd(t, h, "up", up.bytes())
	err := h.SetEnvelopes(Envelopes{Operator: wide(), Tenant: Envelope{MaxMultiplier: 1100}, TenantTiers: map[string]Envelope{"pro": {MaxMultiplier: 3000}}})
	if err != nil {
		t.Fatal(err)
	}
	mustPlan(t, h, 3, Plan{Active: &Binding{Module: "fixed", Params: number(12_000)}})
	for _, operators := range []string{"", "up"} {
		if operators != "" {
			mustPlan(t, h, Operator, Plan{Active: &Binding{Module: operators}})
		}
		decide(h, 1, 3) // the org's instances are there
		for tier, want := range map[uint32]uint32{0: 1100, 1: 3000, math.MaxUint32: 1100} {
			f, d := sampleFacts(), Decision{}
			f.Org, f.Tier = 3, tier
			h.Decide(f, &d)
			if d.QPS != want || !d.Tenant.Clamped {
				t.Errorf("operator's %q, tier %d: multiplier %d, want %d", operators, tier, d.QPS, want)
			}
			b, _ := h.PlanOf(3)
			if tried, err := h.Try(t.Context(), 3, *b.Active, f); err != nil || tried.Decision.QPS != want {
				t.Errorf("tried: %d, %v; want %d", tried.Decision.QPS, err, want)
			}
		}
	}
	if err := h.SetEnvelopes(Envelopes{TenantTiers: map[string]Envelope{"prro": {}}}); err == nil || !strings.Contains(err.Error(), `nearest: "pro"`) {
		t.Error(err)
	}
}

// The facts of an org's module are what the operator's decision left.
func TestOrgsAreToldTheEffectiveLimits(t *testing.T) {
	var base Decision
	base.reset()
	h := newHost(t, Options{Tiers: []string{"free", "gold"}, TierLimits: func(tier int) (qps, tpm int64) {
		return []int64{10, 40}[tier], []int64{1000, 9000}[tier]
	}})
	for _, c := range []struct {
		name string
		op   func(*Decision)
		want func(*Facts)
	}{
		{"nothing", func(*Decision) {}, func(*Facts) {}},
		{"multipliers", func(d *Decision) { d.QPS, d.TPM, d.Quota = 500, 2000, 100 }, func(f *Facts) { f.QPSLimit, f.TPMLimit, f.QuotaLimit = 5, 2000, 7 }},
		{"never below one", func(d *Decision) { d.QPS = 1 }, func(f *Facts) { f.QPSLimit = 1 }},
		{"the key's entry", with(Dimension{Kind: abi.KindKey, QPS: 30, Multiplier: 2000}), func(f *Facts) { f.QPSLimit, f.TPMLimit = 60, 2000 }},
		{"two entries for the key", with(Dimension{Kind: abi.KindKey, QPS: 30}, Dimension{Kind: abi.KindKey, Multiplier: 700}), func(f *Facts) { f.QPSLimit, f.TPMLimit = 7, 700 }},
		{"an entry's own tier", with(Dimension{Kind: abi.KindKey, Tier: 1, Multiplier: 500}), func(f *Facts) { f.QPSLimit, f.TPMLimit = 20, 4500 }},
		{"another tier", func(d *Decision) { d.Tier = 1 }, func(f *Facts) { f.QPSLimit, f.TPMLimit, f.Tier, f.Attr[AttrTier] = 40, 9000, 1, "gold" }},
		{"another tier, its own limit", func(d *Decision) { d.Tier = 1; d.QPS = 500 }, func(f *Facts) { f.QPSLimit, f.TPMLimit, f.Tier, f.Attr[AttrTier] = 20, 9000, 1, "gold" }},
		{"no limits", func(d *Decision) { d.NoLimit = true }, func(f *Facts) { f.QPSLimit, f.TPMLimit = 0, 0 }},
		{"output of three choices", func(d *Decision) { d.OutputCap = 100 }, func(f *Facts) { f.OutputMax = 300 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, want, d := sampleFacts(), sampleFacts(), base
			for _, f := range []*Facts{got, want} {
				f.Tier, f.QuotaLimit, f.Choices, f.Attr[AttrTier] = 0, 70, 3, "free"
			}
			c.op(&d)
			c.want(want)
			if h.effective(got, &d); *got != *want {
				t.Errorf("got %+v\nwant %+v", got, want)
			}
		})
	}
	f, d := sampleFacts(), base
	f.Tier, f.QPSLimit, d.Tier = 0, 3, 1
	if h.effective(f, &d); f.QPSLimit != 3 || f.TPMLimit != 9000 {
		t.Errorf("the key's own limit: %+v", f)
	}
}

// keyed is a module that sets the key's limits to so many requests and times a factor, and puts the key in a tier (0: none).
func keyed(qps, permille uint32, tier uint32) *asm {
	return guest(st16(respAt, abi.Major), st32(respAt+abi.RespQPSMultiplier, permille), st16(respAt+abi.RespTier, tier),
		st16(respAt+abi.RespNDims, 1), st8(respAt+abi.RespDims, abi.KindKey), st8(respAt+abi.RespDims+abi.DimFlags, 0),
		st32(respAt+abi.RespDims+abi.DimQPSLimit, qps), c32(abi.Decided))
}

// What the operator's module has made of the key's limits is not taken for what is configured: its factors count once, and a
// limit is cut off at the envelope around the tier that the key is put in.
func TestAbsoluteLimitsOfTheKey(t *testing.T) {
	limits := func(tier int) (qps, tpm int64) { return []int64{10, 40}[tier], 1000 }
	for _, c := range []struct {
		name      string
		operators *asm
		orgs      *asm // nil: it changes nothing
		want      []int64
		clamped   bool
	}{
		{"a limit and a factor", keyed(6, 500, 0), nil, []int64{6}, false},
		{"the org's own, as it was told", keyed(8, 500, 0), keyed(4, 1000, 0), []int64{8, 8}, false},
		{"the org's own, beyond", keyed(8, 500, 0), keyed(90, 1000, 0), []int64{8, 10}, true},
		{"in another tier", keyed(30, 1000, 2), nil, []int64{30}, false},
		{"in another tier, the org's own", keyed(30, 1000, 2), keyed(25, 1000, 0), []int64{30, 25}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := openly(t, Options{Tiers: []string{"free", "gold"}, TierLimits: limits}, 1000)
			mustAdd(t, h, "op", c.operators.bytes())
			org := "m1000"
			if c.orgs != nil {
				org = "org"
				mustAdd(t, h, org, c.orgs.bytes())
			}
			if err := h.SetEnvelopes(Envelopes{}); err != nil {
				t.Fatal(err)
			}
			mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "op"}})
			mustPlan(t, h, 3, Plan{Active: &Binding{Module: org}})
			decide(h, 1, 3) // the org's instances are there
			f, d := sampleFacts(), new(Decision)
			f.Tier, f.QPSLimit = 0, 10
			h.Decide(f, d)
			var got []int64
			for _, x := range d.Dims[:d.N] {
				got = append(got, x.QPS)
			}
			if !slices.Equal(got, c.want) || d.Clamped != c.clamped || d.Tenant.Clamped != c.clamped {
				t.Errorf("limits %v, clamped %v and %v; want %v, %v", got, d.Clamped, d.Tenant.Clamped, c.want, c.clamped)
			}
		})
	}
}

func TestOrgsOnError(t *testing.T) {
	h := openly(t, Options{}, 800)
	mustAdd(t, h, "bad", guest([]byte{opUnreachable}).bytes())
	many := cat(st16(respAt, abi.Major), st16(respAt+abi.RespNDims, 9))
	for i := range uint32(9) {
		many = cat(many, st8(respAt+abi.RespDims+abi.DimSize*i, abi.KindOrg), st32(respAt+abi.RespDims+abi.DimSize*i+abi.DimQPSLimit, i+1))
	}
	mustAdd(t, h, "many", guest(many, c32(0)).bytes())
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "m800"}})
	for _, c := range []struct{ module, fault string }{{"bad", "trap"}, {"many", "too_many_dimensions"}} {
		mustPlan(t, h, 3, Plan{Active: &Binding{Module: c.module}})
		if d := decide(h, 1, 3); d.QPS != 800 || d.Verdict != Allow || d.Tenant.Fault != c.fault || d.Fault != "" || d.N != 0 {
			t.Errorf("%s: decision %+v", c.module, d)
		}
		mustPlan(t, h, 3, Plan{Active: &Binding{Module: c.module, OnError: OnErrorDeny}})
		if d := decide(h, 1, 3); d.Verdict != Deny || d.Module != c.module || d.Tenant.Fault != c.fault || d.Status != 403 {
			t.Errorf("%s, deny: decision %+v", c.module, d)
		}
	}
}

// An org may refuse its own requests whatever modules may do else, and what it adds beside defaults is all it adds.
func TestOrgsInsideAStrictEnvelope(t *testing.T) {
	h := openly(t, Options{}, 800)
	if err := h.SetEnvelopes(Envelopes{}); err != nil {
		t.Fatal(err)
	}
	mustAdd(t, h, "denies", guest(st16(respAt, abi.Major), st8(respAt+abi.RespVerdict, abi.VerdictDeny), c32(0)).bytes())
	one := guest(st16(respAt, abi.Major), st16(respAt+abi.RespNDims, 1), st8(respAt+abi.RespDims, abi.KindOrg), st32(respAt+abi.RespDims+abi.DimQPSLimit, 5), c32(0))
	mustAdd(t, h, "one", one.bytes())
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "m800"}})
	mustPlan(t, h, 3, Plan{Active: &Binding{Module: "denies"}})
	if d := decide(h, 1, 3); d.Verdict != Deny || d.Module != "denies" || d.Tenant.Clamped || string(d.AppendPolicy(nil)) != "denies@"+d.Version {
		t.Errorf("decision %+v", d)
	}
	mustPlan(t, h, 3, Plan{Active: &Binding{Module: "one"}})
	if d := decide(h, 1, 3); d.N != 2 || !d.Defaults || d.Clamped || d.Tenant.Clamped || d.Dims[0] != asConfigured(abi.KindOrg) || d.Dims[1].Kind != abi.KindOrg || d.Dims[1].QPS != 5 {
		t.Errorf("decision %+v", d)
	}
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "denies"}})
	if d := decide(h, 1, 3); d.Verdict != ShadowDeny || d.Module != "denies" || d.N != 2 {
		t.Errorf("the operator's own denial is not its to make: %+v", d)
	}
}

// One org whose params kill the child that tries them takes no other down.
func TestPlanAllSurvivesAChildThatDies(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := `f=$(mktemp) && cat >$f && if grep -qa BOOM $f; then rm $f; exit 3; fi; ` + self + ` ` + ChildArg + ` <$f; rm $f`
	h := newHost(t, Options{Child: []string{"sh", "-c", script}})
	mustAdd(t, h, "fixed", fixed().bytes())
	plan := func(o Owner, params string) OwnerPlan {
		return OwnerPlan{o, Plan{Active: &Binding{Module: "fixed", Params: []byte(params)}}}
	}
	errs := h.PlanAll(context.Background(), []OwnerPlan{plan(1, `{"n":1}`), plan(2, `{"n":2,"x":"BOOM"}`), plan(3, `{"n":3}`), plan(4, `[]`),
		{5, Plan{Active: &Binding{Module: "nope"}}}})
	for i, want := range []string{"", "the compile child died: exit status 3", "", "want a JSON object", "has not been added"} {
		if err := errs[i]; want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("org %d: error %v, want %q", i+1, err, want)
		}
	}
	if got := fmt.Sprint(h.Owners()); got != "[org:1 org:3]" {
		t.Errorf("owners %s", got)
	}
}

func TestOrgsRollback(t *testing.T) {
	h := openly(t, Options{Clock: llm.NewSystemClock()}, 800)
	faulty(t, h, "bad", 900)
	mustPlan(t, h, 3, Plan{Active: &Binding{Module: "m800"}})
	mustPlan(t, h, 3, Plan{Active: &Binding{Module: "bad"}})
	if e := fail(t, h, 3); e.Owner != 3 || e.To == nil || e.To.Module != "m800" {
		t.Fatalf("event %+v", e)
	}
	if d := decide(h, 1, 3); d.QPS != 800 || d.Tenant.Module != "m800" {
		t.Errorf("decision %+v", d)
	}
}

// A thousand orgs are bound at once, each with its own params of one module, and all of them call.
func TestThousandOrgs(t *testing.T) {
	const orgs = 1000
	h := openly(t, Options{Clock: llm.NewSystemClock()})
	mustAdd(t, h, "fixed", fixed().bytes())
	var plans []OwnerPlan
	for i := 1; i <= orgs; i++ {
		plans = append(plans, OwnerPlan{Owner(i), Plan{Active: &Binding{Module: "fixed", Params: number(i % 1000)}}})
	}
	began := time.Now()
	for i, err := range h.PlanAll(context.Background(), plans) {
		if err != nil {
			t.Fatalf("org %d: %v", i+1, err)
		}
	}
	bound := time.Since(began)
	if s := h.Stats(); s.Tenants != orgs || s.TenantsLive != 0 || s.TenantBytes != 0 {
		t.Errorf("stats %+v", s)
	}
	before := memoryKB(t)
	began = time.Now()
	all := func() {
		for i := 1; i <= orgs; i++ {
			want := uint32(i % 1000)
			if want == 0 {
				want = unit // a multiplier of 0 stands for 1000
			}
			if d := decide(h, 1, uint64(i)); d.QPS != want || d.Tenant.Fault != "" {
				t.Fatalf("org %d: decision %+v", i, d)
			}
		}
	}
	all()
	first := time.Since(began)
	began = time.Now()
	all()
	again, s, after := time.Since(began), h.Stats(), memoryKB(t)
	if s.TenantsLive != orgs || s.TenantBytes > 256<<20 || s.TenantEvictions != 0 || len(h.code) != 1 {
		t.Errorf("stats %+v, %d codes", s, len(h.code))
	}
	if grown := after["VmRSS"] - before["VmRSS"]; patience == 1 && (grown > 256<<10 || int64(grown)<<10 > s.TenantBytes*3/2) {
		t.Errorf("%d KiB of memory, %d are booked", grown, s.TenantBytes>>10)
	}
	t.Logf("bound in %v, first calls %v, second calls %v; booked %d KiB, RSS +%d KiB", bound, first, again, s.TenantBytes>>10, after["VmRSS"]-before["VmRSS"])
}

// The orgs' instances stay within their bound: the one that has not called for longest goes, and comes back when it
// calls, deciding as before.
func TestOrgsAreEvictedLeastRecentlyUsedFirst(t *testing.T) {
	h := openly(t, Options{Clock: llm.NewSystemClock(), TenantBytes: 5 * (64<<10 + instanceBytes)})
	mustAdd(t, h, "fixed", fixed().bytes())
	for i := 1; i <= 8; i++ {
		mustPlan(t, h, Owner(i), Plan{Active: &Binding{Module: "fixed", Params: number(100 + i)}})
	}
	call := func(i int) {
		t.Helper()
		if d := decide(h, 1, uint64(i)); d.QPS != uint32(100+i) || d.Tenant.Fault != "" {
			t.Fatalf("org %d: decision %+v", i, d)
		}
	}
	live := func() (out string) {
		h.turn <- struct{}{} // the keeper has put the new one in force and frees an old one
		defer func() { <-h.turn }()
		for i := 1; i <= 8; i++ {
			if u, _ := h.Usage(Owner(i)); u.Live {
				out += fmt.Sprint(i)
			}
		}
		return out
	}
	for i := 1; i <= 5; i++ {
		call(i)
	}
	call(1)
	call(6)
	if got := live(); got != "13456" {
		t.Errorf("live %s, want 13456: 2 has not called for longest", got)
	}
	call(2)
	if got := live(); got != "12456" && got != "12356" {
		t.Errorf("live %s", got)
	}
	for range 3 {
		for i := 1; i <= 8; i++ {
			call(i)
		}
	}
	live()
	s := h.Stats()
	if s.TenantBytes > h.o.TenantBytes || s.TenantEvictions == 0 || s.TenantsLive > 5 {
		t.Errorf("stats %+v", s)
	}
	if u, _ := h.Usage(1); u.Calls != 5 {
		t.Errorf("the calls before an eviction are forgotten: %+v", u)
	}
}

// What instances grow is booked, and given back.
func TestOrgsMemoryIsBooked(t *testing.T) {
	h := openly(t, Options{Clock: llm.NewSystemClock(), TenantBytes: 600 << 10})
	mustAdd(t, h, "grows", guest(st16(respAt, 1), c32(1), []byte{opMemoryGrow, 0, 0x1a}, c32(0)).bytes())
	mustPlan(t, h, 3, Plan{Active: &Binding{Module: "grows"}})
	decide(h, 1, 3)
	if s := h.Stats(); s.TenantBytes != 128<<10+instanceBytes {
		t.Errorf("booked %d", s.TenantBytes)
	}
	for range 20 {
		decide(h, 1, 3)
	}
	for deadline := time.Now().Add(5 * time.Second); h.Stats().TenantBytes > h.o.TenantBytes; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("booked %d of %d", h.Stats().TenantBytes, h.o.TenantBytes)
		}
	}
	mustPlan(t, h, 3, Plan{})
	if n := h.orgBytes.Load(); n != 0 {
		t.Errorf("%d bytes are booked for nothing", n)
	}
}

// The stack that a deep call leaves behind counts, too.
func TestOrgsStacksAreBooked(t *testing.T) {
	const depth = 5000
	a := guest(c32(depth), []byte{opCall, 4}, allow(5))
	a.with(asmFunc{typ: funcType{i32, ""}, locals: cat([]byte{1}, uleb(20), []byte{typeI64}),
		body: cat([]byte{opLocalGet, 0, opIf, blockEmpty, opLocalGet, 0}, c32(1), []byte{0x6b, opCall, 4, opEnd})})
	h := openly(t, Options{Clock: llm.NewSystemClock()})
	mustAdd(t, h, "deep", a.bytes())
	mustPlan(t, h, 3, Plan{Active: &Binding{Module: "deep"}})
	if d := decide(h, 1, 3); d.Tenant.Fault != "" {
		t.Fatalf("decision %+v", d)
	}
	if n := h.Stats().TenantBytes; n < 1<<20 || n > 4<<20 {
		t.Errorf("booked %d", n)
	}
	mustPlan(t, h, 3, Plan{})
	if n := h.orgBytes.Load(); n != 0 {
		t.Errorf("%d bytes are booked for nothing", n)
	}
}

// So do the texts of its answers, which the host keeps so that a repeated one is no allocation.
func TestOrgsTextsAreBooked(t *testing.T) {
	a := guest(c32(respAt+abi.RespArena), c32('x'), c32(abi.MessageMax), []byte{opPrefix, 11, 0}, st16(respAt, abi.Major),
		c32(respAt+abi.RespArena), ld32(reqAt+abi.ReqEntropy), []byte{0x36, 0, 0}, st32(respAt+abi.RespMessageOff, abi.RespArena),
		st32(respAt+abi.RespMessageLen, abi.MessageMax), c32(abi.Decided))
	h := openly(t, Options{Clock: llm.NewSystemClock()})
	mustAdd(t, h, "talks", a.bytes())
	mustPlan(t, h, 3, Plan{Active: &Binding{Module: "talks"}})
	decide(h, 1, 3)
	f, d := sampleFacts(), new(Decision)
	for i := range uint64(maxWords) {
		f.Entropy = i&0x7f | i>>7<<8 // four letters of ASCII
		if h.Decide(f, d); d.Tenant.Fault != "" || len(d.Tenant.Message) != abi.MessageMax {
			t.Fatalf("decision %+v", d.Tenant)
		}
	}
	if n := h.Stats().TenantBytes; n < instanceBytes+64<<10+(maxWords-1)*abi.MessageMax || n > 1<<20 {
		t.Errorf("booked %d", n)
	}
	mustPlan(t, h, 3, Plan{})
	if n := h.orgBytes.Load(); n != 0 {
		t.Errorf("%d bytes are booked for nothing", n)
	}
}

// While an org's instances cannot be made its on_error decides, at once after the first wait.
func TestOrgsNotReady(t *testing.T) {
	clock := llm.NewFakeClock(time.Unix(1_700_000_000, 0))
	h := openly(t, Options{Clock: clock}, 800)
	mustPlan(t, h, 3, Plan{Active: &Binding{Module: "m800", OnError: OnErrorDeny}})
	h.turn <- struct{}{} // nobody makes instances
	began := time.Now()
	d := decideOnce(h, 1, 3)
	if took := time.Since(began); d.Verdict != Deny || d.Tenant.Fault != "not_ready" || took < coldWait || took > patience*50*coldWait {
		t.Errorf("after %v: decision %+v", took, d)
	}
	<-h.turn
	if d := decide(h, 1, 3); d.Verdict != Allow || d.QPS != 800 {
		t.Errorf("decision %+v", d)
	}
	if s := h.Stats(); s.TenantCold < 1 || s.TenantBuilds != 1 {
		t.Errorf("stats %+v", s)
	}
}

// Calls that meet on one instance are served, and get the org more of them.
func TestOrgsGetMoreInstances(t *testing.T) {
	h := openly(t, Options{Clock: llm.NewSystemClock()}, 800)
	mustPlan(t, h, 3, Plan{Active: &Binding{Module: "m800"}})
	decide(h, 1, 3)
	g := h.orgs.get(3).cur.Load().active
	g.slots[0].state.Store(slotBusy)
	served := make(chan Decision)
	go func() {
		for {
			if d := decideOnce(h, 1, 3); d.Tenant.Fault == "" {
				served <- d
				return
			}
		}
	}()
	if d := <-served; d.QPS != 800 {
		t.Errorf("decision %+v", d)
	}
	g.slots[0].state.Store(slotFree)
}

// The canary of state: two orgs on one module call in turn, 100,000 times, from two goroutines. Each request carries
// a secret that the module keeps in its memory; no answer shows what another org's request left there.
func TestOrgsSeeNothingOfEachOther(t *testing.T) {
	// Answers with what is remembered, as a custom dimension, and remembers the key's name of this request.
	const kept = 0x9000
	value := respAt + uint32(abi.RespArena)
	dim := respAt + uint32(abi.RespDims)
	name := cat(c32(reqAt), ld32(reqAt+abi.ReqAttrs+abi.AttrSize*AttrKeyName), []byte{0x6a}) // its address
	keep := guest(
		st16(respAt, abi.Major), st16(respAt+abi.RespNDims, 1), st8(dim, abi.KindCustom), st32(dim+abi.DimValueOff, abi.RespArena),
		st32(dim+abi.DimValueLen, 8), c32(value), cat(c32(kept), []byte{0x29, 0, 0}), []byte{0x37, 0, 0},
		c32(kept), name, []byte{0x29, 0, 0}, []byte{0x37, 0, 0}, st32(respAt+abi.RespArenaUsed, 8), c32(0))
	h := openly(t, Options{Clock: llm.NewSystemClock()})
	if err := h.SetEnvelopes(Envelopes{Operator: wide(), Tenant: Envelope{MaxCustomDims: 1}}); err != nil {
		t.Fatal(err)
	}
	mustAdd(t, h, "keeps", keep.bytes())
	mustPlan(t, h, 1, Plan{Active: &Binding{Module: "keeps"}})
	mustPlan(t, h, 2, Plan{Active: &Binding{Module: "keeps"}})
	secrets := [...]string{1: "secret-A", 2: "secret-B"}
	calls := 100_000
	if testing.Short() {
		calls = 10_000
	}
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			f, d := sampleFacts(), new(Decision)
			for i := range calls / 2 {
				f.Org = uint64((i+w)%2 + 1)
				f.Attr[AttrKeyName] = secrets[f.Org]
				h.Decide(f, d)
				if d.N == 0 && (d.Tenant.Fault == "exhausted" || d.Tenant.Fault == "not_ready") {
					continue
				}
				if got := d.Dims[0].Value; d.N != 1 || got != secrets[f.Org] && !bytes.Equal([]byte(got), make([]byte, 8)) {
					t.Errorf("call %d: org %d sees %q; %+v", i, f.Org, got, d.Tenant)
					return
				}
			}
		})
	}
	wg.Wait()
	s := h.Stats()
	if s.Calls < uint64(calls)*99/100 || s.Traps+s.BadResponse != 0 || s.TenantBuilds != 2 {
		t.Errorf("stats %+v", s)
	}
}

func TestChainAllocatesNothing(t *testing.T) {
	h := openly(t, Options{Clock: llm.NewSystemClock()})
	mustAdd(t, h, "m", guest(sixDims()).bytes())
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "m"}})
	mustPlan(t, h, 3, Plan{Active: &Binding{Module: "m"}})
	decide(h, 1, 3) // the org's instances are there
	f, d := sampleFacts(), new(Decision)
	h.Decide(f, d)
	if d.N != 11 || d.Tenant.Module != "m" || d.Tenant.Fault != "" {
		t.Fatalf("decision %+v", d)
	}
	if n := testing.AllocsPerRun(1000, func() { h.Decide(f, d) }); n != 0 {
		t.Errorf("%v allocations per call", n)
	}
}

func BenchmarkDecideChain(b *testing.B) {
	h := openly(b, Options{Clock: llm.NewSystemClock()})
	mustAdd(b, h, "m", guest(sixDims()).bytes())
	mustPlan(b, h, Operator, Plan{Active: &Binding{Module: "m"}})
	mustPlan(b, h, 3, Plan{Active: &Binding{Module: "m"}})
	decide(h, 1, 3) // the org's instances are there
	f, d := sampleFacts(), new(Decision)
	h.Decide(f, d)
	b.ReportAllocs()
	for b.Loop() {
		h.Decide(f, d)
	}
	if d.Tenant.Fault != "" {
		b.Fatalf("decision %+v", d)
	}
}
