// Package auth turns a bearer key into a Caller and owns the objects behind it: orgs, users and keys.
package auth

import (
	"io"
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
	Unmetered bool   `json:"unmetered"` // balanceCny null: no balance is tested
}

// Key is a virtual API key. Stored under "key". The secret is never kept: Hash is keyed.
type Key struct {
	ID               uint64            `json:"id"`
	UserID           uint64            `json:"userId"`
	Name             string            `json:"name"`
	Public           string            `json:"public"` // the 8 id characters
	Hash             []byte            `json:"hash"`
	Preview          string            `json:"preview"`
	QPSLimit         int64             `json:"qpsLimit"`
	TPMLimit         int64             `json:"tpmLimit"`
	ConcurrencyLimit int64             `json:"concurrencyLimit"`
	MonthlyQuota     llm.Micro         `json:"monthlyQuotaMicro"` // 0: none
	Tier             string            `json:"tier,omitempty"`
	Models           []string          `json:"models,omitempty"` // empty: all
	Timezone         string            `json:"timezone,omitempty"`
	NextTimezone     string            `json:"nextTimezone,omitempty"` // takes effect when the current period ends
	ExpiresAtMS      int64             `json:"expiresAtMs,omitempty"`
	Labels           map[string]string `json:"labels,omitempty"`
	Scopes           []string          `json:"scopes,omitempty"`
	CreatedAtMS      int64             `json:"createdAtMs"`
}

// Caller is who asks: one immutable value per key, replaced whole when anything behind it changes.
type Caller struct {
	Key  Key
	User User
	Org  Org
	Zone *time.Location
}

// Directory resolves keys. Resolve is the hot path; the setters are the control plane. Safe for concurrent use.
type Directory struct{}

// NewDirectory makes an empty directory. secret keys the hashes (32 bytes, kept in the store).
func NewDirectory(secret []byte, clock llm.Clock) *Directory { panic("skeleton") }

// Resolve gives the caller of a presented key, or a *llm.Error of KindUnauthorized.
func (d *Directory) Resolve(token []byte) (*Caller, error) { panic("skeleton") }

// Mint makes a new key text from the injected randomness: the plaintext to show once, and the public part, hash
// and preview to store.
func (d *Directory) Mint(random io.Reader) (plaintext string, k Key, err error) { panic("skeleton") }

// Adopt is Mint for a given plaintext (demo's fixed key); the text must have a key's shape.
func (d *Directory) Adopt(plaintext string) (Key, error) { panic("skeleton") }

// SetOrg, SetUser and SetKey insert or replace; callers in flight keep the old value.
func (d *Directory) SetOrg(o Org)   { panic("skeleton") }
func (d *Directory) SetUser(u User) { panic("skeleton") }
func (d *Directory) SetKey(k Key)   { panic("skeleton") }

// DeleteOrg, DeleteUser and DeleteKey forget; resolving a deleted key is 401.
func (d *Directory) DeleteOrg(id uint64)  { panic("skeleton") }
func (d *Directory) DeleteUser(id uint64) { panic("skeleton") }
func (d *Directory) DeleteKey(id uint64)  { panic("skeleton") }

// Org, User, Key and Caller look up by number.
func (d *Directory) Org(id uint64) (Org, bool)         { panic("skeleton") }
func (d *Directory) User(id uint64) (User, bool)       { panic("skeleton") }
func (d *Directory) Key(id uint64) (Key, bool)         { panic("skeleton") }
func (d *Directory) Caller(key uint64) (*Caller, bool) { panic("skeleton") }

// Orgs, Users and Keys list in ascending order of id.
func (d *Directory) Orgs() []Org   { panic("skeleton") }
func (d *Directory) Users() []User { panic("skeleton") }
func (d *Directory) Keys() []Key   { panic("skeleton") }

// Month is the quota period of t in a zone (202611) and when it ends.
func Month(t time.Time, zone *time.Location) (label int32, ends time.Time) { panic("skeleton") }
