package policy

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// peakFile is where a child that was asked to leaves what it had resident at most.
const peakFile = "WEIR_TEST_CHILD_PEAK"

// notePeak is the child's last act. It reads the memory it has had since it is a program of its own: what wait4 tells its
// parent includes the parent's own, which it shared until then.
func notePeak() {
	if to := os.Getenv(peakFile); to != "" {
		if status, err := os.ReadFile("/proc/self/status"); err == nil {
			_, rest, _ := strings.Cut(string(status), "VmHWM:")
			_ = os.WriteFile(to, []byte(strings.Fields(rest)[0]), 0o600)
		}
	}
}

// peakOf makes o's children note their memory; what a child that ran meanwhile had resident at most is in bytes, image
// and all. ran: there was one.
func peakOf(t *testing.T, o *Options) (peak func() (bytes int, ran bool)) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "peak")
	o.Child = []string{"sh", "-c", `export ` + peakFile + `="$1"; exec "$2" "$3"`, "sh", file, self, ChildArg}
	return func() (int, bool) {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, false
		}
		_ = os.Remove(file) // the next one may be refused before a child
		kb, err := strconv.Atoi(string(text))
		if err != nil {
			t.Fatal(err)
		}
		return kb << 10, true
	}
}
