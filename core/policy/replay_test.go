package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/sdk/abi"
)

// logTo is a decision log of every request that keeps its lines.
type logTo struct {
	mu    sync.Mutex
	lines [][]byte
}

func (l *logTo) options() DecisionLog {
	return DecisionLog{Sample: 1, Sink: func(line []byte) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, bytes.Clone(line))
		return nil
	}}
}

// wait gives the first n lines as one text.
func (l *logTo) wait(t testing.TB, n int) []byte {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		got := len(l.lines)
		text := bytes.Join(l.lines, nil)
		l.mu.Unlock()
		if got >= n {
			return text
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d lines, want %d", got, n)
		}
	}
}

func TestFactsSurviveJSON(t *testing.T) {
	tiers, labels := []string{"free", "gold"}, []string{"soft", "region"}
	full := sampleFacts()
	*full = Facts{NowMS: 1, Entropy: 1<<64 - 1, Flags: 3, Endpoint: llm.Messages, Input: 4, OutputMax: 5, Choices: 6, BodyBytes: 7, Key: 8, User: 9,
		Org: 10, QPSLimit: 11, QPSCurrent: 12, TPMLimit: 13, TPMCurrent: 14, ConcurrencyLimit: 15, ConcurrencyCurrent: 16, QuotaLimit: 17,
		QuotaUsed: 18, BalanceAvailable: -19, EstimatedCost: 1<<63 - 1, MinuteOfWeek: 21, DayOfMonth: 22, DaysInMonth: 30, Tier: 1}
	for i := range AttrLabel0 + 2 {
		full.Attr[i] = strings.Repeat("é\"\\\n<", i+1)
	}
	none := &Facts{Tier: noTier}
	for _, f := range []*Facts{full, sampleFacts(), {}, none} {
		raw, err := MarshalFacts(f, tiers, labels)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseFacts(raw, tiers, labels)
		if err != nil || *got != *f {
			t.Errorf("%s\nbecomes %+v, %v\nwas     %+v", raw, got, err, f)
		}
	}
	f := &Facts{Attr: [NAttr]string{"\xff"}}
	raw, err := MarshalFacts(f, nil, nil)
	if err != nil || !strings.Contains(string(raw), `"flags":2147483648`) {
		t.Errorf("%s %v", raw, err)
	}
}

func TestDecisionsSurviveJSON(t *testing.T) {
	tiers := []string{"free", "gold"}
	for seed := range uint64(500) {
		d := randomDecision(seed)
		d.Message, d.Reason, d.Status, d.Fault = "a \"b\"", 7, 451, "trap"
		raw, err := MarshalDecision(&d, tiers)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseDecision(raw, tiers)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if diff := cmp.Diff(&d, got); diff != "" {
			t.Fatalf("%s\nwant -, got +:\n%s", raw, diff)
		}
	}
	for _, c := range []struct{ raw, want string }{
		{`{"verdict":"alow"}`, `unknown name "alow" (nearest: "allow")`},
		{`{"tier":"silver"}`, "decision.tier"},
		{`{"dims":[{"kind":"kee"}]}`, `nearest: "key"`},
		{`{"qps":1}`, "unknown field"},
		{`{"dims":[{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}]}`, "17, want at most 16"},
	} {
		if _, err := ParseDecision([]byte(c.raw), tiers); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.raw, err, c.want)
		}
	}
}

// moody is a module whose answer depends on the request: on its entropy, input and minute, its generation, and on
// whether the model's name is long.
func moody(bias uint32) *asm {
	at := func(off uint32) []byte { return c32(respAt + off) }
	store := []byte{0x36, 0, 0}
	rem := func(v []byte, n uint32) []byte { return cat(v, c32(n), []byte{0x70}) }
	return guest(trapWhenEntropyIs(13), st16(respAt, abi.Major),
		at(abi.RespQPSMultiplier), rem(ld32(reqAt+abi.ReqEntropy), 900), c32(1+bias), []byte{0x6a}, store,
		at(abi.RespOutputCap), rem(ld32(reqAt+abi.ReqMinuteOfWeek), 7), store,
		at(abi.RespRetryAfterMS), ld32(reqAt+abi.ReqGeneration), store,
		at(abi.RespReason), ld32(reqAt+abi.ReqAttrs+4), []byte{0x3b, 0, 0},
		cat(ld32(reqAt+abi.ReqEntropy), c32(5), []byte{0x70, 0x45, opIf, blockEmpty}), st8(respAt+abi.RespVerdict, abi.VerdictDeny), []byte{opEnd},
		c32(0))
}

// drive sends n requests that differ.
func drive(h *Host, n int) {
	f, d := sampleFacts(), new(Decision)
	for i := range n {
		f.Entropy, f.Org, f.MinuteOfWeek, f.Key = uint64(i), 3, uint32(i*31)%10080, uint64(i%7)
		f.Attr[AttrModel] = strings.Repeat("m", i%40+1)
		h.Decide(f, d)
	}
}

// Every line of the log, run again, gives the very bytes that were logged: the answer before the envelope, faults and
// the generation included, for the operator and for an org's module.
func TestDecisionLogReplaysBitForBit(t *testing.T) {
	var kept logTo
	h := newHost(t, Options{Tiers: []string{"free", "gold"}, Clock: llm.NewSystemClock(), DecisionLog: kept.options()})
	m := mustAdd(t, h, "moody", moody(0).bytes())
	if err := h.SetEnvelopes(Envelopes{Operator: Envelope{MaxMultiplier: 500}}); err != nil {
		t.Fatal(err)
	}
	mustPlan(t, h, 3, Plan{Active: &Binding{Module: "moody", OnError: OnErrorDeny}})
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "moody"}})
	drive(h, 200)
	text := kept.wait(t, 320) // an org's module is not asked where the operator's has denied
	clamped, orgs, faults := 0, 0, 0
	for _, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
		var l Logged
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatal(err)
		}
		b := Binding{Module: "moody", Hash: m.Hash}
		if l.Owner == "org:3" {
			b.OnError, orgs = OnErrorDeny, orgs+1
		}
		if l.Version != b.Version() || l.Module != "moody" || l.Time == "" {
			t.Fatalf("line %s", line)
		}
		f, err := ParseFacts(l.Facts, h.o.Tiers, nil)
		if err != nil {
			t.Fatal(err)
		}
		if l.Clamped {
			clamped++
		}
		if l.Fault != "" {
			faults++
			if d, err := ParseDecision(l.Decision, h.o.Tiers); err != nil || !d.Abstained || d.Fault != l.Fault || d.QPS != unit {
				t.Errorf("line %s: %v", line, err)
			}
			continue // replayed below
		}
		run, err := h.Open(context.Background(), b)
		if err != nil {
			t.Fatal(err)
		}
		var d Decision
		trace, _ := run.run(f, &d, l.Generation)
		run.Close()
		got, err := MarshalDecision(&d, h.o.Tiers)
		if err != nil || !bytes.Equal(got, l.Decision) || trace.Fuel != l.Fuel || l.Fuel == 0 {
			t.Fatalf("logged %s with fuel %d\nnow    %s with fuel %d", l.Decision, l.Fuel, got, trace.Fuel)
		}
	}
	if clamped == 0 || orgs == 0 || faults == 0 {
		t.Errorf("%d clamped, %d of the org, %d faults: the test shows too little", clamped, orgs, faults)
	}
	r, err := h.Replay(context.Background(), bytes.NewReader(text))
	if err != nil || r.Changed != 0 || r.Compared == 0 || r.Faults["trap"] == 0 {
		t.Errorf("compared %d, changed %d, faults %v, skipped %d, %v", r.Compared, r.Changed, r.Faults, r.Skipped, err)
	}
	if s := h.Stats(); s.Logged == 0 || s.LoggedDropped != 0 {
		t.Errorf("stats %+v", s)
	}
}

// A line says whether the envelope cut off what the module asked for, be it the operator's or an org's.
func TestDecisionLogSaysWhatWasClamped(t *testing.T) {
	var kept logTo
	h := newHost(t, Options{Clock: llm.NewSystemClock(), DecisionLog: kept.options()})
	mustAdd(t, h, "fixed", fixed().bytes())
	if err := h.SetEnvelopes(Envelopes{Operator: Envelope{MaxMultiplier: 1500}, Tenant: Envelope{MaxMultiplier: 1200}}); err != nil {
		t.Fatal(err)
	}
	bind := func(o Owner, n int) { mustPlan(t, h, o, Plan{Active: &Binding{Module: "fixed", Params: number(n)}}) }
	bind(Operator, 2000)
	bind(3, 12_000)
	bind(4, 900)
	decide(h, 1, 3)
	decide(h, 1, 4)
	want := map[string]bool{"operator": true, "org:3": true, "org:4": false}
	for _, line := range bytes.Split(bytes.TrimSpace(kept.wait(t, 4)), []byte("\n")) {
		var l Logged
		if err := json.Unmarshal(line, &l); err != nil || l.Fault == "" && l.Clamped != want[l.Owner] {
			t.Errorf("%s: clamped %v, want %v; %v", l.Owner, l.Clamped, want[l.Owner], err)
		}
	}
}

func TestReplayAgainstAndDiff(t *testing.T) {
	var kept logTo
	h := newHost(t, Options{Tiers: []string{"free", "gold"}, Clock: llm.NewSystemClock(), DecisionLog: kept.options()})
	mustAdd(t, h, "moody", moody(0).bytes())
	mustAdd(t, h, "other", moody(5).bytes())
	mustPlan(t, h, Operator, Plan{Active: &Binding{Module: "moody"}})
	drive(h, 100)
	text := kept.wait(t, 100)
	against := func(b ...Binding) Report {
		t.Helper()
		r, err := h.Replay(context.Background(), bytes.NewReader(text), b...)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	same, other := Binding{Module: "moody"}, Binding{Module: "other"}
	if r := against(same); r.Compared != 99 || r.Changed != 0 || r.Active != "as logged" || !strings.HasPrefix(r.Candidate, "moody@") {
		t.Errorf("report %+v", r)
	}
	if r := against(other); r.Compared != 99 || r.Changed != 99 || r.Fields["qps_permille"] != 99 || len(r.Fields) != 1 || len(r.Examples) != 10 {
		t.Errorf("report %+v", r)
	}
	if r := against(other, same); r.Compared != 99 || r.Changed != 99 || !strings.HasPrefix(r.Active, "other@") {
		t.Errorf("report %+v", r)
	}
	if r := against(other, other); r.Changed != 0 {
		t.Errorf("report %+v", r)
	}
	for _, c := range []struct{ lines, want string }{
		{"{}\n", "line 1: "},
		{"\n\nnope\n", "line 3: not a line of a decision log"},
		{`{"owner":"operator","module":"gone","version":"x","facts":{},"decision":{}}`, "gone@x is in no plan of operator"},
		{`{"owner":"me","facts":{},"decision":{}}`, `unknown owner "me"`},
	} {
		if _, err := h.Replay(context.Background(), strings.NewReader(c.lines)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.lines, err, c.want)
		}
	}
	if _, err := h.Replay(context.Background(), strings.NewReader(""), same, same, same); err == nil {
		t.Error("three bindings were compared")
	}
}

// A sink that does not keep up costs lines, never a request's time; what is queued at Close is still written.
func TestDecisionLogIsBounded(t *testing.T) {
	hold, entered := make(chan struct{}), make(chan struct{}, 1)
	n := 0
	h := newHost(t, Options{DecisionLog: DecisionLog{Sample: 1, Sink: func([]byte) error {
		select {
		case entered <- struct{}{}:
		default:
		}
		<-hold
		n++
		return nil
	}}})
	mustAdd(t, h, "m", guest(allow(5)).bytes())
	mustActivate(t, h, Binding{Module: "m"}, wide())
	f, d := sampleFacts(), new(Decision)
	h.Decide(f, d)
	<-entered
	for range queuedLogged + 50 {
		h.Decide(f, d)
	}
	if s := h.Stats(); s.LoggedDropped != 50 {
		t.Errorf("stats %+v", s)
	}
	close(hold)
	h.Close()
	if n != queuedLogged+1 {
		t.Errorf("%d lines were written, want %d", n, queuedLogged+1)
	}
}

func TestDecisionLogSamplesByEntropy(t *testing.T) {
	l := newDecisionLog(DecisionLog{Sink: func([]byte) error { return nil }}, nil)
	n := 0
	for i := range uint64(100_000) {
		f := Facts{Entropy: i}
		if l.sample(&f) != nil {
			n++
		}
	}
	if n < 70 || n > 130 {
		t.Errorf("%d of 100,000 requests are in the sample, want about 100", n)
	}
	f, d := sampleFacts(), new(Decision)
	h := newHost(t, Options{DecisionLog: DecisionLog{Sink: func([]byte) error { return nil }}})
	mustAdd(t, h, "m", guest(allow(5)).bytes())
	mustActivate(t, h, Binding{Module: "m"}, wide())
	for f.Entropy = 0; l.sample(f) != nil; f.Entropy++ {
	}
	if n := testing.AllocsPerRun(1000, func() { h.Decide(f, d) }); n != 0 {
		t.Errorf("%v allocations for a request that is not in the sample", n)
	}
}

// lines makes a log of n different requests.
func lines(t testing.TB, n int) []byte {
	var kept logTo
	h := newHost(t, Options{Clock: llm.NewSystemClock(), DecisionLog: kept.options()})
	mustAdd(t, h, "moody", moody(0).bytes())
	mustActivate(t, h, Binding{Module: "moody"}, wide())
	for done := 0; done < n; done += 500 {
		drive(h, 500)
		kept.wait(t, done+500)
	}
	return kept.wait(t, n)
}

// Ten thousand decisions are replayed within two seconds; ten times that is let pass, for other load.
func TestReplayTenThousand(t *testing.T) {
	text := lines(t, 10_000)
	h := newHost(t, Options{Clock: llm.NewSystemClock()})
	mustAdd(t, h, "other", moody(5).bytes())
	began := time.Now()
	r, err := h.Replay(context.Background(), bytes.NewReader(text), Binding{Module: "other"})
	took := time.Since(began)
	if err != nil || r.Compared+r.Skipped < 9_900 || r.Compared < 5_000 || r.Changed == 0 { // a busy machine logs calls that met no free instance
		t.Fatalf("%d compared, %d skipped, %d changed: %v", r.Compared, r.Skipped, r.Changed, err)
	}
	if took > 10*patience*2*time.Second {
		t.Errorf("took %v, want <= 2s and at most ten times that", took)
	}
	t.Logf("%d lines in %v", r.Compared, took)
}

func BenchmarkReplay(b *testing.B) {
	text := lines(b, 1000)
	h := newHost(b, Options{Clock: llm.NewSystemClock()})
	mustAdd(b, h, "other", moody(5).bytes())
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := h.Replay(context.Background(), bytes.NewReader(text), Binding{Module: "other"}); err != nil {
			b.Fatal(err)
		}
	}
}
