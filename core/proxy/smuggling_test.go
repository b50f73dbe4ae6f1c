package proxy_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/proxy"
)

// strictUpstream reads requests as the narrowest reading of HTTP/1.1 has them, and keeps every byte that came.
type strictUpstream struct {
	url string
	mu  struct {
		sync.Mutex
		conns  int
		got    [][]byte // requests, head and body
		left   []byte   // what is no request
		status int      // of the answers; 0: 200
		extra  string   // header lines of the answers
	}
}

const anAnswer = `{"id":"c","object":"chat.completion","created":1,"model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}`

func newStrictUpstream(t *testing.T) *strictUpstream {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	u := &strictUpstream{url: "http://" + ln.Addr().String()}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			u.mu.Lock()
			u.mu.conns++
			u.mu.Unlock()
			open.Go(func() { u.serve(c) })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); open.Wait() })
	return u
}

func (u *strictUpstream) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	for {
		request, err := strictRequest(in)
		u.mu.Lock()
		if err == nil {
			u.mu.got = append(u.mu.got, request)
		} else {
			u.mu.left = append(u.mu.left, request...)
		}
		status, extra := max(u.mu.status, 200), u.mu.extra
		u.mu.Unlock()
		if err != nil {
			return
		}
		if _, err := fmt.Fprintf(c, "HTTP/1.1 %d Said\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status, extra, len(anAnswer), anAnswer); err != nil {
			return
		}
	}
}

// adds sets the header lines that answers have from now on.
func (u *strictUpstream) adds(lines string) { u.says(200, lines) }

// says sets their status, too.
func (u *strictUpstream) says(status int, lines string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.mu.status, u.mu.extra = status, lines
}

var lengthOf = regexp.MustCompile(`\r\nContent-Length: (\d+)\r\n`)

func strictRequest(in *bufio.Reader) (b []byte, err error) {
	for !bytes.HasSuffix(b, []byte("\r\n\r\n")) {
		line, err := in.ReadBytes('\n')
		if b = append(b, line...); err != nil {
			return b, err
		}
	}
	found := lengthOf.FindAllSubmatch(b, -1)
	if len(found) != 1 {
		return b, errors.New("not one length")
	}
	n, err := strconv.Atoi(string(found[0][1]))
	if err != nil {
		return b, err
	}
	body := make([]byte, n)
	k, err := io.ReadFull(in, body)
	return append(b, body[:k]...), err
}

// take gives the requests that came since the last time, and what came beside them.
func (u *strictUpstream) take() (got [][]byte, left []byte, conns int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	got, u.mu.got = u.mu.got, nil
	return got, u.mu.left, u.mu.conns
}

// smuggling writes requests that two parsers may read in two ways.
type smuggling struct {
	auth       string // the header lines that every request has
	body       string // of the request that is meant
	inner      string // a request that would work, and stands where it is no request
	chunked    string // body in one chunk
	contentLen string
}

func newSmuggling(r *rig) *smuggling {
	const innerBody = `{"model":"gpt-4o","max_tokens":50,"messages":[{"role":"user","content":"SMUGGLED"}]}`
	s := &smuggling{auth: "Host: weir\r\nContent-Type: application/json\r\nAuthorization: Bearer " + r.token + "\r\n"}
	s.body = `{"model":"gpt-4o","max_tokens":50,"messages":[{"role":"user","content":"meant"}]}`
	s.inner = s.post("Content-Length: "+itoa(len(innerBody))+"\r\n") + innerBody
	s.chunked = fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(s.body), s.body)
	s.contentLen = "Content-Length: " + itoa(len(s.body)) + "\r\n"
	return s
}

const postLine = "POST /v1/chat/completions HTTP/1.1\r\n"

func (s *smuggling) post(more ...string) string {
	return postLine + s.auth + strings.Join(more, "") + "\r\n"
}

// good is a request as it should be.
func (s *smuggling) good() string { return s.post(s.contentLen) + s.body }

// attack is one input and what must come of it: the answers, with "close" when the connection ends, and how often what was
// meant and what was smuggled arrive upstream.
type attack struct{ name, input, answers, upstream string }

// codings spell Transfer-Encoding in ways that one parser takes for chunked and another does not.
func (s *smuggling) codings() (as []attack) {
	refused := func(name string, lines ...string) {
		as = append(as, attack{name, s.post(lines...) + s.chunked + s.inner, "400 close", ""})
	}
	const te = "Transfer-Encoding: chunked\r\n"
	refused("CL.TE", s.contentLen, te)
	refused("TE.CL", te, s.contentLen)
	refused("CL 0 and TE", "Content-Length: 0\r\n", te)
	refused("TE and a long CL", te, "Content-Length: 900\r\n")
	refused("CL and identity", s.contentLen, "Transfer-Encoding: identity\r\n")
	refused("two TE", te, te)
	refused("TE and another TE", te, "Transfer-Encoding: x\r\n")
	refused("TE: identity and TE", "Transfer-Encoding: identity\r\n", te)
	refused("a coding behind", "Transfer-Encoding: chunked, identity\r\n")
	refused("a coding before", "Transfer-Encoding: identity, chunked\r\n")
	refused("gzip before", "Transfer-Encoding: gzip, chunked\r\n")
	refused("chunked twice", "Transfer-Encoding: chunked, chunked\r\n")
	refused("xchunked", "Transfer-Encoding: xchunked\r\n")
	refused("a parameter", "Transfer-Encoding: chunked;q=1\r\n")
	refused("quoted", "Transfer-Encoding: \"chunked\"\r\n")
	refused("vertical tab", "Transfer-Encoding: \x0bchunked\r\n")
	refused("NUL behind", "Transfer-Encoding: chunked\x00\r\n")
	refused("NUL in the name", "Transfer-Encoding\x00: chunked\r\n")
	refused("blank before the colon", s.contentLen, "Transfer-Encoding : chunked\r\n")
	refused("tab before the colon", s.contentLen, "Transfer-Encoding\t: chunked\r\n")
	refused("folded value", "Transfer-Encoding:\r\n chunked\r\n")
	refused("folded name", s.contentLen, "X-A: b\r\n Transfer-Encoding: chunked\r\n")
	refused("behind a bare LF", s.contentLen, "X-A: b\nTransfer-Encoding: chunked\r\n")
	refused("behind a bare CR", s.contentLen, "X-A: b\rTransfer-Encoding: chunked\r\n")
	refused("empty", "Transfer-Encoding:\r\n")
	refused("empty beside a length", s.contentLen, "Transfer-Encoding:\r\n")
	return append(as,
		attack{"HTTP/1.0", strings.Replace(s.post(te), "HTTP/1.1", "HTTP/1.0", 1) + s.chunked + s.inner, "400 close", ""},
		attack{"upper case", s.post("TRANSFER-ENCODING: CHUNKED\r\n") + s.chunked, "200", "A"},
		attack{"blanks around", s.post("Transfer-Encoding: \t chunked \t\r\n") + s.chunked, "200", "A"},
		attack{"another name", s.post(s.contentLen, "Transfer_Encoding: chunked\r\n") + s.body, "200", "A"},
		attack{"identity alone", s.post("Transfer-Encoding: identity\r\n") + s.good(), "400 close", ""},
	)
}

// lengths spell Content-Length in ways that are read in two.
func (s *smuggling) lengths() (as []attack) {
	n := itoa(len(s.body))
	for name, value := range map[string]string{
		"sign": "+" + n, "minus": "-" + n, "minus 1": "-1", "hexadecimal": "0x51", "exponent": "8e1", "fraction": n + ".0", "a blank inside": "8 1", "a list": n + ", " + n,
		"a parameter": n + ";a", "letters": n + "a", "vertical tab": n + "\x0b", "form feed": "\x0c" + n, "NUL": n + "\x00", "nothing": "", "2^64 and more": "18446744073709551697",
		"2^63": "9223372036854775808", "very long": strings.Repeat("9", 400), "Arabic digits": "٨١", "quoted": `"` + n + `"`, "folded": "\r\n " + n, "underscore": "8_1", "octal": "0o121",
	} {
		as = append(as, attack{"length: " + name, s.post("Content-Length: ", value, "\r\n") + s.body + s.inner, "400 close", ""})
	}
	return append(as,
		attack{"two lengths", s.post(s.contentLen, s.contentLen) + s.body + s.inner, "400 close", ""},
		attack{"two other lengths", s.post(s.contentLen, "Content-Length: 0\r\n") + s.body + s.inner, "400 close", ""},
		attack{"length, a blank before the colon", s.post("Content-Length : ", n, "\r\n") + s.body + s.inner, "400 close", ""},
		attack{"length behind a bare LF", s.post("X-A: b\n", s.contentLen) + s.body + s.inner, "400 close", ""},
		attack{"length by another name", s.post("Content_Length: ", n, "\r\n") + s.inner, "400 200", "B"},
		attack{"zeros before the length", s.post("Content-Length: 000", n, "\r\n") + s.body, "200", "A"},
		attack{"a length too short", s.post("Content-Length: ", itoa(len(s.body)-1), "\r\n") + s.body + s.inner, "400 400 close", ""},
		attack{"a body without a length", s.post() + s.inner, "400 200", "B"},
	)
}

// chunks break the framing of a chunked body.
func (s *smuggling) chunks() (as []attack) {
	head := s.post("Transfer-Encoding: chunked\r\n")
	size := fmt.Sprintf("%x", len(s.body))
	refused := func(name, body string) {
		as = append(as, attack{"chunk: " + name, head + body + s.inner, "400 close", ""})
	}
	whole := func(size, behind string) string { return size + "\r\n" + s.body + "\r\n" + behind }
	refused("size over 64 bits", whole("1000000000000000"+size, "0\r\n\r\n"))
	refused("size of 2^63", whole("8000000000000000", "0\r\n\r\n"))
	refused("size of -1", whole("ffffffffffffffff", "0\r\n\r\n"))
	refused("0x", whole("0x"+size, "0\r\n\r\n"))
	refused("plus", whole("+"+size, "0\r\n\r\n"))
	refused("minus", whole("-"+size, "0\r\n\r\n"))
	refused("blank before", whole(" "+size, "0\r\n\r\n"))
	refused("no size", whole("", "0\r\n\r\n"))
	refused("only an extension", whole(";a=b", "0\r\n\r\n"))
	refused("no hexadecimal", whole("zz", "0\r\n\r\n"))
	refused("bare LF behind the size", size+"\n"+s.body+"\r\n0\r\n\r\n")
	refused("bare CR behind the size", size+"\r"+s.body+"\r\n0\r\n\r\n")
	refused("two CR", size+"\r\r\n"+s.body+"\r\n0\r\n\r\n")
	refused("LF in an extension", whole(size+";a\nb", "0\r\n\r\n"))
	refused("NUL in the size", whole(size+"\x00", "0\r\n\r\n"))
	refused("more than its size", size+"\r\n"+s.body+"XX\r\n0\r\n\r\n")
	refused("less than its size", size+"\r\n"+s.body[1:]+"\r\n0\r\n\r\n")
	refused("bare LF behind the bytes", size+"\r\n"+s.body+"\n0\r\n\r\n")
	refused("no end of the bytes", size+"\r\n"+s.body+"0\r\n\r\n")
	for _, name := range []string{"Content-Length: 50", "Transfer-Encoding: chunked", "Host: other", "Authorization: Bearer x", "Content-Type: text/plain", "Connection: close", "Expect: 100-continue", "Trailer: x", "broken"} {
		refused("trailer "+name, whole(size, "0\r\n"+name+"\r\n\r\n"))
	}
	return append(as,
		attack{"chunk: an extension", head + whole(size+";a=b", "0\r\n\r\n") + s.good(), "200 200", "AA"},
		attack{"chunk: zeros before the size", head + whole("000"+size, "000\r\n\r\n") + s.good(), "200 200", "AA"},
		attack{"chunk: upper case", head + whole(strings.ToUpper(size), "0\r\n\r\n") + s.good(), "200 200", "AA"},
		attack{"chunk: a trailer that is fine", head + whole(size, "0\r\nX-Sum: 1\r\n\r\n") + s.good(), "200 200", "AA"},
		attack{"chunk: a folded trailer", head + whole(size, "0\r\nX-A: b\r\n c\r\n\r\n") + s.good(), "200 200", "AA"},
		attack{"chunk: bytes of zero", head + "0\r\n\r\n" + s.good(), "400 200", "A"},
	)
}

// heads are ambiguous before any body, or tempt to forget one.
func (s *smuggling) heads() (as []attack) {
	line := func(name, first, answers, upstream string) {
		as = append(as, attack{name, first + s.auth + s.contentLen + "\r\n" + s.body + s.good(), answers, upstream})
	}
	line("absolute form, another host", "POST http://other/v1/chat/completions HTTP/1.1\r\n", "200 200", "AA")
	line("absolute form of an upstream", "POST http://127.0.0.1:1/v1/chat/completions HTTP/1.1\r\n", "200 200", "AA")
	line("absolute form, the operator's", "POST http://weir/admin/keys HTTP/1.1\r\n", "404 200", "A")
	line("absolute form with a user", "POST http://other@weir/v1/chat/completions HTTP/1.1\r\n", "404 200", "A")
	line("absolute form, another scheme", "POST ftp://weir/v1/chat/completions HTTP/1.1\r\n", "404 200", "A")
	line("authority form", "POST weir:80 HTTP/1.1\r\n", "400 close", "")
	line("CONNECT", "CONNECT weir:80 HTTP/1.1\r\n", "404 200", "A")
	line("an empty line first", "\r\n"+postLine, "200 200", "AA")
	line("empty lines first", "\r\n\r\n\r\n"+postLine, "200 200", "AA")
	line("two blanks", "POST  /v1/chat/completions HTTP/1.1\r\n", "400 close", "")
	line("tabs", "POST\t/v1/chat/completions\tHTTP/1.1\r\n", "400 close", "")
	line("a blank behind", "POST /v1/chat/completions HTTP/1.1 \r\n", "400 close", "")
	line("HTTP/1.10", "POST /v1/chat/completions HTTP/1.10\r\n", "400 close", "")
	line("HTTP/2.0", "POST /v1/chat/completions HTTP/2.0\r\n", "505 close", "")
	line("no version", "POST /v1/chat/completions\r\n", "400 close", "")
	line("a bare CR in the target", "POST /v1/chat/completions?a\rb HTTP/1.1\r\n", "400 close", "")
	line("NUL in the target", "POST /v1/chat/completions?\x00 HTTP/1.1\r\n", "400 close", "")
	line("a fragment", "POST /v1/chat/completions#x HTTP/1.1\r\n", "404 200", "A")
	line("post", "post /v1/chat/completions HTTP/1.1\r\n", "404 200", "A")
	line("another host", postLine+"Host: other\r\n", "400 close", "")
	line("a header without a name", postLine+": x\r\n", "400 close", "")
	line("a header without a colon", postLine+"x\r\n", "400 close", "")
	line("a blank in a name", postLine+"X Y: x\r\n", "400 close", "")
	line("a bare CR in a value", postLine+"X-A: a\rb\r\n", "400 close", "")
	line("a bare LF in a value", postLine+"X-A: a\nX-B: b\r\n", "400 close", "")
	line("h2c", postLine+"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n", "200 200", "AA")
	line("a web socket", postLine+"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n", "200 200", "AA")
	line("Expect", postLine+"Expect: 100-continue\r\n", "100 200 200", "AA")
	line("Expect something else", postLine+"Expect: 200-ok\r\n", "200 200", "AA")
	line("Connection names the length", postLine+"Connection: Content-Length\r\n", "200 200", "AA")
	for _, method := range []string{"GET", "HEAD", "DELETE", "OPTIONS", "TRACE", "PUT"} {
		first := method + " /v1/chat/completions HTTP/1.1\r\n"
		as = append(as,
			attack{method + " with a request for a body", first + s.auth + "Content-Length: " + itoa(len(s.inner)) + "\r\n\r\n" + s.inner + s.good(), "404 200", "A"},
			attack{method + " with a request in a chunk", first + s.auth + "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(s.inner), s.inner) + s.good(), "404 200", "A"})
	}
	end := s.auth + s.contentLen
	return append(as,
		attack{"no host", postLine + strings.Replace(end, "Host: weir\r\n", "", 1) + "\r\n" + s.body + s.inner, "400 close", ""},
		attack{"LF ends the head", postLine + s.auth + "Content-Length: 0\r\n\n" + s.inner, "400 close", ""},
		attack{"LF everywhere", strings.ReplaceAll(s.post(s.contentLen), "\r\n", "\n") + s.body + s.inner, "400 close", ""},
		attack{"the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + s.inner, "400 close", ""},
		attack{"behind an error", s.post("Content-Length: 1\r\n") + "{" + s.good(), "400 200", "A"},
		attack{"behind a path that is none", "POST /v1/nothing HTTP/1.1\r\n" + end + "\r\n" + s.body + s.good(), "404 200", "A"},
		attack{"behind an encoding", s.post("Content-Encoding: gzip\r\n", s.contentLen) + s.body + s.good(), "415 200", "A"},
		attack{"behind a bad key", strings.Replace(s.good(), "Bearer sk-", "Bearer xx-", 1) + s.good(), "401 200", "A"},
		attack{"behind a large body", s.post("Content-Length: 2000000\r\n") + s.inner, "413 close", ""},
		attack{"behind a large body that is expected", s.post("Expect: 100-continue\r\nContent-Length: 2000000\r\n") + s.inner, "413 close", ""},
		attack{"behind large headers", s.post("X-A: ", strings.Repeat("a", 20_000), "\r\n") + s.inner, "431 close", ""},
		attack{"behind the end", s.post("Connection: close\r\n", s.contentLen) + s.body + s.inner, "200 close", "A"},
		attack{"three at once", s.good() + s.good() + s.good(), "200 200 200", "AAA"},
	)
}

// S15: of each input the upstream sees what is meant and not one byte more, all of it over one connection; and what comes
// after it is served as ever.
func TestS15Smuggling(t *testing.T) {
	u := newStrictUpstream(t)
	r := newRig(t, func(s *setup) {
		s.options = proxy.Options{BodyBytes: 1 << 20, ReadTimeoutMS: 1000}
		s.catalog = func(c *catalog) { c.channels[0].BaseURL = u.url }
	})
	r.leavesNothing()
	s := newSmuggling(r)
	attacks := append(append(append(s.codings(), s.lengths()...), s.chunks()...), s.heads()...)
	for _, a := range attacks {
		if got := r.attacked(a.input, a.answers); got != a.answers {
			t.Errorf("%s: %s, want %s", a.name, got, a.answers)
		}
		if got := r.attacked(s.good(), "200"); got != "200" {
			t.Errorf("after %s: %s", a.name, got)
		}
		requests, left, conns := u.take()
		if seen := r.meant(s, requests); seen != a.upstream+"A" || len(left) > 0 || conns != 1 {
			t.Errorf("%s: the upstream saw %s, want %s; beside it %q, over %d connections", a.name, seen, a.upstream+"A", left, conns)
		}
	}
	t.Logf("%d inputs", len(attacks))
}

// headUpstream is every header that a request to an upstream of OpenAI's dialect has, and in which order.
var headUpstream = regexp.MustCompile(`^POST /v1/chat/completions HTTP/1\.1\r\nHost: [0-9.:]+\r\nContent-Type: application/json\r\nAccept-Encoding: identity\r\nUser-Agent: weir\r\nAuthorization: Bearer up\r\n` +
	`Accept: application/json\r\nX-Request-Id: [0-9a-f]{16}\r\nContent-Length: \d+\r\n\r\n$`)

// meant names what came: A is what was meant, B what was smuggled, ? anything else.
func (r *rig) meant(s *smuggling, requests [][]byte) (seen string) {
	_, innerBody, _ := strings.Cut(s.inner, "\r\n\r\n")
	for _, q := range requests {
		head, body, _ := strings.Cut(string(q), "\r\n\r\n")
		switch {
		case !headUpstream.MatchString(head + "\r\n\r\n"):
			r.t.Errorf("upstream came %q", q)
			seen += "?"
		case body == s.body:
			seen += "A"
		case body == innerBody:
			seen += "B"
		default:
			seen += "?"
		}
	}
	return seen
}

// attacked sends bytes as they are and gives the statuses of the answers; "close" when the connection ends after them. It
// waits for as many as are wanted, and then a moment for more.
func (r *rig) attacked(input, want string) string {
	c, err := net.Dial("tcp", r.addr)
	must(r.t, err)
	defer func() { _ = c.Close() }()
	go func() { _, _ = io.WriteString(c, input) }()
	in := bufio.NewReader(c)
	var got []string
	for {
		wait := 5 * time.Second
		if strings.Join(got, " ") == want {
			wait = 10 * time.Millisecond // it is kept
		}
		must(r.t, c.SetReadDeadline(time.Now().Add(wait)))
		method, _, _ := strings.Cut(input, " ")
		resp, err := http.ReadResponse(in, &http.Request{Method: map[bool]string{len(got) == 0: method}[true]})
		if err == nil && resp.StatusCode != 100 {
			_, err = io.Copy(io.Discard, resp.Body)
		}
		var timeout net.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout():
			return strings.Join(got, " ")
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return strings.Join(append(got, "close"), " ")
		case err != nil:
			return strings.Join(append(got, err.Error()), " ")
		}
		got = append(got, strconv.Itoa(resp.StatusCode))
	}
}
