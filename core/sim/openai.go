package sim

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"

	"github.com/weir-gateway/weir/core/llm"
)

// event is one SSE event: an optional name and its data.
type event struct {
	name   string
	data   []byte
	tokens int // of output that it brings, where it is no delta
}

// script is a whole stream: what comes before the text, one event for each piece of it, and what comes after.
type script struct {
	before []event
	deltas int
	delta  func(dst []byte, i int) []byte // the data of the i-th delta, added to dst
	name   string                         // of the deltas
	after  []event
}

// chatBody is a buffered chat completion.
func (r *reply) chatBody(dst []byte) []byte {
	dst = r.openAIHead(dst, "chatcmpl-", "chat.completion")
	for i := range r.choices {
		dst = append(dst, comma(i)...)
		dst = append(dst, `{"index":`...)
		dst = strconv.AppendInt(dst, int64(i), 10)
		dst = append(dst, `,"message":{"role":"assistant","content":`...)
		if len(r.calls) > 0 {
			dst = append(dst, "null"...)
		} else {
			dst = append(r.text.all(append(dst, '"')), '"')
		}
		dst = r.chatCalls(append(dst, `,"refusal":null,"annotations":[]`...))
		dst = append(dst, `},"logprobs":null,"finish_reason":"`...)
		dst = append(dst, r.finish()...)
		dst = append(dst, `"}`...)
	}
	return r.openAITail(dst)
}

// completionBody is a buffered legacy completion.
func (r *reply) completionBody(dst []byte) []byte {
	dst = r.openAIHead(dst, "cmpl-", "text_completion")
	for i := range r.choices {
		dst = append(dst, comma(i)...)
		dst = append(dst, `{"text":"`...)
		dst = r.text.all(dst)
		dst = append(dst, `","index":`...)
		dst = strconv.AppendInt(dst, int64(i), 10)
		dst = append(dst, `,"logprobs":null,"finish_reason":"`...)
		dst = append(dst, r.finish()...)
		dst = append(dst, `"}`...)
	}
	return r.openAITail(dst)
}

// openAIHead writes the members before choices, and opens them.
func (r *reply) openAIHead(dst []byte, prefix, object string) []byte {
	dst = append(dst, `{"id":"`...)
	dst = append(dst, prefix...)
	dst = append(dst, r.id...)
	dst = append(dst, `","object":"`...)
	dst = append(dst, object...)
	dst = append(dst, `","created":`...)
	dst = strconv.AppendInt(dst, r.created, 10)
	dst = append(dst, `,"model":"`...)
	dst = append(dst, quoted(r.model)...)
	return append(dst, `","service_tier":"default","system_fingerprint":"fp_sim","choices":[`...)
}

// openAITail closes the choices and reports usage.
func (r *reply) openAITail(dst []byte) []byte {
	dst = append(dst, ']')
	dst = r.openAIUsage(dst)
	return append(dst, '}')
}

// openAIUsage adds the usage member of a buffered answer or of the last chunk.
func (r *reply) openAIUsage(dst []byte) []byte {
	switch r.b.Usage {
	case UsageNone:
		return dst
	case UsageNull:
		return append(dst, `,"usage":null`...)
	}
	dst = append(dst, `,"usage":{"prompt_tokens":`...)
	dst = appendTokens(dst, r.usage.InputTokens)
	if r.endpoint != llm.Embeddings {
		dst = append(dst, `,"completion_tokens":`...)
		dst = appendTokens(dst, r.usage.OutputTokens)
	}
	dst = append(dst, `,"total_tokens":`...)
	dst = appendTokens(dst, r.usage.Total())
	if r.endpoint == llm.Embeddings {
		return append(dst, '}')
	}
	dst = append(dst, `,"prompt_tokens_details":{"cached_tokens":`...)
	dst = appendTokens(dst, r.usage.CachedInputTokens)
	dst = append(dst, `,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":`...)
	dst = strconv.AppendInt(dst, int64(r.thought.n*r.generated), 10)
	return append(dst, `,"audio_tokens":0}}`...)
}

func (r *reply) finish() string {
	switch {
	case len(r.calls) > 0:
		return "tool_calls"
	case r.capped:
		return "length"
	}
	return "stop"
}

// chatScript is a streamed chat completion; the choices take turns.
func (r *reply) chatScript() script {
	head := r.openAIHead(nil, "chatcmpl-", "chat.completion.chunk")
	s := script{deltas: r.text.n * r.choices}
	for i := range r.choices {
		s.before = append(s.before, event{data: r.chunk(head, i, `"delta":{"role":"assistant","content":"","refusal":null}`, "")})
		s.before = append(s.before, r.chatCallChunks(head, i)...)
		s.after = append(s.after, event{data: r.chunk(head, i, `"delta":{}`, r.finish())})
	}
	end := r.chunkEnd(nil, "")
	s.delta = func(dst []byte, i int) []byte {
		dst = append(dst, head...)
		dst = append(dst, `{"index":`...)
		dst = strconv.AppendInt(dst, int64(i%r.choices), 10)
		dst = append(dst, `,"delta":{"content":"`...)
		dst = r.text.append(dst, i/r.choices)
		dst = append(dst, `"}`...)
		return append(dst, end...)
	}
	s.after = append(s.after, r.openAIEnd(head)...)
	return s
}

// completionScript is a streamed legacy completion.
func (r *reply) completionScript() script {
	head := r.openAIHead(nil, "cmpl-", "text_completion")
	s := script{deltas: r.text.n * r.choices}
	end := r.chunkEnd(nil, "")
	s.delta = func(dst []byte, i int) []byte {
		dst = append(dst, head...)
		dst = append(dst, `{"index":`...)
		dst = strconv.AppendInt(dst, int64(i%r.choices), 10)
		dst = append(dst, `,"text":"`...)
		dst = r.text.append(dst, i/r.choices)
		dst = append(dst, '"')
		return append(dst, end...)
	}
	for i := range r.choices {
		s.after = append(s.after, event{data: r.chunk(head, i, `"text":""`, r.finish())})
	}
	s.after = append(s.after, r.openAIEnd(head)...)
	return s
}

// chunk is one choice's chunk that is not a delta of text.
func (r *reply) chunk(head []byte, index int, member, finish string) []byte {
	dst := append([]byte(nil), head...)
	dst = append(dst, `{"index":`...)
	dst = strconv.AppendInt(dst, int64(index), 10)
	dst = append(dst, ',')
	dst = append(dst, member...)
	return r.chunkEnd(dst, finish)
}

// chunkEnd closes a choice and its chunk. A client that asked for usage sees null until the last chunk.
func (r *reply) chunkEnd(dst []byte, finish string) []byte {
	dst = append(dst, `,"logprobs":null,"finish_reason":`...)
	if finish == "" {
		dst = append(dst, `null}]`...)
	} else {
		dst = append(dst, '"')
		dst = append(dst, finish...)
		dst = append(dst, `"}]`...)
	}
	if r.b.Usage == UsageNull || r.reports(r.includeUsage) {
		dst = append(dst, `,"usage":null`...)
	}
	return append(dst, '}')
}

// openAIEnd is the usage chunk, for those who asked, and the terminal event.
func (r *reply) openAIEnd(head []byte) (end []event) {
	if r.reports(r.includeUsage) {
		end = append(end, event{data: r.openAITail(append([]byte(nil), head...))})
	}
	if !r.b.NoDone {
		end = append(end, event{data: []byte("[DONE]")})
	}
	return end
}

// embeddingsBody is one vector for each input: of length one, the same for the same position.
func (r *reply) embeddingsBody(dst []byte) []byte {
	dst = append(dst, `{"object":"list","data":[`...)
	for i := range r.inputs {
		dst = append(dst, comma(i)...)
		dst = append(dst, `{"object":"embedding","index":`...)
		dst = strconv.AppendInt(dst, int64(i), 10)
		dst = append(dst, `,"embedding":`...)
		if r.base64 {
			dst = append(dst, '"')
			dst = base64.StdEncoding.AppendEncode(dst, floats(i, r.dimensions))
			dst = append(dst, `"}`...)
			continue
		}
		for j := range r.dimensions {
			dst = append(dst, "[,"[min(j, 1)])
			dst = strconv.AppendFloat(dst, float64(component(i, j, r.dimensions)), 'g', -1, 32)
		}
		dst = append(dst, "]}"...)
	}
	dst = append(dst, `],"model":"`...)
	dst = append(dst, quoted(r.model)...)
	dst = append(dst, '"')
	dst = r.openAIUsage(dst)
	return append(dst, '}')
}

// floats is the vector as little-endian float32, which the SDKs ask for in base64.
func floats(index, dimensions int) []byte {
	b := make([]byte, 0, 4*dimensions)
	for j := range dimensions {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(component(index, j, dimensions)))
	}
	return b
}

// component is +-1/sqrt(dimensions), so that the vector has length one.
func component(index, j, dimensions int) float32 {
	sign := float64(1 - 2*((index*31+j*17)>>2&1))
	return float32(sign / math.Sqrt(float64(dimensions)))
}

// openAIError is the dialect's error object.
func openAIError(f *failure) []byte {
	dst := append([]byte(`{"error":{"message":"`), quoted(f.message)...)
	dst = append(dst, `","type":"`...)
	dst = append(dst, openAIErrorType(f.status)...)
	dst = append(dst, `","param":`...)
	dst = appendNullable(dst, f.param)
	dst = append(dst, `,"code":`...)
	dst = appendNullable(dst, f.code)
	return append(dst, "}}"...)
}

func openAIErrorType(status int) string {
	switch status {
	case 401:
		return "authentication_error"
	case 403:
		return "permission_error"
	case 429:
		return "rate_limit_error"
	case 400, 404, 405, 409, 413, 422:
		return "invalid_request_error"
	case 402:
		return "insufficient_quota"
	}
	return "server_error"
}

func appendNullable(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	dst = append(dst, '"')
	dst = append(dst, quoted(s)...)
	return append(dst, '"')
}

func appendTokens(dst []byte, n llm.Tokens) []byte { return strconv.AppendInt(dst, int64(n), 10) }

func comma(i int) string {
	if i == 0 {
		return ""
	}
	return ","
}
