package upstream

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	budgetSeconds = 10 // the window that retries are compared with requests in
	budgetFloor   = 10 // retries in the window that a quiet gateway may make, whatever the share
)

// budget bounds retries to a share of requests, over all models and channels: when much fails at once, trying everything
// three times makes it worse. It counts in whole seconds, the one under way and the nine before it. What is counted is
// sending a request again; an attempt that could not even connect has burdened nobody.
type budget struct {
	percent int64
	made    atomic.Uint64 // retries, since the start
	refused atomic.Uint64
	mu      struct {
		sync.Mutex
		second         int64 // the one under way
		asked, retried [budgetSeconds]int64
		asks, retries  int64 // sums of them
	}
}

// ask counts a request.
func (b *budget) ask(now time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turnLocked(now)
	b.mu.asked[b.mu.second%budgetSeconds]++
	b.mu.asks++
}

// retry counts a retry, if there is room for one.
func (b *budget) retry(now time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turnLocked(now)
	if b.mu.retries >= max(b.mu.asks*b.percent/100, budgetFloor) {
		b.refused.Add(1)
		return false
	}
	b.made.Add(1)
	b.mu.retried[b.mu.second%budgetSeconds]++
	b.mu.retries++
	return true
}

// turnLocked forgets the seconds that have left the window.
func (b *budget) turnLocked(now time.Duration) {
	second := int64(now / time.Second)
	for range min(second-b.mu.second, budgetSeconds) {
		b.mu.second++
		i := b.mu.second % budgetSeconds
		b.mu.asks -= b.mu.asked[i]
		b.mu.retries -= b.mu.retried[i]
		b.mu.asked[i], b.mu.retried[i] = 0, 0
	}
	b.mu.second = max(b.mu.second, second)
}
