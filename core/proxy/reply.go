package proxy

import (
	"errors"
	"log/slog"
	"net"
	"runtime/debug"

	"github.com/valyala/fasthttp"

	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
)

// greet sets what every answer carries, before anything can go wrong.
func (s *Server) greet(c *call) {
	h := &c.ctx.Response.Header
	h.SetCanonical(headerRequestID, c.hex[:])
	if c.dialect == llm.Anthropic {
		h.SetCanonical(headerAnthropicID, c.hex[:])
	}
	if id := c.ctx.Request.Header.PeekBytes(headerRequestID); len(id) > 0 {
		c.member = appendClientID(c.member[:0], id)
		h.SetCanonical(headerClientID, c.member)
	}
}

// fail answers with an error. What a client cannot know (the cause) goes to the log.
func (s *Server) fail(c *call, err error) {
	if errors.Is(err, errGone) {
		c.record.status, c.record.gone = statusGone, true
		c.ctx.SetStatusCode(statusGone)
		c.ctx.SetConnectionClose()
		if c.conn != nil {
			_ = c.conn.Conn.Close() // who closed only one half reads an end, not an answer to nothing
		}
		return
	}
	e := asError(err)
	switch {
	case e.Code == "ledger_unavailable":
		s.outage.tell(s.p.Log, s.p.Clock.Mono(), string(c.hex[:]), e)
	case e.Err != nil:
		s.p.Log.Warn("request failed", slog.String("request_id", string(c.hex[:])), slog.String("error", llm.Blot(e.Error())))
	}
	r := errorRefusal(e, c.dialect, c.id, c.member[:0])
	if c.caller != nil && c.rates == (rates{}) {
		s.ownRates(c)
	}
	s.refuse(c, &r)
}

// deny answers with the limiter's no.
func (s *Server) deny(c *call, d *limit.Denial) error {
	r := denialRefusal(d, c.snap.Currency, c.member[:0])
	s.denied(c, d, &r)
	return nil
}

// denied counts a denial and answers with it.
func (s *Server) denied(c *call, d *limit.Denial, r *refusal) {
	s.meter.denied(d)
	if c.rates == (rates{}) {
		s.ownRates(c)
	}
	c.rates.of(d)
	s.refuse(c, r)
}

// refuse writes a refusal over whatever was prepared.
func (s *Server) refuse(c *call, r *refusal) {
	out := &c.ctx.Response
	out.ResetBody()
	out.SetStatusCode(r.status)
	out.Header.SetContentType("application/json")
	r.setHeaders(&out.Header, c.numbers[:])
	c.rates.set(&out.Header, c.dialect, c.now, c.numbers[:])
	c.member = r.members
	c.text = r.appendBody(c.text[:0], c.dialect, c.hex[:])
	out.SetBody(c.text)
	c.record.status, c.record.code, c.record.param, c.record.why = r.status, r.code, r.param, r.message
}

// ownRates reads how a key stands where no reservation says so: by the dimensions of its claim, or, before there is one,
// by those that every request of the key meets.
func (s *Server) ownRates(c *call) {
	if c.plan == nil {
		return
	}
	for i := range c.claim.N {
		if d := &c.claim.Dims[i]; !d.CountOnly && !d.Shadow {
			s.inUse(c, d.ID, d.Effective)
		}
	}
	if c.claim.N > 0 {
		return
	}
	for _, k := range [...]limit.Kind{limit.Key, limit.User, limit.Org, limit.Model, limit.Global} {
		if c.meets(k) {
			id, _ := c.identify(k, "")
			s.inUse(c, id, c.snap.configured(k, c.caller, c.model, c.tier))
		}
	}
}

func (s *Server) inUse(c *call, id limit.ID, l limit.Limits) {
	if l.QPS <= 0 && l.TPM <= 0 {
		return
	}
	if use, err := s.p.Limiter.Glance(id); err == nil {
		c.rates.inUse(l, use)
	}
}

// statusOf is the status an error will be answered with; 0 when nobody is there to read it.
func (c *call) statusOf(err error) int {
	if errors.Is(err, errGone) {
		return 0
	}
	r := errorRefusal(asError(err), c.dialect, 0, nil)
	return r.status
}

// finish ends the call, whatever happened: it is deferred before anything else. A panic has met the deferred Release
// by the time it arrives here.
func (s *Server) finish(c *call) {
	if p := recover(); p != nil {
		s.meter.panics.Inc()
		s.p.Log.Error("panic", slog.String("request_id", string(c.hex[:])), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		c.ctx.Response.Reset()
		c.ctx.SetConnectionClose()
		s.greet(c)
		s.fail(c, llm.Errorf(llm.KindInternal, "internal error"))
	}
	if s.conns.crowded() {
		c.ctx.SetConnectionClose()
	}
	if c.streaming {
		return
	}
	s.end(c)
}

// end closes what the call has open, writes it down and returns it to the pool.
func (s *Server) end(c *call) {
	c.closeUpstream()
	s.conclude(c)
	if c.conn != nil {
		c.conn.answered()
	}
	s.release(c)
}

// unreadable answers a request that fasthttp could not read: too large, too slow, or not HTTP.
func (s *Server) unreadable(ctx *fasthttp.RequestCtx, err error) {
	c := s.acquire(ctx)
	defer s.finish(c)
	c.route, _ = lookup(ctx.Request.Header.RequestURI())
	c.dialect = dialectOf(ctx, c.route)
	s.greet(c)
	if h := ctx.Request.Header.RawHeaders(); len(h) > 0 && hygiene(h) == nil { // a body that broke off takes the head with it
		s.recognise(c)
		if errors.Is(err, fasthttp.ErrBodyTooLarge) && ctx.Request.Header.ContentLength() <= s.o.BodyBytes {
			if c.caller != nil {
				err = errCrowded
			} else {
				_, err = s.resolve(c) // it is the key that is wrong, not the size
			}
		}
	}
	e, linger := s.readError(c, err)
	if c.conn != nil {
		c.conn.linger.Store(linger)
	}
	s.fail(c, e)
}

// bodyLimit is what may be read of a body before it is looked at: a stranger's must not fill the memory, and no buffer is
// made for one that does not fit into what is left for all.
func (s *Server) bodyLimit(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	n := h.ContentLength()
	if n >= 0 && n <= strangerBytes {
		return fasthttp.RequestConfig{}
	}
	token, bad := credential(h)
	if bad == nil && (n < 0 || int64(n)-strangerBytes <= s.conns.budget.Load()) {
		if _, err := s.p.Directory.Resolve(token); err == nil {
			return fasthttp.RequestConfig{}
		}
	}
	return fasthttp.RequestConfig{MaxRequestBodySize: min(strangerBytes, s.o.BodyBytes)}
}

// readError gives a read failure its kind; linger says that the client may still be sending.
func (s *Server) readError(c *call, err error) (e *llm.Error, linger bool) {
	var small *fasthttp.ErrSmallBuffer
	var timeout net.Error
	o := &s.o
	switch {
	case errors.As(err, &e):
		return e, true
	case c.conn != nil && c.conn.starved, errors.Is(err, errCrowded):
		return crowded(), true
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		return tooLarge(o.BodyBytes), true
	case errors.As(err, &small):
		e = llm.Errorf(llm.KindHeaders, "the request line and headers are over %d bytes", o.HeaderBytes)
		e.LimitBytes = int64(o.HeaderBytes)
		return e, true
	case errors.As(err, &timeout) && timeout.Timeout():
		e = llm.Errorf(llm.KindInvalid, "the request came too slowly: its head may take %d ms, its body must bring %d bytes a second, and all of it may take %d ms",
			o.HeadTimeoutMS, minBodyRate, o.ReadTimeoutMS)
		e.Status, e.Code = fasthttp.StatusRequestTimeout, "request_timeout"
		return e, false
	}
	return llm.Errorf(llm.KindInvalid, "the request is not well-formed HTTP/1.1"), true
}

const crowdedMS = 1_000 // what a large request is told to wait when others occupy the memory

func crowded() *llm.Error {
	e := llm.Errorf(llm.KindUnavailable, "too many large requests at once; try again")
	e.RetryAfterMS = crowdedMS
	return e
}

func tooLarge(limit int) *llm.Error {
	e := llm.Errorf(llm.KindTooLarge, "the body is over %d bytes", limit)
	e.LimitBytes = int64(limit)
	return e
}

// expect answers Expect: 100-continue. A body that is known to be too large is refused before it is sent; fasthttp
// sends what stands in the response and closes.
func (s *Server) expect(ctx *fasthttp.RequestCtx) int {
	most := s.o.BodyBytes
	if n := s.bodyLimit(&ctx.Request.Header).MaxRequestBodySize; n > 0 {
		most = n
	}
	if ctx.Request.Header.ContentLength() <= most {
		return fasthttp.StatusContinue
	}
	s.unreadable(ctx, fasthttp.ErrBodyTooLarge)
	return ctx.Response.StatusCode()
}
