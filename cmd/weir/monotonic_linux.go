package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// monotonic is the system's own steady clock, which a supervisor compares with its own.
func monotonic() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, err
	}
	return time.Duration(ts.Nano()), nil
}
