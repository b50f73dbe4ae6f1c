package auth

import (
	"time"
	_ "time/tzdata" // zones must not depend on files of the machine
)

// Month is the quota period of t in a zone (202611) and when it ends: the first instant at which the zone's calendar
// reaches the next month. The label never goes back, even where clocks are set back over midnight of the first.
func Month(t time.Time, zone *time.Location) (label int32, ends time.Time) {
	y, m, _ := t.In(zone).Date()
	ends = monthStart(y, m+1, zone)
	if !t.Before(ends) {
		m++
		ends = monthStart(y, m+1, zone)
	}
	if m > time.December {
		y, m = y+1, time.January
	}
	return int32(y*100 + int(m)), ends
}

// monthStart is the first instant whose local time is at or after midnight of the first. Midnight may not exist (a
// spring gap), or exist twice, or be followed by the last hour of the month before once more; time.Date
// leaves the choice open, so the offsets in force are walked instead.
func monthStart(y int, m time.Month, zone *time.Location) time.Time {
	midnight := time.Date(y, m, 1, 0, 0, 0, 0, time.UTC).Unix()
	t := time.Unix(midnight-36*3600, 0).In(zone) // no offset reaches 36 h: local time is before midnight
	for {
		_, offset := t.Zone()
		if t.Unix()+int64(offset) >= midnight {
			return t
		}
		start := time.Unix(midnight-int64(offset), 0).In(zone)
		_, next := t.ZoneBounds()
		if next.IsZero() || start.Before(next) {
			return start
		}
		t = next
	}
}
