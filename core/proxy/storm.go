package proxy

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
)

// storm is the cheap look: a key that keeps being refused is refused again before its body is looked at, and before anything
// is counted or decided. It looks at the key's own limit only, since the decision may put the key into another tier.
func (s *Server) storm(c *call, who *auth.Caller) (refused bool) {
	qps := who.Key.QPSLimit
	if qps <= 0 || c.snap.StormPermille == 0 {
		return false
	}
	id, most := limit.ID{Kind: limit.Key, Scope: who.Key.ID}, limit.Scale(qps, c.snap.StormPermille)
	if !s.p.Limiter.Storm(id, most, c.limitTerms(), &c.denial) {
		return false
	}
	c.record.storm = true
	s.meter.abnormal.Inc()
	r := s.storms.refusal(c, &c.denial)
	s.denied(c, &c.denial, &r)
	return true
}

// storms are the keys in a retry storm. What all refusals of a storm have in common is rendered once a second, and the log
// gets one line a second for each key, with their number: lines of their own would cost as much as all the rest of them.
// Those that the look lets through have theirs. Safe for concurrent use.
type storms struct {
	due atomic.Int64 // when the log is told, on the monotonic clock; 0: there is nothing to tell
	mu  struct {
		sync.Mutex
		keys map[uint64]*storm
	}
}

// stormEvery is how often the log is told.
const stormEvery = time.Second

// storm is what one key was refused since the log was told.
type storm struct {
	who            *auth.Caller
	refused        int
	newest         [16]byte // request id
	limit, current int64    // that said is made for
	said           refusal  // without its wait
}

// refusal counts a refusal by the cheap look, and puts it into words.
func (ss *storms) refusal(c *call, d *limit.Denial) refusal {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	st := ss.mu.keys[c.caller.Key.ID]
	if st == nil {
		if len(ss.mu.keys) == 0 {
			ss.mu.keys = map[uint64]*storm{}
			ss.due.Store(int64(c.start + stormEvery))
		}
		st = new(storm)
		ss.mu.keys[c.caller.Key.ID] = st
	}
	st.who, st.newest = c.caller, c.hex
	st.refused++
	if st.limit != d.Limit || st.current != d.Current || st.said.status == 0 {
		st.limit, st.current, st.said = d.Limit, d.Current, rateRefusal(d, nil)
	}
	r := st.said
	r.members = append(c.member[:0], st.said.members...)
	r.wait(d)
	return r
}

// tell logs what is due by now. Each request has it told, for a storm may have ended.
func (ss *storms) tell(log *slog.Logger, now time.Duration) {
	if due := ss.due.Load(); due == 0 || int64(now) < due {
		return
	}
	ss.mu.Lock()
	keys := ss.mu.keys
	ss.mu.keys = nil
	ss.due.Store(0)
	ss.mu.Unlock()
	for _, st := range keys {
		log.LogAttrs(context.Background(), slog.LevelInfo, "storm", slog.Int("refused", st.refused), slog.Int("status", st.said.status),
			slog.Uint64("key", st.who.Key.ID), slog.Uint64("user", st.who.User.ID), slog.Uint64("org", st.who.Org.ID),
			slog.String("code", st.said.code), slog.String("why", st.said.message), slog.Bool("abnormal_usage", true),
			slog.String("newest_request_id", string(st.newest[:])))
	}
}

// flush logs all that was not told.
func (ss *storms) flush(log *slog.Logger) { ss.tell(log, math.MaxInt64) }
