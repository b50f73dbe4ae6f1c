package limit

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// clientIDs is how many live ids of one client-chosen kind a key may have; further ones share its overflow meter.
const clientIDs = 4096

// index finds meters. Reading takes no lock: buckets are chains of atomic links, changed only under mu. A reader that
// meets a resize may miss a meter and then asks again under mu, so an id never has two live meters. A map under
// a read lock was the obvious way; its shared counter was the hottest cache line of the process.
type index struct {
	seed    maphash.Seed
	build   func(Kind) *meter
	buckets atomic.Pointer[[]atomic.Pointer[meter]]

	mu struct {
		sync.Mutex
		seq  uint64
		n    int
		live map[owner]int // client-chosen ids per key and kind
	}
}

type owner struct {
	key  uint64
	kind Kind
}

func (x *index) init(build func(Kind) *meter) {
	x.build = build
	x.seed = maphash.MakeSeed()
	b := make([]atomic.Pointer[meter], 256)
	x.buckets.Store(&b)
	x.mu.live = make(map[owner]int)
}

// hash spreads ids; only names come from outside, and those are hashed with a secret seed.
func (x *index) hash(id *ID, label int32) uint64 {
	h := id.Scope ^ uint64(id.Kind)<<56 ^ uint64(uint32(label))<<24
	h *= 0x9E3779B97F4A7C15
	h ^= h >> 29
	if id.Name != "" {
		h = (h ^ maphash.String(x.seed, id.Name)) * 0xBF58476D1CE4E5B9
		h ^= h >> 32
	}
	return h
}

// find looks an id up without a lock; nil may also mean that a resize hid it.
func (x *index) find(h uint64, id *ID, label int32) *meter {
	b := *x.buckets.Load()
	for m := b[h&uint64(len(b)-1)].Load(); m != nil; m = m.next.Load() {
		if m.hash == h && m.label == label && m.id == *id {
			return m
		}
	}
	return nil
}

// get finds or makes the meter of an id for a key. sure skips the lock-free look: a dead meter was found there.
func (x *index) get(id *ID, label int32, key uint64, sure bool) *meter {
	h := x.hash(id, label)
	if !sure {
		if m := x.find(h, id, label); m != nil {
			return m
		}
	}
	return x.make(h, id, label, key)
}

// make is get under mu, where nothing is hidden.
func (x *index) make(h uint64, id *ID, label int32, key uint64) *meter {
	x.mu.Lock()
	defer x.mu.Unlock()
	if m := x.find(h, id, label); m != nil {
		return m
	}
	counted := id.Kind.clientChosen() && id.Name != ""
	if counted && x.mu.live[owner{key, id.Kind}] >= clientIDs {
		over := ID{Kind: id.Kind, Scope: key} // no client-chosen id has an empty name
		h = x.hash(&over, 0)
		if m := x.find(h, &over, 0); m != nil {
			return m
		}
		return x.addLocked(h, over, 0)
	}
	m := x.addLocked(h, ID{id.Kind, id.Scope, strings.Clone(id.Name)}, label)
	if counted {
		m.owner = key
		x.mu.live[owner{key, id.Kind}]++
	}
	return m
}

func (x *index) addLocked(h uint64, id ID, label int32) *meter {
	b := *x.buckets.Load()
	if x.mu.n >= 2*len(b) {
		b = x.growLocked(b)
	}
	x.mu.n++
	x.mu.seq++
	m := x.build(id.Kind)
	m.seq, m.hash, m.id, m.label = x.mu.seq, h, id, label
	head := &b[h&uint64(len(b)-1)]
	m.next.Store(head.Load())
	head.Store(m)
	return m
}

// growLocked doubles the buckets. Links move one by one; a reader on its way may end up in another chain, but every
// chain ends.
func (x *index) growLocked(old []atomic.Pointer[meter]) []atomic.Pointer[meter] {
	b := make([]atomic.Pointer[meter], 2*len(old))
	for i := range old {
		for m := old[i].Load(); m != nil; {
			next := m.next.Load()
			head := &b[m.hash&uint64(len(b)-1)]
			m.next.Store(head.Load())
			head.Store(m)
			m = next
		}
	}
	x.buckets.Store(&b)
	return b
}

// sweep drops the meters that have not been used for idle and are as good as fresh. Marking dead and unlinking happen
// under both locks, so a Reserve that meets a dead meter finds the next one by asking under mu.
// Lock order: mu, then a meter; nobody asks for mu while holding a meter.
func (x *index) sweep(now, idle time.Duration) {
	const stride = 64
	for i := 0; ; i += stride {
		x.mu.Lock()
		b := *x.buckets.Load()
		if i >= len(b) {
			x.mu.Unlock()
			return
		}
		for j := i; j < min(i+stride, len(b)); j++ {
			x.sweepChainLocked(&b[j], now, idle)
		}
		x.mu.Unlock()
	}
}

func (x *index) sweepChainLocked(link *atomic.Pointer[meter], now, idle time.Duration) {
	for m := link.Load(); m != nil; m = link.Load() {
		if !m.kill(now, idle) {
			link = &m.next
			continue
		}
		link.Store(m.next.Load())
		x.mu.n--
		if m.id.Kind.clientChosen() && m.id.Name != "" {
			o := owner{m.owner, m.id.Kind}
			if x.mu.live[o]--; x.mu.live[o] <= 0 {
				delete(x.mu.live, o)
			}
		}
	}
}

// kill marks a meter dead if it is idle and as good as fresh.
func (m *meter) kill(now, idle time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now-m.mu.touched < idle || !m.freshLocked(now) {
		return false
	}
	m.mu.dead = true
	return true
}

// size counts the live meters.
func (x *index) size() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.n
}
