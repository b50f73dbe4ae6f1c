package main

import (
	"encoding/json"
	"maps"
	"net/url"
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
	yes   // boolean
)

// object is one kind of thing of the admin API and how its commands look.
type object struct {
	name, path string
	fields     []field
	columns    []string
	put        bool // created and changed by PUT under its name
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
	{"monthly-quota", "monthlyQuota", money, "spend per calendar month (0: none)"},
}

var objects = []object{
	{name: "org", path: "/admin/orgs", columns: []string{"id", "name", "qpsLimit", "tpmLimit"},
		fields: append([]field{{"name", "name", text, "name"}}, rateFields...)},
	{name: "user", path: "/admin/users", columns: []string{"id", "orgId", "name", "balanceCny"},
		fields: append([]field{{"org-id", "orgId", integer, "the org it belongs to"}, {"name", "name", text, "name"},
			{"balance", "balance", money, "prepaid balance (null: unmetered)"}}, rateFields...)},
	{name: "key", path: "/admin/keys", columns: []string{"id", "userId", "name", "preview", "qpsLimit", "tpmLimit", "tier"},
		fields: append([]field{{"user-id", "userId", integer, "the user it belongs to"}, {"name", "name", text, "name"},
			{"tier", "tier", text, "tier"}, {"models", "models", list, "models it may use (none: all)"},
			{"scopes", "scopes", list, "what it may do beside calling models: tenant"},
			{"timezone", "timezone", text, "zone of its calendar month, such as Asia/Shanghai"},
			{"expires-in-days", "expiresInDays", integer, "days until it expires"},
			{"label", "labels", pairs, "label, `name=value`; repeatable"}}, keyLimitFields...)},
	{name: "model", path: "/admin/models", put: true, columns: []string{"name", "channels", "inputCnyPer1M", "outputCnyPer1M", "qpsLimit", "tpmLimit"},
		fields: append([]field{{"channels", "channels", list, "channels that serve it (none: all of its dialect)"},
			{"input", "input*Per1M", money, "price per million input tokens"}, {"cached-input", "cachedInput*Per1M", money, "price per million cached input tokens"},
			{"cache-write", "cacheWrite*Per1M", money, "price per million input tokens written to the provider's cache"},
			{"output", "output*Per1M", money, "price per million output tokens"}, {"request", "request", money, "price per request"},
			{"target", "target", text, "the provider's name for it, where it differs"},
			{"max-output-tokens", "maxOutputTokens", integer, "output bound when a request gives none"},
			{"free", "free", yes, "it costs nothing, on purpose"}, {"label", "labels", pairs, "label, `name=value`; repeatable"}}, rateFields...)},
	{name: "channel", path: "/admin/channels", columns: []string{"id", "name", "provider", "baseUrl", "priority", "weight", "state"},
		fields: append([]field{{"name", "name", text, "name"}, {"provider", "provider", text, "openai or anthropic"}, {"base-url", "baseUrl", text, "base URL"},
			{"credential", "credential", text, "API key at the provider"}, {"weight", "weight", integer, "share among equal priority"},
			{"priority", "priority", integer, "higher first"}, {"state", "state", text, "enabled or disabled"}}, limitFields...)},
}

func (a *app) objectCommands() []*cobra.Command {
	var commands []*cobra.Command
	for _, o := range objects {
		c := group(o.name, "List, create, change and delete "+o.name+"s of a running gateway")
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
		return r.call(c.Context(), "GET", o.path+query(map[string]string{"limit": limit, "cursor": cursor}), nil, o.columns...)
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
	return bodyCommand(r, "update ID", "Change what the flags name", exactly("ID"), o.fields, "PATCH",
		func(args []string) string { return o.path + "/" + url.PathEscape(args[0]) })
}

func (o object) set(r *remote) *cobra.Command {
	return bodyCommand(r, "set NAME", "Create it, or change what the flags name", exactly("NAME"), o.fields, "PUT",
		func(args []string) string { return o.path + "/" + url.PathEscape(args[0]) })
}

func keyLimits(r *remote) *cobra.Command {
	return bodyCommand(r, "limits ID", "Change limits; they hold from the next request", exactly("ID"), keyLimitFields, "POST",
		func(args []string) string { return "/admin/keys/" + url.PathEscape(args[0]) + "/limits" })
}

func userBalance(r *remote) *cobra.Command {
	fields := []field{{"delta", "delta", money, "add this much (negative: take)"}, {"set", "set", money, "make it this much"}}
	return bodyCommand(r, "balance ID", "Top up or set the balance", exactly("ID"), fields, "POST",
		func(args []string) string { return "/admin/users/" + url.PathEscape(args[0]) + "/balance" })
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
		case pairs:
			c.Flags().StringToString(f.flag, nil, f.usage)
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
		return r.call(c.Context(), method, path(args), body)
	}
	return c
}

func bodyOf(flags *pflag.FlagSet, fields []field, currency string) (map[string]any, error) {
	body := map[string]any{}
	for _, f := range fields {
		if !flags.Changed(f.flag) {
			continue
		}
		name, value, err := f.member(flags, currency)
		if err != nil {
			return nil, err
		}
		body[name] = value
	}
	return body, nil
}

func (f field) member(flags *pflag.FlagSet, currency string) (name string, value any, err error) {
	switch f.kind {
	case integer:
		value, err = flags.GetInt64(f.flag)
	case yes:
		value, err = flags.GetBool(f.flag)
	case list:
		value, err = flags.GetStringSlice(f.flag)
	case pairs:
		var m map[string]string
		m, err = flags.GetStringToString(f.flag)
		value = maps.Clone(m)
	case money:
		var s string
		s, err = flags.GetString(f.flag)
		if s == "null" {
			return moneyName(f.api, currency), nil, err
		}
		if _, perr := llm.ParseMicro(s); perr != nil {
			return "", nil, usageError("--%s: %v", f.flag, perr)
		}
		return moneyName(f.api, currency), json.Number(s), err
	default:
		value, err = flags.GetString(f.flag)
	}
	return f.api, value, err
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
	}}, bodyCommand(r, "set", "Change what the flags name; it holds from the next request", exactly(), limitFields, "PUT", func([]string) string { return path }))
	return c
}

func (a *app) audit() *cobra.Command {
	c := group("audit", "Read who changed what in a running gateway")
	c.AddCommand(object{path: "/admin/audit", columns: []string{"at", "actor", "action", "target"}}.list(a.remoteFlags(c)))
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
	c := &cobra.Command{Use: "usage", Short: "List usage records of a running gateway", Args: exactly()}
	r := a.remoteFlags(c)
	newest := c.Flags().Bool("newest", false, "newest first")
	for _, f := range usageFlags {
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
			answer, err := r.do(c.Context(), "GET", "/admin/usage"+query(q), nil, "")
			if err == nil {
				_, err = a.out.Write(answer)
			}
			return err
		}
		return r.call(c.Context(), "GET", "/admin/usage"+query(q), nil, "at", "keyId", "model", "status", "inputTokens", "outputTokens", "costMicroCny")
	}
	return c
}
