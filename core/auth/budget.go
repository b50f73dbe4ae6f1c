package auth

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// Budget is what a key may spend in each period of one window. A key has at most one for each window; that of the month
// is there only where it says more than Key.MonthlyQuota.
type Budget struct {
	Window llm.Window `json:"window"`
	Limit  llm.Micro  `json:"limitMicro,omitempty"` // 0: none; of the month it is Key.MonthlyQuota
	Terms
	Bands
	Floor    int32  `json:"floor,omitempty"`    // label that was in force when terms last changed: it never goes back
	Next     *Terms `json:"next,omitempty"`     // take effect when the current period ends
	NextAtMS int64  `json:"nextAtMs,omitempty"` // that end, fixed when the change was asked for; unix ms
}

// Bands are what happens at which share of a limit, in percent. A policy's quota multiplier moves all of them with the
// limit.
type Bands struct {
	Warn   int `json:"warnPercent,omitempty"`   // an alert is sent; 0: none
	Slow   int `json:"slowPercent,omitempty"`   // from here on the key's QPS and TPM are multiplied by SlowTo; 0: never
	SlowTo int `json:"slowToPercent,omitempty"` // 0: DefaultSlowTo
	Hard   int `json:"hardPercent,omitempty"`   // from here on it refuses; 0: 100
}

// DefaultSlowTo is what a slowed key's rates are multiplied by where nothing is said, in percent.
const DefaultSlowTo = 50

// Bounds are the effective amounts of the bands under a quota multiplier in 1/1000: where the key slows down (0: nowhere)
// and where it is refused.
func (b *Budget) Bounds(permille uint32) (slow, hard llm.Micro) {
	part := func(percent int) llm.Micro { return scaled(scaled(b.Limit, uint32(percent)*10), permille) }
	return part(b.Slow), part(cmp.Or(b.Hard, 100))
}

// scaled is m times a factor in 1/1000, rounded down but not to 0, saturating.
func scaled(m llm.Micro, permille uint32) llm.Micro {
	if m <= 0 || permille == 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(m), uint64(permille))
	if hi >= 1000 {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, 1000)
	return llm.Micro(min(max(q, 1), math.MaxInt64))
}

// Terms say where a window's periods begin.
type Terms struct {
	Anchor int    `json:"anchor,omitempty"` // see Calendar
	Zone   string `json:"zone,omitempty"`   // empty: the key's
}

// Budget is the key's budget of a window, with its limit; the zero budget, with its window, where there is none.
func (k *Key) Budget(w llm.Window) Budget {
	b := Budget{Window: w}
	for i := range k.Budgets {
		if k.Budgets[i].Window == w {
			b = k.Budgets[i]
		}
	}
	if w == llm.Month {
		b.Limit = k.MonthlyQuota
	}
	return b
}

// Budgeted tells whether any window has a limit.
func (k *Key) Budgeted() bool {
	return k.MonthlyQuota != 0 || slices.ContainsFunc(k.Budgets, func(b Budget) bool { return b.Limit != 0 })
}

// SetBudget puts b in the place of the window's present one. The key's slice is not shared with older copies of the key.
func (k *Key) SetBudget(b Budget) {
	if b.Window == llm.Month {
		k.MonthlyQuota, b.Limit = b.Limit, 0
	}
	k.Budgets = slices.DeleteFunc(slices.Clone(k.Budgets), func(o Budget) bool { return o.Window == b.Window })
	if b != (Budget{Window: b.Window}) {
		k.Budgets = append(k.Budgets, b)
	}
}

// Calendar is the window's as it stands now. It loads its zone, which takes some 10 µs; Caller.Period has it loaded.
func (k *Key) Calendar(w llm.Window) Calendar {
	return k.calendar(w, func(name string) *time.Location {
		zone, err := Zone(name)
		if err != nil {
			return time.UTC
		}
		return zone
	})
}

func (k *Key) calendar(w llm.Window, load func(string) *time.Location) Calendar {
	b := k.Budget(w)
	if b.Zone == "" {
		b.Zone = k.Timezone
	}
	return Calendar{Window: w, Anchor: b.Anchor, Zone: load(b.Zone), Floor: b.Floor}
}

// At is the key as it stands at t: changes whose time has come are applied, in the order of their times.
func (k Key) At(t time.Time) Key {
	for {
		due, at := -2, t.UnixMilli()+1
		if k.NextTimezone != "" && k.NextTimezoneAtMS < at {
			due, at = -1, k.NextTimezoneAtMS
		}
		for i := range k.Budgets {
			if b := &k.Budgets[i]; b.Next != nil && b.NextAtMS < at {
				due, at = i, b.NextAtMS
			}
		}
		switch due {
		case -2:
			return k
		case -1:
			k.rezone(at)
		default:
			b := k.Budgets[due]
			b.Floor = k.lastLabel(b.Window, at)
			b.Terms, b.Next, b.NextAtMS = *b.Next, nil, 0
			k.replace(due, b)
		}
	}
}

// rezone gives the key its next zone. The windows that follow it go on from the label they have.
func (k *Key) rezone(at int64) {
	for i := range k.Budgets {
		if b := k.Budgets[i]; b.Zone == "" {
			b.Floor = k.lastLabel(b.Window, at)
			k.replace(i, b)
		}
	}
	k.Timezone, k.NextTimezone, k.NextTimezoneAtMS = k.NextTimezone, "", 0
}

func (k *Key) replace(i int, b Budget) {
	k.Budgets = slices.Clone(k.Budgets)
	k.Budgets[i] = b
}

// lastLabel is the one in force just before a change.
func (k *Key) lastLabel(w llm.Window, at int64) int32 {
	label, _ := k.Calendar(w).At(time.UnixMilli(at - 1))
	return label
}

// nextAtMS is when time alone next changes the key; 0: never.
func (k *Key) nextAtMS() (at int64) {
	sooner := func(is bool, ms int64) {
		if is && (at == 0 || ms < at) {
			at = max(ms, 1)
		}
	}
	sooner(k.NextTimezone != "", k.NextTimezoneAtMS)
	for i := range k.Budgets {
		sooner(k.Budgets[i].Next != nil, k.Budgets[i].NextAtMS)
	}
	return at
}

// Period is the period of t in a window of the key, and when it ends.
func (c *Caller) Period(w llm.Window, t time.Time) (label int32, ends time.Time) {
	for i := range c.calendars {
		if c.calendars[i].Window == w {
			return c.calendars[i].At(t)
		}
	}
	return Calendar{Window: w, Zone: c.Zone}.At(t)
}
