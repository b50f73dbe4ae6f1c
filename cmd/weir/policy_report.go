package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/weir-gateway/weir/core/policy"
)

// examplesFlag is how many examples of a report are shown.
func examplesFlag(c *cobra.Command, n *int) {
	c.Flags().IntVar(n, "examples", 10, "show at most so many examples of decisions that would change; a report keeps ten")
}

// firstExamples leaves the first n examples of a report.
func firstExamples(r *policy.Report, n int) error {
	if n < 0 {
		return usageError("--examples: want 0 or more, got %d", n)
	}
	r.Examples = r.Examples[:min(n, len(r.Examples))]
	return nil
}

// printChanges shows a report to people: how many decisions would change, in what, by which rules, and examples.
func printChanges(w io.Writer, r *policy.Report) {
	fmt.Fprintf(w, "%s -> %s", or(r.Active, "native defaults"), or(r.Candidate, "native defaults"))
	if r.Stage != "" {
		fmt.Fprintf(w, ", %s", r.Stage)
	}
	if r.Percent > 0 {
		fmt.Fprintf(w, " %d %% of the keys", r.Percent)
	}
	fmt.Fprintf(w, "\n%s compared, %s would change (%s)\n", count(int(r.Compared), "decision"), grouped(r.Changed), share(r.Changed, r.Compared))
	t := tabwriter.NewWriter(w, 2, 4, 2, ' ', 0)
	counts(t, "field", r.Fields)
	counts(t, "dimension", r.Kinds)
	counts(t, "fault", r.Faults)
	for _, x := range r.Reasons {
		fmt.Fprintf(t, "  rule %d %s\t%s\n", x.Reason, x.Message, grouped(x.Count))
	}
	if r.Clamped > 0 {
		fmt.Fprintf(t, "  clamped by the envelope\t%s\n", grouped(r.Clamped))
	}
	if r.Skipped > 0 {
		fmt.Fprintf(t, "  not compared, no instance was free\t%s\n", grouped(r.Skipped))
	}
	_ = t.Flush() // into w, whose errors show at its next use
	for i, e := range r.Examples {
		fmt.Fprintf(w, "example %d  %s\n", i+1, squeeze(e.Facts))
		for _, field := range e.Fields {
			fmt.Fprintf(w, "  %s: %s -> %s\n", field, memberText(e.Active, field), memberText(e.Candidate, field))
		}
	}
}

// counts prints a map of counters, the largest first.
func counts(w io.Writer, what string, n map[string]uint64) {
	names := slices.SortedFunc(maps.Keys(n), func(a, b string) int {
		if n[a] != n[b] {
			return int(min(max(int64(n[b])-int64(n[a]), -1), 1))
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		if n[name] > 0 {
			fmt.Fprintf(w, "  %s %s\t%s\n", what, name, grouped(n[name]))
		}
	}
}

// memberText is one member of a decision, short: what says nothing in dimensions is left out.
func memberText(decision json.RawMessage, name string) string {
	all, err := members(decision)
	if err != nil {
		return "?"
	}
	for _, m := range all {
		if m.name != name {
			continue
		}
		if name != "dims" {
			return string(m.value)
		}
		return dimsText(m.value)
	}
	return "-"
}

// dimsText writes dimensions as key, custom team:a (qps_limit 4).
func dimsText(raw []byte) string {
	var dims []json.RawMessage
	if json.Unmarshal(raw, &dims) != nil {
		return string(raw)
	}
	if len(dims) == 0 {
		return "as configured"
	}
	texts := make([]string, len(dims))
	for i, d := range dims {
		short, err := telling(d)
		if err != nil {
			return string(raw)
		}
		all, err := members(short)
		if err != nil {
			return string(raw)
		}
		var more []string
		for _, m := range all {
			word := string(bytes.Trim(m.value, `"`))
			switch m.name {
			case "kind":
				texts[i] = word
			case "value":
				texts[i] += " " + word
			default:
				more = append(more, strings.TrimSuffix(m.name+" "+word, " true"))
			}
		}
		if len(more) > 0 {
			texts[i] += " (" + strings.Join(more, ", ") + ")"
		}
	}
	return strings.Join(texts, ", ")
}
