package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"sync"
	"sync/atomic"
	"time"
)

// shards of the index by id characters; a power of two.
const shards = 64

// shard is one part of the index. Its lock is taken inside Directory.mu by setters and alone by Resolve.
type shard struct {
	mu struct {
		sync.RWMutex
		entries map[uint64]*entry
	}
	_ [64]byte // its neighbours' locks are on other cache lines
}

// entry is one key's place in the index: it outlives its callers, so that a change of limits does not forget the
// verified token.
type entry struct {
	caller   atomic.Pointer[Caller]
	verified atomic.Pointer[[sha256.Size]byte]
}

// key is the entry's key; set before the entry is published.
func (e *entry) key() Key { return e.caller.Load().Key }

func (d *Directory) shard(id uint64) *shard {
	return &d.index[id*0x9E3779B97F4A7C15>>58]
}

func (d *Directory) lookup(id uint64) *entry {
	s := d.shard(id)
	s.mu.RLock()
	e := s.mu.entries[id]
	s.mu.RUnlock()
	return e
}

// Resolve gives the caller of a presented key, or a *llm.Error of KindUnauthorized; the error is shared and not to be
// changed. It keeps nothing of the token.
func (d *Directory) Resolve(token []byte) (*Caller, error) {
	if !wellFormed(token) {
		if len(token) == 0 {
			return nil, errMissing
		}
		return nil, errMalformed
	}
	e := d.lookup(packed(token))
	if e == nil {
		return nil, errUnknown
	}
	c := e.caller.Load()
	if !c.whole || !d.verify(e, c, token) {
		return nil, errUnknown
	}
	if c.dueMS != 0 {
		return d.due(c)
	}
	return c, nil
}

// verify compares the token with the digest that passed last, else with the stored hash.
func (d *Directory) verify(e *entry, c *Caller, token []byte) bool {
	sum := d.digest(token)
	if seen := e.verified.Load(); seen != nil && subtle.ConstantTimeCompare(seen[:], sum[:]) == 1 {
		return true
	}
	if !hmac.Equal(d.hash(token), c.Key.Hash) {
		return false
	}
	kept := sum
	e.verified.Store(&kept)
	return true
}

// due looks at the clock for a key that expires or changes its zone.
func (d *Directory) due(c *Caller) (*Caller, error) {
	now := d.clock.Wall()
	switch {
	case c.dueMS > now.UnixMilli():
		return c, nil
	case c.expired(now):
		return nil, errExpired
	}
	return d.turn(c.Key.ID, now)
}

func (c *Caller) expired(now time.Time) bool {
	return c.Key.ExpiresAtMS != 0 && now.UnixMilli() >= c.Key.ExpiresAtMS
}

// turn replaces a caller whose change of zone is due.
func (d *Directory) turn(key uint64, now time.Time) (*Caller, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.mu.keys[key]
	if e == nil {
		return nil, errUnknown
	}
	c := d.refreshLocked(e, e.key().At(now))
	if !c.whole {
		return nil, errUnknown
	}
	return c, nil
}
