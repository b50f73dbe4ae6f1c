package policy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/sdk/abi"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if IsChild(os.Args, os.Stdin, os.Stdout) {
		notePeak()
		os.Exit(0)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // children of a race build would each end a second late
	goleak.VerifyTestMain(m)
}

// wide lets everything through, so that tests see what the module said.
func wide() Envelope {
	return Envelope{MaxMultiplier: abi.MaxMultiplier, MaxBurst: abi.MaxMultiplier, MaxOverdraft: 1 << 40, MaxCustomDims: 16,
		MinPrice: 1, MayDeny: true, MaySkipBilling: true, MaySkipLimits: true, MayDropKey: true}
}

func newHost(t testing.TB, o Options) *Host {
	t.Helper()
	if o.CacheDir == "" {
		o.CacheDir = t.TempDir()
	}
	if o.Clock == nil {
		o.Clock = llm.NewFakeClock(time.Unix(1_700_000_000, 0))
	}
	h, err := NewHost(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func mustAdd(t testing.TB, h *Host, name string, wasm []byte) Module {
	t.Helper()
	m, err := h.Add(context.Background(), name, wasm, "")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func mustActivate(t testing.TB, h *Host, b Binding, env Envelope) {
	t.Helper()
	if err := h.Activate(context.Background(), &b, env); err != nil {
		t.Fatal(err)
	}
}

// serve makes a host with one module active.
func serve(t testing.TB, a *asm, onError OnError) *Host {
	t.Helper()
	h := newHost(t, Options{Tiers: []string{"free", "gold"}})
	mustAdd(t, h, "m", a.bytes())
	mustActivate(t, h, Binding{Module: "m", OnError: onError}, wide())
	return h
}

// sampleFacts are on the heap: which slot decides goes by their address, and the stack moves when it grows.
//
//go:noinline
func sampleFacts() *Facts {
	f := &Facts{NowMS: 1_700_000_000_000, Entropy: 42, Flags: FlagStream, Endpoint: llm.Chat, Input: 120, OutputMax: 400,
		Choices: 1, BodyBytes: 900, Key: 1, User: 2, Org: 3, QPSLimit: 10, TPMLimit: 1000, DayOfMonth: 3, DaysInMonth: 30, Tier: 1}
	copy(f.Attr[:], []string{"gpt-4o-mini", "throttled", "alice", "Acme", "end-user-17", "192.0.2.7", "gold", "openai"})
	return f
}

func TestDecideCopiesTheAnswer(t *testing.T) {
	h := serve(t, guest(sixDims()), OnErrorDefault)
	var d Decision
	h.Decide(sampleFacts(), &d)
	if d.Fault != "" || d.Abstained || d.Verdict != Allow || d.TPM != 900 || d.QPS != 1000 || d.N != 6 || d.Tier != -1 {
		t.Fatalf("decision %+v", d)
	}
	want := Dimension{Kind: abi.KindCustom, SkipAbsent: true, Tier: -1, QPS: 10, TPM: 1000, Multiplier: 1000, Burst: 2000, Cost: 1000, Value: "eu1"}
	if d.Dims[5] != want {
		t.Errorf("dims[5] = %+v, want %+v", d.Dims[5], want)
	}
	if d.Module != "m" || len(d.Version) != 12 {
		t.Errorf("decided by %q %q", d.Module, d.Version)
	}
}

// The guest copies facts into its answer, so the test sees what it was given.
func TestDecideWritesTheFacts(t *testing.T) {
	echo := func(from int) []byte {
		return cat(c32(respAt+abi.RespRetryAfterMS), ld32(uint32(reqAt+from)), []byte{0x36, 0, 0})
	}
	attr := func(i int) int { return abi.ReqAttrs + abi.AttrSize*i }
	for _, c := range []struct {
		name string
		off  int
		set  func(*Facts)
		want uint32
	}{
		{"now_ms", abi.ReqNowMS, func(f *Facts) { f.NowMS = 77 }, 77},
		{"entropy", abi.ReqEntropy, func(f *Facts) { f.Entropy = 99 }, 99},
		{"flags", abi.ReqFlags, func(f *Facts) { f.Flags = FlagStream | FlagRetry }, FlagStream | FlagRetry},
		{"endpoint", abi.ReqEndpoint, func(f *Facts) { f.Endpoint = llm.Messages }, abi.EndpointMessages},
		{"endpoint that counts", abi.ReqEndpoint, func(f *Facts) { f.Endpoint = llm.CountTokens }, abi.EndpointCountTokens},
		{"input", abi.ReqInputTokens, func(f *Facts) { f.Input = 1 << 40 }, 0xffffffff},
		{"output", abi.ReqOutputTokensMax, func(f *Facts) { f.OutputMax = 5 }, 5},
		{"qps limit", abi.ReqQPSLimit, func(f *Facts) { f.QPSLimit = 3 }, 3},
		{"tpm current", abi.ReqTPMCurrent, func(f *Facts) { f.TPMCurrent = -4 }, 0},
		{"concurrency", abi.ReqConcurrencyCurrent, func(f *Facts) { f.ConcurrencyCurrent = 6 }, 6},
		{"balance", abi.ReqBalanceAvailable, func(f *Facts) { f.BalanceAvailable = 12 }, 12},
		{"tier", abi.ReqTier, func(f *Facts) { f.Tier = 1 }, 1},
		{"generation", abi.ReqGeneration, func(*Facts) {}, 1},
		{"n_attr", abi.ReqNAttr - 2, func(*Facts) {}, 16 << 16},
		{"attribute length", attr(AttrOrgName) + 4, func(f *Facts) { f.Attr[AttrOrgName] = "abcde" }, 5},
		{"attribute bytes", abi.ReqStrings, func(f *Facts) { f.Attr[AttrModel] = "\x01\x02\x03\x04" }, 0x04030201},
		{"absent attribute", attr(AttrModel) + 4, func(f *Facts) { f.Attr[AttrModel] = "" }, 0},
		{"too long", attr(AttrEndUser) + 4, func(f *Facts) { f.Attr[AttrEndUser] = strings.Repeat("x", 4096) }, 0},
		{"too long is flagged", abi.ReqFlags, func(f *Facts) { f.Flags = 0; f.Attr[0] = strings.Repeat("x", 4096) }, 1 << 31},
		{"not UTF-8 is flagged", abi.ReqFlags, func(f *Facts) { f.Flags = 0; f.Attr[0] = "\xff" }, 1 << 31},
		{"size", abi.ReqSize, func(f *Facts) { f.Attr = [NAttr]string{"abc"} }, abi.ReqStrings + 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := serve(t, guest(st16(respAt, 1), echo(c.off), c32(0)), OnErrorDefault)
			f, d := sampleFacts(), Decision{}
			c.set(f)
			h.Decide(f, &d)
			if d.Fault != "" || d.RetryAfterMS != c.want {
				t.Errorf("guest saw %d (fault %q), want %d", d.RetryAfterMS, d.Fault, c.want)
			}
		})
	}
}

func TestUnwantedAttributesAreNotWritten(t *testing.T) {
	a := guest(st16(respAt, 1), cat(c32(respAt+abi.RespRetryAfterMS), ld32(reqAt+abi.ReqAttrs+4), []byte{0x36, 0, 0}), c32(0))
	a.with(asmFunc{typ: funcType{"", i64}, body: c64(1 << AttrUserName), name: abi.ExportAttributes})
	h := serve(t, a, OnErrorDefault)
	var d Decision
	if h.Decide(sampleFacts(), &d); d.Fault != "" || d.RetryAfterMS != 0 {
		t.Errorf("model was written: length %d, fault %q", d.RetryAfterMS, d.Fault)
	}
}

func TestNoModuleAbstains(t *testing.T) {
	h := newHost(t, Options{})
	d := Decision{Module: "old", Fault: "old", N: 3, Message: "old"}
	h.Decide(sampleFacts(), &d)
	if !d.Abstained || d.N != 0 || d.QPS != 1000 || d.Tier != -1 || d.Module != "" || d.Fault != "" || d.Message != "" {
		t.Errorf("decision %+v", d)
	}
	if _, ok := h.Active(); ok {
		t.Error("something is active")
	}
}

func TestGuestAbstains(t *testing.T) {
	h := serve(t, guest(c32(abi.Abstained)), OnErrorDeny)
	var d Decision
	if h.Decide(sampleFacts(), &d); !d.Abstained || d.Fault != "" || d.Module != "m" {
		t.Errorf("decision %+v", d)
	}
	if s := h.Stats(); s.Calls != 1 || s.Abstained != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestOnError(t *testing.T) {
	bad := guest([]byte{opUnreachable})
	t.Run("default", func(t *testing.T) {
		var d Decision
		if serve(t, bad, OnErrorDefault).Decide(sampleFacts(), &d); !d.Abstained || d.Verdict != Allow || d.Fault != "trap" {
			t.Errorf("decision %+v", d)
		}
	})
	t.Run("deny", func(t *testing.T) {
		var d Decision
		if serve(t, bad, OnErrorDeny).Decide(sampleFacts(), &d); d.Abstained || d.Verdict != Deny || d.Status != 403 || d.Fault != "trap" {
			t.Errorf("decision %+v", d)
		}
	})
	t.Run("guest error", func(t *testing.T) {
		var d Decision
		if serve(t, guest(c32(2)), OnErrorDefault).Decide(sampleFacts(), &d); d.Fault != "guest_error" {
			t.Errorf("decision %+v", d)
		}
	})
	t.Run("last_good", func(t *testing.T) {
		h := serve(t, guest(allow(700)), OnErrorDefault)
		mustAdd(t, h, "m", bad.bytes())
		mustActivate(t, h, Binding{Module: "m", OnError: OnErrorLastGood}, wide())
		var d Decision
		if h.Decide(sampleFacts(), &d); d.QPS != 700 || d.Fault != "trap" || d.Abstained {
			t.Errorf("decision %+v", d)
		}
		// A further swap retires the one that was kept.
		mustActivate(t, h, Binding{Module: "m", OnError: OnErrorDefault}, wide())
		if h.Decide(sampleFacts(), &d); !d.Abstained {
			t.Errorf("decision %+v", d)
		}
		if n := len(h.mu.live); n != 1 {
			t.Errorf("%d generations live, want 1", n)
		}
	})
}

func TestSwapAndDeactivate(t *testing.T) {
	h := newHost(t, Options{})
	for i := uint32(1); i <= 4; i++ {
		m := mustAdd(t, h, "m", guest(allow(i)).bytes())
		mustActivate(t, h, Binding{Module: "m"}, wide())
		var d Decision
		if h.Decide(sampleFacts(), &d); d.QPS != i {
			t.Fatalf("version %d answered %d", i, d.QPS)
		}
		if b, ok := h.Active(); !ok || b.Hash != m.Hash || b.OnError != OnErrorDefault {
			t.Fatalf("active %+v", b)
		}
	}
	first := h.Modules()[0]
	mustActivate(t, h, Binding{Module: "m", Hash: first.Hash}, wide())
	var d Decision
	if h.Decide(sampleFacts(), &d); d.QPS != 1 {
		t.Fatalf("rolled back to %d", d.QPS)
	}
	if err := h.Activate(context.Background(), nil, Envelope{}); err != nil {
		t.Fatal(err)
	}
	if h.Decide(sampleFacts(), &d); !d.Abstained {
		t.Errorf("still deciding: %+v", d)
	}
	if len(h.code) != 0 || len(h.mu.live) != 0 {
		t.Errorf("kept %d codes, %d generations", len(h.code), len(h.mu.live))
	}
	if s := h.Stats(); s.Calls != 5 || s.Swaps != 6 {
		t.Errorf("stats %+v", s)
	}
}

func TestParams(t *testing.T) {
	// Accepted if the configuration is as long as want says.
	a := guest(allow(1)).configurable([]byte{opLocalGet, 0}, c32(1<<10), []byte{0x4b}) // len > 1024
	a.section(abi.SectionSchema, `{"type":"object","properties":{"name":{"type":"string","maxLength":5000}},"additionalProperties":false}`)
	h := newHost(t, Options{Tiers: []string{"free"}})
	mustAdd(t, h, "m", a.bytes())
	for _, c := range []struct{ params, want string }{
		{``, ""},
		{`{"name":"x"}`, ""},
		{`{"nam":"x"}`, "nam"},
		{`{"name":3}`, "name"},
		{`[1]`, "want a JSON object"},
		{`{"name":`, "want a JSON object"},
		{`{"name":"` + strings.Repeat("x", 2000) + `"}`, "weir_configure refused the configuration with code 1"},
		{`{"name":"` + strings.Repeat("x", 70_000) + `"}`, "the limit is 65536"},
	} {
		err := h.Activate(context.Background(), &Binding{Module: "m", Params: []byte(c.params)}, wide())
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("params %.30s: error %v, want %q", c.params, err, c.want)
		}
	}
	if b, _ := h.Active(); string(b.Params) != `{"name":"x"}` {
		t.Errorf("the last good one should serve, got %.40s", b.Params)
	}
	mustAdd(t, h, "plain", guest(allow(1)).bytes())
	err := h.Activate(context.Background(), &Binding{Module: "plain", Params: []byte(`{"a":1}`)}, wide())
	if err == nil || !strings.Contains(err.Error(), "takes no params") {
		t.Errorf("error %v", err)
	}
}

func TestActivateRefusals(t *testing.T) {
	h := newHost(t, Options{Tiers: []string{"free"}})
	mustAdd(t, h, "m", guest(allow(1)).bytes())
	for _, c := range []struct {
		b    Binding
		env  Envelope
		want string
	}{
		{Binding{Module: "x"}, wide(), "has not been added"},
		{Binding{Module: "m", OnError: "panic"}, wide(), "unknown on_error"},
		{Binding{Module: "m"}, Envelope{Tiers: []string{"fre"}}, `nearest: "free"`},
	} {
		if err := h.Activate(context.Background(), &c.b, c.env); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want %q", c.b, err, c.want)
		}
	}
}

func TestAddIsIdempotentAndSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	wasm := guest(allow(5)).bytes()
	for range 2 {
		h := newHost(t, Options{CacheDir: dir})
		a, b := mustAdd(t, h, "m", wasm), mustAdd(t, h, "m", wasm)
		if a.Hash != b.Hash || len(h.Modules()) != 1 {
			t.Errorf("added twice: %d modules", len(h.Modules()))
		}
		mustActivate(t, h, Binding{Module: "m"}, wide())
		h.Close()
	}
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("cache folder: %v %v", st.Mode(), err)
	}
}

func TestMissingCacheEntryIsAnUploadError(t *testing.T) {
	dir := t.TempDir()
	h := newHost(t, Options{CacheDir: dir})
	m := mustAdd(t, h, "m", guest(allow(5)).bytes())
	if _, err := h.proved(context.Background(), Operator, Binding{Module: "m"}); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir + "/modules/" + m.Hash + "-small"); err != nil {
		t.Fatal(err)
	}
	err := h.Activate(context.Background(), &Binding{Module: "m"}, wide())
	if err == nil || !strings.Contains(err.Error(), "not in the cache of compiled modules; add it again") {
		t.Errorf("error %v", err)
	}
	mustAdd(t, h, "m", guest(allow(5)).bytes())
	mustActivate(t, h, Binding{Module: "m"}, wide())
	if n := len(h.Modules()); n != 1 {
		t.Errorf("%d modules after it was added again", n)
	}
}

func TestDecideAllocatesNothing(t *testing.T) {
	h := serve(t, guest(sixDims()), OnErrorDefault)
	f, d := sampleFacts(), new(Decision)
	h.Decide(f, d)
	if n := testing.AllocsPerRun(1000, func() { h.Decide(f, d) }); n != 0 {
		t.Errorf("%v allocations per call", n)
	}
}

func TestExhausted(t *testing.T) {
	h := serve(t, guest(allow(1)), OnErrorDefault)
	g := h.operator.cur.Load().active
	for i := range g.slots {
		g.slots[i].state.Store(slotBusy)
	}
	var d Decision
	if h.Decide(sampleFacts(), &d); d.Fault != "exhausted" || !d.Abstained {
		t.Errorf("decision %+v", d)
	}
	for i := range g.slots {
		g.slots[i].state.Store(slotFree)
	}
	if h.Decide(sampleFacts(), &d); d.Fault != "" || h.Stats().Exhausted != 1 {
		t.Errorf("decision %+v, stats %+v", d, h.Stats())
	}
}

// A call that took its generation just before a swap starts again with the one in force.
func TestRetiredGenerationSendsItsCallsOn(t *testing.T) {
	h := serve(t, guest(allow(1)), OnErrorDefault)
	old := h.operator.cur.Load().active
	mustActivate(t, h, Binding{Module: "m"}, wide())
	var d Decision
	if _, retired := old.run(&question{h: h, env: h.env.Load().of(0)}, sampleFacts(), &d, yields); !retired {
		t.Error("the old generation decided")
	}
}

func TestQuarantine(t *testing.T) {
	clock := llm.NewFakeClock(time.Unix(1_700_000_000, 0))
	h := newHost(t, Options{Clock: clock})
	mustAdd(t, h, "m", guest(trapWhenEntropyIs(0), allow(1)).bytes())
	mustActivate(t, h, Binding{Module: "m"}, wide())
	f, d := sampleFacts(), new(Decision)
	call := func(entropy uint64) string {
		f.Entropy = entropy
		h.Decide(f, d)
		return d.Fault
	}
	// 1 in 21 faults for long: below the share, never quarantined.
	for i := range 40 * 21 {
		if i%21 == 0 {
			h.settle(t)
		}
		want := map[bool]string{true: "trap"}[i%21 == 20]
		if got := call(uint64(min((20-i%21)*100, 1000))); got != want {
			t.Fatalf("call %d: fault %q, want %q", i, got, want)
		}
	}
	clock.Advance(quarantineSpan + 1)
	for i := range quarantineFaults {
		h.settle(t)
		if got := call(0); got != "trap" {
			t.Fatalf("fault %d: %q", i, got)
		}
	}
	if got := call(5); got != "quarantined" || !d.Abstained {
		t.Errorf("fault %q after %d faults in a row", got, quarantineFaults)
	}
	if s := h.Stats(); s.Quarantined != 1 {
		t.Errorf("stats %+v", s)
	}
	// A new activation starts clean.
	mustActivate(t, h, Binding{Module: "m"}, wide())
	if got := call(5); got != "" {
		t.Errorf("fault %q after reactivation", got)
	}
}

// settle waits until the mender has given every slot an instance.
func (h *Host) settle(t testing.TB) {
	t.Helper()
	g := h.operator.cur.Load().active
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Microsecond) {
		ready := 0
		for i := range g.slots {
			if g.slots[i].state.Load() == slotFree {
				ready++
			}
		}
		if ready == len(g.slots) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d slots ready", ready, len(g.slots))
		}
	}
}

// trapWhenEntropyIs traps on requests with that entropy.
func trapWhenEntropyIs(v uint32) []byte {
	return cat(ld32(reqAt+abi.ReqEntropy), c32(v), []byte{0x46, opIf, blockEmpty, opUnreachable, opEnd})
}

func TestLogLinesAreBounded(t *testing.T) {
	a := guest()
	a.imports = []importedFunc{{module: "weir", name: "log"}}
	a.impTyp = []funcType{{i32 + i32 + i32, ""}}
	say := cat(c32(abi.LogInfo), c32(reqAt+abi.ReqStrings), c32(11), []byte{opCall, 0})
	a.funcs[0].body = cat(st16(respAt, 1), say, say, say, say, say, say, say, say, say, say, c32(0))
	var out syncBuffer
	h := newHost(t, Options{Log: out.logger()})
	mustAdd(t, h, "m", a.bytes())
	mustActivate(t, h, Binding{Module: "m"}, wide())
	var d Decision
	if h.Decide(sampleFacts(), &d); d.Fault != "" {
		t.Fatalf("fault %q", d.Fault)
	}
	for deadline := time.Now().Add(5 * time.Second); out.count("gpt-4o-mini") < logLinesPerCall && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if n := out.count("gpt-4o-mini"); n != logLinesPerCall {
		t.Errorf("%d lines, want %d", n, logLinesPerCall)
	}
}

func TestP04ReloadsUnderLoad(t *testing.T) {
	reloads := 1000
	switch {
	case *long:
		reloads = 5000
	case testing.Short():
		reloads = 50
	}
	reloadUnderLoad(t, reloads, nil, func(_ *Facts, d *Decision) bool {
		return d.Fault == "" && d.QPS >= 1 && d.QPS <= 3 && d.Module == fmt.Sprint("m", d.QPS)
	})
}

// One call in 64 traps, so slots are mended and drained at once.
func TestP04ReloadsOfAFaultyModule(t *testing.T) {
	reloadUnderLoad(t, 50, trapWhenEntropyIs(0), func(f *Facts, d *Decision) bool {
		if f.Entropy == 0 {
			return d.Fault == "trap" || d.Fault == "exhausted"
		}
		return d.Fault == "exhausted" || d.Fault == "" && d.QPS >= 1 && d.QPS <= 3 && d.Module == fmt.Sprint("m", d.QPS)
	})
}

// reloadUnderLoad swaps between three modules that begin with prefix while four workers call.
func reloadUnderLoad(t *testing.T, reloads int, prefix []byte, right func(*Facts, *Decision) bool) {
	h := newHost(t, Options{})
	for i := uint32(1); i <= 3; i++ {
		mustAdd(t, h, fmt.Sprint("m", i), guest(prefix, allow(i)).bytes())
	}
	mustActivate(t, h, Binding{Module: "m1"}, wide())
	var (
		stop atomic.Bool
		wg   sync.WaitGroup
	)
	for range 4 {
		wg.Go(func() {
			f, d := sampleFacts(), new(Decision)
			for i := uint64(1); !stop.Load(); i++ {
				f.Entropy = i % 64
				if h.Decide(f, d); !right(f, d) {
					t.Errorf("call failed: %q by %s qps %d", d.Fault, d.Module, d.QPS)
					return
				}
				if d.Fault == "exhausted" { // it reached no instance: else most of those that do would trap, and a busy machine quarantine
					i--
				}
				if f.Entropy == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	var before map[string]int
	for i := range reloads {
		if i == reloads/2 {
			before = memoryKB(t)
		}
		mustActivate(t, h, Binding{Module: fmt.Sprint("m", i%3+1)}, wide())
	}
	after := memoryKB(t)
	stop.Store(true)
	wg.Wait()
	if patience == 1 && (after["VmRSS"]-before["VmRSS"] > 32<<10 || after["VmSize"]-before["VmSize"] > 256<<10) {
		t.Errorf("memory grew over the second half from %v to %v KiB", before, after)
	}
	if n := len(h.mu.live); n != 1 {
		t.Errorf("%d generations live", n)
	}
	t.Logf("%d reloads, %+v", reloads, h.Stats())
}

func TestSameInputSameDecision(t *testing.T) {
	h := serve(t, guest(sixDims()), OnErrorDefault)
	var first []byte
	for range 100 {
		var d Decision
		h.Decide(sampleFacts(), &d)
		got, err := MarshalDecision(&d, nil)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = got
		}
		if string(got) != string(first) {
			t.Fatalf("got %s, before %s", got, first)
		}
	}
}

// An instance that could not be made, for example for want of memory, is tried again although nobody calls.
func TestAnInstanceThatCouldNotBeMadeIsTriedAgain(t *testing.T) {
	var log syncBuffer
	h := newHost(t, Options{Clock: llm.NewSystemClock(), Log: log.logger()})
	mustAdd(t, h, "fixed", fixed().bytes())
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "fixed", Params: number(7)}})
	g := h.operator.cur.Load().active
	configure := func(config []byte) { // what the mender does follows on h.mu
		h.mu.Lock()
		defer h.mu.Unlock()
		g.config = config
	}
	good, slot := g.config, &g.slots[0]
	configure(make([]byte, 1<<20)) // more than the guest's memory
	slot.state.Store(slotBroken)
	h.wakeMender()
	wait := func(what string, done func() bool) {
		for deadline := time.Now().Add(10 * mendRetry); !done(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal(what)
			}
		}
	}
	wait("nothing failed", func() bool { return log.count("instance could not be made") > 0 })
	configure(good)
	wait("the slot stays broken", func() bool { return slot.state.Load() == slotFree })
}

func TestClosedHost(t *testing.T) {
	h := newHost(t, Options{})
	h.Close()
	h.Close()
	var d Decision
	if h.Decide(sampleFacts(), &d); !d.Abstained {
		t.Errorf("decision %+v", d)
	}
	var e *llm.Error
	if _, err := h.Add(context.Background(), "m", guest(allow(1)).bytes(), ""); !errors.As(err, &e) || e.Kind != llm.KindUnavailable {
		t.Errorf("error %v", err)
	}
}

func BenchmarkDecide(b *testing.B) {
	h := serve(b, guest(eightDims()), OnErrorDefault)
	b.ReportAllocs()
	f, d := sampleFacts(), new(Decision)
	for b.Loop() {
		h.Decide(f, d)
	}
	if d.Fault != "" || d.N != 8 {
		b.Fatalf("decision %+v", d)
	}
}

func BenchmarkDecideParallel(b *testing.B) {
	h := serve(b, guest(sixDims()), OnErrorDefault)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		f, d := sampleFacts(), new(Decision)
		for pb.Next() {
			h.Decide(f, d)
		}
	})
}
