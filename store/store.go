// Package store opens the durable stores that the ledger can stand on, by URL.
package store

import (
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/badger"
)

// Open opens the store that a URL names: "badger:///var/lib/weir", or simply the path of a folder. The store's own
// warnings go to the default logger.
func Open(at string) (ledger.Store, error) {
	scheme, _, found := strings.Cut(at, "://")
	switch {
	case at == "":
		return nil, llm.Invalid("data", "no data folder is named; give a path, or badger:///path")
	case !found:
		return openBadger(at)
	case scheme != "badger":
		return nil, llm.Invalid("data", "%q is not a store that exists; valid are badger:///absolute/path and a plain path", scheme+"://")
	}
	u, err := url.Parse(at)
	if err != nil {
		return nil, llm.Invalid("data", "%q is not a URL: %v", at, err)
	}
	if u.Host != "" || !filepath.IsAbs(u.Path) || u.RawQuery != "" || u.Fragment != "" {
		return nil, llm.Invalid("data", "%q should be badger:// and an absolute path, as in badger:///var/lib/weir", at)
	}
	return openBadger(u.Path)
}

func openBadger(dir string) (ledger.Store, error) {
	s, err := badger.Open(filepath.Clean(dir), badger.Options{Log: slog.Default()})
	if err != nil {
		return nil, err
	}
	return s, nil
}
