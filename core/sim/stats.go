package sim

import (
	"sync/atomic"

	"github.com/valyala/fasthttp"
)

// Stats are totals since the start, of every route but /sim/stats. Requests = Completed + Failed + Cancelled + Cut + Open.
type Stats struct {
	Requests         int64 `json:"requests"`
	Open             int64 `json:"open"`               // not ended yet
	Completed        int64 `json:"completed"`          // answered to the end
	Failed           int64 `json:"failed"`             // answered with an error
	Cancelled        int64 `json:"cancelled"`          // the peer left first
	Cut              int64 `json:"cut"`                // ended by a reset that was asked for, or by Shutdown
	InputTokens      int64 `json:"input_tokens"`       // as completed answers reported or would have
	CachedTokens     int64 `json:"cached_tokens"`      // part of InputTokens
	CacheWriteTokens int64 `json:"cache_write_tokens"` // part of InputTokens
	OutputTokens     int64 `json:"output_tokens"`
	PartialInput     int64 `json:"partial_input_tokens"`  // of answers that began and did not complete
	PartialOutput    int64 `json:"partial_output_tokens"` // what such answers had written
	OpenConnections  int64 `json:"open_connections"`
	UptimeMS         int64 `json:"uptime_ms"`
}

type counters struct {
	requests, completed, failed, cancelled, cut atomic.Int64
	input, cached, cacheWrite, output           atomic.Int64
	partialInput, partialOutput                 atomic.Int64
}

// Stats reads the totals. They are exact when no request is in flight.
func (s *Sim) Stats() Stats {
	c := &s.count
	st := Stats{
		Requests: c.requests.Load(), Completed: c.completed.Load(), Failed: c.failed.Load(),
		Cancelled: c.cancelled.Load(), Cut: c.cut.Load(),
		InputTokens: c.input.Load(), CachedTokens: c.cached.Load(), CacheWriteTokens: c.cacheWrite.Load(),
		OutputTokens: c.output.Load(), PartialInput: c.partialInput.Load(), PartialOutput: c.partialOutput.Load(),
		OpenConnections: int64(s.server.GetOpenConnectionsCount()), UptimeMS: s.clock.Mono().Milliseconds(),
	}
	st.Open = max(st.Requests-st.Completed-st.Failed-st.Cancelled-st.Cut, 0)
	return st
}

// ended counts the end of an answer that had begun; written is the output that went out.
func (s *Sim) ended(r *reply, p *peer, done bool, written int) {
	c := &s.count
	if done {
		c.completed.Add(1)
		c.input.Add(int64(r.usage.InputTokens))
		c.cached.Add(int64(r.usage.CachedInputTokens))
		c.cacheWrite.Add(int64(r.usage.CacheWriteTokens))
		c.output.Add(int64(r.usage.OutputTokens))
		return
	}
	c.partialInput.Add(int64(r.usage.InputTokens))
	c.partialOutput.Add(int64(written))
	if p.cut || s.isClosing() {
		c.cut.Add(1)
		return
	}
	c.cancelled.Add(1)
}

func (s *Sim) isClosing() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

func (s *Sim) serveStats(ctx *fasthttp.RequestCtx) {
	ctx.SetContentType("application/json")
	if f := writeJSON(ctx, s.Stats()); f != nil {
		ctx.SetStatusCode(f.status)
	}
}
