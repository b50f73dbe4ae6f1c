package admin

import (
	"errors"
	"net/http"

	"github.com/weir-gateway/weir/core/llm"
)

// class is how a kind of error looks on the wire.
type class struct {
	status     int
	kind, code string
}

// classes is the one table from kinds to HTTP of this listener; what is absent is an internal error, and so is one of
// KindInternal without a code: with one, such as store_damaged, it was foreseen, and the operator is told.
var classes = map[llm.Kind]class{
	llm.KindInternal:     {http.StatusInternalServerError, "api_error", "internal_error"},
	llm.KindInvalid:      {http.StatusBadRequest, "invalid_request_error", "invalid_request_error"},
	llm.KindTooLarge:     {http.StatusRequestEntityTooLarge, "invalid_request_error", "request_too_large"},
	llm.KindUnauthorized: {http.StatusUnauthorized, "authentication_error", "authentication_error"},
	llm.KindForbidden:    {http.StatusForbidden, "permission_error", "permission_denied"},
	llm.KindNotFound:     {http.StatusNotFound, "not_found_error", "not_found"},
	llm.KindConflict:     {http.StatusConflict, "conflict_error", "conflict"},
	llm.KindUnavailable:  {http.StatusServiceUnavailable, "api_error", "unavailable"},
	llm.KindRateLimited:  {http.StatusTooManyRequests, "rate_limit_error", "rate_limited"},
	llm.KindTimeout:      {http.StatusServiceUnavailable, "api_error", "unavailable"},
}

// fail writes an error, and logs one that is not the client's. What nobody foresaw is said to be internal, without
// its text.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	var e *llm.Error
	known := errors.As(err, &e)
	var c class
	if known {
		c, known = classes[e.Kind]
		known = known && (e.Kind != llm.KindInternal || e.Code != "")
	}
	if !known {
		c, e = class{http.StatusInternalServerError, "api_error", "internal_error"}, llm.Errorf(llm.KindInternal, "internal error; the gateway's log has the cause")
	}
	if c.status >= http.StatusInternalServerError {
		a.Log.Error("admin request failed", "method", r.Method, "path", llm.Blot(r.URL.Path), "error", llm.Blot(err.Error()))
	}
	if e.Status != 0 {
		c.status = e.Status
	}
	if e.Code != "" {
		c.code = e.Code
	}
	body := object{{"type", c.kind}, {"message", llm.Blot(e.Message)}, {"code", c.code}, {"param", orNull(llm.Blot(e.Param))}}
	if e.LimitBytes != 0 {
		body = append(body, member{"limit_bytes", e.LimitBytes})
	}
	for name, v := range e.Fields {
		body = append(body, member{name, v})
	}
	if c.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	writeJSON(w, answer{c.status, object{{"error", body}}})
}

// missing is the 404 of an object.
func missing(kind string, id any) error {
	return llm.Errorf(llm.KindNotFound, "no %s %v", kind, id)
}
