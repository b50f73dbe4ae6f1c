// Package proxy is the client listener: the walk of one request, the stream relay, and the one place where errors
// become HTTP.
package proxy

import (
	"context"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/core/tokens"
	"github.com/weir-gateway/weir/core/upstream"
)

// Options configure the listener.
type Options struct {
	BodyBytes      int   `yaml:"body_bytes"`
	HeaderBytes    int   `yaml:"header_bytes"`
	Connections    int   `yaml:"connections"`
	ReadTimeoutMS  int64 `yaml:"read_timeout_ms"`  // a request's head and body
	WriteTimeoutMS int64 `yaml:"write_timeout_ms"` // one flush
}

// Ledger is what the walk needs of the ledger: to wait for acknowledgements.
type Ledger interface {
	Wait(ctx context.Context, seq uint64, timeout time.Duration) error
	Healthy() error
}

// Money is what the walk and GET /v1/key read of a caller's money.
type Money interface {
	Balance(user uint64) (available, held llm.Micro)
	Quota(key uint64, label int32) (used, held llm.Micro)
}

// Decider decides which limits apply; the policy host does.
type Decider interface {
	Decide(f *policy.Facts, d *policy.Decision)
}

// Parts are what the server is built of; all are required but Log.
type Parts struct {
	Clock     llm.Clock
	Random    io.Reader
	Directory *auth.Directory
	Limiter   limit.Limiter
	Money     Money
	Ledger    Ledger
	Counter   *tokens.Counter
	Policy    Decider
	Client    *upstream.Client
	Log       *slog.Logger
}

// Server is the client listener.
type Server struct{}

// New makes a server that is not ready until it has a catalog and settings.
func New(o Options, p Parts) *Server { panic("skeleton") }

// SetCatalog and SetSettings swap one part of the snapshot; requests in flight keep theirs.
func (s *Server) SetCatalog(c *upstream.Catalog) { panic("skeleton") }
func (s *Server) SetSettings(v Settings)         { panic("skeleton") }

// SetGlobal swaps the global limits inside the settings.
func (s *Server) SetGlobal(l limit.Limits) { panic("skeleton") }

// Snapshot is the one in force.
func (s *Server) Snapshot() *Snapshot { panic("skeleton") }

// Serve accepts until Shutdown.
func (s *Server) Serve(ln net.Listener) error { panic("skeleton") }

// Shutdown stops accepting, lets open requests end until ctx does, then cuts them.
func (s *Server) Shutdown(ctx context.Context) error { panic("skeleton") }

// Ready is nil when requests can be served, else the reasons.
func (s *Server) Ready() error { panic("skeleton") }
