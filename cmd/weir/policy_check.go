package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/weir-gateway/weir/core/admin"
	"github.com/weir-gateway/weir/core/policy"
)

func (a *app) policyCheck(asJSON *bool) *cobra.Command {
	var profile string
	c := &cobra.Command{Use: "check [" + subjectUse + "]", Short: "Hold a module against everything that an upload would verify", Args: atMost(1, subjectUse),
		Long: "Verify a module as an upload does, in a child process, and show its caps, imports, exports, sections and the fuel of its\nworst case. Exit code 1 when an upload would be refused. " + subjectHelp,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := a.subject(c.Context(), first(args, "."), profile)
			if err != nil {
				return err
			}
			checked, err := policy.Check(c.Context(), policy.Options{Clock: a.clock}, s.wasm, s.profile)
			if err == nil {
				err = admin.CheckPolicyName(s.name)
			}
			if err != nil {
				err = s.explain(err)
			} else {
				checked.Module.Name = s.name
				err = failedCases(checked.Cases)
			}
			return a.printChecked(s, checked, err, *asJSON)
		}}
	profileFlag(c, &profile)
	return c
}

func profileFlag(c *cobra.Command, profile *string) {
	c.Flags().StringVar(profile, "profile", "", "small, or large for modules in Go (default: small, for a folder what its language needs)")
}

func failedCases(results []policy.CaseResult) error {
	failed := 0
	for _, r := range results {
		if !r.Passed {
			failed++
		}
	}
	if failed == 0 {
		return nil
	}
	return fmt.Errorf("%s of %d failed", count(failed, "case"), len(results))
}

// checkedJSON is what check prints as JSON.
type checkedJSON struct {
	OK      bool   `json:"ok"`
	Error   string `json:"error,omitempty"`
	Name    string `json:"name"`
	Version string `json:"version"`
	Profile string `json:"profile"`
	Bytes   int    `json:"bytes"`
	*checkedParts
}

type checkedParts struct {
	Caps      []policy.CapUse     `json:"caps"`
	Imports   []string            `json:"imports"`
	Exports   []string            `json:"exports"`
	Sections  []policy.SectionUse `json:"sections"`
	FuelWorst uint64              `json:"fuel_worst"`
	FuelLimit uint64              `json:"fuel_allowed"`
	Cases     []policy.CaseResult `json:"cases"`
}

// printChecked shows what was found; refused is also the command's error.
func (a *app) printChecked(s *subject, m *policy.Checked, refused error, asJSON bool) error {
	if asJSON {
		out := checkedJSON{OK: refused == nil, Name: s.name, Version: s.version(nil), Profile: s.profile, Bytes: len(s.wasm)}
		if refused != nil {
			out.Error = refused.Error()
		}
		if m != nil {
			out.checkedParts = &checkedParts{m.Caps, m.Imports, m.Exports, m.Sections, m.FuelWorst, m.FuelLimit, m.Cases}
		}
		if err := a.printJSON(out); err != nil || refused == nil {
			return err
		}
		return &exitError{code: exitFail}
	}
	if m == nil {
		return refused
	}
	w := tabwriter.NewWriter(a.out, 2, 4, 2, ' ', 0)
	fmt.Fprintf(w, "%s: %s bytes, profile %s, version %s\n", s.name, grouped(len(s.wasm)), s.profile, s.version(nil))
	fmt.Fprintln(w, "CAP\tUSED\tALLOWED\tWHERE")
	for _, cap := range m.Caps {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", cap.Name, grouped(cap.Used), grouped(cap.Allowed), cap.Where)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	lines(a.out, "imports", m.Imports)
	lines(a.out, "exports", m.Exports)
	var sections []string
	for _, x := range m.Sections {
		sections = append(sections, fmt.Sprintf("%s %s", x.Name, grouped(x.Bytes)))
	}
	fmt.Fprintf(a.out, "sections: %s\n", strings.Join(sections, ", "))
	if len(m.Cases) == 0 {
		fmt.Fprintf(a.out, "fuel: %s allowed; the module has no cases to measure\n", grouped(m.FuelLimit))
		return nil
	}
	worst := slices.MaxFunc(m.Cases, func(x, y policy.CaseResult) int { return cmp.Compare(x.Fuel, y.Fuel) })
	fmt.Fprintf(a.out, "fuel: %s of %s (%s) in the worst of %s, %q\n", grouped(m.FuelWorst), grouped(m.FuelLimit), share(m.FuelWorst, m.FuelLimit),
		count(len(m.Cases), "case"), worst.Name)
	if refused == nil {
		fmt.Fprintln(a.out, "ok")
	}
	printFailed(a.out, m.Cases)
	return refused
}

func printFailed(w io.Writer, results []policy.CaseResult) {
	for _, r := range results {
		if !r.Passed {
			fmt.Fprintf(w, "FAIL  %s\n        %s\n", r.Name, strings.Join(r.Diff, "\n        "))
		}
	}
}

// lines prints a list, one item a line.
func lines(w io.Writer, title string, items []string) {
	if len(items) == 0 {
		fmt.Fprintf(w, "%s: none\n", title)
		return
	}
	fmt.Fprintf(w, "%s:\n  %s\n", title, strings.Join(items, "\n  "))
}
