// Package sdk makes policy folders and builds them, in each language that has a guest SDK beside this file.
//
// A policy folder is self-contained: one source file policy.ts, policy.c, policy.rs or policy.go, a copy of that
// language's SDK in weir/, and three descriptions that the module carries as custom sections: schema.json (what its
// params may be), cases.json (facts and the decisions they must give) and about.json. Invariants:
//
//  1. Building needs nothing but the folder and the language's own compiler: no network, no checkout of this module.
//  2. The same folder and the same compiler give the same bytes, wherever the folder lies: a module is known by its hash.
//  3. What a compiler says is shown as it is, and a missing one is named with the words that install it.
//
// Build, in short:
//
//	for each folder: language = the one whose source file is there
//	for each language: compile its folders (one process of the AssemblyScript compiler takes all: it starts slowly)
//	for each module: append about.json, schema.json and cases.json, compacted
//
// Building in a container with fixed compilers was rejected: it needs more than the compiler does, and what makes a module
// trustworthy is not who compiled it but what the gateway verifies at upload.
package sdk

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

//go:embed templates c/*.h rust/*.rs rust/Cargo.toml go/*.go assemblyscript/assembly/*.ts assemblyscript/package-lock.json
var embedded embed.FS

// Names of the languages.
const (
	AssemblyScript = "assemblyscript"
	C              = "c"
	Rust           = "rust"
	Go             = "go"
)

// Languages lists what Template and Build know; the first is the one to propose.
func Languages() []string { return []string{AssemblyScript, C, Rust, Go} }

// Profile is the host's profile that a language's modules need: "small", or "large", which only an operator may use.
func Profile(lang string) string {
	if lang == Go {
		return "large"
	}
	return "small"
}

// validName keeps names that are good as a folder, a module and a package in every language.
var validName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)

// Template gives the files of a new policy, by their slash-separated paths in its folder: a small policy that builds
// and passes its own cases, and a copy of the SDK.
func Template(lang, name string) (map[string][]byte, error) {
	if !slices.Contains(Languages(), lang) {
		return nil, fmt.Errorf("unknown language %q: want one of %s", lang, strings.Join(Languages(), ", "))
	}
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("policy name %q: want a lower-case letter, then up to 62 lower-case letters, digits, - or _", name)
	}
	files := map[string][]byte{}
	add := func(dir, to string) error {
		return fs.WalkDir(embedded, dir, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(p, "_test.go") {
				return err
			}
			text, err := embedded.ReadFile(p)
			files[target(p, dir, to)] = bytes.ReplaceAll(text, []byte("{{name}}"), []byte(name))
			return err
		})
	}
	library := map[string]string{AssemblyScript: "assemblyscript/assembly", C: "c", Rust: "rust", Go: "go"}[lang]
	for _, part := range []struct{ from, to string }{{"templates/shared", ""}, {"templates/" + lang, ""}, {library, "weir"}} {
		if err := add(part.from, part.to); err != nil {
			return nil, err
		}
	}
	if lang == AssemblyScript { // the compiler that the SDK is tested with
		lock, err := embedded.ReadFile("assemblyscript/package-lock.json")
		if err != nil {
			return nil, err
		}
		files["package-lock.json"] = bytes.ReplaceAll(lock, []byte("@weir/policy"), []byte(name))
	}
	return files, nil
}

// target is where an embedded file goes. Names that mean something to Go's or git's own tools carry a suffix here.
func target(p, from, to string) string {
	name := strings.TrimSuffix(strings.TrimPrefix(p, from+"/"), ".tmpl")
	if name == "gitignore" {
		name = ".gitignore"
	}
	return path.Join(to, name)
}
