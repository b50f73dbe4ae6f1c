package redis

import (
	"context"
	"io"
	"net"
	"strconv"
	"sync"
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

// shifted is a clock that is apart from another.
type shifted struct {
	llm.Clock
	by time.Duration
}

func (c shifted) Wall() time.Time     { return c.Clock.Wall().Add(c.by) }
func (c shifted) Mono() time.Duration { return c.Clock.Mono() + c.by }

// lossy passes a server on, and loses one in ten of its answers together with the connection.
func lossy(t *testing.T, to string) (url string, lost *atomic.Int64) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	lost = new(atomic.Int64)
	var answers atomic.Int64
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
			go func() {
				defer func() { _ = client.Close(); _ = server.Close() }()
				b := make([]byte, 64<<10)
				for {
					n, err := server.Read(b)
					if err != nil {
						return
					}
					if answers.Add(1)%10 == 0 {
						lost.Add(1)
						return
					}
					if _, err := client.Write(b[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return "redis://" + ln.Addr().String(), lost
}

// TestLostAnswersAndClocksApart: gateways whose clocks are hours apart and that lose one answer in ten, with the connection,
// never admit more in a second than the limit and their shares together, and leave nothing behind at the server.
func TestLostAnswersAndClocksApart(t *testing.T) {
	const most, gateways = 40, 3
	s := storetest.Redis(t)
	url, lost := lossy(t, s.Addr)
	real := llm.NewSystemClock()
	type span struct{ from, to time.Duration }
	var mu sync.Mutex
	var admitted []span
	var all sync.WaitGroup
	var limiters []*limit.Memory
	end := real.Mono() + 3*time.Second
	for i := range gateways {
		m := limit.New(limit.Options{Sharing: limit.Sharing{Server: windows(t, url, Options{Gateways: gateways}), Gateway: uint64(i + 1),
			Gateways: gateways, Timeout: 100 * time.Millisecond}}, shifted{real, time.Duration(i) * time.Hour}, nil)
		t.Cleanup(m.Close)
		limiters = append(limiters, m)
		for range 4 {
			all.Go(func() {
				for real.Mono() < end {
					c := &limit.Claim{Caller: limit.Caller{Org: 1, User: 1, Key: 7}, Input: 1, N: 1}
					l := limit.Limits{QPS: most, Concurrency: 100}
					c.Dims[0] = limit.Dim{ID: limit.ID{Kind: limit.Key, Scope: 7}, Base: l, Effective: l}
					from := real.Mono()
					r, d, err := m.Reserve(context.Background(), c)
					if err != nil || d != nil {
						time.Sleep(2 * time.Millisecond)
						continue
					}
					mu.Lock()
					admitted = append(admitted, span{from, real.Mono()})
					mu.Unlock()
					r.Release()
				}
			})
		}
	}
	all.Wait()
	for i, first := range admitted {
		n := 0
		for _, s := range admitted[i:] {
			if s.from >= first.from && s.to < first.from+time.Second {
				n++
			}
		}
		if n > 2*most {
			t.Fatalf("%d admitted in a second", n)
		}
	}
	if lost.Load() == 0 || len(admitted) < most {
		t.Fatalf("%d answers lost, %d admitted", lost.Load(), len(admitted))
	}
	look := windows(t, s.URL, Options{Gateways: gateways})
	for try := 0; ; try++ {
		o := &limit.Order{Org: 1, Dry: true, Asks: []limit.Ask{{ID: limit.ID{Kind: limit.Key, Scope: 7}, Loose: true}}}
		if err := look.Take(context.Background(), o); err != nil {
			t.Fatal(err)
		}
		if o.Asks[0].Open == 0 && limiters[0].Open()+limiters[1].Open()+limiters[2].Open() == 0 {
			break
		}
		if try == 1000 {
			t.Fatalf("%d still open at the server", o.Asks[0].Open)
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("%d admitted, %d answers lost", len(admitted), lost.Load())
}
