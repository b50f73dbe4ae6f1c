package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/proxy"
	"github.com/weir-gateway/weir/core/tokens"
	"github.com/weir-gateway/weir/core/upstream"
)

// nothing is a ledger that acknowledges at once and keeps nothing.
type nothing struct{}

func (nothing) Append(*llm.Entry) (uint64, error)                 { return 1, nil }
func (nothing) NextID() uint64                                    { return 1 }
func (nothing) Wait(context.Context, uint64, time.Duration) error { return nil }
func (nothing) Healthy() error                                    { return nil }

// stub answers every request on its connections with the same bytes.
func stub(b *testing.B, answer string) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	var open sync.WaitGroup
	open.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			open.Go(func() { serveStub(c, answer) })
		}
	})
	b.Cleanup(func() { _ = ln.Close(); open.Wait() })
	return "http://" + ln.Addr().String()
}

func serveStub(c net.Conn, answer string) {
	defer func() { _ = c.Close() }()
	br := bufio.NewReaderSize(c, 16<<10)
	for {
		length := 0
		for {
			line, err := br.ReadSlice('\n')
			if err != nil {
				return
			}
			if v, ok := bytes.CutPrefix(bytes.ToLower(line), []byte("content-length: ")); ok {
				_, _ = fmt.Sscan(string(v), &length)
			}
			if len(line) == 2 {
				break
			}
		}
		if _, err := br.Discard(length); err != nil {
			return
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

// benchServer is a gateway with everything on: three dimensions, balance and quota; only the ledger does nothing.
func benchServer(b *testing.B, up string, qps int64) (addr, token string) {
	clock := llm.NewSystemClock()
	limits := limit.New(limit.Options{}, clock, nothing{})
	limits.LoadBalance(idUser, 1<<60, 0)
	dir := auth.NewDirectory(bytes.Repeat([]byte{7}, 32), clock)
	dir.SetOrg(auth.Org{ID: idOrg})
	dir.SetUser(auth.User{ID: idUser, OrgID: idOrg})
	token, k, err := dir.Mint(rand.Reader)
	must(b, err)
	k.ID, k.UserID, k.QPSLimit, k.TPMLimit, k.MonthlyQuota = idKey, idUser, qps, 1<<50, 1<<60
	dir.SetKey(k)
	counter, err := tokens.New(tokens.Options{})
	must(b, err)
	client := upstream.NewClient(upstream.Options{}, clock)
	s := proxy.New(proxy.Options{}, proxy.Parts{Clock: clock, Random: rand.Reader, Directory: dir, Limiter: limits, Money: limits,
		Ledger: nothing{}, Counter: counter, Policy: &decider{}, Client: client, Log: slog.New(slog.DiscardHandler)})
	s.SetSettings(proxy.Settings{Global: limit.Limits{QPS: 1 << 40, TPM: 1 << 50}})
	cat, err := upstream.NewCatalog([]upstream.Model{{Name: "gpt-4o", Price: price, Priced: true, QPSLimit: 1 << 40, TPMLimit: 1 << 50}},
		[]upstream.Channel{{ID: 1, Name: "up", Provider: "openai", BaseURL: up}})
	must(b, err)
	s.SetCatalog(cat)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(ln) })
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		_ = s.Shutdown(ctx)
		serving.Wait()
		client.Close()
		if limits.Open() != 0 {
			b.Error("something is held")
		}
		limits.Close()
	})
	return ln.Addr().String(), token
}

func benchWalk(b *testing.B, stream bool, answer string, end string) {
	addr, token := benchServer(b, stub(b, answer), 1<<40)
	c, err := net.Dial("tcp", addr)
	must(b, err)
	defer func() { _ = c.Close() }()
	more := ""
	if stream {
		more = `,"stream":true`
	}
	body := strings.Replace(chat("gpt-4o", `,"max_tokens":200`+more), "say hello", strings.Repeat("The river does not hurry. ", 30), 1)
	request := "POST /v1/chat/completions HTTP/1.1\r\nHost: weir\r\nContent-Type: application/json\r\nAuthorization: Bearer " + token +
		"\r\nUser-Agent: bench\r\nContent-Length: " + itoa(len(body)) + "\r\n\r\n" + body
	buf, want := make([]byte, 64<<10), []byte(end)
	b.ReportAllocs()
	for b.Loop() {
		_, err := io.WriteString(c, request)
		must(b, err)
		for n := 0; ; {
			k, err := c.Read(buf[n:])
			must(b, err)
			if n += k; bytes.HasSuffix(buf[:n], want) {
				break
			}
		}
	}
}

// BenchmarkWalkBuffered is one whole request over loopback, both legs included: a body of 1 kB, an answer of 600 bytes.
func BenchmarkWalkBuffered(b *testing.B) {
	answer := `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":"` +
		strings.Repeat("It arrives. ", 30) + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":200,"completion_tokens":90,"total_tokens":290}}`
	benchWalk(b, false, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "+itoa(len(answer))+"\r\n\r\n"+answer, "290}}")
}

// BenchmarkWalkStreamed is one whole stream of 50 events that come in five packets.
func BenchmarkWalkStreamed(b *testing.B) {
	var s strings.Builder
	s.WriteString("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
	chunk := func(text string) { fmt.Fprintf(&s, "%x\r\n%s\r\n", len(text), text) }
	for range 50 {
		chunk("data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"gpt-4o\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" arrives\"},\"finish_reason\":null}],\"usage\":null}\n\n")
	}
	chunk("data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"gpt-4o\",\"choices\":[],\"usage\":{\"prompt_tokens\":200,\"completion_tokens\":50,\"total_tokens\":250}}\n\n")
	chunk("data: [DONE]\n\n")
	s.WriteString("0\r\n\r\n")
	benchWalk(b, true, s.String(), "0\r\n\r\n")
}

// BenchmarkWalkRefused is a request over its QPS limit, with the cheap look off: the whole way to the limiter and back.
func BenchmarkWalkRefused(b *testing.B) {
	addr, token := benchServer(b, stub(b, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"), 1)
	c, err := net.Dial("tcp", addr)
	must(b, err)
	defer func() { _ = c.Close() }()
	body := chat("gpt-4o", "")
	request := "POST /v1/chat/completions HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer " + token + "\r\nContent-Length: " + itoa(len(body)) + "\r\n\r\n" + body
	buf := make([]byte, 4<<10)
	b.ReportAllocs()
	for b.Loop() {
		_, err := io.WriteString(c, request)
		must(b, err)
		_, err = c.Read(buf)
		must(b, err)
	}
}
