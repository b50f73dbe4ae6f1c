// Package load drives many requests at one gateway and reports what came back: the storm that a key with a 0 ms retry
// loop makes, with a number for each promise it tests.
//
// Requests are numbered in the order they are sent. Each worker starts when the one before it has its first answer, or a
// little later when that takes long, so that the first numbers also arrive in order and first_429_at_index means what it
// says: how many the limit let through before.
//
// Drive is the other half: the same good request at several proxies in turn, at as little cost to itself as can be, for
// `weir bench`.
package load

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/weir-gateway/weir/core/llm"
)

// Options say what to send. Total, Concurrency and Model are required.
type Options struct {
	Base        string // gateway URL, with or without /v1
	Key         string
	Model       string
	Total       int
	Concurrency int
	Rate        float64 // requests per second over all workers; 0: as fast as answers come
	Stream      bool
	MaxTokens   int
	Timeout     time.Duration // one request
	Progress    func(done, total int)
}

// Result is one attack, as printed.
type Result struct {
	Total           int            `json:"total"`
	Concurrency     int            `json:"concurrency"`
	ByStatus        map[string]int `json:"by_status"` // "200", "429", …; "error" when no answer came
	FirstAt         *int           `json:"first_429_at_index"`
	FirstBody       any            `json:"first_429_body"`
	FirstRetryAfter *string        `json:"first_429_retry_after"`
	FirstError      string         `json:"first_error,omitempty"` // of the first that was neither admitted nor limited, or not answered
	Latency         Latency        `json:"latency_ms"`
	RPS             float64        `json:"rps"`
}

// Latency is over all answered requests, in milliseconds.
type Latency struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Attack runs until Total requests were answered or ctx ends; a cut attack reports the answers that it has.
func Attack(ctx context.Context, o Options, clock llm.Clock) (*Result, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	a, err := newAttack(o, clock)
	if err != nil {
		return nil, err
	}
	a.client.Dial = func(address string) (net.Conn, error) {
		conn, err := fasthttp.DialDualStack(address) // plain Dial knows IPv4 only
		if err == nil {
			context.AfterFunc(ctx, func() { _ = conn.Close() }) // whoever waits for an answer on it stops waiting
		}
		return conn, err
	}
	start := clock.Mono()
	var workers sync.WaitGroup
	n := min(o.Concurrency, o.Total)
	patience := min(25*time.Millisecond, time.Second/time.Duration(n))
	all := make(chan struct{}) // closed when every worker has begun
	for range n {
		first := make(chan struct{})
		workers.Go(func() { a.work(ctx, start, first, all) })
		await(ctx, first, patience)
	}
	close(all)
	workers.Wait()
	return a.result(clock.Mono() - start), nil
}

// await waits for turn, for patience or for ctx, whichever comes first.
func await(ctx context.Context, turn <-chan struct{}, patience time.Duration) {
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-turn:
	case <-t.C:
	case <-ctx.Done():
	}
}

// attack is one run. mu guards what the workers share; it is never held across a request.
type attack struct {
	Options
	clock  llm.Clock
	client *fasthttp.Client
	url    string
	body   []byte
	mu     struct {
		sync.Mutex
		next      int
		latencies []time.Duration
		res       Result
	}
}

func newAttack(o Options, clock llm.Clock) (*attack, error) {
	u, err := url.Parse(o.Base)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		return nil, fmt.Errorf("base %q is not a URL such as http://127.0.0.1:3000", o.Base)
	case o.Total < 1 || o.Concurrency < 1:
		return nil, fmt.Errorf("total (%d) and concurrency (%d) are at least 1", o.Total, o.Concurrency)
	case o.Rate < 0 || o.MaxTokens < 0:
		return nil, fmt.Errorf("rate (%g) and max tokens (%d) are not negative", o.Rate, o.MaxTokens)
	}
	a := &attack{Options: o, clock: clock, url: strings.TrimSuffix(strings.TrimRight(o.Base, "/"), "/v1") + "/v1/chat/completions"}
	if a.Timeout == 0 {
		a.Timeout = 2 * time.Minute
	}
	a.client = &fasthttp.Client{MaxConnsPerHost: o.Concurrency, ReadTimeout: a.Timeout, MaxIdemponentCallAttempts: 1}
	request := map[string]any{
		"model":    o.Model,
		"messages": []map[string]string{{"role": "user", "content": "ping"}},
	}
	if o.MaxTokens > 0 {
		request["max_tokens"] = o.MaxTokens
	}
	if o.Stream {
		request["stream"] = true
	}
	a.body, err = json.Marshal(request)
	a.mu.res = Result{Concurrency: o.Concurrency, ByStatus: map[string]int{}}
	return a, err
}

// work sends requests until there are none left. It closes first when its first one is answered, and goes on when all is
// closed.
func (a *attack) work(ctx context.Context, start time.Duration, first chan<- struct{}, all <-chan struct{}) {
	answered := sync.OnceFunc(func() {
		close(first)
		<-all
	})
	defer answered()
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI(a.url)
	req.Header.SetMethod("POST")
	req.Header.SetContentType("application/json")
	req.Header.Set("Authorization", "Bearer "+a.Key)
	req.SetBodyRaw(a.body)
	for ctx.Err() == nil {
		index, ok := a.take()
		if !ok || !a.pace(ctx, start, index) {
			return
		}
		sent := a.clock.Mono()
		err := a.client.DoTimeout(req, resp, a.Timeout)
		if err != nil && ctx.Err() != nil {
			return
		}
		a.record(index, resp, err, a.clock.Mono()-sent)
		answered()
		resp.Reset()
	}
}

func (a *attack) take() (index int, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	index = a.mu.next
	a.mu.next++
	return index, index < a.Total
}

// pace waits for the moment the rate gives to this request.
func (a *attack) pace(ctx context.Context, start time.Duration, index int) bool {
	if a.Rate == 0 {
		return true
	}
	due := start + time.Duration(float64(index)/a.Rate*float64(time.Second))
	return pause(ctx, due-a.clock.Mono())
}

func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (a *attack) record(index int, resp *fasthttp.Response, err error, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	res := &a.mu.res
	res.Total++
	if err != nil {
		res.ByStatus["error"]++
		if res.FirstError == "" {
			res.FirstError = err.Error()
		}
	} else {
		a.answeredLocked(index, resp, took)
	}
	if a.Progress != nil {
		a.Progress(res.Total, a.Total)
	}
}

func (a *attack) answeredLocked(index int, resp *fasthttp.Response, took time.Duration) {
	res := &a.mu.res
	res.ByStatus[strconv.Itoa(resp.StatusCode())]++
	a.mu.latencies = append(a.mu.latencies, took)
	if status := resp.StatusCode(); res.FirstError == "" && status >= 300 && status != fasthttp.StatusTooManyRequests {
		res.FirstError = refusalText(status, resp.Body())
	}
	if resp.StatusCode() != fasthttp.StatusTooManyRequests || res.FirstAt != nil && *res.FirstAt < index {
		return
	}
	res.FirstAt = &index
	var body any
	if json.Unmarshal(resp.Body(), &body) != nil {
		body = string(resp.Body())
	}
	res.FirstBody = body
	res.FirstRetryAfter = nil
	if after := resp.Header.Peek("Retry-After"); len(after) > 0 {
		s := string(after)
		res.FirstRetryAfter = &s
	}
}

// refusalText is the status and what an error's body says, or the body's beginning.
func refusalText(status int, body []byte) string {
	var e struct{ Error struct{ Message string } }
	if json.Unmarshal(body, &e) != nil || e.Error.Message == "" {
		return fmt.Sprintf("%d: %.200q", status, body)
	}
	return fmt.Sprintf("%d: %s", status, e.Error.Message)
}

// InVain says that no request got as far as a limit: none was answered but with 400, 401 or 404, which a wrong key,
// model or address gives.
func (r *Result) InVain() bool {
	wrong := r.ByStatus["error"] + r.ByStatus["400"] + r.ByStatus["401"] + r.ByStatus["404"]
	return r.Total > 0 && wrong == r.Total
}

func (a *attack) result(took time.Duration) *Result {
	a.mu.Lock()
	defer a.mu.Unlock()
	res := a.mu.res
	if all := a.mu.latencies; len(all) > 0 {
		slices.Sort(all)
		res.Latency = Latency{P50: millis(all, 50), P95: millis(all, 95), P99: millis(all, 99), Max: millis(all, 100)}
	}
	if took > 0 {
		res.RPS = float64(int(float64(res.Total)/took.Seconds()*10)) / 10
	}
	return &res
}

// millis is the nearest-rank percentile of sorted durations.
func millis(sorted []time.Duration, percent int) float64 {
	rank := (len(sorted)*percent + 99) / 100
	return float64(sorted[max(rank, 1)-1].Microseconds()) / 1000
}
