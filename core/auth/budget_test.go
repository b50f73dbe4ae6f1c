package auth

import (
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

func instant(t *testing.T, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestPeriods(t *testing.T) {
	for _, x := range []struct {
		window         llm.Window
		anchor         int
		zone, at, ends string
		label          int32
	}{
		{llm.Day, 0, "UTC", "2026-11-30T23:59:59Z", "2026-12-01T00:00:00Z", 20261130},
		{llm.Day, 0, "Asia/Shanghai", "2026-11-30T16:00:00Z", "2026-12-01T16:00:00Z", 20261201},
		{llm.Day, 6, "UTC", "2026-12-01T05:59:59Z", "2026-12-01T06:00:00Z", 20261130},
		{llm.Day, 6, "UTC", "2027-01-01T06:00:00Z", "2027-01-02T06:00:00Z", 20270101},
		{llm.Day, 0, "UTC", "2028-02-29T12:00:00Z", "2028-03-01T00:00:00Z", 20280229},
		// 25 hours, 23 hours, and an anchor in the hour that is left out.
		{llm.Day, 0, "Europe/Berlin", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", 20261025},
		{llm.Day, 0, "Europe/Berlin", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", 20260329},
		{llm.Day, 2, "Europe/Berlin", "2026-03-29T00:59:59Z", "2026-03-29T01:00:00Z", 20260328},
		// The anchor's hour comes twice: 02:30 again is still the new day.
		{llm.Day, 2, "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-26T01:00:00Z", 20261025},
		{llm.Day, 2, "Europe/Berlin", "2026-10-25T01:30:00Z", "2026-10-26T01:00:00Z", 20261025},
		{llm.Week, 0, "UTC", "2026-11-30T00:00:00Z", "2026-12-07T00:00:00Z", 2026334},
		{llm.Week, 0, "UTC", "2026-11-29T23:59:59Z", "2026-11-30T00:00:00Z", 2026327},
		{llm.Week, 6, "UTC", "2026-11-30T00:00:00Z", "2026-12-06T00:00:00Z", 2026333},
		{llm.Week, 3, "UTC", "2027-01-01T00:00:00Z", "2027-01-07T00:00:00Z", 2026365},
		{llm.Week, 0, "UTC", "1969-12-30T00:00:00Z", "1970-01-05T00:00:00Z", 1969363},
		{llm.Month, 14, "UTC", "2026-11-14T23:59:59Z", "2026-11-15T00:00:00Z", 202610},
		{llm.Month, 14, "UTC", "2026-12-31T00:00:00Z", "2027-01-15T00:00:00Z", 202612},
		{llm.Month, 27, "UTC", "2026-02-28T00:00:00Z", "2026-03-28T00:00:00Z", 202602},
	} {
		zone, err := Zone(x.zone)
		if err != nil {
			t.Fatal(err)
		}
		label, ends := Calendar{Window: x.window, Anchor: x.anchor, Zone: zone}.At(instant(t, x.at))
		if label != x.label || !ends.Equal(instant(t, x.ends)) || llm.WindowOf(label) != x.window {
			t.Errorf("%s with %d in %s at %s: %d until %s, expected %d", x.window, x.anchor, x.zone, x.at, label, ends.UTC(), x.label)
		}
	}
}

// Whatever the zone does, labels go up, each period ends where the next begins, and none is had twice.
func TestPeriodsAreMonotone(t *testing.T) {
	for _, name := range []string{"UTC", "America/St_Johns", "Africa/Cairo", "Pacific/Apia", "America/Havana", "Antarctica/Troll"} {
		zone, err := Zone(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []Calendar{{Window: llm.Day}, {Window: llm.Day, Anchor: 1}, {Window: llm.Day, Anchor: 23}, {Window: llm.Week, Anchor: 5}, {Window: llm.Month, Anchor: 27}} {
			c.Zone = zone
			at := time.Date(2005, 1, 15, 0, 0, 0, 0, time.UTC)
			label, ends := c.At(at)
			for at.Year() < 2013 {
				at = at.Add(31 * time.Minute)
				if at.Before(ends) {
					if l, e := c.At(at); l != label || !e.Equal(ends) {
						t.Fatalf("%s %+v: %d until %s at %s, within %d until %s", name, c, l, e, at, label, ends)
					}
					continue
				}
				first, e := c.At(ends)
				if l, _ := c.At(at); first <= label || l != first || !e.After(ends) {
					t.Fatalf("%s %+v: %d at %s and %d at %s, after %d", name, c, first, ends, l, at, label)
				}
				label, ends = first, e
			}
		}
	}
}

// New terms begin when the present period ends, and no label comes back, be the new zone 26 hours behind.
func TestM12TermsChangeWhenThePeriodEnds(t *testing.T) {
	f := newFixture(t)
	k, token := f.mint(t, 3, 2)
	k.Timezone = "Pacific/Kiritimati"
	k.Budgets = []Budget{{Window: llm.Day, Limit: 5}, {Window: llm.Week, Limit: 9, Terms: Terms{Zone: "UTC"}}}
	end := instant(t, "2026-11-30T10:00:00Z") // of November in Kiritimati
	k.NextTimezone, k.NextTimezoneAtMS = "Etc/GMT+12", end.UnixMilli()
	k.Budgets[1].Next, k.Budgets[1].NextAtMS = &Terms{Anchor: 3, Zone: "UTC"}, instant(t, "2026-12-07T00:00:00Z").UnixMilli()
	f.clock.Jump(end.Add(-time.Hour).Sub(f.clock.Wall()))
	f.SetKey(k)
	seen := map[llm.Window]int32{}
	for range 24 * 14 {
		c, err := f.Resolve(token)
		if err != nil {
			t.Fatal(err)
		}
		now := f.clock.Wall()
		for _, w := range []llm.Window{llm.Day, llm.Week} {
			label, ends := c.Period(w, now)
			if label < seen[w] || !now.Before(ends) {
				t.Fatalf("%s: %s %d until %s, after %d", now, w, label, ends, seen[w])
			}
			seen[w] = label
		}
		if now.Equal(end) && seen[llm.Day] != 20261130 {
			t.Errorf("the new zone goes on from %d", seen[llm.Day])
		}
		f.clock.Advance(time.Hour)
	}
	got, _ := f.Key(3)
	if got.NextTimezone != "" || got.Budgets[1].Next != nil || got.Budgets[1].Anchor != 3 || got.Timezone != "Etc/GMT+12" {
		t.Errorf("%+v", got)
	}
	if seen[llm.Week] != 2026344 {
		t.Errorf("the last week is %d, expected the one of Thursday, December 10th", seen[llm.Week])
	}
}

// The period in which terms change is not cut short. A later start of the month, or of the day, makes it longer, by less
// than a window, and on one limit; any other leaves a shorter one behind it, with a limit of its own.
func TestPeriodsWhereTermsChange(t *testing.T) {
	type span struct {
		label int32
		ends  string
	}
	for _, x := range []struct {
		name     string
		window   llm.Window
		was, is  Terms
		rezone   string
		at       string // the change takes effect
		before   span
		atOnce   span
		followed span
	}{
		{"month from the 1st to the 15th", llm.Month, Terms{}, Terms{Anchor: 14}, "", "2026-12-01T00:00:00Z",
			span{202611, "2026-12-01T00:00:00Z"}, span{202611, "2026-12-15T00:00:00Z"}, span{202612, "2027-01-15T00:00:00Z"}},
		{"month from the 15th to the 1st", llm.Month, Terms{Anchor: 14}, Terms{}, "", "2026-12-15T00:00:00Z",
			span{202611, "2026-12-15T00:00:00Z"}, span{202612, "2027-01-01T00:00:00Z"}, span{202701, "2027-02-01T00:00:00Z"}},
		{"week from Monday to Thursday", llm.Week, Terms{}, Terms{Anchor: 3}, "", "2026-11-30T00:00:00Z",
			span{2026327, "2026-11-30T00:00:00Z"}, span{2026330, "2026-12-03T00:00:00Z"}, span{2026337, "2026-12-10T00:00:00Z"}},
		{"day from 0 to 6 hours", llm.Day, Terms{}, Terms{Anchor: 6}, "", "2026-12-01T00:00:00Z",
			span{20261130, "2026-12-01T00:00:00Z"}, span{20261130, "2026-12-01T06:00:00Z"}, span{20261201, "2026-12-02T06:00:00Z"}},
		{"day from 6 to 0 hours", llm.Day, Terms{Anchor: 6}, Terms{}, "", "2026-12-01T06:00:00Z",
			span{20261130, "2026-12-01T06:00:00Z"}, span{20261201, "2026-12-02T00:00:00Z"}, span{20261202, "2026-12-03T00:00:00Z"}},
		{"the key's zone, a day", llm.Day, Terms{}, Terms{}, "America/New_York", "2026-12-01T00:00:00Z",
			span{20261130, "2026-12-01T00:00:00Z"}, span{20261130, "2026-12-01T05:00:00Z"}, span{20261201, "2026-12-02T05:00:00Z"}},
	} {
		at := instant(t, x.at)
		k := Key{Budgets: []Budget{{Window: x.window, Limit: 5, Terms: x.was, Next: &x.is, NextAtMS: at.UnixMilli()}}}
		if x.rezone != "" {
			k.Budgets[0].Next, k.NextTimezone, k.NextTimezoneAtMS = nil, x.rezone, at.UnixMilli()
		}
		for i, want := range []span{x.before, x.atOnce, x.followed} {
			now := at
			switch i {
			case 0:
				now = at.Add(-time.Second)
			case 2:
				now = instant(t, x.atOnce.ends)
			}
			then := k.At(now)
			label, ends := then.Calendar(x.window).At(now)
			if label != want.label || !ends.Equal(instant(t, want.ends)) {
				t.Errorf("%s, at %v: %d until %v, want %+v", x.name, now, label, ends.UTC(), want)
			}
		}
	}
}

func TestBounds(t *testing.T) {
	for _, x := range []struct {
		limit      llm.Micro
		bands      Bands
		permille   uint32
		slow, hard llm.Micro
	}{
		{1000, Bands{}, 1000, 0, 1000},
		{1000, Bands{Slow: 90, Hard: 110}, 1000, 900, 1100},
		{1000, Bands{Slow: 90, Hard: 110}, 500, 450, 550},
		{0, Bands{Slow: 90}, 1000, 0, 0},
		{1, Bands{Slow: 1}, 1, 1, 1},
		{1<<63 - 1, Bands{Slow: 99, Hard: 1000}, 1 << 31, 1<<63 - 1, 1<<63 - 1},
	} {
		b := Budget{Limit: x.limit, Bands: x.bands}
		if slow, hard := b.Bounds(x.permille); slow != x.slow || hard != x.hard {
			t.Errorf("%+v: %d and %d", x, slow, hard)
		}
	}
}

func TestSetBudget(t *testing.T) {
	var k Key
	k.SetBudget(Budget{Window: llm.Month, Limit: 7})
	if k.MonthlyQuota != 7 || k.Budgets != nil || !k.Budgeted() {
		t.Errorf("%+v", k)
	}
	k.SetBudget(Budget{Window: llm.Day, Limit: 3})
	old := k
	k.SetBudget(Budget{Window: llm.Day, Limit: 4})
	k.SetBudget(Budget{Window: llm.Month, Limit: 8, Terms: Terms{Anchor: 14}})
	if old.Budget(llm.Day).Limit != 3 || k.Budget(llm.Day).Limit != 4 || k.Budget(llm.Month).Limit != 8 || k.Budget(llm.Month).Anchor != 14 {
		t.Errorf("%+v %+v", old, k)
	}
	k.SetBudget(Budget{Window: llm.Day})
	if k.SetBudget(Budget{Window: llm.Month}); k.Budgeted() || len(k.Budgets) != 0 {
		t.Errorf("%+v", k)
	}
}
