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
	"github.com/weir-gateway/weir/sdk"
)

const (
	root      = "../.."
	guestSide = root + "/sdk/assemblyscript"
)

func TestMain(m *testing.M) {
	if policy.IsChild(os.Args, os.Stdin, os.Stdout) {
		return
	}
	os.Exit(m.Run())
}

// TestModules compiles every committed module again and compares bytes, and loads the policies that the two READMEs
// show. It needs the compiler: with CI=true that is installed (npm ci) or the test fails; without, the test says that it
// did nothing unless npm ci was run in sdk/assemblyscript.
func TestModules(t *testing.T) {
	if !installed(t) {
		return
	}
	dirs := []string{guestSide + "/testdata/probe"}
	for _, name := range policies.Names() {
		dirs = append(dirs, root+"/policies/"+name)
	}
	committed := len(dirs)
	dirs = append(dirs, fromREADME(t, root+"/policies/README.md", "policy.ts", "schema.json", "cases.json"), fromREADME(t, guestSide+"/README.md", "policy.ts"))
	modules, err := sdk.BuildAll(t.Context(), dirs...)
	if err != nil {
		t.Fatal(err)
	}
	for i, dir := range dirs[:committed] {
		got, err := os.ReadFile(filepath.Join(dir, filepath.Base(dir)+".wasm"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, modules[i]) {
			t.Errorf("the module committed in %s (%d bytes) is not what its source gives (%d bytes): run go run ./policies/build", dir, len(got), len(modules[i]))
		}
	}
	activate(t, modules[committed], 2)
	activate(t, modules[committed+1], 0)
}

func installed(t *testing.T) bool {
	t.Helper()
	if _, err := os.Stat(filepath.Join(guestSide, "node_modules")); err == nil {
		return true
	}
	if os.Getenv("CI") != "true" {
		t.Log("NOTHING WAS COMPILED: run npm ci in sdk/assemblyscript, or set CI=true")
		return false
	}
	cmd := exec.Command("npm", "ci")
	cmd.Dir = guestSide
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, said)
	}
	return true
}

// fence is a block of code, in a list or outside one.
var fence = regexp.MustCompile("(?ms)^ *```(?:ts|json)\\n(.*?)^ *```$")

// fromREADME makes a policy's folder of the first blocks of code in a README, beside the shipped ones, where the
// imports that it shows are right.
func fromREADME(t *testing.T, readme string, files ...string) string {
	t.Helper()
	raw, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("..", ".readme-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	blocks := fence.FindAllSubmatch(raw, -1)
	if len(blocks) < len(files) {
		t.Fatalf("%s has %d blocks of code, want %d", readme, len(blocks), len(files))
	}
	for i, name := range files {
		if err := os.WriteFile(filepath.Join(dir, name), blocks[i][1], 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// activate loads a module as an operator would; its cases run on the way.
func activate(t *testing.T, wasm []byte, cases int) {
	t.Helper()
	h, err := policy.NewHost(policy.Options{CacheDir: t.TempDir(), Labels: []string{"team"}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	m, err := h.Add(t.Context(), "readme", wasm, "small")
	if err == nil {
		b := policy.Binding{Module: "readme", Hash: m.Hash, Params: []byte("{}"), OnError: policy.OnErrorDefault}
		err = h.Activate(t.Context(), &b, policy.Envelope{MaxMultiplier: 1000, MaxBurst: 1000})
	}
	if err != nil || m.Cases != cases {
		t.Errorf("%d cases, want %d: %v", m.Cases, cases, err)
	}
}
