package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/weir-gateway/weir/core/llm"
)

// field is one member of an object: its flag, its name in the API and its type.
type field struct {
	flag, api string
	kind      kind
	usage     string
}

type kind int

const (
	text kind = iota
	integer
	money // decimal units; the API's name gets the currency's suffix; "null" where unmetered
	list  // a,b,c
	pairs // name=value, repeated
	costs // the same; the API's name gets the currency's suffix
	yes   // boolean
	spans // budgets: WINDOW:name=value,..., repeated
)

// object is one kind of thing of the admin API and how its commands look.
type object struct {
	name, path string
	fields     []field
	columns    []string
	put        bool              // created and changed by PUT under its name
	stays      map[string]string // flags of create that update refuses, and why
}

var rateFields = []field{
	{"qps-limit", "qpsLimit", integer, "requests per second (0: unlimited)"},
	{"tpm-limit", "tpmLimit", integer, "tokens per minute (0: unlimited)"},
}

// limitFields are what a key, a channel and the gateway as a whole are limited by.
var limitFields = []field{
	rateFields[0], rateFields[1],
	{"concurrency-limit", "concurrencyLimit", integer, "requests at the same time (0: unlimited)"},
}

var keyLimitFields = []field{
	limitFields[0], limitFields[1], limitFields[2],
	{"monthly-quota", "monthlyQuota", money, "spend per month (0: none)"},
	{"budget", "budgets", spans, "spend per `WINDOW:limit=AMOUNT,anchor=START,timezone=ZONE` (month, week or day), or WINDOW:none; also warnPercent, slowPercent, slowToPercent, hardPercent; repeatable"},
}

var objects = []object{
	{name: "org", path: "/admin/orgs", columns: []string{"id", "name", "qpsLimit", "tpmLimit"},
		fields: append([]field{{"name", "name", text, "name"}}, rateFields...)},
	{name: "user", path: "/admin/users", stays: map[string]string{"org-id": "a user stays in its org",
		"balance": "money moves with `weir user balance ID --delta AMOUNT` (or --set AMOUNT)"}, columns: []string{"id", "orgId", "name", "balance*"},
		fields: append([]field{{"org-id", "orgId", integer, "the org it belongs to"}, {"name", "name", text, "name"},
			{"balance", "balance", money, "prepaid balance (default 0: what has a price is refused with 402; null: unmetered)"},
			{"overrun", "overrun", text, "who pays beyond a hold: debt (the user), clip (the house) or cut (the stream ends)"}}, rateFields...)},
	{name: "key", path: "/admin/keys", stays: map[string]string{"user-id": "a key stays with its user"}, columns: []string{"id", "userId", "name", "preview", "qpsLimit", "tpmLimit", "tier"},
		fields: append([]field{{"user-id", "userId", integer, "the user it belongs to"}, {"name", "name", text, "name"},
			{"tier", "tier", text, "tier"}, {"models", "models", list, "models it may use (none: all)"},
			{"scopes", "scopes", list, "what it may do beside calling models: tenant"},
			{"timezone", "timezone", text, "zone of its month, and of budgets without one, such as Asia/Shanghai"},
			{"expires-in-days", "expiresInDays", integer, "days until it expires"},
			{"label", "labels", pairs, "label, `name=value`; repeatable"}}, keyLimitFields...)},
	{name: "model", path: "/admin/models", put: true, columns: []string{"name", "channels", "input*Per1M", "output*Per1M", "qpsLimit", "tpmLimit"},
		fields: append([]field{{"channels", "channels", list, "channels that serve it (none: all of its dialect)"},
			{"input", "input*Per1M", money, "price per million input tokens"}, {"cached-input", "cachedInput*Per1M", money, "price per million cached input tokens"},
			{"cache-write", "cacheWrite*Per1M", money, "price per million input tokens written to the provider's cache"},
			{"output", "output*Per1M", money, "price per million output tokens"}, {"request", "request", money, "price per request"},
			{"target", "target", text, "the provider's name for it, where it differs"},
			{"max-output-tokens", "maxOutputTokens", integer, "output bound when a request gives none"},
			{"service-tier", "serviceTiers", pairs, "factor of the price at a service tier, `name=factor`, such as flex=0.5; repeatable, replaces all"},
			{"hosted-tool", "hostedTools", costs, "price of a call of a tool that the provider runs, `type=amount`, such as web_search=0.07; repeatable, replaces all"},
			{"max-tool-calls", "maxToolCalls", integer, "calls of those tools when a request gives no cap (0: 10)"},
			{"stored", "stored", text, "ids of what the provider keeps, such as previous_response_id: refuse or allow"},
			{"free", "free", yes, "it costs nothing, on purpose"}, {"label", "labels", pairs, "label, `name=value`; repeatable"}}, rateFields...)},
	{name: "channel", path: "/admin/channels", columns: []string{"id", "name", "provider", "baseUrl", "priority", "weight", "state"},
		fields: append([]field{{"name", "name", text, "name"}, {"provider", "provider", text, "openai or anthropic"}, {"base-url", "baseUrl", text, "base URL"},
			{"credential", "credential", text, "API key at the provider"},
			{"api-version", "apiVersion", text, "of Azure OpenAI, such as 2024-10-21"}, {"weight", "weight", integer, "share among equal priority"},
			{"priority", "priority", integer, "higher first"}, {"state", "state", text, "enabled or disabled"}}, limitFields...)},
}

func (a *app) objectCommands() []*cobra.Command {
	var commands []*cobra.Command
	for _, o := range objects {
		does := "List, create, change and delete "
		if o.put {
			does = "List, set and delete "
		}
		c := group(o.name, does+o.name+"s of a running gateway")
		r := a.remoteFlags(c)
		c.AddCommand(o.list(r), o.get(r), o.delete(r))
		if o.put {
			c.AddCommand(o.set(r))
		} else {
			c.AddCommand(o.create(r), o.update(r))
		}
		switch o.name {
		case "user":
			c.AddCommand(userBalance(r))
		case "key":
			c.AddCommand(keyLimits(r), keyUsage(r))
		}
		commands = append(commands, c)
	}
	return append(commands, a.limits(), a.usage(), a.audit())
}

func (o object) list(r *remote) *cobra.Command {
	var limit, cursor string
	c := &cobra.Command{Use: "list", Short: "List them", Args: exactly(), RunE: func(c *cobra.Command, _ []string) error {
		err := r.call(c.Context(), "GET", o.path+query(map[string]string{"limit": limit, "cursor": cursor}), nil, o.columns...)
		return byFlag(err, []field{{flag: "limit", api: "limit"}, {flag: "cursor", api: "cursor"}}, r.currency)
	}}
	c.Flags().StringVar(&limit, "limit", "", "rows of a page")
	c.Flags().StringVar(&cursor, "cursor", "", "continue a list")
	return c
}

func (o object) get(r *remote) *cobra.Command {
	return &cobra.Command{Use: "get ID", Short: "Show one", Args: exactly("ID"), RunE: func(c *cobra.Command, args []string) error {
		return r.call(c.Context(), "GET", o.path+"/"+url.PathEscape(args[0]), nil)
	}}
}

func (o object) delete(r *remote) *cobra.Command {
	return &cobra.Command{Use: "delete ID", Short: "Delete one", Args: exactly("ID"), RunE: func(c *cobra.Command, args []string) error {
		return r.call(c.Context(), "DELETE", o.path+"/"+url.PathEscape(args[0]), nil)
	}}
}

func (o object) create(r *remote) *cobra.Command {
	return bodyCommand(r, "create", "Create one", exactly(), o.fields, "POST", func([]string) string { return o.path })
}

func (o object) update(r *remote) *cobra.Command {
	fields := slices.DeleteFunc(slices.Clone(o.fields), func(f field) bool { return o.stays[f.flag] != "" })
	c := bodyCommand(r, "update ID", "Change what the flags name", exactly("ID"), fields, "PATCH",
		func(args []string) string { return o.path + "/" + url.PathEscape(args[0]) })
	for flag, why := range o.stays {
		c.Flags().Var(fixed(why), flag, "")
		c.Flags().Lookup(flag).Hidden = true
	}
	return needsOne(c, fields)
}

func (o object) set(r *remote) *cobra.Command {
	return bodyCommand(r, "set NAME", "Create it, or change what the flags name", exactly("NAME"), o.fields, "PUT",
		func(args []string) string { return o.path + "/" + url.PathEscape(args[0]) })
}

func keyLimits(r *remote) *cobra.Command {
	return needsOne(bodyCommand(r, "limits ID", "Change limits; they hold from the next request", exactly("ID"), keyLimitFields, "POST",
		func(args []string) string { return "/admin/keys/" + url.PathEscape(args[0]) + "/limits" }), keyLimitFields)
}

func userBalance(r *remote) *cobra.Command {
	fields := []field{{"delta", "delta", money, "add this much (negative: take)"}, {"set", "set", money, "make it this much (null: unmetered)"}}
	c := bodyCommand(r, "balance ID", "Top up or set the balance", exactly("ID"), fields, "POST",
		func(args []string) string { return "/admin/users/" + url.PathEscape(args[0]) + "/balance" })
	sure := c.Flags().Bool("yes", false, "even if --delta takes the balance below zero")
	send := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		delta, _ := c.Flags().GetString("delta")
		if taken, err := llm.ParseMicro(delta); err == nil && taken < 0 && !*sure {
			if err := r.leaves(c.Context(), args[0], taken); err != nil {
				return err
			}
		}
		return send(c, args)
	}
	return needsOne(c, fields)
}

// leaves is an error when a user's balance is less than what is taken from it.
func (r *remote) leaves(ctx context.Context, id string, delta llm.Micro) error {
	answer, err := r.do(ctx, "GET", "/admin/users/"+url.PathEscape(id), nil, "")
	if err != nil {
		return err
	}
	var user map[string]json.RawMessage
	if err := json.Unmarshal(answer, &user); err != nil {
		return fmt.Errorf("the gateway answered %.80q: %w", answer, err)
	}
	var balance *llm.Micro // null: unmetered, which the change itself refuses
	if err := json.Unmarshal(user[moneyName("balanceMicro", r.currency)], &balance); err != nil || balance == nil {
		return nil
	}
	if after := llm.AddMicro(*balance, delta); after < 0 {
		return usageError("user %s has %s, and would have %s; give --yes if that is meant", id, *balance, after)
	}
	return nil
}

func keyUsage(r *remote) *cobra.Command {
	return &cobra.Command{Use: "usage-window ID", Short: "Show what a key uses right now", Args: exactly("ID"),
		RunE: func(c *cobra.Command, args []string) error {
			return r.call(c.Context(), "GET", "/admin/keys/"+url.PathEscape(args[0])+"/usage-window", nil)
		}}
}

// bodyCommand sends the flags that were given as one JSON object.
func bodyCommand(r *remote, use, short string, args cobra.PositionalArgs, fields []field, method string, path func([]string) string) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: args}
	for _, f := range fields {
		switch f.kind {
		case pairs, costs:
			c.Flags().StringToString(f.flag, nil, f.usage)
		case spans:
			c.Flags().StringArray(f.flag, nil, f.usage)
		case list:
			c.Flags().StringSlice(f.flag, nil, f.usage)
		case integer:
			c.Flags().Int64(f.flag, 0, f.usage)
		case yes:
			c.Flags().Bool(f.flag, false, f.usage)
		default:
			c.Flags().String(f.flag, "", f.usage)
		}
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		body, err := bodyOf(c.Flags(), fields, r.currency)
		if err != nil {
			return err
		}
		return byFlag(r.call(c.Context(), method, path(args), body), fields, r.currency)
	}
	return c
}

func bodyOf(flags *pflag.FlagSet, fields []field, currency string) (map[string]any, error) {
	if currency == "" {
		return nil, usageError("--currency: expected the three letters of the gateway's currency, such as cny")
	}
	body := map[string]any{}
	for _, f := range fields {
		if !flags.Changed(f.flag) {
			continue
		}
		value, err := f.value(flags, currency)
		if err != nil {
			return nil, err
		}
		body[f.member(currency)] = value
	}
	return body, nil
}

// member is the field's name in the API.
func (f field) member(currency string) string {
	if f.kind == money || f.kind == costs {
		return moneyName(f.api, currency)
	}
	return f.api
}

func (f field) value(flags *pflag.FlagSet, currency string) (any, error) {
	switch f.kind {
	case integer:
		return flags.GetInt64(f.flag)
	case yes:
		return flags.GetBool(f.flag)
	case list:
		return flags.GetStringSlice(f.flag)
	case pairs, costs:
		return flags.GetStringToString(f.flag)
	case spans:
		return budgetsOf(flags, f.flag, currency)
	}
	s, err := flags.GetString(f.flag)
	if f.kind != money || err != nil {
		return s, err
	}
	if s == "null" {
		return nil, nil
	}
	amount, err := llm.ParseMicro(s)
	if err != nil {
		return nil, usageError("--%s: %v", f.flag, err)
	}
	return json.Number(amount.String()), nil
}

// moneyName puts the currency into a member's name: balance -> balanceCny, input*Per1M -> inputCnyPer1M.
func moneyName(api, currency string) string {
	suffix := strings.ToUpper(currency[:1]) + currency[1:]
	if before, after, ok := strings.Cut(api, "*"); ok {
		return before + suffix + after
	}
	return api + suffix
}

// limits are the gateway's own: every request counts against them.
func (a *app) limits() *cobra.Command {
	const path = "/admin/limits/global"
	c := group("limits", "Show or change the limits of the gateway as a whole")
	r := a.remoteFlags(c)
	c.AddCommand(&cobra.Command{Use: "get", Short: "Show them and what they count now", Args: exactly(), RunE: func(c *cobra.Command, _ []string) error {
		return r.call(c.Context(), "GET", path, nil)
	}}, needsOne(bodyCommand(r, "set", "Change what the flags name; it holds from the next request", exactly(), limitFields, "PUT",
		func([]string) string { return path }), limitFields))
	return c
}

func (a *app) audit() *cobra.Command {
	c := group("audit", "Read who changed what in a running gateway")
	list := object{path: "/admin/audit", columns: []string{"at", "actor", "action", "target"}}.list(a.remoteFlags(c))
	list.Short = "List the changes, newest first"
	c.AddCommand(list)
	return c
}

// usageFlags are the members of the query of GET /admin/usage, and what they mean.
var usageFlags = [][2]string{
	{"key", "of the key with this `id`"}, {"user", "of the user with this `id`"}, {"org", "of the org with this `id`"},
	{"model", "of the model with this `name`"}, {"status", "finalized, partial, refunded or failed"},
	{"from", "from this `time` (RFC 3339)"}, {"to", "before this `time` (RFC 3339)"},
	{"limit", "rows of a page"}, {"cursor", "continue a list"}, {"format", "json, ndjson or csv"},
}

func (a *app) usage() *cobra.Command {
	values := map[string]*string{}
	c := &cobra.Command{Use: "usage", Short: "List usage records of a running gateway, oldest first", Args: exactly()}
	r := a.remoteFlags(c)
	newest := c.Flags().Bool("newest", false, "newest first (default: oldest first, to read on from a cursor)")
	var fields []field
	for _, f := range usageFlags {
		fields = append(fields, field{flag: f[0], api: f[0]})
		values[f[0]] = c.Flags().String(f[0], "", f[1])
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		q := map[string]string{}
		if *newest {
			q["newest"] = "true"
		}
		for n, v := range values {
			q[n] = *v
		}
		if f := q["format"]; f == "ndjson" || f == "csv" { // for programs: as it is
			return byFlag(r.copy(c.Context(), "/admin/usage"+query(q)), fields, r.currency)
		}
		answer, err := r.do(c.Context(), "GET", "/admin/usage"+query(q), nil, "")
		if err == nil {
			err = r.explainNone(c.Context(), answer, q)
		}
		if err != nil {
			return byFlag(err, fields, r.currency)
		}
		return r.print(answer, []string{"at", "keyId", "model", "status", "inputTokens", "outputTokens", "costMicro*"})
	}
	return c
}

// explainNone is an error when there are no records because nothing of the kind that was asked for exists.
func (r *remote) explainNone(ctx context.Context, answer []byte, asked map[string]string) error {
	var page struct{ Data []json.RawMessage }
	if json.Unmarshal(answer, &page) != nil || page.Data == nil || len(page.Data) > 0 {
		return nil
	}
	for _, kind := range []string{"key", "user", "org", "model"} {
		if asked[kind] == "" {
			continue
		}
		_, err := r.do(ctx, "GET", "/admin/"+kind+"s/"+url.PathEscape(asked[kind]), nil, "")
		if refused, ok := errors.AsType[*refusal](err); ok && refused.status == http.StatusNotFound {
			return err
		}
	}
	return nil
}
