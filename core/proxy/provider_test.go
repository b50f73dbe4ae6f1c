package proxy_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// strictProvider has limits as providers do, over any second and any minute of the rig's clock: of requests, and of the tokens
// that it reports.
type strictProvider struct {
	url              string
	clock            *llm.FakeClock
	requests, tokens int64
	mu               struct {
		sync.Mutex
		log      []granted
		said429  int
		answered int
	}
}

type granted struct {
	at     time.Duration
	tokens int64
}

func newStrictProvider(t *testing.T) *strictProvider {
	p := &strictProvider{requests: 8, tokens: 3_000}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	p.url = s.URL
	return p
}

// ServeHTTP answers with as many tokens as it was allowed to, or one less for each request so far.
func (p *strictProvider) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	var body struct {
		Cap int64 `json:"max_tokens"`
	}
	if err := json.NewDecoder(q.Body).Decode(&body); err != nil || body.Cap == 0 {
		http.Error(w, "no cap", http.StatusTeapot)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	const input = 10
	output := max(body.Cap-int64(p.mu.answered%7), 1)
	w.Header().Set("Content-Type", "application/json")
	if !p.takesLocked(p.clock.Mono(), input+output) {
		p.mu.said429++
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	p.mu.answered++
	_, _ = fmt.Fprintf(w, `{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, input, output)
}

func (p *strictProvider) takesLocked(now time.Duration, tokens int64) bool {
	requests, sum := int64(1), tokens
	for _, s := range p.mu.log {
		if s.at > now-time.Second {
			requests++
		}
		if s.at > now-time.Minute {
			sum += s.tokens
		}
	}
	if requests > p.requests || sum > p.tokens {
		return false
	}
	p.mu.log = append(p.mu.log, granted{now, tokens})
	return true
}

// A channel whose own limits are its provider's never meets the provider's: what would is refused here, with the wait. The
// same requests without those limits do meet them.
func TestAChannelStopsBeforeItsProvidersLimit(t *testing.T) {
	for _, guarded := range []bool{true, false} {
		p := newStrictProvider(t)
		r := newRig(t, func(s *setup) {
			s.catalog = func(c *catalog) {
				if c.channels[0].BaseURL = p.url; guarded {
					c.channels[0].QPSLimit, c.channels[0].TPMLimit = p.requests, p.tokens
				}
			}
		})
		p.clock = r.clock
		rnd := rand.New(rand.NewPCG(1, 2))
		refused := map[string]int{} // by kind
		for range 150 {             // bursts, over about four minutes
			r.clock.Advance(time.Duration(rnd.IntN(3_000)) * time.Millisecond)
			answers := make(chan reply)
			n := 1 + rnd.IntN(12)
			for range n {
				body := chat("gpt-4o", `,"max_tokens":`+itoa(10+rnd.IntN(100)))
				go func() { answers <- r.post("/v1/chat/completions", body) }()
			}
			for range n {
				if a := <-answers; a.status == 429 {
					kind, _ := a.fields(t)["kind"].(string)
					refused[kind]++
				} else {
					a.want(t, 200)
				}
			}
		}
		p.mu.Lock()
		t.Logf("guarded %v: %d answered, %d times 429, refused here %v", guarded, p.mu.answered, p.mu.said429, refused)
		switch {
		case guarded && p.mu.said429 > 0:
			t.Errorf("the provider said 429 %d times", p.mu.said429)
		case guarded && (refused["qps"] == 0 || refused["tpm"] == 0 || p.mu.answered < 50):
			t.Errorf("refused %v, answered %d: the limits were not tried", refused, p.mu.answered)
		case !guarded && p.mu.said429 == 0:
			t.Error("the provider's limits are out of reach")
		}
		p.mu.Unlock()
	}
}
