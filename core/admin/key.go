package admin

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
)

const maxExpiryDays = 36_500

// ScopeTenant lets a key see and change the rules of its org.
const ScopeTenant = "tenant"

func (a *API) keyView(k auth.Key) object {
	v := object{{"id", k.ID}, {"userId", k.UserID}, {"name", k.Name}, {"preview", k.Preview},
		{"qpsLimit", ownLimit(k, k.QPSLimit)}, {"tpmLimit", ownLimit(k, k.TPMLimit)}, {"concurrencyLimit", ownLimit(k, k.ConcurrencyLimit)}}
	v = append(v, a.money("monthlyQuota", k.MonthlyQuota)...)
	v = append(v, member{"budgets", a.budgetViews(&k)})
	return append(v, object{{"tier", orNull(k.Tier)}, {"models", list(k.Models)}, {"timezone", zoneName(k.Timezone)},
		{"nextTimezone", orNull(k.NextTimezone)}, {"nextTimezoneAt", moment(k.NextTimezoneAtMS)},
		{"expiresAt", moment(k.ExpiresAtMS)}, {"labels", table(k.Labels)}, {"warnings", a.keyWarnings(k)}, {"scopes", list(k.Scopes)}, {"createdAt", moment(k.CreatedAtMS)}}...)
}

// ownLimit is a limit as it was given: 0 for none, null where the key's tier decides.
func ownLimit(k auth.Key, n int64) any {
	if n == 0 && k.Tier != "" {
		return nil
	}
	return max(n, 0)
}

func zoneName(s string) string {
	if s == "" {
		return "UTC"
	}
	return s
}

// moment is a time of the wall clock for people; null for none.
func moment(ms int64) any {
	if ms == 0 {
		return nil
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// limits reads the limits of a key; an absent one stays as it is, null leaves it to the key's tier.
func (a *API) limits(b *body, k *auth.Key) {
	b.ownLimit("qpsLimit", &k.QPSLimit)
	b.ownLimit("tpmLimit", &k.TPMLimit)
	b.ownLimit("concurrencyLimit", &k.ConcurrencyLimit)
	a.budgets(b, k)
}

// ownLimit reads one limit of a key's own.
func (b *body) ownLimit(name string, to *int64) {
	if b.null(name) {
		*to = 0
		return
	}
	if b.count(name, to); b.has(name) && *to == 0 {
		*to = auth.Unlimited
	}
}

// keyFields reads everything of a key that may change.
func (a *API) keyFields(b *body, k *auth.Key) {
	a.limits(b, k)
	b.text("name", &k.Name, checkName)
	b.optional("tier", &k.Tier, a.checkTier)
	b.strings("models", &k.Models, a.goods.Load().checkAllowed)
	b.labels("labels", &k.Labels)
	b.strings("scopes", &k.Scopes, oneOf(ScopeTenant))
	a.expiry(b, k)
}

func (a *API) checkTier(s string) error {
	tiers := *a.tiers.Load()
	if _, known := tiers[s]; known || s == "" || tiers == nil {
		if len(s) > maxLabelName || !printable(s) {
			return fmt.Errorf("expected at most %d printable bytes", maxLabelName)
		}
		return nil
	}
	if len(tiers) == 0 {
		return fmt.Errorf("no tier %.64q; the configuration has none", s)
	}
	return fmt.Errorf("no tier %.64q%s", s, suggest(s, slices.Sorted(maps.Keys(tiers))))
}

// expiry counts from now; null lifts it.
func (a *API) expiry(b *body, k *auth.Key) {
	const name = "expiresInDays"
	if b.null(name) {
		k.ExpiresAtMS = 0
		return
	}
	var days int64
	if b.integer(name, &days, 1, maxExpiryDays, fmt.Sprintf("a whole number from 1 to %d, or null for never", maxExpiryDays)); days > 0 {
		k.ExpiresAtMS = a.Clock.Wall().UnixMilli() + days*24*time.Hour.Milliseconds()
	}
}

func checkZone(s string) error {
	_, err := auth.Zone(s)
	if err != nil || s == "" {
		return fmt.Errorf("expected an IANA zone name such as Asia/Shanghai or UTC, got %.64q", s)
	}
	return nil
}

func (a *API) listKeys(c *call) (answer, error) {
	q := parseQuery(c.URL, "limit", "cursor", "userId")
	user := q.id("userId")
	keys := only(a.Directory.Keys(), func(k auth.Key) bool { return user == 0 || k.UserID == user })
	return pageOf(q, keys, func(k auth.Key) uint64 { return k.ID }, parseID, a.keyView)
}

// key finds the one in the path.
func (a *API) key(c *call) (auth.Key, error) {
	id, err := c.id("key")
	if err != nil {
		return auth.Key{}, err
	}
	k, found := a.Directory.Key(id)
	if !found {
		return k, missing("key", id)
	}
	return k, nil
}

func (a *API) getKey(c *call) (answer, error) {
	k, err := a.key(c)
	return ok(a.keyView(k)), err
}

func (a *API) createKey(c *call) (answer, error) {
	var spec auth.Key
	b := parseBody(c.body)
	b.need("userId", "name")
	b.id("userId", &spec.UserID)
	a.keyFields(b, &spec)
	b.text("timezone", &spec.Timezone, checkZone)
	var plaintext string
	b.text("plaintext", &plaintext, func(string) error { return nil })
	if err := b.end(); err != nil {
		return answer{}, err
	}
	if _, found := a.Directory.User(spec.UserID); !found {
		return answer{}, llm.Invalid("userId", "userId: no user %d", spec.UserID)
	}
	plaintext, minted, err := a.mint(plaintext)
	if err != nil {
		return answer{}, err
	}
	k := a.dressed(spec, minted)
	view := a.keyView(k)
	err = a.put(c.ctx, c, change{action: "key.create", target: target("key", k.ID), after: view,
		docs: []ledger.Doc{doc("key", k.ID, k)}}, answer{})
	if err != nil {
		return answer{}, err
	}
	a.Directory.SetKey(k)
	return created(slices.Insert(view, 1, member{"plaintext", plaintext})), nil
}

// mint makes a key's text, or takes the one that was brought along (a fixed key for scripts).
func (a *API) mint(plaintext string) (string, auth.Key, error) {
	if plaintext == "" {
		return a.Directory.Mint(a.Random)
	}
	k, err := a.Directory.Adopt(plaintext)
	var e *llm.Error
	if errors.As(err, &e) && e.Kind == llm.KindInvalid {
		e.Param = "plaintext"
	}
	return plaintext, k, err
}

// dressed is a new key: what was asked for around what was minted.
func (a *API) dressed(spec, minted auth.Key) auth.Key {
	spec.Public, spec.Hash, spec.Preview = minted.Public, minted.Hash, minted.Preview
	spec.ID = a.Ledger.NextDocID("key")
	spec.CreatedAtMS = a.Clock.Wall().UnixMilli()
	return spec
}

func (a *API) patchKey(c *call) (answer, error) {
	return a.changeKey(c, "key.update", func(b *body, k *auth.Key) {
		b.fixed("userId", "a key stays with its user")
		a.keyFields(b, k)
		a.rezone(b, k)
	})
}

// limitKey is the short way to change only the limits.
func (a *API) limitKey(c *call) (answer, error) {
	return a.changeKey(c, "key.limits", a.limits)
}

// rezone lets a new zone begin when the current period ends, so that no month is had twice.
func (a *API) rezone(b *body, k *auth.Key) {
	var zone string
	b.text("timezone", &zone, checkZone)
	switch zone {
	case "":
	case zoneName(k.Timezone):
		k.NextTimezone, k.NextTimezoneAtMS = "", 0
	default:
		_, ends := k.Calendar(llm.Month).At(a.Clock.Wall())
		k.NextTimezone, k.NextTimezoneAtMS = zone, ends.UnixMilli()
	}
}

// changeKey reads, writes and applies. A lower quota is in memory before it is durable, a higher one after.
func (a *API) changeKey(c *call, action string, read func(*body, *auth.Key)) (answer, error) {
	old, err := a.key(c)
	if err != nil {
		return answer{}, err
	}
	k := old
	b := parseBody(c.body)
	read(b, &k)
	if err := b.end(); err != nil {
		return answer{}, err
	}
	strict, cut := tightened(old, k)
	if cut {
		a.Directory.SetKey(strict)
	}
	ans := ok(a.keyView(k))
	err = a.put(c.ctx, c, change{action: action, target: target("key", k.ID), before: a.keyView(old), after: ans.value,
		docs: []ledger.Doc{doc("key", k.ID, k)}}, ans)
	switch {
	case err == nil:
		a.Directory.SetKey(k)
	case cut:
		a.Directory.SetKey(old)
	}
	return ans, err
}

func (a *API) deleteKey(c *call) (answer, error) {
	k, err := a.key(c)
	if err != nil {
		return answer{}, err
	}
	err = a.put(c.ctx, c, change{action: "key.delete", target: target("key", k.ID), before: a.keyView(k),
		docs: []ledger.Doc{doc("key", k.ID, nil)}}, answer{})
	if err == nil {
		a.Directory.DeleteKey(k.ID)
	}
	return deleted(k.ID), err
}
