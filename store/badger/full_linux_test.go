package badger_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A disk that fills up under a running ledger kills nothing: reserves are refused, an ending waits for room, Close
// and Open say what is missing, and with room again all goes on. It needs the right to mount; the tests with an
// injected amount of free space prove the same parts everywhere.
func TestDiskFull(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=100m"); err != nil {
		t.Logf("a small disk cannot be mounted here: %v", err)
		return
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+filepath.Join(disk, "data"), childWork+"=full")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "lived\n") {
		t.Fatalf("a process whose disk filled up: %v\n%.2000s", err, out)
	}
	_, state := reopen(t, filepath.Join(disk, "data"))
	if state.Recovered != 0 || state.Balances[1].Available() != 1000-30-30 {
		t.Errorf("recovered %d, available %d; want 0 and 940", state.Recovered, state.Balances[1].Available())
	}
}
