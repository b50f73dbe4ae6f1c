//go:build !unix

package badger

import "os"

// lockDir does nothing: where files have no locks of this kind, a file that another process has mapped cannot be cut or
// removed.
func lockDir(string) (release func(), err error) { return func() {}, nil }

// syncDir does nothing: such a folder is not a file that can be synced.
func syncDir(string, func(*os.File) error) error { return nil }
