// Package admin is the operator's API on its own listener: objects, limits, money, policies, usage, audit, health,
// metrics.
package admin

import (
	"context"
	"io"
	"log/slog"
	"net/http"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/core/upstream"
)

// Live is the running proxy, as far as the API changes it.
type Live interface {
	SetCatalog(c *upstream.Catalog)
	SetGlobal(l limit.Limits)
	Ready() error
}

// Options configure the API.
type Options struct {
	Token    string // at least 16 characters
	Currency string // "cny"
	Envelope policy.Envelope
	Version  string
}

// Parts are what the API works on.
type Parts struct {
	Clock     llm.Clock
	Random    io.Reader
	Ledger    *ledger.Ledger
	Directory *auth.Directory
	Limiter   *limit.Memory
	Policy    *policy.Host
	Client    *upstream.Client
	Live      Live
	Log       *slog.Logger
	// Shipped gives a module that comes with the binary by name.
	Shipped func(name string) (wasm []byte, ok bool)
}

// Seed is what the configuration file wants to exist. What the store has already is left alone.
type Seed struct {
	Global   limit.Limits
	Models   []upstream.Model
	Channels []upstream.Channel
	Policies []SeedPolicy
}

// SeedPolicy is one module of the configuration: a shipped name or a file's bytes.
type SeedPolicy struct {
	Name    string
	Wasm    []byte // nil: shipped
	Profile string
	Params  []byte
	OnError policy.OnError
	Active  bool
}

// API serves the admin routes. Changes are serialised; each is durable before it is answered.
type API struct{}

// New makes the API; Restore must be called before it is served.
func New(o Options, p Parts) *API { panic("skeleton") }

// Restore fills the directory, the catalog and the policy host from the ledger's documents, and the limiter's balances.
func (a *API) Restore(ctx context.Context, s ledger.State) error { panic("skeleton") }

// Seed creates what the store lacks. With overwrite (weir config apply) the configuration wins.
func (a *API) Seed(ctx context.Context, s Seed, overwrite bool) error { panic("skeleton") }

// Handler is the admin listener's handler.
func (a *API) Handler() http.Handler { panic("skeleton") }
