package policy

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/policies"
	"github.com/weir-gateway/weir/sdk/abi"
)

// saying logs a line, and then does as body says.
func saying(body ...[]byte) *asm {
	a := guest()
	a.imports = []importedFunc{{module: "weir", name: "log"}}
	a.impTyp = []funcType{{i32 + i32 + i32, ""}}
	a.funcs[0].body = cat(c32(abi.LogWarn), c32(reqAt+abi.ReqStrings), c32(11), []byte{opCall, 0}, cat(body...))
	return a
}

func TestRunner(t *testing.T) {
	h := newHost(t, Options{})
	mustAdd(t, h, "m", saying(trapWhenEntropyIs(0), allow(5000)).bytes())
	run, err := h.Open(context.Background(), Binding{Module: "m"})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	f, d := sampleFacts(), new(Decision)
	for _, entropy := range []uint64{1, 0, 1} {
		f.Entropy = entropy
		trace := run.Run(f, d)
		want := map[bool]string{true: "trap"}[entropy == 0]
		if trace.Fault != want || d.Fault != want || trace.Fuel == 0 || trace.Fuel > 200 || trace.FuelAllowed != 200_000 || trace.Memory != 64<<10 {
			t.Errorf("entropy %d: %+v, fault %q", entropy, trace, d.Fault)
		}
		if len(trace.Log) == 0 || trace.Log[0] != (SaidLine{"warn", "gpt-4o-mini"}) {
			t.Errorf("it said %+v", trace.Log)
		}
		if entropy == 1 && (d.QPS != 5000 || d.Module != "m" || d.Clamped) {
			t.Errorf("decision %+v", d)
		}
	}
	if s := h.Stats(); s.Calls != 0 || s.Traps != 0 {
		t.Errorf("a run outside every plan is counted: %+v", s)
	}
	run.Close()
	run.Close()
	if len(h.code) != 0 {
		t.Error("the code is still there")
	}
	if _, err := h.Open(context.Background(), Binding{Module: "m", Params: []byte("{]")}); err == nil {
		t.Error("bad params were accepted")
	}
}

func TestTry(t *testing.T) {
	h := openly(t, Options{}, 800)
	mustAdd(t, h, "fixed", fixed().bytes())
	if err := h.SetEnvelopes(Envelopes{Operator: Envelope{MaxMultiplier: 1000}, Tenant: Envelope{MaxMultiplier: 1200}}); err != nil {
		t.Fatal(err)
	}
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "m800"}})
	ctx, f := context.Background(), sampleFacts()
	got, err := h.Try(ctx, Operator, Binding{Module: "fixed", Params: number(3000)}, f)
	if err != nil || got.Answer.QPS != 3000 || got.Decision.QPS != 1000 || !got.Decision.Clamped || got.Trace.Fuel == 0 || got.Binding.Hash == "" || got.Decision.Envelope == nil {
		t.Errorf("%+v %v", got, err)
	}
	got, err = h.Try(ctx, 3, Binding{Module: "fixed", Params: number(500)}, f)
	if err != nil || got.Answer.QPS != 500 || got.Decision.QPS != 400 || got.Decision.Module != "m800" || got.Decision.Tenant.Module != "fixed" {
		t.Errorf("%+v %v", got, err)
	}
	got, err = h.Try(ctx, 3, Binding{Module: "fixed", Params: number(5000)}, f)
	if err != nil || got.Decision.QPS != 960 || !got.Decision.Tenant.Clamped {
		t.Errorf("%+v %v", got, err)
	}
	mustAdd(t, h, "bad", guest([]byte{opUnreachable}).bytes())
	got, err = h.Try(ctx, 3, Binding{Module: "bad", OnError: OnErrorDeny}, f)
	if err != nil || got.Decision.Verdict != Deny || got.Trace.Fault != "trap" || got.Decision.Tenant.Fault != "trap" {
		t.Errorf("%+v %v", got, err)
	}
	if *f != *sampleFacts() {
		t.Error("the facts were changed")
	}
	if _, ok := h.PlanOf(3); ok {
		t.Error("a dry run made a plan")
	}
}

func TestBench(t *testing.T) {
	h := newHost(t, Options{Clock: llm.NewSystemClock()})
	mustAdd(t, h, "m", guest(trapWhenEntropyIs(0), allow(5000)).bytes())
	good, bad := sampleFacts(), sampleFacts()
	bad.Entropy = 0
	m, err := h.Bench(context.Background(), Binding{Module: "m"}, []*Facts{good, good, good, bad}, 20*time.Millisecond)
	if err != nil || m.Calls < 4 || m.Faults*4 != m.Calls || m.NSPerCall <= 0 || m.PerSecond <= 0 || m.Fuel == 0 || m.FuelMost < m.Fuel || m.FuelLimit != 200_000 || m.Memory != 64<<10 {
		t.Errorf("%+v %v", m, err)
	}
	if _, err := h.Bench(context.Background(), Binding{Module: "m"}, nil, 0); err == nil {
		t.Error("nothing was measured")
	}
}

func TestCheck(t *testing.T) {
	a := saying(allow(5)).section(abi.SectionCases, `{"cases":[{"name":"a","facts":{},"want":{"qps_permille":5}},
		{"name":"b","facts":{"attributes":{"model":"m"}},"want":{"qps_permille":6}}]}`)
	a.with(asmFunc{typ: funcType{}, locals: cat([]byte{1}, uleb(9), []byte{typeI64}),
		body: cat([]byte{opBlock, blockEmpty, opBlock, blockEmpty, opEnd, opEnd}, c32(0), []byte{opBrTable, 3, 0, 0, 0, 0})})
	c, err := Check(context.Background(), Options{}, a.bytes(), "")
	if err != nil {
		t.Fatal(err)
	}
	caps := map[string]CapUse{}
	for _, x := range c.Caps {
		caps[x.Name] = x
	}
	want := map[string]CapUse{
		"functions": {"functions", 6, 2000, ""}, "nesting": {"nesting", 2, 64, "func[5]"}, "locals": {"locals", 9, 256, "func[5]"},
		"br_table_targets": {"br_table_targets", 3, 512, "func[5]"}, "exports": {"exports", 5, 64, ""}, "memory_pages": {"memory_pages", 1, 16, ""},
		"body_bytes": {"body_bytes", caps["body_bytes"].Used, 32 << 10, abi.ExportDecide},
	}
	for name, x := range want {
		if caps[name] != x {
			t.Errorf("%+v, want %+v", caps[name], x)
		}
	}
	if !slices.Equal(c.Imports, []string{"weir.log (i32, i32, i32)->()"}) || !slices.Contains(c.Exports, "weir_decide ()->(i32)") || !slices.Contains(c.Exports, "memory memory") {
		t.Errorf("imports %q, exports %q", c.Imports, c.Exports)
	}
	names := map[string]bool{}
	for _, s := range c.Sections {
		names[s.Name] = s.Bytes > 0
	}
	if !names["code"] || !names["custom weir.cases"] {
		t.Errorf("sections %v", slices.Collect(maps.Keys(names)))
	}
	if len(c.Cases) != 2 || !c.Cases[0].Passed || c.Cases[1].Passed || c.FuelWorst == 0 || c.FuelWorst != max(c.Cases[0].Fuel, c.Cases[1].Fuel) || c.FuelLimit != 200_000 {
		t.Errorf("cases %+v, worst %d", c.Cases, c.FuelWorst)
	}
	_, err = Check(context.Background(), Options{}, guest(c64(0)).bytes(), "")
	wantRefusal(t, err, "not valid")
	_, err = Check(context.Background(), Options{}, nil, "tiny")
	if err == nil || !strings.Contains(err.Error(), "unknown profile") {
		t.Errorf("error %v", err)
	}
}

func TestCover(t *testing.T) {
	a := guest(cat([]byte{opCall, 4}, ld32(reqAt+abi.ReqKeyID), c32(7), []byte{0x46, opIf, blockEmpty, opCall, 5, opEnd}, allow(5)))
	a.with(asmFunc{typ: funcType{}, body: []byte{0x01}, name: "always"}, asmFunc{typ: funcType{}, body: []byte{0x01}}, asmFunc{typ: funcType{}, body: []byte{opUnreachable}})
	cases := []byte(`{"cases":[{"name":"a","facts":{},"want":{}},{"name":"b","facts":{"key_id":7},"want":{}},{"name":"c","facts":{"key_id":8},"want":{"qps_permille":6}}]}`)
	results, hits, err := Cover(context.Background(), Options{}, a.bytes(), "", cases)
	if err != nil || len(results) != 3 || results[2].Passed || !results[1].Passed {
		t.Fatalf("%+v %v", results, err)
	}
	got := map[string]uint64{}
	for _, x := range hits {
		got[x.Name] = x.Calls
	}
	if got[abi.ExportDecide] != 6 || got["always"] != 6 || got["func[5]"] != 2 || got["func[6]"] != 0 || len(hits) != 7 || hits[6].Index != 6 {
		t.Errorf("hits %+v", hits)
	}
	if _, _, err := Cover(context.Background(), Options{}, a.bytes(), "", nil); err == nil || !strings.Contains(err.Error(), "no cases") {
		t.Errorf("error %v", err)
	}
}

// Every module that comes with the binary passes its cases, fits its profile with room to spare, and is covered.
func TestShippedModulesAreChecked(t *testing.T) {
	for _, name := range policies.Names() {
		wasm, _ := policies.Shipped(name)
		c, err := Check(context.Background(), Options{}, wasm, "")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(c.Cases) == 0 || c.FuelWorst*4 > c.FuelLimit {
			t.Errorf("%s: %d cases, the worst takes %d of %d units", name, len(c.Cases), c.FuelWorst, c.FuelLimit)
		}
		_, hits, err := Cover(context.Background(), Options{}, wasm, "", nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		i := slices.IndexFunc(hits, func(h FunctionHits) bool { return h.Name == abi.ExportDecide })
		if i < 0 || hits[i].Calls == 0 {
			t.Errorf("%s: weir_decide is not among %d functions", name, len(hits))
		}
		t.Logf("%s: %d bytes, worst of %d cases %d of %d units", name, c.Module.Size, len(c.Cases), c.FuelWorst, c.FuelLimit)
	}
}
