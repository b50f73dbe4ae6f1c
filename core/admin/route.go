package admin

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-gateway/weir/core/llm"
)

// Body limits, in bytes.
const (
	jsonBytes = 1 << 20
	wasmBytes = 8 << 20
)

// route is one line of the table. Exactly one of do and raw is set.
type route struct {
	method, path string
	do           func(*call) (answer, error)                        // JSON in, JSON out
	raw          func(w http.ResponseWriter, r *http.Request) error // anything else
	change       bool                                               // takes the turn
	once         bool                                               // honours Idempotency-Key
	open         bool                                               // asks for no token
	bytes        int64                                              // body limit; 0: jsonBytes
}

// call is one request of a do route.
type call struct {
	*http.Request
	ctx   context.Context // for the change: not cancelled by the client
	body  []byte
	once  string // Idempotency-Key
	stamp [sha256.Size]byte
}

// answer is what a do route says.
type answer struct {
	status int
	value  any
}

func ok(v any) answer      { return answer{http.StatusOK, v} }
func created(v any) answer { return answer{http.StatusCreated, v} }

// routes is the whole API. openapi.yaml describes the same lines; a test compares.
func (a *API) routes() []route {
	return append(a.bookRoutes(), []route{
		{method: "GET", path: "/admin/orgs", do: a.listOrgs},
		{method: "POST", path: "/admin/orgs", do: a.createOrg, change: true, once: true},
		{method: "GET", path: "/admin/orgs/{id}", do: a.getOrg},
		{method: "PATCH", path: "/admin/orgs/{id}", do: a.patchOrg, change: true},
		{method: "DELETE", path: "/admin/orgs/{id}", do: a.deleteOrg, change: true},

		{method: "GET", path: "/admin/users", do: a.listUsers},
		{method: "POST", path: "/admin/users", do: a.createUser, change: true, once: true},
		{method: "GET", path: "/admin/users/{id}", do: a.getUser},
		{method: "PATCH", path: "/admin/users/{id}", do: a.patchUser, change: true},
		{method: "DELETE", path: "/admin/users/{id}", do: a.deleteUser, change: true},
		{method: "POST", path: "/admin/users/{id}/balance", do: a.moveBalance, change: true, once: true},

		{method: "GET", path: "/admin/keys", do: a.listKeys},
		{method: "POST", path: "/admin/keys", do: a.createKey, change: true},
		{method: "GET", path: "/admin/keys/{id}", do: a.getKey},
		{method: "PATCH", path: "/admin/keys/{id}", do: a.patchKey, change: true},
		{method: "DELETE", path: "/admin/keys/{id}", do: a.deleteKey, change: true},
		{method: "POST", path: "/admin/keys/{id}/limits", do: a.limitKey, change: true, once: true},
		{method: "GET", path: "/admin/keys/{id}/usage-window", do: a.usageWindow},

		{method: "GET", path: "/admin/models", do: a.listModels},
		{method: "GET", path: "/admin/models/{name...}", do: a.getModel},
		{method: "PUT", path: "/admin/models/{name...}", do: a.putModel, change: true},
		{method: "DELETE", path: "/admin/models/{name...}", do: a.deleteModel, change: true},

		{method: "GET", path: "/admin/channels", do: a.listChannels},
		{method: "POST", path: "/admin/channels", do: a.createChannel, change: true},
		{method: "GET", path: "/admin/channels/{id}", do: a.getChannel},
		{method: "PATCH", path: "/admin/channels/{id}", do: a.patchChannel, change: true},
		{method: "DELETE", path: "/admin/channels/{id}", do: a.deleteChannel, change: true},

		{method: "GET", path: "/admin/limits/global", do: a.getGlobal},
		{method: "PUT", path: "/admin/limits/global", do: a.putGlobal, change: true},

		{method: "POST", path: "/admin/config/apply", do: a.applyConfig},

		{method: "GET", path: "/admin/policies", do: a.listPolicies},
		{method: "POST", path: "/admin/policies", do: a.uploadPolicy, bytes: wasmBytes},
		{method: "GET", path: "/admin/policies/{name}/versions", do: a.listVersions},
		{method: "GET", path: "/admin/policies/{name}/report", do: a.report},
		{method: "PUT", path: "/admin/policies/{name}/params", do: a.paramsPolicy, change: true},
		{method: "POST", path: "/admin/policies/{name}/shadow", do: a.shadowPolicy, change: true},
		{method: "POST", path: "/admin/policies/{name}/canary", do: a.canaryPolicy, change: true},
		{method: "POST", path: "/admin/policies/{name}/activate", do: a.activatePolicy, change: true},
		{method: "POST", path: "/admin/policies/{name}/rollback", do: a.rollbackPolicy, change: true},
		{method: "GET", path: "/admin/bindings", do: a.listBindings},
		{method: "PUT", path: "/admin/bindings", do: a.putBinding, change: true},
		{method: "DELETE", path: "/admin/bindings", do: a.deleteBinding, change: true},

		{method: "GET", path: "/admin/tenants/{id}/rules", do: a.getRules},
		{method: "PUT", path: "/admin/tenants/{id}/rules", do: a.putRules},
		{method: "POST", path: "/admin/tenants/{id}/rules/dry-run", do: a.dryRun},
		{method: "POST", path: "/admin/tenants/{id}/rules/rollback", do: a.postRollback},
		{method: "GET", path: "/admin/tenants/{id}/rules/trial", do: a.getTrial},
		{method: "POST", path: "/admin/tenants/{id}/rules/trial", do: a.postTrial},
		{method: "GET", path: "/admin/tenants/{id}/usage", do: a.tenantUsage},

		{method: "GET", path: "/admin/openapi.yaml", raw: a.openAPI, open: true},
		{method: "GET", path: "/metrics", raw: a.metrics},
		{method: "GET", path: "/healthz", do: a.healthz, open: true},
		{method: "GET", path: "/readyz", raw: a.readyz, open: true},
	}...)
}

// bookRoutes are about what happened.
func (a *API) bookRoutes() []route {
	return []route{
		{method: "GET", path: "/admin/ledger/verify", do: a.verifyLedger},
		{method: "GET", path: "/admin/ledger/entries", raw: a.entries},
		{method: "GET", path: "/admin/ledger/reservations", do: a.reservations},
		{method: "POST", path: "/admin/ledger/prune", do: a.prune},
		{method: "GET", path: "/admin/backup", raw: a.backup},

		{method: "GET", path: "/admin/usage", raw: a.usage},
		{method: "GET", path: "/admin/audit", do: a.audit},
	}
}

// serve wraps a route: token, body, turn, idempotency, answer.
func (a *API) serve(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !rt.open && !a.admitted(r) {
			a.fail(w, r, unauthorized())
			return
		}
		if rt.raw != nil {
			if err := rt.raw(w, r); err != nil {
				a.fail(w, r, err)
			}
			return
		}
		ans, err := a.run(w, r, rt)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		writeJSON(w, ans)
	})
}

// run reads the body before it takes the turn, so that a slow client holds nobody up.
func (a *API) run(w http.ResponseWriter, r *http.Request, rt route) (answer, error) {
	c := &call{Request: r, ctx: context.WithoutCancel(r.Context())}
	var err error
	if c.body, err = readBody(w, r, cmp.Or(rt.bytes, jsonBytes)); err != nil {
		return answer{}, err
	}
	if c.once, err = idempotencyKey(r, rt); err != nil {
		return answer{}, err
	}
	if !rt.change {
		return rt.do(c)
	}
	done, err := a.take(r.Context())
	if err != nil {
		return answer{}, err
	}
	defer done()
	if c.once == "" {
		return rt.do(c)
	}
	return a.runOnce(c, rt)
}

// runOnce gives the stored answer of a known idempotency key, else runs the change and stores its answer with it.
func (a *API) runOnce(c *call, rt route) (answer, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%s %s\n", c.Method, c.URL.Path)
	h.Write(c.body)
	h.Sum(c.stamp[:0])
	stored, known, err := a.Ledger.Replay(c.once, c.stamp)
	if err != nil {
		return answer{}, err
	}
	if !known {
		return rt.do(c)
	}
	status, value, _ := bytes.Cut(stored, []byte{' '})
	code, err := strconv.Atoi(string(status))
	if err != nil {
		return answer{}, fmt.Errorf("stored answer of an idempotency key: %w", err)
	}
	return answer{code, json.RawMessage(value)}, nil
}

func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var big *http.MaxBytesError
	switch {
	case errors.As(err, &big):
		return nil, tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &llm.Error{Kind: llm.KindInvalid, Status: http.StatusRequestTimeout, Code: "request_timeout",
			Message: "the body did not arrive in time; it has to bring 1 KiB a second"}
	case err != nil:
		return nil, llm.Invalid("", "the body could not be read: it ended before its announced length")
	}
	return raw, nil
}

func tooLarge(limit int64) error {
	return &llm.Error{Kind: llm.KindTooLarge, LimitBytes: limit, Message: fmt.Sprintf("the body is larger than the %d bytes this route takes", limit)}
}

func idempotencyKey(r *http.Request, rt route) (string, error) {
	given := r.Header.Values("Idempotency-Key")
	switch {
	case len(given) == 0:
		return "", nil
	case rt.method == http.MethodGet:
		return "", nil // reading twice does no harm
	case !rt.once:
		return "", llm.Invalid("Idempotency-Key", "%s %s does not honour Idempotency-Key; leave the header out", rt.method, rt.path)
	}
	if k := given[0]; len(given) == 1 && len(k) >= 1 && len(k) <= 255 && printable(k) {
		return k, nil
	}
	return "", llm.Invalid("Idempotency-Key", "Idempotency-Key: expected one header of 1 to 255 printable characters")
}

// admitted compares hashes in constant time, so that neither content nor length of the token can be measured.
func (a *API) admitted(r *http.Request) bool {
	given := r.Header.Values("Authorization")
	if len(given) != 1 || a.o.Token == "" {
		return false
	}
	scheme, token, _ := strings.Cut(given[0], " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
	return subtle.ConstantTimeCompare(sum[:], a.token[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}

func unauthorized() error {
	return llm.Errorf(llm.KindUnauthorized, "expected the admin token as Authorization: Bearer <token>; a client key is not one")
}

// tidy reports that a path has one spelling: no empty or dot segments.
func tidy(p string) bool {
	clean := path.Clean(p)
	return p == clean || p == clean+"/"
}

// lost answers what no route matches: the methods of the path when there are some, else the nearest route.
func (a *API) lost(routes []route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.admitted(r) {
			a.fail(w, r, unauthorized())
			return
		}
		var methods, paths []string
		for _, rt := range routes {
			filled := fill(rt.path, r.URL.Path)
			if filled == r.URL.Path {
				methods = append(methods, rt.method)
			}
			paths = append(paths, rt.method+" "+filled)
		}
		if methods != nil {
			w.Header().Set("Allow", strings.Join(methods, ", "))
			a.fail(w, r, &llm.Error{Kind: llm.KindInvalid, Status: http.StatusMethodNotAllowed, Code: "method_not_allowed",
				Message: fmt.Sprintf("%.64s is not a method of %.128s; it takes %s", r.Method, r.URL.Path, strings.Join(methods, ", "))})
			return
		}
		asked := r.Method + " " + r.URL.Path
		e := llm.Errorf(llm.KindNotFound, "no route %.200s", asked)
		e.Code = "route_not_found"
		if near := nearestRoute(asked, paths); near != "" {
			e.Message += "; did you mean " + near + "?"
		} else {
			e.Message += "; GET /admin/openapi.yaml lists the routes"
		}
		a.fail(w, r, e)
	})
}

// nearestRoute tries the whole line, then the path under any method.
func nearestRoute(asked string, routes []string) string {
	if len(asked) > 256 {
		return ""
	}
	if near := llm.Nearest(asked, routes); near != "" {
		return near
	}
	_, p, _ := strings.Cut(asked, " ")
	for _, rt := range routes {
		if _, rp, _ := strings.Cut(rt, " "); llm.Nearest(p, []string{rp}) != "" {
			return rt
		}
	}
	return ""
}

// fill puts a path's own segments where a route has wildcards, so that the two can be compared.
func fill(pattern, p string) string {
	want, have := strings.Split(pattern, "/"), strings.Split(p, "/")
	for i, s := range want {
		switch {
		case !strings.HasPrefix(s, "{"):
		case i >= len(have) || have[i] == "":
		case strings.HasSuffix(s, "...}"):
			return strings.Join(slices.Concat(want[:i], have[i:]), "/")
		default:
			want[i] = have[i]
		}
	}
	return strings.Join(want, "/")
}

func writeJSON(w http.ResponseWriter, ans answer) {
	if ans.status == http.StatusNoContent {
		w.WriteHeader(ans.status)
		return
	}
	raw, err := json.Marshal(ans.value)
	if err != nil {
		panic(fmt.Sprintf("admin: an answer that is not JSON: %v", err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(ans.status)
	_, _ = w.Write(append(raw, '\n')) // a client that left cannot be told anything
}
