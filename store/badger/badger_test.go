package badger_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/badger"
	"github.com/weir-gateway/weir/store/storetest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		child(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

func open(t testing.TB, dir string) *badger.Store {
	t.Helper()
	s, err := badger.Open(dir, badger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestBadger(t *testing.T) {
	storetest.Run(t, func(t testing.TB) ledger.Store { return open(t, t.TempDir()) })
}

func TestReopen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "on", "the", "way")
	s := open(t, dir)
	big := strings.Repeat("x", 1<<20)
	if err := s.Apply([]ledger.Write{{Key: []byte("a"), Value: []byte("1")}, {Key: []byte("b"), Value: []byte(big)}}, false); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	defer s.Close()
	for k, want := range map[string]string{"a": "1", "b": big} {
		if v, ok, err := s.Get([]byte(k)); string(v) != want || !ok || err != nil {
			t.Errorf("%s after reopening: %d bytes, %v, %v", k, len(v), ok, err)
		}
	}
}

func TestOneOwner(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	defer s.Close()
	_, err := badger.Open(dir, badger.Options{})
	var e *llm.Error
	if !errors.As(err, &e) || e.Code != "store_locked" || !strings.Contains(err.Error(), dir) ||
		!strings.Contains(err.Error(), fmt.Sprintf("in use by another process (pid %d)", os.Getpid())) {
		t.Fatalf("opening twice: %v", err)
	}
}

func TestFolderIsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := badger.Open(file, badger.Options{}); err == nil || !strings.Contains(err.Error(), "is a file") {
		t.Fatalf("opening a file: %v", err)
	}
}

func TestBatchTooLarge(t *testing.T) {
	s := open(t, t.TempDir())
	defer s.Close()
	var b []ledger.Write
	for i := range 100 {
		b = append(b, ledger.Write{Key: []byte{'k', byte(i)}, Value: make([]byte, 40<<10)})
	}
	err := s.Apply(b, false)
	var e *llm.Error
	if !errors.As(err, &e) || e.Kind != llm.KindTooLarge {
		t.Fatalf("4 MB of small values: %v", err)
	}
	if _, ok, _ := s.Get(b[0].Key); ok {
		t.Fatal("a refused batch left something")
	}
}
