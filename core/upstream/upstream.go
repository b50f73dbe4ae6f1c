// Package upstream knows models and channels and carries one request to a provider: attempts, cool-downs, dialects,
// SSE framing, usage extraction.
package upstream

import (
	"context"
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
}

// Channel is a provider, a base URL and a credential. Stored under "channel".
type Channel struct {
	ID               uint64 `json:"id" yaml:"-"`
	Name             string `json:"name" yaml:"name"`
	Provider         string `json:"provider" yaml:"provider"` // openai | anthropic: the dialect it speaks
	BaseURL          string `json:"baseUrl" yaml:"base_url"`  // with or without a trailing /v1
	Credential       string `json:"credential" yaml:"credential"`
	Weight           int    `json:"weight" yaml:"weight"`     // share among equal priority; 0 is 1
	Priority         int    `json:"priority" yaml:"priority"` // higher first
	State            string `json:"state" yaml:"state"`       // enabled | disabled
	QPSLimit         int64  `json:"qpsLimit" yaml:"qps_limit"`
	TPMLimit         int64  `json:"tpmLimit" yaml:"tpm_limit"`
	ConcurrencyLimit int64  `json:"concurrencyLimit" yaml:"concurrency_limit"`
}

// Options configure the client side.
type Options struct {
	Attempts         int   `yaml:"attempts"` // before the first byte, 1..3
	ConnectTimeoutMS int64 `yaml:"connect_timeout_ms"`
	HeaderTimeoutMS  int64 `yaml:"header_timeout_ms"` // request sent to first byte
	IdleTimeoutMS    int64 `yaml:"idle_timeout_ms"`   // between two reads of a stream
	ResponseBytes    int64 `yaml:"response_bytes"`    // a buffered answer
	EventBytes       int64 `yaml:"event_bytes"`       // one SSE event
}

// Catalog is an immutable view of models and channels; a change makes a new one. Channel health lives in the Client
// and survives a new catalog.
type Catalog struct{}

// NewCatalog checks and indexes. Errors name the model or channel and the nearest valid name.
func NewCatalog(models []Model, channels []Channel) (*Catalog, error) { panic("skeleton") }

// Model looks a name up; the bytes may alias a request buffer.
func (c *Catalog) Model(name []byte) (*Model, bool) { panic("skeleton") }

// Models lists by name; Channels by id.
func (c *Catalog) Models() []*Model     { panic("skeleton") }
func (c *Catalog) Channels() []*Channel { panic("skeleton") }

// Request is one call to make. Body is the client's, verbatim; Do forwards it with the splices that Head's spans
// allow: the granted cap, include_usage, the target model. Nothing else is changed.
type Request struct {
	Head      *llm.Head
	Body      []byte
	Model     *Model
	Granted   llm.Tokens // cap over all choices to send; 0: leave the body's
	RequestID string
	Beta      []byte // anthropic-beta of the client
	Version   []byte // anthropic-version of the client
}

// Hold is what Do tells the owner of the reservation about each attempt; the proxy stands behind it.
type Hold interface {
	// Attempt asks whether this channel has room; false: try the next. Called before anything is written.
	Attempt(ch *Channel) bool
	// Sent is called when the first byte of the request is about to be written.
	Sent(ch *Channel)
	// Refused is called when the attempt ended without an answer to relay.
	Refused(ch *Channel)
}

// Client makes calls over its own connections, so that each can be cut at any moment. Safe for concurrent use.
type Client struct{}

// NewClient makes a client; Close closes idle connections.
func NewClient(o Options, clock llm.Clock) *Client { panic("skeleton") }

// Close closes pooled connections and waits for goroutines.
func (c *Client) Close() { panic("skeleton") }

// Health is one channel's state, for admin and metrics.
type Health struct {
	Channel    string
	State      string // up | cooling | probing | disabled
	UntilMS    int64  // how long it still sleeps
	Failures   int64
	LastStatus int
}

// Health lists the channels' states.
func (c *Client) Health(cat *Catalog) []Health { panic("skeleton") }

// Do runs up to Options.Attempts attempts over the model's channels, in order of priority, weight and health, and
// returns the first answer that is to be relayed: a success, or a 4xx caused by the request itself. Otherwise a
// *llm.Error (KindUpstream, KindTimeout, KindRateLimited with a wait, KindNotFound for no channel). When ctx ends, the
// connection is cut at once, in any phase, and ctx.Err() is returned; that never counts as a channel's failure.
func (c *Client) Do(ctx context.Context, cat *Catalog, req *Request, hold Hold) (*Response, error) {
	panic("skeleton")
}

// Response is an upstream's answer. Its owner must Close it, once; a fully read answer gives its connection back.
type Response struct {
	Channel     *Channel
	Status      int
	ContentType string
	Stream      bool          // an event stream: use Next; otherwise Body
	FirstByte   time.Duration // Mono when the answer's head came
	Attempted   []string
}

// Body reads a whole buffered answer, at most Options.ResponseBytes.
func (r *Response) Body() ([]byte, error) { panic("skeleton") }

// Next gives the events that are already buffered, at least one: raw bytes ending at an event's end, valid until the
// next call. io.EOF after the last. Events inside are visited by Events.
func (r *Response) Next() ([]byte, error) { panic("skeleton") }

// Cancel cuts the connection; safe from any goroutine, any number of times. Reads return an error at once.
func (r *Response) Cancel() { panic("skeleton") }

// Close ends the answer.
func (r *Response) Close() { panic("skeleton") }

// Event is one parsed SSE event: raw bytes with their terminator, and what they mean in the dialect.
type Event struct {
	Raw      []byte
	Data     []byte   // joined data lines
	Delta    []byte   // text this event adds for the client (JSON-escaped content as it stands on the wire)
	Deltas   [][]byte // all texts when an event carries several (content, reasoning, tool arguments, choices)
	Usage    llm.Usage
	HasUsage bool
	Terminal bool // [DONE], message_stop, response.completed
	Error    bool // the upstream's own error event
	Empty    bool // a usage chunk without choices: reaches only the client that asked for it
}

// Parser walks the events of a stream in one dialect and endpoint; it keeps usage merged over events.
type Parser struct{}

// NewParser makes a parser.
func NewParser(ep llm.Endpoint) *Parser { panic("skeleton") }

// Parse splits raw (whole events) and visits each. It allocates nothing per event.
func (p *Parser) Parse(raw []byte, visit func(e *Event)) { panic("skeleton") }

// Usage is what the stream has reported so far; ok when it is the final word.
func (p *Parser) Usage() (u llm.Usage, ok bool) { panic("skeleton") }

// BufferedUsage extracts usage and the generated text's spans from a buffered answer.
func BufferedUsage(ep llm.Endpoint, body []byte) (u llm.Usage, ok bool, texts []llm.Text) {
	panic("skeleton")
}
