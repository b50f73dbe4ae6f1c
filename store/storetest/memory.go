// Package storetest is the conformance suite that every store runs, and an in-memory store for tests.
package storetest

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/weir-gateway/weir/core/ledger"
)

// Memory is a store in memory with a kernel and a disk: Apply reaches the kernel, Sync the disk. Failures can be
// injected. Safe for concurrent use.
type Memory struct {
	syncing sync.Mutex // held through a Sync
	mu      struct {
		sync.Mutex
		kernel, disk map[string]string
		applies      int
		before       func(n int, b []ledger.Write) error
		after        func(n int) error
		syncs        int
		beforeSync   func(n int) error
		doubt        bool // a Sync failed
		closed       bool
	}
}

var _ ledger.Store = (*Memory)(nil)

// ErrInjected is the failure that FailNext injects.
var ErrInjected = errors.New("injected store failure")

// NewMemory makes an empty store.
func NewMemory() *Memory {
	m := &Memory{}
	m.mu.kernel, m.mu.disk = map[string]string{}, map[string]string{}
	return m
}

// Clone is the store as a new process finds it after this one was killed: everything applied is there.
func (m *Memory) Clone() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMemory()
	c.mu.kernel, c.mu.disk = maps.Clone(m.mu.kernel), maps.Clone(m.mu.kernel)
	return c
}

// CloneSynced is the store after a power cut: only what was synced is there.
func (m *Memory) CloneSynced() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMemory()
	c.mu.kernel, c.mu.disk = maps.Clone(m.mu.disk), maps.Clone(m.mu.disk)
	return c
}

// FailNext makes the next n calls of Apply fail with nothing written.
func (m *Memory) FailNext(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	first := m.mu.applies + 1
	m.mu.before = func(call int, _ []ledger.Write) error {
		if call < first+n {
			return ErrInjected
		}
		return nil
	}
}

// Before calls f at the start of each Apply with the number of the call, from 1, and its batch; an error of f fails
// the call with nothing written. f may block. Nil takes it away.
func (m *Memory) Before(f func(n int, b []ledger.Write) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.before = f
}

// After calls f when an Apply has been written; an error of f is returned all the same, as when a sync breaks.
func (m *Memory) After(f func(n int) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.after = f
}

// FailSync makes Sync fail with err until it is called with nil.
func (m *Memory) FailSync(err error) {
	if err == nil {
		m.BeforeSync(nil)
		return
	}
	m.BeforeSync(func(int) error { return err })
}

// BeforeSync calls f at the start of each Sync with the number of the call, from 1; an error of f fails the call. f
// may block. Nil takes it away.
func (m *Memory) BeforeSync(f func(n int) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.beforeSync = f
}

// Syncs is how often Sync was called, by Apply too.
func (m *Memory) Syncs() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.syncs
}

// Applies is how often Apply was called.
func (m *Memory) Applies() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.applies
}

// Apply implements ledger.Store.
func (m *Memory) Apply(b []ledger.Write, sync bool) error {
	m.mu.Lock()
	m.mu.applies++
	n, before, after, doubt := m.mu.applies, m.mu.before, m.mu.after, m.mu.doubt
	m.mu.Unlock()
	if doubt {
		if err := m.Sync(); err != nil {
			return err
		}
	}
	if before != nil {
		if err := before(n, b); err != nil {
			return err
		}
	}
	if err := m.write(b); err != nil {
		return err
	}
	if after != nil {
		if err := after(n); err != nil {
			return err
		}
	}
	if sync {
		return m.Sync()
	}
	return nil
}

func (m *Memory) write(b []ledger.Write) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		return errors.New("the store is closed")
	}
	for _, w := range b {
		if len(w.Key) == 0 {
			return errors.New("writing to the store: empty key")
		}
	}
	for _, w := range b {
		if w.Value == nil {
			delete(m.mu.kernel, string(w.Key))
		} else {
			m.mu.kernel[string(w.Key)] = string(w.Value)
		}
	}
	return nil
}

// Sync implements ledger.Store.
func (m *Memory) Sync() error {
	m.syncing.Lock()
	defer m.syncing.Unlock()
	m.mu.Lock()
	m.mu.syncs++
	n, before, kernel := m.mu.syncs, m.mu.beforeSync, maps.Clone(m.mu.kernel)
	m.mu.Unlock()
	var err error
	if before != nil {
		err = before(n)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.doubt = err != nil; err == nil {
		m.mu.disk = kernel
	}
	return err
}

// Get implements ledger.Store.
func (m *Memory) Get(key []byte) ([]byte, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.mu.kernel[string(key)]
	if !ok {
		return nil, false, nil
	}
	return []byte(v), true, nil
}

// Scan implements ledger.Store. It visits the store as it was when the call began.
func (m *Memory) Scan(prefix, start []byte, reverse bool, visit func(key, value []byte) bool) error {
	m.mu.Lock()
	kernel := m.mu.kernel
	var keys []string
	for k := range kernel {
		b := []byte(k)
		order := bytes.Compare(b, start)
		if bytes.HasPrefix(b, prefix) && (start == nil || order == 0 || (order < 0) == reverse) {
			keys = append(keys, k)
		}
	}
	values := make([]string, len(keys))
	slices.Sort(keys)
	if reverse {
		slices.Reverse(keys)
	}
	for i, k := range keys {
		values[i] = kernel[k]
	}
	m.mu.Unlock()
	for i, k := range keys {
		if !visit([]byte(k), []byte(values[i])) {
			return nil
		}
	}
	return nil
}

// Close implements ledger.Store.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.closed = true
	return nil
}
