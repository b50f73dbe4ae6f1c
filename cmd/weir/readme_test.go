package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var block = regexp.MustCompile("(?ms)^```sh( \\w+)?\n(.*?)^```$")

// readme gives the command blocks of README.md that carry a word, in order.
func readme(t *testing.T, word string) []string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range block.FindAllStringSubmatch(string(text), -1) {
		if strings.TrimSpace(m[1]) == word {
			blocks = append(blocks, m[2])
		}
	}
	return blocks
}

// shell runs a block as a reader would paste it, in dir, with this binary in the place of `go run ./cmd/weir`.
func shell(t *testing.T, dir, block string, env map[string]string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", strings.ReplaceAll(block, "go run ./cmd/weir", os.Args[0]))
	c.Dir = dir
	c.Env = append(os.Environ(), asMain+"=1")
	for name, value := range env {
		c.Env = append(c.Env, name+"="+value)
	}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, block, out)
	}
	return string(out)
}

// TestReadmeTour pastes the five-minute tour, block by block, and looks for what each promises.
func TestReadmeTour(t *testing.T) {
	promises := [][]string{
		{`"object":"chat.completion"`, `"content":`},
		{"data: {", "data: [DONE]"},
		{`"429": 18`, `"200": 2`, `"limit_key": "key:1"`, `"retry_after_ms"`, `"first_429_at_index"`},
		{"request_exceeds_limit", `"kind":"tpm"`, `"limit":50`},
		{"finalized", "currentTokens", "gpt-4o-mini"},
		{"Tokens: 20000", "X-Weir-Policy: default@", "X-Weir-Policy: priority@", "Tokens: 10000"},
	}
	blocks := readme(t, "tour")
	if len(blocks) != len(promises) {
		t.Fatalf("the tour has %d blocks, the test knows %d", len(blocks), len(promises))
	}
	env := demo(t)
	for i, b := range blocks {
		out := shell(t, ".", b, env)
		for _, want := range promises[i] {
			if !strings.Contains(out, want) {
				t.Errorf("block %d does not show %q:\n%s\n%s", i+1, want, b, out)
			}
		}
	}
}

// TestReadmePolicy writes, proves, shadows and undoes a policy as the README says. The compiler is the SDK's, so that
// nothing is fetched; on a machine without it, only continuous integration insists.
func TestReadmePolicy(t *testing.T) {
	compiler, err := filepath.Abs("../../sdk/assemblyscript/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(compiler); err != nil && os.Getenv("CI") != "true" {
		t.Log("NOTHING WAS COMPILED: run npm ci in sdk/assemblyscript")
		return
	}
	promises := [][]string{
		{"night.wasm: ", "cases passed, 0 failed", "is stored", "shadow: night@"},
		{"1 decision compared, 1 would change", "decides for 100 % of the keys", "canary 100 % of the keys\n1 decision compared", "operator: default@"},
	}
	env, dir := demo(t), t.TempDir()
	for i, b := range readme(t, "policy") {
		out := shell(t, dir, strings.ReplaceAll(b, "npm ci", "ln -s "+compiler+" node_modules"), env)
		for _, want := range promises[i] {
			if !strings.Contains(out, want) {
				t.Errorf("block %d does not show %q:\n%s\n%s", i+1, want, b, out)
			}
		}
	}
}

// TestReadmeTenant tunes an org's rules with its own key.
func TestReadmeTenant(t *testing.T) {
	env := demo(t)
	must(t, env, "key", "limits", "1", "--qps-limit", "0")
	must(t, env, "tenant", "rules", "set", "--org", "1", "--params", `{"rules":[]}`)
	(&process{t: t, env: env}).warm(env["WEIR_KEY"]) // the block asks once
	out := shell(t, t.TempDir(), readme(t, "tenant")[0], env)
	for _, want := range []string{"short answers", `"output_tokens_cap":64`, `"wouldChange":1`, `"stage":"shadow"`, `"percent":10`, `"endedTrial":{`} {
		if !strings.Contains(out, want) {
			t.Errorf("the tenant's block does not show %q:\n%s", want, out)
		}
	}
}

// TestReadmeMoney proves, exports, copies and restores the demo's ledger.
func TestReadmeMoney(t *testing.T) {
	promises := [][]string{
		{"overrun", "cut", "daily", "weekly"},
		{"entries: credits 100, posted ", "held 0 in 0 open reservations", "next: --from "},
		{"weir.backup: ", "restored: ", "entries: credits 100, posted "},
	}
	env, dir := demo(t), t.TempDir()
	shell(t, dir, readme(t, "tour")[0], env)
	blocks := readme(t, "money")
	if len(blocks) != len(promises) {
		t.Fatalf("%d blocks about money, the test knows %d", len(blocks), len(promises))
	}
	for i, b := range blocks {
		out := shell(t, dir, b, env)
		for _, want := range promises[i] {
			if !strings.Contains(out, want) {
				t.Errorf("block %d does not show %q:\n%s\n%s", i+1, want, b, out)
			}
		}
	}
	for name, want := range map[string]string{"ledger.ndjson": `"kind":"settle"`, "ledger.csv": ",settle,"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s does not show %q: %s, %v", name, want, text, err)
		}
	}
}

// TestReadmeConfig writes the README's configuration and checks it.
func TestReadmeConfig(t *testing.T) {
	blocks := readme(t, "config")
	if len(blocks) != 1 {
		t.Fatalf("%d configuration blocks, want 1", len(blocks))
	}
	out := shell(t, t.TempDir(), blocks[0], nil)
	if !strings.Contains(out, "weir.yaml: ok") {
		t.Errorf("config check said:\n%s", out)
	}
}

// TestReadmeKeys makes a key as the README says, and its first request is not refused.
func TestReadmeKeys(t *testing.T) {
	p := serve(t, "")
	out := shell(t, t.TempDir(), readme(t, "keys")[0], p.env)
	key := regexp.MustCompile(`sk-weir-\w{8}-[\w-]{43}`).FindString(out)
	if got := p.status(key, hello); got != 200 {
		t.Errorf("the first request with %s gets %d:\n%s", key, got, out)
	}
}

// TestReadmeCommands holds the two commands that the README opens with: the first is what demo tests start in process,
// the second is what runs this test.
func TestReadmeCommands(t *testing.T) {
	want := []string{"go run ./cmd/weir demo\n", "go test ./...\n"}
	if got := readme(t, ""); strings.Join(got, "") != strings.Join(want, "") {
		t.Errorf("the README's plain blocks are %q, want %q", got, want)
	}
}

var (
	longCommand = regexp.MustCompile(`^(?:\w+=\w+ )?go test ((?:\./\S+ )+)(?:-run (\S+) )?-(long|kills)\b`)
	longFunc    = regexp.MustCompile(`(?s)^(?:\(\w+ \*?\w+\) )?(\w+)\(.*\*(?:ledger\.)?(long|Long|kills)\b`) // one that looks at a flag
)

// longCheck is a part of a command that runs tests in their long form.
type longCheck struct {
	pkg, flag string
	run       *regexp.Regexp
	found     bool
}

func longChecks(t *testing.T) (all []*longCheck) {
	for line := range strings.Lines(strings.Join(readme(t, "long"), "")) {
		m := longCommand.FindStringSubmatch(line)
		if m == nil {
			if !strings.HasPrefix(line, "# ") {
				t.Errorf("no command: %s", line)
			}
			continue
		}
		for _, pkg := range strings.Fields(m[1]) {
			for part := range strings.SplitSeq(strings.Trim(m[2], "'"), "|") {
				all = append(all, &longCheck{pkg, m[3], regexp.MustCompile(part), false})
			}
		}
	}
	return all
}

// longTests are the tests that have a long form, by package and name, with the flag that asks for it: those that look at a flag
// themselves or through a function that they call. short are all others.
func longTests(t *testing.T) (long map[[2]string]string, short [][2]string) {
	sources, err := filepath.Glob("../../*/*/*_test.go")
	if err != nil || len(sources) < 100 {
		t.Fatal(len(sources), err)
	}
	functions, looks := map[string][]string{}, map[string]map[string]string{} // by package
	for _, file := range sources {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pkg := "./" + strings.TrimPrefix(filepath.ToSlash(filepath.Dir(file)), "../../")
		for fn := range strings.SplitSeq(string(text), "\nfunc ") {
			functions[pkg] = append(functions[pkg], fn)
			if m := longFunc.FindStringSubmatch(fn); m != nil {
				if looks[pkg] == nil {
					looks[pkg] = map[string]string{}
				}
				looks[pkg][m[1]] = strings.ToLower(m[2])
			}
		}
	}
	long = map[[2]string]string{}
	for pkg, fns := range functions {
		for _, fn := range fns {
			name, _, _ := strings.Cut(fn, "(")
			if !strings.HasPrefix(name, "Test") {
				continue
			}
			short = append(short, [2]string{pkg, name})
			for called, flag := range looks[pkg] {
				if called == name || regexp.MustCompile(`\b`+called+`\(`).MatchString(fn) {
					long[[2]string{pkg, name}] = flag
				}
			}
		}
	}
	return long, slices.DeleteFunc(short, func(at [2]string) bool { return long[at] != "" })
}

// TestReadmeLongChecks: these commands are not run here, but each part of them names a test that there is, and no test that looks at
// their flags is left out.
func TestReadmeLongChecks(t *testing.T) {
	checks := longChecks(t)
	names := func(at [2]string, flag string) (named bool) {
		for _, c := range checks {
			if c.pkg == at[0] && c.run.MatchString(at[1]) {
				c.found = true
				named = named || c.flag == flag
			}
		}
		return named
	}
	long, short := longTests(t)
	for at, flag := range long {
		if !names(at, flag) {
			t.Errorf("%s of %s has a long form that the README does not name", at[1], at[0])
		}
	}
	for _, at := range short {
		names(at, "")
	}
	for _, c := range checks {
		if !c.found {
			t.Errorf("no test of %s is called %s", c.pkg, c.run)
		}
	}
}
