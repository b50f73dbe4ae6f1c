package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/weir-gateway/weir/core/admin"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/sdk"
)

func (a *app) policyNew(asJSON *bool) *cobra.Command {
	var lang, dir string
	c := &cobra.Command{Use: "new NAME", Short: "Write the folder of a new policy: source, schema, cases and the SDK", Args: exactly("NAME"),
		Long: "Write a self-contained folder with a small policy that builds and passes its own cases. Languages: " + strings.Join(sdk.Languages(), ", ") + ".",
		RunE: func(_ *cobra.Command, args []string) error {
			if !slices.Contains(sdk.Languages(), lang) {
				return usageError("--lang: unknown language %q%s", lang, proposal(lang, sdk.Languages()))
			}
			files, err := sdk.Template(lang, args[0])
			if err != nil {
				return usageError("%v", err)
			}
			dir := or(dir, args[0])
			if err := writeFolder(dir, files); err != nil {
				return err
			}
			names := slices.Sorted(maps.Keys(files))
			if *asJSON {
				return a.printJSON(map[string]any{"dir": dir, "name": args[0], "language": lang, "profile": sdk.Profile(lang), "files": names})
			}
			fmt.Fprintf(a.out, "%s: %s of a policy in %s\n", dir, count(len(names), "file"), lang)
			for _, name := range names {
				fmt.Fprintln(a.out, "  "+name)
			}
			fmt.Fprintf(a.out, "next:\n%s  weir policy test %s\n", beforeBuild(lang, dir), dir)
			return nil
		}}
	c.Flags().StringVar(&lang, "lang", sdk.Languages()[0], "language: "+strings.Join(sdk.Languages(), ", "))
	c.Flags().StringVar(&dir, "dir", "", "`folder` to write (default: NAME)")
	return c
}

// beforeBuild is what a language's folder needs once.
func beforeBuild(lang, dir string) string {
	if lang == sdk.AssemblyScript {
		return "  (cd " + dir + " && npm ci)\n"
	}
	return ""
}

// proposal ends an error about an unknown name: the nearest, else all.
func proposal(name string, names []string) string {
	if near := llm.Nearest(name, names); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return "; want one of " + strings.Join(names, ", ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return grouped(n) + " " + what + "s"
}

// writeFolder writes files into a folder that is not there or is empty.
func writeFolder(dir string, files map[string][]byte) error {
	entries, err := os.ReadDir(dir)
	switch {
	case err == nil && len(entries) > 0:
		return fmt.Errorf("%s is not empty: want a new or empty folder", dir)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: want a new or empty folder: %w", dir, err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, files[name], 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) policyBuild(asJSON *bool) *cobra.Command {
	var out string
	c := &cobra.Command{Use: "build [DIR]", Short: "Compile a policy folder into NAME.wasm", Args: atMost(1, "[DIR]"),
		Long: "Compile a policy folder with its language's own compiler and append its schema, cases and description. NAME is that of\nabout.json. A compiler that is missing is named with the words that install it.",
		RunE: func(c *cobra.Command, args []string) error {
			dir := first(args, ".")
			lang, err := sdk.Language(dir)
			if err != nil {
				return err
			}
			if err := checkFolder(dir); err != nil {
				return err
			}
			wasm, err := sdk.Build(c.Context(), dir)
			if err != nil {
				return a.compilerError(dir, err)
			}
			s := &subject{name: folderName(dir), wasm: wasm, profile: sdk.Profile(lang)}
			path := or(out, filepath.Join(dir, s.name+".wasm"))
			if err := replaceFile(path, wasm); err != nil {
				return err
			}
			if *asJSON {
				return a.printJSON(map[string]any{"file": path, "name": s.name, "bytes": len(wasm), "language": lang, "profile": s.profile, "version": s.version(nil)})
			}
			fmt.Fprintf(a.out, "%s: %s bytes from %s, profile %s, version %s\n", path, grouped(len(wasm)), lang, s.profile, s.version(nil))
			return nil
		}}
	c.Flags().StringVarP(&out, "out", "o", "", "`file` to write (default: NAME.wasm in the folder)")
	return c
}

// checkFolder finds what an upload would refuse of a folder, whatever it compiles to.
func checkFolder(dir string) error {
	if err := admin.CheckPolicyName(folderName(dir)); err != nil {
		return fmt.Errorf("%s: the name of the folder, or that in about.json: %w", dir, err)
	}
	path := filepath.Join(dir, "schema.json")
	schema, err := readBounded(path, maxTextBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = policy.CheckSchema(schema)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func first(args []string, otherwise string) string {
	if len(args) > 0 {
		return args[0]
	}
	return otherwise
}

// atMost checks the number of arguments where the last may be left out.
func atMost(n int, names string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) <= n {
			return nil
		}
		return usageError("%s takes %s, got %d argument(s)", c.CommandPath(), names, len(args))
	}
}

// replaceFile puts a whole file in place of an old one.
func replaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".weir-*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
