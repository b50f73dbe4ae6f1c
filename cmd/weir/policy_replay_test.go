package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/policies"
)

// decisions writes a decision log of n lines that a shipped module made, as the gateway would.
func decisions(t *testing.T, dir, module, owner, params string, n int) string {
	t.Helper()
	tiers, labels := []string{"free", "pro"}, []string{"team"}
	h, err := policy.NewHost(policy.Options{Tiers: tiers, Labels: labels})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	wasm, _ := policies.Shipped(module)
	m, err := h.Add(t.Context(), module, wasm, policy.ProfileSmall)
	if err != nil {
		t.Fatal(err)
	}
	b := policy.Binding{Module: m.Name, Hash: m.Hash, Params: []byte(params)}
	r, err := h.Open(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out bytes.Buffer
	random := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		f := policy.Facts{Key: uint64(i % 50), Choices: 1, Input: 100, Entropy: random.Uint64(), Endpoint: 1, Tier: uint32(i % 2), MinuteOfWeek: uint32(i % 10080)}
		f.Attr[policy.AttrModel] = []string{"gpt-4o", "o1-pro", "claude-sonnet-4"}[random.IntN(3)]
		f.Attr[policy.AttrLabel0] = []string{"ops", "research"}[random.IntN(2)]
		var d policy.Decision
		trace := r.Run(&f, &d)
		facts, err := policy.MarshalFacts(&f, tiers, labels)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := policy.MarshalDecision(&d, tiers)
		if err != nil {
			t.Fatal(err)
		}
		line, err := json.Marshal(policy.Logged{Time: "2026-11-30T08:00:00.000Z", Owner: owner, Module: module, Version: b.Version(), Generation: 1,
			Facts: facts, Decision: answer, Fuel: trace.Fuel})
		if err != nil {
			t.Fatal(err)
		}
		out.Write(append(line, '\n'))
	}
	return at(t, dir, owner+".ndjson", out.String())
}

// spent is the CPU time of this process so far: a busy machine does not stretch it.
func spent(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Tables that differ for the model o1-pro only.
const (
	tableA = `{"rules": [{"name": "o1", "when": {"models": ["o1*"]}, "then": {"qps_permille": 500}}]}`
	tableB = `{"rules": [{"name": "no o1", "when": {"models": ["o1*"]}, "then": {"deny": {"message": "ask for o1 first"}}}]}`
)

// TestPolicyReplay: the module that made a log repeats it, another says what it would change, 10,000 lines in 2 s. Ten
// times that is let pass but under -long, for slow machines.
func TestPolicyReplay(t *testing.T) {
	n := 10_000
	if testing.Short() {
		n = 1_000
	}
	log := decisions(t, t.TempDir(), "rules", "operator", tableA, n)
	r := parsed[policy.Report](t, must(t, nil, "policy", "replay", "--from", log, "rules", "--params", tableA, "--json", "--exit-code"))
	if r.Compared != uint64(n) || r.Changed != 0 || r.Candidate == "" {
		t.Errorf("the same module: %+v", r)
	}
	start := spent(t)
	out, stderr, code := weir(t, nil, "policy", "replay", "--from", log, "rules", "--params", tableB, "--json", "--exit-code")
	took, most := spent(t)-start, 20*time.Second*slow
	if *long {
		most = 2 * time.Second
	}
	t.Logf("%d lines took %s of CPU", n, took)
	if took > most {
		t.Errorf("that is more than %s", most)
	}
	r = parsed[policy.Report](t, out)
	if code != exitFail || !strings.Contains(stderr, "of "+grouped(n)+" would change") {
		t.Errorf("--exit-code: exit %d, %s", code, stderr)
	}
	if r.Compared != uint64(n) || r.Changed == 0 || r.Changed != r.Fields["verdict"] || r.Fields["qps_permille"] != r.Changed || len(r.Examples) == 0 || len(r.Examples) > 10 {
		t.Errorf("another table: %+v", r)
	}
	if len(r.Reasons) != 1 || r.Reasons[0].Message != "ask for o1 first" && r.Reasons[0].Message != "no o1" {
		t.Errorf("the rules that fired: %+v", r.Reasons)
	}
	for _, e := range r.Examples {
		if !strings.Contains(string(e.Facts), "o1-pro") {
			t.Errorf("an example that does not differ: %s", e.Facts)
		}
	}
}

func TestPolicyReplayText(t *testing.T) {
	dir := t.TempDir()
	log := decisions(t, dir, "rules", "operator", tableA, 300)
	out := must(t, nil, "policy", "replay", "--from", log, "rules", "--params", tableA, "--against", "default")
	for _, want := range []string{"default@", " -> rules@", "300 decisions compared, ", " would change (", "field qps_permille", "rule 1 o1", "example 1  {", "qps_permille: 1000 -> 500"} {
		if !strings.Contains(out, want) {
			t.Errorf("replay --against lacks %q: %s", want, out)
		}
	}
	for n, wants := range map[string]string{"0": "", "1": "example 1  {"} {
		out = must(t, nil, "policy", "replay", "--from", log, "rules", "--params", tableA, "--against", "default", "--examples", n)
		if got := strings.Count(out, "\nexample "); fmt.Sprint(got) != n || !strings.Contains(out, wants) {
			t.Errorf("--examples %s shows %d: %s", n, got, out)
		}
	}
	out = must(t, nil, "policy", "diff", "rules", "rules", "--params-a", tableA, "--params-b", tableB, "--from", log)
	if !strings.Contains(out, `verdict: "allow" -> "deny"`) {
		t.Errorf("diff says %s", out)
	}
	out = must(t, nil, "policy", "diff", "rules", "rules", "--params", tableA, "--from", log, "--limit", "10")
	if !strings.Contains(out, "10 decisions compared, 0 would change (0.0 %)") {
		t.Errorf("diff of the same says %s", out)
	}
	team := `{"rules": [{"when": {"labels": {"team": ["ops"]}}, "then": {"dimensions": [{"kind": "custom", "value": "team:ops", "qps_limit": 4}]}}]}`
	out = must(t, nil, "policy", "diff", "rules", "rules", "--params-b", team, "--from", log, "--limit", "50")
	if !strings.Contains(out, "dimension custom") || !strings.Contains(out, "dims: as configured -> key, model, global, user, org, custom team:ops (skip_if_absent, qps_limit 4)") {
		t.Errorf("dimensions are shown as %s", out)
	}
}

// TestPolicyReplayOfOwners: a log holds the lines of several owners; one is replayed at a time and the others are named.
func TestPolicyReplayOfOwners(t *testing.T) {
	dir := t.TempDir()
	org := decisions(t, dir, "priority", "org:7", "{}", 20)
	both := at(t, dir, "both.ndjson", read(t, decisions(t, dir, "default", "operator", "{}", 30))+"\n"+read(t, org))
	out := must(t, nil, "policy", "replay", "--from", both, "default")
	if !strings.Contains(out, "30 decisions compared, 0 would change") || !strings.Contains(out, "left out: 20 lines of org:7 priority") {
		t.Errorf("the operator's lines: %s", out)
	}
	out = must(t, nil, "policy", "replay", "--from", both, "priority", "--owner", "org:7")
	if !strings.Contains(out, "20 decisions compared, 0 would change") {
		t.Errorf("the org's lines: %s", out)
	}
	refused(t, exitFail, []string{"policy", "replay", "--from", org, "default"}, "no line of operator; it has lines of org:7 priority")
	refused(t, exitFail, []string{"policy", "replay", "--from", both, "default", "--module", "x"}, "no line of operator and module x")
}

// TestPolicyReplaySkipsATornLine: a line that a dying process has cut spoils none of the others, before or behind it.
func TestPolicyReplaySkipsATornLine(t *testing.T) {
	dir := t.TempDir()
	whole := read(t, decisions(t, dir, "default", "operator", "{}", 3))
	torn := at(t, dir, "torn.ndjson", whole+"\n{\"owner\":\"oper\n"+whole)
	out := must(t, nil, "policy", "replay", "default", "--from", torn)
	if !strings.Contains(out, "6 decisions compared") || !strings.Contains(out, "left out: 1 torn line") {
		t.Errorf("replay says %s", out)
	}
}

func TestPolicyReplayRefuses(t *testing.T) {
	dir := t.TempDir()
	log := decisions(t, dir, "default", "operator", "{}", 3)
	for _, c := range []struct {
		code int
		args []string
		want string
	}{
		{exitUsage, []string{"replay", "default"}, "want --from with a decision log"},
		{exitUsage, []string{"diff", "default", "--from", log}, "takes A B, got 1"},
		{exitUsage, []string{"replay", "default", "--from", log, "--owner", "orgs:1"}, `unknown owner "orgs:1": want operator, org:ID or all`},
		{exitUsage, []string{"replay", "default", "--from", log, "--limit", "-1"}, "--limit: want 0 or more"},
		{exitUsage, []string{"replay", "default", "--from", log, "--against-params", "{}"}, "--against-params belongs to --against"},
		{exitFail, []string{"replay", "default", "--from", filepath.Join(dir, "none")}, "no such file"},
		{exitFail, []string{"replay", "default", "--from", at(t, dir, "empty", "\n\n")}, "no line of operator; it is empty"},
		{exitFail, []string{"replay", "default", "--from", at(t, dir, "text", "oops\n"+read(t, log))}, "text:1: not a line of a decision log: invalid character"},
		{exitFail, []string{"replay", "default", "--from", at(t, dir, "other", `{"level":"info"}`)}, `other:1: not a line of a decision log: it has no "owner"`},
		{exitFail, []string{"replay", "default", "--from", at(t, dir, "facts", `{"owner":"operator","facts":{"nope":1},"decision":{}}`)}, "line 1: facts.nope: unknown field"},
		{exitFail, []string{"replay", "default", "--from", at(t, dir, "long", `{"owner":"`+strings.Repeat("x", 2<<20)+`"}`)}, "token too long"},
		{exitFail, []string{"replay", "default", "--from", log, "--params", `{"rules": 1}`}, "rules: unknown; known are"},
		{exitFail, []string{"replay", "default", "--from", log, "--against", "priority", "--against-params", tableA}, "rules: unknown; known are"},
		{exitUsage, []string{"replay", "defualt", "--from", log}, `did you mean "default"?`},
	} {
		refused(t, c.code, append([]string{"policy"}, c.args...), c.want)
	}
}
