package proxy_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
)

// awayServer is a server of shared windows that never answers.
type awayServer struct{}

var errNoServer = errors.New("connection refused")

func (awayServer) Take(context.Context, *limit.Order) error        { return errNoServer }
func (awayServer) End(context.Context, []limit.Ending) error       { return errNoServer }
func (awayServer) Beat(context.Context, []limit.Ending) error      { return errNoServer }
func (awayServer) Borrow(context.Context, []*limit.Exchange) error { return errNoServer }
func (awayServer) Ping(context.Context) error                      { return errNoServer }

// TestSharedWindowsAway: where a dimension is refused while the shared windows are away, the client gets a 503 that says so,
// nothing is sent and nothing held; without that, the gateway decides alone.
func TestSharedWindowsAway(t *testing.T) {
	for way, want := range map[limit.Outage]int{limit.Refuse: http.StatusServiceUnavailable, limit.LocalShare: http.StatusOK, limit.Admit: http.StatusOK} {
		r := newRig(t, func(s *setup) {
			s.key.QPSLimit = 10
			s.limiter = func(*limit.Memory) limit.Limiter {
				m := limit.New(limit.Options{Sharing: limit.Sharing{Server: awayServer{}, Gateways: 2, Outages: map[limit.Kind]limit.Outage{limit.Key: way}}},
					llm.NewSystemClock(), nil)
				m.LoadBalance(idUser, startBalance, 0)
				t.Cleanup(m.Close)
				return m
			}
		})
		a := r.post("/v1/chat/completions", `{"model":"gpt-4o","max_tokens":5,"messages":[{"role":"user","content":"hello"}]}`)
		if a.status != want || want == http.StatusServiceUnavailable && !strings.Contains(string(a.body), "the limits that gateways share cannot be asked now") {
			t.Errorf("%s: %d %s", way, a.status, a.body)
		}
	}
}
