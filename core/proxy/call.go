package proxy

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/valyala/fasthttp"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/core/tokens"
	"github.com/weir-gateway/weir/core/upstream"
)

// call is the state of one request, pooled. It belongs to the goroutine of its client connection until the answer is
// over: for a stream that is when the relay is closed. The watcher alone touches it from beside, through cutUpstream.
// Strings in facts and claim may alias the request's buffers, which fasthttp keeps until then too.
type call struct {
	ctx  *fasthttp.RequestCtx
	conn *conn // nil where fasthttp was handed another connection
	snap *Snapshot

	id      uint64
	hex     [16]byte
	start   time.Duration // Mono
	now     time.Time     // Wall
	route   route
	dialect llm.Dialect

	caller *auth.Caller
	body   []byte
	head   llm.Head
	model  *upstream.Model
	enc    tokens.Encoding
	tier   int

	input   llm.Tokens
	output  llm.Tokens // upper bound over all choices
	soft    bool
	terms   terms
	*plan   // nil once a stream has begun
	outcome outcome
	slow    uint32 // 1/1000 of the key's rates: a budget is nearly spent; 0: all of them

	granted llm.Tokens // of output: the cap that the upstream was sent
	watch   watch
	live    atomic.Pointer[upstream.Response]
	began   func(*upstream.Response) // goesOut, bound once
	relay   relay

	rates     rates
	record    record
	streaming bool        // the relay owns the call
	finished  atomic.Bool // all that the client waits for has been relayed

	member  []byte // members of the error object
	decoded []byte // what body was decoded to
	text    []byte // a stream's text to count, an error's body
	numbers [40]byte
}

// plan is what a request is admitted and sent by. It is large, so a stream gives it back when it begins.
type plan struct {
	facts    policy.Facts
	decision policy.Decision
	claim    limit.Claim
	denial   limit.Denial // by the cheap look
	request  upstream.Request
	attempts attempts
}

// outcome is what of the plan is read when the request is over.
type outcome struct {
	policy, tenant ruling
	quota, price   uint32 // the decision's multipliers
	quotas         [llm.Windows]limit.Quota
	overrun        limit.Overrun
	shadowed       int // dimensions that would have refused
}

// ruling is what one module decided by; module is empty where none did.
type ruling struct {
	module, version, message string
	reason                   uint16
}

// acquire takes a call for a request and gives it its id.
func (s *Server) acquire(ctx *fasthttp.RequestCtx) *call {
	c, ok := s.calls.Get().(*call)
	if !ok {
		c = new(call)
		c.watch.init(c, &s.watches)
		c.relay.init(c)
		c.began = c.goesOut
	}
	if c.plan, ok = s.plans.Get().(*plan); !ok {
		c.plan = new(plan)
	}
	c.attempts.call, c.attempts.meter = c, s.meter
	c.ctx = ctx
	if c.conn, _ = ctx.Conn().(*conn); c.conn != nil {
		c.conn.call.Store(c)
	}
	c.snap = s.snap.Load()
	c.start, c.now = s.p.Clock.Mono(), s.p.Clock.Wall()
	c.id = s.ids.next()
	appendID(c.hex[:0], c.id)
	c.tier = noTier
	c.watch.fired.Store(false)
	c.finished.Store(false)
	return c
}

// release returns c to the pool; nothing of the request may be used after it.
func (s *Server) release(c *call) {
	if c.conn != nil {
		c.conn.call.Store(nil)
	}
	dropBody(&c.ctx.Request)
	c.ctx, c.conn, c.snap, c.caller, c.body, c.model = nil, nil, nil, nil, nil, nil
	c.route, c.streaming = routeNone, false
	c.granted, c.rates, c.record, c.outcome = 0, rates{}, record{}, outcome{}
	s.shelve(c)
	c.member, c.text, c.decoded = kept(c.member), kept(c.text), kept(c.decoded)
	c.relay.reset()
	s.calls.Put(c)
}

// shelve returns the plan to its pool, once.
func (s *Server) shelve(c *call) {
	p := c.plan
	if p == nil {
		return
	}
	p.facts.Attr = [policy.NAttr]string{}
	for i := range p.claim.N {
		p.claim.Dims[i].ID.Name = ""
	}
	p.claim.N = 0
	p.request, p.attempts = upstream.Request{}, attempts{}
	c.plan = nil
	s.plans.Put(p)
}

// unload gives back what a stream that has begun needs no more: how it was admitted and sent, and its body, unless the price of
// what the provider does for it is named there.
func (s *Server) unload(c *call) {
	s.shelve(c)
	if len(c.head.Hosted) > 0 {
		return
	}
	c.body, c.decoded = nil, nil
	dropBody(&c.ctx.Request)
	if c.conn != nil {
		c.conn.relieve()
	}
}

// dropBody gives the body back: to fasthttp's pool, which keeps buffers for long, unless it is large.
func dropBody(q *fasthttp.Request) {
	if cap(q.Body()) > keptBytes {
		q.SwapBody(nil)
	}
	q.ResetBody()
}

// goesOut makes the answer that is asked for the one to cut. The watcher may have looked for it just before it was there.
func (c *call) goesOut(resp *upstream.Response) {
	if c.live.Store(resp); c.gone() {
		resp.Cancel()
	}
}

// cutUpstream ends whatever is open towards the upstream: the watcher calls it when the client has left. Whoever else does may
// meet a call that serves another request by now, so only who cuts all of them may.
func (c *call) cutUpstream() {
	if resp := c.live.Load(); resp != nil {
		resp.Cancel()
	}
}

// closeUpstream stops the watcher and gives the upstream connection back, in this order: a late cut must not meet a
// connection that already serves somebody else.
func (c *call) closeUpstream() {
	if c.watch.stop() {
		c.record.gone = true
	}
	if resp := c.live.Swap(nil); resp != nil {
		resp.Close()
	}
}

// gone reports that the client has left.
func (c *call) gone() bool { return c.watch.fired.Load() }

// keptBytes is the largest buffer a pooled call keeps: one huge event must not stay for ever.
const keptBytes = 64 << 10

func kept(b []byte) []byte {
	llm.Mangle(b)
	if cap(b) > keptBytes {
		return nil
	}
	return b[:0]
}

// alias reads bytes as a string without a copy; it lives as long as the request.
func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
