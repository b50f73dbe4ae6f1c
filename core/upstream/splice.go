package upstream

import (
	"bytes"
	"cmp"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/weir-gateway/weir/core/llm"
)

const (
	sendBuffer    = 8 << 10 // requests up to this size go out in one write
	anthropicDate = "2023-06-01"
)

// outgoing is one request as it goes out: the client's body with a few values replaced. The body is not copied as a
// whole and not written anew; what stands between the edits is sent as it was checked.
type outgoing struct {
	req     *Request
	edits   []edit
	text    []byte // backing of the edits' texts
	length  int64  // of the spliced body
	written []byte // buffer of send
}

// edit replaces body[off:end]; off == end inserts.
type edit struct {
	off, end int
	with     []byte
}

var outgoings = sync.Pool{New: func() any { return &outgoing{written: make([]byte, 0, sendBuffer)} }}

// newOutgoing plans the splices. The caller gives it back with free.
func newOutgoing(req *Request) *outgoing {
	o := outgoings.Get().(*outgoing)
	o.req, o.edits, o.text = req, o.edits[:0], o.text[:0]
	o.editModel()
	o.editCaps()
	o.editUsage()
	o.editTools()
	slices.SortStableFunc(o.edits, func(a, b edit) int { return cmp.Compare(a.off, b.off) })
	o.length = int64(len(req.Body))
	for _, e := range o.edits {
		o.length += int64(len(e.with) - (e.end - e.off))
	}
	return o
}

func (o *outgoing) free() {
	o.req = nil
	clear(o.edits)
	llm.Mangle(o.written)
	outgoings.Put(o)
}

func (o *outgoing) replace(off, end int, parts ...string) {
	from := len(o.text)
	for _, p := range parts {
		o.text = append(o.text, p...)
	}
	o.edits = append(o.edits, edit{off, end, o.text[from:len(o.text):len(o.text)]})
}

// editModel names the model as the provider does; without another name, the client's bytes stay as they are, escapes
// included. Names hold nothing that JSON must escape: NewCatalog saw to it.
func (o *outgoing) editModel() {
	at, target := o.req.Head.Model, o.req.Model.Target
	if target != "" && string(at.In(o.req.Body)) != target {
		o.replace(int(at.Off), int(at.End), target)
	}
}

// editCaps sends the granted cap: every cap of the body that is above it is lowered, and where there is none, one is
// inserted under the name that the endpoint and model know.
func (o *outgoing) editCaps() {
	head := o.req.Head
	if o.req.Granted <= 0 {
		return
	}
	name := capMember(head.Endpoint, cmp.Or(o.req.Model.Target, o.req.Model.Name))
	if name == "" {
		return
	}
	each := max(int64(o.req.Granted)/int64(max(head.Choices, 1)), 1)
	var digits [20]byte
	value := string(strconv.AppendInt(digits[:0], each, 10))
	given := false
	for _, at := range head.Caps {
		n, number := plainDigits(at.In(o.req.Body))
		given = given || number
		if number && n > each {
			o.replace(int(at.Off), int(at.End), value)
		}
	}
	if given {
		return
	}
	for _, at := range head.Caps { // all null
		if string(memberName(o.req.Body, at)) == name {
			o.replace(int(at.Off), int(at.End), value)
			return
		}
	}
	o.replace(int(head.Insert), int(head.Insert), `"`, name, `":`, value, `,`)
}

// editTools caps the calls of hosted tools that the body does not cap itself, where the dialect has a member for it: one
// for all of them at OpenAI, one for each search and fetch at Anthropic.
func (o *outgoing) editTools() {
	head := o.req.Head
	if len(head.Hosted) == 0 {
		return
	}
	value := strconv.FormatInt(o.req.Model.ToolCalls(), 10)
	switch {
	case head.Endpoint == llm.Messages:
		for i := range head.Hosted {
			h := &head.Hosted[i]
			if kind := string(h.Type.In(o.req.Body)); h.Uses < 0 && (strings.HasPrefix(kind, "web_search_") || strings.HasPrefix(kind, "web_fetch_")) {
				o.cap(h.NullUse, h.Open, "max_uses", value)
			}
		}
	case head.Endpoint == llm.Responses && head.ToolCap < 0:
		o.cap(head.NullToolCap, head.Insert, "max_tool_calls", value)
	}
}

// cap puts a value in the place of a null, or inserts the member.
func (o *outgoing) cap(null llm.Span, insert int32, name, value string) {
	if !null.Empty() {
		o.replace(int(null.Off), int(null.End), value)
		return
	}
	o.replace(int(insert), int(insert), `"`, name, `":`, value, `,`)
}

// plainDigits reads a JSON integer; not ok for anything else.
func plainDigits(b []byte) (n int64, ok bool) {
	n, err := strconv.ParseInt(string(b), 10, 64)
	return n, err == nil && n >= 0
}

// memberName is the name before a value. ScanHead accepts known names without escapes only, so it has none.
func memberName(body []byte, value llm.Span) []byte {
	before := body[:value.Off]
	before = before[:max(bytes.LastIndexByte(before, '"'), 0)]
	return before[bytes.LastIndexByte(before, '"')+1:]
}

// capMember is the name under which an endpoint takes a cap on its output; empty: it has none. OpenAI's reasoning models
// refuse max_tokens; older servers that speak the dialect know nothing else.
func capMember(ep llm.Endpoint, model string) string {
	switch ep {
	case llm.Chat:
		model = model[strings.LastIndexByte(model, '/')+1:]
		for _, family := range [...]string{"o1", "o3", "o4", "gpt-5"} {
			if strings.HasPrefix(model, family) {
				return "max_completion_tokens"
			}
		}
		return "max_tokens"
	case llm.Completions, llm.Messages:
		return "max_tokens"
	case llm.Responses:
		return "max_output_tokens"
	}
	return ""
}

// editUsage asks an OpenAI stream to report its usage.
func (o *outgoing) editUsage() {
	head := o.req.Head
	if !head.Stream || head.Endpoint != llm.Chat && head.Endpoint != llm.Completions || head.IncludeUsage == llm.True {
		return
	}
	at := head.StreamOptions
	options := at.In(o.req.Body)
	switch {
	case !head.UsageValue.Empty():
		o.replace(int(head.UsageValue.Off), int(head.UsageValue.End), "true")
	case at.Empty():
		o.replace(int(head.Insert), int(head.Insert), `"stream_options":{"include_usage":true},`)
	case options[0] != '{': // null
		o.replace(int(at.Off), int(at.End), `{"include_usage":true}`)
	case len(bytes.TrimSpace(options[1:len(options)-1])) == 0:
		o.replace(int(at.Off)+1, int(at.Off)+1, `"include_usage":true`)
	default:
		o.replace(int(at.Off)+1, int(at.Off)+1, `"include_usage":true,`)
	}
}

// send writes the request. What it has not written when it fails, the peer cannot have read.
func (o *outgoing) send(w io.Writer, l *lane) error {
	o.written = l.appendHead(o.written[:0], o.req, o.length)
	at := 0
	for _, e := range o.edits {
		if err := o.add(w, o.req.Body[at:e.off]); err != nil {
			return err
		}
		if err := o.add(w, e.with); err != nil {
			return err
		}
		at = e.end
	}
	if err := o.add(w, o.req.Body[at:]); err != nil {
		return err
	}
	_, err := w.Write(o.written)
	return err
}

// add buffers p if it fits, else writes what is buffered, and p when it is long.
func (o *outgoing) add(w io.Writer, p []byte) error {
	if len(o.written)+len(p) <= cap(o.written) {
		o.written = append(o.written, p...)
		return nil
	}
	room := cap(o.written) - len(o.written)
	o.written = append(o.written, p[:room]...)
	if _, err := w.Write(o.written); err != nil {
		return err
	}
	o.written, p = o.written[:0], p[room:]
	if len(p) < cap(o.written) {
		o.written = append(o.written, p...)
		return nil
	}
	_, err := w.Write(p)
	return err
}

// opening is what all requests of a channel to an endpoint begin with. Where the path names the deployment, which is the
// model as the provider calls it, that stands between the two parts.
type opening struct {
	head     []byte
	deployed bool
	tail     []byte // behind the deployment
}

// appendTo writes the opening of a request for a model.
func (o *opening) appendTo(b []byte, m *Model) []byte {
	b = append(b, o.head...)
	if o.deployed {
		b = append(append(b, url.PathEscape(cmp.Or(m.Target, m.Name))...), o.tail...)
	}
	return b
}

func requestOpening(ep llm.Endpoint, ch *Channel, s *site, via *forward) (o opening) {
	o.head = []byte("POST ")
	if via != nil && !s.secure {
		o.head = append(o.head, "http://"+s.host...)
	}
	o.head = append(o.head, s.prefix...)
	part := &o.head
	path := strings.TrimPrefix(ep.Path(), "/v1")
	switch {
	case ch.APIVersion == "":
		*part = append(*part, "/v1"+path...)
	case ep == llm.Responses: // names its model in the body
		*part = append(*part, "/openai"+path+"?api-version="+ch.APIVersion...)
	default:
		o.head, o.deployed, part = append(o.head, "/openai/deployments/"...), true, &o.tail
		*part = append(*part, path+"?api-version="+ch.APIVersion...)
	}
	*part = append(*part, " HTTP/1.1\r\nHost: "+s.host+"\r\nContent-Type: application/json\r\nAccept-Encoding: identity\r\nUser-Agent: weir\r\n"...)
	if !s.secure {
		*part = append(*part, via.header()...)
	}
	*part = append(*part, ch.authorization()...)
	return o
}

// authorization is the header that carries the credential.
func (ch *Channel) authorization() string {
	switch {
	case ch.Credential == "":
		return ""
	case ch.Provider == "anthropic":
		return "x-api-key: " + ch.Credential + "\r\n"
	case ch.APIVersion != "":
		return "api-key: " + ch.Credential + "\r\n"
	}
	return "Authorization: Bearer " + ch.Credential + "\r\n"
}

// appendHead writes the request head, its end included.
func (l *lane) appendHead(b []byte, req *Request, length int64) []byte {
	b = l.heads[req.Head.Endpoint].appendTo(b, req.Model)
	if l.channel.Provider == "anthropic" {
		version := req.Version
		if len(version) == 0 {
			version = []byte(anthropicDate)
		}
		b = header(b, "anthropic-version", version)
		b = header(b, "anthropic-beta", req.Beta)
	}
	if req.Head.Stream {
		b = append(b, "Accept: text/event-stream\r\n"...)
	} else {
		b = append(b, "Accept: application/json\r\n"...)
	}
	if req.RequestID != "" {
		b = append(append(append(b, "X-Request-Id: "...), req.RequestID...), "\r\n"...)
	}
	if l.site.loopback {
		b = header(b, "x-sim", req.Sim)
	}
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, length, 10)
	return append(b, "\r\n\r\n"...)
}

func header(b []byte, name string, value []byte) []byte {
	if len(value) == 0 {
		return b
	}
	b = append(append(b, name...), ": "...)
	return append(append(b, value...), "\r\n"...)
}
