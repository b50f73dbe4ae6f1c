package llm

import "fmt"

// Kind classifies an Error; proxy/errors.go turns it into a status and a type, once per dialect.
type Kind uint8

// The kinds of failure a request can meet. A denial is not among them: it is an answer of the limiter.
const (
	KindInternal     Kind = iota // a bug, or something nobody foresaw
	KindInvalid                  // malformed, duplicate or ambiguous input; Param names it
	KindTooLarge                 // body over LimitBytes
	KindHeaders                  // headers over LimitBytes
	KindUnauthorized             // bad, revoked or expired key
	KindForbidden                // authenticated, not allowed
	KindNotFound                 // unknown route, model or object; Code says which
	KindPolicy                   // a policy said no; Status and RetryAfterMS are the policy's
	KindUnavailable              // the ledger or a store the request needs is down
	KindUpstream                 // every channel failed before a first byte, or cools down: RetryAfterMS is then set
	KindTimeout                  // the upstream was too slow
	KindRateLimited              // every channel is cooling down after an upstream 429; RetryAfterMS is computed
	KindConflict                 // the object is not in a state that allows this
)

// Error is a failure with what a client is told. Message says what was expected, where, and the nearest right
// thing; it never holds a secret or prompt text, and a text of a client's only by Quote. Err is for the log only.
type Error struct {
	Kind         Kind
	Code         string // the contract's code, e.g. "model_not_found"; empty: the kind's default
	Message      string
	Param        string // the offending field, for KindInvalid
	Status       int    // HTTP status when the kind alone does not give it (a policy's)
	LimitBytes   int64
	RetryAfterMS int64
	Fields       map[string]any // further members of the error object, e.g. attempted_channels
	Err          error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Err != nil {
		return e.Message + ": " + e.Err.Error()
	}
	return e.Message
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf builds an Error with a formatted message.
func Errorf(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Message: fmt.Sprintf(format, args...)}
}

// Invalid builds a KindInvalid error about one field.
func Invalid(param, format string, args ...any) *Error {
	e := Errorf(KindInvalid, format, args...)
	e.Param = param
	return e
}
