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

// runCases runs every case of raw on one instance, first in order and then backwards: a module is a pure function,
// so an answer that depends on what was asked before is a failed case too.
func runCases(rt wazero.Runtime, code wazero.CompiledModule, p *profile, raw []byte, log func(uint32, []byte)) ([]CaseResult, error) {
	var file caseFile
	if err := strict(raw, &file); err != nil {
		return nil, fmt.Errorf("cases: %w", err)
	}
	c := file.Configure
	config, err := configuration(c.Tiers, c.Labels, c.Params)
	if err != nil {
		return nil, fmt.Errorf("cases: configure: %w", err)
	}
	in, err := open(rt, code, p, config, log)
	if err != nil {
		return nil, err
	}
	defer func() { in.close() }()
	run := func(i int) ([]byte, error) {
		facts, err := ParseFacts(file.Cases[i].Facts, c.Tiers, c.Labels)
		if err != nil {
			return nil, fmt.Errorf("case %q: %w", file.Cases[i].Name, err)
		}
		var d Decision
		if fault := in.call(facts, &d, 1, len(c.Tiers)); fault != faultNone {
			d.abstain()
			d.Fault = fault.String()
			in.close()
			if in, err = open(rt, code, p, config, log); err != nil {
				return nil, err
			}
		}
		return MarshalDecision(&d, c.Tiers)
	}
	return judge(&file, run)
}

func judge(file *caseFile, run func(int) ([]byte, error)) ([]CaseResult, error) {
	results := make([]CaseResult, len(file.Cases))
	for i, c := range file.Cases {
		got, err := run(i)
		if err != nil {
			return nil, err
		}
		diff, err := compare(c.Want, got)
		if err != nil {
			return nil, fmt.Errorf("case %q: want%w", c.Name, err)
		}
		results[i] = CaseResult{Name: c.Name, Passed: len(diff) == 0, Got: got, Diff: diff}
	}
	for i := range slices.Backward(file.Cases) {
		again, err := run(i)
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
	w, err := tree(want)
	if err != nil {
		return nil, fmt.Errorf(": %w", err)
	}
	g, err := tree(got)
	if err != nil {
		return nil, fmt.Errorf(": %w", err)
	}
	members, ok := w.(map[string]any)
	if !ok {
		return nil, fmt.Errorf(": not an object")
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
		return []string{fmt.Sprintf("%s: got %v, want %v", path[1:], got, want)}, nil
	}
	return nil, nil
}
