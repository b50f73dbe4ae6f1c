package sdk_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/sdk"
)

var update = flag.Bool("update", false, "write the modules of testdata instead of comparing them")

func TestMain(m *testing.M) {
	if policy.IsChild(os.Args, os.Stdin, os.Stdout) {
		return
	}
	os.Exit(m.Run())
}

func ci() bool { return os.Getenv("CI") == "true" }

// folder writes a language's template, with another policy's files in place of its own if one is given.
func folder(t testing.TB, lang, fixture string) string {
	t.Helper()
	files, err := sdk.Template(lang, "mine")
	if err != nil {
		t.Fatal(err)
	}
	if fixture != "" {
		for _, name := range []string{"schema.json", "cases.json", "about.json"} {
			delete(files, name)
		}
		other, err := filepath.Glob(filepath.Join(fixture, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range other {
			name := filepath.Base(path)
			if _, mine := files[name]; strings.HasSuffix(name, ".json") || mine {
				if files[name], err = os.ReadFile(path); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if lang == sdk.AssemblyScript {
		link(t, dir)
	}
	return dir
}

// link gives a folder the compiler that npm ci installed beside the SDK.
func link(t testing.TB, dir string) {
	t.Helper()
	home, err := filepath.Abs("assemblyscript")
	if err != nil {
		t.Fatal(err)
	}
	modules := filepath.Join(home, "node_modules")
	if _, err := os.Stat(modules); err != nil {
		if !ci() {
			return
		}
		npmCI(t, home)
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
}

func npmCI(t testing.TB, dir string) {
	t.Helper()
	cmd := exec.Command("npm", "ci", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, said)
	}
}

// build builds a folder; false, and a line in the log, when the compiler is not installed and this is not CI.
func build(t testing.TB, lang, dir string) ([]byte, bool) {
	t.Helper()
	wasm, err := sdk.Build(t.Context(), dir)
	return wasm, installed(t, lang, err)
}

// installed ends the test on an error of Build, unless it is only that there is no compiler, outside CI.
func installed(t testing.TB, lang string, err error) bool {
	t.Helper()
	if errors.Is(err, sdk.ErrNotInstalled) && !ci() {
		t.Logf("NOT BUILT: %s: %v", lang, err)
		return false
	}
	if err != nil {
		t.Fatalf("%s: %v", lang, err)
	}
	return true
}

// once remembers what was built: several tests look at one fixture.
type once[T any] struct {
	sync.Mutex
	done  bool
	value T
}

func (o *once[T]) get(make func() T) T {
	o.Lock()
	defer o.Unlock()
	if !o.done {
		o.value = make() // may end the test: then the next one tries again
		o.done = true
	}
	return o.value
}

var (
	fixtures sync.Map // path -> *once[[]byte]
	scripts  once[[][]byte]
)

// module builds a fixture in one language from its source. A committed module stands in for a compiler that is not
// installed; in CI, where the compilers are Debian's, it must be what the source gives, byte for byte.
func module(t testing.TB, fixture, lang string) ([]byte, bool) {
	t.Helper()
	committed := filepath.Join(fixture, lang+".wasm")
	slot, _ := fixtures.LoadOrStore(committed, new(once[[]byte]))
	wasm := slot.(*once[[]byte]).get(func() []byte {
		wasm, built := source(t, fixture, lang)
		if lang == sdk.Go { // too large to commit
			return wasm
		}
		return compare(t, committed, wasm, built)
	})
	return wasm, wasm != nil
}

// source builds a fixture ("": the template). The two in AssemblyScript share one run of its compiler, as policies do.
func source(t testing.TB, fixture, lang string) ([]byte, bool) {
	t.Helper()
	if lang != sdk.AssemblyScript {
		return build(t, lang, folder(t, lang, fixture))
	}
	made := scripts.get(func() [][]byte {
		made, err := sdk.BuildAll(t.Context(), folder(t, lang, ""), folder(t, lang, same))
		if !installed(t, lang, err) {
			return nil
		}
		return made
	})
	switch {
	case made == nil:
		return nil, false
	case fixture == "":
		return made[0], true
	}
	return made[1], true
}

func compare(t testing.TB, committed string, wasm []byte, built bool) []byte {
	t.Helper()
	if built && *update {
		if err := os.WriteFile(committed, wasm, 0o644); err != nil {
			t.Fatal(err)
		}
		return wasm
	}
	want, err := os.ReadFile(committed)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case !built:
		t.Logf("%s stands in", committed)
		return want
	case bytes.Equal(want, wasm):
	case ci():
		t.Errorf("%s (%d bytes) is not what its source gives (%d bytes): run go test ./sdk -update", committed, len(want), len(wasm))
	default:
		t.Logf("%s is not what its source gives here: another compiler, or run go test ./sdk -update", committed)
	}
	return wasm
}

// TestTemplates builds what a newcomer gets, with the folder's own compiler in CI, and loads it: its cases run.
func TestTemplates(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for _, lang := range sdk.Languages() {
		t.Run(lang, func(t *testing.T) {
			wasm, ok := template(t, lang)
			if !ok {
				return
			}
			m, err := h.Add(t.Context(), "mine-"+lang, wasm, sdk.Profile(lang))
			if err != nil {
				t.Fatal(err)
			}
			if m.Cases != 3 || !bytes.Contains(m.About, []byte(`"mine"`)) || len(m.Schema) == 0 {
				t.Errorf("%d cases, about %s, schema of %d bytes", m.Cases, m.About, len(m.Schema))
			}
		})
	}
}

func template(t *testing.T, lang string) ([]byte, bool) {
	if lang != sdk.AssemblyScript || !ci() {
		return source(t, "", lang)
	}
	dir := folder(t, lang, "")
	if err := os.Remove(filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	npmCI(t, dir)
	return build(t, lang, dir)
}

var mdLink = regexp.MustCompile(`\]\(([^)]+)\)`)

// TestTemplateIsAtHome: a policy's folder is all its author has, so its pages link to files in it and nowhere else, and
// do not speak of this module's folders.
func TestTemplateIsAtHome(t *testing.T) {
	t.Parallel()
	for _, lang := range sdk.Languages() {
		files, err := sdk.Template(lang, "mine")
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range files {
			if path.Ext(name) != ".md" {
				continue
			}
			for _, m := range mdLink.FindAllSubmatch(text, -1) {
				if to := path.Join(path.Dir(name), string(m[1])); files[to] == nil {
					t.Errorf("%s: %s links to %s, which is not in the folder", lang, name, m[1])
				}
			}
			for _, elsewhere := range []string{"sdk/", "../..", "policies/", "assembly/"} {
				if bytes.Contains(text, []byte(elsewhere)) {
					t.Errorf("%s: %s speaks of %s", lang, name, elsewhere)
				}
			}
		}
	}
}
