package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	for _, at := range []string{dir, "badger://" + dir} {
		s, err := store.Open(at)
		if err != nil {
			t.Fatalf("Open(%q): %v", at, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	for at, says := range map[string]string{
		"":                                "no data folder",
		"redis://localhost:6379":          "badger:///absolute/path",
		"badger://relative/path":          "absolute path",
		"badger:///x?a=b":                 "absolute path",
		"badger://%zz":                    "not a URL",
		"badger:/x":                       "badger:///absolute/path",
		"redis:6379":                      "badger:///absolute/path",
		"pg://me:pw@db/weir":              `"pg:" is not a store`,
		"postgres://me:p/w@db/x":          "percent-encoded",
		"postgresql://me:pw@db":           "names none",
		"postgres://me@db/x?sslmode=some": "sslmode is invalid",
		"store.go":                        "is a file",
		"store.go/x":                      "not a directory",
	} {
		for name, open := range map[string]func(string) (ledger.Store, error){"Open": store.Open, "OpenExisting": store.OpenExisting} {
			if _, err := open(at); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s(%q) = %v; want one line with %q", name, at, err, says)
			}
		}
	}
}

// A mistyped folder is neither made nor taken for an empty one.
func TestOpenExisting(t *testing.T) {
	dir := t.TempDir()
	typo := filepath.Join(dir, "typo")
	for _, at := range []string{typo, "badger://" + typo, dir} {
		_, err := store.OpenExisting(at)
		var e *llm.Error
		if !errors.As(err, &e) || e.Kind != llm.KindNotFound || !strings.Contains(err.Error(), "no data folder at "+strings.TrimPrefix(at, "badger://")) {
			t.Errorf("OpenExisting(%q) = %v", at, err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("it made %v", left)
	}
	s, err := store.Open(typo)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = store.OpenExisting(typo); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A folder whose name has a colon is named with its path.
func TestColon(t *testing.T) {
	t.Chdir(t.TempDir())
	s, err := store.Open("./a:b")
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
}
