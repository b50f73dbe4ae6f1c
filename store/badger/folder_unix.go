//go:build unix

package badger

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockDir takes the lock that Badger takes, to look at a folder before Badger does.
func lockDir(dir string) (release func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// syncDir makes the names in a folder stable.
func syncDir(dir string, sync func(*os.File) error) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return sync(f)
}
