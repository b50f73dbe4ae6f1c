package limit

import "github.com/weir-gateway/weir/core/llm"

// Money meters stand in the same index and take part in the same atomic step as windows. The ledger is their source:
// they are loaded before traffic and never swept while they hold or have counted anything.

func (m *Memory) purse(k Kind, scope uint64, label int32, sure bool) *meter {
	return m.index.get(&ID{Kind: k, Scope: scope}, label, 0, sure)
}

// withPurse runs f on a live money meter under its lock.
func (m *Memory) withPurse(k Kind, scope uint64, label int32, f func(*purse)) {
	for sure := false; ; sure = true {
		mt := m.purse(k, scope, label, sure)
		mt.mu.Lock()
		if !mt.mu.dead {
			f(&mt.mu.purse)
			mt.mu.touched = m.clock.Mono()
			mt.mu.Unlock()
			return
		}
		mt.mu.Unlock()
	}
}

// readPurse gives a copy; a meter that does not exist is empty.
func (m *Memory) readPurse(k Kind, scope uint64, label int32) purse {
	id := ID{Kind: k, Scope: scope}
	mt := m.index.find(m.index.hash(&id, label), &id, label)
	if mt == nil {
		return purse{}
	}
	mt.mu.Lock()
	defer mt.mu.Unlock()
	return mt.mu.purse
}

// LoadBalance sets what a user was given and was charged as the ledger knows it; called before traffic and on creation.
// Money held by open reservations is not part of it and stays held.
func (m *Memory) LoadBalance(user uint64, credits, posted llm.Micro) {
	m.withPurse(kindBalance, user, 0, func(p *purse) { p.credits, p.settled = credits, posted })
}

// LoadQuota sets what a key has used in a period, as the ledger knows it. A period nobody loaded starts at 0.
func (m *Memory) LoadQuota(key uint64, label int32, used llm.Micro) {
	m.withPurse(kindQuota, key, label, func(p *purse) { p.settled = used })
}

// Credit moves a user's available money: after the ledger's acknowledgement for a rise, before it for a cut.
func (m *Memory) Credit(user uint64, delta llm.Micro) {
	m.withPurse(kindBalance, user, 0, func(p *purse) { p.credits = llm.AddMicro(p.credits, delta) })
}

// Balance is a user's available and held money.
func (m *Memory) Balance(user uint64) (available, held llm.Micro) {
	p := m.readPurse(kindBalance, user, 0)
	return p.available(), p.held
}

// Quota is what a key has used and holds in a period.
func (m *Memory) Quota(key uint64, label int32) (used, held llm.Micro) {
	p := m.readPurse(kindQuota, key, label)
	return p.settled, p.held
}
