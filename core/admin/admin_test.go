package admin_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mrand "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/admin"
	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/core/upstream"
	"github.com/weir-gateway/weir/policies"
	"github.com/weir-gateway/weir/store/storetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if policy.IsChild(os.Args, os.Stdin, os.Stdout) {
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

const adminToken = "an-admin-token-for-tests"

var start = time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC)

// proxy stands for the running proxy.
type proxy struct {
	catalog *upstream.Catalog
	global  limit.Limits
	unready error
	renewed int
}

func (p *proxy) SetCatalog(c *upstream.Catalog) { p.catalog = c }
func (p *proxy) Renew()                         { p.renewed++ }
func (p *proxy) SetGlobal(l limit.Limits)       { p.global = l }
func (p *proxy) Ready() error                   { return p.unready }

// fixture is a whole control plane over a store in memory.
type fixture struct {
	t       testing.TB
	clock   *llm.FakeClock
	store   *storetest.Memory
	o       admin.Options
	ledger  *ledger.Ledger
	dir     *auth.Directory
	limiter *limit.Memory
	host    *policy.Host
	proxy   *proxy
	client  *upstream.Client
	api     *admin.API
	handler http.Handler
	close   func()
}

func newFixture(t testing.TB) *fixture { return openFixture(t, admin.Options{Currency: "cny"}) }

func openFixture(t testing.TB, o admin.Options) *fixture {
	o.Token, o.Version = adminToken, "test"
	o.Envelopes.Operator = policy.Envelope{MaxMultiplier: 10_000, MaxBurst: 10_000, MaxCustomDims: 4, MinPrice: 1000, MayDeny: true}
	o.Envelopes.Tenant = policy.Envelope{MaxMultiplier: 2_000, MaxBurst: 3_000, MaxCustomDims: 2, Tiers: []string{"pro"}}
	o.TierNames = []string{"free", "pro"}
	o.Labels = []admin.Label{{Name: "tier", Source: "key", Field: "tier"}, {Name: "soft", Source: "key", Field: "soft"}, {Name: "hot", Source: "model", Field: "hot"}}
	f := &fixture{t: t, clock: llm.NewFakeClock(start), store: storetest.NewMemory(), o: o}
	f.open()
	t.Cleanup(func() { f.close() })
	return f
}

// open starts the parts over the store and restores; close ends them.
func (f *fixture) open() {
	f.t.Helper()
	random := mrand.NewChaCha8([32]byte{byte(f.clock.Mono() >> 30)})
	l, state, err := ledger.Open(f.store, ledger.Options{}, f.clock)
	f.must(err)
	secret, err := admin.Secret(l, random)
	f.must(err)
	f.ledger, f.dir, f.proxy = l, auth.NewDirectory(secret, f.clock), new(proxy)
	f.limiter = limit.New(limit.Options{}, f.clock, l)
	f.host, err = policy.NewHost(policy.Options{CacheDir: f.t.TempDir(), Tiers: f.o.TierNames, Labels: []string{"tier", "soft", "hot"}, Clock: f.clock})
	f.must(err)
	f.client = upstream.NewClient(upstream.Options{QueueWaitMS: 20_000}, f.clock)
	f.api = admin.New(f.o, admin.Parts{Clock: f.clock, Random: random, Ledger: l, Directory: f.dir, Limiter: f.limiter, Policy: f.host,
		Client: f.client, Live: f.proxy, Shipped: policies.Shipped,
		Metrics: func(w io.Writer) { _, _ = io.WriteString(w, "weir_reservations_open 0\n") }})
	f.must(f.api.Restore(f.t.Context(), state))
	f.handler = f.api.Handler()
	f.close = func() {
		f.api.Close()
		f.client.Close()
		f.host.Close()
		f.limiter.Close()
		f.must(f.ledger.Close())
	}
}

// restart is what the next process finds.
func (f *fixture) restart() {
	f.t.Helper()
	f.close()
	f.clock.Advance(2 * time.Second)
	f.open()
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// answer is a response, taken apart.
type answer struct {
	status int
	header http.Header
	raw    string
	json   map[string]any
}

func (f *fixture) send(method, path string, body any, headers ...string) answer {
	f.t.Helper()
	var rd io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		rd = strings.NewReader(b)
	case []byte:
		rd = bytes.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		f.must(err)
		rd = bytes.NewReader(raw)
	}
	r := httptest.NewRequest(method, path, rd)
	r.Header.Set("Authorization", "Bearer "+adminToken)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, r)
	a := answer{status: w.Code, header: w.Header(), raw: w.Body.String()}
	dec := json.NewDecoder(strings.NewReader(a.raw))
	dec.UseNumber()
	_ = dec.Decode(&a.json)
	return a
}

// ok sends and expects success.
func (f *fixture) ok(method, path string, body any, headers ...string) answer {
	f.t.Helper()
	a := f.send(method, path, body, headers...)
	if a.status/100 != 2 {
		f.t.Fatalf("%s %s: %d %s", method, path, a.status, a.raw)
	}
	return a
}

// refused sends and expects an error object with a status, and a message that says all the words.
func (f *fixture) refused(status int, method, path string, body any, words ...string) answer {
	f.t.Helper()
	a := f.send(method, path, body)
	a.isError(f.t, status, words...)
	return a
}

func (a answer) isError(t testing.TB, status int, words ...string) {
	t.Helper()
	e, isObject := a.json["error"].(map[string]any)
	if a.status != status || !isObject {
		t.Fatalf("got %d %s, want a %d error", a.status, a.raw, status)
	}
	for _, field := range []string{"type", "message", "code"} {
		if s, _ := e[field].(string); s == "" {
			t.Errorf("the error has no %s: %s", field, a.raw)
		}
	}
	for _, w := range words {
		if !strings.Contains(e["message"].(string), w) {
			t.Errorf("message %q does not say %q", e["message"], w)
		}
	}
}

// at follows a path of names into an answer.
func (a answer) at(path string) any {
	var v any = a.json
	for _, name := range strings.Split(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[name]
		case []any:
			var i int
			_, _ = fmt.Sscan(name, &i)
			if i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

// has compares members as text, pairwise: path, value.
func (a answer) has(t testing.TB, pairs ...any) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got := fmt.Sprint(a.at(pairs[i].(string))); got != fmt.Sprint(pairs[i+1]) {
			t.Errorf("%s is %s, want %v in %s", pairs[i], got, pairs[i+1], a.raw)
		}
	}
}

type j = map[string]any

// account makes org 1, user 1 with a balance of 100 and key 1; it returns the key's text.
func (f *fixture) account() string {
	f.t.Helper()
	f.ok("POST", "/admin/orgs", j{"name": "Acme"})
	f.ok("POST", "/admin/users", j{"orgId": 1, "name": "alice", "balanceCny": 100})
	a := f.ok("POST", "/admin/keys", j{"userId": 1, "name": "throttled", "qpsLimit": 2, "tpmLimit": 1000, "monthlyQuotaCny": 10000})
	return a.json["plaintext"].(string)
}

func (f *fixture) unauthorized(token string) bool {
	_, err := f.dir.Resolve([]byte(token))
	var e *llm.Error
	return errors.As(err, &e) && e.Kind == llm.KindUnauthorized
}
