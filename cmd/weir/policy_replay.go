package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/weir-gateway/weir/core/policy"
)

// replayFlags are those of replay and diff.
type replayFlags struct {
	setting
	from, owner, module string
	profile             string
	limit, examples     int
	exitCode            bool
}

func (f *replayFlags) flags(c *cobra.Command) {
	f.setting.flags(c)
	profileFlag(c, &f.profile)
	c.Flags().StringVar(&f.from, "from", "", "decision log: an NDJSON `file`, or -")
	c.Flags().StringVar(&f.owner, "owner", policy.Operator.String(), "whose lines: operator, org:ID or all")
	c.Flags().StringVar(&f.module, "module", "", "only the lines of the module of this `name`")
	c.Flags().IntVar(&f.limit, "limit", 0, "at most so many lines, the last ones (0: all)")
	examplesFlag(c, &f.examples)
	c.Flags().BoolVar(&f.exitCode, "exit-code", false, "exit with 1 when a decision would change")
}

func (a *app) policyReplay(asJSON *bool) *cobra.Command {
	var f replayFlags
	var against, params, againstParams string
	c := &cobra.Command{Use: "replay --from decisions.ndjson [" + subjectUse + "]", Short: "Run a module on logged decisions: which would change", Args: atMost(1, subjectUse),
		Long: "Run a module on the facts of a decision log and compare its decisions with the logged ones, or with those of another module\n(--against). Envelopes are left out. " + subjectHelp,
		RunE: func(c *cobra.Command, args []string) error {
			sides := []side{{first(args, "."), "--params", params}}
			if against != "" {
				sides = []side{{against, "--against-params", againstParams}, sides[0]}
			} else if againstParams != "" {
				return usageError("--against-params belongs to --against")
			}
			return a.replay(c.Context(), &f, sides, *asJSON)
		}}
	f.flags(c)
	c.Flags().StringVar(&against, "against", "", "compare with this module (default: with the logged decisions)")
	c.Flags().StringVar(&params, "params", "", "params: a JSON `file` or a JSON object")
	c.Flags().StringVar(&againstParams, "against-params", "", "params of --against")
	return c
}

func (a *app) policyDiff(asJSON *bool) *cobra.Command {
	var f replayFlags
	var params, paramsA, paramsB string
	c := &cobra.Command{Use: "diff A B --from decisions.ndjson", Short: "Run two modules on logged facts: where do they decide differently", Args: exactly("A", "B"),
		Long: "Compare two modules, or one with two params, on the facts of a decision log. " + subjectHelp,
		RunE: func(c *cobra.Command, args []string) error {
			return a.replay(c.Context(), &f, []side{{args[0], "--params-a", or(paramsA, params)}, {args[1], "--params-b", or(paramsB, params)}}, *asJSON)
		}}
	f.flags(c)
	c.Flags().StringVar(&params, "params", "", "params of both: a JSON `file` or a JSON object")
	c.Flags().StringVar(&paramsA, "params-a", "", "params of A (default: those of --params)")
	c.Flags().StringVar(&paramsB, "params-b", "", "params of B (default: those of --params)")
	return c
}

// side is one of the modules that are compared.
type side struct{ module, flag, params string }

// replay compares the sides on a log, or the only one with the log.
func (a *app) replay(ctx context.Context, f *replayFlags, sides []side, asJSON bool) error {
	if f.from == "" {
		return usageError("want --from with a decision log (NDJSON), or --from - for standard input")
	}
	if _, err := policy.ParseOwner(f.owner); err != nil && f.owner != "all" {
		return usageError("--owner: unknown owner %q: want operator, org:ID or all", f.owner)
	}
	if err := firstExamples(&policy.Report{}, f.examples); err != nil {
		return err
	}
	if f.limit < 0 {
		return usageError("--limit: want 0 or more, got %d", f.limit)
	}
	subjects, params := make([]*subject, len(sides)), make([][]byte, len(sides))
	for i, s := range sides {
		var err error
		if subjects[i], err = a.subject(ctx, s.module, f.profile); err != nil {
			return err
		}
		if params[i], err = a.object(s.flag, s.params); err != nil {
			return err
		}
	}
	log, err := a.readLog(f)
	if err != nil {
		return err
	}
	own := subjects[len(subjects)-1].ownCases()
	own.Configure.Tiers = distinct(log.tiers, own.Configure.Tiers)
	own.Configure.Labels = distinct(log.labels, own.Configure.Labels)
	if err := f.settle(a, own); err != nil {
		return err
	}
	h, bindings, err := a.host(ctx, &f.setting, subjects...)
	if err != nil {
		return err
	}
	defer h.Close()
	for i := range bindings {
		bindings[i].Params = params[i]
	}
	report, err := h.Replay(ctx, log.reader(), bindings...)
	if err != nil {
		if strings.HasPrefix(err.Error(), "line ") {
			return fmt.Errorf("%s: %w", f.from, err)
		}
		return f.explain(err)
	}
	return a.printReplay(f, log, &report, asJSON)
}

func (a *app) printReplay(f *replayFlags, log *decisionLog, r *policy.Report, asJSON bool) error {
	if err := firstExamples(r, f.examples); err != nil {
		return err
	}
	if asJSON {
		if err := a.printJSON(r); err != nil {
			return err
		}
	} else {
		printChanges(a.out, r)
		if note := log.left(); note != "" {
			fmt.Fprintln(a.out, note)
		}
	}
	if f.exitCode && r.Changed > 0 {
		return fmt.Errorf("%s of %s would change", count(int(r.Changed), "decision"), grouped(r.Compared))
	}
	return nil
}

// decisionLog is the part of a log that is asked for, and the names that it uses.
type decisionLog struct {
	f             *replayFlags
	lines         [][]byte // nil for those that are left out: the numbers of the others stay
	kept, bytes   int
	torn          int            // lines that a dying process has cut
	others        map[string]int // lines left out, by whose they are
	tiers, labels []string
}

// logLine is what a line is picked by, and where it names tiers and labels.
type logLine struct {
	Owner, Module string
	Facts         struct {
		Tier       json.RawMessage
		Attributes map[string]json.RawMessage
	}
	Decision struct {
		Tier string
		Dims []struct{ Tier string }
	}
}

func (a *app) readLog(f *replayFlags) (*decisionLog, error) {
	var in io.Reader = a.in
	if f.from != "-" {
		file, err := os.Open(f.from)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	l := &decisionLog{f: f, others: map[string]int{}}
	scan := bufio.NewScanner(in)
	scan.Buffer(make([]byte, 0, 64<<10), 1<<20)
	for scan.Scan() {
		if err := l.add(scan.Bytes()); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", f.from, len(l.lines)+1, err)
		}
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", f.from, len(l.lines)+1, err)
	}
	if l.kept == 0 {
		return nil, fmt.Errorf("%s: no line of %s%s", f.from, l.wanted(), l.present())
	}
	l.trim()
	slices.Sort(l.labels)
	return l, nil
}

func (l *decisionLog) add(raw []byte) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		l.lines = append(l.lines, nil)
		return nil
	}
	if len(l.lines) > 0 && !json.Valid(raw) { // cut where a process died; the lines around it are whole
		l.torn++
		l.lines = append(l.lines, nil)
		return nil
	}
	var x logLine
	if err := json.Unmarshal(raw, &x); err != nil || x.Owner == "" {
		if err == nil {
			err = fmt.Errorf(`it has no "owner"`)
		}
		return fmt.Errorf("not a line of a decision log: %w", err)
	}
	if l.f.owner != "all" && x.Owner != l.f.owner || l.f.module != "" && x.Module != l.f.module {
		l.others[x.Owner+" "+x.Module]++
		l.lines = append(l.lines, nil)
		return nil
	}
	if l.bytes += len(raw); l.bytes > maxLogBytes {
		return fmt.Errorf("the lines so far are more than %d MiB; take a part of the log", maxLogBytes>>20)
	}
	l.lines = append(l.lines, bytes.Clone(raw))
	l.kept++
	l.learn(&x)
	return nil
}

// learn notes the names of tiers and labels in the order of their first use.
func (l *decisionLog) learn(x *logLine) {
	tier := func(name string) {
		if name != "" && !slices.Contains(l.tiers, name) {
			l.tiers = append(l.tiers, name)
		}
	}
	var name string
	if json.Unmarshal(x.Facts.Tier, &name) == nil {
		tier(name)
	}
	tier(x.Decision.Tier)
	for _, d := range x.Decision.Dims {
		tier(d.Tier)
	}
	for name := range x.Facts.Attributes {
		if plainAttribute(name) {
			continue
		}
		if name = strings.TrimPrefix(name, "label:"); !slices.Contains(l.labels, name) {
			l.labels = append(l.labels, name)
		}
	}
}

// plainAttribute: the facts have it whatever labels there are.
func plainAttribute(name string) bool {
	_, err := policy.ParseFacts([]byte(`{"attributes":{`+quoted(name)+`:""}}`), nil, nil)
	return err == nil
}

func quoted(s string) string {
	raw, _ := json.Marshal(s) // a string
	return string(raw)
}

// trim leaves the last lines when there is a limit.
func (l *decisionLog) trim() {
	for i := 0; l.f.limit > 0 && l.kept > l.f.limit; i++ {
		if l.lines[i] != nil {
			l.lines[i] = nil
			l.kept--
		}
	}
}

func (l *decisionLog) reader() io.Reader {
	return bytes.NewReader(bytes.Join(l.lines, []byte("\n")))
}

func (l *decisionLog) wanted() string {
	if l.f.module == "" {
		return l.f.owner
	}
	return l.f.owner + " and module " + l.f.module
}

// present ends an error: whose lines there are.
func (l *decisionLog) present() string {
	if len(l.others) == 0 {
		return "; it is empty"
	}
	return "; it has lines of " + strings.Join(slices.Sorted(maps.Keys(l.others)), ", ")
}

// left is a note on the lines that were left out.
func (l *decisionLog) left() string {
	n := 0
	for _, k := range l.others {
		n += k
	}
	var parts []string
	if n > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s (--owner, --module)", count(n, "line"), strings.Join(slices.Sorted(maps.Keys(l.others)), ", ")))
	}
	if l.torn > 0 {
		parts = append(parts, count(l.torn, "torn line"))
	}
	if len(parts) == 0 {
		return ""
	}
	return "left out: " + strings.Join(parts, ", ")
}

// distinct are the names of both lists, the first list's first.
func distinct(a, b []string) []string {
	out := slices.Clone(a)
	for _, name := range b {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}
