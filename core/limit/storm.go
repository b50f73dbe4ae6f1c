package limit

import "time"

// A key is in a retry storm after stormAfter refusals within a second. The count is no usage: it tests nothing, is in
// no meter's answer and lives outside the lock, as one word: start of the second in ms, then the count.
const (
	stormAfter = 16
	stormBits  = 16
)

// noteRefusal counts one refusal. A storm of the last second goes on into the next.
func (m *meter) noteRefusal(now time.Duration) {
	ms := uint64(now / time.Millisecond)
	for {
		old := m.storm.Load()
		start, n := old>>stormBits, old&(1<<stormBits-1)
		switch age := ms - start; {
		case n == 0 || age >= 2000 || (age >= 1000 && n < stormAfter):
			start, n = ms, 1
		case age >= 1000:
			start, n = ms, stormAfter
		case n < 1<<stormBits-1:
			n++
		}
		if m.storm.CompareAndSwap(old, start<<stormBits|n) {
			return
		}
	}
}

// storming tells whether the key is being refused again and again.
func (m *meter) storming(now time.Duration) bool {
	old := m.storm.Load()
	return old&(1<<stormBits-1) >= stormAfter && uint64(now/time.Millisecond)-old>>stormBits < 1000
}

// Storm implements Limiter. It looks, charges nothing and makes no meter; only keys are counted.
func (m *Memory) Storm(id ID, limit int64) *Denial {
	if limit <= 0 || id.Kind != Key {
		return nil
	}
	mt := m.index.find(m.index.hash(&id, 0), &id, 0)
	if mt == nil {
		return nil
	}
	now := m.clock.Mono()
	if !mt.storming(now) {
		return nil
	}
	mt.mu.Lock()
	defer mt.mu.Unlock()
	g := &mt.mu.qps
	b := bound{limit: limit, most: limit, rate: g.short.rate}
	if b.rate == 0 {
		b.rate = limit
	}
	if mt.mu.dead || g.fits(now, b, 1) {
		return nil
	}
	most, current, wait := g.overrun(now, b, 1)
	return &Denial{Axis: AxisQPS, ID: mt.id, Limit: most, Current: current, Requested: 1, RetryAfterMS: ceilMS(wait), Exact: true}
}
