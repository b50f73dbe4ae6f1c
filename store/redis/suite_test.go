package redis

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/storetest"
)

var suites atomic.Int64

// gateways are n limiters on one server, whose windows go by the test's clock.
func gateways(t *testing.T, url string, n int, clock *llm.FakeClock) []*limit.Memory {
	prefix := "suite" + strconv.FormatInt(suites.Add(1), 10)
	var all []*limit.Memory
	for i := range n {
		w := windows(t, url, Options{Gateways: n, Prefix: prefix, Now: clock.Wall})
		m := limit.New(limit.Options{Sharing: limit.Sharing{
			Server: w, Gateway: uint64(i + 1), Gateways: n, Timeout: 5 * time.Second}}, clock, nil)
		t.Cleanup(m.Close)
		all = append(all, m)
	}
	return all
}

// TestRedisLimiter: three gateways on one server pass the suite that one process passes.
func TestRedisLimiter(t *testing.T) {
	s := storetest.Redis(t)
	storetest.Limiters(t, func(t *testing.T, clock *llm.FakeClock) []*limit.Memory { return gateways(t, s.URL, 3, clock) })
}

// counter counts at the server.
type counter struct {
	w     *Windows
	limit int64
	holds atomic.Uint64
}

func (c *counter) id() limit.ID { return limit.ID{Kind: limit.Key, Scope: 7} }

func (c *counter) Reserve(n int64) (int, bool) {
	hold := c.holds.Add(1)
	o := &limit.Order{Hold: limit.HoldID{Gateway: 1, Number: hold}, Org: 1,
		Asks: []limit.Ask{{ID: c.id(), TPM: limit.Bound{Most: c.limit}, Requests: 1, Tokens: n}}}
	err := c.w.Take(context.Background(), o)
	return int(hold), err == nil && o.Admitted
}

func (c *counter) Settle(hold int, n int64) {
	_ = c.w.End(context.Background(), []limit.Ending{{Hold: limit.HoldID{Gateway: 1, Number: uint64(hold)}, Org: 1,
		Dims: []limit.EndingDim{{ID: c.id(), Tokens: n}}}})
}

// TestRedisIsLinearizable: what clients of the server see at the same time could have come one after the other.
func TestRedisIsLinearizable(t *testing.T) {
	clock := llm.NewFakeClock(time.Unix(1_800_000_000, 0))
	storetest.Linearizable(t, 1000, &counter{w: windows(t, storetest.Redis(t).URL, Options{Now: clock.Wall}), limit: 1000})
}

// windows opens what answers.
func windows(t *testing.T, url string, o Options) *Windows {
	t.Helper()
	w, err := Open(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	for range 500 {
		if w.Ping(context.Background()) == nil {
			return w
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the server does not answer")
	return nil
}
