package tokens

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is the CPU time of the calling thread, which other load on the machine cannot stretch much.
func threadTime(t *testing.T) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// S11: the budget means what it says: 2 ms for each 100 kB begun. The test allows slack times that.
func TestS11TimeIsBounded(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c := counter()
	for name, text := range hostile(1 << 20) {
		for _, model := range []string{"gpt-4", "gpt-4o"} {
			e := c.For(model)
			start := threadTime(t)
			c.Text(e, []byte(text))
			spent := threadTime(t) - start
			per100kB := spent / time.Duration(1+len(text)/workSpan)
			t.Logf("%s, %s: %v per 100 kB", name, model, per100kB)
			if per100kB > slack*2*time.Millisecond {
				t.Errorf("%s, %s: %v per 100 kB, meant to be at most 2ms", name, model, per100kB)
			}
		}
	}
}
