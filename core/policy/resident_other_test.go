//go:build !linux

package policy

import "github.com/tetratelabs/wazero/experimental"

// resident cannot be asked for here.
func resident(experimental.LinearMemory) uint64 { return 0 }
