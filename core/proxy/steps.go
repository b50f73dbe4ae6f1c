package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/core/upstream"
)

// errGone ends a request whose client has left: there is nobody to answer.
var errGone = errors.New("the client has left")

var errShutdown = llm.Errorf(llm.KindUnavailable, "the gateway is shutting down")

// dispatch answers what needs no walk and sends the rest on it.
func (s *Server) dispatch(c *call) error {
	h := &c.ctx.Request.Header
	r, rest := lookup(h.RequestURI())
	c.route, c.dialect = r, dialectOf(c.ctx, r)
	s.greet(c)
	if err := hygiene(h.RawHeaders()); err != nil {
		c.ctx.SetConnectionClose()
		return err
	}
	switch {
	case !h.IsHTTP11() && !bytes.HasPrefix(h.Protocol(), []byte("HTTP/1.")):
		c.ctx.SetConnectionClose()
		return wrongVersion("this listener speaks HTTP/1.1, not %s", llm.Quote(h.Protocol(), 16))
	case r == routeNone:
		s.recognise(c)
		path, _, _ := bytes.Cut(h.RequestURI(), []byte{'?'}) // clients put keys behind it
		return noRoute("no route %s%s", llm.Quote(path, maxQuoted), meant(path))
	case !r.allows(h):
		s.recognise(c)
		return noRoute("no route %s; it takes %s", llm.Quote(fmt.Appendf(nil, "%s %s", h.Method(), c.ctx.Path()), maxQuoted), r.allow())
	}
	if _, ok := r.endpoint(); ok {
		c.body = c.ctx.Request.Body()
		return s.walk(c)
	}
	return s.own(c, rest)
}

const maxQuoted = 128 // characters of a path or of a model's name that an error says

func noRoute(format string, args ...any) *llm.Error {
	e := llm.Errorf(llm.KindNotFound, format, args...)
	e.Code = "route_not_found"
	return e
}

func (c *call) endpoint() llm.Endpoint { return llm.Endpoint(c.route) }

// resolve turns the presented key into a caller.
func (s *Server) resolve(c *call) (*auth.Caller, error) {
	token, bad := credential(&c.ctx.Request.Header)
	if bad != nil {
		return nil, bad
	}
	caller, err := s.p.Directory.Resolve(token)
	if err != nil {
		return nil, s.failedAuth(c, err)
	}
	c.know(caller)
	return caller, nil
}

func (c *call) know(caller *auth.Caller) {
	c.caller, c.tier = caller, c.snap.tier(caller.Key.Tier)
}

// recognise finds out whose the key is where an answer needs none: then it can say how the key stands. A bad one is not
// complained about.
func (s *Server) recognise(c *call) {
	token, bad := credential(&c.ctx.Request.Header)
	if bad != nil {
		return
	}
	if caller, err := s.p.Directory.Resolve(token); err == nil {
		c.know(caller)
	}
}

// maxAuthFailures per minute and client address are answered as what they are; beyond, the address is told to wait.
const maxAuthFailures = 6_000

func (s *Server) failedAuth(c *call, err error) error {
	s.meter.authFailures.Inc()
	if c.conn == nil {
		return err
	}
	wait, ok := s.preauth.Allow(c.conn.ipName, maxAuthFailures)
	if ok {
		return err
	}
	e := llm.Errorf(llm.KindRateLimited, "too many requests with a bad key from this address; at most %d a minute", maxAuthFailures)
	e.Code, e.RetryAfterMS = "too_many_bad_keys", wait
	return e
}

// scan reads the body's head. A stream is sent in chunks, which HTTP/1.0 does not have.
func (c *call) scan() error {
	if err := llm.ScanHead(c.endpoint(), c.body, &c.head); err != nil {
		return err
	}
	if c.head.Stream && !c.ctx.Request.Header.IsHTTP11() {
		e := wrongVersion("streaming needs HTTP/1.1 (behind nginx: proxy_http_version 1.1)")
		e.Param = "stream"
		return e
	}
	return nil
}

func wrongVersion(format string, args ...any) *llm.Error {
	e := llm.Errorf(llm.KindInvalid, format, args...)
	e.Status, e.Code = fasthttp.StatusHTTPVersionNotSupported, "http_version_not_supported"
	return e
}

// findModel looks the model of the body up.
func (c *call) findModel(who *auth.Caller) (*upstream.Model, error) {
	name := c.head.Model.In(c.body)
	if m := c.modelFor(who, name); m != nil {
		c.model, c.enc = m, c.snap.encodings[m]
		return m, nil
	}
	return nil, c.noModel(who, string(upstream.Unescape(nil, name)))
}

// modelFor looks a model up among those the key may use; one that is not for this key does not exist for it.
func (c *call) modelFor(who *auth.Caller, name []byte) *upstream.Model {
	if c.snap.Catalog != nil {
		if m, ok := c.snap.Catalog.Model(name); ok && who.Key.Allows(m.Name) {
			return m
		}
	}
	return nil
}

func (c *call) noModel(who *auth.Caller, name string) *llm.Error {
	var usable []string
	for _, m := range c.usable(who) {
		usable = append(usable, m.Name)
	}
	e := llm.Errorf(llm.KindNotFound, "model %s does not exist or is not for this key", llm.Quote(name, maxQuoted))
	if near := llm.Nearest(name, usable); near != "" {
		e.Message += "; did you mean " + near + "?"
	}
	e.Code = "model_not_found"
	return e
}

// limitTerms are another number whenever the caller, the settings or the policies have changed.
func (c *call) limitTerms() uint64 { return uint64(c.caller.Version)<<32 | uint64(c.snap.version) }

// measure estimates the input and bounds the output. count_tokens produces nothing and is not run by the model: it
// counts as a request and no more.
func (s *Server) measure(c *call, m *upstream.Model) {
	c.input, c.output, c.soft = 0, 0, false
	if c.endpoint() == llm.CountTokens {
		return
	}
	c.input = s.p.Counter.Estimate(c.enc, &c.head, c.body)
	c.output, c.soft = s.p.Counter.OutputBound(&c.head, m.MaxOutputTokens)
}

// priceFor is the price to hold the request at. A model without one is free only for keys that pay for nothing.
func priceFor(m *upstream.Model, who *auth.Caller) (llm.Price, error) {
	switch {
	case m.Priced && !m.Free:
		return m.Price, nil
	case m.Free || who.User.Unmetered && !who.Key.Budgeted():
		return llm.Price{}, nil
	}
	e := llm.Errorf(llm.KindInvalid, "model %q has no price and this key has a balance or a quota; ask the operator to set its price or to mark it free", m.Name)
	e.Code, e.Fields = "price_not_configured", map[string]any{"model": m.Name}
	return llm.Price{}, e
}

// decide asks the policy, and applies what it says about the output of each choice; a denial of the policy is returned
// as an error.
func (s *Server) decide(c *call, price llm.Price) error {
	if err := s.gatherFacts(c, price); err != nil {
		return unavailable(err)
	}
	d := &c.decision
	*d = policy.Decision{Tier: noTier}
	s.p.Policy.Decide(&c.facts, d)
	c.outcome.decided(d)
	if c.snap.PolicyHeader {
		c.namePolicy(d)
	}
	switch d.Verdict {
	case policy.Deny:
		return policyError(d)
	case policy.ShadowDeny:
		s.meter.shadowPolicy.Inc()
		c.record.shadowed = true
	}
	if d.Tier >= 0 {
		c.tier = d.Tier
	}
	if d.OutputCap > 0 {
		c.output = min(c.output, d.OutputCap*llm.Tokens(max(c.head.Choices, 1)))
	}
	return nil
}

func policyError(d *policy.Decision) *llm.Error {
	e := &llm.Error{Kind: llm.KindPolicy, Message: d.Message, RetryAfterMS: int64(d.RetryAfterMS),
		Fields: map[string]any{"policy": d.Module, "version": d.Version, "reason": d.Reason}}
	if d.RetryAfterMS > 0 {
		e.Fields["retry_after_ms"] = d.RetryAfterMS
	}
	if e.Message == "" {
		e.Message = "the policy refuses this request"
	}
	if d.Status >= 400 && d.Status < 500 {
		e.Status = d.Status
	}
	return e
}

func unavailable(err error) error {
	var e *llm.Error
	if errors.As(err, &e) && e.Kind == llm.KindUnavailable {
		return err
	}
	if errors.Is(err, limit.ErrAway) {
		return &llm.Error{Kind: llm.KindUnavailable, Message: "the limits that gateways share cannot be asked now; try again", Err: err}
	}
	return &llm.Error{Kind: llm.KindUnavailable, Message: "the ledger cannot record this request now; try again", Err: err}
}

// send carries the request to an upstream, with the client watched meanwhile.
func (s *Server) send(c *call, res limit.Reservation) (*upstream.Response, error) {
	h := &c.ctx.Request.Header
	c.attempts.res, c.granted = res, res.Granted()
	c.request = upstream.Request{Head: &c.head, Body: c.body, Model: c.model, Granted: c.granted, RequestID: string(c.hex[:]), Caller: upstream.Caller{Org: c.caller.Org.ID, Key: c.caller.Key.ID}, Peek: s.heartbeat(),
		Beta: c.beta(), Version: h.Peek("Anthropic-Version"), Sim: h.Peek("X-Sim"), Began: c.began}
	c.watch.start(c.conn)
	resp, err := s.p.Client.Do(context.Background(), c.snap.Catalog, &c.request, &c.attempts)
	if err != nil {
		return nil, s.lost(c, err)
	}
	c.record.channel, c.record.first = resp.Channel.Name, resp.FirstByte-c.start
	return resp, nil
}

// lost tells a client that left, and a call that the shutdown cut, from an upstream that failed. Only who left owes for the
// attempt under way: others get nothing of it. In a shutdown it is we who hang up, so nobody counts as having left.
func (s *Server) lost(c *call, err error) error {
	switch {
	case s.cutting.Load():
		err = errShutdown
	case c.gone():
		return errGone
	}
	c.attempts.Refused(nil)
	return err
}

// acknowledged waits for a ledger entry; without it nothing may reach the client.
func (s *Server) acknowledged(c *call, seq uint64) error {
	if seq == 0 {
		return nil
	}
	timeout := time.Duration(c.snap.SettleTimeoutMS) * time.Millisecond
	if err := s.p.Ledger.Wait(context.Background(), seq, timeout); err != nil {
		return unavailable(err)
	}
	return nil
}

// passOn relays an upstream's own words about the request, in the dialect's form, which may repeat the prompt and are not for the
// log. Nothing is owed for it.
func (s *Server) passOn(c *call, res limit.Reservation, resp *upstream.Response) error {
	body, err := resp.Body()
	c.attempts.Refused(resp.Channel)
	if err != nil {
		return s.lost(c, err)
	}
	if resp.Refusal != nil {
		r := errorRefusal(resp.Refusal, c.dialect, c.id, c.member[:0])
		s.refuse(c, &r)
	} else {
		s.write(c, resp, body)
	}
	c.record.code, c.record.why = "upstream_refused", "the upstream refused the request"
	c.closeUpstream()
	res.Answered(resp.Status)
	return nil
}

// answer settles a whole answer and then writes it. Of one that is too large the client gets nothing, so nothing is owed.
func (s *Server) answer(c *call, res limit.Reservation, resp *upstream.Response) error {
	body, err := resp.Body()
	if err != nil {
		return s.lost(c, err)
	}
	usage, reported := s.usageOf(c, body)
	s.write(c, resp, body)
	res.Answered(resp.Status)
	if c.terms.open || c.endpoint() == llm.Messages {
		told := upstream.Tell(c.endpoint(), body)
		c.heed(res, &told)
	}
	c.record.settled(res.Commit(usage, reported), reported)
	c.closeUpstream() // behind it: whoever waits for the place meets what this came to, not what it was held at
	return s.acknowledged(c, c.record.seq)
}

// write puts the upstream's answer into ours.
func (s *Server) write(c *call, resp *upstream.Response, body []byte) {
	out := &c.ctx.Response
	out.SetStatusCode(resp.Status)
	out.Header.SetContentType(resp.ContentType)
	out.SetBodyRaw(body)
	c.record.status = resp.Status
	c.rates.set(&out.Header, c.dialect, c.now, c.numbers[:])
}

// usageOf is the usage an answer reports, else the text it holds, counted. Beyond the cap that the upstream was sent it is
// owed as a stream's is: by the user as long as the upstream may have kept the cap, or by the house.
func (s *Server) usageOf(c *call, body []byte) (llm.Usage, bool) {
	if c.endpoint() == llm.CountTokens {
		return llm.Usage{}, true
	}
	u, of, texts, odd := upstream.BufferedUsage(c.endpoint(), body)
	if !s.believes(c, u) {
		of = upstream.Reported{Output: c.endpoint() == llm.Embeddings}
		texts, odd = upstream.Generated(c.endpoint(), body)
	}
	if of.Whole() {
		return u, true
	}
	counted := unread(odd)
	for _, t := range texts {
		if t.Raw {
			counted += s.p.Counter.Text(c.enc, t.In(body))
		} else {
			counted += s.p.Counter.Escaped(c.enc, t.In(body))
		}
	}
	if c.outcome.overrun != limit.Clip { // else the house pays for what is beyond
		counted = min(counted, c.granted)
	}
	return c.filled(u, of, counted), false
}

// filled is usage with the halves that were not reported replaced: the input by what admission made of it, the output by
// what was counted.
func (c *call) filled(u llm.Usage, of upstream.Reported, counted llm.Tokens) llm.Usage {
	if !of.Input {
		u.InputTokens, u.CachedInputTokens, u.CacheWriteTokens = c.input, 0, 0
	}
	if !of.Output {
		u.OutputTokens = counted
	}
	return u
}

// saturate32 fits a count into the policy's 32-bit fields.
func saturate32(n int) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }
