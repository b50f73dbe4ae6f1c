package proxy

import (
	"bytes"

	"github.com/valyala/fasthttp"

	"github.com/weir-gateway/weir/core/llm"
)

// route is what a request's path asks for. The first six are the endpoints', with the same numbers.
type route uint8

const (
	routeNone   route = 0
	routeModels route = iota + route(llm.CountTokens)
	routeModel
	routeKey
	routeHealthz
	routeReadyz
	routeTenantRules
	routeTenantDryRun
	routeTenantRollback
	routeTenantTrial
	routeTenantUsage
	routes // how many there are
)

// names are the values of the endpoint label in metrics and logs.
var names = [routes]string{"none", "chat", "completions", "embeddings", "responses", "messages", "count_tokens",
	"models", "model", "key", "healthz", "readyz", "tenant_rules", "tenant_dry_run",
	"tenant_rollback", "tenant_trial", "tenant_usage"}

const modelPrefix = "/v1/models/"

// paths are the routes with a path of their own, the busiest first.
var paths = [...]struct {
	path string
	is   route
}{
	{"/v1/chat/completions", route(llm.Chat)},
	{"/v1/messages", route(llm.Messages)},
	{"/v1/responses", route(llm.Responses)},
	{"/v1/embeddings", route(llm.Embeddings)},
	{"/v1/completions", route(llm.Completions)},
	{"/v1/messages/count_tokens", route(llm.CountTokens)},
	{"/v1/models", routeModels},
	{"/v1/key", routeKey},
	{"/v1/tenant/rules", routeTenantRules},
	{"/v1/tenant/rules/dry-run", routeTenantDryRun},
	{"/v1/tenant/rules/rollback", routeTenantRollback},
	{"/v1/tenant/rules/trial", routeTenantTrial},
	{"/v1/tenant/usage", routeTenantUsage},
	{"/healthz", routeHealthz},
	{"/readyz", routeReadyz},
}

// lookup finds the route of a raw request target. It compares the bytes as they came, before any normalisation, so
// that a trailing slash, a double one, another case or an escape is another path and not another way in. The query is
// allowed and ignored, as is what stands before the path of an absolute form. rest is the model's name, still escaped, for routeModel.
func lookup(target []byte) (r route, rest []byte) {
	target, _, _ = bytes.Cut(pathOf(target), []byte{'?'})
	for i := range paths {
		if string(target) == paths[i].path {
			return paths[i].is, nil
		}
	}
	if rest, ok := bytes.CutPrefix(target, []byte(modelPrefix)); ok && len(rest) > 0 && bytes.IndexByte(rest, '/') < 0 {
		return routeModel, rest
	}
	return routeNone, nil
}

// pathOf is what is behind the authority of a target in absolute form, which whoever takes this gateway for a proxy sends.
// The authority says nothing here, so it may be any but one that two parsers could end at different places; a target with such
// a one stays as it is, and is no route.
func pathOf(target []byte) []byte {
	if len(target) == 0 || target[0] == '/' {
		return target
	}
	scheme, rest, ok := bytes.Cut(target, []byte("://"))
	if !ok || !bytes.EqualFold(scheme, []byte("http")) && !bytes.EqualFold(scheme, []byte("https")) {
		return target
	}
	at := bytes.IndexByte(rest, '/')
	for _, b := range rest[:max(at, 0)] {
		if plain := 'a' <= b|0x20 && b|0x20 <= 'z' || '0' <= b && b <= '9' || bytes.IndexByte([]byte("-._:[]"), b) >= 0; !plain {
			return target
		}
	}
	if at <= 0 {
		return target
	}
	return rest[at:]
}

// meant ends the complaint about an unknown path with the one that was likely meant.
func meant(path []byte) string {
	known := make([]string, len(paths))
	for i := range paths {
		known[i] = paths[i].path
	}
	if near := llm.Nearest(string(path), known); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// endpoint is the upstream route that r is; ok is false for the routes the gateway answers itself.
func (r route) endpoint() (ep llm.Endpoint, ok bool) {
	return llm.Endpoint(r), r != routeNone && r <= route(llm.CountTokens)
}

// allow is the value of the Allow header.
func (r route) allow() string {
	_, upstream := r.endpoint()
	switch {
	case upstream || r == routeTenantDryRun || r == routeTenantRollback:
		return "POST"
	case r == routeTenantTrial:
		return "GET, POST"
	case r == routeTenantRules:
		return "GET, PUT"
	}
	return "GET, HEAD"
}

func (r route) allows(h *fasthttp.RequestHeader) bool {
	_, upstream := r.endpoint()
	switch {
	case upstream || r == routeTenantDryRun || r == routeTenantRollback:
		return h.IsPost()
	case r == routeTenantRules && h.IsPut(), r == routeTenantTrial && h.IsPost():
		return true
	}
	return h.IsGet() || h.IsHead()
}

// dialectOf is the dialect of a request, also when its path may be anything. Only then the normalised path is looked at:
// "//V1/messages" is no route, but whoever sent it speaks Anthropic's dialect.
func dialectOf(ctx *fasthttp.RequestCtx, r route) llm.Dialect {
	if ep, ok := r.endpoint(); ok {
		return ep.Dialect()
	}
	path := bytes.ToLower(ctx.Path())
	if nc, ok := ctx.Conn().(*conn); ok && len(path) <= 1 {
		_, path, _ = bytes.Cut(nc.opening[:], []byte{' '})
	}
	switch {
	case bytes.HasPrefix(path, []byte("/v1/messages")):
		return llm.Anthropic
	case bytes.HasPrefix(path, []byte("/v1/models")) && len(ctx.Request.Header.Peek("Anthropic-Version")) > 0:
		return llm.Anthropic
	}
	return llm.OpenAI
}

// hygiene looks over the header block as it came on the wire. fasthttp accepts what two parsers could read in two
// ways (a folded line, one that ends in a bare line feed, a blank in a name, two framings of the body, a coding that frames
// nothing) and keeps the first of two credentials; here each is an error.
func hygiene(raw []byte) *llm.Error {
	var authorization, apiKey, framed, chunked int
	for len(raw) > 0 {
		line := raw
		if i := bytes.IndexByte(raw, '\n'); i >= 0 {
			if i == 0 || raw[i-1] != '\r' {
				return llm.Errorf(llm.KindInvalid, "a header line ends in a bare line feed; end each in CRLF")
			}
			line, raw = raw[:i-1], raw[i+1:]
		} else {
			raw = nil
		}
		if len(line) == 0 {
			continue
		}
		if line[0] == ' ' || line[0] == '\t' {
			return llm.Errorf(llm.KindInvalid, "a header is folded over two lines; send each header on one line")
		}
		name, value, _ := bytes.Cut(line, []byte{':'})
		if bytes.IndexByte(name, ' ') >= 0 {
			return llm.Errorf(llm.KindInvalid, "the header name %s has a blank", llm.Quote(name, 64))
		}
		switch len(name) {
		case len("authorization"):
			authorization += same(name, "authorization")
		case len("x-api-key"):
			apiKey += same(name, "x-api-key")
		case len("content-length"):
			framed += same(name, "content-length")
		case len("transfer-encoding"):
			if same(name, "transfer-encoding") > 0 {
				if chunked++; !bytes.EqualFold(bytes.Trim(value, " \t"), []byte("chunked")) {
					return llm.Errorf(llm.KindInvalid, "Transfer-Encoding must be chunked, or absent")
				}
			}
		}
	}
	switch {
	case authorization > 1:
		return llm.Errorf(llm.KindInvalid, "the Authorization header is given %d times; send it once", authorization)
	case apiKey > 1:
		return llm.Errorf(llm.KindInvalid, "the x-api-key header is given %d times; send it once", apiKey)
	case framed > 0 && chunked > 0:
		return llm.Errorf(llm.KindInvalid, "Content-Length and Transfer-Encoding are both given; send one")
	}
	return nil
}

func same(name []byte, want string) int {
	if bytes.EqualFold(name, []byte(want)) {
		return 1
	}
	return 0
}

// credential is the key a request presents: in Authorization: Bearer or in x-api-key. Both are allowed when equal.
func credential(h *fasthttp.RequestHeader) ([]byte, *llm.Error) {
	auth, key := h.Peek(fasthttp.HeaderAuthorization), h.Peek("X-Api-Key")
	token, bearer := cutBearer(auth)
	switch {
	case len(auth) > 0 && !bearer:
		return nil, llm.Errorf(llm.KindUnauthorized, "the Authorization header must read: Bearer <key>")
	case len(auth) == 0 && len(key) == 0:
		return nil, llm.Errorf(llm.KindUnauthorized, "no key given; send Authorization: Bearer <key> or x-api-key: <key>")
	case len(auth) == 0:
		return key, nil
	case len(key) > 0 && !bytes.Equal(token, key):
		return nil, llm.Errorf(llm.KindInvalid, "Authorization and x-api-key hold two different keys; send one")
	}
	return token, nil
}

func cutBearer(auth []byte) ([]byte, bool) {
	const scheme = "bearer "
	if len(auth) < len(scheme) || !bytes.EqualFold(auth[:len(scheme)], []byte(scheme)) {
		return nil, false
	}
	return bytes.TrimSpace(auth[len(scheme):]), true
}

// bodyHeaders refuses bodies the scanner would not understand, and tells the coding of one that has to be decoded.
func (s *Server) bodyHeaders(h *fasthttp.RequestHeader) (coding string, err error) {
	if coding, err = s.coding(h); err != nil {
		return "", err
	}
	if !jsonType(h.ContentType()) {
		e := llm.Errorf(llm.KindInvalid, "Content-Type is %s; it must be application/json", llm.Quote(h.ContentType(), 64))
		e.Status, e.Code = fasthttp.StatusUnsupportedMediaType, "unsupported_content_type"
		return "", e
	}
	return coding, nil
}

// jsonType accepts application/json, text/json, any +json type, and silence.
func jsonType(t []byte) bool {
	t, _, _ = bytes.Cut(t, []byte{';'})
	t = bytes.TrimSpace(t)
	if len(t) == 0 || string(t) == "application/json" {
		return true
	}
	t = bytes.ToLower(t)
	return bytes.HasSuffix(t, []byte("/json")) || bytes.HasSuffix(t, []byte("+json"))
}
