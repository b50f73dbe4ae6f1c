package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/policies"
)

const root = "../.."

var sdk = filepath.Join(root, "sdk", "assemblyscript")

// compiler reports whether the AssemblyScript compiler is there. With CI=true it is installed (npm ci), or the test
// fails; without, the test says that it did nothing unless npm ci was run in sdk/assemblyscript.
func compiler(t *testing.T) bool {
	t.Helper()
	if _, err := os.Stat(filepath.Join(sdk, "node_modules")); err == nil {
		return true
	}
	if os.Getenv("CI") != "true" {
		t.Log("NOTHING WAS COMPILED: run npm ci in sdk/assemblyscript, or set CI=true")
		return false
	}
	cmd := exec.Command("npm", "ci")
	cmd.Dir = sdk
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, said)
	}
	return true
}

// TestREADME compiles the policies that the two READMEs show, and runs the cases of the one that has some.
func TestREADME(t *testing.T) {
	if !compiler(t) {
		return
	}
	h, err := policy.NewHost(policy.Options{CacheDir: t.TempDir(), Labels: []string{"team"}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, c := range []struct {
		readme string
		files  []string
		cases  int
	}{
		{filepath.Join(root, "policies", "README.md"), []string{"policy.ts", "schema.json", "cases.json"}, 2},
		{filepath.Join(sdk, "README.md"), []string{"policy.ts"}, 0},
	} {
		dir, err := os.MkdirTemp("..", ".readme-") // the imports are relative to a folder of policies
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		for i, text := range blocks(t, c.readme)[:len(c.files)] {
			if err := os.WriteFile(filepath.Join(dir, c.files[i]), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		wasm, err := build(root, dir)
		if err != nil {
			t.Fatalf("%s: %v", c.readme, err)
		}
		m, err := h.Add(t.Context(), "readme", wasm, "small")
		if err == nil {
			err = h.Activate(t.Context(), &policy.Binding{Module: "readme", Hash: m.Hash, Params: []byte("{}"), OnError: policy.OnErrorDefault},
				policy.Envelope{MaxMultiplier: 1000, MaxBurst: 1000})
		}
		if err != nil || m.Cases != c.cases {
			t.Errorf("%s: %d cases, want %d: %v", c.readme, m.Cases, c.cases, err)
		}
	}
}

// fence is a block of code in a list or outside one.
var fence = regexp.MustCompile("(?ms)^ *```(?:ts|json)\n(.*?)^ *```$")

func blocks(t *testing.T, readme string) (list []string) {
	t.Helper()
	raw, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range fence.FindAllSubmatch(raw, -1) {
		list = append(list, string(m[1]))
	}
	return list
}

func TestMain(m *testing.M) {
	if policy.IsChild(os.Args, os.Stdin, os.Stdout) {
		return
	}
	os.Exit(m.Run())
}

// TestCommittedModules compiles every module again and compares bytes.
func TestCommittedModules(t *testing.T) {
	if !compiler(t) {
		return
	}
	dirs := []string{filepath.Join(sdk, "testdata", "probe")}
	for _, name := range policies.Names() {
		dirs = append(dirs, filepath.Join(root, "policies", name))
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			want, err := build(root, dir)
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(dir, filepath.Base(dir)+".wasm"))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("the committed module (%d bytes) is not what its source gives (%d bytes): run go run ./policies/build %s", len(got), len(want), dir)
			}
		})
	}
}
