package auth

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// Directory resolves keys. Resolve is the hot path; the setters are the control plane. Safe for concurrent use.
type Directory struct {
	clock  llm.Clock
	secret []byte
	salt   [saltLen]byte
	index  [shards]shard

	mu struct {
		sync.RWMutex
		orgs  map[uint64]Org
		users map[uint64]User
		keys  map[uint64]*entry
		owned map[uint64]map[uint64]*entry // user -> its keys
		peers map[uint64]map[uint64]bool   // org -> its users
		zones map[string]*time.Location    // at most one per IANA name
		made  uint32                       // callers so far
	}
}

// NewDirectory makes an empty directory. secret keys the hashes (32 bytes, kept in the store).
func NewDirectory(secret []byte, clock llm.Clock) *Directory {
	d := &Directory{clock: clock, secret: bytes.Clone(secret)}
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("verified tokens"))
	copy(d.salt[:], h.Sum(nil))
	for i := range d.index {
		d.index[i].mu.entries = map[uint64]*entry{}
	}
	d.mu.orgs, d.mu.users, d.mu.keys = map[uint64]Org{}, map[uint64]User{}, map[uint64]*entry{}
	d.mu.owned, d.mu.peers = map[uint64]map[uint64]*entry{}, map[uint64]map[uint64]bool{}
	d.mu.zones = map[string]*time.Location{}
	return d
}

// SetOrg inserts or replaces an org; callers in flight keep the old value.
func (d *Directory) SetOrg(o Org) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.orgs[o.ID] = o
	d.refreshOrgLocked(o.ID)
}

// SetUser inserts or replaces a user; callers in flight keep the old value.
func (d *Directory) SetUser(u User) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if old, ok := d.mu.users[u.ID]; ok && old.OrgID != u.OrgID {
		drop(d.mu.peers, old.OrgID, u.ID)
	}
	d.mu.users[u.ID] = u
	put(d.mu.peers, u.OrgID, u.ID, true)
	d.refreshUserLocked(u.ID)
}

// SetKey inserts or replaces a key; callers in flight keep the old value. The directory keeps its own copy of the
// slices and maps inside.
func (d *Directory) SetKey(k Key) {
	k.Hash, k.Models, k.Labels, k.Scopes = bytes.Clone(k.Hash), slices.Clone(k.Models), maps.Clone(k.Labels), slices.Clone(k.Scopes)
	k.Budgets = slices.Clone(k.Budgets)
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.mu.keys[k.ID]
	if e != nil && !sameSecret(e.key(), k) {
		d.deleteKeyLocked(k.ID)
		e = nil
	}
	if e == nil {
		e = new(entry)
		d.mu.keys[k.ID] = e
		put(d.mu.owned, k.UserID, k.ID, e)
	}
	d.refreshLocked(e, k.At(d.clock.Wall()))
	if id, ok := publicID(k.Public); ok {
		s := d.shard(id)
		s.mu.Lock()
		s.mu.entries[id] = e
		s.mu.Unlock()
	}
}

// sameSecret reports that an entry may live on: what it verified still holds, and its owner is the same.
func sameSecret(a, b Key) bool {
	return a.Public == b.Public && bytes.Equal(a.Hash, b.Hash) && a.UserID == b.UserID
}

// DeleteOrg forgets an org; the keys below it resolve to 401.
func (d *Directory) DeleteOrg(id uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.orgs, id)
	d.refreshOrgLocked(id)
}

// DeleteUser forgets a user; the keys below it resolve to 401.
func (d *Directory) DeleteUser(id uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	drop(d.mu.peers, d.mu.users[id].OrgID, id)
	delete(d.mu.users, id)
	d.refreshUserLocked(id)
}

// DeleteKey forgets a key; resolving it is 401.
func (d *Directory) DeleteKey(id uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deleteKeyLocked(id)
}

func (d *Directory) deleteKeyLocked(id uint64) {
	e := d.mu.keys[id]
	if e == nil {
		return
	}
	k := e.key()
	delete(d.mu.keys, id)
	drop(d.mu.owned, k.UserID, id)
	if public, ok := publicID(k.Public); ok {
		s := d.shard(public)
		s.mu.Lock()
		if s.mu.entries[public] == e {
			delete(s.mu.entries, public)
		}
		s.mu.Unlock()
	}
}

func (d *Directory) refreshOrgLocked(id uint64) {
	for user := range d.mu.peers[id] {
		d.refreshUserLocked(user)
	}
}

func (d *Directory) refreshUserLocked(id uint64) {
	for _, e := range d.mu.owned[id] {
		d.refreshLocked(e, e.key())
	}
}

// refreshLocked makes the caller of a key anew, whole only with its user and its org.
func (d *Directory) refreshLocked(e *entry, k Key) *Caller {
	d.mu.made++
	c := &Caller{Key: k, Version: d.mu.made, Zone: d.zoneLocked(k.Timezone), dueMS: k.ExpiresAtMS}
	c.User = d.mu.users[k.UserID]
	c.Org, c.whole = d.mu.orgs[c.User.OrgID]
	for i := range k.Budgets {
		c.calendars = append(c.calendars, k.calendar(k.Budgets[i].Window, d.zoneLocked))
	}
	if next := k.nextAtMS(); next != 0 && (c.dueMS == 0 || next < c.dueMS) {
		c.dueMS = next
	}
	e.caller.Store(c)
	return c
}

// zoneLocked loads a zone once. A name that this binary does not know (it was checked when it was set) counts as UTC.
func (d *Directory) zoneLocked(name string) *time.Location {
	if z, ok := d.mu.zones[name]; ok {
		return z
	}
	z, err := Zone(name)
	if err != nil {
		return time.UTC
	}
	d.mu.zones[name] = z
	return z
}

// Org looks an org up by number.
func (d *Directory) Org(id uint64) (Org, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	o, ok := d.mu.orgs[id]
	return o, ok
}

// User looks a user up by number.
func (d *Directory) User(id uint64) (User, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	u, ok := d.mu.users[id]
	return u, ok
}

// Key looks a key up by number. What its slices and maps hold is shared: not to be changed.
func (d *Directory) Key(id uint64) (Key, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if e := d.mu.keys[id]; e != nil {
		return e.key().At(d.clock.Wall()), true
	}
	return Key{}, false
}

// Caller looks up by the key's number, expired or not; false when the key, its user or its org is gone.
func (d *Directory) Caller(key uint64) (*Caller, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.mu.keys[key]
	if e == nil {
		return nil, false
	}
	c := e.caller.Load()
	if c.Key.nextAtMS() != 0 {
		c = d.refreshLocked(e, c.Key.At(d.clock.Wall()))
	}
	return c, c.whole
}

// Orgs lists in ascending order of id.
func (d *Directory) Orgs() []Org {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.SortedFunc(maps.Values(d.mu.orgs), func(a, b Org) int { return cmp.Compare(a.ID, b.ID) })
}

// Users lists in ascending order of id.
func (d *Directory) Users() []User {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.SortedFunc(maps.Values(d.mu.users), func(a, b User) int { return cmp.Compare(a.ID, b.ID) })
}

// Keys lists in ascending order of id.
func (d *Directory) Keys() []Key {
	now := d.clock.Wall()
	d.mu.RLock()
	defer d.mu.RUnlock()
	keys := make([]Key, 0, len(d.mu.keys))
	for _, e := range d.mu.keys {
		keys = append(keys, e.key().At(now))
	}
	slices.SortFunc(keys, func(a, b Key) int { return cmp.Compare(a.ID, b.ID) })
	return keys
}

func publicID(public string) (id uint64, ok bool) {
	if len(public) != publicLen {
		return 0, false
	}
	return packed(prefix + public + "-"), true
}

func put[V any](m map[uint64]map[uint64]V, outer, inner uint64, v V) {
	if m[outer] == nil {
		m[outer] = map[uint64]V{}
	}
	m[outer][inner] = v
}

func drop[V any](m map[uint64]map[uint64]V, outer, inner uint64) {
	delete(m[outer], inner)
	if len(m[outer]) == 0 {
		delete(m, outer)
	}
}
