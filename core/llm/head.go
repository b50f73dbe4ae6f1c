package llm

// Endpoint is a client route. The numbers are the policy ABI's.
type Endpoint uint8

// The routes that reach an upstream.
const (
	Chat        Endpoint = iota + 1 // POST /v1/chat/completions
	Completions                     // POST /v1/completions
	Embeddings                      // POST /v1/embeddings
	Responses                       // POST /v1/responses
	Messages                        // POST /v1/messages
	CountTokens                     // POST /v1/messages/count_tokens
)

// Path is the endpoint's route on the client listener and, below the channel's base URL, at the provider.
func (e Endpoint) Path() string {
	return [...]string{"", "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses",
		"/v1/messages", "/v1/messages/count_tokens"}[min(e, CountTokens)]
}

// Dialect is the wire family of a route, a provider and an error object.
type Dialect uint8

// The dialects.
const (
	OpenAI Dialect = iota
	Anthropic
)

// Dialect is the endpoint's family.
func (e Endpoint) Dialect() Dialect {
	if e >= Messages {
		return Anthropic
	}
	return OpenAI
}

// Span is a byte range of the body: body[Off:End].
type Span struct{ Off, End int32 }

// In gives the bytes of s in body.
func (s Span) In(body []byte) []byte { return body[s.Off:s.End] }

// Empty reports that the field was absent.
func (s Span) Empty() bool { return s.End == 0 }

// Tri is a boolean that may be absent.
type Tri uint8

// The values of a Tri.
const (
	Absent Tri = iota
	False
	True
)

// Head is what one strict pass over a request body finds out. It owns no memory of the body: spans point into it.
// A Head is reused between requests (Reset by ScanHead); it is not safe for concurrent use.
type Head struct {
	Endpoint Endpoint
	Stream   bool
	Tools    bool
	Files    bool // audio or files; Attachments of them
	Images   int  // each counted as one flat image
	Messages int  // chat messages, prompts or embedding inputs: each carries the dialect's fixed overhead
	Names    int  // chat messages with a name, which carries an overhead of its own

	Attachments int // audio clips and files, each counted flat

	// Stored: part of the input is kept by the provider and not in the body (previous_response_id, conversation, a
	// prompt by its id, an item reference), so that it can only be counted flat.
	Stored bool

	// Refers is the first member that names something the provider keeps, by an id that it gave to whoever made it: what
	// is Stored, files, vector stores, containers. Empty: none does.
	Refers string

	// What the provider's price depends on beside the model, inside the quotes, escapes in place; empty when absent or
	// null. Speed and Geo (inference_geo) are of /v1/messages, Modality is what modalities has beside text in OpenAI's dialect.
	ServiceTier, Speed, Geo, Modality Span

	Model   Span // inside the quotes, escapes in place
	EndUser Span // body "user" (OpenAI) or metadata.user_id (Anthropic), inside the quotes, escapes in place

	// OutputCap is the largest of max_tokens, max_completion_tokens and max_output_tokens; -1 when none is given.
	OutputCap Tokens
	// Choices is the largest of n and best_of, times the number of prompts of /v1/completions; at least 1.
	Choices int

	// Hosted are the tools that the provider runs itself and charges for by the call: every one that is not known to be the
	// client's. ToolCap is the most of their calls that max_tool_calls of /v1/responses allows; -1 when none is given.
	Hosted  []Hosted
	ToolCap int64

	// Texts are the spans whose tokens count as input: string contents between their quotes (escapes still in
	// place), and the raw JSON of tools and schemas. TextTokens counts integer token arrays given instead of text.
	Texts      []Text
	TextTokens Tokens

	// Where the upstream body differs from the client's: the values to replace, and the offset just after the
	// opening brace where members may be inserted. The body always has a member (model), so an inserted one ends in
	// a comma.
	Caps          []Span // values of the caps that were given; when all are null, those, and OutputCap is -1
	IncludeUsage  Tri    // stream_options.include_usage
	UsageValue    Span   // its value, null included; empty when it is not there
	StreamOptions Span   // the whole value of stream_options, which may be null
	NullToolCap   Span   // the value of max_tool_calls where it is null
	Insert        int32
}

// Hosted is one tool that the provider runs.
type Hosted struct {
	Type    Span  // inside the quotes, escapes in place; of a member that stands for a tool: the part of its name that says which
	Open    int32 // just behind the brace of a tool, where members may be inserted; 0: it is none
	Uses    int64 // max_uses; -1 when none is given
	NullUse Span  // the value of max_uses where it is null
}

// Text is one span to count. Raw text is JSON syntax counted as it stands; the rest is string content whose
// escapes are undone first.
type Text struct {
	Span
	Raw bool
}
