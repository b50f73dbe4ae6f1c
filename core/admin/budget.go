package admin

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/llm"
)

// budgets reads the budgets of a key by window: null takes one away, what is absent stays as it is. monthlyQuota is the
// short way to say the month's limit.
func (a *API) budgets(b *body, k *auth.Key) {
	month, before := "monthlyQuota"+a.suffix, *k
	b.amount(month, &k.MonthlyQuota, false)
	b.nested("budgets", func(all *body) {
		for w := range llm.Window(llm.Windows) {
			name, twice := w.String(), w == llm.Month && b.has(month)
			if all.null(name) {
				if twice {
					all.fail(name, "given as %s too; give one of them", month)
				}
				k.SetBudget(auth.Budget{Window: w})
				continue
			}
			all.nested(name, func(one *body) {
				if limit := "limit" + a.suffix; twice && one.has(limit) {
					one.fail(limit, "given as %s too; give one of them", month)
				}
				a.budget(one, k, w, before.Budget(w).Limit != 0)
			})
		}
	})
}

// budget reads one. New terms of a budget that is counted already begin when its present period ends, so that none is had twice.
func (a *API) budget(b *body, k *auth.Key, w llm.Window, counted bool) {
	next := k.Budget(w)
	terms := next.Terms
	if next.Next != nil {
		terms = *next.Next
	}
	b.amount("limit"+a.suffix, &next.Limit, false)
	b.anchor("anchor", &terms.Anchor, w)
	b.optional("timezone", &terms.Zone, checkZone)
	b.bands(&next.Bands)
	switch {
	case terms == next.Terms:
		next.Next, next.NextAtMS = nil, 0
	case !counted:
		next.Terms, next.Next, next.NextAtMS = terms, nil, 0
	case next.Next == nil || *next.Next != terms:
		_, ends := k.Calendar(w).At(a.Clock.Wall())
		next.Next, next.NextAtMS = &terms, ends.UnixMilli()
	}
	k.SetBudget(next)
}

// maxPercent is how far beyond its limit a band of a budget may lie.
const maxPercent = 1000

// bands reads what happens at which share of the limit; null is none.
func (b *body) bands(to *auth.Bands) {
	percent := func(name string, to *int, most int64) {
		if b.null(name) {
			*to = 0
			return
		}
		n := int64(*to)
		b.integer(name, &n, 1, most, fmt.Sprintf("a percentage from 1 to %d, or null", most))
		*to = int(n)
	}
	percent("warnPercent", &to.Warn, maxPercent)
	percent("slowPercent", &to.Slow, maxPercent)
	percent("slowToPercent", &to.SlowTo, 99)
	percent("hardPercent", &to.Hard, maxPercent)
	switch hard := cmp.Or(to.Hard, 100); {
	case to.Warn > hard:
		b.fail("warnPercent", "%d is never reached: the key is refused at hardPercent, %d", to.Warn, hard)
	case to.Slow >= hard:
		b.fail("slowPercent", "%d is never reached: the key is refused at hardPercent, %d", to.Slow, hard)
	case to.SlowTo != 0 && to.Slow == 0:
		b.fail("slowToPercent", "it needs slowPercent, the share of the limit from which it holds")
	}
}

// weekdays are the anchors of a week, in the order of auth.Calendar.
var weekdays = [...]string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}

// anchor reads where a window's periods begin.
func (b *body) anchor(name string, to *int, w llm.Window) {
	n := int64(*to)
	switch w {
	case llm.Day:
		b.integer(name, &n, 0, 23, "an hour from 0 to 23")
	case llm.Month:
		n++
		b.integer(name, &n, 1, 28, "a day of the month from 1 to 28")
		n--
	default:
		day := weekdays[n]
		b.text(name, &day, func(s string) error {
			if slices.Contains(weekdays[:], s) {
				return nil
			}
			return fmt.Errorf("expected a weekday such as monday, got %.64q%s", s, suggest(s, weekdays[:]))
		})
		n = int64(slices.Index(weekdays[:], day))
	}
	*to = int(n)
}

func anchorView(w llm.Window, anchor int) any {
	switch w {
	case llm.Week:
		return weekdays[anchor]
	case llm.Month:
		return anchor + 1
	}
	return anchor
}

// budgetViews are a key's budgets as they are set; null is none.
func (a *API) budgetViews(k *auth.Key) (v object) {
	for w := range llm.Window(llm.Windows) {
		v = append(v, member{w.String(), a.budgetView(k.Budget(w))})
	}
	return v
}

func (a *API) budgetView(b auth.Budget) any {
	if b == (auth.Budget{Window: b.Window}) {
		return nil
	}
	v := append(a.money("limit", b.Limit), object{{"anchor", anchorView(b.Window, b.Anchor)}, {"timezone", orNull(b.Zone)},
		{"warnPercent", orNull(b.Warn)}, {"slowPercent", orNull(b.Slow)}, {"slowToPercent", nil}, {"hardPercent", cmp.Or(b.Hard, 100)}, {"next", nil}}...)
	if b.Slow != 0 {
		v[len(v)-3].value = cmp.Or(b.SlowTo, auth.DefaultSlowTo)
	}
	if n := b.Next; n != nil {
		v[len(v)-1].value = object{{"anchor", anchorView(b.Window, n.Anchor)}, {"timezone", orNull(n.Zone)}, {"at", moment(b.NextAtMS)}}
	}
	return v
}

// quotaView is what a window has counted in its present period; null where it is not counted.
func (a *API) quotaView(k *auth.Key, w llm.Window) any {
	b := k.Budget(w)
	if b.Limit == 0 && w != llm.Month {
		return nil
	}
	c := k.Calendar(w)
	label, ends := c.At(a.Clock.Wall())
	used, held := a.Limiter.Quota(k.ID, label)
	v := append(a.money("limit", b.Limit), a.money("used", used)...)
	v = append(v, a.money("held", held)...)
	zone := cmp.Or(c.Zone, time.UTC)
	return append(v, object{{"period", period(label)}, {"timezone", zone.String()},
		{"resetAt", ends.In(zone).Format("2006-01-02T15:04:05Z07:00")}}...)
}

// tightened is old with what k has lowered of limits and of where they refuse; cut is false when it has lowered none.
func tightened(old, k auth.Key) (strict auth.Key, cut bool) {
	strict = old
	for w := range llm.Window(llm.Windows) {
		n, o := k.Budget(w), old.Budget(w)
		_, now := n.Bounds(1000)
		_, was := o.Bounds(1000)
		if now != 0 && (was == 0 || now < was) {
			o.Limit, o.Hard, cut = n.Limit, n.Hard, true
			strict.SetBudget(o)
		}
	}
	return strict, cut
}
