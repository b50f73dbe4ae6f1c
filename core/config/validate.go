package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/core/proxy"
	"github.com/weir-gateway/weir/core/upstream"
)

func wrong(path, format string, args ...any) error {
	return &invalid{path: "$." + path, text: fmt.Sprintf(format, args...)}
}

// among is an error unless value is one of the choices.
func among(path, value string, choices ...string) error {
	if slices.Contains(choices, value) {
		return nil
	}
	if len(choices) == 0 {
		return wrong(path, "%q is unknown: none is configured", value)
	}
	text := fmt.Sprintf("%q is not one of %s", value, strings.Join(choices, ", "))
	if near := llm.Nearest(value, choices); near != "" {
		text += fmt.Sprintf("; did you mean %q?", near)
	}
	return wrong(path, "%s", text)
}

// choices is the closed set of values of the setting at path, or of the names in it where it is a block of names; nil:
// any. Paths have * for names and [] for places in lists.
func choices(path string) []string {
	switch path {
	case "log.level":
		return []string{"debug", "info", "warn", "error"}
	case "log.format":
		return []string{"text", "json"}
	case "ledger.durability":
		return []string{string(ledger.Process), string(ledger.Power)}
	case "listen.decode[]":
		return proxy.Codings()
	case "upstream.adaptive_concurrency":
		return []string{upstream.AdaptAfterOverload, upstream.AdaptAlways, upstream.AdaptOff}
	case "upstream.reach":
		return []string{upstream.ReachPublic, upstream.ReachWritten, upstream.ReachPrivate}
	case "limits.dimensions[]":
		return []string{"global", "key", "model", "user", "org", "ip", "end_user", "key+model"}
	case "limits.defaults":
		return []string{"user", "org", "ip", "end_user", "key+model", "model+channel", "custom"}
	case "limits.algorithms", "limits.shared.modes", "limits.shared.outages":
		return kindNames()
	case "limits.shared.modes.*":
		return []string{string(limit.Exact), string(limit.Leased), string(limit.Local)}
	case "limits.shared.outages.*":
		return []string{string(limit.LocalShare), string(limit.Refuse), string(limit.Admit)}
	case "limits.algorithms.*.qps", "limits.algorithms.*.tpm":
		return []string{string(limit.Sliding), string(limit.Fixed), string(limit.TokenBucket)}
	case "channels[].provider":
		return []string{"openai", "anthropic"}
	case "channels[].state":
		return []string{"enabled", "disabled"}
	case "models.*.stored":
		return []string{upstream.StoredRefuse, upstream.StoredAllow}
	case "policies.profile":
		return []string{policy.ProfileSmall, policy.ProfileLarge}
	case "policies.on_error":
		return []string{string(policy.OnErrorDefault), string(policy.OnErrorLastGood), string(policy.OnErrorDeny)}
	case "policies.labels[].source":
		return []string{"key", "model", "header"}
	case "tokens.encodings.*":
		return []string{"cl100k", "o200k"}
	}
	return nil
}

// oneOf is among for a setting whose set depends on nothing.
func oneOf(path, value string) error { return among(path, value, choices(path)...) }

func within(path string, value, low, high int64) error {
	if value < low || value > high {
		return wrong(path, "%d is out of range; it takes %d to %d", value, low, high)
	}
	return nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) validate() error {
	return first(c.validateListeners(), c.validateSizes(), c.validateLimits(), c.validateTiers(),
		c.validateObjects(), c.validatePolicies())
}

var currencyCode = regexp.MustCompile(`^[a-z]{3}$`)

func (c *Config) validateListeners() error {
	clients, err := net.ResolveTCPAddr("tcp", c.Listen.Address)
	if err != nil {
		return wrong("listen.address", "%q is not host:port, such as 127.0.0.1:3000: %v", c.Listen.Address, err)
	}
	admins, err := net.ResolveTCPAddr("tcp", c.Admin.Address)
	if err != nil {
		return wrong("admin.address", "%q is not host:port, such as 127.0.0.1:3001: %v", c.Admin.Address, err)
	}
	if admins.Port == clients.Port && admins.Port != 0 && (admins.IP.Equal(clients.IP) || admins.IP.IsUnspecified() || clients.IP.IsUnspecified() || admins.IP == nil || clients.IP == nil) {
		return wrong("admin.address", "the admin listener needs an address of its own")
	}
	for i, name := range c.Listen.Decode {
		if err := among(fmt.Sprintf("listen.decode[%d]", i), name, choices("listen.decode[]")...); err != nil {
			return err
		}
	}
	if !currencyCode.MatchString(c.Currency) {
		return wrong("currency", "%q is not a currency code of three lower-case letters, such as cny", c.Currency)
	}
	return first(checkData(c.Data), checkToken(c.Admin.Token), oneOf("log.level", c.Log.Level),
		oneOf("log.format", c.Log.Format))
}

// checkData refuses what cannot be a folder or a database, before anything is opened.
func checkData(data string) error {
	folder, ok := strings.CutPrefix(data, "badger://")
	switch scheme, _, other := strings.Cut(data, "://"); {
	case other && (scheme == "postgres" || scheme == "postgresql"):
		return checkDatabase(data)
	case other && !ok:
		return wrong("data", "a store of kind %q is not known; use a folder, such as ./data, badger:///folder or postgres://user:password@host/database", scheme)
	}
	if ok && !filepath.IsAbs(folder) {
		return wrong("data", "badger:// takes an absolute folder, as in badger:///var/lib/weir; a relative one goes without, as in ./data")
	}
	if folder == "" {
		return wrong("data", "a folder is needed, such as ./data")
	}
	if st, err := os.Stat(folder); err == nil && !st.IsDir() {
		return wrong("data", "%s is a file; a folder is needed", folder)
	}
	return nil
}

// checkDatabase repeats nothing of a URL that it refuses: what is wrong may be in the password.
func checkDatabase(data string) error {
	u, err := url.Parse(data)
	switch {
	case err != nil || u.User == nil && strings.Contains(data, "@"): // a / or # of the password ended the host
		return wrong("data", "this is not a URL of PostgreSQL's, postgres://user:password@host:5432/database; is every character of the password that is neither letter nor digit percent-encoded?")
	case strings.Trim(u.Path, "/") == "" && !u.Query().Has("dbname"):
		return wrong("data", "the URL names no database; write postgres://user:password@host:5432/database")
	}
	return nil
}

func checkToken(token string) error {
	switch {
	case token == "":
		return wrong("admin.token", "no admin token is set; use token: ${WEIR_ADMIN_TOKEN} and set that variable to 16 or more random characters")
	case strings.TrimSpace(token) != token:
		return wrong("admin.token", "the admin token begins or ends with a blank, which no HTTP header carries")
	case len(token) < 16:
		return wrong("admin.token", "the admin token has %d characters; at least 16 are needed", len(token))
	case isSample(token):
		return wrong("admin.token", "this admin token is a sample, or can be guessed like one; make one with: openssl rand -hex 24")
	}
	return nil
}

func (c *Config) validateSizes() error {
	l := c.Listen
	return first(
		within("listen.body_bytes", int64(l.BodyBytes), 1<<10, 1<<30), within("listen.bodies_bytes", l.BodiesBytes, 1<<20, 1<<40), within("listen.header_bytes", int64(l.HeaderBytes), 1<<10, 1<<20),
		within("listen.connections", int64(l.Connections), 1, 1<<20),
		within("listen.read_timeout_ms", l.ReadTimeoutMS, 1, 3_600_000), within("listen.write_timeout_ms", l.WriteTimeoutMS, 1, 3_600_000),
		within("listen.head_timeout_ms", l.HeadTimeoutMS, 1, 3_600_000), within("listen.heartbeat_ms", l.HeartbeatMS, 1, 3_600_000),
		within("listen.drain_ms", l.DrainMS, 0, 3_600_000),
		of("upstream", c.Upstream.Validate()), oneOf("ledger.durability", string(c.Ledger.Durability)), of("ledger", c.Ledger.Validate()), of("tokens", c.Tokens.Validate()), of("alerts", c.Alerts.Validate()),
	)
}

// of places a package's own complaint about its Options into the block that holds them.
func of(block string, err error) error {
	if err == nil {
		return nil
	}
	path := block
	if e, ok := errors.AsType[*llm.Error](err); ok && e.Param != "" {
		path = block + "." + strings.TrimPrefix(e.Param, block+".")
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return &invalid{path: "$." + path, text: strings.TrimPrefix(text, path+": ")}
}

func (r Rates) validate(path string) error {
	const most = 1 << 50
	return first(within(path+".qps", r.QPS, 0, most), within(path+".tpm", r.TPM, 0, most), within(path+".concurrency", r.Concurrency, 0, most))
}

func (c *Config) validateLimits() error {
	if err := c.Limits.Global.validate("limits.global"); err != nil {
		return err
	}
	if len(c.Limits.Dimensions) > limit.MaxDims {
		return wrong("limits.dimensions", "%d dimensions; at most %d fit one request", len(c.Limits.Dimensions), limit.MaxDims)
	}
	for i, name := range c.Limits.Dimensions {
		if name == "channel" || name == "model+channel" {
			return wrong(fmt.Sprintf("limits.dimensions[%d]", i), "%q is tested when a channel is chosen, whatever stands here: "+
				"by the channel's own qps_limit, tpm_limit and concurrency_limit, and limits.defaults.model+channel", name)
		}
		if err := among(fmt.Sprintf("limits.dimensions[%d]", i), name, choices("limits.dimensions[]")...); err != nil {
			return err
		}
		if slices.Contains(c.Limits.Dimensions[:i], name) {
			return wrong(fmt.Sprintf("limits.dimensions[%d]", i), "%q stands twice", name)
		}
	}
	for name, r := range c.Limits.Defaults {
		err := first(among("limits.defaults", name, choices("limits.defaults")...), r.validate("limits.defaults."+name))
		if err != nil {
			return err
		}
	}
	for name, w := range c.Limits.Algorithms {
		path := "limits.algorithms." + name
		err := first(among("limits.algorithms", name, choices("limits.algorithms")...), amongAlgorithms(path+".qps", w.QPS), amongAlgorithms(path+".tpm", w.TPM))
		if err != nil {
			return err
		}
	}
	return c.validateShared()
}

func (c *Config) validateShared() error {
	s, path := &c.Limits.Shared, "limits.shared"
	for name, m := range s.Modes {
		if err := first(among(path+".modes", name, kindNames()...), among(path+".modes."+name, string(m), choices(path+".modes.*")...)); err != nil {
			return err
		}
		if m == limit.Exact && limit.ModeOf(kinds[name]) != limit.Exact {
			return wrong(path+".modes."+name, "%s is used by several orgs, whose windows are in different places of a cluster: it is leased or local", name)
		}
	}
	for name, w := range s.Outages {
		if err := first(among(path+".outages", name, kindNames()...), among(path+".outages."+name, string(w), choices(path+".outages.*")...)); err != nil {
			return err
		}
	}
	return first(within(path+".gateways", int64(s.Gateways), 1, 1000), within(path+".timeout_ms", s.TimeoutMS, 1, 1000), checkWindows(s.URL))
}

// checkWindows refuses what cannot be a server of windows, before anything is opened.
func checkWindows(at string) error {
	if scheme, _, _ := strings.Cut(at, "://"); at != "" && scheme != "redis" && scheme != "rediss" {
		return wrong("limits.shared.url", "%q is not a server of windows; use redis://host:6379, or rediss:// for TLS", at)
	}
	return nil
}

func amongAlgorithms(path string, a limit.Algorithm) error {
	if a == "" {
		return nil
	}
	return among(path, string(a), choices("limits.algorithms.*.qps")...)
}

func (c *Config) validateTiers() error {
	for i, t := range c.Tiers {
		path := fmt.Sprintf("tiers[%d]", i)
		if t.Name == "" {
			return wrong(path+".name", "a tier needs a name")
		}
		if slices.ContainsFunc(c.Tiers[:i], func(o Tier) bool { return o.Name == t.Name }) {
			return wrong(path+".name", "tier %q stands twice", t.Name)
		}
		if err := t.validate(path); err != nil {
			return err
		}
	}
	return nil
}

// validate refuses prices that would make something free by oversight.
func (m Model) validate(path string) error {
	if m.Stored != "" {
		if err := among(path+".stored", m.Stored, choices("models.*.stored")...); err != nil {
			return err
		}
	}
	p := m.Price
	switch {
	case p == nil:
		return nil
	case m.Free:
		return wrong(path+".free", "a free model has no price; take one of the two away")
	case p.Input == nil || p.Output == nil:
		return wrong(path+".price", "a price names both input_per_1m and output_per_1m, so that neither is free by oversight")
	}
	for _, a := range []*Amount{p.Input, p.CachedInput, p.CacheWrite, p.Output, &p.Request} {
		if a != nil && *a < 0 {
			return wrong(path+".price", "a price is not negative")
		}
		if a != nil && llm.Micro(*a) > llm.MaxPrice {
			return wrong(path+".price", "a price is at most %s, not %s", llm.MaxPrice, llm.Micro(*a))
		}
	}
	return nil
}

// validateObjects leaves the rules for models and channels where they live: the catalog.
func (c *Config) validateObjects() error {
	for _, name := range slices.Sorted(maps.Keys(c.Models)) {
		if err := c.Models[name].validate("models.'" + name + "'"); err != nil {
			return err
		}
	}
	channels := slices.Clone(c.Channels)
	for i := range channels {
		channels[i].ID = uint64(i + 1)
		if path := fmt.Sprintf("channels[%d].weight", i); channels[i].Weight == 0 && c.has(path) {
			return wrong(path, "0 is out of range; it takes 1 to 1000, and state: disabled where a channel is to get nothing")
		}
		c.Channels[i].Weight, c.Channels[i].State = cmp.Or(channels[i].Weight, 1), cmp.Or(channels[i].State, "enabled")
		if _, err := upstream.NewCatalog(nil, channels[:i+1]); err != nil {
			return wrong(fmt.Sprintf("channels[%d]", i), "%v", err)
		}
	}
	for _, m := range c.UpstreamModels() {
		if _, err := upstream.NewCatalog([]upstream.Model{m}, channels); err != nil {
			return wrong("models.'"+m.Name+"'", "%v", err)
		}
	}
	return nil
}

func (c *Config) validatePolicies() error {
	p := c.Policies
	if err := first(oneOf("policies.profile", p.Profile),
		oneOf("policies.on_error", string(p.OnError)),
		within("policies.decision_log.sample", int64(p.DecisionLog.Sample), 1, 1<<30),
		within("policies.decision_log.max_mb", int64(p.DecisionLog.MaxMB), 1, 1<<20),
		p.Envelope.validate("policies.envelope", c.TierNames()),
		p.TenantEnvelope.validate("policies.tenant_envelope", c.TierNames()),
	); err != nil {
		return err
	}
	if err := first(validateTiers("policies.tier_envelopes", p.TierEnvelopes, c.TierNames()),
		validateTiers("policies.tenant_tier_envelopes", p.TenantTierEnvelopes, c.TierNames())); err != nil {
		return err
	}
	return c.validateLabels()
}

// validateTiers checks envelopes by the tiers that they are of.
func validateTiers(path string, of map[string]Envelope, tiers []string) error {
	for _, tier := range slices.Sorted(maps.Keys(of)) {
		if err := first(among(path, tier, tiers...), of[tier].validate(path+"."+tier, tiers)); err != nil {
			return err
		}
	}
	return nil
}

func (e Envelope) validate(path string, tiers []string) error {
	if err := first(
		within(path+".max_multiplier", int64(e.MaxMultiplier), 0, 1_000_000),
		within(path+".max_burst", int64(e.MaxBurst), 0, 1_000_000),
		within(path+".max_custom_dimensions", int64(e.MaxCustomDims), 0, limit.MaxDims),
		within(path+".min_price_multiplier", int64(e.MinPrice), 0, 1_000_000),
		within(path+".max_overdraft", int64(e.MaxOverdraft), 0, math.MaxInt64),
	); err != nil {
		return err
	}
	for i, name := range e.Tiers {
		if err := among(fmt.Sprintf("%s.tiers[%d]", path, i), name, tiers...); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) validateLabels() error {
	const most = 8
	if n := len(c.Policies.Labels); n > most {
		return wrong("policies.labels", "%d labels; a policy sees at most %d", n, most)
	}
	for i, l := range c.Policies.Labels {
		path := fmt.Sprintf("policies.labels[%d]", i)
		if l.Name == "" {
			return wrong(path+".name", "a label needs a name")
		}
		if slices.ContainsFunc(c.Policies.Labels[:i], func(o Label) bool { return o.Name == l.Name }) {
			return wrong(path+".name", "label %q stands twice", l.Name)
		}
		if err := among(path+".source", l.Source, choices("policies.labels[].source")...); err != nil {
			return err
		}
		if l.Field == "" {
			c.Policies.Labels[i].Field = l.Name
		}
	}
	return nil
}
