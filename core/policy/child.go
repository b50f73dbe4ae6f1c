package policy

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/weir-gateway/weir/sdk/abi"
)

// ChildArg is the hidden argument that makes a process the compile child.
const ChildArg = "__weir-policy-child"

// childEnv marks the child's environment, so that a binary whose main does not call IsChild cannot start children
// of children.
const childEnv = "WEIR_POLICY_CHILD"

// job is what the child is to try: everything that a hostile module could use to hold or kill a process.
type job struct {
	Profile  string
	CacheDir string  // where the compiled code goes
	Module   []byte  // metered
	Schema   []byte  // of the module
	Setups   []setup // to try one after the other; none: the module is started without
	Cases    []byte  // content of a case file; nil: none
}

// setup is what a binding gives to a module.
type setup struct {
	Params []byte // to hold against the schema
	Config []byte // for weir_configure
}

// verdict of the child: Refusal is empty when everything was well.
type verdict struct {
	Refusal  string
	Refusals []string // of the setups, in their order; empty: accepted
	Cases    []CaseResult
	Hits     []uint64 // calls of each function; of a module that is counted
}

// IsChild reports that this process was started as the compile child, and runs it; main and TestMain call it first.
func IsChild(args []string, in io.Reader, out io.Writer) (ran bool) {
	if len(args) != 2 || args[1] != ChildArg {
		return false
	}
	var (
		j job
		v verdict
	)
	if err := gob.NewDecoder(in).Decode(&j); err != nil {
		v.Refusal = fmt.Sprintf("the compile child could not read its job: %v", err)
	} else {
		v = j.try()
	}
	_ = gob.NewEncoder(out).Encode(v) // a parent that has gone needs no answer
	return true
}

func (j *job) try() (v verdict) {
	p, err := profileOf(j.Profile)
	if err == nil {
		err = confine(p)
	}
	if err == nil && len(j.Setups) == 0 {
		err = checkParams(j.Schema, nil)
	}
	for _, s := range j.Setups {
		if err == nil {
			v.Refusals = append(v.Refusals, textOf(checkParams(j.Schema, s.Params)))
		}
	}
	if err == nil {
		err = j.load(p, &v)
	}
	if err != nil {
		v.Refusal = err.Error()
	}
	return v
}

// load compiles into the cache and runs what the module runs before its first decision. A cache entry that cannot
// be read is dropped once and made anew.
func (j *job) load(p *profile, v *verdict) error {
	err := j.compileAndRun(p, v)
	var compile *compileError
	if errors.As(err, &compile) {
		entries, _ := filepath.Glob(filepath.Join(j.CacheDir, "*", "*"))
		if len(entries) == 0 {
			return err
		}
		for _, e := range entries {
			_ = os.Remove(e)
		}
		return j.compileAndRun(p, v)
	}
	return err
}

// compileError is a module that the compiler refuses, or a cache that cannot be read.
type compileError struct{ error }

func (j *job) compileAndRun(p *profile, v *verdict) error {
	ctx := context.Background()
	rt, cache, err := newRuntime(ctx, j.CacheDir)
	if err != nil {
		return err
	}
	defer cache.Close(ctx)
	defer rt.Close(ctx)
	code, err := rt.CompileModule(ctx, j.Module)
	if err != nil {
		return &compileError{fmt.Errorf("not valid: %s", firstLine(err))}
	}
	for i, s := range j.Setups {
		if v.Refusals[i] == "" {
			v.Refusals[i] = textOf(start(rt, code, p, s.Config))
		}
	}
	if len(j.Setups) > 0 {
		return nil
	}
	if err := start(rt, code, p, nil); err != nil || j.Cases == nil {
		return err
	}
	var said sayings
	v.Cases, v.Hits, err = runCases(rt, code, p, j.Schema, j.Cases, said.log)
	if err != nil {
		return said.because(err)
	}
	return nil
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// start brings one instance to the point where it can decide; the error says why it could not.
func start(rt wazero.Runtime, code wazero.CompiledModule, p *profile, config []byte) error {
	var said sayings
	in, err := open(rt, code, p, config, said.log, nil)
	if err != nil {
		return said.because(err)
	}
	in.close()
	return nil
}

// sayings are what a guest logged in the child, for the message of its refusal.
type sayings struct {
	lines []string
	bytes int
}

func (s *sayings) log(_ uint32, text []byte) {
	if s.bytes += len(text); s.bytes < 2<<10 {
		s.lines = append(s.lines, printable(string(text)))
	}
}

// because puts what the guest said to an error. When it has refused its configuration, that is the reason; a code is none.
func (s *sayings) because(err error) error {
	said := strings.Join(s.lines, "; ")
	var refused configureError
	switch {
	case said == "":
		return err
	case errors.As(err, &refused):
		return fmt.Errorf("%s (%s gave code %d)", said, abi.ExportConfigure, uint32(refused))
	}
	return fmt.Errorf("%w; it said: %s", err, said)
}

// printable is a guest's text on one line.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// newRuntime is the one configuration that the child and the gateway share; the cache is keyed by it.
func newRuntime(ctx context.Context, cacheDir string) (wazero.Runtime, wazero.CompilationCache, error) {
	cache, err := wazero.NewCompilationCacheWithDir(cacheDir)
	if err != nil {
		return nil, nil, err
	}
	large, err := profileOf(ProfileLarge)
	if err != nil {
		return nil, nil, err
	}
	features := api.CoreFeaturesV2.SetEnabled(api.CoreFeatureSIMD, false)
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCoreFeatures(features).
		WithMemoryLimitPages(large.pages).WithCompilationCache(cache).WithDebugInfoEnabled(false))
	if err := hostModules(ctx, rt); err != nil {
		_ = rt.Close(ctx)
		_ = cache.Close(ctx)
		return nil, nil, err
	}
	return rt, cache, nil
}
