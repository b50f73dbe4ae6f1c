//go:build darwin || freebsd

package badger

import (
	"errors"

	"golang.org/x/sys/unix"
)

// freeBytes is what a process without privileges may still write to the file system of dir.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	err := unix.Statfs(dir, &st)
	for errors.Is(err, unix.EINTR) {
		err = unix.Statfs(dir, &st)
	}
	return int64(st.Bavail) * int64(st.Bsize), err
}
