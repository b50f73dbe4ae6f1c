package alert

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-gateway/weir/core/llm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "0123456789abcdef"

// receiver is an operator's webhook: it answers as told and keeps what it took.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	answer func(try int) int // status; nil: 204
	tries  int
	bodies []map[string]any
	signed []string // the headers, with the body behind
}

func newReceiver(t *testing.T, answer func(int) int) *receiver {
	r := &receiver{answer: answer}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		status := http.StatusNoContent
		r.mu.Lock()
		r.tries++
		try := r.tries
		r.mu.Unlock()
		if r.answer != nil {
			status = r.answer(try)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if status/100 == 2 {
			var v map[string]any
			_ = json.Unmarshal(body, &v)
			r.bodies, r.signed = append(r.bodies, v), append(r.signed, q.Header.Get(SignatureHeader)+" "+string(body))
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(r.Close)
	return r
}

// newSlowReceiver does not answer before it is released.
func newSlowReceiver(t *testing.T) (r *receiver, release func()) {
	gate := make(chan struct{})
	return newReceiver(t, func(int) int { <-gate; return http.StatusOK }), sync.OnceFunc(func() { close(gate) })
}

// ids are the alerts that were taken, as they came.
func (r *receiver) ids() (ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.bodies {
		ids = append(ids, fmt.Sprint(b["id"]))
	}
	return ids
}

// start is a sender whose pauses cost no time; they are kept.
func start(t *testing.T, url string, at ...int) (s *Sender, pauses *[]time.Duration) {
	t.Helper()
	pauses = new([]time.Duration)
	clock := llm.NewFakeClock(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
	s = newSender(Options{URL: url, Secret: secret, At: at}, Parts{Clock: clock, Log: slog.New(slog.DiscardHandler), Currency: "cny",
		Told: func(context.Context, uint64, int32, int) error { return nil }})
	s.sleep = func(ctx context.Context, d time.Duration) error {
		*pauses = append(*pauses, d)
		return ctx.Err()
	}
	life, stop := context.WithCancel(t.Context())
	s.stop = stop
	go s.run(life)
	t.Cleanup(s.Close)
	return s, pauses
}

func (s *Sender) spent(used llm.Micro, label int32, warn int) {
	s.Spent(Spending{Org: 1, User: 2, Key: 3, Name: "k", Window: llm.WindowOf(label), Label: label, Limit: 1000, Used: used, Warn: warn, ResetsAt: time.Unix(1_800_000_000, 0).UTC()})
}

func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// Each share is told once per period and window, in rising order, the budget's own among them.
func TestEachShareOnce(t *testing.T) {
	r := newReceiver(t, nil)
	s, _ := start(t, r.URL, 100, 50, 80, 50)
	for _, used := range []llm.Micro{499, 500, 501, 499, 650, 950, 800, 1500} {
		s.spent(used, 202611, 90)
	}
	s.spent(600, 20261130, 0)
	s.spent(100, 202612, 0)
	s.spent(1000, 202611, 90) // a late settlement of a period that is over
	s.spent(500, 202612, 0)
	s.spent(990, 202612, 99)
	want := []string{"3-202611-50", "3-202611-80", "3-202611-90", "3-202611-100", "3-20261130-50", "3-202612-50", "3-202612-80", "3-202612-99"}
	wait(t, "not all came", func() bool { return len(r.ids()) >= len(want) })
	if got := r.ids(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Without shares for all, the budget's own is told.
func TestNoShareButTheBudgetsOwn(t *testing.T) {
	r := newReceiver(t, nil)
	s, _ := start(t, r.URL)
	s.spent(1000, 202611, 0)
	s.spent(1000, 20261130, 70)
	wait(t, "it did not come", func() bool { return s.counts.delivered.Load() > 0 })
	s.Close()
	if got := r.ids(); !slices.Equal(got, []string{"3-20261130-70"}) {
		t.Errorf("%v", got)
	}
}

// told keeps what a sender makes durable, as the ledger does.
type told struct {
	mu   sync.Mutex
	last map[string]int // percent, by key and period
}

func (k *told) keep(_ context.Context, key uint64, label int32, percent int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last[fmt.Sprint(key, "-", label)] = percent
	return nil
}

func (k *told) percent(key uint64, label int32) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last[fmt.Sprint(key, "-", label)]
}

// A restart repeats what no receiver has taken, under the same id, and nothing else.
func TestRestartTellsWhatWasNotTold(t *testing.T) {
	r := newReceiver(t, func(try int) int {
		switch {
		case try <= tries:
			return http.StatusBadRequest
		case try > tries+1:
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	})
	k := &told{last: map[string]int{}}
	s, _ := start(t, r.URL, 50, 80, 100)
	s.p.Told = k.keep
	s.spent(500, 202611, 0)
	s.spent(500, 20261130, 0)
	s.spent(1000, 202611, 0)
	wait(t, "not given up", func() bool { return s.counts.failed.Load() == 3 })
	s.Close()
	if month, day := k.percent(3, 202611), k.percent(3, 20261130); month != 0 || day != 50 {
		t.Fatalf("%d and %d are remembered as told", month, day)
	}
	r.answer = nil
	s, _ = start(t, r.URL, 50, 80, 100)
	s.Told(3, 202611, k.percent(3, 202611))
	s.Told(3, 20261130, k.percent(3, 20261130))
	s.spent(1000, 202611, 0) // as the start finds it
	s.spent(799, 20261130, 0)
	s.spent(500, 2026334, 0) // nobody was told of this one
	want := []string{"3-20261130-50", "3-202611-50", "3-202611-80", "3-202611-100", "3-2026334-50"}
	wait(t, "not all came", func() bool { return len(r.ids()) >= len(want) })
	if got := r.ids(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// What did not fit the queue comes with the budget's next settlement.
func TestFullQueueIsMadeUpFor(t *testing.T) {
	r, release := newSlowReceiver(t)
	s, _ := start(t, r.URL, 50, 80)
	t.Cleanup(release)
	for key := range uint64(maxQueue + 2) {
		s.Spent(Spending{Key: 10 + key, Label: 202611, Limit: 2, Used: 1})
	}
	s.spent(900, 202611, 0)
	if s.counts.deferred.Load() == 0 {
		t.Fatal("the queue did not fill up")
	}
	release()
	wait(t, "the queue does not empty", func() bool { return len(s.queue) == 0 })
	s.spent(901, 202611, 0)
	wait(t, "not made up for", func() bool { return slices.Contains(r.ids(), "3-202611-80") })
	if !slices.Contains(r.ids(), "3-202611-50") {
		t.Error("a share is missing")
	}
}

func TestSignedAndWhole(t *testing.T) {
	r := newReceiver(t, nil)
	s, _ := start(t, r.URL, 50)
	s.spent(500, 2026334, 0)
	wait(t, "nothing came", func() bool { return len(r.ids()) == 1 })
	want := map[string]any{"id": "3-2026334-50", "type": "budget.share", "at": "2026-11-30T12:00:00Z", "percent": 50.0, "orgId": 1.0, "userId": 2.0, "keyId": 3.0,
		"keyName": "k", "window": "week", "period": "2026-11-30", "resetsAt": "2027-01-15T08:00:00Z", "limitMicroCny": 1000.0, "usedMicroCny": 500.0}
	if got := fmt.Sprint(r.bodies[0]); got != fmt.Sprint(want) {
		t.Errorf("%s, want %s", got, want)
	}
	header, body, _ := strings.Cut(r.signed[0], " ")
	if header != Sign(secret, time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), []byte(body)) || !strings.HasPrefix(header, "t=1796040000,v1=") {
		t.Errorf("signature %q", header)
	}
}

// The signature is the documented one, whatever computes it.
func TestSign(t *testing.T) {
	const want = "t=1,v1=1ba6b8171186efc613e8bcc0cbdab2748f24984d7c5a84faa2637afa0e40d224"
	if got := Sign("key", time.Unix(1, 0), []byte("{}")); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A failing receiver is asked again after growing pauses, whatever it says, and no more than eight times; the budget's next
// settlement tells what was given up.
func TestFailingReceiver(t *testing.T) {
	var healed atomic.Bool
	r := newReceiver(t, func(try int) int {
		if try == 4 || healed.Load() {
			return http.StatusOK
		}
		return []int{503, 404, 302, 429, 401, 400}[try%6]
	})
	s, pauses := start(t, r.URL, 50, 80, 100)
	s.spent(500, 202611, 0)
	s.spent(800, 202611, 0)
	wait(t, "not given up", func() bool { return s.counts.failed.Load() == 1 })
	if got := r.ids(); !slices.Equal(got, []string{"3-202611-50"}) || r.tries != 4+tries {
		t.Errorf("%v after %d tries", got, r.tries)
	}
	if (*pauses)[0] != time.Second || (*pauses)[2] != 4*time.Second || len(*pauses) != 3+tries-1 || (*pauses)[len(*pauses)-1] != 64*time.Second {
		t.Errorf("pauses %v", *pauses)
	}
	var b strings.Builder
	s.WriteMetrics(&b)
	if !strings.Contains(b.String(), `weir_alerts_total{result="delivered"} 1`) || !strings.Contains(b.String(), `weir_alerts_total{result="failed"} 1`) {
		t.Error(b.String())
	}
	healed.Store(true)
	s.spent(1000, 202611, 0)
	wait(t, "not told again", func() bool { return s.counts.delivered.Load() == 3 })
	if got := r.ids(); !slices.Equal(got, []string{"3-202611-50", "3-202611-80", "3-202611-100"}) {
		t.Errorf("%v", got)
	}
}

// A receiver that does not answer blocks nobody: what does not fit the queue is counted, and Close ends.
func TestSlowReceiver(t *testing.T) {
	r, release := newSlowReceiver(t)
	s, _ := start(t, r.URL, 50)
	t.Cleanup(release)
	done := make(chan struct{})
	go func() {
		for key := range uint64(2 * maxQueue) {
			s.Spent(Spending{Key: key, Label: 202611, Limit: 2, Used: 1})
		}
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("Spent waits for the receiver")
	}
	if n := s.counts.deferred.Load(); n < maxQueue-1 || n > maxQueue {
		t.Errorf("%d deferred", n)
	}
	release()
	s.Close()
	if sum := s.counts.delivered.Load() + s.counts.failed.Load() + s.counts.deferred.Load(); sum != 2*maxQueue {
		t.Errorf("%d of %d accounted for", sum, 2*maxQueue)
	}
}

// posted answers without a network.
type posted func(*http.Request) int

func (f posted) RoundTrip(q *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: f(q), Body: http.NoBody, Request: q}, nil
}

// Close ends in its two seconds, all in all, however many alerts wait for a store that does not answer.
func TestCloseIsBoundedWhenTheStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSender(Options{URL: "http://receiver.test", Secret: secret, At: DefaultAt()}, Parts{Clock: llm.NewFakeClock(time.Now()), Log: slog.New(slog.DiscardHandler), Currency: "cny",
			Told: func(ctx context.Context, _ uint64, _ int32, _ int) error { <-ctx.Done(); return ctx.Err() }})
		s.client.Transport = posted(func(*http.Request) int { return http.StatusOK })
		life, stop := context.WithCancel(context.Background())
		s.stop = stop
		go s.run(life)
		for key := range uint64(20) {
			s.Spent(Spending{Key: key, Label: 202611, Limit: 2, Used: 1})
		}
		synctest.Wait() // the first hangs
		began := time.Now()
		s.Close()
		if took := time.Since(began); took > closeTimeout {
			t.Errorf("Close took %v", took)
		}
		if n := s.counts.delivered.Load() + s.counts.failed.Load(); n != 20 {
			t.Errorf("%d of 20 accounted for", n)
		}
	})
}

func TestOptions(t *testing.T) {
	for want, o := range map[string]Options{
		"url: expected an address": {URL: "example.com/x", Secret: secret},
		"secret: it has 3":         {URL: "https://example.com", Secret: "abc"},
		"at: expected percentages": {URL: "https://example.com", Secret: secret, At: []int{0}},
		"at: 17 shares":            {URL: "https://example.com", Secret: secret, At: make([]int, 17)},
		"at: 50 stands twice":      {URL: "https://example.com", Secret: secret, At: []int{80, 50, 50}},
		"got 2000":                 {At: []int{2000}},
		"169.254.169.254 is no":    {URL: "http://169.254.169.254/latest", Secret: secret},
		"fe80::1%eth0 is no":       {URL: "http://[fe80::1%25eth0]/x", Secret: secret},
		"ffff:169.254.169.254 is":  {URL: "http://[::ffff:169.254.169.254]/x", Secret: secret},
		"fd00:ec2::254 is no":      {URL: "http://[fd00:ec2::254]/x", Secret: secret},
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	for _, o := range []Options{{URL: "http://127.0.0.1:9/hook", Secret: secret, At: DefaultAt()}, {URL: "https://10.0.0.1", Secret: secret, At: []int{}}, {}} {
		if err := o.Validate(); err != nil {
			t.Error(err)
		}
	}
	if New(Options{}, Parts{}) != nil {
		t.Error("alerts without a receiver")
	}
	var none *Sender
	none.Spent(Spending{})
	none.Told(1, 2, 3)
	none.WriteMetrics(io.Discard)
	none.Close()
}
