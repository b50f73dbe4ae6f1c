package store_test

import (
	"strings"
	"testing"

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
		"":                       "no data folder",
		"redis://localhost:6379": "badger:///absolute/path",
		"badger://relative/path": "absolute path",
		"badger:///x?a=b":        "absolute path",
		"badger://%zz":           "not a URL",
	} {
		if _, err := store.Open(at); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Open(%q) = %v; want %q in it", at, err, says)
		}
	}
}
