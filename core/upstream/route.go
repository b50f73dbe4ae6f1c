package upstream

import (
	"cmp"
	"slices"
	"strings"
	"sync/atomic"
)

// maxTurns bounds a tier's table of turns; weights are scaled down to it.
const maxTurns = 1024

// route is the channels of one model and dialect, in tiers of falling priority. Models with the same channels share one.
type route struct {
	tiers    []*tier
	channels int // over all tiers
}

// tier is channels of equal priority. turns is one period of nginx's smooth weighted round-robin, worked out once: a
// heavy channel's turns lie apart. Taking a turn is one atomic add. A turn that falls on a channel which cannot serve is
// spent and the next is taken, so the others keep sharing in proportion to their weights. Calls that have tried a channel
// of the tier take turns among themselves: were there one count, then of two channels the one that fails would get every
// call first, as each failure would spend the other's turn.
type tier struct {
	members     []member
	turns       []uint16
	next, again atomic.Uint32
}

type member struct {
	*Channel
	at int // index in the route
}

// pick takes turns until one falls on a channel that is not yet seen, gives it to a less busy one if there is any, and asks
// usable. Every channel asked is marked in seen, so that none is asked twice in a call.
func (t *tier) pick(seen []bool, flying func(*Channel) int64, usable func(*Channel) bool) *Channel {
	left, next := 0, &t.next
	for _, m := range t.members {
		if !seen[m.at] {
			left++
		} else {
			next = &t.again
		}
	}
	for range len(t.turns) {
		if left == 0 {
			return nil
		}
		m := t.members[0]
		if len(t.members) > 1 {
			m = t.members[t.turns[(next.Add(1)-1)%uint32(len(t.turns))]]
		}
		if seen[m.at] {
			continue
		}
		if left > 1 {
			m = t.idler(m, seen, flying)
		}
		seen[m.at] = true
		left--
		if usable(m.Channel) {
			return m.Channel
		}
	}
	return t.sweep(seen, usable)
}

// idler is m, unless another would still have no more in flight for its weight than m has already, were it given this
// attempt, too. So turns keep the shares while all answer alike, and one that answers slowly does not gather what is open.
func (t *tier) idler(m member, seen []bool, flying func(*Channel) int64) member {
	busy := flying(m.Channel)
	if busy == 0 {
		return m
	}
	for _, o := range t.members {
		if seen[o.at] || o.at == m.at {
			continue
		}
		if n := flying(o.Channel) + 1; n*int64(m.Weight) <= busy*int64(o.Weight) {
			m, busy = o, n-1
		}
	}
	return m
}

// sweep asks whoever the turns passed by: other calls took turns in between.
func (t *tier) sweep(seen []bool, usable func(*Channel) bool) *Channel {
	for _, m := range t.members {
		if seen[m.at] {
			continue
		}
		seen[m.at] = true
		if usable(m.Channel) {
			return m.Channel
		}
	}
	return nil
}

// routeSet shares routes between the models of one catalog.
type routeSet map[string]*route

// of is the route over the enabled channels of a provider; nil when there is not even a disabled one.
func (rs routeSet) of(channels []*Channel, provider string) *route {
	var in []*Channel
	var key strings.Builder
	known := false
	key.WriteString(provider)
	for _, ch := range channels {
		if ch.Provider != provider {
			continue
		}
		known = true
		if ch.State != "disabled" {
			in = append(in, ch)
			key.WriteString("\x00" + ch.Name)
		}
	}
	if !known {
		return nil
	}
	r := rs[key.String()]
	if r == nil {
		r = newRoute(in)
		rs[key.String()] = r
	}
	return r
}

func newRoute(channels []*Channel) *route {
	r := &route{channels: len(channels)}
	sorted := slices.Clone(channels)
	slices.SortStableFunc(sorted, func(a, b *Channel) int { return cmp.Compare(b.Priority, a.Priority) })
	for i, ch := range sorted {
		if i == 0 || ch.Priority != sorted[i-1].Priority {
			r.tiers = append(r.tiers, new(tier))
		}
		t := r.tiers[len(r.tiers)-1]
		t.members = append(t.members, member{ch, i})
	}
	for _, t := range r.tiers {
		t.turns = smooth(t.members)
	}
	return r
}

// smooth works out one period: each turn every channel gains its weight, the richest is taken and pays the sum.
func smooth(members []member) []uint16 {
	weights := make([]int, len(members))
	sum, divisor := 0, 0
	for i, m := range members {
		weights[i] = m.Weight
		sum += m.Weight
		divisor = gcd(divisor, m.Weight)
	}
	if sum/divisor > maxTurns {
		divisor = (sum + maxTurns - 1) / maxTurns
	}
	sum = 0
	for i := range weights {
		weights[i] = max(weights[i]/divisor, 1)
		sum += weights[i]
	}
	turns := make([]uint16, 0, sum)
	purse := make([]int, len(members))
	for range sum {
		best := 0
		for i, w := range weights {
			purse[i] += w
			if purse[i] > purse[best] {
				best = i
			}
		}
		purse[best] -= sum
		turns = append(turns, uint16(best))
	}
	return turns
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
