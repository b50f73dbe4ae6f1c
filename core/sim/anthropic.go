package sim

import (
	"strconv"

	"github.com/weir-gateway/weir/core/llm"
)

// messageBody is a buffered message.
func (r *reply) messageBody(dst []byte) []byte {
	dst = r.messageHead(dst)
	dst = append(dst, '[')
	if r.thought.n > 0 {
		dst = append(dst, `{"type":"thinking","thinking":"`...)
		dst = r.thought.all(dst)
		dst = append(dst, `","signature":"`+thinkingSignature+`"},`...)
	}
	if len(r.calls) == 0 {
		dst = append(dst, `{"type":"text","text":"`...)
		dst = append(r.text.all(dst), `"}`...)
	}
	for i := range r.calls {
		dst = append(dst, comma(i)...)
		dst = r.toolUse(dst, i, r.calls[i].raw)
	}
	dst = append(dst, `],"stop_reason":"`...)
	dst = append(dst, r.stopReason()...)
	dst = append(dst, `","stop_sequence":null`...)
	dst = r.messageUsage(dst, r.usage.OutputTokens)
	return append(dst, '}')
}

// messageHead writes the members before the content.
func (r *reply) messageHead(dst []byte) []byte {
	dst = append(dst, `{"id":"msg_`...)
	dst = append(dst, r.id...)
	dst = append(dst, `","type":"message","role":"assistant","model":"`...)
	dst = append(dst, quoted(r.model)...)
	return append(dst, `","content":`...)
}

// messageUsage reports the three disjoint input classes, as this dialect does.
func (r *reply) messageUsage(dst []byte, output llm.Tokens) []byte {
	switch r.b.Usage {
	case UsageNone:
		return dst
	case UsageNull:
		return append(dst, `,"usage":null`...)
	}
	u := r.usage
	dst = append(dst, `,"usage":{"input_tokens":`...)
	dst = appendTokens(dst, u.InputTokens-u.CachedInputTokens-u.CacheWriteTokens)
	dst = append(dst, `,"cache_creation_input_tokens":`...)
	dst = appendTokens(dst, u.CacheWriteTokens)
	dst = append(dst, `,"cache_read_input_tokens":`...)
	dst = appendTokens(dst, u.CachedInputTokens)
	dst = append(dst, `,"output_tokens":`...)
	dst = appendTokens(dst, output)
	return append(dst, `,"service_tier":"standard"}`...)
}

func (r *reply) stopReason() string {
	switch {
	case len(r.calls) > 0:
		return "tool_use"
	case r.capped:
		return "max_tokens"
	}
	return "end_turn"
}

// messageScript is a streamed message: thinking, then one text block or the calls. Input is reported at the start, output at
// the end.
func (r *reply) messageScript() script {
	start := r.messageHead([]byte(`{"type":"message_start","message":`))
	start = append(start, `[],"stop_reason":null,"stop_sequence":null`...)
	start = append(r.messageUsage(start, 1), "}}"...)
	s := messageStream{script: script{deltas: r.text.n, name: "content_block_delta"}}
	s.before = []event{{name: "message_start", data: start}}
	s.block(r.thinkingBlock())
	for i := range r.calls {
		s.block(r.callBlock(i))
	}
	if len(r.calls) == 0 {
		s.open(`{"type":"text","text":""}`)
	}
	s.before = append(s.before, event{name: "ping", data: []byte(`{"type":"ping"}`)})
	index := strconv.Itoa(s.blocks)
	s.delta = func(dst []byte, i int) []byte {
		dst = append(append(append(dst, `{"type":"content_block_delta","index":`...), index...), `,"delta":{"type":"text_delta","text":"`...)
		dst = r.text.append(dst, i)
		return append(dst, `"}}`...)
	}
	if len(r.calls) == 0 {
		s.after = []event{s.close()}
	}
	end := append([]byte(`{"type":"message_delta","delta":{"stop_reason":"`), r.stopReason()...)
	end = append(end, `","stop_sequence":null}`...)
	switch r.b.Usage {
	case UsageReported:
		end = append(end, `,"usage":{"output_tokens":`...)
		end = append(appendTokens(end, r.usage.OutputTokens), '}')
	case UsageNull:
		end = append(end, `,"usage":null`...)
	}
	s.after = append(s.after, event{name: "message_delta", data: append(end, '}')})
	if !r.b.NoDone {
		s.after = append(s.after, event{name: "message_stop", data: []byte(`{"type":"message_stop"}`)})
	}
	return s.script
}

// thinkingSignature stands for what the provider signs its thinking with.
const thinkingSignature = "c2ltdWxhdGVkIHNpZ25hdHVyZQ=="

// block is a whole content block of a stream: how it starts, and the deltas that fill it.
type block struct {
	start  string
	deltas []event // of which each is the object of a delta
}

// messageStream is a message's script while its blocks are numbered.
type messageStream struct {
	script
	blocks int
}

func (s *messageStream) open(start string) {
	s.before = append(s.before, event{name: "content_block_start",
		data: []byte(`{"type":"content_block_start","index":` + strconv.Itoa(s.blocks) + `,"content_block":` + start + `}`)})
}

func (s *messageStream) close() event {
	s.blocks++
	return event{name: "content_block_stop", data: []byte(`{"type":"content_block_stop","index":` + strconv.Itoa(s.blocks-1) + `}`)}
}

// block adds a whole block; one without a start is none.
func (s *messageStream) block(b block) {
	if b.start == "" {
		return
	}
	s.open(b.start)
	for _, d := range b.deltas {
		data := append([]byte(`{"type":"content_block_delta","index":`+strconv.Itoa(s.blocks)+`,"delta":`), d.data...)
		s.before = append(s.before, event{name: "content_block_delta", data: append(data, '}'), tokens: d.tokens})
	}
	s.before = append(s.before, s.close())
}

func (r *reply) thinkingBlock() (b block) {
	if r.thought.n == 0 {
		return b
	}
	b.start = `{"type":"thinking","thinking":"","signature":""}`
	for i := range r.thought.n {
		d := append(r.thought.append([]byte(`{"type":"thinking_delta","thinking":"`), i), `"}`...)
		b.deltas = append(b.deltas, event{data: d, tokens: 1})
	}
	b.deltas = append(b.deltas, event{data: []byte(`{"type":"signature_delta","signature":"` + thinkingSignature + `"}`)})
	return b
}

func (r *reply) callBlock(i int) block {
	c := r.calls[i]
	b := block{start: string(r.toolUse(nil, i, "{}"))}
	for _, part := range append([]string{""}, c.parts...) {
		b.deltas = append(b.deltas, event{data: []byte(`{"type":"input_json_delta","partial_json":"` + part + `"}`)})
	}
	b.deltas[len(b.deltas)-1].tokens = c.tokens()
	return b
}

// toolUse is the content block of the i-th call.
func (r *reply) toolUse(dst []byte, i int, input string) []byte {
	dst = r.callID(append(dst, `{"type":"tool_use","id":"`...), "toolu_", i)
	dst = append(append(dst, `","name":"`...), quoted(r.calls[i].name)...)
	return append(append(append(dst, `","input":`...), input...), '}')
}

// countBody is the answer of the counting route.
func (r *reply) countBody(dst []byte) []byte {
	dst = append(dst, `{"input_tokens":`...)
	dst = appendTokens(dst, r.usage.InputTokens)
	return append(dst, '}')
}

// anthropicError is the dialect's error object.
func anthropicError(f *failure, id []byte) []byte {
	dst := append([]byte(`{"type":"error","error":{"type":"`), anthropicErrorType(f.status)...)
	dst = append(dst, `","message":"`...)
	dst = append(dst, quoted(f.message)...)
	dst = append(dst, `"},"request_id":"req_`...)
	dst = append(dst, id...)
	return append(dst, `"}`...)
}

func anthropicErrorType(status int) string {
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
	case 529:
		return "overloaded_error"
	}
	if status >= 500 {
		return "api_error"
	}
	return "invalid_request_error"
}

// appendID is the n-th id of this simulation.
func appendID(dst []byte, n uint64) []byte { return strconv.AppendUint(append(dst, "sim"...), n, 36) }
