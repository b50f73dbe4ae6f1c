package upstream

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// fiftyEvents is a stream as OpenAI sends it: role, 47 deltas, finish, usage, [DONE].
func fiftyEvents() string {
	head := `data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"gpt-4o-mini","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":`
	var b strings.Builder
	for range 48 {
		b.WriteString(head + `{"content":"Hello "},"logprobs":null,"finish_reason":null}],"usage":null}` + "\n\n")
	}
	b.WriteString(`data: {"id":"chatcmpl-123","choices":[],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":0}}}` + "\n\ndata: [DONE]\n\n")
	return b.String()
}

func BenchmarkParse50Events(b *testing.B) {
	raw := []byte(fiftyEvents())
	p := NewParser(llm.Chat)
	n := 0
	visit := func(e *Event) { n += len(e.Deltas) }
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		p.Reset(llm.Chat)
		p.Parse(raw, visit)
	}
}

func BenchmarkParse50EventsMessages(b *testing.B) {
	raw := []byte(strings.Repeat("event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello \"}}\n\n", 50))
	p := NewParser(llm.Messages)
	visit := func(*Event) {}
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		p.Reset(llm.Messages)
		p.Parse(raw, visit)
	}
}

func BenchmarkSplit50Events(b *testing.B) {
	raw := []byte(fiftyEvents())
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		var s splitter
		if s.scan(raw) != len(raw) {
			b.Fatal("not all")
		}
	}
}

func BenchmarkBufferedUsage(b *testing.B) {
	body := []byte(`{"id":"chatcmpl-123","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"` + strings.Repeat("word ", 80) +
		`"},"finish_reason":"stop"}],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":0}}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, of, _, _ := BufferedUsage(llm.Chat, body); !of.Whole() {
			b.Fatal("no usage")
		}
	}
}

// What is looked at before an answer is given out.
func BenchmarkJudge(b *testing.B) {
	vector := "[" + strings.Repeat("-0.012345678,", 1535) + "1]"
	for name, x := range map[string]struct {
		ep   llm.Endpoint
		body string
	}{
		"chat":       {llm.Chat, benchBody},
		"embeddings": {llm.Embeddings, `{"object":"list","data":[{"object":"embedding","index":0,"embedding":` + vector + `}],"model":"m","usage":{"prompt_tokens":19}}`},
	} {
		b.Run(name, func(b *testing.B) {
			body := []byte(x.body)
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if judge(x.ep, body, false) != answers {
					b.Fatal("no answer")
				}
			}
		})
	}
	b.Run("first event", func(b *testing.B) {
		raw, p := []byte(fiftyEvents()), NewParser(llm.Chat)
		b.ReportAllocs()
		for b.Loop() {
			p.Reset(llm.Chat)
			if is, _ := p.opening(raw); is != answers {
				b.Fatal("no answer")
			}
		}
	})
}

func BenchmarkSplice1kB(b *testing.B) {
	cat := mustCatalog(b, []Model{{Name: "m", Target: "inner"}}, []Channel{openai("a", "http://h")})
	req := newRequest(b, cat, llm.Chat, strings.Replace(streamBody, "hi", strings.Repeat("word ", 180), 1))
	req.Granted = 100
	out := newOutside()
	l := newLane(cat.channels[0], new(Options{}.Defaults()), llm.NewSystemClock(), &out)
	b.ReportAllocs()
	for b.Loop() {
		o := newOutgoing(req)
		if o.send(io.Discard, l) != nil {
			b.Fatal("no")
		}
		o.free()
	}
}

// echoer answers every request on a connection with the same bytes, as cheaply as can be: what is measured is Do.
func echoer(b *testing.B, answer string) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf, out := make([]byte, 64<<10), []byte(answer)
				for {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					if bytes.Contains(buf[:n], []byte("\r\n\r\n")) {
						if _, err := c.Write(out); err != nil {
							return
						}
					}
				}
			}()
		}
	}()
	return "http://" + ln.Addr().String()
}

type noHold struct{}

func (noHold) Attempt(*Channel) (bool, time.Duration) { return true, 0 }
func (noHold) Sent(*Channel)                          {}
func (noHold) Refused(*Channel)                       {}

func benchmarkDo(b *testing.B, ctx context.Context, body, answer string) {
	r := newRig(b, Options{}, openai("a", echoer(b, answer)))
	req := newRequest(b, r.cat, llm.Chat, body)
	b.ReportAllocs()
	for b.Loop() {
		resp, err := r.client.Do(ctx, r.cat, req, noHold{})
		if err != nil {
			b.Fatal(err)
		}
		if resp.Stream {
			for err == nil {
				_, err = resp.Next()
			}
		} else if _, err = resp.Body(); err == nil {
			err = io.EOF
		}
		if err != io.EOF {
			b.Fatal(err)
		}
		resp.Close()
	}
}

var benchBody = `{"choices":[{"index":0,"message":{"role":"assistant","content":"` + strings.Repeat("word ", 88) + `0123456789abcdef"},"finish_reason":"stop"}],"usage":{"prompt_tokens":19,"completion_tokens":88}}`

const benchAnswer = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 600\r\n\r\n"

func BenchmarkDoBuffered(b *testing.B) {
	benchmarkDo(b, context.Background(), plainBody, benchAnswer+benchBody)
}

func BenchmarkDoBufferedCancellable(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	benchmarkDo(b, ctx, plainBody, benchAnswer+benchBody)
}

func BenchmarkDoStream50Events(b *testing.B) {
	var s strings.Builder
	s.WriteString("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
	for ev := range strings.SplitAfterSeq(fiftyEvents(), "\n\n") {
		if ev != "" {
			s.WriteString(strings.ToLower(strings.TrimLeft(hex(len(ev)), "0")) + "\r\n" + ev + "\r\n")
		}
	}
	s.WriteString("0\r\n\r\n")
	benchmarkDo(b, context.Background(), streamBody, s.String())
}

func hex(n int) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[n>>8&15], digits[n>>4&15], digits[n&15]})
}

// BenchmarkBareLoop is the floor: write the request, read the answer, on one connection, with nothing around it.
func BenchmarkBareLoop(b *testing.B) {
	c, err := net.Dial("tcp", strings.TrimPrefix(echoer(b, benchAnswer+benchBody), "http://"))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	out, in := []byte("POST / HTTP/1.1\r\n\r\n"+plainBody), make([]byte, 4096)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(out); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Read(in); err != nil {
			b.Fatal(err)
		}
	}
}
