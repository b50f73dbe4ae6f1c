package ledger

import (
	"encoding/binary"
	"errors"

	"github.com/weir-gateway/weir/core/llm"
)

// The wire form of an entry, version 1: version, kind, a mask of the fields that differ from a base entry (4
// bytes), then those fields in the order of coder.fields: numbers as zig-zag varints of the difference, strings
// whole with their length before them. One walk over the fields both writes and reads, so that the two cannot
// disagree. Alone, an entry's base is the empty one; in a chunk it is the one before of the same kind, which is why a
// request takes some 70 bytes there and not 200: neighbours share models, prices, periods, and most of the
// digits of their numbers and times.
//
// A chunk is: version, first sequence, number of entries, start of the tail, then the entries. An ending is
// followed by the reserve it ends, so that a usage record is read in one place.
const (
	codecVersion = 1
	entryHead    = 6
	maxString    = 4 << 10
)

var (
	errShort    = errors.New("the value ends too early")
	errVersion  = errors.New("written by a newer version")
	errMalform  = errors.New("malformed entry")
	errTrailing = errors.New("bytes after the end")
)

// coder walks the fields of an entry in one direction: writing to buf, or reading from its start.
type coder struct {
	buf     []byte
	base    *llm.Entry
	mask    uint32
	bit     uint32
	reading bool
	err     error
}

// bases are the entries that the next ones of a chunk are told as differences from: by kind, and at 0 the reserve
// that goes with an ending.
type bases struct {
	last  [llm.EntryCredit + 1]*llm.Entry // nil: the empty one
	empty llm.Entry
}

// next gives the base of an entry, and makes the entry that of the next one.
func (b *bases) next(k llm.EntryKind, e *llm.Entry) *llm.Entry {
	base := b.last[k]
	if b.last[k] = e; base == nil {
		return &b.empty
	}
	return base
}

// appendEntry appends the wire form of e to b.
func appendEntry(b []byte, e, base *llm.Entry) []byte {
	at := len(b)
	c := coder{buf: append(b, codecVersion, byte(e.Kind), 0, 0, 0, 0), bit: 1, base: base}
	c.fields(e)
	binary.LittleEndian.PutUint32(c.buf[at+2:], c.mask)
	return c.buf
}

// readEntry decodes one entry from the start of b and gives what follows it. It never panics. The base is chosen by
// the kind that is read.
func readEntry(b []byte, e *llm.Entry, base func(llm.EntryKind) *llm.Entry) (rest []byte, err error) {
	if len(b) < entryHead {
		return nil, errShort
	}
	if b[0] != codecVersion {
		return nil, errVersion
	}
	kind := llm.EntryKind(b[1])
	if kind < llm.EntryReserve || kind > llm.EntryCredit {
		return nil, errMalform
	}
	c := coder{buf: b[entryHead:], mask: binary.LittleEndian.Uint32(b[2:]), bit: 1, reading: true, base: base(kind)}
	c.fields(e)
	e.Kind = kind
	if c.err == nil && c.mask >= c.bit {
		c.err = errVersion // a field this version does not know
	}
	return c.buf, c.err
}

// alone is the base of an entry that stands by itself.
func alone(llm.EntryKind) *llm.Entry { return &llm.Entry{} }

// fields is the order of the wire. New fields go to the end.
func (c *coder) fields(e *llm.Entry) {
	b := c.base
	flag(c, &e.Stream, b.Stream)
	flag(c, &e.Estimated, b.Estimated)
	flag(c, &e.Billed, b.Billed)
	number(c, &e.Endpoint, b.Endpoint)
	number(c, &e.Status, b.Status)
	number(c, &e.ID, b.ID)
	number(c, &e.RequestID, b.RequestID)
	number(c, &e.AtMS, b.AtMS)
	number(c, &e.OrgID, b.OrgID)
	number(c, &e.UserID, b.UserID)
	number(c, &e.KeyID, b.KeyID)
	number(c, &e.Label, b.Label)
	text(c, &e.Model, b.Model)
	text(c, &e.Channel, b.Channel)
	number(c, &e.Price.Input, b.Price.Input)
	number(c, &e.Price.CachedInput, b.Price.CachedInput)
	number(c, &e.Price.CacheWrite, b.Price.CacheWrite)
	number(c, &e.Price.Output, b.Price.Output)
	number(c, &e.Price.Request, b.Price.Request)
	number(c, &e.Held, b.Held)
	number(c, &e.Cost, b.Cost)
	number(c, &e.Usage.InputTokens, b.Usage.InputTokens)
	number(c, &e.Usage.CachedInputTokens, b.Usage.CachedInputTokens)
	number(c, &e.Usage.CacheWriteTokens, b.Usage.CacheWriteTokens)
	number(c, &e.Usage.OutputTokens, b.Usage.OutputTokens)
	number(c, &e.HTTPStatus, b.HTTPStatus)
	number(c, &e.LatencyMS, b.LatencyMS)
	number(c, &e.FirstMS, b.FirstMS)
	number(c, &e.WeekLabel, b.WeekLabel)
	number(c, &e.DayLabel, b.DayLabel)
	text(c, &e.ServiceTier, b.ServiceTier)
}

// present moves to the next field and reports whether it is to be read.
func (c *coder) present() bool {
	bit := c.bit
	c.bit <<= 1
	return c.mask&bit != 0 && c.err == nil
}

// mark moves to the next field and notes whether it is written.
func (c *coder) mark(set bool) bool {
	if set {
		c.mask |= c.bit
	}
	c.bit <<= 1
	return set
}

func flag(c *coder, p *bool, base bool) {
	if c.reading {
		*p = c.present() != base
	} else {
		c.mark(*p != base)
	}
}

// number codes the difference from base. It wraps around at the ends of int64 on the way there and back.
func number[T ~uint8 | ~int32 | ~int64 | ~uint64](c *coder, p *T, base T) {
	if !c.reading {
		if c.mark(*p != base) {
			c.buf = binary.AppendVarint(c.buf, int64(*p)-int64(base))
		}
		return
	}
	*p = base
	if !c.present() {
		return
	}
	v := int64(base) + c.varint()
	if *p = T(v); int64(*p) != v {
		c.err = errMalform
	}
}

func text(c *coder, p *string, base string) {
	if !c.reading {
		if c.mark(*p != base) {
			s := (*p)[:min(len(*p), maxString)]
			c.buf = append(binary.AppendVarint(c.buf, int64(len(s))), s...)
		}
		return
	}
	*p = base
	if !c.present() {
		return
	}
	n := c.varint()
	if c.err != nil || n < 0 || n > maxString || n > int64(len(c.buf)) {
		c.err = errShort
		return
	}
	*p, c.buf = string(c.buf[:n]), c.buf[n:]
}

func (c *coder) varint() int64 {
	v, n := binary.Varint(c.buf)
	if n <= 0 {
		c.err = errShort
		return 0
	}
	c.buf = c.buf[n:]
	return v
}

// chunkHead is what precedes the entries of a chunk.
type chunkHead struct {
	first uint64 // sequence of the first entry
	count uint64
	tail  uint64 // chunk from which a restart must read the log
}

func appendChunkHead(b []byte, h chunkHead) []byte {
	b = append(b, codecVersion)
	b = binary.AppendUvarint(b, h.first)
	b = binary.AppendUvarint(b, h.count)
	return binary.AppendUvarint(b, h.tail)
}

func readChunkHead(b []byte) (h chunkHead, rest []byte, err error) {
	if len(b) == 0 {
		return h, nil, errShort
	}
	if b[0] != codecVersion {
		return h, nil, errVersion
	}
	b = b[1:]
	for _, p := range []*uint64{&h.first, &h.count, &h.tail} {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return h, nil, errShort
		}
		*p, b = v, b[n:]
	}
	return h, b, nil
}

// appendPair appends an entry of a chunk and, for an ending, the reserve it ends. Both must stay as they are until the
// chunk is complete.
func appendPair(b []byte, e, reserve *llm.Entry, last *bases) []byte {
	b = appendEntry(b, e, last.next(e.Kind, e))
	if ends(e.Kind) {
		b = appendEntry(b, reserve, last.next(0, reserve))
	}
	return b
}

// readChunk decodes a chunk and visits its entries in order; reserve is set for endings. The entries are valid only
// during the visit.
func readChunk(b []byte, visit func(i int, e, reserve *llm.Entry) error) (chunkHead, error) {
	h, b, err := readChunkHead(b)
	if err != nil {
		return h, err
	}
	var last [llm.EntryCredit + 1]llm.Entry
	own := func(k llm.EntryKind) *llm.Entry { return &last[k] }
	ended := func(llm.EntryKind) *llm.Entry { return &last[0] }
	var e, r llm.Entry
	for i := range h.count {
		if b, err = readEntry(b, &e, own); err != nil {
			return h, err
		}
		last[e.Kind] = e
		reserve := &r
		if !ends(e.Kind) {
			reserve = nil
		} else if b, err = readEntry(b, reserve, ended); err != nil {
			return h, err
		} else {
			last[0] = r
		}
		if err = visit(int(i), &e, reserve); err != nil {
			return h, err
		}
	}
	if len(b) != 0 {
		return h, errTrailing
	}
	return h, nil
}

func ends(k llm.EntryKind) bool { return k == llm.EntrySettle || k == llm.EntryVoid }

// The small values: totals and numbers.

func putNumbers(n ...int64) []byte { return appendNumbers(nil, n...) }

func appendNumbers(b []byte, n ...int64) []byte {
	b = append(b, codecVersion)
	for _, v := range n {
		b = binary.AppendVarint(b, v)
	}
	return b
}

func getNumbers(b []byte, n ...*int64) error {
	if len(b) == 0 || b[0] != codecVersion {
		return errVersion
	}
	c := coder{buf: b[1:]}
	for _, p := range n {
		*p = c.varint()
	}
	if c.err == nil && len(c.buf) != 0 {
		c.err = errTrailing
	}
	return c.err
}
