package sim_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
	"go.uber.org/goleak"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/sim"
)

func TestMain(m *testing.M) {
	// The server's pool of workers looks only every ten seconds whether it was stopped.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

// upstream is a running simulation and the client that asks it.
type upstream struct {
	*sim.Sim
	t      testing.TB
	url    string
	client *http.Client
}

func start(t testing.TB, o sim.Options) *upstream {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &upstream{sim.New(o, llm.NewSystemClock()), t, "http://" + ln.Addr().String(),
		&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	served := make(chan error, 1)
	go func() { served <- u.Serve(ln) }()
	t.Cleanup(func() {
		u.client.CloseIdleConnections()
		if err := u.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return u
}

func (u *upstream) post(ctx context.Context, path, body, options string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, "POST", u.url+path, strings.NewReader(body))
	if err != nil {
		u.t.Fatal(err)
	}
	req.Header.Set("x-sim", options)
	return u.client.Do(req)
}

// ask posts and reads the whole answer.
func (u *upstream) ask(path, body, options string) (status int, answer string) {
	u.t.Helper()
	resp, err := u.post(context.Background(), path, body, options)
	if err != nil {
		u.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		u.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// dig walks decoded JSON by names and indices.
func dig(t testing.TB, raw string, path ...any) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(raw), &v); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			list, _ := v.([]any)
			if p >= len(list) {
				t.Fatalf("no element %d in %s", p, raw)
			}
			v = list[p]
		}
	}
	return v
}

func want(t testing.TB, raw string, expected any, path ...any) {
	t.Helper()
	if got := dig(t, raw, path...); fmt.Sprint(got) != fmt.Sprint(expected) {
		t.Errorf("%v is %v, want %v in %.600s", path, got, expected, raw)
	}
}

// eventually waits for what another goroutine is about to make true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

const (
	chat     = `{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hello you"}]%s}`
	prompt   = `{"model":"davinci","prompt":"hello you"%s}`
	response = `{"model":"gpt-4o","input":"hello you"%s}`
	message  = `{"model":"claude-sonnet-4-5","max_tokens":64,"messages":[{"role":"user","content":"hello you"}]%s}`
)

func TestBuffered(t *testing.T) {
	u := start(t, sim.Options{})
	for _, c := range []struct {
		name, path, body string
		status           int
		want             map[string]any
	}{
		{"chat", "/v1/chat/completions", fmt.Sprintf(chat, ""), 200, map[string]any{
			"object": "chat.completion", "model": "gpt-4o-mini", "choices/0/finish_reason": "stop",
			"usage/prompt_tokens": 3, "usage/completion_tokens": 45, "usage/total_tokens": 48}},
		{"chat capped", "/chat/completions", fmt.Sprintf(chat, `,"max_tokens":3,"n":2`), 200, map[string]any{
			"choices/0/message/content": "The river does", "choices/1/index": 1, "choices/1/finish_reason": "length",
			"usage/completion_tokens": 6}},
		{"the larger cap counts", "/v1/chat/completions", fmt.Sprintf(chat, `,"max_tokens":1,"max_completion_tokens":2`), 200,
			map[string]any{"choices/0/message/content": "The river"}},
		{"completion", "/v1/completions", fmt.Sprintf(prompt, `,"max_tokens":2`), 200, map[string]any{
			"object": "text_completion", "choices/0/text": "The river", "usage/prompt_tokens": 3}},
		{"prompts", "/v1/completions", `{"model":"d","prompt":["a","b","c"],"n":2,"best_of":4,"max_tokens":1}`, 200, map[string]any{
			"choices/5/index": 5, "usage/completion_tokens": 12}},
		{"response", "/v1/responses", fmt.Sprintf(response, ""), 200, map[string]any{
			"object": "response", "status": "completed", "output/0/content/0/type": "output_text", "usage/output_tokens": 45}},
		{"response capped", "/v1/responses", fmt.Sprintf(response, `,"max_output_tokens":2`), 200, map[string]any{
			"status": "incomplete", "incomplete_details/reason": "max_output_tokens", "output/0/content/0/text": "The river"}},
		{"message", "/v1/messages", fmt.Sprintf(message, ""), 200, map[string]any{
			"type": "message", "stop_reason": "end_turn", "usage/input_tokens": 3, "usage/output_tokens": 45}},
		{"count", "/v1/messages/count_tokens", fmt.Sprintf(message, `,"system":"eight by"`), 200, map[string]any{"input_tokens": 5}},
		{"embeddings", "/v1/embeddings", `{"model":"e","input":["a","b"],"dimensions":4}`, 200, map[string]any{
			"data/1/index": 1, "data/1/embedding/3": 0.5, "usage/prompt_tokens": 2}},
		{"tokens as input", "/v1/embeddings", `{"model":"e","input":[1,2,3]}`, 200, map[string]any{"usage/prompt_tokens": 3}},
		{"image", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"abcd"},
			{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]}`, 200, map[string]any{"usage/prompt_tokens": 86}},
		{"no model", "/v1/chat/completions", `{"messages":[]}`, 400, map[string]any{"error/param": "model"}},
		{"no messages", "/v1/chat/completions", `{"model":"m"}`, 400, map[string]any{"error/param": "messages"}},
		{"no cap", "/v1/messages", `{"model":"m","messages":[]}`, 400, map[string]any{"type": "error", "error/type": "invalid_request_error"}},
		{"not JSON", "/v1/responses", `{"model":`, 400, map[string]any{"error/type": "invalid_request_error"}},
		{"unknown route", "/v1/nothing", `{}`, 404, map[string]any{"error/type": "invalid_request_error"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, answer := u.ask(c.path, c.body, "")
			if status != c.status {
				t.Fatalf("status %d, want %d: %s", status, c.status, answer)
			}
			for path, expected := range c.want {
				want(t, answer, expected, steps(path)...)
			}
		})
	}
}

// steps turns "choices/0/text" into a path for dig.
func steps(path string) (list []any) {
	for s := range strings.SplitSeq(path, "/") {
		if len(s) == 1 && s[0] >= '0' && s[0] <= '9' {
			list = append(list, int(s[0]-'0'))
			continue
		}
		list = append(list, s)
	}
	return list
}

func TestEmbeddingsInBase64(t *testing.T) {
	u := start(t, sim.Options{})
	_, answer := u.ask("/v1/embeddings", `{"model":"e","input":"a","dimensions":4,"encoding_format":"base64"}`, "")
	b, err := base64.StdEncoding.DecodeString(dig(t, answer, "data", 0, "embedding").(string))
	if err != nil || len(b) != 16 || !bytes.Equal(b[:4], []byte{0, 0, 0, 0x3f}) {
		t.Errorf("got % x, %v; want four floats of +-0.5", b, err)
	}
}

func TestModels(t *testing.T) {
	u := start(t, sim.Options{Models: []string{"a", "b"}, Credential: "secret"})
	get := func(path string, header ...string) (int, string) {
		req, _ := http.NewRequest("GET", u.url+path, nil)
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := u.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	_, list := get("/v1/models", "Authorization", "Bearer secret")
	want(t, list, "list", "object")
	want(t, list, "b", "data", 1, "id")
	_, list = get("/v1/models", "x-api-key", "secret", "anthropic-version", "2023-06-01")
	want(t, list, "model", "data", 0, "type")
	want(t, list, "b", "last_id")
	_, one := get("/v1/models/b", "Authorization", "Bearer secret")
	want(t, one, "b", "id")
	if status, body := get("/v1/models/c", "Authorization", "Bearer secret"); status != 404 {
		t.Errorf("unknown model: %d %s", status, body)
	}
	if status, body := get("/v1/models", "Authorization", "Bearer other"); status != 401 {
		t.Errorf("wrong credential: %d %s", status, body)
	}
}

// events reads a stream the way the specification says, whatever its framing.
func events(t testing.TB, r io.Reader) (names, datas []string, err error) {
	t.Helper()
	raw, err := io.ReadAll(r)
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(raw))
	for block := range strings.SplitSeq(text, "\n\n") {
		var name string
		var data []string
		for line := range strings.SplitSeq(block, "\n") {
			field, value, _ := strings.Cut(line, ":")
			value = strings.TrimPrefix(value, " ")
			switch field {
			case "event":
				name = value
			case "data":
				data = append(data, value)
			}
		}
		if data != nil {
			names, datas = append(names, name), append(datas, strings.Join(data, "\n"))
		}
	}
	return names, datas, err
}

func (u *upstream) stream(path, body, options string) (names, datas []string, err error) {
	u.t.Helper()
	resp, err := u.post(context.Background(), path, fmt.Sprintf(body, `,"stream":true`), options)
	if err != nil {
		u.t.Fatal(err)
	}
	defer resp.Body.Close()
	if ct := resp.Header.Get("Content-Type"); !strings.HasPrefix(ct, "text/event-stream") {
		u.t.Fatalf("content type %q", ct)
	}
	return events(u.t, resp.Body)
}

func TestStreamedChat(t *testing.T) {
	u := start(t, sim.Options{})
	_, data, err := u.stream("/v1/chat/completions", chat, "out=3")
	if err != nil || len(data) != 6 || data[5] != "[DONE]" {
		t.Fatalf("%v: %q", err, data)
	}
	want(t, data[0], "assistant", "choices", 0, "delta", "role")
	want(t, data[3], " does", "choices", 0, "delta", "content")
	want(t, data[4], "stop", "choices", 0, "finish_reason")
	if strings.Contains(strings.Join(data, ""), "usage") {
		t.Error("usage came though nobody asked for it")
	}
	asked := strings.Replace(chat, "%s", `,"n":2,"stream_options":{"include_usage":true}%s`, 1)
	_, data, _ = u.stream("/v1/chat/completions", asked, "out=3")
	usage := data[len(data)-2]
	want(t, usage, 6, "usage", "completion_tokens")
	want(t, usage, "[]", "choices")
	if !strings.Contains(data[2], `"usage":null`) {
		t.Errorf("a chunk before the usage chunk has null usage: %s", data[2])
	}
}

func TestStreamedMessage(t *testing.T) {
	u := start(t, sim.Options{})
	names, data, err := u.stream("/v1/messages", message, "out=2,cached=5,cache_write=7,usage_in=20")
	expected := "message_start content_block_start ping content_block_delta content_block_delta content_block_stop message_delta message_stop"
	if got := strings.Join(names, " "); err != nil || got != expected {
		t.Fatalf("%v: %s", err, got)
	}
	want(t, data[0], 8, "message", "usage", "input_tokens")
	want(t, data[0], 5, "message", "usage", "cache_read_input_tokens")
	want(t, data[0], 7, "message", "usage", "cache_creation_input_tokens")
	want(t, data[6], 2, "usage", "output_tokens")
	want(t, data[6], "end_turn", "delta", "stop_reason")
	for i, d := range data {
		want(t, d, names[i], "type")
	}
	if st := u.Stats(); st.InputTokens != 20 || st.OutputTokens != 2 || st.CachedTokens != 5 || st.CacheWriteTokens != 7 {
		t.Errorf("stats %+v", st)
	}
}

func TestStreamedResponse(t *testing.T) {
	u := start(t, sim.Options{})
	names, data, err := u.stream("/v1/responses", response, "out=2")
	expected := "response.created response.in_progress response.output_item.added response.content_part.added " +
		"response.output_text.delta response.output_text.delta response.output_text.done response.content_part.done " +
		"response.output_item.done response.completed"
	if got := strings.Join(names, " "); err != nil || got != expected {
		t.Fatalf("%v: %s", err, got)
	}
	for i, d := range data {
		want(t, d, i, "sequence_number")
		want(t, d, names[i], "type")
	}
	want(t, data[9], 2, "response", "usage", "output_tokens")
	want(t, data[9], "The river", "response", "output", 0, "content", 0, "text")
}

func TestStreamedCompletion(t *testing.T) {
	u := start(t, sim.Options{})
	_, data, err := u.stream("/v1/completions", prompt, "out=2,usage=null")
	if err != nil || len(data) != 4 {
		t.Fatalf("%v: %q", err, data)
	}
	want(t, data[1], " river", "choices", 0, "text")
	for _, d := range data[:3] {
		if !strings.Contains(d, `"usage":null`) {
			t.Errorf("usage=null: %s", d)
		}
	}
}

// TestS01SameEventsInEveryFraming: the framings are different bytes for the same events.
func TestS01SameEventsInEveryFraming(t *testing.T) {
	u := start(t, sim.Options{})
	_, plain, err := u.stream("/v1/messages", message, "")
	if err != nil {
		t.Fatal(err)
	}
	raws := map[string]bool{}
	for _, f := range []string{"lf", "crlf", "cr", "bytes", "nospace", "multiline", "comments", "crlf|bytes|nospace|multiline|comments"} {
		resp, err := u.post(context.Background(), "/v1/messages", fmt.Sprintf(message, `,"stream":true`), "framing="+f)
		if err != nil {
			t.Fatal(err)
		}
		var raw bytes.Buffer
		_, data, err := events(t, io.TeeReader(resp.Body, &raw))
		_ = resp.Body.Close()
		if err != nil || len(data) != len(plain) {
			t.Fatalf("%s: %v, %d events, want %d", f, err, len(data), len(plain))
		}
		for i := range data {
			data[i] = strings.Replace(data[i], "{\n", "{", 1)
			if i > 0 && data[i] != plain[i] {
				t.Errorf("%s: event %d is %s, want %s", f, i, data[i], plain[i])
			}
		}
		shape := strings.Join(strings.SplitAfter(raw.String(), "content_block_start")[1:], "")
		if f != "bytes" && raws[shape] {
			t.Errorf("%s is written like another framing", f)
		}
		raws[shape] = true
	}
}

func TestUsageModes(t *testing.T) {
	u := start(t, sim.Options{})
	for path, body := range map[string]string{"/v1/chat/completions": chat, "/v1/completions": prompt, "/v1/responses": response, "/v1/messages": message} {
		_, none := u.ask(path, fmt.Sprintf(body, ""), "usage=none")
		if strings.Contains(none, "usage") {
			t.Errorf("%s: usage=none still reports: %s", path, none)
		}
		_, null := u.ask(path, fmt.Sprintf(body, ""), "usage=null")
		if !strings.Contains(null, `"usage":null`) {
			t.Errorf("%s: usage=null: %s", path, null)
		}
		_, data, _ := u.stream(path, body, "usage=none")
		all := strings.ReplaceAll(strings.Join(data, ""), `"usage":null`, "") // the responses route starts with null
		if strings.Contains(all, "usage") {
			t.Errorf("%s: usage=none still reports in the stream: %s", path, all)
		}
	}
}

func TestSizes(t *testing.T) {
	u := start(t, sim.Options{})
	for _, c := range []struct {
		options        string
		tokens, length int
	}{{"big_event=2MB", 44 + 2<<20/4, 2 << 20}, {"bytes=3MB", 3 << 20 / 4, 3 << 20}} {
		_, data, err := u.stream("/v1/chat/completions", chat, c.options)
		if n := len(strings.Join(data, "")); err != nil || n < c.length {
			t.Errorf("%s: %d bytes streamed, %v", c.options, n, err)
		}
		_, answer := u.ask("/v1/chat/completions", fmt.Sprintf(chat, ""), c.options)
		want(t, answer, c.tokens, "usage", "completion_tokens")
		if n := len(dig(t, answer, "choices", 0, "message", "content").(string)); n < c.length {
			t.Errorf("%s: %d bytes", c.options, n)
		}
	}
}

func TestEcho(t *testing.T) {
	u := start(t, sim.Options{})
	body := fmt.Sprintf(chat, "")
	if _, answer := u.ask("/v1/chat/completions", body, "echo=raw"); answer != body {
		t.Errorf("echo=raw gave %s", answer)
	}
	_, answer := u.ask("/v1/chat/completions", body, "echo")
	want(t, answer, body, "choices", 0, "message", "content")
}

// TestSources: the header beats the suffix, and the suffix beats the default.
func TestSources(t *testing.T) {
	u := start(t, sim.Options{Default: sim.Behaviour{Out: 1, Cached: 2, Text: "one two three"}})
	for _, c := range []struct{ model, header, out, text string }{
		{"m", "", "1", "one"}, {"m+out=3", "", "3", "one two three"}, {"m+out=3", "out=2", "2", "one two"},
	} {
		body := strings.Replace(fmt.Sprintf(chat, ""), "gpt-4o-mini", c.model, 1)
		_, answer := u.ask("/v1/chat/completions", body, c.header)
		want(t, answer, c.out, "usage", "completion_tokens")
		want(t, answer, c.text, "choices", 0, "message", "content")
		want(t, answer, 2, "usage", "prompt_tokens_details", "cached_tokens")
		want(t, answer, strings.Split(c.model, "+")[0], "model")
	}
}

func TestBadOptions(t *testing.T) {
	u := start(t, sim.Options{})
	for options, message := range map[string]string{
		"latencyy=1s":   `did you mean "latency"?`,
		"pace=5":        "expected a duration such as 20ms or 1.5s",
		"out=none":      "expected a whole number from 1 to 10000000",
		"usage=never":   "expected one of none, null, reported",
		"framing=crlff": "expected one of bytes, comments, cr, crlf, lf, multiline, nospace",
		"bytes=2TB":     "expected a size such as 64KB or 2MB",
		"bytes=2GB":     "at most 1GB",
		"no_done=1":     "expected no value",
		"status=200":    "expected a whole number from 400 to 599",
	} {
		status, answer := u.ask("/v1/chat/completions", fmt.Sprintf(chat, ""), options)
		if got := fmt.Sprint(dig(t, answer, "error", "message")); status != 400 || !strings.Contains(got, message) {
			t.Errorf("%s: %d %s", options, status, got)
		}
	}
}

func TestS09ErrorStatus(t *testing.T) {
	u := start(t, sim.Options{})
	resp, err := u.post(context.Background(), "/v1/messages", fmt.Sprintf(message, ""), "status=429;retry_after=7")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "7" {
		t.Errorf("%d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	want(t, string(body), "rate_limit_error", "error", "type")
	if status, _ := u.ask("/v1/chat/completions", strings.Replace(fmt.Sprintf(chat, ""), "gpt-4o-mini", "gpt-4o-mini+status=503", 1), ""); status != 503 {
		t.Errorf("status %d by suffix", status)
	}
	if st := u.Stats(); st.Failed != 2 || st.Requests != 2 || st.InputTokens != 0 || st.Open != 0 {
		t.Errorf("stats %+v", st)
	}
}

func TestM02Resets(t *testing.T) {
	u := start(t, sim.Options{})
	var cut int64
	for path, body := range map[string]string{"/v1/chat/completions": chat, "/v1/completions": prompt, "/v1/responses": response, "/v1/messages": message} {
		if resp, err := u.post(context.Background(), path, fmt.Sprintf(body, ""), "reset=headers"); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
			t.Fatalf("%s: reset=headers gave %v, %v", path, resp, err)
		}
		if _, data, err := u.stream(path, body, "reset_after=5"); err == nil || len(data) != 5 {
			t.Errorf("%s: %d events before the reset, %v", path, len(data), err)
		}
		resp, err := u.post(context.Background(), path, fmt.Sprintf(body, ""), "reset_after=1")
		if err != nil {
			t.Fatal(err)
		}
		half, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err == nil || len(half) == 0 || json.Valid(half) {
			t.Errorf("%s: half a body is %q, %v", path, half, err)
		}
		cut += 3
		eventually(t, "the cuts are counted", func() bool { return u.Stats().Cut == cut })
	}
	if st := u.Stats(); st.Open != 0 || st.Completed != 0 || st.Cancelled != 0 {
		t.Errorf("stats %+v", st)
	}
}

func TestNoDone(t *testing.T) {
	u := start(t, sim.Options{})
	for path, body := range map[string]string{"/v1/chat/completions": chat, "/v1/responses": response, "/v1/messages": message} {
		names, data, err := u.stream(path, body, "no_done")
		last := names[len(names)-1] + data[len(data)-1]
		if err != nil || strings.Contains(last, "[DONE]") || strings.Contains(last, "message_stop") || strings.Contains(last, "response.completed") {
			t.Errorf("%s ends with %s, %v", path, last, err)
		}
	}
}

// TestS05PeerThatLeft: in every kind of wait the request ends at once when its client leaves.
func TestS05PeerThatLeft(t *testing.T) {
	u := start(t, sim.Options{})
	var left int64
	for _, c := range []struct{ name, options, member string }{
		{"before the head", "latency=60s", ""},
		{"before the first event", "silent=60s", `,"stream":true`},
		{"buffered and silent", "silent=60s", ""},
		{"between events", "pace=60s", `,"stream":true`},
		{"hanging", "hang_after=3", `,"stream":true`},
		{"half a body", "hang_after=1", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				if resp, err := u.post(ctx, "/v1/chat/completions", fmt.Sprintf(chat, c.member), c.options); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}()
			eventually(t, "the request is open", func() bool { return u.Stats().Open == 1 })
			cancel()
			<-answered
			left++
			eventually(t, "the cancelled request is counted", func() bool { return u.Stats().Cancelled == left })
		})
	}
	if st := u.Stats(); st.Open != 0 || st.Cut != 0 || st.Completed != 0 {
		t.Errorf("stats %+v", st)
	}
}

// TestPeerThatLeavesAFullStream: without any wait it is the write that fails.
func TestPeerThatLeavesAFullStream(t *testing.T) {
	u := start(t, sim.Options{})
	resp, err := u.post(context.Background(), "/v1/chat/completions", fmt.Sprintf(chat, `,"stream":true`), "bytes=50MB")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	eventually(t, "the cancelled request is counted", func() bool { return u.Stats().Cancelled == 1 })
	if st := u.Stats(); st.PartialOutput == 0 || st.OutputTokens != 0 {
		t.Errorf("stats %+v", st)
	}
}

func TestPaceAndLatency(t *testing.T) {
	u := start(t, sim.Options{})
	from := time.Now()
	if _, data, err := u.stream("/v1/chat/completions", chat, "latency=20ms,silent=20ms,pace=5ms,out=5"); err != nil || len(data) != 8 {
		t.Fatalf("%v: %d events", err, len(data))
	}
	if d := time.Since(from); d < 75*time.Millisecond || d > 5*time.Second {
		t.Errorf("took %v, asked for 75 ms", d)
	}
	// The connection is as good as new: the watcher is gone and the next request is read.
	for range 3 {
		if _, data, err := u.stream("/v1/chat/completions", chat, "pace=1ms,out=3"); err != nil || len(data) != 6 {
			t.Fatalf("%v: %d events", err, len(data))
		}
	}
	if st := u.Stats(); st.OpenConnections != 1 || st.Completed != 4 {
		t.Errorf("stats %+v", st)
	}
}

// TestShutdownEndsWaits: a request that waits for an hour does not keep the simulation.
func TestShutdownEndsWaits(t *testing.T) {
	u := start(t, sim.Options{})
	failed := make(chan error, 1)
	go func() {
		_, err := u.post(context.Background(), "/v1/chat/completions", fmt.Sprintf(chat, ""), "latency=1h")
		failed <- err
	}()
	eventually(t, "the request is open", func() bool { return u.Stats().Open == 1 })
	u.CutConnections()
	if err := <-failed; err == nil {
		t.Error("the answer came though its connection was cut")
	}
}

func TestObserveAndStatsRoute(t *testing.T) {
	var seen atomic.Value
	u := start(t, sim.Options{Observe: func(path string, h *fasthttp.RequestHeader, body []byte) {
		seen.Store(path + " " + string(h.Peek("x-sim")) + " " + string(body))
	}})
	u.ask("/v1/chat/completions", fmt.Sprintf(chat, ""), "out=2")
	if got := seen.Load(); got != "/v1/chat/completions out=2 "+fmt.Sprintf(chat, "") {
		t.Errorf("observed %v", got)
	}
	resp, err := u.client.Get(u.url + "/sim/stats")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	want(t, string(b), 1, "requests")
	want(t, string(b), 3, "input_tokens")
	want(t, string(b), 2, "output_tokens")
	want(t, string(b), 0, "open")
}

func BenchmarkBuffered(b *testing.B) { benchmark(b, "", "") }
func BenchmarkStreamed(b *testing.B) { benchmark(b, `,"stream":true`, "out=50") }

func benchmark(b *testing.B, member, options string) {
	u := start(b, sim.Options{})
	body := fmt.Sprintf(chat, member)
	b.ReportAllocs()
	for b.Loop() {
		u.ask("/v1/chat/completions", body, options)
	}
}

// TestShutdownBeforeServe: a server that is told to stop before it has begun does not begin.
func TestShutdownBeforeServe(t *testing.T) {
	s := sim.New(sim.Options{}, llm.NewSystemClock())
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(ln); err != nil {
		t.Errorf("Serve after Shutdown: %v", err)
	}
}
