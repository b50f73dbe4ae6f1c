package policy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

func mustAppend(t *testing.T, l *LogFile, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if err := l.Append([]byte(line + "\n")); err != nil {
			t.Fatal(err)
		}
	}
}

func holds(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s holds %q (%v), want %q", filepath.Base(path), got, err, want)
	}
}

// A log never grows beyond its bound: one older file is kept, and no line is lost or cut where one ends.
func TestLogFileIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := OpenLogFile(path, 12)
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, "one", "two")
	holds(t, path, "one\ntwo\n")
	mustAppend(t, l, "three")
	holds(t, path, "three\n")
	holds(t, path+".1", "one\ntwo\n")
	mustAppend(t, l, "four!", "longer than a whole file", "six")
	holds(t, path, "six\n")
	holds(t, path+".1", "longer than a whole file\n")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("six\n{torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err = OpenLogFile(path, 100); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, "seven")
	holds(t, path, "six\n{torn\nseven\n")
}

// What logrotate moves away is no longer written to.
func TestLogFileIsOpenedAgainWhenMoved(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	l, err := OpenLogFile(path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, "one")
	if err := os.Rename(path, filepath.Join(dir, "moved")); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, "two")
	holds(t, filepath.Join(dir, "moved"), "one\n")
	holds(t, path, "two\n")
	if err := os.Rename(path, filepath.Join(dir, "again")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("created\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, "three")
	holds(t, path, "created\nthree\n")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := l.Append([]byte("four\n")); err == nil || !strings.Contains(err.Error(), "there is no folder "+dir) {
		t.Errorf("without its folder: %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, "five")
	holds(t, path, "five\n")
}

func TestCheckLogFile(t *testing.T) {
	dir := t.TempDir()
	for path, says := range map[string]string{
		filepath.Join(dir, "new"):            "",
		"/dev/null":                          "/dev/null is a device; want a regular file",
		filepath.Join(dir, "nowhere", "log"): "there is no folder " + filepath.Join(dir, "nowhere"),
		dir:                                  "is a directory",
	} {
		if err := CheckLogFile(path); (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", path, err, says)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("the check left %v", left)
	}
}

// Lines that cannot be written are counted; the first of them is logged, and the first after it went well again.
func TestDecisionLogCountsWhatIsNotWritten(t *testing.T) {
	var out syncBuffer
	fails := true
	h := newHost(t, Options{Clock: llm.NewSystemClock(), Log: out.logger(), DecisionLog: DecisionLog{Sample: 1, Sink: func([]byte) error {
		if fails {
			return errors.New("disk full")
		}
		return nil
	}}})
	l := h.decisions
	for range 3 {
		l.keep([]byte("x\n"))
	}
	fails = false
	l.keep([]byte("x\n"))
	if written, lost := l.counts(); written != 1 || lost != 3 || out.count("disk full") != 1 {
		t.Errorf("%d written, %d lost", written, lost)
	}
	fails = true
	l.keep([]byte("x\n"))
	if out.count("disk full") != 2 {
		t.Errorf("a new failure is not told")
	}
}

// A sink that blocks for ever keeps Close for its patience and no longer; what is dropped is told and counted.
func TestCloseGivesUpOnABlockedDecisionLog(t *testing.T) {
	var out syncBuffer
	blocked, release := make(chan struct{}, 3), make(chan struct{})
	h := newHost(t, Options{Clock: llm.NewSystemClock(), Log: out.logger(), DecisionLog: DecisionLog{Sample: 1, Sink: func([]byte) error {
		blocked <- struct{}{}
		<-release
		return nil
	}}})
	l := h.decisions
	l.patience = 50 * time.Millisecond
	for range 3 {
		l.queue <- []byte("x\n")
	}
	<-blocked
	ended := make(chan struct{})
	go func() { h.Close(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("Close waits for a sink that blocks")
	}
	if _, lost := l.counts(); lost != 3 || out.count("dropped=3") != 1 {
		t.Errorf("%d lost, told %d times", lost, out.count("they are dropped"))
	}
	close(release)
	<-ended
	<-l.written
}

// Close waits for a sink that is merely slow.
func TestCloseWaitsForTheDecisionLog(t *testing.T) {
	var out syncBuffer
	h := newHost(t, Options{Clock: llm.NewSystemClock(), Log: out.logger(), DecisionLog: DecisionLog{Sample: 1, Sink: func([]byte) error { return nil }}})
	for range 100 {
		h.decisions.queue <- []byte("x\n")
	}
	h.Close()
	if written, lost := h.decisions.counts(); written != 100 || lost != 0 {
		t.Errorf("%d written, %d lost", written, lost)
	}
}
