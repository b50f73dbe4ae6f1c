package auth

import (
	"time"
	_ "time/tzdata" // zones must not depend on files of the machine

	"github.com/weir-gateway/weir/core/llm"
)

// Calendar cuts time into the periods of one window: an anchor in a zone.
type Calendar struct {
	Window llm.Window
	Anchor int            // of a day: its hour; of a week: days after Monday; of a month: days after the first
	Zone   *time.Location // nil: UTC
	Floor  int32          // no label is below it
}

const (
	hourS = 3600
	dayS  = 24 * hourS
	weekS = 7 * dayS
)

// At is the period of t, by its label, and when it ends: the first instant at which the zone's clock reaches the next
// one. The label never goes back, even where clocks are set back over that instant.
func (c Calendar) At(t time.Time) (label int32, ends time.Time) {
	zone := c.Zone
	if zone == nil {
		zone = time.UTC
	}
	_, offset := t.In(zone).Zone()
	for n := c.number(t.Unix() + int64(offset)); ; n++ {
		if label = c.label(n); label >= c.Floor {
			if ends = firstInstant(c.begin(n+1), zone); t.Before(ends) {
				return label, ends
			}
		}
	}
}

// number counts the periods up to a local time, in seconds as if the zone were UTC: days, weeks or months.
func (c Calendar) number(local int64) int64 {
	switch local -= c.shift(); c.Window {
	case llm.Day:
		return floor(local, dayS)
	case llm.Week:
		return floor(local, weekS)
	}
	y, m, _ := time.Unix(local, 0).UTC().Date()
	return int64(y)*12 + int64(m) - 1
}

// begin is the local time at which a period begins.
func (c Calendar) begin(n int64) int64 {
	switch c.Window {
	case llm.Day:
		return n*dayS + c.shift()
	case llm.Week:
		return n*weekS + c.shift()
	}
	return time.Date(int(n/12), time.Month(n%12+1), 1, 0, 0, 0, 0, time.UTC).Unix() + c.shift()
}

// shift is how far after the plain period the anchor lies. Weeks count from 1970, which began on a Thursday.
func (c Calendar) shift() int64 {
	switch c.Window {
	case llm.Day:
		return int64(c.Anchor) * hourS
	case llm.Week:
		return int64(c.Anchor-3) * dayS
	}
	return int64(c.Anchor) * dayS
}

func floor(n, by int64) int64 { return (n - ((n%by)+by)%by) / by }

// label names a period by its first day, or by the month of it; llm.WindowOf reads it.
func (c Calendar) label(n int64) int32 {
	if c.Window == llm.Month {
		return int32(n/12*100 + n%12 + 1)
	}
	first := time.Unix(c.begin(n), 0).UTC()
	if c.Window == llm.Week {
		return int32(first.Year()*1000 + first.YearDay())
	}
	y, m, d := first.Date()
	return int32((y*100+int(m))*100 + d)
}

// firstInstant is when the zone's clock first shows a local time or a later one. That time may not exist (a spring gap),
// or exist twice, or be followed by the hour before it once more; time.Date leaves the choice open, so the offsets in
// force are walked instead.
func firstInstant(local int64, zone *time.Location) time.Time {
	t := time.Unix(local-36*3600, 0).In(zone) // no offset reaches 36 h: the clock shows less
	for {
		_, offset := t.Zone()
		if t.Unix()+int64(offset) >= local {
			return t
		}
		start := time.Unix(local-int64(offset), 0).In(zone)
		_, next := t.ZoneBounds()
		if next.IsZero() || start.Before(next) {
			return start
		}
		t = next
	}
}
