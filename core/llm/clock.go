package llm

import (
	"sync"
	"time"
)

// Clock is the one source of time. Mono never goes back and is what windows and waits are measured on; Wall may
// jump and is used only for calendars and for what people read.
type Clock interface {
	Mono() time.Duration
	Wall() time.Time
}

// SystemClock is the machine's clock; Mono counts from its creation.
type SystemClock struct{ start time.Time }

// NewSystemClock starts a clock whose Mono is 0 now.
func NewSystemClock() *SystemClock { return &SystemClock{start: time.Now()} }

// Mono is the time since the clock was made, unaffected by changes of the wall clock.
func (c *SystemClock) Mono() time.Duration { return time.Since(c.start) }

// Wall is the calendar time.
func (c *SystemClock) Wall() time.Time { return time.Now() }

// FakeClock stands still until told to move; for tests. It is safe for concurrent use.
type FakeClock struct {
	mu struct {
		sync.Mutex
		mono time.Duration
		wall time.Time
	}
}

// NewFakeClock starts at Mono 0 and the given wall time.
func NewFakeClock(wall time.Time) *FakeClock {
	c := new(FakeClock)
	c.mu.wall = wall
	return c
}

// Mono implements Clock.
func (c *FakeClock) Mono() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.mono
}

// Wall implements Clock.
func (c *FakeClock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.wall
}

// Advance moves both clocks forward by d.
func (c *FakeClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.mono += d
	c.mu.wall = c.mu.wall.Add(d)
}

// Jump moves only the wall clock, as an administrator or NTP would.
func (c *FakeClock) Jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.wall = c.mu.wall.Add(d)
}
