//go:build !linux

package proxy

import "syscall"

// boundBacklog leaves it to the system how much waits for a client.
func boundBacklog(syscall.RawConn) {}
