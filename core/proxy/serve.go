package proxy

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-gateway/weir/core/alert"
	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/core/tokens"
	"github.com/weir-gateway/weir/core/upstream"
)

// Options configure the listener. What is 0 takes the default named beside it.
type Options struct {
	BodyBytes      int   `yaml:"body_bytes"`       // 32 MiB
	BodiesBytes    int64 `yaml:"bodies_bytes"`     // of all requests being read or served, beyond 64 KiB each; 512 MiB
	HeaderBytes    int   `yaml:"header_bytes"`     // 16 KiB
	Connections    int   `yaml:"connections"`      // 10,000; beyond, the one that has been idle longest is closed, or the new one waits
	ReadTimeoutMS  int64 `yaml:"read_timeout_ms"`  // a request's head and body; 60 s
	WriteTimeoutMS int64 `yaml:"write_timeout_ms"` // a client to take 16 KiB of an answer; 30 s
	HeadTimeoutMS  int64 `yaml:"head_timeout_ms"`  // a head, and then its body behind minBodyRate; 8 s
	HeartbeatMS    int64 `yaml:"heartbeat_ms"`     // a stream may be silent for so long before its client gets a sign of life; 10 s

	Decode []string `yaml:"decode"` // of Codings: the Content-Encodings that bodies may have; none
}

func (o Options) withDefaults() Options {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	set(&o.BodyBytes, 32<<20)
	set(&o.HeaderBytes, 16<<10)
	if o.BodiesBytes <= 0 {
		o.BodiesBytes = 512 << 20
	}
	set(&o.Connections, 10_000)
	if o.ReadTimeoutMS <= 0 {
		o.ReadTimeoutMS = 60_000
	}
	if o.WriteTimeoutMS <= 0 {
		o.WriteTimeoutMS = 30_000
	}
	if o.HeadTimeoutMS <= 0 {
		o.HeadTimeoutMS = 8_000
	}
	if o.HeartbeatMS <= 0 {
		o.HeartbeatMS = 10_000
	}
	return o
}

// heartbeat is how long a stream's client may be told nothing. Before it is told anything, an error can still be its status.
func (s *Server) heartbeat() time.Duration {
	return time.Duration(s.o.HeartbeatMS) * time.Millisecond
}

// idleTimeout is how long a kept-alive client connection may be silent between two requests.
const idleTimeout = 2 * time.Minute

// writeBuffer holds the head and most answers, or an event; each stream has one.
const writeBuffer = 2 << 10

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

// Alerts is told how budgets stand after each settlement, and must not block; alert.Sender does.
type Alerts interface{ Spent(alert.Spending) }

// Parts are what the server is built of; all are required but Log and Alerts.
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
	Alerts    Alerts
}

// Server is the client listener.
type Server struct {
	o     Options
	p     Parts
	http  *fasthttp.Server
	conns *conns
	calls sync.Pool
	plans sync.Pool

	watches watches

	decoders chan *decoder
	ids      identifiers
	meter    *meters

	outage outage // of the ledger
	storms storms

	preauth *limit.Preauth // failed keys, by client address
	tenants Tenants        // nil: there are no tenant routes

	snap     atomic.Pointer[Snapshot]
	draining atomic.Bool
	cutting  atomic.Bool // what is still open ends now
	mu       struct {
		sync.Mutex // also serialises changes of snap
		listeners  []*listener
	}
}

// New makes a server that is not ready until it has a catalog and settings.
func New(o Options, p Parts) *Server {
	o = o.withDefaults()
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{o: o, p: p, conns: newConns(o, p.Log), decoders: newDecoders()}
	if err := s.ids.seedFrom(p.Random); err != nil {
		panic("proxy: no randomness for request ids: " + err.Error()) // nothing can be served without it
	}
	s.meter, s.preauth = newMeters(p.Limiter), limit.NewPreauth(p.Clock)
	s.snap.Store(&Snapshot{Settings: Settings{}.withDefaults()})
	s.http = &fasthttp.Server{
		Handler:                      s.handle,
		ErrorHandler:                 s.unreadable,
		ExpectHandler:                s.expect,
		HeaderReceived:               s.bodyLimit,
		Logger:                       quiet{s.p.Log},
		ReadBufferSize:               o.HeaderBytes,
		WriteBufferSize:              writeBuffer,
		MaxRequestBodySize:           o.BodyBytes,
		Concurrency:                  o.Connections + 1, // conns is the limit, and waits instead of refusing
		ReadTimeout:                  time.Duration(o.ReadTimeoutMS) * time.Millisecond,
		IdleTimeout:                  idleTimeout,
		ReduceMemoryUsage:            true, // buffers are taken when a request comes, and the reader's given back before it is served
		LazyRequestTime:              true,
		DisablePreParseMultipartForm: true,
		NoDefaultServerHeader:        true,
		SecureErrorLogMessage:        true,
		CloseOnShutdown:              true,
	}
	return s
}

// quiet turns fasthttp's complaints about connections into debug lines, without what they quote of a request.
type quiet struct{ log *slog.Logger }

// Printf implements fasthttp.Logger.
func (q quiet) Printf(format string, args ...any) {
	for i, a := range args {
		if err, ok := a.(error); ok {
			args[i] = llm.Unquoted(err.Error())
		}
	}
	q.log.Debug("connection", slog.String("what", fmt.Sprintf(format, args...)))
}

// SetCatalog swaps the models and channels; requests in flight keep theirs.
func (s *Server) SetCatalog(c *upstream.Catalog) {
	encodings := make(map[*upstream.Model]tokens.Encoding, len(c.Models()))
	for _, m := range c.Models() {
		encodings[m] = s.p.Counter.For(m.Name)
	}
	s.change(func(n *Snapshot) { n.Catalog, n.encodings = c, encodings })
}

// SetSettings swaps the settings; requests in flight keep theirs.
func (s *Server) SetSettings(v Settings) {
	s.change(func(n *Snapshot) { n.Settings = v.withDefaults() })
}

// SetGlobal swaps the global limits inside the settings.
func (s *Server) SetGlobal(l limit.Limits) { s.change(func(n *Snapshot) { n.Global = l }) }

// Renew tells that policies decide by other rules: limits that they raise hold from the next request.
func (s *Server) Renew() { s.change(func(*Snapshot) {}) }

func (s *Server) change(f func(*Snapshot)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := *s.snap.Load()
	f(&n)
	n.version++
	s.snap.Store(&n)
}

// Snapshot is the one in force.
func (s *Server) Snapshot() *Snapshot { return s.snap.Load() }

// Serve accepts until Shutdown, which may already have been called.
func (s *Server) Serve(ln net.Listener) error {
	l := &listener{Listener: ln, conns: s.conns, done: make(chan struct{})}
	s.mu.Lock()
	s.mu.listeners = append(s.mu.listeners, l)
	s.mu.Unlock()
	if s.draining.Load() {
		return l.Close()
	}
	return s.http.Serve(l)
}

// Shutdown stops accepting, lets open requests end until ctx does, then cuts them: a stream ends with an error event, and
// is charged as if its client had left; what has not begun to be answered gets a 503, and is charged nothing.
func (s *Server) Shutdown(ctx context.Context) error {
	s.draining.Store(true)
	err := s.http.ShutdownWithContext(ctx)
	if err != nil {
		s.cutting.Store(true)
		s.watches.interrupt()
		s.conns.interrupt()
		closed := s.conns.cut()
		s.watches.cut()
		<-closed
	}
	s.watches.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.mu.listeners {
		_ = l.Close() // fasthttp knows only those that it already accepts from
	}
	s.storms.flush(s.p.Log)
	return err
}

// Ready is nil when requests can be served, else the reasons.
func (s *Server) Ready() error {
	switch {
	case s.draining.Load():
		return llm.Errorf(llm.KindUnavailable, "shutting down")
	case s.conns.short.Load():
		return llm.Errorf(llm.KindUnavailable, "no connection can be accepted: the system is short of descriptors or memory (ulimit -n)")
	case s.snap.Load().Catalog == nil:
		return llm.Errorf(llm.KindUnavailable, "no models are loaded yet")
	}
	if err := s.p.Ledger.Healthy(); err != nil {
		return &llm.Error{Kind: llm.KindUnavailable, Message: "the ledger does not accept entries", Err: err}
	}
	return nil
}

// handle serves one request. The call goes back to the pool here, unless the relay has taken it.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	c := s.acquire(ctx)
	defer s.finish(c)
	if err := s.dispatch(c); err != nil {
		s.fail(c, err)
	}
}

// walk is one request, from the key to the answer; doc.go says who owns the hold on each line.
func (s *Server) walk(c *call) error {
	caller, err := s.resolve(c)
	if err != nil {
		return err
	}
	if s.storm(c, caller) {
		return nil
	}
	coding, err := s.bodyHeaders(&c.ctx.Request.Header)
	if err != nil {
		return err
	}
	if coding != "" {
		if err := s.decode(c, coding); err != nil {
			return err
		}
	}
	if err := c.scan(); err != nil {
		return err
	}
	model, err := c.findModel(caller)
	if err != nil {
		return err
	}
	s.measure(c, model)
	price, err := c.agree(model, caller)
	if err != nil {
		return err
	}
	if err := s.decide(c, price); err != nil {
		return err
	}
	res, denial, err := s.p.Limiter.Reserve(context.Background(), s.claimFor(c, price))
	switch {
	case err != nil:
		return unavailable(err)
	case denial != nil:
		return s.deny(c, denial)
	}
	defer res.Release()
	c.outcome.shadowed = len(c.claim.Shadowed)
	if err = s.forward(c, res); err != nil {
		res.Answered(c.statusOf(err))
	}
	return err
}

// forward carries an admitted request to an upstream and answers with what comes back.
func (s *Server) forward(c *call, res limit.Reservation) error {
	c.rates.requests, c.rates.tokens = res.Tightest()
	resp, err := s.send(c, res)
	if err != nil {
		return s.unsent(c, res, err)
	}
	if err := s.acknowledged(c, res.Seq()); err != nil {
		resp.Cancel()
		c.attempts.Refused(resp.Channel) // the client gets nothing of it, so it owes nothing
		return err
	}
	switch {
	case resp.Status >= 400:
		return s.passOn(c, res, resp)
	case resp.Stream && !c.ctx.Request.Header.IsHTTP11():
		resp.Cancel()
		c.attempts.Refused(resp.Channel)
		return wrongVersion("the upstream streams its answer, and streaming needs HTTP/1.1")
	case resp.Stream:
		return s.stream(c, res, resp)
	}
	return s.answer(c, res, resp)
}

// unsent answers a request that no channel has answered. One that was not even tried, because every channel is at a limit,
// full or asleep, is withdrawn: a refusal leaves no trace in any dimension. A client that left has had its turn.
func (s *Server) unsent(c *call, res limit.Reservation, err error) error {
	a := &c.attempts
	if a.tried || a.failure != nil || err == errGone {
		return a.explain(err)
	}
	if a.full {
		res.Answered(fasthttp.StatusTooManyRequests)
		res.Withdraw()
		return s.deny(c, &a.denial)
	}
	res.Answered(c.statusOf(err))
	res.Withdraw()
	return err
}
