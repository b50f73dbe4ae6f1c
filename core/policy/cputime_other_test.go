//go:build !linux

package policy

import "time"

// spent is the time that f takes.
func spent(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

// childrenTime cannot be asked for here.
func childrenTime() time.Duration { return 0 }
