package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/policies"
	"github.com/weir-gateway/weir/sdk"
)

// Bounds of what the policy commands read.
const (
	maxModuleBytes = 16 << 20  // above every profile's cap, so that the refusal can name the cap
	maxTextBytes   = 8 << 20   // facts, params, cases
	maxLogBytes    = 512 << 20 // the kept part of a decision log
)

func (a *app) policyCommand() *cobra.Command {
	c := group("policy", "Write, prove, ship and undo the modules that decide which limits apply")
	var asJSON bool
	c.PersistentFlags().BoolVar(&asJSON, "json", false, "print JSON")
	c.AddCommand(a.policyNew(&asJSON), a.policyBuild(&asJSON), a.policyCheck(&asJSON), a.policyRun(&asJSON),
		a.policyTest(&asJSON), a.policyBench(&asJSON), a.policyReplay(&asJSON), a.policyDiff(&asJSON))
	c.AddCommand(a.policyRemote()...)
	return c
}

// subject is the module that a command is about.
type subject struct {
	name    string
	dir     string // the policy folder it was built from; empty: none
	wasm    []byte
	profile string
}

const subjectUse = "DIR|FILE.wasm|NAME"

const subjectHelp = "The module is a policy folder (built first; default: this one), a .wasm file, or the name of a module that comes with weir."

// subject finds a module by a file, a policy folder or a shipped name. An empty profile: the one its language needs.
func (a *app) subject(ctx context.Context, arg, profile string) (*subject, error) {
	info, err := os.Stat(arg)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return shippedSubject(arg, profile)
	case err != nil:
		return nil, err
	case info.IsDir():
		return a.builtSubject(ctx, arg, profile)
	}
	wasm, err := readBounded(arg, maxModuleBytes)
	if err != nil {
		return nil, err
	}
	if dir := filepath.Dir(arg); folderName(dir) == moduleName(arg) {
		a.noteStale(arg, dir)
	}
	return &subject{name: moduleName(arg), wasm: wasm, profile: or(profile, policy.ProfileSmall)}, nil
}

func moduleName(path string) string { return strings.TrimSuffix(filepath.Base(path), ".wasm") }

func or(given, otherwise string) string {
	if given != "" {
		return given
	}
	return otherwise
}

func shippedSubject(name, profile string) (*subject, error) {
	if wasm, ok := policies.Shipped(name); ok {
		return &subject{name: name, wasm: wasm, profile: or(profile, policy.ProfileSmall)}, nil
	}
	if near := llm.Nearest(name, policies.Names()); near != "" {
		return nil, usageError("%s: no such file or folder, and no module of this name comes with weir; did you mean %q?", name, near)
	}
	return nil, usageError("%s: no such file or folder; the modules that come with weir are %s", name, strings.Join(policies.Names(), ", "))
}

// builtSubject builds a policy folder. Without its compiler the module that lies there already stands in, and that is said.
func (a *app) builtSubject(ctx context.Context, dir, profile string) (*subject, error) {
	lang, err := sdk.Language(dir)
	if err != nil {
		return nil, err
	}
	s := &subject{name: folderName(dir), dir: dir, profile: or(profile, sdk.Profile(lang))}
	if s.wasm, err = sdk.Build(ctx, dir); err == nil {
		return s, nil
	}
	old := filepath.Join(dir, s.name+".wasm")
	if errors.Is(err, sdk.ErrNotInstalled) {
		if wasm, rerr := readBounded(old, maxModuleBytes); rerr == nil {
			fmt.Fprintf(a.err, "note: %s as it was built earlier: %v\n", old, err)
			a.noteStale(old, dir)
			s.wasm = wasm
			return s, nil
		}
	}
	return nil, a.compilerError(dir, err)
}

// noteStale says that a module in a policy folder may not be what the folder would build now.
func (a *app) noteStale(wasm, dir string) {
	newer, err := newerSource(wasm, dir)
	if err == nil && newer != "" {
		fmt.Fprintf(a.err, "note: %s may be stale: %s is newer; weir policy build %s makes it anew\n", wasm, newer, dir)
	}
}

// copied is how far apart the files of a folder may come to be that was copied or checked out.
const copied = 2 * time.Second

// newerSource is a file that goes into a folder's module and was changed after it was built; empty: there is none.
func newerSource(wasm, dir string) (string, error) {
	if _, err := sdk.Language(dir); err != nil {
		return "", err
	}
	built, err := os.Stat(wasm)
	if err != nil {
		return "", err
	}
	files, err := os.ReadDir(dir)
	for _, f := range files {
		info, err := f.Info()
		if err != nil || !info.Mode().IsRegular() || info.ModTime().Sub(built.ModTime()) < copied {
			continue
		}
		if f.Name() == "schema.json" || slices.Contains([]string{".ts", ".c", ".h", ".rs", ".go"}, filepath.Ext(f.Name())) {
			return f.Name(), nil
		}
	}
	return "", err
}

// compilerError shows what a compiler said as it is and leaves one line for the error.
func (a *app) compilerError(dir string, err error) error {
	first, said, compiled := strings.Cut(err.Error(), "\n")
	if !compiled {
		return err
	}
	fmt.Fprintln(a.err, said)
	return fmt.Errorf("%s does not compile (%s)", dir, first)
}

// folderName is what a policy folder's module is called: the name in about.json, else the folder's.
func folderName(dir string) string {
	var about struct{ Name string }
	raw, err := readBounded(filepath.Join(dir, "about.json"), maxTextBytes)
	if err == nil && json.Unmarshal(raw, &about) == nil && about.Name != "" && !strings.ContainsAny(about.Name, `/\`) && about.Name[0] != '.' {
		return about.Name
	}
	if abs, err := filepath.Abs(dir); err == nil {
		return filepath.Base(abs)
	}
	return filepath.Base(dir)
}

// version is the short content hash of the module, with the params' part after a dot.
func (s *subject) version(params []byte) string {
	sum := sha256.Sum256(s.wasm)
	b := policy.Binding{Hash: hex.EncodeToString(sum[:]), Params: params}
	return b.Version()
}

// explain adds to a refusal for what the profile is what the module's author may not know.
func (s *subject) explain(err error) error {
	aboutProfile := strings.Contains(err.Error(), "of profile "+policy.ProfileSmall) || strings.Contains(err.Error(), "for profile "+policy.ProfileLarge)
	if aboutProfile && s.profile == policy.ProfileSmall && bytes.Contains(s.wasm, []byte("wasi_snapshot_preview1")) {
		return fmt.Errorf("%w (a module in Go needs --profile %s)", err, policy.ProfileLarge)
	}
	return err
}

// readBounded reads a file that is not larger than limit.
func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return readAll(f, path, limit)
}

func readAll(r io.Reader, name string, limit int64) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(raw)) > limit {
		err = fmt.Errorf("%s: larger than %d MiB", name, limit>>20)
	}
	return raw, err
}

// document reads a JSON document of a flag: itself if it is an object, "-" for standard input, else a file. The name it
// gives is for errors.
func (a *app) document(flag, value string) (name string, raw []byte, err error) {
	switch {
	case strings.HasPrefix(strings.TrimSpace(value), "{"):
		name, raw = flag, []byte(value)
	case value == "-":
		name = "standard input"
		raw, err = readAll(a.in, name, maxTextBytes)
	default:
		name = value
		raw, err = readBounded(value, maxTextBytes)
	}
	if err != nil {
		return name, nil, fmt.Errorf("%s: want a JSON file, - or a JSON object: %w", flag, err)
	}
	return name, raw, jsonError(name, raw, json.Unmarshal(raw, new(json.RawMessage)))
}

// object is a document that must be a JSON object. An empty value gives nothing.
func (a *app) object(flag, value string) ([]byte, error) {
	if value == "" {
		return nil, nil
	}
	name, raw, err := a.document(flag, value)
	if raw = bytes.TrimSpace(raw); err == nil && raw[0] != '{' {
		err = fmt.Errorf("%s: want a JSON object, such as {\"a\": 1}, got %.40s", name, raw)
	}
	if err != nil {
		return nil, err
	}
	return raw, nil
}

// jsonError adds the place to an error of package json.
func jsonError(name string, raw []byte, err error) error {
	if err == nil {
		return nil
	}
	at := int64(-1)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = syntax.Offset - 1
	}
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		at = kind.Offset - 1
	}
	if at < 0 {
		return fmt.Errorf("%s: %w", name, err)
	}
	before := raw[:min(int(at), len(raw))]
	return fmt.Errorf("%s:%d:%d: %w", name, bytes.Count(before, []byte("\n"))+1, len(before)-bytes.LastIndexByte(before, '\n'), err)
}

// grouped writes 1234567 as 1,234,567.
func grouped[T ~int | ~int64 | ~uint64](n T) string {
	digits := strconv.FormatUint(uint64(n), 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// share writes part of whole in percent.
func share(part, whole uint64) string {
	if whole == 0 {
		return "0 %"
	}
	return strconv.FormatFloat(float64(part)*100/float64(whole), 'f', 1, 64) + " %"
}
