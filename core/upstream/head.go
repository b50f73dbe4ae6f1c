package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"
)

const maxInterim = 8 // 1xx answers before the real one

var (
	errStatusLine = errors.New("answer does not start with an HTTP/1.1 status line")
	errHeader     = errors.New("answer has a malformed header")
	errFraming    = errors.New("answer's framing is ambiguous")
)

// head is what matters of an answer's head.
type head struct {
	status      int
	old         bool // HTTP/1.0
	frame       frame
	sized       bool // a Content-Length was given
	chunked     bool
	closing     bool // the connection ends with this answer
	keepAlive   bool
	coded       bool // a content coding nobody asked for
	astray      bool // what answered is no API
	contentType string
	retryAfter  time.Duration // 0: none
	retryAt     time.Time     // what Retry-After says when it is a date; zero: it is none
	keep        time.Duration // how long the peer keeps an idle connection; 0: it does not say
}

// readHead reads the head of the answer, passing over interim ones.
func (c *conn) readHead(h *head) error {
	budget := maxHead
	for range maxInterim {
		*h = head{}
		if err := c.readOneHead(h, &budget); err != nil {
			return err
		}
		if h.status >= 200 || h.status == 101 {
			return h.settle()
		}
	}
	return fmt.Errorf("more than %d interim answers", maxInterim)
}

func (c *conn) readOneHead(h *head, budget *int) error {
	line, err := c.line(budget)
	if err != nil {
		return err
	}
	if err := h.statusLine(line); err != nil {
		return err
	}
	for {
		line, err := c.line(budget)
		if err != nil {
			return err
		}
		if len(line) == 0 {
			return nil
		}
		if err := h.field(line); err != nil {
			return err
		}
	}
}

func (h *head) statusLine(line []byte) error {
	// HTTP/1.1 200 OK
	if len(line) < 12 || string(line[:7]) != "HTTP/1." || line[8] != ' ' || len(line) > 12 && line[12] != ' ' {
		return errStatusLine
	}
	switch line[7] {
	case '0':
		h.old = true
	case '1':
	default:
		return errStatusLine
	}
	status, err := strconv.Atoi(string(line[9:12]))
	if err != nil || status < 100 || status > 599 {
		return errStatusLine
	}
	h.status = status
	return nil
}

// field takes one header line. Folded lines, blanks before the colon and control characters are refused: they are how
// one answer is made to look like two.
func (h *head) field(line []byte) error {
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 {
		return errHeader
	}
	name, value := line[:colon], bytes.Trim(line[colon+1:], " \t")
	for _, b := range name {
		if b <= ' ' || b >= 0x7f || b == '"' || b == '(' || b == ')' || b == ',' {
			return errHeader
		}
	}
	for _, b := range value {
		if b < ' ' && b != '\t' || b == 0x7f {
			return errHeader
		}
	}
	return h.known(name, value)
}

func (h *head) known(name, value []byte) error {
	switch len(name) {
	case len("content-length"):
		if fold(name, "content-length") {
			return h.length(value)
		}
		if fold(name, "retry-after-ms") {
			if ms, err := strconv.ParseFloat(string(value), 64); err == nil && ms > 0 {
				h.retryAfter = time.Duration(min(ms, 3.6e6) * float64(time.Millisecond))
			}
		}
	case len("transfer-encoding"):
		if fold(name, "transfer-encoding") {
			if h.chunked || !fold(value, "chunked") {
				return errFraming
			}
			h.chunked = true
		}
	case len("content-encoding"):
		if fold(name, "content-encoding") {
			h.coded = !fold(value, "identity")
		}
	case len("content-type"):
		if fold(name, "content-type") {
			h.contentType = intern(value)
		}
	case len("connection"): // and keep-alive
		switch {
		case fold(name, "connection"):
			h.connection(value)
		case fold(name, "keep-alive"):
			h.kept(value)
		}
	case len("retry-after"):
		if fold(name, "retry-after") && h.retryAfter == 0 {
			h.later(value)
		}
	}
	return nil
}

// later reads Retry-After: seconds or one of the three forms of an HTTP date.
func (h *head) later(value []byte) {
	if s, err := strconv.ParseFloat(string(value), 64); err == nil {
		if s > 0 {
			h.retryAfter = time.Duration(min(s, 3600) * float64(time.Second))
		}
		return
	}
	for _, layout := range [...]string{"Mon, 02 Jan 2006 15:04:05 GMT", "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC} {
		if at, err := time.Parse(layout, string(value)); err == nil {
			h.retryAt = at
			return
		}
	}
}

// wait is how long the peer asks to be left alone; 0: it does not say, or the time has passed.
func (h *head) wait(now time.Time) time.Duration {
	if h.retryAfter > 0 || h.retryAt.IsZero() {
		return h.retryAfter
	}
	return max(h.retryAt.Sub(now), 0)
}

// kept reads Keep-Alive: timeout=5, max=100.
func (h *head) kept(value []byte) {
	for part := range bytes.SplitSeq(value, []byte(",")) {
		name, n, _ := bytes.Cut(bytes.Trim(part, " \t"), []byte("="))
		if s, ok := plainDigits(n); ok && fold(name, "timeout") {
			h.keep = time.Duration(min(s, 3600)) * time.Second
			h.closing = h.closing || s == 0
		}
	}
}

func (h *head) length(value []byte) error {
	if h.sized || len(value) == 0 || len(value) > 15 {
		return errFraming
	}
	for _, b := range value {
		if b < '0' || b > '9' {
			return errFraming
		}
		h.frame.left = h.frame.left*10 + int64(b-'0')
	}
	h.sized = true
	return nil
}

func (h *head) connection(value []byte) {
	for token := range bytes.SplitSeq(value, []byte(",")) {
		token = bytes.Trim(token, " \t")
		h.closing = h.closing || fold(token, "close")
		h.keepAlive = h.keepAlive || fold(token, "keep-alive")
	}
}

// settle works out the body's framing once the whole head is known.
func (h *head) settle() error {
	h.closing = h.closing || h.old && !h.keepAlive
	switch {
	case h.chunked && (h.sized || h.old):
		return errFraming
	case h.status == 204 || h.status == 304 || h.status == 101:
		h.frame = frame{done: true}
	case h.chunked:
		h.frame = frame{kind: byChunks}
	case h.sized:
		h.frame.done = h.frame.left == 0
	default:
		h.frame = frame{kind: byClose}
		h.closing = true
	}
	return nil
}

// fold compares an ASCII header name or token with a lower-case word.
func fold(b []byte, word string) bool {
	if len(b) != len(word) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != word[i] {
			return false
		}
	}
	return true
}

// intern avoids an allocation for the content types that are met all day.
func intern(value []byte) string {
	for _, s := range [...]string{"application/json", "text/event-stream", "text/event-stream; charset=utf-8",
		"application/json; charset=utf-8", "text/event-stream;charset=utf-8"} {
		if string(value) == s {
			return s
		}
	}
	return string(value)
}
