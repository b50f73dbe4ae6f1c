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

//go:embed templates c/*.h c/README.md rust/*.rs rust/Cargo.toml rust/README.md go/*.go go/README.md
//go:embed assemblyscript/assembly/*.ts assemblyscript/package-lock.json assemblyscript/README.md
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
	library := map[string]string{AssemblyScript: "assemblyscript/assembly", C: "c", Rust: "rust", Go: "go"}[lang]
	for _, part := range []struct{ from, to string }{{"templates/shared", ""}, {"templates/" + lang, ""}, {library, "weir"}} {
		if err := collect(files, part.from, part.to); err != nil {
			return nil, err
		}
	}
	guide, err := embedded.ReadFile(strings.TrimSuffix(library, "/assembly") + "/README.md")
	if err != nil {
		return nil, err
	}
	if files["weir/README.md"], err = atHome(lang, guide); err != nil {
		return nil, err
	}
	if lang == AssemblyScript { // the compiler that the SDK is tested with
		if files["package-lock.json"], err = embedded.ReadFile("assemblyscript/package-lock.json"); err != nil {
			return nil, err
		}
	}
	fill(files, lang, name)
	return files, nil
}

// atHome rewrites a guide for the copy in a policy's folder: what it says about the SDK's own folder, and its links to
// files that are not copied, would lead nowhere there. A guide that has changed so that a line is not found is an error.
func atHome(lang string, guide []byte) ([]byte, error) {
	for _, r := range map[string][][2]string{
		AssemblyScript: {
			{"\n`weir policy new NAME --lang assemblyscript` writes a folder to start from; there the SDK is `./weir` and `./weir/exports`.", ""},
			{`"../../sdk/assemblyscript/assembly"`, `"./weir"`},
			{`"../../sdk/assemblyscript/assembly/exports"`, `"./weir/exports"`},
			{"`npm ci` here installs the compiler. `assembly/abi.ts` is generated from [sdk/abi](../abi/abi.go) by\n" +
				"`go run ./sdk/gen`, and a test compares them. How to build, test and activate a module:\n" +
				"[policies/README.md](../../policies/README.md).",
				"`npm ci` in the policy's folder, the one above this, installs the compiler. `abi.ts` has the constants of the binary\n" +
					"interface. How to build, test and activate the policy: [README.md](../README.md)."},
		},
		C:    {{" `weir policy new NAME --lang c` writes a folder to start from.", ""}, {abiHeld("abi.h", " "), abiCopied("abi.h")}},
		Rust: {{" `weir policy new NAME --lang rust`\nwrites a folder to start from.", ""}, {abiHeld("abi.rs", " "), abiCopied("abi.rs")}},
		Go:   {{" `weir policy new NAME --lang go` writes a folder to start from.", ""}, {abiHeld("abi.go", "\n"), abiCopied("abi.go")}},
	}[lang] {
		if bytes.Count(guide, []byte(r[0])) != 1 {
			return nil, fmt.Errorf("the guide to %s does not say %q once", lang, r[0])
		}
		guide = bytes.Replace(guide, []byte(r[0]), []byte(r[1]), 1)
	}
	return guide, nil
}

// abiHeld is how a guide ends beside the SDK, with white space where its line breaks.
func abiHeld(file, gap string) string {
	return "`" + file + "` is generated by `go run ./sdk/gen` from sdk/abi," + gap + "and a test compares them."
}

// abiCopied is how it ends in a policy's folder.
func abiCopied(file string) string {
	return "`" + file + "` has the constants of the binary interface. How to build, test and activate the policy:\n[README.md](../README.md)."
}

// collect adds the embedded files below a folder. Names that mean something to Go's tools carry a suffix there, and those
// that begin with a dot are not embedded, so they begin with a word.
func collect(files map[string][]byte, from, to string) error {
	return fs.WalkDir(embedded, from, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(p, "_test.go") {
			return err
		}
		name := strings.TrimSuffix(strings.TrimPrefix(p, from+"/"), ".tmpl")
		if rest, dotted := strings.CutPrefix(name, "dot-"); dotted {
			name = "." + rest
		}
		files[path.Join(to, name)], err = embedded.ReadFile(p)
		return err
	})
}

// fill puts the policy's name, and what is said about its language, into the files.
func fill(files map[string][]byte, lang, name string) {
	source, profile := "", ""
	for _, t := range toolchains() {
		if t.lang == lang {
			source = t.source
		}
	}
	if p := Profile(lang); p != "small" {
		profile = " --profile " + p
	}
	words := strings.NewReplacer("{{name}}", name, "{{source}}", source, "{{profile}}", profile, "@weir/policy", name)
	files["README.md"] = bytes.Replace(files["README.md"], []byte("{{build}}"), files["build.md"], 1)
	delete(files, "build.md")
	for path, text := range files {
		if !strings.HasPrefix(path, "weir/") {
			files[path] = []byte(words.Replace(string(text)))
		}
	}
}
