package sim

import (
	"strconv"

	"github.com/weir-gateway/weir/core/llm"
)

// messageBody is a buffered message.
func (r *reply) messageBody(dst []byte) []byte {
	dst = r.messageHead(dst)
	dst = append(dst, `[{"type":"text","text":"`...)
	dst = r.text.all(dst)
	dst = append(dst, `"}],"stop_reason":"`...)
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
	if r.capped {
		return "max_tokens"
	}
	return "end_turn"
}

// messageScript is a streamed message of one text block. Input is reported at the start, output at the end.
func (r *reply) messageScript() script {
	start := r.messageHead([]byte(`{"type":"message_start","message":`))
	start = append(start, `[],"stop_reason":null,"stop_sequence":null`...)
	start = append(r.messageUsage(start, 1), "}}"...)
	s := script{deltas: r.text.n, name: "content_block_delta"}
	s.before = []event{
		{"message_start", start},
		{"content_block_start", []byte(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`)},
		{"ping", []byte(`{"type":"ping"}`)},
	}
	s.delta = func(dst []byte, i int) []byte {
		dst = append(dst, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"`...)
		dst = r.text.append(dst, i)
		return append(dst, `"}}`...)
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
	s.after = []event{
		{"content_block_stop", []byte(`{"type":"content_block_stop","index":0}`)},
		{"message_delta", append(end, '}')},
	}
	if !r.b.NoDone {
		s.after = append(s.after, event{"message_stop", []byte(`{"type":"message_stop"}`)})
	}
	return s
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
