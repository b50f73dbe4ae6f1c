package policy

import (
	"bytes"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// syncBuffer is a log that can be read while it is written.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(b)
}

func (s *syncBuffer) count(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.buf.String(), text)
}

func (s *syncBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(s, nil)) }

// memoryKB is the memory of this process by the kernel's names.
func memoryKB(t testing.TB) map[string]int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, name := range []string{"VmRSS", "VmSize"} {
		_, rest, _ := strings.Cut(string(status), name+":")
		if out[name], err = strconv.Atoi(strings.Fields(rest)[0]); err != nil {
			t.Fatal(err)
		}
	}
	return out
}
