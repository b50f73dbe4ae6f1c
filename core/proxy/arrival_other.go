//go:build !unix

package proxy

import "errors"

const parks = false

func readNow(int, []byte) (int, bool, error) { return 0, false, errors.ErrUnsupported }
