package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/weir-gateway/weir/core/policy"
)

// trialFlags are those of the commands that run a module here.
type trialFlags struct {
	setting
	profile, params, facts string
}

func (t *trialFlags) flags(c *cobra.Command, facts string) {
	t.setting.flags(c)
	profileFlag(c, &t.profile)
	c.Flags().StringVar(&t.params, "params", "", "params: a JSON `file`, - or a JSON object")
	c.Flags().StringVarP(&t.facts, "facts", "f", "", facts)
}

func (a *app) policyRun(asJSON *bool) *cobra.Command {
	var t trialFlags
	c := &cobra.Command{Use: "run [" + subjectUse + "] -f facts.json", Short: "Ask a module once: its decision, which rule fired, the fuel, what it logged", Args: atMost(1, subjectUse),
		Long: "Run a module on facts and print its own decision, before any envelope. " + subjectHelp + "\nA tenant's table of rules is tried with\n\n  weir policy run rules -f facts.json --params rules.json",
		RunE: func(c *cobra.Command, args []string) error {
			if t.facts == "" {
				return usageError("%s needs -f with the facts: a JSON file, - or a JSON object, such as '{\"attributes\": {\"model\": \"gpt-4o\"}}'", c.CommandPath())
			}
			return a.runOnce(c.Context(), first(args, "."), &t, *asJSON)
		}}
	t.flags(c, "facts: a JSON `file`, - or a JSON object; a case or a line of a decision log will do")
	return c
}

// ran is what run prints as JSON.
type ran struct {
	Module   string          `json:"module"`
	Version  string          `json:"version"`
	Decision json.RawMessage `json:"decision"`
	Rule     *firedRule      `json:"rule"` // null: none named itself
	policy.Trace
}

type firedRule struct {
	Number  uint16 `json:"number"`
	Message string `json:"message"`
}

// String is for people; nil: no rule.
func (r *firedRule) String() string {
	if r == nil {
		return "none named itself"
	}
	return fmt.Sprintf("%d %s", r.Number, r.Message)
}

func (a *app) printSaid(log []policy.SaidLine) {
	for _, l := range log {
		fmt.Fprintf(a.out, "log     %s: %s\n", l.Level, l.Text)
	}
}

func (a *app) runOnce(ctx context.Context, arg string, t *trialFlags, asJSON bool) error {
	s, err := a.subject(ctx, arg, t.profile)
	if err != nil {
		return err
	}
	name, raw, err := a.document("-f", t.facts)
	if err != nil {
		return err
	}
	params, err := a.object("--params", t.params)
	if err != nil {
		return err
	}
	all, err := factsDocument(name, raw)
	if err != nil {
		return err
	}
	if len(all) != 1 {
		return fmt.Errorf("%s: want the facts of one request, got %d", name, len(all))
	}
	if err := t.settle(a, s.ownCases()); err != nil {
		return err
	}
	facts, err := t.parse(name, all[0])
	if err != nil {
		return err
	}
	h, bindings, err := a.host(ctx, &t.setting, s.withoutCases())
	if err != nil {
		return err
	}
	defer h.Close()
	bindings[0].Params = params
	r, err := h.Open(ctx, bindings[0])
	if err != nil {
		return t.explain(err)
	}
	defer r.Close()
	out := ran{Module: s.name, Version: s.version(params)}
	var d policy.Decision
	out.Trace = r.Run(facts, &d)
	if d.Reason != 0 || d.Message != "" {
		out.Rule = &firedRule{d.Reason, d.Message}
	}
	if out.Decision, err = policy.MarshalDecision(&d, t.tiers); err != nil {
		return err
	}
	return a.printRan(&out, asJSON)
}

func (a *app) printRan(r *ran, asJSON bool) error {
	if asJSON {
		if err := a.printJSON(r); err != nil {
			return err
		}
	} else {
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, r.Decision, "", "  "); err != nil {
			return err
		}
		fmt.Fprintln(a.out, pretty.String())
		fmt.Fprintf(a.out, "rule    %s\nfuel    %s of %s (%s)\nmemory  %s KiB\nmodule  %s@%s\n", r.Rule,
			grouped(r.Fuel), grouped(r.FuelAllowed), share(r.Fuel, r.FuelAllowed), grouped(r.Memory>>10), r.Module, r.Version)
		a.printSaid(r.Log)
	}
	if r.Fault != "" {
		return fmt.Errorf("%s did not decide: %s; a gateway would take its on_error", r.Module, r.Fault)
	}
	return nil
}

func (a *app) policyBench(asJSON *bool) *cobra.Command {
	var t trialFlags
	var d time.Duration
	c := &cobra.Command{Use: "bench [" + subjectUse + "]", Short: "Measure what a call costs: time, fuel, memory", Args: atMost(1, subjectUse),
		Long: "Run a module on facts again and again, on one instance and one core. Without -f the facts of its own cases are taken in\nturn, with their params. " + subjectHelp,
		RunE: func(c *cobra.Command, args []string) error {
			if d <= 0 || d > time.Minute {
				return usageError("--time: want more than 0 and at most 1m, got %s", d)
			}
			return a.measure(c.Context(), first(args, "."), &t, d, *asJSON)
		}}
	t.flags(c, "facts: a JSON `file` with an object or an array of them (default: those of the module's own cases)")
	c.Flags().DurationVar(&d, "time", time.Second, "how long to measure")
	return c
}

func (a *app) measure(ctx context.Context, arg string, t *trialFlags, d time.Duration, asJSON bool) error {
	s, err := a.subject(ctx, arg, t.profile)
	if err != nil {
		return err
	}
	own := s.ownCases()
	if err := t.settle(a, own); err != nil {
		return err
	}
	facts, err := a.benchFacts(t, s, own)
	if err != nil {
		return err
	}
	params := []byte(own.Configure.Params)
	if t.params != "" {
		if params, err = a.object("--params", t.params); err != nil {
			return err
		}
	}
	h, bindings, err := a.host(ctx, &t.setting, s.withoutCases())
	if err != nil {
		return err
	}
	defer h.Close()
	bindings[0].Params = params
	m, err := h.Bench(ctx, bindings[0], facts, d)
	if err != nil {
		return t.explain(err)
	}
	return a.printMeasured(s, m, asJSON)
}

func (a *app) benchFacts(t *trialFlags, s *subject, own *caseFile) ([]*policy.Facts, error) {
	var all []json.RawMessage
	name := s.name
	for _, c := range own.Cases {
		all = append(all, c.Facts)
	}
	if t.facts != "" {
		var raw []byte
		var err error
		if name, raw, err = a.document("-f", t.facts); err == nil {
			all, err = factsDocument(name, raw)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(all) == 0 {
		return nil, usageError("%s has no cases of its own to run: give facts with -f", s.name)
	}
	out := make([]*policy.Facts, len(all))
	for i, raw := range all {
		var err error
		if out[i], err = t.parse(name, raw); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (a *app) printMeasured(s *subject, m policy.Measured, asJSON bool) error {
	if asJSON {
		if err := a.printJSON(m); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(a.out, "%s: %.0f ns a call, %s calls/s on one core, fuel %s (most %s of %s), memory %s KiB, %s\n", s.name, m.NSPerCall,
			grouped(uint64(m.PerSecond)), grouped(m.Fuel), grouped(m.FuelMost), grouped(m.FuelLimit), grouped(m.Memory>>10), count(int(m.Calls), "call"))
	}
	if m.Faults > 0 {
		return fmt.Errorf("%s did not decide in %s of %s", s.name, grouped(m.Faults), count(int(m.Calls), "call"))
	}
	return nil
}
