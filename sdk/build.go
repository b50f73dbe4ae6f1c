package sdk

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/weir-gateway/weir/sdk/abi"
)

// toolchain is how one language becomes a module.
type toolchain struct {
	lang, source string                                                                 // source: the file that tells the language
	compile      func(ctx context.Context, dirs []string, names bool) ([][]byte, error) // names: keep those of functions
}

func toolchains() []toolchain {
	return []toolchain{
		{AssemblyScript, "policy.ts", compileAssemblyScript},
		{C, "policy.c", each(compileC)},
		{Rust, "policy.rs", each(compileRust)},
		{Go, "policy.go", each(compileGo)},
	}
}

// each compiles one folder after the other.
func each(one func(ctx context.Context, dir string, names bool) ([]byte, error)) func(context.Context, []string, bool) ([][]byte, error) {
	return func(ctx context.Context, dirs []string, names bool) ([][]byte, error) {
		modules := make([][]byte, len(dirs))
		for i, dir := range dirs {
			wasm, err := one(ctx, dir, names)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", dir, err)
			}
			modules[i] = wasm
		}
		return modules, nil
	}
}

// Language tells a policy folder's language by the source file that is in it.
func Language(dir string) (string, error) {
	t, err := toolchainOf(dir)
	return t.lang, err
}

func toolchainOf(dir string) (found toolchain, err error) {
	var names []string
	for _, t := range toolchains() {
		names = append(names, t.source)
		if _, err := os.Stat(filepath.Join(dir, t.source)); err != nil {
			continue
		}
		if found.lang != "" {
			return toolchain{}, fmt.Errorf("%s holds both %s and %s: a folder is one policy in one language", dir, found.source, t.source)
		}
		found = t
	}
	if found.lang == "" {
		return toolchain{}, fmt.Errorf("%s is no policy folder: want one of %s in it", dir, strings.Join(names, ", "))
	}
	return found, nil
}

// Build compiles a policy folder and appends its descriptions; nothing is written into the folder. The error of a
// compiler holds what it said; that of a missing one says how to install it.
func Build(ctx context.Context, dir string) (wasm []byte, err error) {
	modules, err := BuildAll(ctx, dir)
	if err != nil {
		return nil, err
	}
	return modules[0], nil
}

// BuildNamed compiles a policy folder to the same code as Build, but keeps the names of its functions, in the section
// "name", and appends no description. It is for who looks at a module; one in Go has no names here either.
func BuildNamed(ctx context.Context, dir string) ([]byte, error) {
	t, err := toolchainOf(dir)
	if err != nil {
		return nil, err
	}
	modules, err := t.compile(ctx, []string{dir}, true)
	if err != nil {
		return nil, err
	}
	return modules[0], nil
}

// BuildAll is Build for several folders, in their order; those in AssemblyScript share one run of its compiler.
func BuildAll(ctx context.Context, dirs ...string) ([][]byte, error) {
	of := map[string][]int{} // language -> indices in dirs
	for i, dir := range dirs {
		t, err := toolchainOf(dir)
		if err != nil {
			return nil, err
		}
		of[t.lang] = append(of[t.lang], i)
	}
	modules := make([][]byte, len(dirs))
	for _, t := range toolchains() {
		if len(of[t.lang]) == 0 {
			continue
		}
		sources := make([]string, 0, len(of[t.lang]))
		for _, i := range of[t.lang] {
			sources = append(sources, dirs[i])
		}
		made, err := t.compile(ctx, sources, false)
		if err != nil {
			return nil, err
		}
		for k, i := range of[t.lang] {
			if modules[i], err = describe(made[k], dirs[i]); err != nil {
				return nil, fmt.Errorf("%s: %w", dirs[i], err)
			}
		}
	}
	return modules, nil
}

// describe appends the folder's descriptions, where they exist, as custom sections.
func describe(wasm []byte, dir string) ([]byte, error) {
	for _, s := range []struct{ section, file string }{
		{abi.SectionAbout, "about.json"}, {abi.SectionSchema, "schema.json"}, {abi.SectionCases, "cases.json"},
	} {
		raw, err := os.ReadFile(filepath.Join(dir, s.file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var compact bytes.Buffer
		if json.Compact(&compact, raw) != nil {
			return nil, fmt.Errorf("%s: %w", s.file, misplaced(raw))
		}
		wasm = appendSection(wasm, s.section, compact.Bytes())
	}
	return wasm, nil
}

// misplaced tells what is wrong with a JSON document, and where.
func misplaced(raw []byte) error {
	err := json.Unmarshal(raw, new(json.RawMessage))
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return err
	}
	before := raw[:min(max(int(syntax.Offset)-1, 0), len(raw))]
	line := bytes.Count(before, []byte("\n")) + 1
	return fmt.Errorf("line %d, column %d: %w", line, len(before)-bytes.LastIndexByte(before, '\n'), err)
}

// appendSection adds a custom section: 0, the size, the name with its length, the content.
func appendSection(wasm []byte, name string, content []byte) []byte {
	body := binary.AppendUvarint(nil, uint64(len(name)))
	body = append(append(body, name...), content...)
	wasm = binary.AppendUvarint(append(wasm, 0), uint64(len(body)))
	return append(wasm, body...)
}
