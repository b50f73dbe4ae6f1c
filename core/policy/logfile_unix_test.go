//go:build unix

package policy

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A pipe without a reader takes some lines and then blocks the writer for ever, so it is no log.
func TestAPipeIsNoLogFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	_, opened := OpenLogFile(path, 100)
	for _, err := range []error{CheckLogFile(path), opened} {
		if err == nil || !strings.Contains(err.Error(), path+" is a named pipe; want a regular file") {
			t.Errorf("a named pipe: %v", err)
		}
	}
}
