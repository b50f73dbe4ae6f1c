package limit

import (
	"math"
	"time"
)

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

// One in lookEvery of the refusals that a cheap look would give is a request that goes the whole way, but not two within
// lookPause: a policy that decides otherwise by now is heard, and a faster storm costs no more of that.
const (
	lookEvery = 16
	lookPause = 20 * time.Millisecond
)

// reach is what a QPS bound lets in at most, in one window and in ten; most 0: none was seen.
type reach struct{ most, ten int64 }

func (r *reach) raise(o reach) { r.most, r.ten = max(r.most, o.most), max(r.ten, o.ten) }

// tested remembers the largest QPS bound of the last one to two minutes: what the key may do, as decisions have it. The
// envelope's largest would be many times that, and no storm would ever reach it. It counts under the terms it was made
// under: a changed limit holds from the next request.
type tested struct {
	terms         uint64
	since         time.Duration // start of the present minute
	recent, older reach
}

func (t *tested) note(now time.Duration, terms uint64, o reach) {
	switch age := now - t.since; {
	case age >= 2*time.Minute, terms != t.terms:
		*t = tested{terms: terms, since: now}
	case age >= time.Minute:
		*t = tested{terms: terms, since: t.since + time.Minute, older: t.recent}
	}
	t.recent.raise(o)
}

// reach is what the ask lets in.
func (a *ask) reach() reach {
	b := &a.qps
	switch {
	case a.loose || b.most == 0:
		return reach{math.MaxInt64, math.MaxInt64}
	case b.ten == 0:
		return reach{b.most, tenTimes(b.most)}
	}
	return reach{b.most, b.ten}
}

// rememberLocked keeps the bound that the key is tested against, for the cheap look.
func (s *step) rememberLocked(now time.Duration, terms uint64) {
	for i := range s.n {
		if a := &s.asks[i]; a.rank == 0 && a.m.id.Kind == Key {
			a.m.mu.tested.note(now, terms, a.reach())
		}
	}
}

// boundLocked is what the cheap look tests: at most limit, and what was tested lately under the same terms.
func (m *meter) boundLocked(limit int64, terms uint64) bound {
	b := bound{limit: limit, most: limit, rate: m.mu.qps.short.rate}
	var lately reach
	if t := &m.mu.tested; t.terms == terms {
		lately = t.recent
		lately.raise(t.older)
	}
	if lately.most > 0 && lately.most < limit {
		b.limit, b.most = lately.most, lately.most
		if lately.ten/10 < lately.most {
			b.limit, b.ten = lately.ten/10, lately.ten
		}
	}
	if b.rate == 0 {
		b.rate = b.limit
	}
	return b
}

// fullLocked is what the server of shared windows said of the key, while it has no room for one more under b; else nil.
func (m *meter) fullLocked(now time.Duration, b bound) *full {
	if r := m.mu.remote; r != nil && now < r.full.until && b.most <= r.full.most {
		return &r.full
	}
	return nil
}

// Storm implements Limiter. It looks, charges nothing and makes no meter; only keys are counted. The wait it tells is of
// the QPS alone, so it is a hint.
func (m *Memory) Storm(id ID, limit int64, terms uint64, d *Denial) (refused bool) {
	if limit <= 0 || id.Kind != Key {
		return false
	}
	mt := m.index.find(m.index.hash(&id, 0), &id, 0)
	if mt == nil {
		return false
	}
	now := m.clock.Mono()
	if !mt.storming(now) {
		return false
	}
	mt.mu.Lock()
	defer mt.mu.Unlock()
	g, b := &mt.mu.qps, mt.boundLocked(limit, terms)
	far := mt.fullLocked(now, b)
	if mt.mu.dead || g.left(now, b) >= 1 && far == nil {
		return false
	}
	if mt.mu.looks++; mt.mu.looks >= lookEvery && now-mt.mu.looked >= lookPause {
		mt.mu.looks, mt.mu.looked = 0, now
		return false
	}
	most, current, wait := g.overrun(now, b, 1)
	if far != nil {
		most, current, wait = far.most, far.used, far.until-now
	}
	*d = Denial{Axis: AxisQPS, ID: mt.id, Limit: most, Current: current, Requested: 1, RetryAfterMS: ceilMS(wait)}
	return true
}
