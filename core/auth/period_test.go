package auth

import (
	"testing"
	"time"
)

// month is the calendar month of t in a zone, and when it ends.
func month(t time.Time, zone *time.Location) (label int32, ends time.Time) {
	return Calendar{Zone: zone}.At(t)
}

func TestMonth(t *testing.T) {
	for _, c := range []struct {
		zone, at, ends string
		label          int32
	}{
		{"UTC", "2026-11-05T12:00:00Z", "2026-12-01T00:00:00Z", 202611},
		{"UTC", "2026-12-31T23:59:59Z", "2027-01-01T00:00:00Z", 202612},
		{"UTC", "2027-01-01T00:00:00Z", "2027-02-01T00:00:00Z", 202701},
		{"Asia/Shanghai", "2026-10-31T16:00:00Z", "2026-11-30T16:00:00Z", 202611},
		{"Asia/Shanghai", "2026-10-31T15:59:59Z", "2026-10-31T16:00:00Z", 202610},
		{"America/New_York", "2026-11-01T03:59:59Z", "2026-11-01T04:00:00Z", 202610}, // still summer time
		{"America/New_York", "2026-11-01T04:00:00Z", "2026-12-01T05:00:00Z", 202611}, // ends in winter time
		{"Asia/Kathmandu", "2026-11-30T18:14:59Z", "2026-11-30T18:15:00Z", 202611},
		// Midnight of the first does not exist: clocks go from 00:00 to 01:00.
		{"America/Asuncion", "2017-09-30T12:00:00Z", "2017-10-01T04:00:00Z", 201709},
		{"America/Asuncion", "2017-10-01T04:00:00Z", "2017-11-01T03:00:00Z", 201710},
		// Midnight exists twice: clocks go from 01:00 back to 00:00.
		{"Atlantic/Azores", "1992-09-30T12:00:00Z", "1992-10-01T01:00:00Z", 199209},
		// At 00:01 of the first clocks go back to 23:01 of the month before: the label stays.
		{"America/St_Johns", "2009-11-01T02:29:59Z", "2009-11-01T02:30:00Z", 200910},
		{"America/St_Johns", "2009-11-01T02:30:00Z", "2009-12-01T03:30:00Z", 200911},
		{"America/St_Johns", "2009-11-01T02:31:00Z", "2009-12-01T03:30:00Z", 200911}, // reads 31 October, 23:01
		// A day is left out altogether.
		{"Pacific/Apia", "2011-12-31T12:00:00Z", "2011-12-31T10:00:00Z", 201201},
		{"Pacific/Kiritimati", "2026-11-30T09:59:59Z", "2026-11-30T10:00:00Z", 202611},
	} {
		zone, err := Zone(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		at, _ := time.Parse(time.RFC3339, c.at)
		want, _ := time.Parse(time.RFC3339, c.ends)
		if c.zone == "Pacific/Apia" {
			want = time.Date(2012, 2, 1, 0, 0, 0, 0, zone)
		}
		if label, ends := month(at, zone); label != c.label || !ends.Equal(want) {
			t.Errorf("%s in %s: %d until %s, want %d until %s", c.at, c.zone, label, ends.UTC(), c.label, want)
		}
	}
}

// Whatever the zone does, labels go up one by one and each period ends where the next begins.
func TestMonthIsMonotone(t *testing.T) {
	for _, name := range []string{"UTC", "America/St_Johns", "America/Asuncion", "Atlantic/Azores", "Africa/Cairo",
		"Pacific/Apia", "Asia/Gaza", "America/Havana", "Antarctica/Troll", "Africa/Casablanca", "Europe/Dublin"} {
		zone, err := Zone(name)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Date(1985, 1, 15, 0, 0, 0, 0, time.UTC)
		label, ends := month(at, zone)
		for at.Year() < 2040 {
			at = at.Add(17 * time.Minute * 61)
			l, e := month(at, zone)
			switch {
			case !e.After(at):
				t.Fatalf("%s %s: ended already at %s", name, at, e)
			case at.Before(ends) && (l != label || !e.Equal(ends)):
				t.Fatalf("%s %s: %d until %s before the end of %d at %s", name, at, l, e, label, ends)
			case !at.Before(ends) && l != next(label):
				t.Fatalf("%s %s: %d follows %d", name, at, l, label)
			}
			if !at.Before(ends) {
				before, _ := month(ends.Add(-1), zone)
				first, _ := month(ends, zone)
				if before != label || first != l {
					t.Fatalf("%s: around %s the labels are %d and %d", name, ends, before, first)
				}
			}
			label, ends = l, e
		}
	}
}

func next(label int32) int32 {
	if label%100 == 12 {
		return label + 89
	}
	return label + 1
}

func TestZone(t *testing.T) {
	for _, bad := range []string{"Local", "Mars/Base", "../etc/passwd", "asia/shanghai ", "+08:00"} {
		if _, err := Zone(bad); err == nil {
			t.Errorf("%q is a zone", bad)
		}
	}
	if z, err := Zone(""); err != nil || z != time.UTC {
		t.Errorf("%v %v", z, err)
	}
}

func BenchmarkMonth(b *testing.B) {
	zone, _ := Zone("America/New_York")
	b.ReportAllocs()
	for b.Loop() {
		month(start, zone)
	}
}
