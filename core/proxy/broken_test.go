package proxy_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/upstream"
)

// ask is one call of a hundred; each has a model and a channel of its own, so that no cool-down keeps a later one from its
// upstream.
type ask struct {
	path, body string
	stream     bool
}

// hundred spreads 100 calls over every route, buffered and, where the route streams, streamed.
func hundred(c *catalog, url string) (asks []ask) {
	c.models, c.channels = nil, nil
	for len(asks) < 100 {
		for _, x := range everyRoute {
			for _, more := range []string{"", `,"stream":true`} {
				stream := more != ""
				if stream && (strings.HasSuffix(x.path, "embeddings") || strings.HasSuffix(x.path, "count_tokens")) {
					continue
				}
				name, provider := "m"+itoa(len(asks)), "openai"
				if strings.HasPrefix(x.path, "/v1/messages") {
					provider = "anthropic"
				}
				c.models = append(c.models, upstream.Model{Name: name, Channels: []string{name}, Target: x.model, Price: price, Priced: true, MaxOutputTokens: 4096})
				c.channels = append(c.channels, upstream.Channel{ID: uint64(len(asks) + 1), Name: name, Provider: provider, BaseURL: url, Credential: "up"})
				asks = append(asks, ask{x.path, strings.Replace(x.with(more), `"model":"`+x.model+`"`, `"model":"`+name+`"`, 1), stream})
			}
		}
	}
	return asks
}

// M02: whatever an upstream does to 100 calls, afterwards nothing is held, and balance and window are what the ledger's
// settlements sum to.
func TestM02AHundredBrokenCalls(t *testing.T) {
	for _, mode := range []struct {
		sim              string
		header           int64 // ms
		buffered, stream int
	}{{"reset=headers", 5000, 502, 502}, {"reset_after=3", 5000, 502, 200}, {"latency=60s", 300, 504, 504}} {
		t.Run(mode.sim, func(t *testing.T) {
			r := newRig(t, limits(auth.Key{TPMLimit: 1 << 40, ConcurrencyLimit: 8}), func(s *setup) {
				s.upstream.HeaderTimeoutMS = mode.header
			})
			asks := hundred(&r.cat, r.simURL)
			r.setCatalog()
			r.leavesNothing()
			next := make(chan ask)
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for a := range next {
						want := mode.buffered
						if a.stream {
							want = mode.stream
						}
						if p := r.post(a.path, a.body, "x-sim", mode.sim); p.status != want {
							t.Errorf("%s, streamed %v: %d %s", a.path, a.stream, p.status, p.body)
						}
					}
				})
			}
			for _, a := range asks {
				next <- a
			}
			close(next)
			wg.Wait()
			r.idle()
			if n := r.sim.Stats().Requests; n != 100 {
				t.Errorf("%d calls reached an upstream", n)
			}
			eventually(t, func() bool { return r.sim.Stats().Open == 0 }, "an upstream goes on")
			r.settledIs(t, 100, map[bool]int{true: 40}[mode.stream == 200])
		})
	}
}

// settledIs checks that of so many calls so many owe something, and that memory says the same as the ledger.
func (r *rig) settledIs(t *testing.T, calls, owing int) {
	t.Helper()
	var cost llm.Micro
	var total llm.Tokens
	settled := r.journal.of(llm.EntrySettle)
	for _, e := range settled {
		cost += e.Cost
		total += e.Usage.Total()
		if e.Status != llm.StatusPartial || e.Cost <= 0 || e.Usage.InputTokens == 0 {
			t.Errorf("%+v", e)
		}
	}
	if ended := len(settled) + len(r.journal.of(llm.EntryVoid)); len(settled) != owing || ended != calls {
		t.Errorf("%d calls ended, %d of them owe", ended, len(settled))
	}
	use, err := r.limits.Inspect(t.Context(), limit.ID{Kind: limit.Key, Scope: idKey})
	must(t, err)
	if use.TPM != int64(total) || use.TPMHeld != 0 || use.Concurrency != 0 {
		t.Errorf("%+v, and the ledger has %d tokens", use, total)
	}
	if left, held := r.limits.Balance(idUser); startBalance-left != cost || held != 0 {
		t.Errorf("the balance moved by %d, the ledger has %d; held %d", startBalance-left, cost, held)
	}
	r.clock.Advance(time.Minute)
	use, err = r.limits.Inspect(t.Context(), limit.ID{Kind: limit.Key, Scope: idKey})
	must(t, err)
	if use.TPM != 0 || use.TPMHeld != 0 {
		t.Errorf("a minute later: %+v", use)
	}
}
