package llm

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
