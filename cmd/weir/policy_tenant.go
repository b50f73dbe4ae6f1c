package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/weir-gateway/weir/core/policy"
)

// tenantCommand are the commands for what an org may tune: its table of rules, inside the operator's envelope.
func (a *app) tenantCommand() *cobra.Command {
	c := group("tenant", "See, change and try the rules of an org")
	rules := group("rules", "The table of rules of an org")
	rules.AddCommand(a.rulesGet(), a.rulesSet(), a.rulesTry(), a.rulesTrial(), a.rulesReport(), a.rulesRollback())
	c.AddCommand(rules, a.tenantUsage())
	return c
}

// tenantPath is the path of something of an org's.
func tenantPath(org, what string) (string, error) {
	if org == "" {
		return "", usageError("want --org with the id of an org")
	}
	id, err := orgID("--org", org)
	if err != nil {
		return "", err
	}
	return "/admin/tenants/" + strconv.FormatUint(id, 10) + "/" + what, nil
}

func orgFlag(c *cobra.Command, org *string) {
	c.Flags().StringVar(org, "org", "", "the org's `id`")
}

// tenantState is what the API says about an org's rules.
type tenantState struct {
	OrgID   uint64          `json:"orgId"`
	Module  string          `json:"module"`
	Version string          `json:"version"`
	Params  json.RawMessage `json:"params"`
	Problem string          `json:"problem"`

	Candidate  *onTrial `json:"candidate"`
	EndedTrial *onTrial `json:"endedTrial"`
}

func (s *tenantState) String() string {
	text := fmt.Sprintf("org %d: no rules are in force", s.OrgID)
	if s.Version != "" {
		text = fmt.Sprintf("org %d: %s@%s is in force", s.OrgID, s.Module, s.Version)
	}
	if s.Problem != "" {
		text += "; " + s.Problem
	}
	if s.Candidate != nil {
		text += fmt.Sprintf("\n  %s; see weir tenant rules report --org %d", s.Candidate, s.OrgID)
	}
	return text + s.EndedTrial.ended()
}

// printState shows an org's rules after a change.
func (a *app) printState(r *remote, answer []byte) error {
	var state tenantState
	if err := json.Unmarshal(answer, &state); err != nil {
		return r.print(answer, nil)
	}
	fmt.Fprintln(a.out, &state)
	return nil
}

// postRules sends a change of an org's rules.
func (a *app) postRules(c *cobra.Command, r *remote, path string, body map[string]any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	answer, err := r.do(c.Context(), "POST", path, raw, "application/json")
	if err != nil || r.json {
		return orPrint(r, answer, err)
	}
	return a.printState(r, answer)
}

func (a *app) rulesTrial() *cobra.Command {
	var org, file string
	var percent int
	c := &cobra.Command{Use: "trial --org N [--params rules.json] [--percent N]", Short: "Let a table of rules decide beside the one in force, or for some of a hundred keys", Args: exactly()}
	r := a.remoteFlags(c)
	orgFlag(c, &org)
	paramsFlag(c, &file, "rules: a JSON `file`, - or a JSON object (default: those on trial)", "file", "f")
	c.Flags().IntVar(&percent, "percent", 0, "of a hundred keys, 1 to 100 (default: none, without effect)")
	c.RunE = func(c *cobra.Command, _ []string) error {
		path, err := tenantPath(org, "rules/trial")
		if err != nil {
			return err
		}
		table, err := a.object("--params", file)
		if err != nil {
			return err
		}
		body := map[string]any{}
		if table != nil {
			body["params"] = json.RawMessage(table)
		}
		if c.Flags().Changed("percent") {
			body["percent"] = percent
		}
		return a.postRules(c, r, path, body)
	}
	return c
}

func (a *app) rulesReport() *cobra.Command {
	var org string
	var examples int
	c := &cobra.Command{Use: "report --org N", Short: "What the rules on trial would change, or change", Args: exactly()}
	r := a.remoteFlags(c)
	orgFlag(c, &org)
	c.RunE = func(c *cobra.Command, _ []string) error {
		path, err := tenantPath(org, "rules/trial")
		if err != nil {
			return err
		}
		answer, err := r.do(c.Context(), "GET", path, nil, "")
		if err != nil || r.json {
			return orPrint(r, answer, err)
		}
		return a.printReported(r, answer, examples)
	}
	examplesFlag(c, &examples)
	return c
}

func (a *app) rulesRollback() *cobra.Command {
	var org, version string
	c := &cobra.Command{Use: "rollback --org N", Short: "End a trial of rules, or put those before in force again", Args: exactly()}
	r := a.remoteFlags(c)
	orgFlag(c, &org)
	c.Flags().StringVar(&version, "version", "", "go to this version of the rules")
	c.RunE = func(c *cobra.Command, _ []string) error {
		path, err := tenantPath(org, "rules/rollback")
		if err != nil {
			return err
		}
		body := map[string]any{}
		if version != "" {
			body["version"] = version
		}
		return a.postRules(c, r, path, body)
	}
	return c
}

func (a *app) rulesGet() *cobra.Command {
	var org string
	c := &cobra.Command{Use: "get --org N", Short: "Print the rules in force, as `set` takes them", Args: exactly()}
	r := a.remoteFlags(c)
	orgFlag(c, &org)
	c.RunE = func(c *cobra.Command, _ []string) error {
		path, err := tenantPath(org, "rules")
		if err != nil {
			return err
		}
		answer, err := r.do(c.Context(), "GET", path, nil, "")
		if err != nil || r.json {
			return orPrint(r, answer, err)
		}
		var state tenantState
		if err := json.Unmarshal(answer, &state); err != nil {
			return r.print(answer, nil)
		}
		fmt.Fprintln(a.err, &state)
		if bytes.Equal(state.Params, []byte("null")) || state.Params == nil {
			state.Params = json.RawMessage("{}")
		}
		return a.printJSON(state.Params)
	}
	return c
}

func (a *app) rulesSet() *cobra.Command {
	var org, file string
	c := &cobra.Command{Use: "set --org N --params rules.json", Short: "Put a table of rules in force", Args: exactly()}
	r := a.remoteFlags(c)
	orgFlag(c, &org)
	paramsFlag(c, &file, "rules: a JSON `file`, - or a JSON object", "file", "f")
	c.RunE = func(c *cobra.Command, _ []string) error {
		path, err := tenantPath(org, "rules")
		if err != nil {
			return err
		}
		if file == "" {
			return usageError("%s needs --params with the rules: a JSON file, - or a JSON object, such as '{\"rules\": []}'", c.CommandPath())
		}
		table, err := a.object("--params", file)
		if err != nil {
			return err
		}
		answer, err := r.do(c.Context(), "PUT", path, table, "application/json")
		if err != nil || r.json {
			return orPrint(r, answer, err)
		}
		return a.printState(r, answer)
	}
	return c
}

func (a *app) tenantUsage() *cobra.Command {
	var org, limit, cursor string
	c := &cobra.Command{Use: "usage --org N", Short: "Show what an org and its keys use now", Args: exactly()}
	r := a.remoteFlags(c)
	orgFlag(c, &org)
	c.Flags().StringVar(&limit, "limit", "", "at most so `many` keys")
	c.Flags().StringVar(&cursor, "cursor", "", "go on where the last page ended")
	c.RunE = func(c *cobra.Command, _ []string) error {
		path, err := tenantPath(org, "usage")
		if err != nil {
			return err
		}
		answer, err := r.do(c.Context(), "GET", path+query(map[string]string{"limit": limit, "cursor": cursor}), nil, "")
		if err != nil || r.json {
			return orPrint(r, answer, err)
		}
		return a.printUsed(r, answer)
	}
	return c
}

// printUsed prints the org's members, then its keys as a table.
func (a *app) printUsed(r *remote, answer []byte) error {
	all, err := members(answer)
	if err != nil {
		return r.print(answer, nil)
	}
	for _, m := range all {
		if m.name != "data" && m.name != "nextCursor" {
			fmt.Fprintf(a.out, "%-8s %s\n", m.name, bytes.Trim(m.value, `"`))
		}
	}
	return r.print(answer, []string{"keyId", "name", "qps", "tpm", "monthly"})
}

func (a *app) rulesTry() *cobra.Command {
	var org, file, facts string
	c := &cobra.Command{Use: "dry-run --org N [-f facts.json] [--params rules.json]", Short: "What a request would get under a table of rules, without putting it in force", Args: exactly(),
		Long: "Decide facts through the operator's module, the org's rules and the envelope. Facts that are left out are as a chat of the\nkey in them (key_id) would have them now."}
	r := a.remoteFlags(c)
	orgFlag(c, &org)
	c.Flags().StringVarP(&facts, "facts", "f", "", "facts: a JSON `file`, - or a JSON object (default: none)")
	paramsFlag(c, &file, "rules: a JSON `file` or a JSON object (default: those in force)", "rules", "")
	c.RunE = func(c *cobra.Command, _ []string) error {
		path, err := tenantPath(org, "rules")
		if err != nil {
			return err
		}
		body := map[string]json.RawMessage{}
		for name, from := range map[string][2]string{"facts": {"-f", facts}, "params": {"--params", file}} {
			raw, err := a.object(from[0], from[1])
			if err != nil {
				return err
			}
			if raw != nil {
				body[name] = raw
			}
		}
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		answer, err := r.do(c.Context(), "POST", path+"/dry-run", raw, "application/json")
		if err != nil || r.json {
			return orPrint(r, answer, err)
		}
		return a.printTried(r, answer)
	}
	return c
}

// tried is a dry run as the API gives it.
type tried struct {
	Decision json.RawMessage `json:"decision"`
	Policy   string          `json:"policy"`
	Tenant   struct {
		Module      string            `json:"module"`
		Applied     bool              `json:"applied"`
		Rule        *firedRule        `json:"rule"`
		Fuel        uint64            `json:"fuel"`
		FuelAllowed uint64            `json:"fuelAllowed"`
		Log         []policy.SaidLine `json:"log"`
		Fault       string            `json:"fault"`
		Clamped     []struct {
			Field   string          `json:"field"`
			Asked   json.RawMessage `json:"asked"`
			Granted json.RawMessage `json:"granted"`
		} `json:"clamped"`
	} `json:"tenant"`
}

func (a *app) printTried(r *remote, answer []byte) error {
	var t tried
	if err := json.Unmarshal(answer, &t); err != nil || t.Decision == nil {
		return r.print(answer, nil)
	}
	if err := a.printJSON(t.Decision); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "rule    %s\nfuel    %s of %s (%s)\npolicy  %s\n", t.Tenant.Rule, grouped(t.Tenant.Fuel), grouped(t.Tenant.FuelAllowed),
		share(t.Tenant.Fuel, t.Tenant.FuelAllowed), t.Policy)
	if !t.Tenant.Applied {
		fmt.Fprintln(a.out, "the rules took no part: the operator's module denied before")
	}
	for _, c := range t.Tenant.Clamped {
		if string(c.Asked) == "null" {
			fmt.Fprintf(a.out, "clamped %s\n", c.Field)
			continue
		}
		fmt.Fprintf(a.out, "clamped %s: asked %s, granted %s\n", c.Field, c.Asked, c.Granted)
	}
	a.printSaid(t.Tenant.Log)
	if t.Tenant.Fault != "" {
		return fmt.Errorf("%s did not decide: %s; its on_error does", t.Tenant.Module, t.Tenant.Fault)
	}
	return nil
}
