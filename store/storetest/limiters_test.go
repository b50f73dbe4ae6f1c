package storetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
)

// TestMemoryLimiter: the windows of one process pass the suite.
func TestMemoryLimiter(t *testing.T) {
	Limiters(t, func(t *testing.T, clock *llm.FakeClock) []*limit.Memory {
		m := limit.New(limit.Options{}, clock, nil)
		t.Cleanup(m.Close)
		return []*limit.Memory{m}
	})
}

// inProcess counts with a limiter of this process.
type inProcess struct {
	limiter *limit.Memory
	limit   int64
	mu      struct {
		sync.Mutex
		holds []limit.Reservation
	}
}

func (p *inProcess) Reserve(n int64) (int, bool) {
	r, d, err := p.limiter.Reserve(context.Background(), claimOf(7, llm.Tokens(n), limit.Limits{TPM: p.limit}))
	if d != nil || err != nil {
		return 0, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.holds = append(p.mu.holds, r)
	return len(p.mu.holds) - 1, true
}

func (p *inProcess) Settle(hold int, n int64) {
	p.mu.Lock()
	r := p.mu.holds[hold]
	p.mu.Unlock()
	r.Sent("primary")
	r.Commit(llm.Usage{InputTokens: llm.Tokens(n)}, true)
}

// TestMemoryIsLinearizable: what clients of one process see at the same time could have come one after the other.
func TestMemoryIsLinearizable(t *testing.T) {
	m := limit.New(limit.Options{}, llm.NewFakeClock(time.Unix(0, 0)), nil)
	defer m.Close()
	Linearizable(t, 1000, &inProcess{limiter: m, limit: 1000})
}
