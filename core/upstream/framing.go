package upstream

import "errors"

var (
	errChunk   = errors.New("answer's chunked framing is broken")
	errTrailer = errors.New("answer's trailer is over 8 KiB")
)

const (
	maxTrailer  = 8 << 10
	maxChunkExt = 256 // bytes of extensions after one chunk size
)

// frame finds the end of an answer's body. It does no I/O: it is fed what has arrived, in any pieces.
type frame struct {
	kind  frameKind
	state chunkState
	left  int64 // of the body, or of the current chunk
	extra int   // bytes of extension or trailer seen
	done  bool
}

type frameKind uint8

const (
	byLength frameKind = iota
	byChunks
	byClose // until the peer closes: the end is io.EOF's to say
)

type chunkState uint8

const (
	inSize chunkState = iota // before the first digit
	inDigits
	inExtension
	inSizeLF // the CR of the size line was seen
	inData
	inDataCR
	inDataLF
	inTrailer     // at the start of a trailer line
	inTrailerLine // inside one
	inTrailerLF
	inEndLF // the CR of the empty line was seen
)

// decode moves body bytes from src to dst until one of them is used up or the body ends (done).
func (f *frame) decode(dst, src []byte) (written, read int, err error) {
	for read < len(src) && !f.done {
		if f.kind == byChunks && f.state != inData {
			err = f.step(src[read])
			read++
			if err != nil {
				return written, read, err
			}
			continue
		}
		n := min(len(dst)-written, len(src)-read)
		if f.kind != byClose {
			n = int(min(int64(n), f.left))
		}
		if n == 0 {
			break
		}
		copy(dst[written:], src[read:read+n])
		written, read = written+n, read+n
		f.advance(n)
	}
	return written, read, nil
}

// direct is how many of the next bytes are certainly body, so that they may be read past the buffer.
func (f *frame) direct(room int) int {
	switch {
	case f.done, f.kind == byChunks && f.state != inData:
		return 0
	case f.kind == byClose:
		return room
	}
	return int(min(int64(room), f.left))
}

// advance counts n body bytes.
func (f *frame) advance(n int) {
	if f.kind == byClose {
		return
	}
	if f.left -= int64(n); f.left > 0 {
		return
	}
	if f.kind == byLength {
		f.done = true
	} else {
		f.state = inDataCR
	}
}

// step takes one byte of chunk framing. It is strict: CRLF only, hexadecimal sizes of at most 15 digits, no blanks.
func (f *frame) step(b byte) error {
	switch f.state {
	case inSize, inDigits:
		return f.size(b)
	case inExtension:
		return f.extension(b)
	case inSizeLF:
		if f.left > 0 {
			return f.expect(b, '\n', inData)
		}
		return f.expect(b, '\n', inTrailer)
	case inDataCR:
		return f.expect(b, '\r', inDataLF)
	case inDataLF:
		return f.expect(b, '\n', inSize)
	case inTrailer, inTrailerLine:
		return f.trailer(b)
	case inTrailerLF:
		return f.expect(b, '\n', inTrailer)
	default: // inEndLF
		f.done = b == '\n'
		return f.expect(b, '\n', inEndLF)
	}
}

func (f *frame) expect(b, want byte, next chunkState) error {
	if b != want {
		return errChunk
	}
	f.state = next
	return nil
}

func (f *frame) size(b byte) error {
	if f.state == inSize {
		f.left, f.extra = 0, 0
	}
	digit := hexDigit(b)
	switch {
	case digit >= 0:
		if f.extra++; f.extra > 15 {
			return errChunk
		}
		f.left = f.left<<4 | int64(digit)
		f.state = inDigits
	case f.state == inSize:
		return errChunk
	case b == '\r':
		f.state = inSizeLF
	case b == ';':
		f.state, f.extra = inExtension, 0
	default:
		return errChunk
	}
	return nil
}

func (f *frame) extension(b byte) error {
	if f.extra++; f.extra > maxChunkExt || b == '\n' {
		return errChunk
	}
	if b == '\r' {
		f.state, f.extra = inSizeLF, 0
	}
	return nil
}

func (f *frame) trailer(b byte) error {
	if f.extra++; f.extra > maxTrailer {
		return errTrailer
	}
	switch {
	case b == '\n':
		return errChunk
	case b == '\r' && f.state == inTrailer:
		f.state = inEndLF
	case b == '\r':
		f.state = inTrailerLF
	default:
		f.state = inTrailerLine
	}
	return nil
}

func hexDigit(b byte) int {
	switch {
	case '0' <= b && b <= '9':
		return int(b - '0')
	case 'a' <= b && b <= 'f':
		return int(b-'a') + 10
	case 'A' <= b && b <= 'F':
		return int(b-'A') + 10
	}
	return -1
}
