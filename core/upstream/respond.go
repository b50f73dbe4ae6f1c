package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// linger is how long Close waits for the end of a body that has nothing more to say: the last chunk often comes in its
// own packet behind [DONE], and waiting for it saves the connection.
const linger = 2 * time.Millisecond

// reading is the private side of a Response.
type reading struct {
	cutter
	client *Client
	ctx    context.Context
	stop   func() bool // ends the watch on ctx
	place  place       // on the channel
	lane   *lane
	conn   *conn // nil once it was given back or closed
	frame  frame
	last   bool // the connection ends with this answer
	events events
	err    error     // why no more can be read; io.EOF at a clean end
	giveUp time.Time // when the silence of a stream is over the idle timeout; zero: it is not silent
	ends   time.Time // when a buffered answer has taken too long; zero: it has not begun

	peeked []byte // of the stream, for the next call of Next
	body   []byte // the whole of it, where that was read before the answer was given out
	names  [3]string
	ticket ticket // of the attempt that brought the answer
}

// wholeIdles is how many idle timeouts a buffered answer may take in all, from its head on: 10 minutes by default, after which
// the providers' SDKs give up, too. Some servers send blanks while a request waits its turn, so one would be too few.
const wholeIdles = 5

var errLarge = errors.New("over upstream.response_bytes")

// Body gives a whole buffered answer, at most Options.ResponseBytes. The bytes are the caller's. The
// channel's credential is blotted out, should the provider repeat it.
func (r *Response) Body() ([]byte, error) {
	if r.body != nil {
		return r.body, nil
	}
	r.heed()
	return r.readBody(r.client.opt.ResponseBytes)
}

// readBody reads the body, of so many bytes at most, to its end, which has to come in time.
func (r *Response) readBody(limit int64) ([]byte, error) {
	size := int64(1 << 10)
	if r.frame.kind == byLength {
		size = min(r.frame.left, limit, 1<<20) // what a peer announces is not yet there
	}
	body := make([]byte, 0, size+1)
	r.ends = r.client.clock.Wall().Add(r.client.whole)
	for r.err == nil {
		if len(body) == cap(body) {
			body = append(body, 0)[:len(body)]
		}
		n, err := r.read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if int64(len(body)) > limit {
			r.fail(llm.Errorf(llm.KindUpstream, "the upstream's answer is over %d bytes", limit), errLarge)
			break
		}
		if err != nil {
			break
		}
	}
	if r.err != io.EOF {
		return nil, r.err
	}
	return r.lane.secret.hide(body), nil
}

// read gives body bytes as soon as there are any; r.err is set when it returns an error.
func (r *Response) read(dst []byte) (int, error) {
	for r.err == nil {
		n, err := r.decode(dst)
		if n > 0 || err != nil {
			return n, err
		}
		if room := r.frame.direct(len(dst)); room >= connBuffer {
			return r.readPast(dst[:room])
		}
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	return 0, r.err
}

// decode moves what has already arrived; no I/O. It ends the answer when the body's end is among it.
func (r *Response) decode(dst []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, used, err := r.frame.decode(dst, r.conn.buf[r.conn.r:r.conn.w])
	r.conn.r += used
	switch {
	case err != nil:
		r.fail(llm.Errorf(llm.KindUpstream, "the upstream's answer cannot be read"), err)
	case r.frame.done:
		r.finish()
	default:
		return n, nil
	}
	if n > 0 {
		return n, nil // the error comes with the next call
	}
	return 0, r.err
}

// fill waits for more from the upstream, at most the idle timeout.
func (r *Response) fill() error {
	r.deadline(r.client.idle)
	if err := r.conn.fill(); err != nil {
		return r.broken(err)
	}
	return nil
}

// readPast reads a long body straight into dst.
func (r *Response) readPast(dst []byte) (int, error) {
	r.deadline(r.client.idle)
	n, err := r.conn.Read(dst)
	if n > 0 {
		r.frame.advance(n)
		if r.frame.done {
			r.finish()
		}
		return n, nil
	}
	return 0, r.broken(err)
}

func (r *Response) deadline(d time.Duration) {
	until := r.client.clock.Wall().Add(d)
	if !r.ends.IsZero() && r.ends.Before(until) {
		until = r.ends
	}
	_ = r.conn.sock.SetReadDeadline(until) // fails only on a closed socket: so will the read
}

// broken turns a failed read into the reason that its reader is told.
func (r *Response) broken(err error) error {
	switch {
	case err == io.EOF && r.frame.kind == byClose && r.wasCut(r.ctx) == nil:
		r.frame.done = true
		r.finish()
	case timedOut(err):
		text := fmt.Sprintf("the upstream was silent for %d ms", r.client.opt.IdleTimeoutMS)
		if !r.ends.IsZero() && !r.client.clock.Wall().Before(r.ends) {
			text = fmt.Sprintf("the upstream's answer was not whole after %d ms", r.client.whole.Milliseconds())
		}
		r.fail(&llm.Error{Kind: llm.KindTimeout, Code: "upstream_timeout", Message: text}, err)
	default:
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		r.fail(llm.Errorf(llm.KindUpstream, "the upstream broke off its answer"), err)
	}
	return r.err
}

// heed ends the answer when it was cut, whatever may still be buffered of it.
func (r *Response) heed() {
	if r.err == nil {
		if cut := r.wasCut(r.ctx); cut != nil {
			r.err = cut
			r.discard()
		}
	}
}

// fail ends the answer badly: the connection is closed. A cut takes precedence over whatever it looked like.
func (r *Response) fail(e *llm.Error, cause error) {
	e.Err, e.Fields = cause, map[string]any{"attempted_channels": slices.Clone(r.Attempted)}
	if e.Kind == llm.KindUpstream {
		e.Code = "upstream_unavailable"
	}
	r.err = e
	if cut := r.wasCut(r.ctx); cut != nil {
		r.err = cut
	}
	r.discard()
}

// finish ends the answer well: the connection goes back if it is clean and was not cut.
func (r *Response) finish() {
	r.err = io.EOF
	c := r.conn
	r.conn = nil
	if r.unbind() && !r.last && c.spent() {
		r.lane.pool.put(c, r.client.clock.Mono())
	} else {
		r.lane.pool.drop(c)
	}
}

// discard closes the connection, if there still is one.
func (r *Response) discard() {
	if c := r.conn; c != nil {
		r.conn = nil
		r.unbind()
		r.lane.pool.drop(c)
	}
}

// Next gives the events that are already buffered, at least one: raw bytes ending at an event's end, valid until the
// next call, in which the channel's credential is blotted out. io.EOF after the last. Events inside are visited by
// Parser.Parse. Other errors: KindTimeout after Options.IdleTimeoutMS of silence, KindUpstream when the upstream broke off,
// ctx's error or context.Canceled when cut.
func (r *Response) Next() ([]byte, error) { return r.NextWithin(2 * r.client.idle) }

// NextWithin is Next for a reader that has something to do meanwhile: nil without an error when d has passed and no event
// has become whole.
func (r *Response) NextWithin(d time.Duration) ([]byte, error) {
	if raw := r.peeked; raw != nil {
		r.peeked = nil
		if r.wasCut(r.ctx) == nil {
			return raw, nil
		}
	}
	var until time.Time
	raw, err := r.next(&until, d)
	raw = r.lane.secret.hide(raw)
	r.noteOverload(raw)
	return raw, err
}

// next is NextWithin with the credential still in it, until a time that is d from the first wait unless it is set.
func (r *Response) next(until *time.Time, d time.Duration) ([]byte, error) {
	ev := &r.events
	ev.shift()
	r.heed()
	for {
		for r.err == nil && r.conn.r < r.conn.w {
			n, _ := r.decode(ev.room())
			ev.grew(n)
		}
		if raw := ev.complete(); raw != nil {
			return raw, nil
		}
		if r.err == io.EOF {
			if raw := ev.rest(r.frame.kind != byClose); raw != nil {
				return raw, nil
			}
		}
		if r.err != nil {
			return nil, r.err
		}
		if limit := r.client.opt.EventBytes; int64(ev.pending()) > limit {
			r.fail(llm.Errorf(llm.KindUpstream, "the upstream sent an event of over %d bytes", limit), nil)
			return nil, r.err
		}
		ev.idle()
		if r.listen(until, d) {
			return nil, nil
		}
	}
}

// listen waits for more of a stream until a time, which is d from now unless it is set, and at most the idle timeout; over
// tells that the time has come. r.err says how else it ended.
func (r *Response) listen(until *time.Time, d time.Duration) (over bool) {
	now := r.client.clock.Wall()
	if until.IsZero() {
		*until = now.Add(d)
	}
	if r.giveUp.IsZero() {
		r.giveUp = now.Add(r.client.idle)
	}
	first, soon := r.giveUp, until.Before(r.giveUp)
	if soon {
		first = *until
	}
	_ = r.conn.sock.SetReadDeadline(first) // fails only on a closed socket: so will the read
	err := r.conn.fill()
	switch {
	case err == nil:
		r.giveUp = time.Time{}
	case soon && timedOut(err):
		return true
	default:
		_ = r.broken(err)
	}
	return false
}

// overloads are how a provider says within a stream, whose status was 200, that it has too much to do.
var overloads = [...][]byte{[]byte(`"overloaded_error"`), []byte(`"server_is_overloaded"`), []byte(`"slow_down"`)}

// noteOverload looks for an error at the start of what has come: it may put the channel to sleep, as a 529 would have. The
// first event of a stream that was peeked at has been judged before.
func (r *Response) noteOverload(raw []byte) {
	if !bytes.HasPrefix(raw, []byte("event: error")) && !bytes.HasPrefix(raw, []byte("event: response.failed")) {
		return
	}
	for _, word := range overloads {
		if bytes.Contains(raw, word) {
			r.lane.refused(r.ticket, &r.place, r.client.clock.Mono(), verdict{class: busy, status: 529})
			return
		}
	}
}

// Cancel cuts the connection; safe from any goroutine, any number of times. Reads return an error at once.
func (r *Response) Cancel() { r.cut() }

// Close ends the answer. What Next returned is no longer valid.
func (r *Response) Close() {
	if r.stop != nil {
		r.stop()
		r.stop = nil
	}
	if r.conn != nil {
		r.awaitEnd()
		r.discard()
	}
	if r.err == nil {
		r.err = io.ErrClosedPipe
	}
	r.place.leave()
	r.events.free()
}

// awaitEnd gives a body that stands between two chunks a moment to say that it is over.
func (r *Response) awaitEnd() {
	if r.frame.kind != byChunks || r.wasCut(r.ctx) != nil { // a head that was never read is not in chunks
		return
	}
	r.deadline(linger)
	for {
		if r.frame.state == inData {
			return
		}
		if n, err := r.decode(nil); n > 0 || err != nil {
			return
		}
		if r.frame.state == inData || r.conn.r < r.conn.w || r.conn.fill() != nil {
			return
		}
	}
}
