//go:build !unix

package upstream

const canReceive = false

func receive(uintptr, []byte) (int, error) { return 0, nil }

func again(error) bool { return false }

// quiet cannot look without waiting here; a dead connection shows at its first use instead.
func quiet(uintptr) bool { return true }
