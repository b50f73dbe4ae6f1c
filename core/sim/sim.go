package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/valyala/fasthttp"

	"github.com/weir-gateway/weir/core/llm"
)

// maxBody is the largest request, in bytes.
const maxBody = 256 << 20

// Options configure a simulation. The zero value is usable.
type Options struct {
	Default Behaviour // of every request, where it asks for nothing else
	Models  []string  // what the models route lists; empty: a few well-known names. Any name is answered.
	// Credential, when set, must come as the bearer token or x-api-key; otherwise 401.
	Credential string
	// Observe, when set, is called with every request on a model route before it is answered, concurrently; the
	// arguments are valid during the call only.
	Observe func(path string, header *fasthttp.RequestHeader, body []byte)
}

// Sim is a simulated upstream. Safe for concurrent use.
type Sim struct {
	options Options
	clock   llm.Clock
	words   []string
	server  *fasthttp.Server
	closing chan struct{}
	ids     atomic.Uint64
	count   counters
	mu      struct {
		sync.RWMutex
		conns     map[net.Conn]struct{}
		listeners []net.Listener
		closed    bool
	}
}

// New makes a simulation; nothing runs until Serve. The clock is for timestamps: waits are in real time.
func New(o Options, clock llm.Clock) *Sim {
	if len(o.Models) == 0 {
		o.Models = []string{"gpt-4o", "gpt-4o-mini", "gpt-4.1", "text-embedding-3-small", "claude-sonnet-4-5", "claude-haiku-4-5"}
	}
	s := &Sim{options: o, clock: clock, words: split(fixedText), closing: make(chan struct{})}
	s.mu.conns = map[net.Conn]struct{}{}
	s.server = &fasthttp.Server{
		Handler:            s.serve,
		ConnState:          s.track,
		MaxRequestBodySize: maxBody,
		ReadBufferSize:     32 << 10,
		Logger:             log.New(io.Discard, "", 0),
		Concurrency:        64 << 10,
		NoDefaultDate:      true,
		Name:               "sim",
	}
	return s
}

// Serve answers on ln until Shutdown, which may already have been called; its error is the listener's.
func (s *Sim) Serve(ln net.Listener) error {
	s.mu.Lock()
	closed := s.mu.closed
	s.mu.listeners = append(s.mu.listeners, ln)
	s.mu.Unlock()
	if closed {
		return ln.Close()
	}
	return s.server.Serve(ln)
}

// Shutdown stops listening, cuts every connection whatever it is doing, and waits for the requests to end, or for ctx.
// It can be called once.
func (s *Sim) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.mu.closed = true
	s.mu.Unlock()
	close(s.closing)
	s.CutConnections()
	err := s.server.ShutdownWithContext(ctx)
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, ln := range s.mu.listeners {
		_ = ln.Close() // fasthttp knows only those that it already accepts from
	}
	return err
}

// CutConnections closes every open connection, idle or not, as a provider's restart does.
func (s *Sim) CutConnections() {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for c := range s.mu.conns {
		_ = c.Close() // it may be closed already
	}
}

func (s *Sim) track(c net.Conn, state fasthttp.ConnState) {
	switch state {
	case fasthttp.StateNew:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.conns[c] = struct{}{}
		if s.mu.closed {
			_ = c.Close()
		}
	case fasthttp.StateClosed, fasthttp.StateHijacked:
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.mu.conns, c)
	}
}

// behaviour finds out what applies to a request.
func (s *Sim) behaviour(a *ask, header string) (Behaviour, error) {
	_, suffix, _ := strings.Cut(a.named, "+")
	b, err := ParseBehaviour(s.options.Default, suffix)
	if err != nil {
		return b, err
	}
	return ParseBehaviour(b, header)
}

// serve routes one request.
func (s *Sim) serve(ctx *fasthttp.RequestCtx) {
	path := strings.TrimPrefix(string(ctx.Path()), "/v1")
	if path == "/sim/stats" {
		s.serveStats(ctx)
		return
	}
	s.count.requests.Add(1)
	id := appendID(nil, s.ids.Add(1))
	dialect := dialectOf(ctx, path)
	ctx.Response.Header.Set(map[llm.Dialect]string{llm.OpenAI: "X-Request-Id", llm.Anthropic: "Request-Id"}[dialect], "req_"+string(id))
	ctx.SetContentType("application/json")
	var f *failure
	switch {
	case !s.authorized(ctx):
		f = &failure{status: 401, message: "the credential is not the one this simulation expects", code: "invalid_api_key"}
	case path == "/models" || strings.HasPrefix(path, "/models/"):
		f = s.serveModels(ctx, dialect, strings.Trim(strings.TrimPrefix(path, "/models"), "/"))
	case endpoints[path] == 0:
		f = &failure{status: 404, message: "no such route: " + string(ctx.Method()) + " " + string(ctx.Path())}
	case !ctx.IsPost():
		f = &failure{status: 405, message: "expected POST"}
	default:
		f = s.answer(ctx, path, id)
	}
	if f != nil {
		s.fail(ctx, dialect, f, id)
	}
}

// endpoints are the model routes.
var endpoints = map[string]llm.Endpoint{
	"/chat/completions": llm.Chat, "/completions": llm.Completions, "/embeddings": llm.Embeddings,
	"/responses": llm.Responses, "/messages": llm.Messages, "/messages/count_tokens": llm.CountTokens,
}

func dialectOf(ctx *fasthttp.RequestCtx, path string) llm.Dialect {
	if strings.HasPrefix(path, "/messages") || len(ctx.Request.Header.Peek("anthropic-version")) > 0 {
		return llm.Anthropic
	}
	return llm.OpenAI
}

func (s *Sim) authorized(ctx *fasthttp.RequestCtx) bool {
	want := s.options.Credential
	return want == "" || string(ctx.Request.Header.Peek("Authorization")) == "Bearer "+want ||
		string(ctx.Request.Header.Peek("x-api-key")) == want
}

// fail writes an error in the dialect.
func (s *Sim) fail(ctx *fasthttp.RequestCtx, d llm.Dialect, f *failure, id []byte) {
	s.count.failed.Add(1)
	ctx.SetStatusCode(f.status)
	if f.retryAfter > 0 {
		ctx.Response.Header.Set("Retry-After", strconv.Itoa(f.retryAfter))
	}
	if d == llm.Anthropic {
		ctx.SetBody(anthropicError(f, id))
		return
	}
	ctx.SetBody(openAIError(f))
}

// answer does one request on a model route.
func (s *Sim) answer(ctx *fasthttp.RequestCtx, path string, id []byte) *failure {
	body := ctx.PostBody()
	if s.options.Observe != nil {
		s.options.Observe(string(ctx.Path()), &ctx.Request.Header, body)
	}
	a, f := parseAsk(endpoints[path], body)
	if f != nil {
		return f
	}
	b, err := s.behaviour(a, string(ctx.Request.Header.Peek("x-sim")))
	if err != nil {
		return &failure{status: 400, param: "model", code: "invalid_sim_option", message: err.Error()}
	}
	p := &peer{conn: ctx.Conn(), closing: s.closing}
	if f := s.before(ctx, p, a, &b); f != nil || p.cut {
		return f
	}
	r := &reply{ask: a, b: b, id: id, created: s.clock.Wall().Unix()}
	if b.Echo == EchoEvents {
		if f := r.replay(); f != nil {
			return f
		}
	}
	r.say(s)
	s.write(ctx, p, r)
	return nil
}

// before does what comes before an answer: the wait, the reset, the error.
func (s *Sim) before(ctx *fasthttp.RequestCtx, p *peer, a *ask, b *Behaviour) *failure {
	delay := b.Latency
	if !a.streams() {
		delay += b.Silent
	}
	ok := p.wait(delay)
	p.stop()
	switch {
	case !ok && p.gone():
		s.count.cancelled.Add(1)
		p.reset()
	case !ok, b.ResetHeaders:
		s.count.cut.Add(1)
		p.reset()
	case b.Status > 0:
		return &failure{status: b.Status, message: "the simulation was asked to fail with " + strconv.Itoa(b.Status),
			code: "simulated", retryAfter: b.RetryAfter}
	}
	if p.cut {
		ctx.SetConnectionClose()
	}
	return nil
}

// streams says whether the answer is an event stream.
func (a *ask) streams() bool {
	return a.stream && a.endpoint != llm.Embeddings && a.endpoint != llm.CountTokens
}

// write starts the answer: an event stream, half a body, or a body.
func (s *Sim) write(ctx *fasthttp.RequestCtx, p *peer, r *reply) {
	switch {
	case r.b.Echo == EchoRaw:
		ctx.SetBody(r.body)
		s.ended(r, p, true, 0)
	case r.streams():
		ctx.SetContentType("text/event-stream; charset=utf-8")
		ctx.Response.Header.Set("Cache-Control", "no-cache")
		ctx.Response.ImmediateHeaderFlush = r.b.Silent > 0
		ctx.SetBodyStream(&stream{s: s, p: p, b: r.b, script: r.scriptOf(), reply: r}, -1)
	case r.b.ResetAfter > 0 || r.b.HangAfter > 0:
		body := r.buffered(nil)
		ctx.SetBodyStream(&half{s: s, p: p, reply: r, body: body[:len(body)/2]}, -1)
	default:
		ctx.Response.SetBodyRaw(r.buffered(make([]byte, 0, 2<<10)))
		s.ended(r, p, true, r.text.tokens(r.text.n)*r.choices)
	}
}

func (r *reply) buffered(dst []byte) []byte {
	switch r.endpoint {
	case llm.Chat:
		return r.chatBody(dst)
	case llm.Completions:
		return r.completionBody(dst)
	case llm.Embeddings:
		return r.embeddingsBody(dst)
	case llm.Responses:
		return r.responseBody(dst)
	case llm.Messages:
		return r.messageBody(dst)
	}
	return r.countBody(dst)
}

func (r *reply) scriptOf() script {
	if r.replayed != nil {
		return script{before: r.replayed}
	}
	switch r.endpoint {
	case llm.Chat:
		return r.chatScript()
	case llm.Completions:
		return r.completionScript()
	case llm.Responses:
		return r.responseScript()
	}
	return r.messageScript()
}

// serveModels lists the models, or describes one.
func (s *Sim) serveModels(ctx *fasthttp.RequestCtx, d llm.Dialect, name string) *failure {
	describe := func(id string) map[string]any {
		if d == llm.Anthropic {
			return map[string]any{"type": "model", "id": id, "display_name": id, "created_at": "2025-01-01T00:00:00Z"}
		}
		return map[string]any{"id": id, "object": "model", "created": 1735689600, "owned_by": "sim"}
	}
	list := make([]map[string]any, 0, len(s.options.Models))
	for _, id := range s.options.Models {
		if id == name {
			s.count.completed.Add(1)
			return writeJSON(ctx, describe(id))
		}
		list = append(list, describe(id))
	}
	switch {
	case name != "":
		return &failure{status: 404, message: "the model " + strconv.Quote(name) + " does not exist", code: "model_not_found"}
	case d == llm.Anthropic:
		s.count.completed.Add(1)
		return writeJSON(ctx, map[string]any{"data": list, "has_more": false,
			"first_id": s.options.Models[0], "last_id": s.options.Models[len(list)-1]})
	}
	s.count.completed.Add(1)
	return writeJSON(ctx, map[string]any{"object": "list", "data": list})
}

func writeJSON(ctx *fasthttp.RequestCtx, v any) *failure {
	var buf bytes.Buffer
	if err := json.NewEncoder(&buf).Encode(v); err != nil {
		return &failure{status: 500, message: err.Error()}
	}
	ctx.SetBody(buf.Bytes())
	return nil
}
