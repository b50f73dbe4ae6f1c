package proxy

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"github.com/weir-gateway/weir/core/llm"
)

// statusOverloaded is Anthropic's word for 503.
const statusOverloaded = 529

// row is how one kind of error looks on the wire. In the OpenAI dialect typ is the type; in both, code is the code
// unless the error brings its own.
type row struct {
	status    int
	anthropic int // status in the Anthropic dialect, when it differs
	typ, code string
}

// inexact is the member that says of retry_after_ms that it is a hint.
const inexact = `,"retry_after_exact":false`

// table is the one place where an error becomes HTTP. Anthropic's types follow from the status: see anthropicType.
var table = [...]row{
	llm.KindInternal:     {500, 0, "server_error", "internal_error"},
	llm.KindInvalid:      {400, 0, "invalid_request_error", "invalid_request_error"},
	llm.KindTooLarge:     {413, 0, "invalid_request_error", "request_too_large"},
	llm.KindHeaders:      {431, 0, "invalid_request_error", "headers_too_large"},
	llm.KindUnauthorized: {401, 0, "authentication_error", "authentication_error"},
	llm.KindForbidden:    {403, 0, "permission_error", "permission_denied"},
	llm.KindNotFound:     {404, 0, "not_found_error", "not_found"},
	llm.KindPolicy:       {403, 0, "policy_denied", "policy_denied"},
	llm.KindUnavailable:  {503, statusOverloaded, "server_error", "overloaded"},
	llm.KindUpstream:     {502, 0, "upstream_unavailable", "upstream_unavailable"},
	llm.KindTimeout:      {504, 0, "upstream_timeout", "upstream_timeout"},
	llm.KindRateLimited:  {429, 0, "rate_limit_exceeded", "upstream_rate_limited"},
	llm.KindConflict:     {409, 0, "conflict_error", "conflict"},
}

// named are the codes that are also their own type, as the contract's table has them.
var named = [...]string{"model_not_found", "price_not_configured"}

// anthropicType is Anthropic's type for a status.
func anthropicType(status int) string {
	switch status {
	case 401:
		return "authentication_error"
	case 402:
		return "billing_error"
	case 403:
		return "permission_error"
	case 404:
		return "not_found_error"
	case 413:
		return "request_too_large"
	case 429:
		return "rate_limit_error"
	case 503, statusOverloaded:
		return "overloaded_error"
	}
	if status >= 500 {
		return "api_error"
	}
	return "invalid_request_error"
}

// refusal is an answer that is not the upstream's: an error or a denial, ready for either dialect.
type refusal struct {
	status  int
	typ     string // OpenAI's type
	code    string
	message string
	param   string // the offending field
	members []byte // further members of the error object, each with its leading comma

	retryAfterMS int64 // 0: none
	hint         bool  // retry-after-ms may be sent beside Retry-After
	final        bool  // x-should-retry: false
}

// asError gives any failure its kind. What nobody foresaw is internal, and its text stays in the log.
func asError(err error) *llm.Error {
	var e *llm.Error
	if errors.As(err, &e) {
		return e
	}
	return &llm.Error{Kind: llm.KindInternal, Message: "internal error", Err: err}
}

// errorRefusal renders e for a dialect. jitter spreads the retries of requests that met the same outage. A client's text may
// be in the message, and a key in that.
func errorRefusal(e *llm.Error, d llm.Dialect, jitter uint64, members []byte) refusal {
	t := table[min(e.Kind, llm.KindConflict)]
	r := refusal{status: t.status, typ: t.typ, code: t.code, message: llm.Blot(e.Message), members: members}
	if d == llm.Anthropic && t.anthropic != 0 {
		r.status = t.anthropic
	}
	if e.Status != 0 {
		r.status = e.Status
	}
	if e.Code != "" {
		r.code = e.Code
		if slices.Contains(named[:], e.Code) {
			r.typ = e.Code
		}
	}
	if r.param = llm.Blot(e.Param); r.param != "" {
		r.members = appendMember(r.members, "param", r.param)
	}
	if e.LimitBytes > 0 {
		r.members = appendNumber(r.members, "limit_bytes", e.LimitBytes)
	}
	for _, k := range slices.Sorted(maps.Keys(e.Fields)) {
		if v, err := json.Marshal(e.Fields[k]); err == nil {
			r.members = append(appendName(r.members, k), v...)
		}
	}
	r.retry(e, jitter)
	return r
}

func (r *refusal) retry(e *llm.Error, jitter uint64) {
	switch e.Kind {
	case llm.KindPolicy:
		r.retryAfterMS, r.final = e.RetryAfterMS, e.RetryAfterMS == 0
	case llm.KindRateLimited:
		r.retryAfterMS, r.hint = max(e.RetryAfterMS, 1), true
		r.members = append(appendNumber(r.members, "retry_after_ms", r.retryAfterMS), inexact...)
	case llm.KindUpstream:
		r.retryAfterMS, r.hint = e.RetryAfterMS, e.RetryAfterMS > 0
	case llm.KindUnavailable:
		r.retryAfterMS, r.hint = 500+int64(jitter%1501), true
	}
	if r.retryAfterMS > maxRetryMS {
		r.hint, r.final = false, true
	}
}

// appendBody writes the error object in a dialect.
func (r *refusal) appendBody(dst []byte, d llm.Dialect, requestID []byte) []byte {
	if d == llm.Anthropic {
		dst = r.appendError(append(dst, `{"type":"error",`...), anthropicType(r.status))
		return append(append(append(dst, `,"request_id":"`...), requestID...), `"}`...)
	}
	return append(r.appendError(append(dst, '{'), r.typ), '}')
}

// appendError writes the member error.
func (r *refusal) appendError(dst []byte, typ string) []byte {
	dst = append(append(append(dst, `"error":{"type":"`...), typ...), `","message":`...)
	dst = appendString(dst, r.message)
	dst = append(dst, `,"code":`...)
	dst = appendString(dst, r.code)
	return append(append(dst, r.members...), '}')
}

// appendEvent writes the error object as the last event of a stream that has had so many before. Responses have an error
// event of their own, whose members stand beside the object.
func (r *refusal) appendEvent(dst []byte, ep llm.Endpoint, before int64, requestID []byte) []byte {
	if ep == llm.Chat || ep == llm.Completions {
		return append(r.appendBody(append(dst, "data: "...), llm.OpenAI, nil), "\n\n"...)
	}
	dst = append(dst, "event: error\ndata: "...)
	if ep.Dialect() == llm.Anthropic {
		return append(r.appendBody(dst, llm.Anthropic, requestID), "\n\n"...)
	}
	dst = appendInt(append(dst, `{"type":"error","sequence_number":`...), before)
	dst = appendString(append(dst, `,"code":`...), r.code)
	dst = appendString(append(dst, `,"message":`...), r.message)
	return append(r.appendError(append(dst, `,"param":null,`...), r.typ), "}\n\n"...)
}

// setHeaders writes the retry headers. Retry-After counts whole seconds, at least 1.
func (r *refusal) setHeaders(h *fasthttp.ResponseHeader, buf []byte) {
	if r.retryAfterMS > 0 {
		h.SetCanonical(headerRetryAfter, appendInt(buf[:0], (r.retryAfterMS+999)/1000))
		if r.hint {
			h.SetCanonical(headerRetryMS, appendInt(buf[:0], r.retryAfterMS))
		}
	}
	if r.final {
		h.SetCanonical(headerShouldRetry, append(buf[:0], "false"...))
	}
}

func appendName(dst []byte, name string) []byte {
	return append(append(append(dst, `,"`...), name...), `":`...)
}

func appendMember(dst []byte, name, value string) []byte {
	return appendString(appendName(dst, name), value)
}

func appendNumber(dst []byte, name string, n int64) []byte {
	return strconv.AppendInt(appendName(dst, name), n, 10)
}

// appendString writes s as JSON; plain ASCII without quotes, the usual case, costs one pass and no allocation.
func appendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			v, _ := json.Marshal(s) // a string always marshals
			return append(dst, v...)
		}
	}
	return append(append(append(dst, '"'), s...), '"')
}
