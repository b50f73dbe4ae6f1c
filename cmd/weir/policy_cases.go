package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/sdk"
)

// testRun is one `weir policy test`.
type testRun struct {
	a       *app
	s       *subject
	sources []*caseSource
	pattern *regexp.Regexp
	verbose bool
	asJSON  bool

	results []testedCase
	hits    []policy.FunctionHits
	updated int
}

// caseSource is one file of cases.
type caseSource struct {
	path string
	raw  []byte
	file *caseFile
}

// testedCase is one case's result and where the case stands.
type testedCase struct {
	File string `json:"file"`
	policy.CaseResult
	from  *caseSource
	index int
}

func (a *app) policyTest(asJSON *bool) *cobra.Command {
	var profile, pattern string
	var update, verbose bool
	c := &cobra.Command{Use: "test [" + subjectUse + "]", Short: "Run a policy's cases and say which functions they reach",
		Long: "Run the cases of a policy: those in a folder's cases.json and cases/*.json, or those that a module carries. A file in cases/\nmay leave out configure; that of cases.json stands then. A case without want is a failure that --update turns into a golden one.",
		Args: atMost(1, subjectUse),
		RunE: func(c *cobra.Command, args []string) error {
			expr, err := regexp.Compile(pattern)
			if err != nil {
				return usageError("--run: %v", err)
			}
			s, err := a.subject(c.Context(), first(args, "."), profile)
			if err != nil {
				return err
			}
			t := &testRun{a: a, s: s, pattern: expr, verbose: verbose, asJSON: *asJSON}
			return t.all(c.Context(), update)
		}}
	profileFlag(c, &profile)
	c.Flags().StringVarP(&pattern, "run", "r", "", "only the cases whose names match this `regexp`")
	c.Flags().BoolVar(&update, "update", false, "write what the module answers into the cases that differ")
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "show every case, and every function that was reached")
	return c
}

func (t *testRun) all(ctx context.Context, update bool) error {
	if update && t.s.dir == "" {
		return usageError("--update writes into a policy folder; %s is a module", t.s.name)
	}
	if err := t.load(); err != nil {
		return err
	}
	if err := t.run(ctx); err != nil {
		return t.s.explain(err)
	}
	if update {
		if err := t.update(); err != nil {
			return err
		}
		if t.updated > 0 {
			if err := t.load(); err != nil {
				return err
			}
			if err := t.run(ctx); err != nil {
				return err
			}
		}
	}
	t.name(ctx)
	return t.print()
}

// name gives functions that have none the names of a second build, which keeps them. Where that is not to be had, or its
// code is another, they stay numbers.
func (t *testRun) name(ctx context.Context) {
	numbered := func(h policy.FunctionHits) bool { return h.Name == fmt.Sprintf("func[%d]", h.Index) }
	if t.s.dir == "" || !slices.ContainsFunc(t.hits, numbered) {
		return
	}
	named, err := sdk.BuildNamed(ctx, t.s.dir)
	if err != nil {
		return
	}
	names, err := policy.FunctionNames(named)
	for _, section := range []string{"name", "producers", "target_features"} {
		_, named = splitSection(named, section)
	}
	if err != nil || !bytes.HasPrefix(t.s.wasm, named) {
		return
	}
	for i, h := range t.hits {
		t.hits[i].Name = or(names[h.Index], h.Name)
	}
}

// load reads the files of cases.
func (t *testRun) load() error {
	t.sources = nil
	if t.s.dir == "" {
		own := t.s.ownCases()
		if len(own.Cases) == 0 {
			return fmt.Errorf("%s carries no cases", t.s.name)
		}
		t.sources = []*caseSource{{path: t.s.name, file: own}}
		return nil
	}
	golden, err := filepath.Glob(filepath.Join(t.s.dir, "cases", "*.json"))
	if err != nil {
		return err
	}
	main := filepath.Join(t.s.dir, "cases.json")
	for _, path := range append([]string{main}, golden...) {
		raw, err := readBounded(path, maxTextBytes)
		if path == main && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		file, err := parseCases(path, raw)
		if err != nil {
			return err
		}
		t.sources = append(t.sources, &caseSource{path, raw, file})
	}
	if len(t.sources) == 0 {
		return fmt.Errorf("%s has no cases: want cases.json or cases/*.json in it", t.s.dir)
	}
	return t.inherit()
}

// inherit gives files without configure that of cases.json.
func (t *testRun) inherit() error {
	for _, src := range t.sources {
		var has struct{ Configure json.RawMessage }
		if err := json.Unmarshal(src.raw, &has); err != nil {
			return jsonError(src.path, src.raw, err)
		}
		if has.Configure == nil && filepath.Base(t.sources[0].path) == "cases.json" {
			src.file.Configure = t.sources[0].file.Configure
		}
	}
	return nil
}

// run tries the cases that were asked for; files with the same configuration share one child.
func (t *testRun) run(ctx context.Context) error {
	t.results, t.hits = nil, nil
	var configs []string
	groups := map[string][]testedCase{}
	for _, src := range t.sources {
		config, err := json.Marshal(src.file.Configure)
		if err != nil {
			return jsonError(src.path, src.raw, err)
		}
		for i, c := range src.file.Cases {
			if !t.pattern.MatchString(c.Name) {
				continue
			}
			if _, err := policy.ParseFacts(c.Facts, src.file.Configure.Tiers, src.file.Configure.Labels); err != nil {
				return fmt.Errorf("%s: case %q: %w", src.path, c.Name, err)
			}
			if groups[string(config)] == nil {
				configs = append(configs, string(config))
			}
			one := testedCase{File: src.path, from: src, index: i}
			groups[string(config)] = append(groups[string(config)], one)
		}
	}
	if !slices.ContainsFunc(t.sources, func(src *caseSource) bool { return len(src.file.Cases) > 0 }) {
		return fmt.Errorf("%s has no cases: those of %s are an empty list", t.s.name, t.sources[0].path)
	}
	if len(configs) == 0 {
		return fmt.Errorf("no case of %s matches %q", t.s.name, t.pattern)
	}
	for _, config := range configs {
		if err := t.cover(ctx, groups[config]); err != nil {
			return err
		}
	}
	return nil
}

// cover runs one group.
func (t *testRun) cover(ctx context.Context, group []testedCase) error {
	f := caseFile{Configure: group[0].from.file.Configure}
	for _, g := range group {
		c := g.from.file.Cases[g.index]
		if c.Want == nil {
			c.Want = json.RawMessage("{}")
		}
		f.Cases = append(f.Cases, c)
	}
	raw, err := json.Marshal(f)
	if err != nil {
		return err
	}
	results, hits, err := policy.Cover(ctx, policy.Options{Clock: t.a.clock}, t.s.wasm, t.s.profile, raw)
	if err != nil {
		if group[0].from == group[len(group)-1].from {
			return fmt.Errorf("%s: %w", group[0].File, err)
		}
		return err
	}
	for i := range group {
		group[i].CaseResult = results[i]
		if group[i].from.file.Cases[group[i].index].Want == nil {
			group[i].Passed, group[i].Diff = false, append(results[i].Diff, "it has no want; --update writes what the module answers")
		}
	}
	t.results = append(t.results, group...)
	for i, h := range hits {
		if i == len(t.hits) {
			t.hits = append(t.hits, h)
			continue
		}
		t.hits[i].Calls += h.Calls
	}
	return nil
}

// update writes the answers into the cases that differ. A case in which the module failed stays as it is.
func (t *testRun) update() error {
	edits := map[*caseSource][]edit{}
	for _, r := range t.results {
		if r.Passed {
			continue
		}
		want, err := golden(r.from.file.Cases[r.index].Want, r.Got)
		if err != nil {
			return fmt.Errorf("%s: case %q: %w", r.File, r.Name, err)
		}
		if want != nil {
			edits[r.from] = append(edits[r.from], edit{r.index, want})
			t.updated++
		}
	}
	for _, src := range t.sources {
		if len(edits[src]) == 0 {
			continue
		}
		raw, err := splice(src.raw, edits[src])
		if err != nil {
			return jsonError(src.path, src.raw, err)
		}
		info, err := os.Stat(src.path)
		if err == nil {
			err = os.WriteFile(src.path, raw, info.Mode())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// testedJSON is what test prints as JSON.
type testedJSON struct {
	Module   string       `json:"module"`
	Version  string       `json:"version"`
	Passed   int          `json:"passed"`
	Failed   int          `json:"failed"`
	Updated  int          `json:"updated"`
	Cases    []testedCase `json:"cases"`
	Coverage coverage     `json:"coverage"`
}

type coverage struct {
	Functions int                   `json:"functions"`
	Run       int                   `json:"run"`
	Each      []policy.FunctionHits `json:"each"`
}

func (t *testRun) print() error {
	out := testedJSON{Module: t.s.name, Version: t.s.version(nil), Updated: t.updated, Cases: t.results, Coverage: coverage{len(t.hits), 0, t.hits}}
	var never []string
	for _, h := range t.hits {
		if h.Calls > 0 {
			out.Coverage.Run++
			continue
		}
		never = append(never, h.Name)
	}
	for _, r := range t.results {
		if r.Passed {
			out.Passed++
		} else {
			out.Failed++
		}
	}
	if t.asJSON {
		if err := t.a.printJSON(out); err != nil {
			return err
		}
	} else {
		t.lines(&out, never)
	}
	if out.Failed > 0 {
		return fmt.Errorf("%s of %d failed", count(out.Failed, "case"), len(t.results))
	}
	return nil
}

func (t *testRun) lines(out *testedJSON, never []string) {
	w := t.a.out
	worst := uint64(0)
	for _, r := range t.results {
		worst = max(worst, r.Fuel)
		switch {
		case !r.Passed:
			fmt.Fprintf(w, "FAIL  %s  (%s)\n        %s\n", r.Name, r.File, strings.Join(r.Diff, "\n        "))
		case t.verbose:
			fmt.Fprintf(w, "ok    %s  fuel %s\n", r.Name, grouped(r.Fuel))
		}
	}
	if t.verbose {
		for _, h := range t.hits {
			if h.Calls > 0 {
				fmt.Fprintf(w, "%9s  %s\n", grouped(h.Calls), h.Name)
			}
		}
	}
	if t.updated > 0 {
		fmt.Fprintf(w, "%s updated\n", count(t.updated, "case"))
	}
	fmt.Fprintf(w, "%s %s: %s passed, %d failed; fuel %s at most; %d of %s reached (%s)", t.s.name, out.Version, count(out.Passed, "case"), out.Failed,
		grouped(worst), out.Coverage.Run, count(out.Coverage.Functions, "function"), share(uint64(out.Coverage.Run), uint64(out.Coverage.Functions)))
	if shown := 8; len(never) > 0 {
		fmt.Fprintf(w, "; never: %s", strings.Join(never[:min(shown, len(never))], ", "))
		if len(never) > shown {
			fmt.Fprintf(w, " and %d more", len(never)-shown)
		}
	}
	fmt.Fprintln(w)
}

// edit is a new want for the case of that index.
type edit struct {
	index int
	want  []byte
}

// splice puts wants into a file of cases and leaves everything else as it was written.
func splice(raw []byte, edits []edit) ([]byte, error) {
	spans, err := wantSpans(raw)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(raw)
	slices.SortFunc(edits, func(a, b edit) int { return b.index - a.index })
	for _, e := range edits {
		at := spans[e.index]
		text := e.want
		if at.from == at.to {
			text = slices.Concat([]byte(`, "want": `), e.want)
		}
		out = slices.Concat(out[:at.from], text, out[at.to:])
	}
	return out, nil
}

// between are offsets in a file; from = to: nothing stands there.
type between struct{ from, to int }

// wantSpans finds where each case's want stands, or would.
func wantSpans(raw []byte) (spans []between, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	var skip json.RawMessage
	err = eachMember(d, func(name string) error {
		if name != "cases" {
			return d.Decode(&skip)
		}
		if _, err := d.Token(); err != nil { // [
			return err
		}
		for d.More() {
			var at between
			err := eachMember(d, func(name string) error {
				err := d.Decode(&skip)
				if end := int(d.InputOffset()); name == "want" {
					at = between{end - len(skip), end}
				}
				return err
			})
			if err != nil {
				return err
			}
			if at.to == 0 {
				end := len(bytes.TrimRight(raw[:d.InputOffset()-1], " \t\r\n"))
				at = between{end, end}
			}
			spans = append(spans, at)
		}
		_, err := d.Token() // ]
		return err
	})
	return spans, err
}

// eachMember reads an object whose members' values value reads.
func eachMember(d *json.Decoder, value func(name string) error) error {
	open, err := d.Token()
	if err != nil {
		return err
	}
	if open != json.Delim('{') {
		return fmt.Errorf("want an object, got %v", open)
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		if err := value(name.(string)); err != nil { // a member's name is a string
			return err
		}
	}
	_, err = d.Token()
	return err
}
