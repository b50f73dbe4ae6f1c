package upstream

import (
	"bytes"
	"sync"

	"github.com/weir-gateway/weir/core/llm"
)

const (
	eventBuffer = 4 << 10  // what a stream starts with
	eventKeep   = 64 << 10 // larger buffers are not kept for the next stream
)

var bom = []byte("\xef\xbb\xbf")

// lines walks line by line; a line ends in LF, CRLF or CR. The next LF and CR are remembered, so that a walk is linear
// whatever the mixture.
type lines struct {
	b      []byte
	pos    int
	lf, cr int // the next ones at or after pos, len(b) for none; below pos: not known
}

func walk(b []byte, pos int) lines { return lines{b, pos, -1, -1} }

// next gives the line b[start:end] and where the one after it begins; not ok: no line end follows.
func (l *lines) next() (start, end, after int, ok bool) {
	if l.lf < l.pos {
		l.lf = l.find('\n')
	}
	if l.cr < l.pos {
		l.cr = l.find('\r')
	}
	start, end = l.pos, min(l.lf, l.cr)
	if end == len(l.b) {
		return start, end, end, false
	}
	after = end + 1
	if l.b[end] == '\r' && after < len(l.b) && l.b[after] == '\n' {
		after++
	}
	l.pos = after
	return start, end, after, true
}

func (l *lines) find(b byte) int {
	if i := bytes.IndexByte(l.b[l.pos:], b); i >= 0 {
		return l.pos + i
	}
	return len(l.b)
}

// splitter finds where events end (an empty line) in bytes that arrive in any pieces; each byte is looked at once.
//
// A CR at the end of what has arrived is a question: is an LF on its way? Waiting for the answer would hold the last
// event of a CR stream back for ever. So the line before decides: after CRLF it waits, else it takes the CR as the end,
// and an LF that comes all the same is passed over (it stands before the next event then, and means nothing there).
type splitter struct {
	pos    int  // bytes looked at
	inLine bool // some of the current line lies before pos
	crlf   bool // the last line ended in CRLF
	skipLF bool // the last byte was a CR taken as a line's end
}

// scan looks at what is new in b and returns where its last whole event ends; 0: nowhere.
func (s *splitter) scan(b []byte) (end int) {
	if s.skipLF && s.pos < len(b) {
		s.skipLF = false
		if b[s.pos] == '\n' {
			s.pos++
			s.crlf = true
		}
	}
	l := walk(b, s.pos)
	for {
		start, stop, after, ok := l.next()
		if !ok {
			s.inLine = s.inLine || start < len(b)
			s.pos = len(b)
			return end
		}
		empty := start == stop && !s.inLine
		if b[stop] == '\r' && stop+1 == len(b) {
			if s.crlf {
				s.pos, s.inLine = stop, !empty
				return end
			}
			s.skipLF = true
		} else {
			s.crlf = after == stop+2
		}
		s.pos, s.inLine = after, false
		if empty {
			end = after
		}
	}
}

// events collects a stream's body and gives it out in whole events.
type events struct {
	buf   []byte
	box   *[]byte // where buf came from
	given int     // bytes the last call gave out
	begun bool    // past where a byte order mark may stand
	split splitter
}

var eventBuffers = sync.Pool{New: func() any { return new(make([]byte, 0, eventBuffer)) }}

// room is free space at the end of the buffer, at least a quarter of it.
func (e *events) room() []byte {
	if e.box == nil {
		e.box = eventBuffers.Get().(*[]byte)
		e.buf = (*e.box)[:0]
	}
	if cap(e.buf)-len(e.buf) < cap(e.buf)/4 {
		grown := make([]byte, len(e.buf), 2*cap(e.buf))
		copy(grown, e.buf)
		e.buf = grown
	}
	return e.buf[len(e.buf):cap(e.buf)]
}

func (e *events) grew(n int) { e.buf = e.buf[:len(e.buf)+n] }

func (e *events) pending() int { return len(e.buf) }

// shift forgets what was given out.
func (e *events) shift() {
	if e.given > 0 {
		e.drop(e.given)
		e.split.pos -= e.given
		e.given = 0
	}
}

func (e *events) drop(n int) { e.buf = e.buf[:copy(e.buf, e.buf[n:])] }

// complete gives all whole events there are; nil when there is none.
func (e *events) complete() []byte {
	if !e.begun {
		if len(e.buf) < len(bom) && bytes.HasPrefix(bom, e.buf) {
			return nil
		}
		e.begun = true
		if bytes.HasPrefix(e.buf, bom) {
			e.drop(len(bom))
		}
	}
	if e.given = e.split.scan(e.buf); e.given == 0 {
		return nil
	}
	return e.buf[:e.given]
}

// rest gives what follows the last whole event when the stream is over, closed like an event. framed says that the end
// is certain; otherwise a line without its end is taken for cut off and dropped.
func (e *events) rest(framed bool) []byte {
	if len(e.buf) == 0 || e.split.inLine && !framed {
		return nil
	}
	if e.split.inLine {
		e.buf = append(e.buf, '\n')
	}
	e.buf = append(e.buf, '\n')
	e.split.pos, e.given = len(e.buf), len(e.buf)
	return e.buf
}

// idle gives an empty buffer back until more comes: most streams are silent most of the time.
func (e *events) idle() {
	if e.box == nil || len(e.buf) > 0 {
		return
	}
	if cap(e.buf) <= eventKeep {
		*e.box = e.buf
	}
	llm.Mangle(*e.box)
	eventBuffers.Put(e.box)
	e.box, e.buf = nil, nil
}

func (e *events) free() {
	e.buf = e.buf[:0]
	e.idle()
	*e = events{}
}

// Parser walks the events of a stream in one dialect and endpoint; it keeps usage merged over events. It is for one
// goroutine, and can be reused after Reset.
type Parser struct {
	ep     llm.Endpoint
	ev     Event
	joined []byte   // data of several lines
	from   []stands // where in Raw the lines of the data stand
	deltas [][]byte // backing of ev.Deltas
	tally  tally
	told   Told
	over   bool // the terminal event came: what follows it means nothing
	unread int  // bytes of members that were not understood, in this event
	depth  int  // of content in content
	heard  heard
	again  bool // the event shows what others may have said

	finishes int // choices that are complete
	shape    shape
	whole    bool     // a buffered answer is read
	raws     [][]byte // its tool inputs, JSON as it stands
}

// NewParser makes a parser.
func NewParser(ep llm.Endpoint) *Parser { return &Parser{ep: ep} }

// Reset makes p as new, for another stream, keeping its buffers.
func (p *Parser) Reset(ep llm.Endpoint) {
	*p = Parser{ep: ep, joined: p.joined[:0], deltas: p.deltas[:0], from: p.from[:0], told: Told{Tier: p.told.Tier[:0], Calls: p.told.Calls[:0]},
		shape: shape{before: p.shape.before[:0], after: p.shape.after[:0]}}
}

// Parse splits raw (whole events) and visits each. It allocates nothing per event. Data that is not JSON is visited
// without deltas and without usage, and is Unread.
func (p *Parser) Parse(raw []byte, visit func(e *Event)) {
	l, begin := walk(raw, 0), 0
	if bytes.HasPrefix(raw, bom) {
		l.pos = len(bom)
	}
	p.begin()
	for {
		start, end, after, ok := l.next()
		if start == end && ok {
			p.finish(raw[begin:after], visit)
			begin = after
			continue
		}
		p.line(raw[start:end], end-begin)
		if !ok {
			break
		}
	}
	if begin < len(raw) {
		p.finish(raw[begin:], visit)
	}
}

func (p *Parser) begin() {
	p.ev = Event{}
	p.deltas = p.deltas[:0]
	p.unread, p.depth, p.from, p.again = 0, 0, p.from[:0], false
}

// stands says that from one offset in an event's data on, the bytes are those from another in Raw on.
type stands struct{ data, raw int }

// line takes a data line, which ends at end in its event; event and comments are the client's business (the data names its
// event), id and retry nobody's.
func (p *Parser) line(line []byte, end int) {
	value, ok := bytes.CutPrefix(line, []byte("data"))
	if !ok {
		p.ev.resumes = p.ev.resumes || resumes(line)
		return
	}
	if len(value) > 0 {
		if value[0] != ':' {
			return
		}
		value = value[1:]
		if len(value) > 0 && value[0] == ' ' {
			value = value[1:]
		}
	}
	if p.ev.Data == nil {
		p.ev.Data = value[:len(value):len(value)]
		p.from = append(p.from, stands{0, end - len(value)})
		return
	}
	p.joined = append(append(append(p.joined[:0], p.ev.Data...), '\n'), value...)
	p.ev.Data = p.joined
	p.from = append(p.from, stands{len(p.joined) - len(value), end - len(value)})
}

// resumes tells a line of id or retry, which are for a client that comes back for the rest of a stream. No provider has a
// rest, and a decoder that has met an id takes each comment behind it for an event of no data.
func resumes(line []byte) bool {
	field, _, _ := bytes.Cut(line, []byte(":"))
	return string(field) == "id" || string(field) == "retry"
}

// AppendTo appends what of the event is for a client: all but lines of id and retry. A usage member that is null is for
// one that asked for usage. Of an event that has nothing else nothing is left.
func (e *Event) AppendTo(dst []byte, asked bool) []byte {
	from := len(dst)
	if asked {
		dst = append(dst, e.Raw...)
	} else {
		dst = append(append(dst, e.Raw[:e.Null[0]]...), e.Raw[e.Null[1]:]...)
	}
	if !e.resumes {
		return dst
	}
	l, to, says := walk(dst[from:], 0), from, false
	for ok := true; ok; {
		var start, end, after int
		start, end, after, ok = l.next()
		if line := dst[from+start : from+end]; !resumes(line) {
			says = says || len(line) > 0
			to += copy(dst[to:], dst[from+start:from+after])
		}
	}
	if !says {
		return dst[:from]
	}
	return dst[:to]
}

func (p *Parser) finish(raw []byte, visit func(e *Event)) {
	p.ev.Raw = raw
	if len(p.ev.Data) > 0 && !p.over {
		p.read()
	}
	if p.ev.Null[1] > 0 {
		p.ev.Null = p.inRaw(p.ev.Null)
	}
	visit(&p.ev)
	p.begin()
}

// inRaw is where a part of the data stands in Raw; nowhere, when it is spread over lines.
func (p *Parser) inRaw(part [2]int) [2]int {
	i := len(p.from) - 1
	for p.from[i].data > part[0] {
		i--
	}
	if i+1 < len(p.from) && part[1] >= p.from[i+1].data {
		return [2]int{}
	}
	by := p.from[i].raw - p.from[i].data
	return [2]int{part[0] + by, part[1] + by}
}

// read makes sense of the event's data.
func (p *Parser) read() {
	if text, ok := p.shape.match(p.ev.Data); ok {
		p.delta(text)
		p.ev.Null = p.shape.nullIn(len(p.ev.Data))
	} else if !p.walk() {
		p.ev.Unread = len(p.ev.Data)
		return
	}
	p.over = p.ev.Terminal
	if !p.again {
		for _, d := range p.deltas {
			p.heard.counted += len(d)
		}
	}
	if e := &p.ev; len(p.deltas) == 0 && !e.HasUsage && !e.Terminal && !e.Error {
		e.Unread = p.unread
	}
	p.tally.stale = p.tally.stale || len(p.deltas) > 0 && !p.ev.HasUsage
	p.ev.Usage = p.tally.usage()
	if p.ev.Deltas = p.deltas; len(p.deltas) > 0 {
		p.ev.Delta = p.deltas[0]
	}
}

// walk reads the data as a JSON object; false when it is none.
func (p *Parser) walk() bool {
	was, heard, finishes := p.tally, p.heard, p.finishes
	c := cursor{b: p.ev.Data}
	if c.peek() != '{' && !c.done() {
		return false
	}
	switch p.ep {
	case llm.Messages, llm.CountTokens:
		p.readMessages(&c)
	case llm.Responses:
		p.readResponses(&c)
	default:
		p.readChat(&c)
	}
	if c.peek() != 0 && !p.ev.Terminal {
		p.unread += len(c.b) - c.i // something follows the object
	}
	if c.bad {
		p.tally, p.heard, p.finishes, p.deltas = was, heard, finishes, p.deltas[:0]
		p.ev = Event{Raw: p.ev.Raw, Data: p.ev.Data, resumes: p.ev.resumes}
		return false
	}
	if e := &p.ev; len(p.deltas) == 1 && !p.again && p.finishes == finishes && !e.HasUsage && !e.Terminal && !e.Error && !e.Empty {
		p.shape.learn(e.Data, p.deltas[0], e.Null)
	}
	return true
}

// shape is the latest event that did nothing but add one text, without that text. Most events of a stream are equal to
// it up to the text, and two comparisons tell so, for a tenth of the price of a walk. That is exact: between an equal
// beginning and an equal end stands one whole JSON string, so a walk would take the same path.
type shape struct {
	before, after []byte // with the text's quotes
	null          [2]int // Event.Null in the data it was learnt from
	size          int    // of that data
}

const maxShape = 1 << 10

func (s *shape) match(data []byte) (text []byte, ok bool) {
	n := len(s.before)
	if n == 0 || !bytes.HasPrefix(data, s.before) {
		return nil, false
	}
	c := cursor{b: data, i: n - 1}
	if !c.passString() || !bytes.Equal(data[c.i-1:], s.after) {
		return nil, false
	}
	text = data[n : c.i-1]
	return text, len(text) > 0
}

// nullIn is Event.Null in other data of this shape.
func (s *shape) nullIn(size int) [2]int {
	n := s.null
	if n[0] >= len(s.before) {
		n[0], n[1] = n[0]+size-s.size, n[1]+size-s.size
	}
	return n
}

// learn takes the shape of data; text is a slice of it, which keeps its capacity, and so tells where it begins.
func (s *shape) learn(data, text []byte, null [2]int) {
	if len(data) > maxShape {
		return
	}
	at := cap(data) - cap(text)
	s.null, s.size = null, len(data)
	s.before = append(s.before[:0], data[:at]...)
	s.after = append(s.after[:0], data[at+len(text):]...)
}

func (p *Parser) delta(text []byte) {
	if len(text) > 0 {
		p.deltas = append(p.deltas, text)
	}
}

// Finished tells that so many choices have said all that they will. The usage may still be to come.
func (p *Parser) Finished(choices int) bool { return p.finishes >= max(choices, 1) }

// Usage is what the stream has reported so far, and of which halves; each report replaces the one before. last: no text has
// come since that of the output; at the terminal event it is the last word, before it another may come.
func (p *Parser) Usage() (u llm.Usage, of Reported, last bool) {
	of = p.tally.reported(p.heard.counted > 0)
	return p.tally.usage(), of, of.Output && !p.tally.stale
}
