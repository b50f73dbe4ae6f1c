//go:build !linux

package main

import (
	"errors"
	"time"
)

func monotonic() (time.Duration, error) { return 0, errors.ErrUnsupported }
