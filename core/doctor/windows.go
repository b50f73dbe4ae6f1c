package doctor

import (
	"context"
	"fmt"
	"time"
)

// Windows is what the server of shared windows says of itself.
type Windows struct {
	Version   string
	RoundTrip time.Duration
	Ahead     time.Duration // its clock, compared with ours
	Eviction  string        // what it does with keys when memory is short
	Cluster   bool
}

const (
	farAway   = 2 * time.Millisecond // a round trip that makes half of the default deadline a matter of luck
	clockFar  = time.Minute
	neverGone = "noeviction"
)

// checkWindows looks at the server of shared windows.
func checkWindows(ctx context.Context, url string, timeout time.Duration, ask func(context.Context, string) (Windows, error)) Check {
	w, err := ask(ctx, url)
	if err != nil {
		return Check{"windows", Fail, err.Error(), "start the server, or mend limits.shared.url; until it answers, each gateway decides alone"}
	}
	said := fmt.Sprintf("version %s, %s away", w.Version, w.RoundTrip.Round(10*time.Microsecond))
	if w.Cluster {
		said += ", a cluster"
	}
	switch {
	case w.Eviction != neverGone:
		return Check{"windows", Warn, said + ": maxmemory-policy is " + w.Eviction + ", so windows may be forgotten when memory is short", "set maxmemory-policy to " + neverGone}
	case w.RoundTrip > min(timeout/2, farAway):
		return Check{"windows", Warn, said + fmt.Sprintf(": limits.shared.timeout_ms is %d, so answers will be late", timeout.Milliseconds()), "bring the server nearer, or raise timeout_ms"}
	case w.Ahead.Abs() > clockFar:
		return Check{"windows", Warn, said + fmt.Sprintf(": its clock is %s from ours; windows go by its own", w.Ahead.Round(time.Second)), "set the clocks (NTP)"}
	}
	return Check{Name: "windows", Detail: said}
}
