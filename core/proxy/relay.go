package proxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/tokens"
	"github.com/weir-gateway/weir/core/upstream"
)

// topUpTokens is how much output is added to a hold that a stream has outgrown.
const topUpTokens llm.Tokens = 64

// relay carries one stream from the upstream to the client and owns the hold meanwhile. fasthttp runs it in the
// connection's goroutine after the handler has returned, and closes it once, whatever happened.
type relay struct {
	server *Server
	call   *call
	res    limit.Reservation
	resp   *upstream.Response
	parser *upstream.Parser
	visit  func(*upstream.Event)

	out      []byte  // what goes to the client next: whole events
	box      *[]byte // where out came from
	terminal []byte  // the terminal event, withheld until the settlement is acknowledged
	left     []byte  // of out, for Read
	running  tokens.Running
	total    llm.Tokens // output as we count it
	unread   llm.Tokens // of it, for what is not understood
	deltas   llm.Tokens // texts that came: at least so many tokens
	events   int64      // that came before the last one
	granted  llm.Tokens // output that is held
	rule     limit.Overrun
	denied   *refusal      // there is no more room: what came after is neither relayed nor owed
	seen     bool          // the terminal event came
	failed   bool          // the upstream sent an error event of its own
	ended    bool          // nothing more goes to the client
	until    time.Duration // Mono until which a report is waited for, of an answer that nobody reads any more; 0: it is read
	usage    llm.Usage     // the provider's latest report that can be true
	news     bool          // the hold does not know it yet
}

func (r *relay) init(c *call) {
	r.call, r.parser = c, upstream.NewParser(llm.Chat)
	r.visit = r.event
}

func (r *relay) reset() {
	r.giveOut()
	r.running.Reset()
	*r = relay{call: r.call, parser: r.parser, visit: r.visit, terminal: kept(r.terminal), running: r.running}
}

// outs are buffers of streams that have something to tell: most are silent most of the time.
var outs = sync.Pool{New: func() any { return new([]byte) }}

func (r *relay) takeOut() {
	r.box = outs.Get().(*[]byte)
	r.out = *r.box
}

func (r *relay) giveOut() {
	if r.box != nil {
		*r.box = kept(r.out)
		outs.Put(r.box)
		r.box, r.out = nil, nil
	}
}

// stream hands the answer and the hold to the relay.
func (s *Server) stream(c *call, res limit.Reservation, resp *upstream.Response) error {
	out := &c.ctx.Response
	out.SetStatusCode(resp.Status)
	out.Header.SetContentType(resp.ContentType)
	out.Header.Set("Cache-Control", "no-cache")
	out.Header.Set("X-Accel-Buffering", "no")
	c.rates.set(&out.Header, c.dialect, c.now, c.numbers[:])
	out.ImmediateHeaderFlush = !resp.Begun() // else the first event takes the head along
	res.Answered(resp.Status)
	c.record.status = resp.Status
	r := &c.relay
	r.server, r.resp, r.granted, r.rule = s, resp, res.Granted(), c.outcome.overrun
	r.parser.Reset(c.endpoint())
	r.res, c.streaming = res.Move(), true
	s.unload(c)
	out.SetBodyStream(r, -1)
	return nil
}

// SupportsBodyWriteTo lets fasthttp frame each event group as it is: one Write is one flushed chunk.
func (r *relay) SupportsBodyWriteTo() bool { return true }

// WriteTo sends the stream. An error cuts the connection without a proper end. Of an answer that is finished the rest is
// read, within lastWord, whether or not it can be written.
func (r *relay) WriteTo(w io.Writer) (n int64, err error) {
	var lost error
	for {
		out, err := r.next()
		if len(out) > 0 && lost == nil {
			var k int
			k, lost = w.Write(out)
			n += int64(k)
			if lost != nil {
				r.call.record.gone = true
				r.until = r.server.p.Clock.Mono() + lastWord
			}
		}
		switch {
		case lost != nil && (err != nil || r.ended || !r.call.finished.Load()):
			return n, lost
		case err != nil:
			return n, eofIsEnd(err)
		}
	}
}

func eofIsEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Read is WriteTo for whoever wants pieces.
func (r *relay) Read(p []byte) (int, error) {
	for len(r.left) == 0 {
		out, err := r.next()
		if len(out) == 0 && err != nil {
			return 0, err
		}
		r.left = out
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

// next is step, with a panic turned into an error event: the net for bugs, as the handler's is for what comes before.
func (r *relay) next() (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.server.meter.panics.Inc()
			r.server.p.Log.Error("panic in a stream", slog.String("request_id", string(r.call.hex[:])), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			r.out = r.out[:0]
			out, err = r.stop(llm.Errorf(llm.KindInternal, "internal error")), nil
		}
	}()
	return r.step()
}

// step gives the next whole events for the client: everything the upstream has sent so far, in one flush; or a sign of
// life, when that has been nothing for a while.
func (r *relay) step() ([]byte, error) {
	if r.ended {
		return nil, io.EOF
	}
	r.giveOut()
	patience := r.server.heartbeat()
	if r.until > 0 {
		patience = max(r.until-r.server.p.Clock.Mono(), 0)
	}
	raw, err := r.resp.NextWithin(patience)
	r.takeOut()
	switch {
	case r.until > 0 && (patience == 0 || raw == nil && err == nil):
		r.ended = true
		return nil, errGone
	case err != nil:
		return r.broke(err)
	case raw == nil:
		return r.heartbeat(), nil
	}
	r.parser.Parse(raw, r.visit)
	if told := r.parser.Told(); r.call.terms.open || told.Kept > 0 {
		r.call.heed(r.res, told)
	}
	r.report()
	r.call.finished.Store(r.parser.Finished(r.call.head.Choices))
	switch {
	case r.denied != nil:
		return r.stopWith(r.denied), nil
	case r.failed:
		r.ended = true
		return append(r.out, r.terminal...), nil
	case r.seen:
		return r.complete(), nil
	}
	return r.out, nil
}

// heartbeat is what a client gets so that nothing on the way takes the silence for the end: Anthropic's is an event that its
// SDKs pass over, others get a comment. No blank line follows that: there are decoders that make an event of it.
func (r *relay) heartbeat() []byte {
	if r.call.dialect == llm.Anthropic {
		return append(r.out, "event: ping\ndata: {\"type\": \"ping\"}\n\n"...)
	}
	return append(r.out, ":\n"...)
}

// event sorts one event: for the client, withheld, or not for this client. Each is counted for itself, so that neither
// what is owed nor where a stream is cut depends on how its bytes were packed.
func (r *relay) event(e *upstream.Event) {
	if r.seen || r.denied != nil || !r.covers(e) {
		return
	}
	r.events++
	r.failed = r.failed || e.Error
	if u, of, _ := r.parser.Usage(); of.Whole() && e.HasUsage && r.server.believes(r.call, u) {
		r.usage, r.news = u, true
	}
	asked := r.call.head.IncludeUsage == llm.True
	switch {
	case e.Terminal:
		r.seen = true
		r.terminal = e.AppendTo(r.terminal[:0], true)
	case asked || !e.Empty:
		r.out = e.AppendTo(r.out, asked)
	}
}

// covers counts an event's texts, or what is not understood of it, and tells whether the hold has room for them.
func (r *relay) covers(e *upstream.Event) bool {
	text := r.call.text[:0]
	for _, d := range e.Deltas {
		text = append(text, d...)
		r.deltas += llm.Tokens(min(len(d), 1))
	}
	if r.call.text = text; len(text)+e.Unread == 0 {
		return true
	}
	r.unread += unread(e.Unread)
	total := r.running.Escaped(r.server.p.Counter, r.call.enc, text, r.call.head.Choices > 1) + r.unread
	if total > r.granted && !r.topUp(total) {
		return false // what is not relayed is not owed
	}
	r.total = total
	return true
}

// unread is what bytes that nobody understands count as: a token per four, rounded up.
func unread(bytes int) llm.Tokens { return llm.Tokens((bytes + 3) / 4) }

// report tells the hold the progress of this step, so that any ending charges it.
func (r *relay) report() {
	r.res.Relayed(r.owed())
	if r.news {
		r.news = false
		r.res.UsageKnown(r.usage)
	}
}

// owed is the output to charge for by our own count: not beyond the hold, which is the cap that the upstream was sent and
// what it was topped up by since, unless the house pays for what is beyond.
func (r *relay) owed() llm.Tokens {
	if r.rule == limit.Clip {
		return r.total
	}
	return min(r.total, r.granted)
}

// complete settles, and lets the terminal event go when the settlement is acknowledged.
func (r *relay) complete() []byte {
	u, of, last := r.parser.Usage()
	ok := last && of.Whole() && u == r.usage
	if !ok {
		u = r.halves(u, of, last)
	}
	r.call.record.settled(r.res.Commit(u, ok), ok)
	if err := r.server.acknowledged(r.call, r.call.record.seq); err != nil {
		return r.stop(asError(err))
	}
	r.ended = true
	return append(r.out, r.terminal...)
}

// halves is usage of which a half is not reported, or has grown old: that one is by our own count.
func (r *relay) halves(u llm.Usage, of upstream.Reported, last bool) llm.Usage {
	owed := r.owed()
	switch {
	case !r.server.believes(r.call, u):
		of = upstream.Reported{}
	case of.Output && !last:
		of.Output, owed = false, max(owed, u.OutputTokens)
	}
	return r.call.filled(u, of, owed)
}

// broke ends a stream whose upstream ended without a terminal event.
func (r *relay) broke(err error) ([]byte, error) {
	if r.call.gone() {
		r.ended = true
		return nil, errGone
	}
	var e *llm.Error
	switch {
	case r.server.cutting.Load():
		e = errShutdown
	case !errors.As(err, &e):
		e = llm.Errorf(llm.KindUpstream, "the upstream ended the stream before it was complete")
		e.Fields = map[string]any{"attempted_channels": r.resp.Attempted}
	}
	return r.stop(e), nil
}

// topUp makes room for a total beyond the hold, or tells that there is none and that the stream has to end. An upstream that
// keeps to the cap it was sent must not be cut because we count its text differently: each delta is at least one token,
// and as long as those are within the hold, our count may be over it by a quarter, which is relayed and not owed. Under
// Clip nothing is cut, and nothing more is held: the house pays, as it does for an answer that comes whole.
func (r *relay) topUp(total llm.Tokens) bool {
	if r.rule == limit.Clip {
		return true
	}
	more := total - r.granted + topUpTokens
	denial, err := r.res.Extend(context.Background(), nil, more)
	switch {
	case err != nil:
		refused := errorRefusal(asError(unavailable(err)), r.call.dialect, r.call.id, r.call.member[:0])
		r.denied = &refused
		return false
	case denial == nil:
		r.granted += more
		return true
	case r.deltas <= r.granted && total <= r.granted+r.granted/4:
		return true
	}
	r.server.meter.denied(denial)
	refused := denialRefusal(denial, r.call.snap.Currency, r.call.member[:0])
	r.denied = &refused
	return false
}

// stop ends the stream with an error event behind what is already in out.
func (r *relay) stop(e *llm.Error) []byte {
	refused := errorRefusal(e, r.call.dialect, r.call.id, r.call.member[:0])
	return r.stopWith(&refused)
}

func (r *relay) stopWith(refused *refusal) []byte {
	r.ended = true
	r.call.member = refused.members
	r.out = refused.appendEvent(r.out, r.call.endpoint(), r.events, r.call.hex[:])
	return r.out
}

// Close implements io.Closer. It is the net for every ending but a complete one: what Commit has not settled, Release
// does, by the progress the hold has.
func (r *relay) Close() error {
	c, s := r.call, r.server
	if !r.ended {
		c.record.gone = true // nothing of ours ended the stream
	}
	u, _, reported := r.parser.Usage()
	c.record.settled(r.res.Release(), reported && u == r.usage && r.denied == nil)
	s.end(c)
	return nil
}

var _ fasthttp.BodyWriterTo = (*relay)(nil)
