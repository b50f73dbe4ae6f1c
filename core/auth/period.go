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

const dayS = 86_400

// At is the period of t, by its label, and when it ends: the first instant at which the zone's clock reaches the next
// one. The label never goes back, even where clocks are set back over that instant.
func (c Calendar) At(t time.Time) (label int32, ends time.Time) {
	zone := c.Zone
	if zone == nil {
		zone = time.UTC
	}
	_, offset := t.In(zone).Zone()
	first := c.first(t.Unix() + int64(offset))
	for {
		next := c.next(first)
		if label = c.label(first); label >= c.Floor {
			if ends = firstInstant(next, zone); t.Before(ends) {
				return label, ends
			}
		}
		first = next
	}
}

// first is where the period of a local time begins. Local times are seconds as if the zone were UTC.
func (c Calendar) first(local int64) int64 {
	switch c.Window {
	case llm.Day:
		from := int64(c.Anchor) * 3600
		return floorTo(local-from, dayS) + from
	case llm.Week:
		from := int64(c.Anchor-3) * dayS // 1970 began on a Thursday
		return floorTo(local-from, 7*dayS) + from
	}
	y, m, _ := time.Unix(local-int64(c.Anchor)*dayS, 0).UTC().Date()
	return time.Date(y, m, 1+c.Anchor, 0, 0, 0, 0, time.UTC).Unix()
}

func floorTo(n, span int64) int64 { return n - ((n%span)+span)%span }

func (c Calendar) next(first int64) int64 {
	switch c.Window {
	case llm.Day:
		return first + dayS
	case llm.Week:
		return first + 7*dayS
	}
	return time.Unix(first, 0).UTC().AddDate(0, 1, 0).Unix()
}

// label names a period by its first day, or by the month of it; llm.WindowOf reads it.
func (c Calendar) label(first int64) int32 {
	at := time.Unix(first, 0).UTC()
	y, m, d := at.Date()
	switch c.Window {
	case llm.Day:
		return int32((y*100+int(m))*100 + d)
	case llm.Week:
		return int32(y*1000 + at.YearDay())
	}
	return int32(y*100 + int(m))
}

// Month is the calendar month of t in a zone (202611) and when it ends.
func Month(t time.Time, zone *time.Location) (label int32, ends time.Time) {
	return Calendar{Zone: zone}.At(t)
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
