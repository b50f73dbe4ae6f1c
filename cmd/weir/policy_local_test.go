package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/policies"
	"github.com/weir-gateway/weir/sdk"
	"github.com/weir-gateway/weir/sdk/abi"
)

// refused is weir for commands that must fail with a code and one line that says each of words.
func refused(t *testing.T, code int, args []string, words ...string) string {
	t.Helper()
	stdout, stderr, got := weir(t, nil, args...)
	last := stderr[strings.LastIndexByte(strings.TrimSuffix(stderr, "\n"), '\n')+1:]
	if got != code || !strings.HasPrefix(last, "weir: ") {
		t.Errorf("weir %s: exit %d, want %d and one line of error: %s%s", strings.Join(args, " "), got, code, stdout, stderr)
	}
	for _, w := range words {
		if !strings.Contains(stderr, w) {
			t.Errorf("weir %s says %q, want %q in it", strings.Join(args, " "), stderr, w)
		}
	}
	return stdout
}

func parsed[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// at writes a file of a test's folder and gives its path.
func at(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// shippedFolder is a copy of a shipped policy's folder, with its module and without a compiler for it.
func shippedFolder(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("..", "..", "policies", name))); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", "")
	return dir
}

// withSection is a module with one more custom section.
func withSection(wasm []byte, name, content string) []byte {
	body := append(binary.AppendUvarint(nil, uint64(len(name))), name+content...)
	return append(binary.AppendUvarint(append(slices.Clone(wasm), 0), uint64(len(body))), body...)
}

// traps is a module that logs a line and traps when it is to decide.
func traps() []byte {
	section := func(id byte, body string) string { return string([]byte{id, byte(len(body))}) + body }
	name := func(s string) string { return string([]byte{byte(len(s))}) + s }
	export := func(s string, kind, index byte) string { return name(s) + string([]byte{kind, index}) }
	return []byte("\x00asm\x01\x00\x00\x00" +
		section(1, "\x02\x60\x00\x01\x7f\x60\x03\x7f\x7f\x7f\x00") + // ()->i32, (i32 i32 i32)->()
		section(2, "\x01"+name("weir")+name("log")+"\x00\x01") +
		section(3, "\x04\x00\x00\x00\x00") +
		section(5, "\x01\x01\x01\x10") +
		section(7, "\x05"+export("memory", 2, 0)+export(abi.ExportVersion, 0, 1)+export(abi.ExportRequest, 0, 2)+
			export(abi.ExportResponse, 0, 3)+export(abi.ExportDecide, 0, 4)) +
		section(10, "\x04"+
			"\x06\x00\x41\x80\x80\x04\x0b"+ // version: 1.0
			"\x05\x00\x41\x80\x20\x0b"+ // the request at 4096
			"\x06\x00\x41\x80\xc0\x00\x0b"+ // the response at 8192
			"\x0b\x00\x41"+string([]byte{abi.LogWarn})+"\x41\x08\x41\x05\x10\x00\x00\x0b") + // log(warn, 8, 5), trap
		section(11, "\x01\x00\x41\x08\x0b\x05hello"))
}

func TestPolicyNew(t *testing.T) {
	for _, lang := range sdk.Languages() {
		dir := filepath.Join(t.TempDir(), "mine")
		out := parsed[struct {
			Dir, Language, Profile string
			Files                  []string
		}](t, must(t, nil, "policy", "new", "mine", "--lang", lang, "--dir", dir, "--json"))
		if out.Dir != dir || out.Language != lang || out.Profile != sdk.Profile(lang) || len(out.Files) < 8 {
			t.Errorf("%s: %+v", lang, out)
		}
		for _, name := range out.Files {
			read(t, filepath.Join(dir, name))
		}
		if got, err := sdk.Language(dir); got != lang {
			t.Errorf("%s: the folder is %q, %v", lang, got, err)
		}
	}
	dir := filepath.Join(t.TempDir(), "mine")
	out := must(t, nil, "policy", "new", "mine", "--dir", dir)
	if !strings.Contains(out, "npm ci") || !strings.Contains(out, "weir policy test "+dir) {
		t.Errorf("it does not say what comes next: %s", out)
	}
	if err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.Contains(out, "\n  "+name+"\n") {
			t.Errorf("it does not say that it writes %s: %s", name, out)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	refused(t, exitFail, []string{"policy", "new", "mine", "--dir", dir}, dir+" is not empty")
	refused(t, exitFail, []string{"policy", "new", "mine", "--dir", filepath.Join(dir, "about.json")}, "want a new or empty folder")
	refused(t, exitUsage, []string{"policy", "new", "mine", "--lang", "assembly-script"}, `did you mean "assemblyscript"?`)
	refused(t, exitUsage, []string{"policy", "new", "../mine"}, "want a lower-case letter")
	refused(t, exitUsage, []string{"policy", "new"}, "takes NAME, got 0 argument(s)")
	refused(t, exitUsage, []string{"policy", "nwe"}, `did you mean "new"?`)
}

// TestPolicyBuildChecksTheFolder: what an upload would not take of it is told before it is compiled.
func TestPolicyBuildChecksTheFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mine")
	must(t, nil, "policy", "new", "mine", "--lang", "c", "--dir", dir)
	about := read(t, filepath.Join(dir, "about.json"))
	at(t, dir, "about.json", strings.Replace(about, `"mine"`, `"Weird Name"`, 1))
	refused(t, exitFail, []string{"policy", "build", dir}, "about.json: expected 1 to 64 letters", "Weird Name")
	at(t, dir, "about.json", about)
	at(t, dir, "schema.json", `{"type":"object","properties":{"cap":{"type":"objekt"}}}`)
	refused(t, exitFail, []string{"policy", "build", dir}, filepath.Join(dir, "schema.json")+": no JSON Schema: properties.cap.type: expected", `did you mean "object"?`)
}

// TestPolicyTestNamesFunctions: a function that no case reaches is told by its name, which the module does not carry.
func TestPolicyTestNamesFunctions(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mine")
	must(t, nil, "policy", "new", "mine", "--lang", "c", "--dir", dir)
	wasm, err := sdk.Build(t.Context(), dir)
	if errors.Is(err, sdk.ErrNotInstalled) && os.Getenv("CI") != "true" {
		t.Log("NOTHING WAS COMPILED: " + err.Error())
		return
	}
	if out := must(t, nil, "policy", "test", dir); !strings.Contains(out, "never: weir_json_unescape\n") {
		t.Errorf("test says %s", out)
	}
	if err != nil || bytes.Contains(wasm, []byte("weir_json_unescape")) {
		t.Errorf("the module carries names, or there is none: %v", err)
	}
}

// compiler gives a folder the AssemblyScript compiler that is installed beside the SDK; false: it is not installed here.
func compiler(t *testing.T, dir string) bool {
	t.Helper()
	home, err := filepath.Abs(filepath.Join("..", "..", "sdk", "assemblyscript", "node_modules"))
	if err == nil {
		_, err = os.Stat(home)
	}
	if err == nil {
		err = os.Symlink(home, filepath.Join(dir, "node_modules"))
	}
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("npm ci has not run in sdk/assemblyscript: %v", err)
	}
	return err == nil
}

// TestPolicyWrittenInAssemblyScript is the author's way: a new folder builds, passes its cases, and what the compiler
// says of a mistake is shown.
func TestPolicyWrittenInAssemblyScript(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mine")
	must(t, nil, "policy", "new", "mine", "--dir", dir)
	if !compiler(t, dir) {
		refused(t, exitFail, []string{"policy", "build", dir}, "is not installed: run npm ci in "+dir)
		return
	}
	built := parsed[struct {
		File, Name, Version, Profile string
		Bytes                        int
	}](t, must(t, nil, "policy", "build", dir, "--json"))
	if built.File != filepath.Join(dir, "mine.wasm") || built.Name != "mine" || len(built.Version) != 12 || built.Bytes != len(read(t, built.File)) {
		t.Errorf("built %+v", built)
	}
	if out := must(t, nil, "policy", "test", built.File); !strings.Contains(out, "mine "+built.Version+": 3 cases passed, 0 failed") {
		t.Errorf("test says %s", out)
	}
	out := must(t, nil, "policy", "run", built.File, "-f", `{"minute_of_week": 720, "attributes": {"team": "a"}}`, "--params", `{"team_qps": 7}`)
	if !strings.Contains(out, `"value": "team:a"`) || !strings.Contains(out, `"qps_limit": 7`) {
		t.Errorf("run says %s", out)
	}
	source := filepath.Join(dir, "policy.ts")
	at(t, dir, "policy.ts", strings.Replace(read(t, source), "decision.reset()", "decision.resett()", 1))
	refused(t, exitFail, []string{"policy", "build", dir}, "resett", "policy.ts", dir+" does not compile (")
	if !strings.HasPrefix(read(t, built.File), "\x00asm") {
		t.Error("a failed build took the old module away")
	}
}

// TestPolicyWrittenInC: a folder stands for its module wherever one is asked for.
func TestPolicyWrittenInC(t *testing.T) {
	for _, tool := range []string{"clang", "wasm-ld"} {
		if _, err := exec.LookPath(tool); err != nil && os.Getenv("CI") != "true" {
			return
		}
	}
	dir := filepath.Join(t.TempDir(), "in-c")
	must(t, nil, "policy", "new", "mine", "--lang", "c", "--dir", dir)
	if out := must(t, nil, "policy", "test", dir); !strings.Contains(out, "mine ") || !strings.Contains(out, ": 3 cases passed, 0 failed") {
		t.Errorf("test says %s", out)
	}
	t.Chdir(dir)
	must(t, nil, "policy", "check")
	must(t, nil, "policy", "build")
	if s := read(t, filepath.Join(dir, "mine.wasm")); !strings.HasPrefix(s, "\x00asm") {
		t.Errorf("build wrote %.20q", s)
	}
}

func TestPolicyBuildRefuses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mine")
	must(t, nil, "policy", "new", "mine", "--lang", "c", "--dir", dir)
	t.Setenv("PATH", "")
	refused(t, exitFail, []string{"policy", "build", dir}, "clang is not installed", "apt-get install clang lld")
	refused(t, exitFail, []string{"policy", "build", t.TempDir()}, "is no policy folder: want one of policy.ts")
	refused(t, exitFail, []string{"policy", "build", filepath.Join(dir, "nowhere")}, "is no policy folder")
	refused(t, exitUsage, []string{"policy", "build", dir, dir}, "takes [DIR], got 2")
}

func TestPolicyCheck(t *testing.T) {
	names := policies.Names()
	if testing.Short() {
		names = names[:2]
	}
	for _, name := range names {
		out := must(t, nil, "policy", "check", name)
		for _, want := range []string{"profile small", "functions", "weir_decide ()->(i32)", "custom weir.cases", "of 200,000", "\nok\n"} {
			if !strings.Contains(out, want) {
				t.Errorf("check %s lacks %q: %s", name, want, out)
			}
		}
	}
	type checked struct {
		OK      bool
		Error   string
		Version string
		Caps    []struct{ Name string }
		Cases   []struct{ Passed bool }
	}
	if c := parsed[checked](t, must(t, nil, "policy", "check", "default", "--json")); !c.OK || len(c.Caps) < 10 || len(c.Cases) < 5 || len(c.Version) != 12 {
		t.Errorf("check --json: %+v", c)
	}
	dir := t.TempDir()
	wasm, _ := policies.Shipped("default")
	_, bare := splitSection(wasm, abi.SectionCases)
	wrong := at(t, dir, "wrong.wasm", string(withSection(bare, abi.SectionCases,
		`{"configure":{"tiers":[],"labels":[]},"cases":[{"name":"odd","facts":{},"want":{"qps_permille":7}}]}`)))
	if out := refused(t, exitFail, []string{"policy", "check", wrong}, "1 case of 1 failed"); !strings.Contains(out, "FAIL  odd\n        qps_permille: got 1000, want 7") || strings.Contains(out, "ok\n") {
		t.Errorf("a failing case is shown as %s", out)
	}
	out, _, code := weir(t, nil, "policy", "check", wrong, "--json")
	if c := parsed[checked](t, out); code != exitFail || c.OK || c.Error == "" || len(c.Cases) != 1 {
		t.Errorf("check --json of a failing case: exit %d, %+v", code, c)
	}
	if out := must(t, nil, "policy", "check", at(t, dir, "bare.wasm", string(bare))); !strings.Contains(out, "no cases to measure") {
		t.Errorf("a module without cases: %s", out)
	}
}

// TestPolicyCheckRefuses (P03): what an upload would refuse is refused here, with the reason.
func TestPolicyCheckRefuses(t *testing.T) {
	dir := t.TempDir()
	wasm, _ := policies.Shipped("default")
	for _, c := range []struct{ name, content, want string }{
		{"empty", "", "policy module refused"},
		{"text", "not a module", "policy module refused"},
		{"half", string(wasm[:len(wasm)/2]), "policy module refused"},
		{"vast", string(make([]byte, maxModuleBytes+1)), "larger than 16 MiB"},
		{"cases", string(withSection(wasm[:8], abi.SectionCases, "{")), "policy module refused"},
	} {
		refused(t, exitFail, []string{"policy", "check", at(t, dir, c.name+".wasm", c.content)}, c.want)
	}
	refused(t, exitUsage, []string{"policy", "check", "defualt"}, "no such file or folder", `did you mean "default"?`)
	refused(t, exitUsage, []string{"policy", "check", "zzzzzz"}, "the modules that come with weir are burst, business-hours")
	refused(t, exitFail, []string{"policy", "check", "default", "--profile", "medium"}, `unknown profile "medium": want "small" or "large"`)
	refused(t, exitFail, []string{"policy", "check", dir}, "is no policy folder")
	t.Chdir(dir)
	refused(t, exitFail, []string{"policy", "check"}, ". is no policy folder")
	refused(t, exitUsage, []string{"policy", "check", "a", "b"}, "takes DIR|FILE.wasm|NAME, got 2")
}

const ruleTable = `{"rules": [
  {"name": "no o1", "when": {"models": ["o1*"]}, "then": {"deny": {"message": "ask for o1 first"}}},
  {"name": "cheap", "when": {"models": ["gpt-4o*"], "labels": {"team": ["ops"]}}, "then": {"qps_permille": 500}}]}`

func TestPolicyRun(t *testing.T) {
	dir := t.TempDir()
	table := at(t, dir, "rules.json", ruleTable)
	facts := at(t, dir, "facts.json", `{"attributes": {"model": "gpt-4o-mini", "team": "ops"}}`)
	out := must(t, nil, "policy", "run", "rules", "-f", facts, "--params", table)
	for _, want := range []string{`"qps_permille": 500`, "rule    2 cheap", " of 200,000 (", "memory  64 KiB", "module  rules@"} {
		if !strings.Contains(out, want) {
			t.Errorf("run lacks %q: %s", want, out)
		}
	}
	type result struct {
		Version  string
		Decision struct {
			Verdict string
			Message string
			Abstain bool
		}
		Rule        *firedRule
		Fuel        uint64
		FuelAllowed uint64 `json:"fuel_allowed"`
	}
	r := parsed[result](t, must(t, nil, "policy", "run", "rules", "--json", "--params", ruleTable, "-f", `{"owner": "operator", "facts": {"attributes": {"model": "o1-pro"}}}`))
	if r.Decision.Verdict != "deny" || r.Decision.Message != "ask for o1 first" || r.Rule == nil || r.Rule.Number != 1 || r.Fuel == 0 || r.FuelAllowed != 200_000 {
		t.Errorf("run --json: %+v", r)
	}
	r = parsed[result](t, must(t, nil, "policy", "run", "rules", "--json", "-f", `{}`))
	if !r.Decision.Abstain || r.Rule != nil || len(r.Version) != 12 {
		t.Errorf("run without a rule: %+v", r)
	}
	tiers := must(t, nil, "policy", "run", "rules", "--tiers", "gold", "--labels", "site", "-f", `{"tier": "gold", "attributes": {"site": "a"}}`,
		"--params", `{"rules": [{"name": "g", "when": {"tiers": ["gold"], "labels": {"site": ["a"]}}, "then": {"tpm_permille": 2000}}]}`)
	if !strings.Contains(tiers, `"tpm_permille": 2000`) {
		t.Errorf("tiers and labels of flags: %s", tiers)
	}
}

// TestPolicyRunOfUnfinished: a module whose own cases fail can be tried, under its own version; a gateway refuses it.
func TestPolicyRunOfUnfinished(t *testing.T) {
	_, bare := splitSection(must1(policies.Shipped("default")), abi.SectionCases)
	wasm := withSection(bare, abi.SectionCases, `{"configure":{"tiers":["gold"],"labels":[]},"cases":[{"name":"odd","facts":{},"want":{"qps_permille":7}}]}`)
	file := at(t, t.TempDir(), "wrong.wasm", string(wasm))
	s := subject{wasm: wasm}
	if out := must(t, nil, "policy", "run", file, "-f", `{"tier": "gold"}`); !strings.Contains(out, "module  wrong@"+s.version(nil)+"\n") {
		t.Errorf("run says %s", out)
	}
	refused(t, exitFail, []string{"policy", "replay", file, "--from", decisions(t, t.TempDir(), "default", "operator", "{}", 1)}, `case "odd"`)
}

// TestPolicyRunFault: a module that fails shows what it said, and the command fails.
func TestPolicyRunFault(t *testing.T) {
	file := at(t, t.TempDir(), "bad.wasm", string(traps()))
	out := refused(t, exitFail, []string{"policy", "run", file, "-f", "{}"}, "bad did not decide: trap", "on_error")
	if !strings.Contains(out, "log     warn: hello\n") {
		t.Errorf("its log is missing: %s", out)
	}
	refused(t, exitFail, []string{"policy", "bench", file, "-f", "{}", "--time", "1ms"}, "did not decide in")
}

func TestPolicyRunRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		code int
		args []string
		want string
	}{
		{exitUsage, []string{}, "needs -f with the facts"},
		{exitFail, []string{"-f", filepath.Join(dir, "none.json")}, "-f: want a JSON file, - or a JSON object"},
		{exitFail, []string{"-f", at(t, dir, "bad.json", "{\n  \"a\": ,\n}")}, "bad.json:2:8: invalid character"},
		{exitFail, []string{"-f", at(t, dir, "empty.json", "")}, "unexpected end of JSON input"},
		{exitFail, []string{"-f", `{"input_token": 1}`}, `nearest: "input_tokens"`},
		{exitFail, []string{"-f", `{"attributes": {"squad": "a"}}`}, "labels are named with --labels or -c"},
		{exitFail, []string{"-f", `{"tier": "gold"}`}, "tiers are named with --tiers or -c"},
		{exitFail, []string{"-f", at(t, dir, "two.json", "[{}, {}]")}, "want the facts of one request, got 2"},
		{exitFail, []string{"-f", at(t, dir, "zero.json", "[]")}, "got an empty list"},
		{exitFail, []string{"-f", at(t, dir, "three.json", "3")}, "three.json: want a JSON object of facts"},
		{exitFail, []string{"-f", "{}", "--params", at(t, dir, "list.json", "[1]")}, "want a JSON object"},
		{exitFail, []string{"-f", "{}", "--params", `{"rules": 3}`}, "rules: expected a list; got 3"},
		{exitFail, []string{"-f", "{}", "--params", `{"rules": [{"when": {"tiers": ["nope"]}}]}`}, "nope"},
		{exitFail, []string{"-f", "{}", "--labels", "a,b", "--params", `{"rules": [{"when": {"labels": {"c": ["*"]}}, "then": {"tier": "pro"}}]}`}, "labels here: a, b; --tiers, --labels and -c name the gateway's"},
		{exitFail, []string{"-f", "{}", "-c", filepath.Join(dir, "weir.yaml")}, "weir.yaml"},
	} {
		refused(t, c.code, append([]string{"policy", "run", "rules"}, c.args...), c.want)
	}
}

// TestPolicyNamesFromConfiguration: -c gives the gateway's tiers and labels, without its secrets.
func TestPolicyNamesFromConfiguration(t *testing.T) {
	out := must(t, nil, "policy", "run", "default", "-c", filepath.Join("..", "..", "examples", "weir.yaml"), "-f", "{}")
	if !strings.Contains(out, "abstain") {
		t.Errorf("run says %s", out)
	}
}

func TestPolicyBench(t *testing.T) {
	type measured struct {
		Calls       uint64
		NS          float64 `json:"ns_per_call"`
		PerSecond   float64 `json:"calls_per_second"`
		Fuel        uint64
		FuelAllowed uint64 `json:"fuel_allowed"`
		Memory      uint64 `json:"memory_bytes"`
	}
	m := parsed[measured](t, must(t, nil, "policy", "bench", "priority", "--time", "20ms", "--json"))
	if m.Calls == 0 || m.NS <= 0 || m.PerSecond <= 0 || m.Fuel == 0 || m.FuelAllowed != 200_000 || m.Memory != 1<<16 {
		t.Errorf("bench: %+v", m)
	}
	out := must(t, nil, "policy", "bench", "rules", "--time", "5ms", "-f", at(t, t.TempDir(), "facts.json", `[{}, {"attributes": {"model": "o1"}}]`), "--params", ruleTable)
	if !strings.Contains(out, "ns a call") || !strings.Contains(out, "of 200,000") {
		t.Errorf("bench says %s", out)
	}
	_, bare := splitSection(must1(policies.Shipped("default")), abi.SectionCases)
	file := at(t, t.TempDir(), "bare.wasm", string(bare))
	refused(t, exitUsage, []string{"policy", "bench", file}, "has no cases of its own to run: give facts with -f")
	refused(t, exitUsage, []string{"policy", "bench", "default", "--time", "0s"}, "want more than 0")
}

func must1(wasm []byte, ok bool) []byte {
	if !ok {
		panic("it is shipped")
	}
	return wasm
}

func TestPolicyTestOfModule(t *testing.T) {
	out := must(t, nil, "policy", "test", "rules", "-v")
	if !strings.Contains(out, "ok    no rule fires  fuel ") || !strings.Contains(out, "weir_decide") || !strings.Contains(out, " reached (") {
		t.Errorf("test -v: %s", out)
	}
	type tested struct {
		Passed, Failed int
		Cases          []struct{ File, Name string }
		Coverage       struct {
			Functions, Run int
			Each           []struct {
				Name  string
				Calls uint64
			}
		}
	}
	r := parsed[tested](t, must(t, nil, "policy", "test", "rules", "--run", "^no rule", "--json"))
	if r.Passed != len(r.Cases) || r.Passed == 0 || r.Failed != 0 || r.Coverage.Run == 0 || len(r.Coverage.Each) != r.Coverage.Functions {
		t.Errorf("test --json: %+v", r)
	}
	for _, c := range r.Cases {
		if !strings.HasPrefix(c.Name, "no rule") {
			t.Errorf("--run let %q through", c.Name)
		}
	}
	refused(t, exitFail, []string{"policy", "test", "rules", "--run", "zzz"}, `no case of rules matches "zzz"`)
	refused(t, exitUsage, []string{"policy", "test", "rules", "--run", "("}, "--run: error parsing regexp")
	for _, run := range [][]string{{"-run", "^no rule"}, {"-run=^no rule"}, {"-r", "^no rule"}} {
		if again := parsed[tested](t, must(t, nil, append([]string{"policy", "test", "rules", "--json"}, run...)...)); again.Passed != r.Passed {
			t.Errorf("%s: %d passed, want %d", run, again.Passed, r.Passed)
		}
	}
	refused(t, exitUsage, []string{"policy", "test", "rules", "--update"}, "--update writes into a policy folder")
	refused(t, exitFail, []string{"policy", "test", at(t, t.TempDir(), "bad.wasm", string(traps()))}, "carries no cases")
}

// TestPolicyRunInANamedZone: the table that a gateway would put in force is accepted for a dry look, zones and all.
func TestPolicyRunInANamedZone(t *testing.T) {
	const table = `{"zone":"Europe/Berlin","rules":[{"name":"morning","when":{"hours":{"from":"08:00","to":"09:00"}}}]}`
	at := func(hour int, month time.Month) string {
		return fmt.Sprintf(`{"now_ms": %d}`, time.Date(2026, month, 1, hour, 30, 0, 0, time.UTC).UnixMilli())
	}
	for facts, fired := range map[string]bool{at(7, time.January): true, at(6, time.January): false, at(7, time.July): false, at(6, time.July): true} {
		if out := must(t, nil, "policy", "run", "rules", "-f", facts, "--params", table); strings.Contains(out, "rule    1 morning") != fired {
			t.Errorf("%s: fired is not %v: %s", facts, fired, out)
		}
	}
	refused(t, exitFail, []string{"policy", "run", "rules", "-f", "{}", "--params", strings.Replace(table, "Berlin", "Berln", 1)}, `nearest: "Europe/Berlin"`)
}

// TestPolicyStale: a module that is older than its source is not taken for what the source says in silence.
func TestPolicyStale(t *testing.T) {
	dir := shippedFolder(t, "default")
	built := filepath.Join(dir, "default.wasm")
	const note = "default.wasm may be stale: policy.ts is newer; weir policy build "
	for _, what := range []string{dir, built} {
		if _, stderr, code := weir(t, nil, "policy", "test", what); code != exitDone || strings.Contains(stderr, "stale") {
			t.Errorf("fresh %s: exit %d, %s", what, code, stderr)
		}
	}
	info, err := os.Stat(built)
	if err == nil {
		changed := info.ModTime().Add(time.Minute)
		err = os.Chtimes(filepath.Join(dir, "policy.ts"), changed, changed)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{dir, built} {
		if _, stderr, code := weir(t, nil, "policy", "test", what); code != exitDone || !strings.Contains(stderr, note) {
			t.Errorf("stale %s: exit %d, %s", what, code, stderr)
		}
	}
}

// TestPolicyGolden: what differs fails; --update writes the answers into the cases and leaves the rest of the file alone.
func TestPolicyGolden(t *testing.T) {
	dir := shippedFolder(t, "default")
	const file = `{
  "cases": [
    {"name": "a tier",   "facts": {"tier": "free", "attributes": {"tier": "pro"}}, "want": {"tier": "free", "abstain": true}},
    {"name": "new", "facts": {"attributes": {}}
    }
  ],
  "configure": {"tiers": ["free", "pro"], "labels": ["tier"]}
}`
	path := at(t, dir, "cases/tiers.json", strings.ReplaceAll(file, `"attributes": {"tier": "pro"}`, `"attributes": {"model": "m"}`))
	stdout, stderr, code := weir(t, nil, "policy", "test", dir)
	if code != exitFail || !strings.Contains(stdout, "it has no want; --update writes what the module answers") || !strings.Contains(stderr, "as it was built earlier") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	stdout, stderr, code = weir(t, nil, "policy", "test", dir, "--update")
	if code != exitDone || !strings.Contains(stdout, "2 cases updated") || !strings.Contains(stdout, ", 0 failed") {
		t.Fatalf("exit %d: %s%s", code, stdout, stderr)
	}
	got := read(t, path)
	for _, want := range []string{`{"name": "a tier",   "facts"`, `"want": {"tier": "", "abstain": true}}`, `"facts": {"attributes": {}}, "want": {"abstain": true}` + "\n    }"} {
		if !strings.Contains(got, want) {
			t.Errorf("the file lacks %q: %s", want, got)
		}
	}
	if must(t, nil, "policy", "test", dir, "--update"); read(t, path) != got {
		t.Error("a second update changed the file")
	}
	for name, c := range map[string]struct{ text, want string }{
		"json":   {`{"cases": [}`, "cases/tiers.json:1:12"},
		"member": {`{"case": []}`, `unknown field "case"`},
		"facts":  {`{"cases": [{"name": "x", "facts": {"nope": 1}, "want": {}}]}`, `cases/tiers.json: case "x": facts.nope: unknown field`},
		"want":   {`{"cases": [{"name": "x", "facts": {}, "want": {"qps": 1}}]}`, `case "x": want.qps: unknown`},
	} {
		at(t, dir, "cases/tiers.json", c.text)
		t.Run(name, func(t *testing.T) { refused(t, exitFail, []string{"policy", "test", dir}, c.want) })
	}
	if err := os.RemoveAll(filepath.Join(dir, "cases")); err != nil {
		t.Fatal(err)
	}
	at(t, dir, "cases.json", `{"cases": []}`)
	refused(t, exitFail, []string{"policy", "test", dir}, "has no cases: those of "+filepath.Join(dir, "cases.json")+" are an empty list")
	if err := os.Remove(filepath.Join(dir, "cases.json")); err != nil {
		t.Fatal(err)
	}
	refused(t, exitFail, []string{"policy", "test", dir}, "has no cases: want cases.json or cases/*.json")
}

// TestGoldenKeepsWhatFailed: an update never turns a module's failure into what is wanted.
func TestGoldenKeepsWhatFailed(t *testing.T) {
	for _, c := range []struct{ old, got, want string }{
		{`{"abstain": false}`, `{"abstain":true,"fault":"trap"}`, ``},
		{`{"fault": "fuel"}`, `{"abstain":true,"fault":"trap"}`, `{"fault": "trap"}`},
		{`{"qps_permille": 5}`, `{"qps_permille":5,"fault":""}`, ``},
		{`{"dims": [{"kind": "key"}]}`, `{"dims":[{"kind":"model","tier":""},{"kind":"custom","value":"a","shadow":false}],"fault":""}`,
			`{"dims": [{"kind": "model"}, {"kind": "custom", "value": "a"}]}`},
		{``, `{"abstain":false,"verdict":"deny","status":429,"qps_permille":1000,"dims":[{"kind":"key","qps_limit":0}],"fault":""}`,
			`{"abstain": false, "verdict": "deny", "status": 429, "dims": [{"kind": "key"}]}`},
	} {
		var old []byte
		if c.old != "" {
			old = []byte(c.old)
		}
		got, err := golden(old, []byte(c.got))
		if err != nil || string(got) != c.want {
			t.Errorf("golden(%s, %s) = %s, %v; want %s", c.old, c.got, got, err, c.want)
		}
	}
}

// TestSplitSection: sections are found and taken out; what is cut short anywhere is left as it is.
func TestSplitSection(t *testing.T) {
	wasm, _ := policies.Shipped("default")
	content, rest := splitSection(wasm, abi.SectionCases)
	if !json.Valid(content) || bytes.Contains(rest, content) || len(rest) >= len(wasm)-len(content) {
		t.Errorf("%d bytes of content, %d of %d left", len(content), len(rest), len(wasm))
	}
	for n := range len(wasm) {
		splitSection(wasm[:n], abi.SectionCases)
		splitSection(wasm[:n], "nowhere")
	}
	if content, rest := splitSection(wasm, "nowhere"); content != nil || !bytes.Equal(rest, wasm) {
		t.Error("a section that is not there was found")
	}
	if got := []string{grouped(uint64(1234567)), grouped(12), grouped(123)}; !slices.Equal(got, []string{"1,234,567", "12", "123"}) {
		t.Error("numbers are grouped wrongly")
	}
}
