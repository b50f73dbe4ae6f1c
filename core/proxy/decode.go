package proxy

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/valyala/fasthttp"

	"github.com/weir-gateway/weir/core/llm"
)

const (
	codingGzip = "gzip"
	codingZstd = "zstd"

	zstdWindow = 8 << 20 // the most that RFC 8878 asks every decoder to take
)

// Codings are what Options.Decode may hold.
func Codings() []string { return []string{codingGzip, codingZstd} }

// decoder decodes one body at a time.
type decoder struct {
	in   bytes.Reader
	gzip *gzip.Reader
	zstd *zstd.Decoder
}

// newDecoders makes one for each processor: decoding waits for nothing but a processor, so more would only add to what
// decoders themselves occupy, which no budget counts.
func newDecoders() chan *decoder {
	ds := make(chan *decoder, runtime.GOMAXPROCS(0))
	for range cap(ds) {
		ds <- new(decoder)
	}
	return ds
}

// open begins to decode a body.
func (d *decoder) open(coding string, body []byte) (io.Reader, error) {
	d.in.Reset(body)
	switch {
	case coding == codingZstd && d.zstd != nil:
		return d.zstd, d.zstd.Reset(&d.in)
	case coding == codingZstd:
		z, err := zstd.NewReader(&d.in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
		d.zstd = z
		return z, err
	case d.gzip == nil:
		d.gzip = new(gzip.Reader)
	}
	err := d.gzip.Reset(&d.in)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return d.gzip, err
}

// coding is the coding of a request's body, in lower case; "" where it has none. One that is not among those that are
// decoded is refused, and so are several, also of the same: each could multiply what the one before it made.
func (s *Server) coding(h *fasthttp.RequestHeader) (string, error) {
	named := h.PeekAll(fasthttp.HeaderContentEncoding)
	if len(named) == 0 || len(named) == 1 && (len(named[0]) == 0 || strings.EqualFold(alias(named[0]), "identity")) {
		return "", nil
	}
	for _, name := range s.o.Decode {
		if len(named) == 1 && strings.EqualFold(alias(named[0]), name) {
			return name, nil
		}
	}
	all, instead := bytes.Join(named, []byte(", ")), "as plain JSON"
	if len(s.o.Decode) > 0 {
		instead += ", or in one of these codings: " + strings.Join(s.o.Decode, ", ")
	}
	e := llm.Errorf(llm.KindInvalid, "Content-Encoding %s is not supported; send the body %s", llm.Quote(all, 32), instead)
	e.Status, e.Code = fasthttp.StatusUnsupportedMediaType, "unsupported_content_encoding"
	return "", e
}

// decode puts the decoded body in the place of the body.
func (s *Server) decode(c *call, coding string) error {
	d := <-s.decoders
	defer func() { d.in.Reset(nil); s.decoders <- d }()
	r, err := d.open(coding, c.body)
	if err == nil {
		err = c.fill(r, s.o.BodyBytes)
	}
	var known *llm.Error
	switch {
	case err == nil:
		c.body = c.decoded
	case !errors.As(err, &known):
		e := llm.Errorf(llm.KindInvalid, "the body is not well-formed %s, which its Content-Encoding says it is: %v", coding, err)
		e.Param = "body"
		return e
	}
	return err
}

// fill reads all of r into c.decoded, but not more than most. What that grows to is charged before it grows.
func (c *call) fill(r io.Reader, most int) error {
	buf, charged := c.decoded[:0], 0
	defer func() { c.decoded = buf }()
	for {
		if len(buf) == cap(buf) {
			grown := make([]byte, len(buf), min(max(2*cap(buf), 4*len(c.body), 4<<10), most+1))
			copy(grown, buf)
			buf = grown
		}
		if c.conn != nil && !c.conn.charge(cap(buf)-charged) {
			return crowded()
		}
		charged = cap(buf)
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case len(buf) > most:
			e := tooLarge(most)
			e.Message += " when it is decoded"
			return e
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
