// Package upstream knows models and channels and carries one request to a provider: attempts, cool-downs, dialects,
// SSE framing, usage extraction.
//
// # The connection and its one owner
//
// Everything here leans on one promise: a call can be cut at any instant, from any goroutine, and no other call ever
// notices. fasthttp's HostClient cannot be cut and net/http costs three times as much, so the connections are our own.
// The invariants, held by cutter (conn.go) and pool (pool.go):
//
//  1. A connection has one owner: the pool, or one Response. It changes hands under the owner's mutex.
//  2. Cancelling is an act on the Response, never on a connection. A cancel that comes late finds no connection there
//     and does nothing; it cannot reach the call that has the connection now.
//  3. A connection goes back to the pool only when its answer was read to a clean end, nothing follows it, the peer did
//     not ask to close, and the cut did not fire. Whatever is in doubt is closed.
//  4. What ends a call (a client that left) is never counted against a channel; see cooldown.go.
//  5. The bytes that were checked are the bytes that are sent, but for the spliced values; see splice.go.
//  6. An answer whose framing can be read in two ways is no answer: the attempt failed and the connection is closed.
//
// One call:
//
//	Do: plan the splices once
//	    repeat up to Attempts times, before a first byte:
//	        pick      tier by priority, then smooth weights; health.mu admits or skips       (lock, no I/O)
//	        place     gate.mu: one on the channel, or a turn in the queues of all that have
//	                  none, for the first that does (gate.go, queue.go)                      (lock, then a wait)
//	        hold.Attempt
//	        take      pool.mu pops an idle connection; it is looked at before use            (lock, then I/O)
//	        bind      cutter.mu: fail if cut, else the Response owns the connection          (lock, no I/O)
//	        send, read the head, and a buffered body or a stream's first event               (I/O; a cut closes the socket)
//	        judge     relay it, or unbind + close, tell health, next
//	Next, Body: read what is left; at the clean end
//	    release   cutter.mu: take the connection out; if cut, close it, else pool.mu: put    (one after the other)
//	Cancel: cutter.mu: mark cut, close the socket if one is bound
//
// The lock in Cancel spans close(2), which does not wait for the network. Closing outside of it would race with release:
// the descriptor, pooled and taken by the next call, would be cut instead.
//
// Rejected: a watcher goroutine per request (context.AfterFunc needs none until it fires); deadlines in the past as the
// cut (the socket would live until its reader came by); a pool of Responses (a stale Cancel would need generations); and
// net/http's transport (a goroutine pair per connection, and its own ideas about retrying).
package upstream

import (
	"slices"
	"strings"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// Model is a name clients ask for. Stored as JSON under the document kind "model".
type Model struct {
	Name            string            `json:"name" yaml:"-"`
	Channels        []string          `json:"channels" yaml:"channels"`       // empty: every channel of a provider that speaks the request's dialect
	Target          string            `json:"target,omitempty" yaml:"target"` // the provider's name for it; empty: the same
	QPSLimit        int64             `json:"qpsLimit" yaml:"qps_limit"`
	TPMLimit        int64             `json:"tpmLimit" yaml:"tpm_limit"`
	Price           llm.Price         `json:"price" yaml:"-"`
	Priced          bool              `json:"priced" yaml:"-"`
	Free            bool              `json:"free" yaml:"free"` // no price is meant, not missing
	MaxOutputTokens llm.Tokens        `json:"maxOutputTokens" yaml:"max_output_tokens"`
	Labels          map[string]string `json:"labels,omitempty" yaml:"labels"`
	ServiceTiers    map[string]uint32 `json:"serviceTiers,omitempty" yaml:"-"` // factors of Price in 1/1000, by the provider's name of the tier

	HostedTools  map[string]llm.Micro `json:"hostedTools,omitempty" yaml:"-"` // price of a call of a tool that the provider runs; others are refused
	MaxToolCalls int64                `json:"maxToolCalls,omitempty" yaml:"max_tool_calls"`

	Stored string `json:"stored,omitempty" yaml:"stored"` // refuse (or empty) | allow: references to what the provider keeps
}

// Channel is a provider, a base URL and a credential. Stored under "channel".
type Channel struct {
	ID               uint64 `json:"id" yaml:"-"`
	Name             string `json:"name" yaml:"name"`
	Provider         string `json:"provider" yaml:"provider"`                // openai | anthropic: the dialect it speaks
	BaseURL          string `json:"baseUrl" yaml:"base_url"`                 // with or without a trailing /v1
	Credential       string `json:"credential" yaml:"credential"`            // empty: none is sent
	APIVersion       string `json:"apiVersion,omitempty" yaml:"api_version"` // of Azure OpenAI, whose paths then name the deployment; empty: not Azure, or its /openai/v1
	Weight           int    `json:"weight" yaml:"weight"`                    // share among equal priority; 0 is 1
	Priority         int    `json:"priority" yaml:"priority"`                // higher first
	State            string `json:"state" yaml:"state"`                      // enabled (or empty) | disabled
	QPSLimit         int64  `json:"qpsLimit" yaml:"qps_limit"`
	TPMLimit         int64  `json:"tpmLimit" yaml:"tpm_limit"`
	ConcurrencyLimit int64  `json:"concurrencyLimit" yaml:"concurrency_limit"`
}

// Options configure the client side. A field left 0 takes its default.
type Options struct {
	Attempts         int   `yaml:"attempts"`      // before the first byte, 1..3
	RetryPercent     int   `yaml:"retry_percent"` // of requests in any 10 s that may be sent again, over all channels; 200: all, with 3 attempts
	ConnectTimeoutMS int64 `yaml:"connect_timeout_ms"`
	HeaderTimeoutMS  int64 `yaml:"header_timeout_ms"` // request sent to first byte
	IdleTimeoutMS    int64 `yaml:"idle_timeout_ms"`   // between two reads of an answer; a buffered one has wholeIdles of them in all
	ResponseBytes    int64 `yaml:"response_bytes"`    // a buffered answer
	EventBytes       int64 `yaml:"event_bytes"`       // one SSE event

	Connections      int   `yaml:"connections"`        // open to one channel at a time
	IdleConnections  int   `yaml:"idle_connections"`   // kept to one channel for reuse
	IdleConnectionMS int64 `yaml:"idle_connection_ms"` // how long an unused connection is kept, or less where the peer says that it closes it sooner

	QueueRequests int    `yaml:"queue_requests"`       // that may wait for a place on one channel, shared evenly by the callers that wait
	QueueWaitMS   int64  `yaml:"queue_wait_ms"`        // how long one waits
	Adapt         string `yaml:"adaptive_concurrency"` // AdaptAfterOverload | AdaptAlways | AdaptOff
	AdaptStart    int    `yaml:"adaptive_start"`       // places on a channel to begin with
	Reach         string `yaml:"reach"`                // ReachPublic | ReachWritten | ReachPrivate
}

// Defaults is o with every field that is 0 filled in.
func (o Options) Defaults() Options {
	fill(&o.Attempts, 3)
	fill(&o.RetryPercent, 10)
	fill(&o.ConnectTimeoutMS, 5_000)
	fill(&o.HeaderTimeoutMS, 120_000)
	fill(&o.IdleTimeoutMS, 120_000)
	fill(&o.ResponseBytes, 64<<20)
	fill(&o.EventBytes, 4<<20)
	fill(&o.Connections, 2048)
	fill(&o.IdleConnections, 256)
	fill(&o.IdleConnectionMS, 45_000)
	fill(&o.QueueRequests, 64)
	fill(&o.QueueWaitMS, 1_000)
	fill(&o.Adapt, AdaptAfterOverload)
	fill(&o.AdaptStart, 20)
	fill(&o.Reach, ReachWritten)
	return o
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate checks o after Defaults; the error is a KindInvalid *llm.Error whose Param is the field's name in yaml.
func (o Options) Validate() error {
	for _, f := range [...]struct {
		name      string
		v, lo, hi int64
	}{
		{"attempts", int64(o.Attempts), 1, 3},
		{"retry_percent", int64(o.RetryPercent), 1, 200},
		{"connect_timeout_ms", o.ConnectTimeoutMS, 1, 600_000},
		{"header_timeout_ms", o.HeaderTimeoutMS, 1, 3_600_000},
		{"idle_timeout_ms", o.IdleTimeoutMS, 1, 3_600_000},
		{"response_bytes", o.ResponseBytes, 1 << 10, 1 << 30},
		{"event_bytes", o.EventBytes, 1 << 10, 1 << 30},
		{"connections", int64(o.Connections), 1, 65_536},
		{"idle_connections", int64(o.IdleConnections), 1, 65_536},
		{"idle_connection_ms", o.IdleConnectionMS, 1, 3_600_000},
		{"queue_requests", int64(o.QueueRequests), 1, 65_536},
		{"queue_wait_ms", o.QueueWaitMS, 1, 60_000},
		{"adaptive_start", int64(o.AdaptStart), 1, 65_536},
	} {
		if f.v < f.lo || f.v > f.hi {
			return llm.Invalid(f.name, "%s is %d; expected %d to %d", f.name, f.v, f.lo, f.hi)
		}
	}
	for _, f := range [...]struct {
		name, v string
		among   []string
	}{
		{"adaptive_concurrency", o.Adapt, []string{AdaptAfterOverload, AdaptAlways, AdaptOff}},
		{"reach", o.Reach, []string{ReachPublic, ReachWritten, ReachPrivate}},
	} {
		if !slices.Contains(f.among, f.v) {
			return llm.Invalid(f.name, "%s is %q; expected %s%s", f.name, f.v, strings.Join(f.among, ", "), didYouMean(f.v, f.among))
		}
	}
	return nil
}

// Caller is whose request it is, by ids; zero: it is not known. What the requests of one key make a channel do keeps no other
// key from it, nor what those of one org do another org.
type Caller struct{ Org, Key uint64 }

// Request is one call to make. Body is the client's, verbatim; Do forwards it with the splices that Head's spans
// allow: the granted cap, include_usage, the target model. Nothing else is changed.
type Request struct {
	Head      *llm.Head
	Body      []byte
	Model     *Model
	Granted   llm.Tokens // cap over all choices to send; 0: leave the body's
	RequestID string
	Caller    Caller
	Beta      []byte        // anthropic-beta of the client
	Version   []byte        // anthropic-version of the client; empty: 2023-06-01
	Peek      time.Duration // how long the first event of a stream is waited for, so that an error in it is the attempt's; 0: it is not looked at
	Sim       []byte        // x-sim of the client, for tests; sent only to channels on a loopback address

	// Began is told of the answer before anything is done for it, in Do's goroutine: from then on Cancel cuts the call, whatever
	// it waits for. nil: nobody is.
	Began func(*Response)
}

// Hold is what Do tells the owner of the reservation about each attempt; the proxy stands behind it. All calls come
// from the goroutine that called Do. An attempt that ctx cut gets no Refused: what it owes is the owner's to say.
type Hold interface {
	// Attempt asks whether this channel has room; if not, the next is tried, and this one again after the wait, 0 for never,
	// if the request still waits for a place then. Called before anything is written.
	Attempt(ch *Channel) (room bool, wait time.Duration)
	// Sent is called when the first byte of the request is about to be written.
	Sent(ch *Channel)
	// Refused is called when the attempt ended without an answer to relay, or was not made because too many requests are
	// being sent again.
	Refused(ch *Channel)
}

// Health is one channel's state, for admin and metrics.
type Health struct {
	Channel    string
	State      string // up | cooling | probing | disabled
	UntilMS    int64  // how long it still sleeps
	Failures   int64  // in a row
	LastStatus int    // of its latest answer; 0: the latest attempt brought none
	InFlight   int64
	Limit      int64 // of InFlight, as configured, learned, or while it wakes; 0: none
	Waiting    int   // for a place
}

// Response is an upstream's answer. Its owner must Close it, once; a fully read answer gives its connection back.
// One goroutine reads it; Cancel alone may come from others.
type Response struct {
	Channel     *Channel
	Status      int
	ContentType string
	Stream      bool          // an event stream: use Next; otherwise Body
	FirstByte   time.Duration // Mono when the answer's head came, and of a stream what was peeked at
	Attempted   []string      // channels, in order, this one last
	Refusal     *llm.Error    // to be told in place of a body that refuses the request, but not in the dialect's words; nil: the body is
	reading
}

// Reported tells which halves of its usage a provider has reported. Anthropic's message_start has the input alone, and some
// servers leave one half out, or have null or a negative number for it: nothing is known of that half then, not even that
// it was none.
type Reported struct{ Input, Output bool }

// Whole tells that both were.
func (r Reported) Whole() bool { return r.Input && r.Output }

// Event is one parsed SSE event: raw bytes with their terminator, and what they mean in the dialect. Everything in it
// is valid only during the visit.
type Event struct {
	Raw      []byte
	Data     []byte   // joined data lines
	Delta    []byte   // the first of Deltas, or nil
	Deltas   [][]byte // every text the event adds (content, reasoning, tool names and arguments, all choices), JSON-escaped as on the wire
	Unread   int      // bytes of an event without deltas that are not understood; they count as a token per four, rounded up
	Usage    llm.Usage
	HasUsage bool // the event carried usage; Usage is what the stream has reported up to here
	Terminal bool // [DONE], message_stop, response.completed | incomplete | failed
	Error    bool // the upstream's own error event; response.failed is both Terminal and Error
	Empty    bool // a usage chunk without choices: reaches only the client that asked for it
	// Null is from where to where in Raw a usage member stands that is null, a comma included: what other chunks carry where
	// usage was asked for. Equal: there is none, or it is spread over two lines.
	Null    [2]int
	resumes bool // lines of id or retry are in Raw
}
