package auth

import (
	"strings"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// Org owns users; it is the tenant. Stored as JSON under the document kind "org".
type Org struct {
	ID       uint64 `json:"id"`
	Name     string `json:"name"`
	QPSLimit int64  `json:"qpsLimit"`
	TPMLimit int64  `json:"tpmLimit"`
}

// User owns keys and has the balance. Stored under "user". The balance itself lives in the ledger.
type User struct {
	ID        uint64 `json:"id"`
	OrgID     uint64 `json:"orgId"`
	Name      string `json:"name"`
	QPSLimit  int64  `json:"qpsLimit"`
	TPMLimit  int64  `json:"tpmLimit"`
	Unmetered bool   `json:"unmetered"`         // balanceCny null: no balance is tested
	Overrun   string `json:"overrun,omitempty"` // who pays beyond a hold: debt (or empty), clip or cut; limit.Overrun says more
}

// Key is a virtual API key. Stored under "key". The secret is never kept: Hash is keyed.
type Key struct {
	ID               uint64            `json:"id"`
	UserID           uint64            `json:"userId"`
	Name             string            `json:"name"`
	Public           string            `json:"public"` // the 8 id characters
	Hash             []byte            `json:"hash"`
	Preview          string            `json:"preview"`
	QPSLimit         int64             `json:"qpsLimit"` // this and the next two: 0 is the tier's, Unlimited is none
	TPMLimit         int64             `json:"tpmLimit"`
	ConcurrencyLimit int64             `json:"concurrencyLimit"`
	MonthlyQuota     llm.Micro         `json:"monthlyQuotaMicro"` // limit of the month's budget; 0: none
	Budgets          []Budget          `json:"budgets,omitempty"` // of the other windows, and what the month's has beside its limit
	Tier             string            `json:"tier,omitempty"`
	Models           []string          `json:"models,omitempty"` // empty: all
	Timezone         string            `json:"timezone,omitempty"`
	NextTimezone     string            `json:"nextTimezone,omitempty"`     // takes effect when the current period ends
	NextTimezoneAtMS int64             `json:"nextTimezoneAtMs,omitempty"` // that end, fixed when the change was asked for; unix ms
	ExpiresAtMS      int64             `json:"expiresAtMs,omitempty"`
	Labels           map[string]string `json:"labels,omitempty"`
	Scopes           []string          `json:"scopes,omitempty"`
	CreatedAtMS      int64             `json:"createdAtMs"`
}

// Unlimited is a limit of a key that is none at all, whatever its tier says.
const Unlimited = -1

// Own is what a key's limit comes to: its own where it has one, else its tier's. 0 is no limit.
func Own(own, tiers int64) int64 {
	switch {
	case own == 0:
		return tiers
	case own < 0:
		return 0
	}
	return own
}

// Allows reports whether the key may use a model: by exact name, or by a prefix written with a trailing "*".
func (k *Key) Allows(model string) bool {
	if len(k.Models) == 0 {
		return true
	}
	for _, m := range k.Models {
		if prefix, wild := strings.CutSuffix(m, "*"); m == model || wild && strings.HasPrefix(model, prefix) {
			return true
		}
	}
	return false
}

// Caller is who asks: one immutable value per key, replaced whole when anything behind it changes.
type Caller struct {
	whole bool  // user and org exist
	dueMS int64 // unix ms of the next thing that time alone changes (expiry, zone, anchor); 0: nothing

	calendars []Calendar // of the budgets; a window without one follows the key's zone

	Key  Key
	User User
	Org  Org
	// Version is another number for each Caller of a directory.
	Version uint32
	Zone    *time.Location // of the key; UTC when it names none
}

// Zone loads a time zone by its IANA name, as llm.Zone; the empty name is UTC.
func Zone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	zone, ok := llm.Zone(name)
	if !ok {
		return nil, llm.Invalid("timezone", "expected an IANA zone name such as \"Asia/Shanghai\" or \"UTC\", got %q", name)
	}
	return zone, nil
}
