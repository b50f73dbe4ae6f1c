package proxy_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/core/proxy"
	"github.com/weir-gateway/weir/core/sim"
	"github.com/weir-gateway/weir/core/tokens"
	"github.com/weir-gateway/weir/core/upstream"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, // fasthttp's own: a clock that never stops, and a sweep that sleeps out its interval
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

// journal is the ledger as the walk knows it: it keeps every entry and acknowledges at once, unless told otherwise.
type journal struct {
	mu struct {
		sync.Mutex
		entries []llm.Entry
	}
	refuse error                 // Append's answer to a reserve
	wait   func(llm.Entry) error // Wait's answer for an entry; nil: acknowledged
}

func (j *journal) Append(e *llm.Entry) (uint64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e.Kind == llm.EntryReserve && j.refuse != nil {
		return 0, j.refuse
	}
	j.mu.entries = append(j.mu.entries, *e)
	return uint64(len(j.mu.entries)), nil
}

func (j *journal) NextID() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return uint64(len(j.mu.entries)) + 1
}

func (j *journal) Wait(_ context.Context, seq uint64, _ time.Duration) error {
	j.mu.Lock()
	e := j.mu.entries[seq-1]
	j.mu.Unlock()
	if j.wait == nil {
		return nil
	}
	return j.wait(e)
}

func (j *journal) Healthy() error { return j.refuse }

// of gives the entries of a kind, in order.
func (j *journal) of(k llm.EntryKind) (es []llm.Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.mu.entries {
		if e.Kind == k {
			es = append(es, e)
		}
	}
	return es
}

// last is how the latest request ended; it fails the test unless it has ended.
func (j *journal) last(t *testing.T) llm.Entry {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := len(j.mu.entries) - 1; i >= 0; i-- {
		if e := j.mu.entries[i]; e.Kind == llm.EntrySettle || e.Kind == llm.EntryVoid {
			return e
		}
	}
	t.Fatal("nothing has ended")
	return llm.Entry{}
}

// decider is a policy in Go; nil abstains.
type decider struct {
	mu     sync.Mutex
	decide func(*policy.Facts, *policy.Decision)
}

func (d *decider) Decide(f *policy.Facts, out *policy.Decision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*out = policy.Decision{Abstained: true, Tier: -1, QPS: 1000, TPM: 1000, Quota: 1000, Burst: 1000, Price: 1000}
	if d.decide != nil {
		d.decide(f, out)
	}
}

// rig is a gateway between a loopback client and a simulated upstream. Windows run on a fake clock.
type rig struct {
	t       testing.TB
	clock   *llm.FakeClock
	journal *journal
	limits  *limit.Memory
	policy  *decider
	sim     *sim.Sim
	dir     *auth.Directory
	client  *upstream.Client
	server  *proxy.Server
	base    string
	addr    string
	token   string
	key     auth.Key
	log     *logged
	cat     catalog
	simURL  string
}

type catalog struct {
	models   []upstream.Model
	channels []upstream.Channel
}

const (
	startBalance = llm.Micro(1_000_000_000)
	idKey        = 1
	idUser       = 2
	idOrg        = 3
)

type option func(*setup)

type setup struct {
	key      auth.Key
	user     auth.User
	settings proxy.Settings
	options  proxy.Options
	upstream upstream.Options
	sim      sim.Options
	catalog  func(*catalog)
	balance  llm.Micro
	limiter  func(*limit.Memory) limit.Limiter
	ledger   func(llm.Clock) ledgerParts // nil: a journal
	alerts   proxy.Alerts
	logLevel slog.Level
}

// ledgerParts are the two sides of a ledger: the limiter writes, the walk waits.
type ledgerParts interface {
	limit.Journal
	proxy.Ledger
}

var price = llm.Price{Input: 1_000_000, CachedInput: 500_000, CacheWrite: 1_250_000, Output: 4_000_000}

func newRig(t testing.TB, opts ...option) *rig {
	t.Helper()
	s := setup{user: auth.User{ID: idUser, OrgID: idOrg, Name: "alice"}, key: auth.Key{ID: idKey, UserID: idUser, Name: "first"}, balance: startBalance}
	s.upstream = upstream.Options{ConnectTimeoutMS: 2000, HeaderTimeoutMS: 5000, IdleTimeoutMS: 5000}
	for _, o := range opts {
		o(&s)
	}
	r := &rig{t: t, clock: llm.NewFakeClock(time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)), journal: &journal{}, policy: &decider{}, log: new(logged)}
	r.startSim(s.sim)
	var books ledgerParts = r.journal
	if s.ledger != nil {
		books = s.ledger(r.clock)
	}
	r.limits = limit.New(limit.Options{}, r.clock, books)
	r.limits.LoadBalance(idUser, s.balance, 0)
	r.dir = auth.NewDirectory(bytes.Repeat([]byte{7}, 32), r.clock)
	r.dir.SetOrg(auth.Org{ID: idOrg, Name: "Acme"})
	r.dir.SetUser(s.user)
	r.addKey(s.key)
	counter, err := tokens.New(tokens.Options{DefaultOutput: 4096})
	must(t, err)
	r.client = upstream.NewClient(s.upstream, llm.NewSystemClock())
	var limiter limit.Limiter = r.limits
	if s.limiter != nil {
		limiter = s.limiter(r.limits)
	}
	r.server = proxy.New(s.options, proxy.Parts{Clock: r.clock, Random: rand.Reader, Directory: r.dir, Limiter: limiter, Money: r.limits,
		Ledger: books, Counter: counter, Policy: r.policy, Client: r.client, Alerts: s.alerts, Log: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: s.logLevel}))})
	r.server.SetSettings(s.settings)
	r.defaultCatalog(s.catalog)
	r.listen()
	t.Cleanup(r.close)
	return r
}

// logged is what was logged so far; connections log when they end, beside the test.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logged) Len() int { return len(l.String()) }

func (l *logged) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}

func (r *rig) startSim(o sim.Options) {
	r.sim = sim.New(o, llm.NewSystemClock())
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(r.t, err)
	r.simURL = "http://" + ln.Addr().String()
	done := make(chan struct{})
	go func() { _ = r.sim.Serve(ln); close(done) }()
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = r.sim.Shutdown(ctx)
		<-done
	})
}

func (r *rig) addKey(k auth.Key) {
	token, minted, err := r.dir.Mint(rand.Reader)
	must(r.t, err)
	k.Public, k.Hash, k.Preview = minted.Public, minted.Hash, minted.Preview
	r.dir.SetKey(k)
	if r.token == "" {
		r.token, r.key = token, k
	}
}

func (r *rig) defaultCatalog(change func(*catalog)) {
	r.cat.channels = []upstream.Channel{
		{ID: 1, Name: "openai-1", Provider: "openai", BaseURL: r.simURL, Credential: "up"},
		{ID: 2, Name: "anthropic-1", Provider: "anthropic", BaseURL: r.simURL, Credential: "up"},
	}
	for _, name := range []string{"gpt-4o", "text-embedding-3-small", "claude-sonnet-4-5"} {
		r.cat.models = append(r.cat.models, upstream.Model{Name: name, Price: price, Priced: true, MaxOutputTokens: 4096})
	}
	r.cat.models = append(r.cat.models, upstream.Model{Name: "priceless"})
	if change != nil {
		change(&r.cat)
	}
	r.setCatalog()
}

func (r *rig) setCatalog() {
	cat, err := upstream.NewCatalog(r.cat.models, r.cat.channels)
	must(r.t, err)
	r.server.SetCatalog(cat)
}

func (r *rig) listen() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(r.t, err)
	r.addr = ln.Addr().String()
	r.base = "http://" + r.addr
	done := make(chan error, 1)
	go func() { done <- r.server.Serve(ln) }()
	r.t.Cleanup(func() {
		if err := <-done; err != nil {
			r.t.Errorf("Serve: %v", err)
		}
	})
}

// close shuts everything down, and then nothing may be held.
func (r *rig) close() {
	http.DefaultClient.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	_ = r.server.Shutdown(ctx)
	cancel()
	r.client.Close()
	if n := r.limits.Open(); n != 0 {
		r.t.Errorf("%d reservations are open at the end", n)
	}
	if !r.t.Failed() {
		eventually(r.t, func() bool { return r.sim.Stats().OpenConnections == 0 }, "a connection to the upstream is open at the end")
	}
	r.limits.Close()
	if reserved, ended := len(r.journal.of(llm.EntryReserve)), len(r.journal.of(llm.EntrySettle))+len(r.journal.of(llm.EntryVoid)); reserved != ended {
		r.t.Errorf("%d reserves, %d endings", reserved, ended)
	}
	if _, held := r.limits.Balance(idUser); held != 0 {
		r.t.Errorf("%d micro are held at the end", held)
	}
}

// idle waits until nothing is held: endings of cut streams come a moment after the client has gone.
func (r *rig) idle() {
	r.t.Helper()
	eventually(r.t, func() bool { return r.limits.Open() == 0 }, "a reservation stays open")
}

// eventually waits long, for a machine that does other things too; what must be quick is measured by its test.
func eventually(t testing.TB, ok func() bool, what string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// reply is an answer, read to its end.
type reply struct {
	status int
	header http.Header
	body   []byte
	err    error // of reading the body
}

func (r *rig) request(path, body string, header ...string) *http.Request {
	req, err := http.NewRequest(http.MethodPost, r.base+path, strings.NewReader(body))
	must(r.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+r.token)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

func (r *rig) do(req *http.Request) reply {
	r.t.Helper()
	resp, err := http.DefaultClient.Do(req)
	must(r.t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, body, err}
}

func (r *rig) post(path, body string, header ...string) reply {
	r.t.Helper()
	return r.do(r.request(path, body, header...))
}

func (r *rig) get(path string, header ...string) reply {
	r.t.Helper()
	req := r.request(path, "", header...)
	req.Method, req.Body = http.MethodGet, nil
	return r.do(req)
}

// want checks an answer's status, and that it carries a request id.
func (p reply) want(t testing.TB, status int) reply {
	t.Helper()
	if p.status != status {
		t.Fatalf("status %d, want %d: %s", p.status, status, p.body)
	}
	if id := p.header.Get("X-Request-Id"); len(id) != 16 {
		t.Errorf("X-Request-Id is %q", id)
	}
	return p
}

// fields reads the error object.
func (p reply) fields(t testing.TB) map[string]any {
	t.Helper()
	var v struct {
		Type      string         `json:"type"`
		Error     map[string]any `json:"error"`
		RequestID string         `json:"request_id"`
	}
	if err := json.Unmarshal(p.body, &v); err != nil {
		t.Fatalf("not JSON: %s", p.body)
	}
	for _, name := range []string{"type", "message", "code"} {
		if s, _ := v.Error[name].(string); s == "" {
			t.Errorf("error.%s is missing: %s", name, p.body)
		}
	}
	if v.Type == "error" && v.RequestID != p.header.Get("X-Request-Id") {
		t.Errorf("request_id %q is not X-Request-Id %q", v.RequestID, p.header.Get("X-Request-Id"))
	}
	return v.Error
}

// code checks the error's code.
func (p reply) code(t testing.TB, want string) map[string]any {
	t.Helper()
	f := p.fields(t)
	if f["code"] != want {
		t.Errorf("code %v, want %s: %s", f["code"], want, p.body)
	}
	return f
}

// events splits a stream into its events' data.
func (p reply) events() (data []string) {
	for _, e := range strings.Split(strings.ReplaceAll(strings.ReplaceAll(string(p.body), "\r\n", "\n"), "\r", "\n"), "\n\n") {
		var lines []string
		for _, l := range strings.Split(e, "\n") {
			if d, ok := strings.CutPrefix(l, "data:"); ok {
				lines = append(lines, strings.TrimPrefix(d, " "))
			}
		}
		if len(lines) > 0 {
			data = append(data, strings.Join(lines, "\n"))
		}
	}
	return data
}

func chat(model string, more string) string {
	return `{"model":"` + model + `","messages":[{"role":"user","content":"say hello to the world"}]` + more + `}`
}

// route is an endpoint with a body that works on it.
type route struct{ path, model, body string }

func (x route) with(more string) string { return strings.TrimSuffix(x.body, "}") + more + "}" }

var everyRoute = []route{
	{"/v1/chat/completions", "gpt-4o", chat("gpt-4o", `,"max_tokens":50`)},
	{"/v1/completions", "gpt-4o", `{"model":"gpt-4o","prompt":"say hello","max_tokens":50}`},
	{"/v1/embeddings", "text-embedding-3-small", `{"model":"text-embedding-3-small","input":"some text"}`},
	{"/v1/responses", "gpt-4o", `{"model":"gpt-4o","input":"say hello","max_output_tokens":50}`},
	{"/v1/messages", "claude-sonnet-4-5", `{"model":"claude-sonnet-4-5","max_tokens":50,"messages":[{"role":"user","content":"hello"}]}`},
	{"/v1/messages/count_tokens", "claude-sonnet-4-5", `{"model":"claude-sonnet-4-5","messages":[{"role":"user","content":"hello"}]}`},
}

var errDown = errors.New("disk full")

// raw sends bytes as they are and reads the whole answer until the connection closes.
func (r *rig) raw(request string) string {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	must(r.t, err)
	defer func() { _ = c.Close() }()
	_, err = io.WriteString(c, request)
	must(r.t, err)
	must(r.t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	b, err := io.ReadAll(c)
	if err != nil {
		r.t.Fatalf("after %d bytes: %v", len(b), err)
	}
	return string(b)
}

func (r *rig) rawHead(path string, more ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: weir\r\nContent-Type: application/json\r\n%s", path, strings.Join(more, ""))
}

func itoa(n int) string { return strconv.Itoa(n) }
