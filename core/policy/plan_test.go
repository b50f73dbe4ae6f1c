package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/sdk/abi"
)

func mustPlan(t testing.TB, h *Host, owner Owner, p Plan) {
	t.Helper()
	if err := h.Plan(context.Background(), owner, p); err != nil {
		t.Fatal(err)
	}
}

// openly makes a host that clamps nothing, with modules whose QPS multiplier tells them apart.
func openly(t testing.TB, o Options, qps ...uint32) *Host {
	t.Helper()
	h := newHost(t, o)
	for _, v := range qps {
		mustAdd(t, h, fmt.Sprint("m", v), guest(allow(v)).bytes())
	}
	if err := h.SetEnvelopes(Envelopes{Operator: wide()}); err != nil {
		t.Fatal(err)
	}
	return h
}

// decide asks again while an org's instances are being made: on a busy machine that takes longer than a call waits.
func decide(h *Host, key, org uint64) (d Decision) {
	for end := time.Now().Add(20 * time.Second); ; {
		if d = decideOnce(h, key, org); d.Tenant.Fault != "not_ready" || time.Now().After(end) {
			return d
		}
	}
}

func decideOnce(h *Host, key, org uint64) Decision {
	var d Decision
	f := sampleFacts()
	f.Key, f.Org = key, org
	h.Decide(f, &d)
	return d
}

func TestPlanShadowEnforcesNothing(t *testing.T) {
	h := openly(t, Options{}, 700, 800)
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "m700"}, Candidate: &Binding{Module: "m800"}, Stage: StageShadow})
	for key := range uint64(50) {
		if d := decide(h, key, 0); d.QPS != 700 || d.Module != "m700" || d.Canary {
			t.Fatalf("key %d: decision %+v", key, d)
		}
	}
	r, ok := h.Report(Operator)
	if !ok || r.Compared != 50 || r.Changed != 50 || r.Fields["qps_permille"] != 50 || len(r.Fields) != 1 || len(r.Examples) != 10 ||
		r.Owner != "operator" || r.Stage != StageShadow {
		t.Fatalf("report %+v", r)
	}
	if !strings.HasPrefix(r.Active, "m700@") || !strings.HasPrefix(r.Candidate, "m800@") {
		t.Errorf("report of %s and %s", r.Active, r.Candidate)
	}
	e := r.Examples[0]
	if f, err := ParseFacts(e.Facts, nil, nil); err != nil || f.Attr[AttrModel] != "gpt-4o-mini" || f.QPSLimit != 10 {
		t.Errorf("example of %s: %v", e.Facts, err)
	}
	a, err1 := ParseDecision(e.Active, nil)
	c, err2 := ParseDecision(e.Candidate, nil)
	if err1 != nil || err2 != nil || a.QPS != 700 || c.QPS != 800 || e.Fields[0] != "qps_permille" {
		t.Errorf("example %+v: %v %v", e, err1, err2)
	}
	if s := h.Stats(); s.Compared != 50 || s.Changed != 50 {
		t.Errorf("stats %+v", s)
	}
}

func TestPlanShadowCountsByKindOfDimension(t *testing.T) {
	h := openly(t, Options{})
	one := func(kind, qps uint32) []byte {
		at := uint32(respAt + abi.RespDims)
		return cat(st16(respAt, abi.Major), st16(respAt+abi.RespNDims, 2), st8(at, abi.KindKey), st8(at+abi.DimSize, kind),
			st32(at+abi.DimSize+abi.DimQPSLimit, qps), c32(abi.Decided))
	}
	mustAdd(t, h, "a", guest(one(abi.KindModel, 5)).bytes())
	mustAdd(t, h, "b", guest(one(abi.KindOrg, 5)).bytes())
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "a"}, Candidate: &Binding{Module: "b"}, Stage: StageShadow})
	decide(h, 1, 0)
	r, _ := h.Report(Operator)
	if r.Changed != 1 || r.Fields["dims"] != 1 || r.Kinds["model"] != 1 || r.Kinds["org"] != 1 || len(r.Kinds) != 2 {
		t.Errorf("report %+v", r)
	}
}

// A message alone changes nothing that a request feels, but the report says which rule fired.
func TestReportNamesTheRulesThatFired(t *testing.T) {
	h := openly(t, Options{}, 700)
	text := "rule 4: nights"
	body := cat(st16(respAt, abi.Major), st32(respAt+abi.RespQPSMultiplier, 700), st16(respAt+abi.RespReason, 4),
		st32(respAt+abi.RespMessageOff, abi.RespArena), st32(respAt+abi.RespMessageLen, uint32(len(text))))
	for i := range text {
		body = cat(body, st8(uint32(respAt+abi.RespArena+i), uint32(text[i])))
	}
	mustAdd(t, h, "rules", guest(body, c32(0)).bytes())
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "m700"}, Candidate: &Binding{Module: "rules"}, Stage: StageShadow})
	decide(h, 1, 0)
	r, _ := h.Report(Operator)
	if r.Compared != 1 || r.Changed != 0 || r.Fields["reason"] != 1 || r.Fields["message"] != 1 || len(r.Reasons) != 1 || r.Reasons[0] != (ReasonCount{4, text, 1}) {
		t.Errorf("report %+v", r)
	}
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "rules"}})
	if d := decide(h, 1, 0); d.Verdict != Allow || d.Reason != 4 || d.Message != text {
		t.Errorf("an allowance gives no reason: %+v", d)
	}
}

// The same key is always on the same side, and a larger share only adds keys.
func TestPlanCanaryIsStable(t *testing.T) {
	h := openly(t, Options{}, 700, 800)
	const keys = 2000
	var chosen [keys]bool
	for _, percent := range []int{1, 10, 25, 60, 100} {
		mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "m700"}, Candidate: &Binding{Module: "m800"}, Stage: StageCanary, Percent: percent})
		n := 0
		for key := range chosen {
			d := decide(h, uint64(key), 0)
			if again := decide(h, uint64(key), 0); again.QPS != d.QPS {
				t.Fatalf("key %d changes sides", key)
			}
			canary := d.QPS == 800
			if canary != d.Canary || chosen[key] && !canary {
				t.Fatalf("%d %%: key %d: canary %v, decision %+v", percent, key, chosen[key], d)
			}
			if chosen[key] = canary; canary {
				n++
			}
		}
		if share := 100 * n / keys; share < percent-3 || share > percent+3 {
			t.Errorf("%d %% became %d %%", percent, share)
		}
		if r, _ := h.Report(Operator); r.Percent != percent || r.Compared != r.Changed || r.Compared == 0 {
			t.Errorf("report %+v", r)
		}
	}
}

// What decides as before keeps its instances: neither a candidate nor its promotion loads anything.
func TestPlanKeepsInstances(t *testing.T) {
	h := openly(t, Options{}, 700, 800)
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "m700"}})
	active := h.operator.cur.Load().active
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "m700"}, Candidate: &Binding{Module: "m800"}, Stage: StageShadow})
	k := h.operator.cur.Load()
	if k.active != active {
		t.Error("a candidate made the active one anew")
	}
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "m800"}})
	if now := h.operator.cur.Load(); now.active != k.candidate || len(h.mu.live) != 1 {
		t.Error("the candidate was made anew")
	}
	if r, ok := h.Report(Operator); !ok || r.Stage != StageShadow {
		t.Errorf("the last report is gone: %+v", r)
	}
	if p, ok := h.PlanOf(Operator); !ok || p.Active.Module != "m800" || p.Previous == nil || p.Previous.Module != "m700" || p.Candidate != nil {
		t.Errorf("plan %+v", p)
	}
	mustPlan(t, h, Operator, Plan{})
	if _, ok := h.PlanOf(Operator); ok || len(h.Owners()) != 0 || len(h.code) != 0 {
		t.Errorf("something is left: %v, %d codes", h.Owners(), len(h.code))
	}
}

// What can be gone back to is the binding before, through every change of the candidate; and never one that failed.
func TestPlanRemembersWhatWasGood(t *testing.T) {
	h := openly(t, Options{}, 700, 800, 900)
	faulty(t, h, "bad", 600)
	a, b, c := &Binding{Module: "m700"}, &Binding{Module: "m800"}, &Binding{Module: "m900"}
	previous := func(want string) {
		t.Helper()
		got := ""
		if p, _ := h.PlanOf(Operator); p.Previous != nil {
			got = p.Previous.Module
		}
		if got != want {
			t.Errorf("previous %q, want %q", got, want)
		}
	}
	mustPlan(t, h, Operator, Plan{Active: a})
	previous("")
	mustPlan(t, h, Operator, Plan{Active: b})
	previous("m700")
	mustPlan(t, h, Operator, Plan{Active: b, Candidate: c, Stage: StageShadow})
	mustPlan(t, h, Operator, Plan{Active: b, Candidate: c, Stage: StageCanary, Percent: 5})
	previous("m700")
	mustPlan(t, h, Operator, Plan{Active: c})
	previous("m800")
	mustPlan(t, h, Operator, Plan{})
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "bad"}, Previous: &Binding{Module: "gone"}})
	previous("m900")
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "bad"}, Previous: &Binding{Module: "bad"}})
	previous("")
	if e := fail(t, h, 0); e.To != nil {
		t.Fatalf("event %+v", e)
	}
	mustPlan(t, h, Operator, Plan{Active: a})
	previous("")
}

// A report goes on while the same two are compared at the same stage, and begins anew else.
func TestReportBegins(t *testing.T) {
	h := openly(t, Options{}, 700, 800, 900)
	a, b, c := &Binding{Module: "m700"}, &Binding{Module: "m800"}, &Binding{Module: "m900"}
	for _, x := range []struct {
		p    Plan
		want uint64
	}{
		{Plan{Active: a, Candidate: b, Stage: StageShadow}, 1},
		{Plan{Active: a, Candidate: b, Stage: StageShadow}, 2},
		{Plan{Active: a, Candidate: b, Stage: StageCanary, Percent: 99}, 1},
		{Plan{Active: a, Candidate: b, Stage: StageCanary, Percent: 100}, 2},
		{Plan{Active: c, Candidate: b, Stage: StageCanary, Percent: 100}, 1},
		{Plan{Active: c, Candidate: a, Stage: StageCanary, Percent: 100}, 1},
		{Plan{Active: c}, 1},
		{Plan{Active: c, Candidate: a, Stage: StageCanary, Percent: 100}, 1},
	} {
		mustPlan(t, h, Operator, x.p)
		decide(h, 1, 0)
		if r, _ := h.Report(Operator); r.Compared != x.want {
			t.Errorf("%+v: %d compared, want %d", x.p, r.Compared, x.want)
		}
	}
}

// A comparison does not wait for an instance.
func TestShadowSkipsWhenBusy(t *testing.T) {
	h := openly(t, Options{}, 700, 800)
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "m700"}, Candidate: &Binding{Module: "m800"}, Stage: StageShadow})
	slots := h.operator.cur.Load().candidate.slots
	for i := range slots {
		slots[i].state.Store(slotBusy)
	}
	if d := decide(h, 1, 0); d.QPS != 700 {
		t.Errorf("decision %+v", d)
	}
	if r, _ := h.Report(Operator); r.Compared != 0 || r.Skipped != 1 || len(r.Faults) != 0 {
		t.Errorf("report %+v", r)
	}
	for i := range slots {
		slots[i].state.Store(slotFree)
	}
}

func TestPlanRefusals(t *testing.T) {
	h := openly(t, Options{}, 700)
	ok, large := &Binding{Module: "m700"}, &Binding{Module: "big"}
	if _, err := h.Add(context.Background(), "big", guest(allow(1)).bytes(), ProfileLarge); err != nil {
		t.Fatal(err)
	}
	mustPlan(t, h, Operator, Plan{Active: ok})
	for _, c := range []struct {
		owner Owner
		p     Plan
		want  string
	}{
		{0, Plan{Active: &Binding{Module: "nope"}}, "has not been added"},
		{0, Plan{Active: ok, Stage: StageShadow}, "belong to a candidate"},
		{0, Plan{Active: ok, Candidate: ok}, `unknown stage ""`},
		{0, Plan{Active: ok, Candidate: ok, Stage: StageShadow, Percent: 5}, `a percentage belongs to stage "canary"`},
		{0, Plan{Active: ok, Candidate: ok, Stage: StageCanary}, "0 % of the keys, want 1 to 100"},
		{0, Plan{Active: ok, Candidate: ok, Stage: StageCanary, Percent: 101}, "101 % of the keys"},
		{0, Plan{Active: ok, Candidate: &Binding{Module: "m700", Params: []byte(`{"a":1}`)}, Stage: StageShadow}, "takes no params"},
		{7, Plan{Active: large}, "an org's module must be of profile small"},
	} {
		if err := h.Plan(context.Background(), c.owner, c.p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want %q", c.p, err, c.want)
		}
	}
	if p, _ := h.PlanOf(Operator); p.Active.Module != "m700" || p.Candidate != nil || decide(h, 1, 0).QPS != 700 {
		t.Errorf("the old plan does not serve: %+v", p)
	}
	if err := h.SetEnvelopes(Envelopes{Tiers: map[string]Envelope{"gold": {}}}); err == nil || !strings.Contains(err.Error(), `unknown tier "gold"`) {
		t.Errorf("error %v", err)
	}
}

func TestBindingVersion(t *testing.T) {
	hash := strings.Repeat("ab", 32)
	plain := Binding{Module: "m", Hash: hash}
	versions := map[string]string{}
	for _, c := range []struct {
		name string
		b    Binding
		same bool
	}{
		{"plain", plain, true},
		{"default on_error", Binding{Hash: hash, OnError: OnErrorDefault}, true},
		{"empty params", Binding{Hash: hash, Params: []byte(" {} ")}, true},
		{"params", Binding{Hash: hash, Params: []byte(`{"a":1}`)}, false},
		{"other params", Binding{Hash: hash, Params: []byte(`{"a":2}`)}, false},
		{"on_error", Binding{Hash: hash, OnError: OnErrorDeny}, false},
		{"both", Binding{Hash: hash, OnError: OnErrorDeny, Params: []byte(`{"a":1}`)}, false},
	} {
		v := c.b.Version()
		if c.same != (v == "abababababab") || !strings.HasPrefix(v, "abababababab") || versions[v] != "" && !c.same {
			t.Errorf("%s: version %q, as of %q", c.name, v, versions[v])
		}
		versions[v] = c.name
	}
	a, b := Binding{Hash: hash, Params: []byte(`{"a":1}`)}, Binding{Hash: hash, Params: []byte("{ \"a\" : 1 }\n")}
	if a.Version() != b.Version() {
		t.Error("blanks make a version")
	}
	if v := (&Binding{}).Version(); v != "" {
		t.Errorf("a binding without a hash is version %q", v)
	}
}

func TestOwners(t *testing.T) {
	for _, s := range []string{"operator", "org:7"} {
		if o, err := ParseOwner(s); err != nil || o.String() != s {
			t.Errorf("%q becomes %v, %v", s, o, err)
		}
	}
	for _, s := range []string{"", "org:", "org:0", "org:x", "user:1"} {
		if _, err := ParseOwner(s); err == nil {
			t.Errorf("%q is an owner", s)
		}
	}
}

// faulty makes h's module of that name trap on entropy 0 and else answer with qps.
func faulty(t testing.TB, h *Host, name string, qps uint32) {
	t.Helper()
	mustAdd(t, h, name, guest(trapWhenEntropyIs(0), allow(qps)).bytes())
}

// fail has a key's requests trap until the host reacts, and gives what it told.
func fail(t *testing.T, h *Host, org uint64) Event {
	t.Helper()
	f, d := sampleFacts(), new(Decision)
	f.Entropy, f.Org = 0, org
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		h.Decide(f, d)
		select {
		case e := <-h.Events():
			return e
		default:
		}
	}
	t.Fatalf("nothing happened; stats %+v", h.Stats())
	return Event{}
}

func TestRollbackOfTheActiveBinding(t *testing.T) {
	var out syncBuffer
	h := openly(t, Options{Log: out.logger()}, 700)
	faulty(t, h, "bad", 900)
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "m700"}})
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "bad"}})
	e := fail(t, h, 0)
	if e.Owner != Operator || e.Binding.Module != "bad" || e.To == nil || e.To.Module != "m700" || e.Faults != quarantineFaults || e.Calls < e.Faults ||
		!strings.Contains(e.Reason, "the last one trap") || e.Plan.Active.Module != "m700" || e.Plan.Previous != nil || e.AtMS == 0 {
		t.Fatalf("event %+v", e)
	}
	if d := decide(h, 1, 0); d.QPS != 700 || d.Fault != "" {
		t.Errorf("decision %+v", d)
	}
	if p, _ := h.PlanOf(Operator); p.Active.Module != "m700" {
		t.Errorf("plan %+v", p)
	}
	if s := h.Stats(); s.Rollbacks != 1 || s.Quarantined != 1 || len(h.mu.live) != 1 {
		t.Errorf("stats %+v, %d live", s, len(h.mu.live))
	}
	if out.count("policy quarantined") != 1 || out.count("decides_now=m700@") != 1 {
		t.Error("the log does not say so")
	}
}

// With last_good the one before is still there: it decides at once, and is what the rollback puts in force.
func TestRollbackToTheLastGood(t *testing.T) {
	h := openly(t, Options{})
	first := mustAdd(t, h, "m", guest(allow(700)).bytes())
	faulty(t, h, "m", 900)
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "m", Hash: first.Hash}})
	good := h.operator.cur.Load().active
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "m", OnError: OnErrorLastGood}})
	f, d := sampleFacts(), new(Decision)
	f.Entropy = 0
	if h.Decide(f, d); d.QPS != 700 || d.Fault != "trap" {
		t.Fatalf("decision %+v", d)
	}
	if e := fail(t, h, 0); e.To == nil || e.To.Hash != first.Hash {
		t.Fatalf("event %+v", e)
	}
	if d := decide(h, 1, 0); d.QPS != 700 || d.Fault != "" || h.operator.cur.Load().active != good || len(h.mu.live) != 1 {
		t.Errorf("decision %+v, %d live", d, len(h.mu.live))
	}
}

// The binding that a restart was told of is what it goes back to; and when that fails too, its on_error decides.
func TestRollbackToWhatARestartWasTold(t *testing.T) {
	h := openly(t, Options{})
	faulty(t, h, "bad", 900)
	faulty(t, h, "worse", 800)
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "bad"}, Previous: &Binding{Module: "worse"}})
	if e := fail(t, h, 0); e.To == nil || e.To.Module != "worse" {
		t.Fatalf("event %+v", e)
	}
	e := fail(t, h, 0)
	if e.Binding.Module != "worse" || e.To != nil || !strings.Contains(e.Reason, "nothing is there to go back to") {
		t.Fatalf("event %+v", e)
	}
	if d := decide(h, 1, 0); d.Fault != "quarantined" || !d.Abstained {
		t.Errorf("decision %+v", d)
	}
}

func TestRollbackDropsACandidate(t *testing.T) {
	for _, stage := range []Stage{StageShadow, StageCanary} {
		t.Run(string(stage), func(t *testing.T) {
			h := openly(t, Options{}, 700)
			faulty(t, h, "bad", 900)
			p := Plan{Active: &Binding{Module: "m700"}, Candidate: &Binding{Module: "bad"}, Stage: stage}
			if stage == StageCanary {
				p.Percent = 100
			}
			mustPlan(t, h, Operator, p)
			f, d := sampleFacts(), new(Decision)
			f.Entropy = 0
			if h.Decide(f, d); d.Fault != "" || d.QPS != 700 || d.Canary {
				t.Fatalf("a candidate's fault reached a request: %+v", d)
			}
			e := fail(t, h, 0)
			if e.Binding.Module != "bad" || e.To == nil || e.To.Module != "m700" || e.Plan.Candidate != nil || e.Plan.Stage != "" {
				t.Fatalf("event %+v", e)
			}
			if r, ok := h.Report(Operator); !ok || r.Faults["trap"] < quarantineFaults {
				t.Errorf("report %+v", r)
			}
			if s := h.Stats(); s.Dropped != 1 || s.Rollbacks != 0 || len(h.mu.live) != 1 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

// A candidate that is dropped where nothing is active leaves the native defaults, and the log says so.
func TestRollbackOfACandidateAlone(t *testing.T) {
	var out syncBuffer
	h := openly(t, Options{Log: out.logger()})
	faulty(t, h, "bad", 900)
	mustPlan(t, h, Operator, Plan{Candidate: &Binding{Module: "bad", OnError: OnErrorDeny}, Stage: StageShadow})
	if e := fail(t, h, 0); e.To != nil || e.Plan.Candidate != nil {
		t.Errorf("event %+v", e)
	}
	if d := decide(h, 1, 0); !d.Abstained || d.Fault != "" || out.count(`decides_now="native defaults"`) != 1 {
		t.Errorf("decision %+v, log %s", d, out.buf.String())
	}
}

func TestEventsNobodyReadsAreCounted(t *testing.T) {
	h := openly(t, Options{}, 700)
	for range queuedEvents {
		h.events <- Event{}
	}
	faulty(t, h, "bad", 900)
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "bad"}, Previous: &Binding{Module: "m700"}})
	f, d := sampleFacts(), new(Decision)
	f.Entropy = 0
	for deadline := time.Now().Add(10 * time.Second); h.Stats().EventsDropped == 0; time.Sleep(time.Millisecond) {
		if h.Decide(f, d); time.Now().After(deadline) {
			t.Fatalf("stats %+v", h.Stats())
		}
	}
	h.Close()
	n := 0
	for range h.Events() {
		n++
	}
	if n != queuedEvents {
		t.Errorf("%d events", n)
	}
}

func TestEnvelopesOfTiers(t *testing.T) {
	h := openly(t, Options{Tiers: []string{"free", "gold"}}, 5000)
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "m5000"}})
	if err := h.SetEnvelopes(Envelopes{Operator: Envelope{MaxMultiplier: 1100}, Tiers: map[string]Envelope{"gold": {MaxMultiplier: 3000}}}); err != nil {
		t.Fatal(err)
	}
	for tier, want := range map[uint32]uint32{0: 1100, 1: 3000, noTier: 1100} {
		f, d := sampleFacts(), new(Decision)
		f.Tier = tier
		if h.Decide(f, d); d.QPS != want || !d.Clamped || d.Envelope.MaxMultiplier != want {
			t.Errorf("tier %d: decision %+v", tier, d)
		}
	}
}

func TestShadowAllocatesNothing(t *testing.T) {
	h := openly(t, Options{})
	mustAdd(t, h, "m", guest(sixDims()).bytes())
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "m"}, Candidate: &Binding{Module: "m", OnError: OnErrorDeny}, Stage: StageShadow})
	f, d := sampleFacts(), new(Decision)
	h.Decide(f, d)
	if n := testing.AllocsPerRun(1000, func() { h.Decide(f, d) }); n != 0 {
		t.Errorf("%v allocations per call", n)
	}
	if r, _ := h.Report(Operator); r.Changed != 0 || r.Compared < 1000 {
		t.Errorf("report %+v", r)
	}
}

// Of ten examples, late ones that show something new take the place of those that show the same.
func TestReportExamplesAreVaried(t *testing.T) {
	x := &tally{names: [2]string{"a", "b"}}
	var a, b Decision
	a.reset()
	f := sampleFacts()
	for range 100 {
		b.reset()
		b.QPS = 1
		x.compare(f, &a, &b)
	}
	b.reset()
	b.Verdict = Deny
	x.compare(f, &a, &b)
	r := x.report()
	if len(r.Examples) != maxExamples || r.Changed != 101 {
		t.Fatalf("%d examples of %d", len(r.Examples), r.Changed)
	}
	found := false
	for _, e := range r.Examples {
		found = found || e.Fields[0] == "verdict"
	}
	if !found {
		t.Error("no example shows the verdict")
	}
	if raw, err := json.Marshal(r); err != nil || !bytes.Contains(raw, []byte(`"fields":{"qps_permille":100,"verdict":1}`)) {
		t.Errorf("%s %v", raw, err)
	}
}

// A swap of candidates and shares under load: no call is lost or decided by what was not in force.
func TestPlansUnderLoad(t *testing.T) {
	h := openly(t, Options{Clock: llm.NewSystemClock()}, 700, 800)
	a, b := &Binding{Module: "m700"}, &Binding{Module: "m800"}
	plans := []Plan{{Active: a}, {Active: a, Candidate: b, Stage: StageShadow}, {Active: a, Candidate: b, Stage: StageCanary, Percent: 50}, {Active: b},
		{Active: b, Candidate: a, Stage: StageCanary, Percent: 10}}
	mustPlan(t, h, Operator, plans[0])
	stop, done := make(chan struct{}), make(chan error, 2)
	for w := range 2 {
		go func() {
			f, d := sampleFacts(), new(Decision)
			for i := uint64(0); ; i++ {
				select {
				case <-stop:
					done <- nil
					return
				default:
				}
				f.Key = i + uint64(w)
				if h.Decide(f, d); d.Fault != "" && d.Fault != "exhausted" || d.Fault == "" && d.QPS != 700 && d.QPS != 800 {
					done <- fmt.Errorf("decision %+v", d)
					return
				}
			}
		}()
	}
	for i := range 100 {
		mustPlan(t, h, Operator, plans[i%len(plans)])
	}
	close(stop)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkDecideShadow(b *testing.B) {
	h := openly(b, Options{Clock: llm.NewSystemClock()})
	mustAdd(b, h, "m", guest(sixDims()).bytes())
	mustPlan(b, h, Operator, Plan{Active: &Binding{Module: "m"}, Candidate: &Binding{Module: "m", OnError: OnErrorDeny}, Stage: StageShadow})
	f, d := sampleFacts(), new(Decision)
	b.ReportAllocs()
	for b.Loop() {
		h.Decide(f, d)
	}
}

// What names exactly the configured default dimensions changes nothing; what tests another one, or one otherwise, does.
func TestReportKnowsTheDefaultDimensions(t *testing.T) {
	plain := func(kinds ...uint32) []byte {
		body := cat(st16(respAt, abi.Major), st16(respAt+abi.RespNDims, uint32(len(kinds))))
		for i, k := range kinds {
			body = cat(body, st8(uint32(respAt+abi.RespDims+abi.DimSize*i+abi.DimKind), k))
		}
		return cat(body, c32(abi.Decided))
	}
	abstain := c32(abi.Abstained)
	for _, c := range []struct {
		name              string
		defaults          []uint8
		active, candidate []byte
		kinds             []string
	}{
		{"the defaults, spelled out", nil, abstain, plain(abi.KindKey, abi.KindModel, abi.KindGlobal), nil},
		{"in another order", nil, plain(abi.KindGlobal, abi.KindKey, abi.KindModel), abstain, nil},
		{"as configured", []uint8{abi.KindKey, abi.KindUser}, abstain, plain(abi.KindUser, abi.KindKey), nil},
		{"not as configured", []uint8{abi.KindKey, abi.KindUser}, abstain, plain(abi.KindKey, abi.KindModel, abi.KindGlobal), []string{"global", "model", "user"}},
		{"a new one counts, alone", nil, abstain, plain(abi.KindKey, abi.KindModel, abi.KindGlobal, abi.KindOrg), []string{"org"}},
		{"a lost one counts, alone", nil, abstain, plain(abi.KindKey, abi.KindGlobal), []string{"model"}},
		{"one with a limit counts, alone", nil, abstain,
			cat(st32(respAt+abi.RespDims+abi.DimQPSLimit, 5), plain(abi.KindKey, abi.KindModel, abi.KindGlobal)), []string{"key"}},
		{"one that only counts, alone", nil, abstain,
			cat(st8(respAt+abi.RespDims+abi.DimFlags, abi.DimCountOnly), plain(abi.KindKey, abi.KindModel, abi.KindGlobal)), []string{"key"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := openly(t, Options{DefaultDims: c.defaults})
			mustAdd(t, h, "a", guest(c.active).bytes())
			mustAdd(t, h, "b", guest(c.candidate).bytes())
			mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "a"}, Candidate: &Binding{Module: "b"}, Stage: StageShadow})
			for key := range uint64(10) {
				decide(h, key, 0)
			}
			want := map[string]uint64{}
			for _, k := range c.kinds {
				want[k] = 10
			}
			changed := min(uint64(len(want)), 1) * 10
			if r, _ := h.Report(Operator); r.Compared != 10 || r.Changed != changed || !maps.Equal(r.Kinds, want) || r.Fields["dims"] != changed {
				t.Errorf("compared %d, changed %d, dims %d by kind %v, want %v", r.Compared, r.Changed, r.Fields["dims"], r.Kinds, want)
			}
		})
	}
}

// Beside the defaults, an org's entry is all that differs.
func TestDefaultsBesideAnEntry(t *testing.T) {
	var a, b Decision
	a.reset()
	b.reset()
	b.Dims[0], b.N, b.Defaults = asConfigured(abi.KindOrg), 1, true
	defaults := []uint8{abi.KindKey, abi.KindModel, abi.KindGlobal}
	if x := differ(&a, &b, defaults); x.fields != 1<<fieldDims || x.kinds != 1<<abi.KindOrg {
		t.Errorf("%+v", x)
	}
	if x := differ(&a, &b, append(defaults, abi.KindOrg)); x.fields != 0 || x.kinds != 0 {
		t.Errorf("%+v", x)
	}
}

// Where a rollback begins: at 8 faults, and at more than 5 % of the calls since the first of them.
func TestRollbackBoundaries(t *testing.T) {
	for _, c := range []struct {
		name          string
		faults, calls int // the first call faults, as do the last ones
		rolled        bool
	}{
		{"7 faults at 100 %", 7, 7, false},
		{"8 faults at 100 %", 8, 8, true},
		{"8 faults just above 5 %", 8, 140, true},
		{"8 faults at 5 %", 8, 141, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out syncBuffer
			h := openly(t, Options{Log: out.logger(), Clock: llm.NewFakeClock(time.Unix(1_700_000_000, 0))}, 700)
			faulty(t, h, "bad", 900)
			mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "bad"}, Previous: &Binding{Module: "m700"}})
			f, d := sampleFacts(), new(Decision)
			for i := range c.calls {
				h.settle(t)
				f.Entropy, f.Org = 1, 0
				if i == 0 || i > c.calls-c.faults {
					f.Entropy = 0
				}
				if h.Decide(f, d); (d.Fault == "trap") != (f.Entropy == 0) {
					t.Fatalf("call %d: %+v", i, d)
				}
			}
			if n := h.Stats().Quarantined; (n == 1) != c.rolled {
				t.Fatalf("%d quarantined", n)
			}
			if !c.rolled {
				h.settle(t)
				if d := decide(h, 1, 0); d.QPS != 900 || d.Fault != "" || out.count("policy quarantined") != 0 {
					t.Errorf("decision %+v", d)
				}
				return
			}
			e := <-h.Events()
			if d := decide(h, 1, 0); d.QPS != 700 || e.To == nil || e.To.Module != "m700" || e.Faults != uint64(c.faults) || e.Calls != uint64(c.calls) {
				t.Errorf("event %+v, decision %+v", e, d)
			}
			if out.count(`"policy quarantined" owner=operator module=bad version=`+e.Binding.Version()) != 1 || out.count("decides_now=m700@") != 1 {
				t.Error("the log does not name it")
			}
		})
	}
}

// The last reports of other modules stay readable, but for the oldest.
func TestReportsOfTheLastModules(t *testing.T) {
	qps := []uint32{700, 701, 702, 703, 704, 705}
	h := openly(t, Options{}, qps...)
	for i, v := range qps {
		mustPlan(t, h, Operator, Plan{Candidate: &Binding{Module: fmt.Sprint("m", v)}, Stage: StageShadow})
		for range i + 1 {
			decide(h, 1, 0)
		}
	}
	mustPlan(t, h, Operator, Plan{})
	for i, v := range qps {
		r, ok := h.ReportOf(Operator, fmt.Sprint("m", v))
		if kept := i > 0; ok != kept || kept && (r.Compared != uint64(i+1) || !strings.HasPrefix(r.Candidate, fmt.Sprint("m", v, "@"))) {
			t.Errorf("m%d: %t %+v", v, ok, r)
		}
	}
}
