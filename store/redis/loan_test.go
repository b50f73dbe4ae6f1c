//go:build unix

package redis

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/store/storetest"
)

// The naive side of loans keeps every single spend, and adds them all up. What a gateway was lent it spends at any moment
// of the loan's life, counted from before the call was made.

type spend struct {
	at int64 // us
	n  int64
}

type naiveLoan struct {
	slot   uint64
	tokens bool
	left   int64
	until  int64
	late   bool // spent in the last moment
}

type lender struct {
	*shelf
	r       *rand.Rand
	id      limit.ID
	loans   [3][]*naiveLoan
	number  uint64
	spent   [2][]spend // requests, tokens
	buckets [2][]int64 // of the fixed rule: their beginnings
	granted int
	start   int64
}

const lenders = 3

func TestLoansNeverAboveTheLimit(t *testing.T) {
	server := storetest.Redis(t)
	rules := map[limit.Kind]limit.Windows{
		limit.Channel: {QPS: limit.Fixed, TPM: limit.Fixed},
		limit.Global:  {QPS: limit.TokenBucket, TPM: limit.TokenBucket},
	}
	for _, c := range []struct {
		id       limit.ID
		qps, tpm limit.Bound
	}{
		{limit.ID{Kind: limit.Model, Name: "m"}, limit.Bound{Most: 20}, limit.Bound{Most: 1000}},
		{limit.ID{Kind: limit.Model, Name: "one"}, limit.Bound{Most: 1}, limit.Bound{Most: 10}},
		{limit.ID{Kind: limit.Model, Name: "ten"}, limit.Bound{Most: 60, Ten: 200}, limit.Bound{Most: 2000, Ten: 5000}},
		{limit.ID{Kind: limit.Channel, Scope: 1}, limit.Bound{Most: 20}, limit.Bound{Most: 1000}},
		{limit.ID{Kind: limit.Global}, limit.Bound{Most: 20, Rate: 40}, limit.Bound{Most: 1000, Rate: 3000}},
		{limit.ID{Kind: limit.Global, Scope: 1}, limit.Bound{Most: 1, Rate: 7}, limit.Bound{Most: 10, Rate: 60_000}},
	} {
		for seed := range 3 {
			name := fmt.Sprintf("%v/%d", c.id, seed)
			s := open(t, server, Options{Algorithms: rules, Gateways: lenders, Prefix: name})
			l := &lender{shelf: s, r: rand.New(rand.NewPCG(uint64(seed), 2)), id: c.id, start: s.at.Load()}
			for range 700 {
				l.step(c.qps, c.tpm)
			}
			w := rules[c.id.Kind]
			l.check(name+" requests", w.QPS, c.qps, l.spent[0], l.buckets[0], time.Second)
			l.check(name+" tokens", w.TPM, c.tpm, l.spent[1], l.buckets[1], time.Minute)
			if l.granted < 20 {
				t.Errorf("%s: only %d loans", name, l.granted)
			}
		}
	}
}

func (l *lender) step(qps, tpm limit.Bound) {
	r, g := l.r, l.r.IntN(lenders)
	switch k := r.IntN(10); {
	case k < 3:
		l.passTo(l.at.Load() + pick(r, time.Millisecond, 17*time.Millisecond, 50*time.Millisecond, 99*time.Millisecond,
			100*time.Millisecond, 400*time.Millisecond, 900*time.Millisecond, time.Second, 3*time.Second, 10*time.Second).Microseconds())
	case k < 7:
		for _, n := range l.loans[g] {
			if now := l.at.Load(); now < n.until && n.left > 0 && !n.late && r.IntN(2) == 0 {
				n.spend(l, now, 1+r.Int64N(n.left))
			}
		}
	default:
		l.exchange(g, qps, tpm)
	}
}

// passTo lets time pass; the late spend on the way.
func (l *lender) passTo(at int64) {
	for _, loans := range l.loans {
		for _, n := range loans {
			if n.late && n.left > 0 && n.until <= at {
				n.spend(l, n.until-1, n.left)
			}
		}
	}
	l.at.Store(at)
}

func (n *naiveLoan) spend(l *lender, now, much int64) {
	which := 0
	if n.tokens {
		which = 1
	}
	n.left -= much
	l.spent[which] = append(l.spent[which], spend{now, much})
}

func (l *lender) exchange(g int, qps, tpm limit.Bound) {
	r := l.r
	l.number++
	e := &limit.Exchange{ID: l.id, Gateway: uint64(g) + 1, Number: l.number, QPS: qps, TPM: tpm,
		NeedRequests: pick(r, 0, 1, 1, qps.Most/2, qps.Most), WantRequests: r.Int64N(qps.Most + 2),
		NeedTokens: pick(r, 0, 1, tpm.Most/3, tpm.Most), WantTokens: r.Int64N(tpm.Most)}
	l.loans[g] = slices.DeleteFunc(l.loans[g], func(n *naiveLoan) bool {
		if n.late && n.left > 0 || r.IntN(2) == 0 {
			return false
		}
		if n.left > 0 {
			e.Back = append(e.Back, limit.Back{Tokens: n.tokens, Slot: n.slot, N: n.left})
		}
		return true
	})
	sent := l.at.Load()
	l.passTo(sent + r.Int64N(4)*1000)
	now := l.at.Load()
	l.borrow(e)
	first := *e
	if r.IntN(3) == 0 {
		l.passTo(now + 1000)
		l.borrow(e)
		if fmt.Sprint(first) != fmt.Sprint(*e) {
			l.t.Fatalf("sent again: %+v, then %+v", first, *e)
		}
	}
	l.granted += int(min(e.Requests+e.Tokens, 1))
	if e.Requests < 0 || e.Requests > max(e.WantRequests, e.NeedRequests) || e.Requests > 0 && e.Requests < e.NeedRequests {
		l.t.Fatalf("%+v", *e)
	}
	for i, n := range []int64{e.Requests, e.Tokens} {
		span := []int64{1_000_000, 60_000_000}[i]
		if b := l.buckets[i]; n > 0 && (len(b) == 0 || now >= b[len(b)-1]+span) {
			l.buckets[i] = append(b, now)
		}
	}
	until := sent + e.For.Microseconds()
	l.loans[g] = append(l.loans[g], &naiveLoan{e.RequestsSlot, false, e.Requests, until, r.IntN(2) == 0},
		&naiveLoan{e.TokensSlot, true, e.Tokens, until, r.IntN(2) == 0})
}

func (l *lender) check(name string, a limit.Algorithm, b limit.Bound, spends []spend, buckets []int64, span time.Duration) {
	us := span.Microseconds()
	slices.SortStableFunc(spends, func(a, b spend) int { return int(a.at - b.at) })
	switch a {
	case limit.Fixed:
		used := make([]int64, len(buckets))
		for _, s := range spends {
			i := sort.Search(len(buckets), func(i int) bool { return buckets[i] > s.at }) - 1
			if used[i] += s.n; used[i] > b.Most || s.at >= buckets[i]+us {
				l.t.Fatalf("%s: %d of %d in the bucket of %d, at %d", name, used[i], b.Most, buckets[i], s.at)
			}
		}
	case limit.TokenBucket:
		level, at := int64(0), l.start // in 1/span of a unit
		for _, s := range spends {
			level = max(level-(s.at-at)*b.Rate, 0) + s.n*us
			at = s.at
			if level > b.Most*us {
				l.t.Fatalf("%s: %d/%d of %d at %d", name, level, us, b.Most, s.at)
			}
		}
	default:
		for i := range spends {
			one, ten := int64(0), int64(0)
			for _, s := range spends[:i+1] {
				if s.at > spends[i].at-us {
					one += s.n
				}
				if s.at > spends[i].at-10*us {
					ten += s.n
				}
			}
			if one > b.Most || b.Ten > 0 && ten > b.Ten {
				l.t.Fatalf("%s: %d in one window of %d, %d in ten of %d", name, one, b.Most, ten, b.Ten)
			}
		}
	}
}
