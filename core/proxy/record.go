package proxy

import (
	"context"
	"log/slog"
	"time"

	"github.com/weir-gateway/weir/core/alert"
	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
)

// statusGone is what the log and the metrics call a request whose client left before it was answered.
const statusGone = 499

// record is what happened to one request: the log line and the metrics are read off it, nothing else is.
type record struct {
	status   int
	channel  string        // that answered, or was tried last
	attempts int           // that were written to an upstream
	first    time.Duration // arrival to the upstream's first byte
	gone     bool          // the client left first
	shadowed bool          // the policy would have refused
	storm    bool          // refused by the cheap look: the key goes on after many refusals; see storms
	doubted  bool          // the provider reported usage that cannot be
	code     string        // of a refusal, as the client was told it
	param    string        // of a refusal: the field that it is about
	why      string        // of a refusal: what the client was told; the log has it without the client's own words

	settlement llm.Status
	usage      llm.Usage
	cost       llm.Micro
	house      llm.Micro // what the usage costs beyond cost
	reported   bool      // usage is the provider's
	seq        uint64    // ledger entry of the settlement
}

// decided notes whose decision it was.
func (o *outcome) decided(d *policy.Decision) {
	o.policy = ruling{d.Module, d.Version, d.Message, d.Reason}
	o.tenant = ruling{d.Tenant.Module, d.Tenant.Version, d.Tenant.Message, d.Tenant.Reason}
	o.quota, o.price = d.Quota, d.Price
}

// settled notes how the hold ended. Only the first ending counts.
func (r *record) settled(s limit.Settlement, reported bool) {
	if s.First {
		r.settlement, r.usage, r.cost, r.house, r.seq, r.reported = s.Status, s.Usage, s.Cost, s.House, s.Seq, reported
	}
}

// conclude writes the record down.
func (s *Server) conclude(c *call) {
	took := s.p.Clock.Mono() - c.start
	s.meter.observe(c, took)
	if s.p.Alerts != nil && c.record.cost > 0 {
		s.alert(c)
	}
	s.storms.tell(s.p.Log, c.start+took)
	r := &c.record
	if r.storm || !s.p.Log.Enabled(context.Background(), slog.LevelInfo) {
		return
	}
	attrs := []slog.Attr{
		slog.String("request_id", string(c.hex[:])), slog.String("endpoint", names[c.route]),
		slog.Int("status", r.status), slog.Int64("took_us", took.Microseconds()),
	}
	if c.caller != nil {
		attrs = append(attrs, slog.Uint64("key", c.caller.Key.ID), slog.Uint64("user", c.caller.User.ID), slog.Uint64("org", c.caller.Org.ID))
	}
	if c.model != nil {
		attrs = append(attrs, slog.String("model", c.model.Name), slog.Bool("stream", c.head.Stream))
	}
	if r.attempts > 0 {
		attrs = append(attrs, slog.String("channel", r.channel), slog.Int("attempts", r.attempts), slog.Int64("first_us", r.first.Microseconds()))
	}
	if r.settlement != llm.StatusOpen {
		attrs = append(attrs, slog.String("settlement", r.settlement.String()), slog.Int64("input_tokens", int64(r.usage.InputTokens)),
			slog.Int64("output_tokens", int64(r.usage.OutputTokens)), slog.Int64("cost_micro", int64(r.cost)), slog.Bool("reported", r.reported))
	}
	if r.house > 0 {
		attrs = append(attrs, slog.Int64("clipped_micro", int64(r.house)))
	}
	if p := &c.outcome.policy; p.module != "" {
		attrs = append(attrs, slog.String("policy", p.module), slog.String("version", p.version), slog.Int("reason", int(p.reason)))
		if p.message != "" {
			attrs = append(attrs, slog.String("rule", llm.Blot(p.message)))
		}
	}
	if t := &c.outcome.tenant; t.module != "" {
		attrs = append(attrs, slog.String("tenant_policy", t.module), slog.String("tenant_version", t.version), slog.Int("tenant_reason", int(t.reason)))
		if t.message != "" {
			attrs = append(attrs, slog.String("tenant_rule", llm.Blot(t.message)))
		}
	}
	if r.why != "" {
		attrs = append(attrs, slog.String("code", r.code))
		if r.param != "" {
			attrs = append(attrs, slog.String("param", r.param))
		}
		attrs = append(attrs, slog.String("why", llm.Unquoted(r.why)))
	}
	if r.shadowed {
		attrs = append(attrs, slog.Bool("policy_shadow_denied", true))
	}
	if r.gone {
		attrs = append(attrs, slog.Bool("client_gone", true))
	}
	s.p.Log.LogAttrs(context.Background(), slog.LevelInfo, "request", attrs...)
}

// alert tells how the budgets stand that the request was charged to.
func (s *Server) alert(c *call) {
	for i := range c.outcome.quotas {
		q := &c.outcome.quotas[i]
		if q.Label == 0 {
			break
		}
		s.spent(c.caller, q, c.outcome.quota)
	}
}

// Remind tells how every budget stands, as the settlements before did: what they told may have died with their process.
func (s *Server) Remind() {
	now := s.p.Clock.Wall()
	for _, k := range s.p.Directory.Keys() {
		who, whole := s.p.Directory.Caller(k.ID)
		if !whole || s.p.Alerts == nil {
			continue
		}
		for w := range llm.Window(llm.Windows) {
			q := limit.Quota{Window: w}
			q.Label, q.ResetsAt = who.Period(w, now)
			s.spent(who, &q, 0)
		}
	}
}

// spent tells how one budget stands, with its limit under a policy's multiplier.
func (s *Server) spent(who *auth.Caller, q *limit.Quota, permille uint32) {
	b := who.Key.Budget(q.Window)
	if b.Limit == 0 {
		return
	}
	used, _ := s.p.Money.Quota(who.Key.ID, q.Label)
	s.p.Alerts.Spent(alert.Spending{Org: who.Org.ID, User: who.User.ID, Key: who.Key.ID, Name: who.Key.Name, Window: q.Window, Label: q.Label,
		Limit: llm.Micro(limit.Scale(int64(b.Limit), permille)), Used: used, Warn: b.Warn, ResetsAt: q.ResetsAt})
}
