package upstream

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// Providers that are overloaded often say so in the first event of a stream, or in the body of an answer, behind a status of
// 200; and what stands before a provider may answer 200 with what is no answer at all. As long as nothing has gone to the client
// that is a failure like any other: another channel is tried, or the client gets a status it understands. So the first event, or
// the whole body, is looked at before the answer is given out.

var peekers = sync.Pool{New: func() any { return NewParser(llm.Chat) }}

// peek reads the first event of a stream, when it comes within Request.Peek, and makes a head of it when it is an error.
// The error is that the stream broke before it, or that it is no answer's.
func (d *doing) peek(h *head) error {
	d.heard, d.r.body, d.opened = d.client.clock.Mono(), nil, false
	switch stream := isEventStream(d.contentType(h)); {
	case h.status >= 300 || h.frame.done || h.coded || stream && d.req.Peek <= 0:
		return nil
	case !stream:
		return d.whole(h)
	}
	r := d.r
	d.opened = true
	r.open(h)
	raw, from, err := r.first(d.req.Peek)
	d.heard = d.client.clock.Mono()
	switch {
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
		fallthrough
	case err != nil:
		r.renew()
		return err
	case raw == nil:
		return nil
	}
	return d.begins(h, raw[from:])
}

// begins judges an answer by its first event.
func (d *doing) begins(h *head, raw []byte) error {
	p := peekers.Get().(*Parser)
	p.Reset(d.req.Head.Endpoint)
	is, data := p.opening(raw)
	peekers.Put(p)
	if is == answers {
		return nil
	}
	d.r.renew()
	if is == nothing {
		return errNoAnswer
	}
	h.status, h.contentType = statusOf(data), "application/json"
	d.r.body = refusalOf(d.req.Head.Endpoint, data)
	return nil
}

// whole reads a buffered answer, and gives it the status that it means. The error is that it broke before its end, or is no
// answer. One that is too large is: it would be so from every channel, and Body says so. Of a stream by another name, as some
// servers send it, the first event is looked at.
func (d *doing) whole(h *head) error {
	r := d.r
	d.opened = true
	r.open(h)
	body, err := r.readBody(r.client.opt.ResponseBytes)
	switch {
	case errors.Is(err, errLarge):
		return nil
	case err == nil && len(body) == 0:
		err = errors.New("it answered with an empty body")
		fallthrough
	case err != nil:
		r.renew()
		return err
	}
	r.body = body
	if c := inBody(body); d.req.Head.Stream && c.peek() != '{' && hasData(body) {
		return d.begins(h, body)
	}
	switch judge(d.req.Head.Endpoint, body, false) {
	case nothing:
		r.renew()
		return errNoAnswer
	case refuses:
		r.renew()
		body = bytes.TrimPrefix(body, bom)
		h.status, r.body = statusOf(body), body
	}
	return nil
}

const (
	complaintBytes = 256 << 10 // of an answer that refuses the request; of more, what it says is not read
	complaintText  = 4 << 10   // of what such an answer says, where it is told in our words
)

// complaint reads an answer that refuses the request, and says in whose words the client is told: those of an API are passed on,
// and of what else may stand between (a proxy's page, a server with errors of its own form) no more than the text. A path that
// is not there, without an API's error, is not the client's fault: the channel does not lead to an API.
func (d *doing) complaint(h *head) error {
	if _, relay := classify(h); !relay || h.status < 400 {
		return nil
	}
	r := d.r
	if r.body == nil {
		d.opened = true
		r.open(h)
		body, err := r.readBody(min(complaintBytes, r.client.opt.ResponseBytes))
		if err != nil {
			r.renew()
		}
		if err != nil && !errors.Is(err, errLarge) {
			return err
		}
		if r.body = body; body == nil {
			r.body = []byte{}
		}
	}
	api, object, text := says(r.body)
	switch {
	case object:
		h.contentType = "application/json"
		return nil
	case !api && (h.status == 404 || h.status == 405):
		r.renew()
		h.astray = true
		return nil
	case text == "":
		text = fmt.Sprintf("the upstream refused the request with status %d", h.status)
	}
	r.Refusal = &llm.Error{Kind: llm.KindInvalid, Status: h.status, Code: "upstream_refused", Message: text}
	return nil
}

// says reads what refuses a request: whether it is an error of an API, whether it is an error object as both dialects have it, and
// else the text in it; empty: there is none.
func says(body []byte) (api, object bool, text string) {
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil {
		return false, false, ""
	}
	if e := members["error"]; len(e) > 0 && e[0] == '{' {
		return true, true, ""
	}
	for _, name := range [...]string{"error", "message", "detail"} {
		v := members[name]
		if len(v) == 0 || string(v) == "null" {
			continue
		}
		if json.Unmarshal(v, &text) != nil {
			text = string(v)
		}
		text = strings.ToValidUTF8(text[:min(len(text), complaintText)], "")
		return name == "error" || string(members["object"]) == `"error"`, false, text
	}
	return false, false, ""
}

// open takes over the framing of the body behind a head.
func (r *Response) open(h *head) {
	r.frame, r.last = h.frame, h.closing
	if r.conn != nil {
		r.conn.keep = h.keep
	}
	if r.frame.done {
		r.finish()
	}
}

// renew makes r as before its attempt, for another one.
func (r *Response) renew() {
	r.discard()
	r.events.free()
	r.frame, r.err, r.giveUp, r.ends, r.peeked, r.body = frame{}, nil, time.Time{}, time.Time{}, nil, nil
}

// saysData tells a line of data that is more than a sign of life.
func saysData(line []byte) bool {
	value, ok := bytes.CutPrefix(line, []byte("data:"))
	return ok && len(bytes.TrimSpace(value)) > 0
}

// first waits for an event that has data, at most d, and leaves it to NextWithin, with the comments before it; nil: there is
// none yet. A provider may send any number of comments, so each is looked at once: up to from there are no others.
func (r *Response) first(d time.Duration) (raw []byte, from int, err error) {
	var until time.Time
	for {
		raw, err = r.next(&until, d)
		if raw == nil || err != nil || hasData(raw[from:]) {
			if r.peeked = r.lane.secret.hide(raw); len(raw) > 0 && &r.peeked[0] != &raw[0] {
				from = 0 // what was blotted out has moved the rest
			}
			return r.peeked, from, err
		}
		if r.err != nil && r.events.given == len(r.events.buf) {
			return nil, 0, r.err // that was all of it
		}
		from = len(raw)
		r.events.given = 0
	}
}

// Begun tells whether a stream's first event has come: Next has it at once.
func (r *Response) Begun() bool { return r.peeked != nil }

func hasData(raw []byte) bool {
	l := walk(raw, 0)
	for {
		start, end, _, ok := l.next()
		if saysData(raw[start:end]) {
			return true
		}
		if !ok {
			return false
		}
	}
}

// complaint is what an error event says went wrong.
type complaint struct {
	status     int // as some servers put it into the code
	code, kind []byte
	object     []byte // the error object; nil: the event is one itself
}

func complaintOf(data []byte) (k complaint) {
	k.read(cursor{b: data})
	return k
}

func (k *complaint) read(c cursor) {
	each(&c, func(name []byte) {
		switch string(name) {
		case "code", "status":
			v := c.value()
			if n, err := strconv.Atoi(string(v)); err == nil && n >= 400 && n < 600 {
				k.status = n
			} else if len(v) > 2 && v[0] == '"' && string(name) == "code" {
				k.code = v[1 : len(v)-1]
			}
		case "type":
			k.kind, _ = c.str()
		case "error", "response":
			inner := c
			v := c.value()
			if len(v) == 0 || v[0] != '{' {
				return
			}
			if string(name) == "error" {
				k.object = v
			}
			k.read(inner)
		default:
			c.skip()
		}
	})
}

// statusOf is the status that an error event stands for. Of what is not known it is the channel's failure.
func statusOf(data []byte) int {
	k := complaintOf(data)
	if k.status != 0 {
		return k.status
	}
	if status := statusNamed(k.code); status != 0 {
		return status
	}
	return cmp.Or(statusNamed(k.kind), 500)
}

func statusNamed(name []byte) int {
	switch string(name) {
	case "overloaded_error", "overloaded", "server_is_overloaded", "slow_down":
		return 529
	case "rate_limit_error", "rate_limit_exceeded", "insufficient_quota", "requests", "tokens", "too_many_requests":
		return 429
	case "invalid_request_error", "invalid_prompt", "context_length_exceeded", "content_filter", "invalid_image":
		return 400
	case "authentication_error", "invalid_api_key":
		return 401
	case "billing_error":
		return 402
	case "permission_error":
		return 403
	case "not_found_error", "model_not_found":
		return 404
	case "request_too_large":
		return 413
	}
	return 0
}

// refusalOf makes the body of an answer of an error event.
func refusalOf(ep llm.Endpoint, data []byte) []byte {
	if ep.Dialect() == llm.Anthropic {
		return data
	}
	object := complaintOf(data).object
	if object == nil {
		object = data
	}
	return slices.Concat([]byte(`{"error":`), object, []byte("}"))
}
