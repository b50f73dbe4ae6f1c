package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// supervisor is who started the process and wants to hear how it fares, in datagrams as sd_notify(3) describes them; nil:
// nobody does.
type supervisor struct {
	conn     net.Conn
	clock    llm.Clock
	log      *slog.Logger
	watchdog time.Duration // a longer silence is taken for death; 0: none is
}

// newSupervisor follows NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. Nothing that is wrong with them keeps a gateway from
// serving.
func newSupervisor(env func(string) (string, bool), clock llm.Clock, log *slog.Logger) *supervisor {
	address, ok := env("NOTIFY_SOCKET")
	if !ok || address == "" {
		return nil
	}
	conn, err := net.Dial("unixgram", address)
	if err != nil {
		log.Warn("the supervisor is not told anything", "NOTIFY_SOCKET", address, "error", err)
		return nil
	}
	s := &supervisor{conn: conn, clock: clock, log: log}
	text, ok := env("WATCHDOG_USEC")
	pid, other := env("WATCHDOG_PID")
	if !ok || other && pid != strconv.Itoa(os.Getpid()) {
		return s
	}
	micros, err := strconv.ParseInt(text, 10, 64)
	if err != nil || micros <= 0 {
		log.Warn("there is no watchdog: expected a whole number of microseconds", "WATCHDOG_USEC", text)
		return s
	}
	s.watchdog = time.Duration(micros) * time.Microsecond
	return s
}

// tellTime is how long a supervisor may take to read: one that does not must hold nothing up.
const tellTime = 100 * time.Millisecond

func (s *supervisor) tell(state string) {
	if s == nil {
		return
	}
	err := s.conn.SetWriteDeadline(s.clock.Wall().Add(tellTime))
	if err == nil {
		_, err = s.conn.Write([]byte(state))
	}
	if err != nil {
		s.log.Warn("the supervisor could not be told", "state", state, "error", err)
	}
}

func (s *supervisor) ready() { s.tell("READY=1\nSTATUS=serving") }

func (s *supervisor) stopping() { s.tell("STOPPING=1\nSTATUS=open requests end") }

// reloading is to be followed by ready, whatever comes of it.
func (s *supervisor) reloading() {
	if s == nil {
		return
	}
	now, err := monotonic()
	if err != nil {
		s.log.Warn("the supervisor is not told of a reload", "error", err)
		return
	}
	s.tell(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Microseconds()))
}

func (s *supervisor) close() {
	if s != nil {
		_ = s.conn.Close()
	}
}

// watch tells, twice in the time that the watchdog has, that alive is true, until ctx ends.
func (s *supervisor) watch(ctx context.Context, alive func(context.Context) bool) {
	if s == nil || s.watchdog == 0 {
		return
	}
	tick := time.NewTicker(s.watchdog / 2)
	defer tick.Stop()
	for {
		within, cancel := context.WithTimeout(ctx, s.watchdog/2)
		ok := alive(within)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case ok:
			s.tell("WATCHDOG=1")
		default:
			s.log.Error("the gateway hangs: the supervisor's watchdog is not told that it lives")
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// alive is false when the gateway hangs: what takes the locks of the limiter, the ledger and the proxy does not return
// before ctx ends. A gateway that refuses, for a full disk or while it drains, is alive: to start it again would mend
// nothing, and cut what is open. No connection is made, so that a shortage of descriptors is no death.
func (g *gateway) alive(ctx context.Context) bool {
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		g.limiter.Open()
		g.limiter.Balance(0)
		g.adminHTTP.Handler.ServeHTTP(unread{}, (&http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/readyz"}, Body: http.NoBody}).WithContext(ctx))
	}()
	select {
	case <-answered:
		return true
	case <-ctx.Done():
		return false
	}
}

// unread is an answer that nobody reads.
type unread struct{}

func (unread) Header() http.Header         { return http.Header{} }
func (unread) Write(p []byte) (int, error) { return len(p), nil }
func (unread) WriteHeader(int)             {}
