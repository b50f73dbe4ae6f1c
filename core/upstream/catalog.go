package upstream

import (
	"bytes"
	"cmp"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/weir-gateway/weir/core/llm"
)

// What a model does about references to things that the provider keeps for the account it is asked with.
const (
	StoredRefuse = "refuse"
	StoredAllow  = "allow"
)

const (
	maxName   = 256  // bytes of a model's or channel's name
	maxWeight = 1000 // of a channel
)

// Catalog is an immutable view of models and channels; a change makes a new one. Channel health lives in the Client
// and survives a new catalog.
type Catalog struct {
	models   map[string]*entry
	listed   []*Model
	channels []*Channel
	named    map[string]*Channel
	born     uint64 // later ones have higher numbers
}

var births atomic.Uint64

type entry struct {
	Model
	routes [2]*route // by llm.Dialect; nil when no channel speaks it
}

// NewCatalog checks and indexes. Errors are KindInvalid *llm.Error, name the model or channel and the nearest valid
// name. The catalog keeps copies; a channel's weight 0 and empty state are filled in.
func NewCatalog(models []Model, channels []Channel) (*Catalog, error) {
	c := &Catalog{models: make(map[string]*entry, len(models)), born: births.Add(1)}
	if err := c.addChannels(channels); err != nil {
		return nil, err
	}
	routes := routeSet{}
	for _, m := range models {
		if err := c.addModel(m, routes); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(c.listed, func(a, b *Model) int { return cmp.Compare(a.Name, b.Name) })
	return c, nil
}

// Model looks a name up; the bytes may alias a request buffer, and stand as inside a JSON string. Half a surrogate pair is
// in no name: upstreams disagree about what it is.
func (c *Catalog) Model(name []byte) (*Model, bool) {
	e, ok := c.models[string(name)]
	if !ok && len(name) <= 6*maxName && bytes.IndexByte(name, '\\') >= 0 {
		var buf [6 * maxName]byte
		plain := Unescape(buf[:0], name)
		if !bytes.ContainsRune(plain, utf8.RuneError) {
			e, ok = c.models[string(plain)]
		}
	}
	if !ok {
		return nil, false
	}
	return &e.Model, true
}

// Models lists by name.
func (c *Catalog) Models() []*Model { return c.listed }

// Channels lists by id, then name.
func (c *Catalog) Channels() []*Channel { return c.channels }

func (c *Catalog) addChannels(channels []Channel) error {
	c.named = make(map[string]*Channel, len(channels))
	ids := make(map[uint64]string, len(channels))
	for _, ch := range channels {
		if err := ch.check(); err != nil {
			return err
		}
		if c.named[ch.Name] != nil {
			return llm.Invalid("name", "channel %q is given twice; names are unique", ch.Name)
		}
		if other, taken := ids[ch.ID]; taken && ch.ID != 0 {
			return llm.Invalid("id", "channels %q and %q both have id %d", other, ch.Name, ch.ID)
		}
		ch.Weight, ch.State = max(ch.Weight, 1), cmp.Or(ch.State, "enabled")
		c.named[ch.Name], ids[ch.ID] = &ch, ch.Name
		c.channels = append(c.channels, &ch)
	}
	slices.SortFunc(c.channels, func(a, b *Channel) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Name, b.Name)) })
	return nil
}

func (ch *Channel) check() error {
	if err := checkName("channel", ch.Name); err != nil {
		return err
	}
	if ch.Provider != "openai" && ch.Provider != "anthropic" {
		return llm.Invalid("provider", "channel %q: provider %q; expected openai or anthropic%s", ch.Name, ch.Provider,
			didYouMean(ch.Provider, []string{"openai", "anthropic"}))
	}
	if _, err := parseBase(ch.BaseURL); err != nil {
		return llm.Invalid("baseUrl", "channel %q: base URL %s", ch.Name, err)
	}
	if strings.ContainsFunc(ch.Credential, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return llm.Invalid("credential", "channel %q: the credential has a blank or a character outside printable ASCII", ch.Name)
	}
	if err := ch.checkVersion(); err != nil {
		return err
	}
	if ch.Weight < 0 || ch.Weight > maxWeight {
		return llm.Invalid("weight", "channel %q: weight %d; expected 1 to %d", ch.Name, ch.Weight, maxWeight)
	}
	if ch.State != "" && ch.State != "enabled" && ch.State != "disabled" {
		return llm.Invalid("state", "channel %q: state %q; expected enabled or disabled%s", ch.Name, ch.State,
			didYouMean(ch.State, []string{"enabled", "disabled"}))
	}
	return checkLimits("channel", ch.Name, ch.QPSLimit, ch.TPMLimit, ch.ConcurrencyLimit)
}

// checkVersion wants an Azure resource where there is an api-version: its deployment is the model's to name.
func (ch *Channel) checkVersion() error {
	s, _ := parseBase(ch.BaseURL)
	switch {
	case ch.APIVersion == "":
		return nil
	case ch.Provider != "openai":
		return llm.Invalid("apiVersion", "channel %q: an api-version is Azure OpenAI's, whose provider is openai, not %s", ch.Name, ch.Provider)
	case len(ch.APIVersion) > 64 || strings.ContainsFunc(ch.APIVersion, func(r rune) bool {
		return r != '-' && r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
	}):
		return llm.Invalid("apiVersion", "channel %q: api-version %.70q; expected something like 2024-10-21", ch.Name, ch.APIVersion)
	case strings.HasSuffix(ch.BaseURL, "/v1") || strings.HasSuffix(s.prefix, "/openai") || strings.Contains(s.prefix, "/deployments"):
		return llm.Invalid("baseUrl", "channel %q: with an api-version the base URL ends with the host, as in https://RESOURCE.openai.azure.com; for …/openai/v1 leave the api-version out", ch.Name)
	}
	return nil
}

func (c *Catalog) addModel(m Model, routes routeSet) error {
	if err := checkName("model", m.Name); err != nil {
		return err
	}
	if c.models[m.Name] != nil {
		return llm.Invalid("name", "model %q is given twice; names are unique", m.Name)
	}
	if m.Target != "" {
		if err := checkName("target of model "+m.Name+":", m.Target); err != nil {
			return err
		}
	}
	if err := checkLimits("model", m.Name, m.QPSLimit, m.TPMLimit, int64(m.MaxOutputTokens)); err != nil {
		return err
	}
	if m.Stored != "" && m.Stored != StoredRefuse && m.Stored != StoredAllow {
		return llm.Invalid("stored", "model %q: stored %q; expected refuse or allow%s", m.Name, m.Stored, didYouMean(m.Stored, []string{StoredRefuse, StoredAllow}))
	}
	if min(m.Price.Input, m.Price.CachedInput, m.Price.CacheWrite, m.Price.Output, m.Price.Request) < 0 {
		return llm.Invalid("price", "model %q: a price is not negative", m.Name)
	}
	if err := cmp.Or(m.checkTiers(), m.checkHosted()); err != nil {
		return err
	}
	chosen, err := c.chosen(&m)
	if err != nil {
		return err
	}
	e := &entry{Model: m}
	e.routes[llm.OpenAI] = routes.of(chosen, "openai")
	e.routes[llm.Anthropic] = routes.of(chosen, "anthropic")
	c.models[m.Name] = e
	c.listed = append(c.listed, &e.Model)
	return nil
}

func (c *Catalog) chosen(m *Model) ([]*Channel, error) {
	if len(m.Channels) == 0 {
		return c.channels, nil
	}
	var chosen []*Channel
	for i, name := range m.Channels {
		ch := c.named[name]
		if ch == nil {
			return nil, llm.Invalid("channels", "model %q: unknown channel %q%s", m.Name, name, c.nearestChannel(name))
		}
		if slices.Contains(m.Channels[:i], name) {
			return nil, llm.Invalid("channels", "model %q: channel %q is listed twice", m.Name, name)
		}
		chosen = append(chosen, ch)
	}
	return chosen, nil
}

func (c *Catalog) nearestChannel(name string) string {
	var names []string
	for _, ch := range c.channels {
		names = append(names, ch.Name)
	}
	if hint := didYouMean(name, names); hint != "" || len(names) == 0 {
		return hint
	}
	return "; there are " + strings.Join(names[:min(len(names), 10)], ", ")
}

func didYouMean(word string, candidates []string) string {
	if near := llm.Nearest(word, candidates); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

func checkName(what, name string) error {
	switch {
	case name == "":
		return llm.Invalid("name", "%s without a name", what)
	case len(name) > maxName:
		return llm.Invalid("name", "%s %.40q: the name has %d bytes; the limit is %d", what, name, len(name), maxName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == '"' || r == '\\' || r == 0x7f }):
		return llm.Invalid("name", "%s %q: a name has no control characters, quotes or backslashes", what, name)
	}
	return nil
}

func checkLimits(what, name string, limits ...int64) error {
	if slices.Min(limits) < 0 {
		return llm.Invalid("limit", "%s %q: a limit is not negative; 0 is unlimited", what, name)
	}
	return nil
}

// site is a parsed base URL: where to connect, what to call the host, and the path before /v1.
type site struct {
	address  string // host:port
	host     string // the Host header
	name     string // without the port, for TLS
	prefix   string
	secure   bool
	loopback bool
	local    bool // the URL itself names an address that is not public, or localhost
}

// parseBase accepts http(s)://host[:port][/prefix][/v1][/].
func parseBase(raw string) (site, error) {
	u, err := url.Parse(raw)
	switch {
	case raw == "":
		return site{}, llm.Errorf(llm.KindInvalid, "is empty; expected something like https://api.openai.com/v1")
	case err != nil:
		return site{}, llm.Errorf(llm.KindInvalid, "%q cannot be parsed; expected something like https://api.openai.com/v1", raw)
	case u.Scheme != "http" && u.Scheme != "https":
		return site{}, llm.Errorf(llm.KindInvalid, "%q has no http:// or https://; did you mean https://%s?", raw, strings.TrimPrefix(raw, u.Scheme+"://"))
	case u.Hostname() == "":
		return site{}, llm.Errorf(llm.KindInvalid, "%q has no host", raw)
	case u.User != nil:
		return site{}, llm.Errorf(llm.KindInvalid, "has a user in it; give the credential in its own field")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return site{}, llm.Errorf(llm.KindInvalid, "%q has a query or fragment; expected none", raw)
	case strings.ContainsFunc(u.Host, func(r rune) bool { return r <= ' ' || r > '~' }):
		return site{}, llm.Errorf(llm.KindInvalid, "%q: the host is not printable ASCII (use its xn-- form)", raw)
	}
	s := site{host: u.Host, name: u.Hostname(), secure: u.Scheme == "https"}
	s.prefix = strings.TrimRight(strings.TrimSuffix(strings.TrimRight(u.EscapedPath(), "/"), "/v1"), "/")
	port := u.Port()
	if port == "" {
		port = map[bool]string{false: "80", true: "443"}[s.secure]
		s.host = strings.TrimSuffix(s.host, ":")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return site{}, llm.Errorf(llm.KindInvalid, "%q: port %s; expected 1 to 65535", raw, port)
	}
	s.address = net.JoinHostPort(s.name, port)
	ip, err := netip.ParseAddr(s.name)
	if err == nil && forbidden(ip) {
		return site{}, llm.Errorf(llm.KindInvalid, "%q: link-local, metadata and unspecified addresses are never connected to", raw)
	}
	s.loopback = isLocalName(s.name) || err == nil && ip.IsLoopback()
	s.local = s.loopback || err == nil && local(ip)
	return s, nil
}
