// Package store opens the durable stores that the ledger can stand on, and the windows that gateways share, by URL.
package store

import (
	"context"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/badger"
	"github.com/weir-gateway/weir/store/postgres"
	"github.com/weir-gateway/weir/store/redis"
)

// Open opens the store that a URL names, and makes it when there is none: "badger:///var/lib/weir", or simply the path
// of a folder; "postgres://user:password@host/database". The store's own warnings go to the default logger.
func Open(at string) (ledger.Store, error) {
	if IsDatabase(at) {
		return openPostgres(at, false)
	}
	dir, err := folder(at)
	if err != nil {
		return nil, err
	}
	return openBadger(dir)
}

// OpenExisting is Open for those who only look: a *llm.Error of KindNotFound says that there is no store, and none is made.
func OpenExisting(at string) (ledger.Store, error) {
	if IsDatabase(at) {
		return openPostgres(at, true)
	}
	dir, err := folder(at)
	if err != nil {
		return nil, err
	}
	if err := badger.Exists(dir); err != nil {
		return nil, err
	}
	return openBadger(dir)
}

// IsDatabase tells whether a URL is that of a database on a server, and not a folder's.
func IsDatabase(at string) bool {
	return strings.HasPrefix(at, "postgres://") || strings.HasPrefix(at, "postgresql://")
}

// Examine is what there is to know about the server of a database, without owning it.
func Examine(ctx context.Context, at string, clock llm.Clock) (postgres.Server, error) {
	return postgres.Examine(ctx, at, clock)
}

// folder is the folder that a URL or path names.
func folder(at string) (string, error) {
	scheme, rest, found := strings.Cut(at, ":")
	switch {
	case at == "":
		return "", llm.Invalid("data", "no data folder is named; give a path, or badger:///path")
	case !found || len(scheme) < 2 || strings.ContainsAny(scheme, `/\`): // one letter is a drive
		return filepath.Clean(at), nil
	case scheme != "badger" || !strings.HasPrefix(rest, "//"):
		return "", llm.Invalid("data", "%q is not a store that exists; valid are badger:///absolute/path, a plain path and postgres://user:password@host/database", scheme+":")
	}
	u, err := url.Parse(at)
	if err != nil {
		return "", llm.Invalid("data", "%q is not a URL: %v", at, err)
	}
	if u.Host != "" || !filepath.IsAbs(u.Path) || u.RawQuery != "" || u.Fragment != "" {
		return "", llm.Invalid("data", "%q should be badger:// and an absolute path, as in badger:///var/lib/weir", at)
	}
	return filepath.Clean(u.Path), nil
}

// OpenWindows opens the windows that gateways share on the server that a URL names, redis:// or rediss://. A server that does
// not answer is no error: it is tried until it does.
func OpenWindows(at string, algorithms map[limit.Kind]limit.Windows, gateways int) (Windows, error) {
	return redis.Open(at, redis.Options{Algorithms: algorithms, Gateways: gateways})
}

// WindowsHealth asks the server of shared windows that a URL names about itself.
func WindowsHealth(ctx context.Context, at string, clock func() time.Time) (redis.Health, error) {
	w, err := redis.Open(at, redis.Options{})
	if err != nil {
		return redis.Health{}, err
	}
	defer w.Close()
	return w.Health(ctx, clock)
}

// Windows are shared windows that can be closed.
type Windows interface {
	limit.Shared
	Close()
}

func openBadger(dir string) (ledger.Store, error) {
	s, err := badger.Open(dir, badger.Options{Log: slog.Default()})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func openPostgres(at string, existing bool) (ledger.Store, error) {
	s, err := postgres.Open(at, postgres.Options{Log: slog.Default(), Existing: existing})
	if err != nil {
		return nil, err
	}
	return s, nil
}
