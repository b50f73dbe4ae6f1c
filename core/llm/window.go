package llm

import (
	"fmt"
	"time"
)

// Window is a calendar span over which a key's spending is limited.
type Window uint8

// The windows, in the order in which a denial reports them: the one that takes longest to pass first.
const (
	Month   Window = iota
	Week           // seven days
	Day            // from one hour of the clock to the same of the next day
	Windows = 3
)

// String is the window's word in the API.
func (w Window) String() string { return [...]string{"month", "week", "day"}[min(w, Day)] }

// WindowOf tells a period's window by the digits of its label: 202611 is a month, 2026334 a week, 20261130 a day.
func WindowOf(label int32) Window {
	switch {
	case label < 1_000_000:
		return Month
	case label < 10_000_000:
		return Week
	}
	return Day
}

// PeriodName is a label for people: a month as 2026-11, a week by its first day and a day as 2026-11-30.
func PeriodName(label int32) string {
	switch WindowOf(label) {
	case Week:
		return time.Date(int(label/1000), 1, int(label%1000), 0, 0, 0, 0, time.UTC).Format(time.DateOnly)
	case Day:
		return fmt.Sprintf("%04d-%02d-%02d", label/10_000, label/100%100, label%100)
	}
	return fmt.Sprintf("%04d-%02d", label/100, label%100)
}
