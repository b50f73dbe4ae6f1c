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

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// ChildArg is the hidden argument that makes a process the compile child.
const ChildArg = "__weir-policy-child"

// childEnv marks the child's environment, so that a binary whose main does not call IsChild cannot start children
// of children.
const childEnv = "WEIR_POLICY_CHILD"

// job is what the child is to try: everything that a hostile module could use to hold or kill a process.
type job struct {
	Profile  string
	CacheDir string // where the compiled code goes
	Module   []byte // metered
	Schema   []byte // of the module
	Params   []byte // to hold against Schema; nil: only the schema itself is checked
	Config   []byte // for weir_configure; nil: it is not called
	Cases    []byte // content of a case file; nil: none
}

// verdict of the child: Refusal is empty when everything was well.
type verdict struct {
	Refusal string
	Cases   []CaseResult
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
	if err == nil {
		err = checkParams(j.Schema, j.Params)
	}
	if err == nil {
		v.Cases, err = j.load(p)
	}
	if err != nil {
		v.Refusal = err.Error()
	}
	return v
}

// load compiles into the cache and runs what the module runs before its first decision. A cache entry that cannot
// be read is dropped once and made anew.
func (j *job) load(p *profile) ([]CaseResult, error) {
	results, err := j.compileAndRun(p)
	var compile *compileError
	if errors.As(err, &compile) {
		entries, _ := filepath.Glob(filepath.Join(j.CacheDir, "*", "*"))
		if len(entries) == 0 {
			return nil, err
		}
		for _, e := range entries {
			_ = os.Remove(e)
		}
		return j.compileAndRun(p)
	}
	return results, err
}

// compileError is a module that the compiler refuses, or a cache that cannot be read.
type compileError struct{ error }

func (j *job) compileAndRun(p *profile) ([]CaseResult, error) {
	ctx := context.Background()
	rt, cache, err := newRuntime(ctx, j.CacheDir)
	if err != nil {
		return nil, err
	}
	defer cache.Close(ctx)
	defer rt.Close(ctx)
	code, err := rt.CompileModule(ctx, j.Module)
	if err != nil {
		return nil, &compileError{fmt.Errorf("not valid: %s", firstLine(err))}
	}
	var said strings.Builder
	log := func(_ uint32, text []byte) {
		if said.Len()+len(text) < 2<<10 {
			fmt.Fprintf(&said, "; it said: %q", text)
		}
	}
	in, err := open(rt, code, p, j.Config, log)
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, said.String())
	}
	in.close()
	if j.Cases == nil {
		return nil, nil
	}
	results, err := runCases(rt, code, p, j.Cases, log)
	if err != nil {
		err = fmt.Errorf("%w%s", err, said.String())
	}
	return results, err
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
