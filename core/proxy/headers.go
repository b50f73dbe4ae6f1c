package proxy

import (
	"encoding/binary"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
)

// Names of headers are bytes in their canonical form: fasthttp takes them as they are.
var (
	headerRequestID   = []byte("X-Request-Id")
	headerAnthropicID = []byte("Request-Id") // where Anthropic's SDKs look
	headerClientID    = []byte("X-Client-Request-Id")
	headerPolicy      = []byte("X-Weir-Policy")
	headerRule        = []byte("X-Weir-Rule")
	headerOrgsRule    = []byte("X-Weir-Tenant-Rule")
	headerRetryAfter  = []byte("Retry-After")
	headerRetryMS     = []byte("Retry-After-Ms")
	headerShouldRetry = []byte("X-Should-Retry")
)

const maxClientID = 128 // bytes of a client's id that are echoed

// identifiers makes request ids: a counter through a bijection, so that ids are unique in a process and look random.
type identifiers struct {
	seed uint64
	n    atomic.Uint64
}

// seedFrom reads the seed once; ids never touch the source again.
func (i *identifiers) seedFrom(r io.Reader) error {
	var b [8]byte
	_, err := io.ReadFull(r, b[:])
	i.seed = binary.LittleEndian.Uint64(b[:])
	return err
}

// next is splitmix64 (Steele, Lea, Flood 2014) over the counter.
func (i *identifiers) next() uint64 {
	z := i.seed + i.n.Add(1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// appendID writes a request id: 16 hex digits.
func appendID(dst []byte, id uint64) []byte {
	const digits = "0123456789abcdef"
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, digits[id>>shift&15])
	}
	return dst
}

// appendClientID keeps of a client's id what is safe in any log and header.
func appendClientID(dst, id []byte) []byte {
	for _, c := range id[:min(len(id), maxClientID)] {
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '-', c == '_', c == '.', c == ':', c == '/', c == '+', c == '=':
			dst = append(dst, c)
		default:
			dst = append(dst, '_')
		}
	}
	return dst
}

// namePolicy says who decided, and which rule of the operator's module and of the org's fired.
func (c *call) namePolicy(d *policy.Decision) {
	set := func(name, value []byte) {
		if c.member = value; len(value) > 0 {
			c.ctx.Response.Header.SetCanonical(name, value)
		}
	}
	set(headerPolicy, d.AppendPolicy(c.member[:0]))
	set(headerRule, d.AppendRule(c.member[:0]))
	set(headerOrgsRule, d.Tenant.AppendRule(c.member[:0]))
}

// rates is the state of the tightest limit of each sort, for the rate headers.
type rates struct{ requests, tokens limit.Rate }

// of is what a denial says about the limit that refused; a denial on money or concurrency says nothing about rates.
func (r *rates) of(d *limit.Denial) {
	rate := limit.Rate{OK: true, Limit: d.Limit, Remaining: max(d.Limit-d.Current, 0), ResetMS: d.RetryAfterMS}
	switch d.Axis {
	case limit.AxisQPS:
		r.requests = rate
	case limit.AxisTPM:
		r.tokens = rate
	}
}

// inUse takes in a dimension's present use, for answers that never got as far as a reservation.
func (r *rates) inUse(l limit.Limits, u limit.Use) {
	r.requests = tighter(r.requests, rateOf(l.QPS, u.QPS, qpsWindowMS))
	r.tokens = tighter(r.tokens, rateOf(l.TPM, u.TPM, tpmWindowMS))
}

func tighter(a, b limit.Rate) limit.Rate {
	if !a.OK || b.OK && b.Remaining < a.Remaining {
		return b
	}
	return a
}

func rateOf(lim, used, windowMS int64) limit.Rate {
	if lim <= 0 {
		return limit.Rate{}
	}
	r := limit.Rate{OK: true, Limit: lim, Remaining: max(lim-used, 0)}
	if used > 0 {
		r.ResetMS = windowMS
	}
	return r
}

// The names of the rate headers: limit, remaining, reset.
var (
	openAIRequests    = [3][]byte{[]byte("X-Ratelimit-Limit-Requests"), []byte("X-Ratelimit-Remaining-Requests"), []byte("X-Ratelimit-Reset-Requests")}
	openAITokens      = [3][]byte{[]byte("X-Ratelimit-Limit-Tokens"), []byte("X-Ratelimit-Remaining-Tokens"), []byte("X-Ratelimit-Reset-Tokens")}
	anthropicRequests = [3][]byte{[]byte("Anthropic-Ratelimit-Requests-Limit"), []byte("Anthropic-Ratelimit-Requests-Remaining"), []byte("Anthropic-Ratelimit-Requests-Reset")}
	anthropicTokens   = [3][]byte{[]byte("Anthropic-Ratelimit-Tokens-Limit"), []byte("Anthropic-Ratelimit-Tokens-Remaining"), []byte("Anthropic-Ratelimit-Tokens-Reset")}
)

// set writes the rate headers of a dialect. OpenAI's reset is a duration ("6m0s"), Anthropic's a time.
func (r *rates) set(h *fasthttp.ResponseHeader, d llm.Dialect, now time.Time, buf []byte) {
	if d == llm.Anthropic {
		setRate(h, &anthropicRequests, r.requests, now, buf)
		setRate(h, &anthropicTokens, r.tokens, now, buf)
		return
	}
	setRate(h, &openAIRequests, r.requests, time.Time{}, buf)
	setRate(h, &openAITokens, r.tokens, time.Time{}, buf)
}

func setRate(h *fasthttp.ResponseHeader, names *[3][]byte, r limit.Rate, now time.Time, buf []byte) {
	if !r.OK {
		return
	}
	h.SetCanonical(names[0], appendInt(buf[:0], r.Limit))
	h.SetCanonical(names[1], appendInt(buf[:0], max(r.Remaining, 0)))
	if now.IsZero() {
		h.SetCanonical(names[2], appendDuration(buf[:0], r.ResetMS))
		return
	}
	reset := now.Add(time.Duration(r.ResetMS)*time.Millisecond + time.Second - 1) // whole seconds, rounded up
	h.SetCanonical(names[2], reset.UTC().Truncate(time.Second).AppendFormat(buf[:0], time.RFC3339))
}

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }

// appendDuration writes milliseconds the way OpenAI does: "0s", "20ms", "1.5s", "6m0s".
func appendDuration(dst []byte, ms int64) []byte {
	switch {
	case ms <= 0:
		return append(dst, "0s"...)
	case ms < 1000:
		return append(appendInt(dst, ms), "ms"...)
	}
	if m := ms / 60_000; m > 0 {
		dst = append(appendInt(dst, m), 'm')
		ms %= 60_000
	}
	dst = appendInt(dst, ms/1000)
	if frac := ms % 1000; frac > 0 {
		dst = append(dst, '.', byte('0'+frac/100))
		if frac%100 > 0 {
			dst = append(dst, byte('0'+frac/10%10))
		}
		if frac%10 > 0 {
			dst = append(dst, byte('0'+frac%10))
		}
	}
	return append(dst, 's')
}
