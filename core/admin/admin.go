package admin

import (
	"context"
	"crypto/sha256"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

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
	Renew() // what policies decide has changed
	Ready() error
}

// Options configure the API.
type Options struct {
	Token     string           // at least 16 characters; empty refuses everybody
	Currency  string           // "cny"
	Envelopes policy.Envelopes // bound everybody's modules
	Version   string
	// Tiers are the configured tiers: keys may name only these, and usage-window shows their limits where a key has
	// none of its own. Nil: any name is accepted.
	Tiers map[string]limit.Limits
	// TierNames are the tiers in the policy host's order, and Labels what its attributes 8-15 are taken from: dry runs
	// read and make facts with them.
	TierNames []string
	Labels    []Label
}

// Label says where a label of the facts comes from: a label of the key or of the model, or a header.
type Label struct{ Name, Source, Field string }

// Parts are what the API works on.
type Parts struct {
	Clock     llm.Clock
	Random    io.Reader
	Ledger    *ledger.Ledger
	Directory *auth.Directory
	Limiter   *limit.Memory
	Policy    *policy.Host
	Client    *upstream.Client // nil: channels are listed without their health
	Live      Live
	Log       *slog.Logger
	// Shipped gives a module that comes with the binary by name.
	Shipped func(name string) (wasm []byte, ok bool)
	// Apply reads the configuration file again and lets it win over what the API changed; nil: there is no file.
	Apply func(context.Context) error
	// Metrics writes what GET /metrics answers, in Prometheus' text format.
	Metrics func(io.Writer)
}

// API serves the admin routes. Changes are serialised; each is durable before it is answered.
type API struct {
	Parts
	o      Options
	token  [sha256.Size]byte
	suffix string        // "Cny": the end of money fields
	turn   chan struct{} // one slot: who holds it may change things

	// Views for readers; replaced by who holds the turn.
	goods     atomic.Pointer[goods]
	global    atomic.Pointer[limit.Limits]
	left      atomic.Pointer[[]string] // by the last Seed: what only an earlier configuration named
	rules     atomic.Pointer[rules]
	envelopes atomic.Pointer[policy.Envelopes] // for the next Seed
	enforced  atomic.Pointer[policy.Envelopes] // what the policy host has
	tiers     atomic.Pointer[map[string]limit.Limits]

	// Touched only with the turn.
	seeded map[string]string // object -> hash of what Seed wrote

	rolledBack rollbacks
	pace       pace
	started    sync.Once
	ending     sync.Once
	closing    chan struct{}  // closed by Close
	running    sync.WaitGroup // watch
}

// New makes the API; Restore must be called before it is served.
func New(o Options, p Parts) *API {
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	if o.Currency == "" {
		o.Currency = "cny"
	}
	a := &API{Parts: p, o: o, token: sha256.Sum256([]byte(o.Token)), turn: make(chan struct{}, 1), seeded: map[string]string{}, closing: make(chan struct{})}
	a.suffix = suffixOf(o.Currency)
	a.goods.Store(new(goods))
	a.global.Store(new(limit.Limits))
	a.left.Store(&[]string{})
	a.rules.Store(new(rules))
	a.enforced.Store(new(policy.Envelopes))
	a.SetEnvelopes(o.Envelopes)
	a.SetTiers(o.Tiers)
	return a
}

// SetEnvelopes bounds policies anew, from the next Seed on, which fails when they name an unknown tier.
func (a *API) SetEnvelopes(e policy.Envelopes) { a.envelopes.Store(&e) }

// SetTiers changes the limits that usage-window shows for keys without their own; nil: any tier name is accepted.
func (a *API) SetTiers(t map[string]limit.Limits) { a.tiers.Store(&t) }

// Handler is the admin listener's handler.
func (a *API) Handler() http.Handler {
	mux := http.NewServeMux()
	routes := a.routes()
	for _, r := range routes {
		mux.Handle(r.method+" "+r.path, a.serve(r))
	}
	lost := a.lost(routes)
	mux.Handle("/", lost)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tidy(r.URL.Path) {
			mux.ServeHTTP(w, r)
			return
		}
		lost.ServeHTTP(w, r) // the mux would redirect to another spelling
	})
}
