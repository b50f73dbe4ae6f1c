package sim

import (
	"bytes"
	"errors"
	"io"
	"strconv"
)

// errCut ends a stream that the simulation or the peer cut.
var errCut = errors.New("the connection was cut")

// stream is the body of a streamed answer: the server reads it one event at a time and closes it once.
type stream struct {
	s      *Sim
	p      *peer
	b      Behaviour
	script script
	reply  *reply
	buf    []byte // the events being written
	data   []byte // scratch
	off    int
	next   int // event
	done   bool
}

func (st *stream) events() int {
	return len(st.script.before) + st.script.deltas + len(st.script.after)
}

// Read gives one event, or one byte of it.
func (st *stream) Read(p []byte) (int, error) {
	for st.off == len(st.buf) {
		if err := st.advance(); err != nil {
			return 0, err
		}
	}
	if st.b.Framing&FrameBytes != 0 {
		p = p[:1]
	}
	n := copy(p, st.buf[st.off:])
	st.off += n
	return n, nil
}

// advance makes the next events, after the wait and the misfortune that are due.
func (st *stream) advance() error {
	delay := st.b.Pace
	switch {
	case st.b.ResetAfter > 0 && st.next >= st.b.ResetAfter:
		st.p.reset()
		return errCut
	case st.b.HangAfter > 0 && st.next >= st.b.HangAfter:
		delay = -1
	case st.next == 0:
		delay = st.b.Silent
	case st.next == st.events():
		st.done = true
		return io.EOF
	}
	if !st.p.wait(delay) {
		return errCut
	}
	st.buf, st.off = st.buf[:0], 0
	for range max(st.b.Batch, 1) {
		if st.next == st.events() || len(st.buf) > 0 && (st.next == st.b.ResetAfter || st.next == st.b.HangAfter) {
			break
		}
		st.build(st.next)
		st.next++
	}
	return nil
}

// build adds event i to the buffer.
func (st *stream) build(i int) {
	before, deltas := len(st.script.before), st.script.deltas
	switch {
	case i < before:
		e := st.script.before[i]
		st.buf = appendEvent(st.buf, e.name, e.data, st.b.Framing, i)
	case i < before+deltas:
		st.data = st.script.delta(st.data[:0], i-before)
		st.buf = appendEvent(st.buf, st.script.name, st.data, st.b.Framing, i)
	default:
		e := st.script.after[i-before-deltas]
		st.buf = appendEvent(st.buf, e.name, e.data, st.b.Framing, i)
	}
}

// Close counts how the stream ended. The server calls it once, also after a failed write.
func (st *stream) Close() error {
	st.p.stop()
	sent := min(max(st.next-len(st.script.before), 0), st.script.deltas)
	written := st.reply.text.tokens(sent/st.reply.choices) * st.reply.choices
	for _, e := range st.script.before[:min(st.next, len(st.script.before))] {
		written += e.tokens
	}
	st.s.ended(st.reply, st.p, st.done, written)
	return nil
}

// appendEvent writes one event in the framing that was asked for.
func appendEvent(dst []byte, name string, data []byte, f Framing, i int) []byte {
	nl, colon := "\n", ": "
	switch {
	case f&FrameCRLF != 0:
		nl = "\r\n"
	case f&FrameCR != 0:
		nl = "\r"
	}
	if f&FrameNoSpace != 0 {
		colon = ":"
	}
	line := func(field string, value []byte) {
		dst = append(append(dst, field...), colon...)
		dst = append(append(dst, value...), nl...)
	}
	if f&FrameComments != 0 {
		dst = append(append(append(dst, ": keep-alive"...), nl...), nl...)
		line("id", strconv.AppendInt(nil, int64(i), 10))
		line("retry", []byte("1000"))
	}
	if name != "" {
		line("event", []byte(name))
	}
	if f&FrameMultiline != 0 && bytes.HasPrefix(data, []byte("{")) {
		line("data", data[:1])
		data = data[1:]
	}
	line("data", data)
	return append(dst, nl...)
}

// half is a buffered answer that stops in the middle of its body: with a reset, or in silence.
type half struct {
	s     *Sim
	p     *peer
	reply *reply
	body  []byte
	sent  bool
}

// Read gives the first half, then what was asked for.
func (h *half) Read(p []byte) (int, error) {
	if !h.sent {
		n := copy(p, h.body)
		h.body = h.body[n:]
		h.sent = len(h.body) == 0
		return n, nil
	}
	if h.reply.b.ResetAfter > 0 {
		h.p.reset()
	} else {
		h.p.wait(-1)
	}
	return 0, errCut
}

// Close counts how the answer ended.
func (h *half) Close() error {
	h.p.stop()
	h.s.ended(h.reply, h.p, false, 0)
	return nil
}
