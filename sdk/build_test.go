package sdk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/sdk"
)

func write(t testing.TB, dir string, files map[string]string) string {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLanguage(t *testing.T) {
	for lang, source := range map[string]string{sdk.AssemblyScript: "policy.ts", sdk.C: "policy.c", sdk.Rust: "policy.rs", sdk.Go: "policy.go"} {
		if got, err := sdk.Language(write(t, t.TempDir(), map[string]string{source: ""})); got != lang || err != nil {
			t.Errorf("%s is %q, %v", source, got, err)
		}
	}
	for want, files := range map[string]map[string]string{
		"is no policy folder: want one of policy.ts, policy.c, policy.rs, policy.go": {"other.c": ""},
		"holds both policy.ts and policy.c":                                          {"policy.c": "", "policy.ts": ""},
	} {
		dir := write(t, t.TempDir(), files)
		if _, err := sdk.Language(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if _, err := sdk.Build(t.Context(), dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestTemplateRefuses(t *testing.T) {
	for _, c := range []struct{ lang, name, want string }{
		{"cobol", "mine", `unknown language "cobol": want one of assemblyscript, c, rust, go`},
		{"c", "", "policy name"}, {"c", "Mine", "lower-case"}, {"c", "../x", "policy name"}, {"c", "9", "policy name"},
		{"c", strings.Repeat("x", 64), "policy name"},
	} {
		if _, err := sdk.Template(c.lang, c.name); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %q: %v, want %q", c.lang, c.name, err, c.want)
		}
	}
}

// TestTemplateFiles: every folder is complete, carries the name, and leaves nothing to fill in.
func TestTemplateFiles(t *testing.T) {
	own := map[string][]string{
		sdk.AssemblyScript: {".gitignore", "package-lock.json", "package.json", "policy.ts", "tsconfig.json", "weir/abi.ts", "weir/index.ts", "weir/exports.ts"},
		sdk.C:              {"compile_flags.txt", "policy.c", "weir/abi.h", "weir/config.h", "weir/weir.h"},
		sdk.Rust:           {".cargo/config.toml", ".gitignore", "Cargo.toml", "policy.rs", "weir/Cargo.toml", "weir/abi.rs", "weir/lib.rs"},
		sdk.Go:             {"go.mod", "policy.go", "weir/abi.go", "weir/guest_wasip1.go", "weir/weir.go"},
	}
	for _, lang := range sdk.Languages() {
		files, err := sdk.Template(lang, "night-shift")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range append(own[lang], "README.md", "about.json", "cases.json", "schema.json", "weir/README.md") {
			if len(files[name]) == 0 {
				t.Errorf("%s: no %s", lang, name)
			}
		}
		for name, text := range files {
			if strings.Contains(string(text), "{{") && !strings.HasSuffix(name, ".rs") || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "dot-") {
				t.Errorf("%s: %s was left as it is", lang, name)
			}
		}
		if readme := string(files["README.md"]); !strings.HasPrefix(readme, "# night-shift\n") || strings.Contains(readme, "--profile large") != (lang == sdk.Go) {
			t.Errorf("%s: %s", lang, readme)
		}
	}
}

// TestMissingCompiler: without its compiler each language says what to install.
func TestMissingCompiler(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("RUSTC", "/nowhere/rustc")
	for lang, want := range map[string]string{
		sdk.AssemblyScript: "node is not installed: AssemblyScript needs Node.js 20 or newer",
		sdk.C:              "clang is not installed: the C toolchain is clang and lld (Debian, Ubuntu: apt-get install clang lld)",
		sdk.Rust:           "apt-get install",
		sdk.Go:             "go is not installed: policies in Go need Go 1.24",
	} {
		_, err := sdk.Build(t.Context(), folder(t, lang, ""))
		if !errors.Is(err, sdk.ErrNotInstalled) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", lang, err, want)
		}
	}
}

// TestMissingAssemblyScript: Node alone is not enough.
func TestMissingAssemblyScript(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "node"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	dir := write(t, t.TempDir(), map[string]string{"policy.ts": ""})
	if _, err := sdk.Build(t.Context(), dir); !errors.Is(err, sdk.ErrNotInstalled) || !strings.Contains(err.Error(), "run npm ci in "+dir) {
		t.Errorf("%v", err)
	}
}

// TestCompileError: what the compiler said is in the error, with the place.
func TestCompileError(t *testing.T) {
	t.Parallel()
	for lang, c := range map[string]struct{ source, text, want string }{
		sdk.AssemblyScript: {"policy.ts", "export function weir_decide(): i32 { return nothing; }", "policy.ts"},
		sdk.C:              {"policy.c", "#include \"weir/weir.h\"\nint32_t weir_decide(void) { return nothing; }", "policy.c:2:36"},
		sdk.Rust:           {"policy.rs", "#![no_std]\nfn f() -> i32 { nothing }", "policy.rs:2:17"},
		sdk.Go:             {"policy.go", "package main\n\nfunc main() { nothing() }", "policy.go:3:15"},
	} {
		dir := write(t, folder(t, lang, ""), map[string]string{c.source: c.text})
		_, err := sdk.Build(t.Context(), dir)
		if errors.Is(err, sdk.ErrNotInstalled) && !installed(t, lang, err) {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "nothing") {
			t.Errorf("%s: %v, want %q", lang, err, c.want)
		}
	}
}

func TestBrokenDescription(t *testing.T) {
	t.Parallel()
	dir := folder(t, sdk.C, "")
	if _, ok := build(t, sdk.C, dir); !ok {
		return
	}
	write(t, dir, map[string]string{"cases.json": "{\n  \"cases\": [,]\n}"})
	if _, err := sdk.Build(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "cases.json: line 2, column 13: invalid character ','") {
		t.Errorf("%v", err)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := sdk.Build(ctx, folder(t, sdk.C, ""))
	if errors.Is(err, sdk.ErrNotInstalled) {
		installed(t, sdk.C, err)
	} else if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestBuildAll: the modules stand in the order of the folders, whatever their languages, and are what each gives alone.
func TestBuildAll(t *testing.T) {
	t.Parallel()
	var dirs []string
	for i, lang := range []string{sdk.C, sdk.Rust, sdk.C} {
		dirs = append(dirs, write(t, folder(t, lang, ""), map[string]string{"about.json": fmt.Sprintf(`{"name":"%d"}`, i)}))
	}
	made, err := sdk.BuildAll(t.Context(), dirs...)
	if !installed(t, "c and rust", err) {
		return
	}
	for i, wasm := range made {
		if about := fmt.Sprintf(`{"name":"%d"}`, i); !strings.Contains(string(wasm), about) {
			t.Errorf("module %d does not carry %s", i, about)
		}
	}
	alone, err := sdk.Build(t.Context(), dirs[2])
	if err != nil || !bytes.Equal(made[2], alone) {
		t.Errorf("%d bytes alone, %d among others: %v", len(alone), len(made[2]), err)
	}
	if template, ok := source(t, "", sdk.AssemblyScript); ok {
		if fixture, _ := source(t, same, sdk.AssemblyScript); !strings.Contains(string(template), `"mine"`) || !strings.Contains(string(fixture), `"same"`) {
			t.Error("two modules in AssemblyScript changed places")
		}
	}
}

var fence = regexp.MustCompile("(?ms)^```(?:c|rust|go)\\n(.*?)^```$")

// TestREADMEs: the policy that each README begins with is a policy. AssemblyScript's is built with the shipped ones.
func TestREADMEs(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for lang, source := range map[string]string{sdk.C: "policy.c", sdk.Rust: "policy.rs", sdk.Go: "policy.go"} {
		readme, err := os.ReadFile(filepath.Join(lang, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		block := fence.FindSubmatch(readme)
		if block == nil {
			t.Fatalf("%s: no code", lang)
		}
		dir := write(t, folder(t, lang, ""), map[string]string{source: string(block[1]), "cases.json": `{"configure": {"params": {"night_qps": 7}}, "cases": [
			{"name": "other", "facts": {"attributes": {"org_name": "x"}}, "want": {"abstain": true}},
			{"name": "night", "facts": {"attributes": {"org_name": "ent-x"}}, "want": {"dims": [{"kind": "key"}, {"kind": "org", "qps_limit": 7}]}}]}`})
		wasm, ok := build(t, lang, dir)
		if !ok {
			continue
		}
		if lang == sdk.Go {
			continue // that it loads is shown by the template; compiling two megabytes again shows nothing more
		}
		if m, err := h.Add(t.Context(), "readme-"+lang, wasm, sdk.Profile(lang)); err != nil || m.Cases != 2 {
			t.Errorf("%s: %d cases, %v", lang, m.Cases, err)
		}
	}
}
