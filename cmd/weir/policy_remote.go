package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/weir-gateway/weir/core/policy"
)

// policyRemote are the commands that speak to a running gateway.
func (a *app) policyRemote() []*cobra.Command {
	return []*cobra.Command{a.policyPush(), a.policyList(), a.policyVersions(), a.policyStage("shadow"), a.policyStage("canary"),
		a.policyStage("activate"), a.policyRollback(), a.policyReport(), a.policyParams(), a.policyBindings(), a.policyBind(), a.policyUnbind()}
}

// owner is whose plan a command changes: the operator's, or an org's.
type owner struct{ org string }

func (o *owner) flags(c *cobra.Command) {
	c.Flags().StringVar(&o.org, "org", "", "the org's plan, by its `id` (default: the operator's)")
}

// name is the owner in the API, empty for the operator's.
func (o *owner) name() (string, error) {
	if o.org == "" {
		return "", nil
	}
	id, err := orgID("--org", o.org)
	if err != nil {
		return "", err
	}
	return policy.Owner(id).String(), nil
}

func orgID(flag, text string) (uint64, error) {
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil || id == 0 {
		return 0, usageError("%s: want the id of an org, a whole number from 1, got %q", flag, text)
	}
	return id, nil
}

func policyPath(name, action string) string {
	return "/admin/policies/" + url.PathEscape(name) + "/" + action
}

func (a *app) policyPush() *cobra.Command {
	var name, profile string
	c := &cobra.Command{Use: "push [FILE.wasm|DIR]", Short: "Verify and store a module in the gateway; nothing is active yet", Args: atMost(1, "FILE.wasm|DIR")}
	r := a.remoteFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		s, err := a.subject(c.Context(), first(args, "."), profile)
		if err != nil {
			return err
		}
		answer, err := s.upload(c.Context(), r, or(name, s.name))
		if err != nil {
			return s.explain(err)
		}
		if r.json {
			return r.print(answer, nil)
		}
		var stored struct{ Name, Version, Profile string }
		if err := json.Unmarshal(answer, &stored); err != nil {
			return fmt.Errorf("the gateway answered %.80q: %w", answer, err)
		}
		fmt.Fprintf(a.out, "%s@%s is stored: %s bytes, profile %s\nnext: weir policy shadow %s, then canary %s --percent 10, then activate %s\n",
			stored.Name, stored.Version, grouped(len(s.wasm)), stored.Profile, stored.Name, stored.Name, stored.Name)
		return nil
	}
	c.Flags().StringVar(&name, "name", "", "name of the module (default: the file's, or that in about.json)")
	profileFlag(c, &profile)
	return c
}

func (s *subject) upload(ctx context.Context, r *remote, name string) ([]byte, error) {
	return r.do(ctx, "POST", "/admin/policies"+query(map[string]string{"name": name, "profile": s.profile}), s.wasm, "application/wasm")
}

func (a *app) policyList() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List modules, which one is active, and what decides for orgs", Args: exactly()}
	r := a.remoteFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		err := r.call(c.Context(), "GET", "/admin/policies", nil, "name", "version", "stage", "active", "profile", "size", "versions", "orgs")
		if err != nil || r.json {
			return err
		}
		return a.listOrgs(c.Context(), r)
	}
	return c
}

// listOrgs prints the bindings of the first orgs that have any.
func (a *app) listOrgs(ctx context.Context, r *remote) error {
	answer, err := r.do(ctx, "GET", "/admin/bindings?limit=20", nil, "")
	if err != nil {
		return err
	}
	page, err := bindingsIn(answer)
	if err != nil {
		return err
	}
	for i := range page.Data {
		if b := &page.Data[i]; b.Owner != policy.Operator.String() && (b.Module != "" || b.Candidate != nil) {
			fmt.Fprint(a.out, b)
		}
	}
	if page.NextCursor != "" {
		fmt.Fprintln(a.out, "more: weir policy bindings")
	}
	return nil
}

// bindings is a page of them, as the API gives it.
type bindings struct {
	Data       []binding `json:"data"`
	NextCursor string    `json:"nextCursor"`
}

func bindingsIn(answer []byte) (page bindings, err error) {
	if err = json.Unmarshal(answer, &page); err != nil {
		err = fmt.Errorf("the gateway answered %.80q: %w", answer, err)
	}
	return page, err
}

func (a *app) policyVersions() *cobra.Command {
	var o owner
	c := &cobra.Command{Use: "versions NAME", Short: "List what can be activated or rolled back to, newest upload first", Args: exactly("NAME")}
	r := a.remoteFlags(c)
	o.flags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		who, err := o.name()
		if err != nil {
			return err
		}
		return r.call(c.Context(), "GET", policyPath(args[0], "versions")+query(map[string]string{"owner": who}), nil,
			"version", "stage", "percent", "active", "profile", "size", "uploadedAt", "params")
	}
	return c
}

// choiceFlags say which version with which params is meant; what is not given stays as the gateway has it.
type choiceFlags struct {
	owner
	version, params, onError string
}

func (f *choiceFlags) flags(c *cobra.Command) {
	f.owner.flags(c)
	c.Flags().StringVar(&f.version, "version", "", "a version as weir policy versions lists it, or the first characters of its hash (default: the one on trial, else the newest upload)")
	c.Flags().StringVar(&f.params, "params", "", "params: a JSON `file`, - or a JSON object (default: as they are, or were when it was withdrawn)")
	c.Flags().StringVar(&f.onError, "on-error", "", "what a request gets when the module fails: default, last_good or deny")
}

// body are the members that were given.
func (f *choiceFlags) body(a *app) (map[string]any, error) {
	body := map[string]any{}
	who, err := f.name()
	if err != nil {
		return nil, err
	}
	params, err := a.object("--params", f.params)
	if err != nil {
		return nil, err
	}
	choices := []string{string(policy.OnErrorDefault), string(policy.OnErrorLastGood), string(policy.OnErrorDeny)}
	if f.onError != "" && !slices.Contains(choices, f.onError) {
		return nil, usageError("--on-error: unknown %q%s", f.onError, proposal(f.onError, choices))
	}
	for name, value := range map[string]string{"owner": who, "version": f.version, "onError": f.onError} {
		if value != "" {
			body[name] = value
		}
	}
	if params != nil {
		body["params"] = json.RawMessage(params)
	}
	return body, nil
}

// policyStage is a step in a version's life: shadow, canary or activate.
func (a *app) policyStage(step string) *cobra.Command {
	var f choiceFlags
	var percent int
	short := map[string]string{
		"shadow":   "Let a version decide every request beside the active one, without effect",
		"canary":   "Let a version decide for some of a hundred keys",
		"activate": "Let a version decide from the next request on",
	}
	c := &cobra.Command{Use: step + " NAME", Short: short[step], Args: exactly("NAME")}
	r := a.remoteFlags(c)
	f.flags(c)
	if step == "canary" {
		c.Use += " --percent N"
		c.Flags().IntVar(&percent, "percent", 0, "of a hundred keys, 1 to 100; always the same ones")
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		body, err := f.body(a)
		if err != nil {
			return err
		}
		if step == "canary" {
			if !c.Flags().Changed("percent") {
				return usageError("%s needs --percent N, 1 to 100 of a hundred keys", c.CommandPath())
			}
			if percent < 1 || percent > 100 {
				return usageError("%s: --percent: want 1 to 100 of a hundred keys, got %d", c.CommandPath(), percent)
			}
			body["percent"] = percent
		}
		return a.rebind(c.Context(), r, "POST", policyPath(args[0], step), body)
	}
	return c
}

func (a *app) policyRollback() *cobra.Command {
	var f choiceFlags
	c := &cobra.Command{Use: "rollback NAME", Short: "End a trial, or let the version before the active one decide again", Args: exactly("NAME")}
	r := a.remoteFlags(c)
	f.owner.flags(c)
	c.Flags().StringVar(&f.version, "version", "", "go to this version, as weir policy versions lists it")
	c.RunE = func(c *cobra.Command, args []string) error {
		body, err := f.body(a)
		if err != nil {
			return err
		}
		return a.rebind(c.Context(), r, "POST", policyPath(args[0], "rollback"), body)
	}
	return c
}

func (a *app) policyReport() *cobra.Command {
	var o owner
	var examples int
	c := &cobra.Command{Use: "report NAME", Short: "What a version in shadow or canary would change, or changes", Args: exactly("NAME")}
	r := a.remoteFlags(c)
	o.flags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		who, err := o.name()
		if err != nil {
			return err
		}
		answer, err := r.do(c.Context(), "GET", policyPath(args[0], "report")+query(map[string]string{"owner": who}), nil, "")
		if err != nil || r.json {
			return orPrint(r, answer, err)
		}
		return a.printReported(r, answer, examples)
	}
	examplesFlag(c, &examples)
	return c
}

// reported is a report as the API gives it.
type reported struct {
	policy.Report
	Changed uint64            `json:"wouldChange"`
	Kinds   map[string]uint64 `json:"dimensions"`
	Since   string            `json:"since"`
	Running bool              `json:"running"`
}

func (a *app) printReported(r *remote, answer []byte, examples int) error {
	var got reported
	if err := json.Unmarshal(answer, &got); err != nil {
		return r.print(answer, nil)
	}
	report := got.Report
	report.Changed, report.Kinds = got.Changed, got.Kinds
	if err := firstExamples(&report, examples); err != nil {
		return err
	}
	printChanges(a.out, &report)
	if !got.Running {
		fmt.Fprintln(a.out, "the trial has ended")
	}
	if got.Since != "" {
		fmt.Fprintln(a.out, "since "+got.Since)
	}
	return nil
}

func orPrint(r *remote, answer []byte, err error) error {
	if err != nil {
		return err
	}
	return r.print(answer, nil)
}

func (a *app) policyParams() *cobra.Command {
	var f choiceFlags
	c := &cobra.Command{Use: "params NAME --params params.json", Short: "Change the params of the active version; that is a version like any other", Args: exactly("NAME")}
	r := a.remoteFlags(c)
	f.owner.flags(c)
	paramsFlag(c, &f.params, "params: a JSON `file`, - or a JSON object", "file", "f")
	c.Flags().StringVar(&f.onError, "on-error", "", "what a request gets when the module fails: default, last_good or deny")
	c.RunE = func(c *cobra.Command, args []string) error {
		if f.params == "" {
			return usageError("%s needs --params: a JSON file, - or a JSON object", c.CommandPath())
		}
		body, err := f.body(a)
		if err != nil {
			return err
		}
		return a.rebind(c.Context(), r, "PUT", policyPath(args[0], "params"), body)
	}
	return c
}

func (a *app) policyBindings() *cobra.Command {
	c := &cobra.Command{Use: "bindings", Short: "List what decides for the operator and for each org", Args: exactly()}
	r := a.remoteFlags(c)
	var limit, cursor string
	c.Flags().StringVar(&limit, "limit", "", "at most so `many`")
	c.Flags().StringVar(&cursor, "cursor", "", "go on where the last page ended")
	c.RunE = func(c *cobra.Command, _ []string) error {
		answer, err := r.do(c.Context(), "GET", "/admin/bindings"+query(map[string]string{"limit": limit, "cursor": cursor}), nil, "")
		if err != nil || r.json {
			return orPrint(r, answer, err)
		}
		page, err := bindingsIn(answer)
		if err != nil {
			return err
		}
		for i := range page.Data {
			fmt.Fprint(a.out, &page.Data[i])
		}
		if page.NextCursor != "" {
			fmt.Fprintf(a.out, "more: --cursor %s\n", page.NextCursor)
		}
		return nil
	}
	return c
}

// binding is what decides for an owner, as the API gives it.
type binding struct {
	Owner     string         `json:"owner"`
	Module    string         `json:"module"`
	Version   string         `json:"version"`
	OnError   policy.OnError `json:"onError"`
	Candidate *onTrial       `json:"candidate"`
	Problem   string         `json:"problem"`

	EndedTrial     *onTrial    `json:"endedTrial"`
	WasQuarantined *quarantine `json:"wasQuarantined"`
}

// quarantine is why a version was taken out of service, as the API gives it.
type quarantine struct {
	Reason string `json:"reason"`
	Since  string `json:"since"`
}

// pardoned says on a line of its own that a change has bound again what had failed; nothing for nil.
func (q *quarantine) pardoned() string {
	if q == nil {
		return ""
	}
	return fmt.Sprintf("\n  warning: it was quarantined at %s: %s", q.Since, q.Reason)
}

// onTrial is a candidate, as the API gives it.
type onTrial struct {
	Module  string       `json:"module"`
	Version string       `json:"version"`
	Stage   policy.Stage `json:"stage"`
	Percent int          `json:"percent"`
}

func (t *onTrial) String() string {
	text := fmt.Sprintf("%s: %s@%s", t.Stage, t.Module, t.Version)
	if t.Percent > 0 {
		text += fmt.Sprintf(" decides for %d %% of the keys", t.Percent)
	}
	return text
}

// ended says on a line of its own that a change has ended the trial; nothing for nil.
func (t *onTrial) ended() string {
	if t == nil {
		return ""
	}
	at := ""
	if t.Percent > 0 {
		at = fmt.Sprintf(" at %d %%", t.Percent)
	}
	return fmt.Sprintf("\n  this ended the trial of %s@%s (%s%s)", t.Module, t.Version, t.Stage, at)
}

// String is a line for what is in force, one for what is on trial, and one for what is wrong.
func (b *binding) String() string {
	text := b.Owner + ": no module decides"
	if b.Module != "" {
		text = fmt.Sprintf("%s: %s@%s decides", b.Owner, b.Module, b.Version)
		if b.OnError != policy.OnErrorDefault {
			text += fmt.Sprintf(", on error %s", b.OnError)
		}
	}
	if c := b.Candidate; c != nil {
		text += fmt.Sprintf("\n  %s; see weir policy report %s", c, c.Module)
	}
	if b.Problem != "" {
		text += "\n  problem: " + b.Problem
	}
	return text + b.WasQuarantined.pardoned() + b.EndedTrial.ended() + "\n"
}

// rebind makes a change of what decides and shows what came of it.
func (a *app) rebind(ctx context.Context, r *remote, method, path string, body map[string]any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	answer, err := r.do(ctx, method, path, raw, "application/json")
	if err != nil || r.json {
		return orPrint(r, answer, err)
	}
	var b binding
	if err := json.Unmarshal(answer, &b); err != nil || b.Owner == "" {
		return r.print(answer, nil)
	}
	_, err = fmt.Fprint(a.out, &b)
	return err
}

func (a *app) policyBind() *cobra.Command {
	var f choiceFlags
	c := &cobra.Command{Use: "bind NAME --org N", Short: "Let a module decide for an org, after the operator's", Args: exactly("NAME")}
	r := a.remoteFlags(c)
	f.flags(c)
	c.Flags().Lookup("org").Usage = "the org that it decides for, by its `id`"
	c.RunE = func(c *cobra.Command, args []string) error {
		if f.org == "" {
			return usageError("%s needs --org; the operator's module is bound with `weir policy activate`", c.CommandPath())
		}
		body, err := f.body(a)
		if err != nil {
			return err
		}
		body["module"] = args[0]
		return a.rebind(c.Context(), r, "PUT", "/admin/bindings", body)
	}
	return c
}

func (a *app) policyUnbind() *cobra.Command {
	var f choiceFlags
	var operator bool
	c := &cobra.Command{Use: "unbind --org N", Short: "Let no module decide for an org any more", Args: exactly()}
	r := a.remoteFlags(c)
	f.owner.flags(c)
	c.Flags().BoolVar(&operator, "operator", false, "the operator's instead: native defaults decide")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if (f.org == "") != operator {
			return usageError("%s: want either --org N or --operator", c.CommandPath())
		}
		body, err := f.body(a)
		if err != nil {
			return err
		}
		body["module"] = nil
		return a.rebind(c.Context(), r, "PUT", "/admin/bindings", body)
	}
	return c
}
