package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/tetratelabs/wazero"
)

// caseFile is the content of the section weir.cases, and of a file of further cases.
type caseFile struct {
	Configure struct {
		Tiers  []string        `json:"tiers"`
		Labels []string        `json:"labels"`
		Params json.RawMessage `json:"params"`
	} `json:"configure"`
	Cases []struct {
		Name  string          `json:"name"`
		Facts json.RawMessage `json:"facts"`
		Want  json.RawMessage `json:"want"`
	} `json:"cases"`
}

// CaseResult is how one case of a module went.
type CaseResult struct {
	Name   string          `json:"name"`
	Passed bool            `json:"passed"`
	Got    json.RawMessage `json:"got"`
	Diff   []string        `json:"diff,omitempty"` // what was not as wanted, one line each
	Fuel   uint64          `json:"fuel"`
}

// caseRun is a module while its cases run.
type caseRun struct {
	file  caseFile
	start func() (*instance, error)
	in    *instance
	hits  []uint64
}

// runCases runs every case of raw on one instance, first in order and then backwards: a module is a pure function,
// so an answer that depends on what was asked before is a failed case too. hits are the calls of each function, of a
// module that was made to count them.
func runCases(rt wazero.Runtime, code wazero.CompiledModule, p *profile, schema, raw []byte, log func(uint32, []byte)) (
	results []CaseResult, hits []uint64, err error) {
	var r caseRun
	if err := strict(raw, &r.file); err != nil {
		return nil, nil, fmt.Errorf("cases: %w", err)
	}
	c := r.file.Configure
	params, err := withZones(schema, c.Params, true)
	if err != nil {
		return nil, nil, fmt.Errorf("cases: configure: %w", err)
	}
	config, err := configuration(c.Tiers, c.Labels, params)
	if err != nil {
		return nil, nil, fmt.Errorf("cases: configure: %w", err)
	}
	r.start = func() (*instance, error) { return open(rt, code, p, config, log, nil) }
	if r.in, err = r.start(); err != nil {
		return nil, nil, err
	}
	results, err = judge(&r.file, r.run)
	r.stop()
	return results, r.hits, err
}

// run decides the i-th case.
func (r *caseRun) run(i int) (got []byte, fuel uint64, err error) {
	c := r.file.Configure
	facts, err := ParseFacts(r.file.Cases[i].Facts, c.Tiers, c.Labels)
	if err != nil {
		return nil, 0, fmt.Errorf("case %q: %w", r.file.Cases[i].Name, err)
	}
	var d Decision
	ft := r.in.call(facts, &d, 1, len(c.Tiers))
	fuel = r.in.spent()
	if ft != faultNone {
		d.abstain()
		d.Fault = ft.String()
		r.stop()
		if r.in, err = r.start(); err != nil {
			return nil, 0, err
		}
	}
	got, err = MarshalDecision(&d, c.Tiers)
	return got, fuel, err
}

// stop ends the instance and adds up what its functions counted.
func (r *caseRun) stop() {
	if r.in == nil {
		return
	}
	for i := 0; ; i++ {
		counter := r.in.mod.ExportedGlobal(counterName(i))
		if counter == nil {
			break
		}
		if i == len(r.hits) {
			r.hits = append(r.hits, 0)
		}
		r.hits[i] += counter.Get()
	}
	r.in.close()
	r.in = nil
}

func judge(file *caseFile, run func(int) (got []byte, fuel uint64, err error)) ([]CaseResult, error) {
	results := make([]CaseResult, len(file.Cases))
	for i, c := range file.Cases {
		if len(c.Want) == 0 {
			return nil, fmt.Errorf("case %q: it has no want", c.Name)
		}
		got, fuel, err := run(i)
		if err != nil {
			return nil, err
		}
		diff, err := compare(c.Want, got)
		if err != nil {
			return nil, fmt.Errorf("case %q: want%w", c.Name, err)
		}
		results[i] = CaseResult{Name: c.Name, Passed: len(diff) == 0, Got: got, Diff: diff, Fuel: fuel}
	}
	for i := range slices.Backward(file.Cases) {
		again, _, err := run(i)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(again, results[i].Got) {
			results[i].Passed = false
			results[i].Diff = append(results[i].Diff, fmt.Sprintf("the same facts gave another decision later: %s", again))
		}
	}
	return results, nil
}

// compare lists where got is not as want says. Members that want leaves out are not looked at; a member that got
// does not have is an error of the case. A fault is always a difference unless the case wants it.
func compare(want, got []byte) ([]string, error) {
	w, _ := tree(want) // of no text, nothing
	g, err := tree(got)
	if err != nil {
		return nil, fmt.Errorf(": %w", err)
	}
	members, ok := w.(map[string]any)
	if !ok {
		return nil, fmt.Errorf(`: not an object, such as {"verdict":"deny"}`)
	}
	if _, given := members["fault"]; !given {
		members["fault"] = ""
	}
	return subset("", w, g)
}

func tree(raw []byte) (v any, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	err = dec.Decode(&v)
	return v, err
}

func subset(path string, want, got any) (diff []string, err error) {
	switch w := want.(type) {
	case map[string]any:
		g, _ := got.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(w)) {
			have, known := g[name]
			if !known {
				return nil, fmt.Errorf("%s.%s: unknown%s", path, name, nearest(name, slices.Collect(maps.Keys(g))))
			}
			more, err := subset(path+"."+name, w[name], have)
			if err != nil {
				return nil, err
			}
			diff = append(diff, more...)
		}
		return diff, nil
	case []any:
		g, _ := got.([]any)
		if len(w) != len(g) {
			return []string{fmt.Sprintf("%s: got %d, want %d", path[1:], len(g), len(w))}, nil
		}
		for i := range w {
			more, err := subset(fmt.Sprintf("%s[%d]", path, i), w[i], g[i])
			if err != nil {
				return nil, err
			}
			diff = append(diff, more...)
		}
		return diff, nil
	}
	if fmt.Sprint(want) != fmt.Sprint(got) || fmt.Sprintf("%T", want) != fmt.Sprintf("%T", got) {
		return []string{fmt.Sprintf("%s: got %v, want %s", path[1:], got, wanted(path, want))}, nil
	}
	return nil, nil
}

// wanted says an empty text: to want no fault is what most cases do, without a word.
func wanted(path string, want any) string {
	switch {
	case want != "":
		return fmt.Sprint(want)
	case path == ".fault":
		return "a decision (no fault)"
	}
	return `""`
}
