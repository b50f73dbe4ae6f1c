package proxy

import (
	"context"
	"encoding/json"
	"net/url"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/upstream"
)

// own answers the routes that reach no upstream.
func (s *Server) own(c *call, rest []byte) error {
	switch c.route {
	case routeHealthz:
		return s.reply(c, fasthttp.StatusOK, map[string]any{"status": "ok"})
	case routeReadyz:
		if err := s.Ready(); err != nil {
			return s.reply(c, fasthttp.StatusServiceUnavailable, map[string]any{"status": "not ready", "reasons": []string{asError(err).Message}})
		}
		return s.reply(c, fasthttp.StatusOK, map[string]any{"status": "ready"})
	}
	who, err := s.resolve(c)
	if err != nil {
		return err
	}
	s.ownRates(c)
	switch c.route {
	case routeModels:
		return s.reply(c, fasthttp.StatusOK, c.modelList(who))
	case routeModel:
		return s.oneModel(c, who, rest)
	case routeTenantRules, routeTenantDryRun, routeTenantRollback, routeTenantTrial, routeTenantUsage:
		return s.tenant(c, who)
	}
	return s.keyInfo(c, who)
}

// reply writes v as JSON.
func (s *Server) reply(c *call, status int, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		c.replyJSON(status, b)
	}
	return err
}

func (c *call) replyJSON(status int, b []byte) {
	out := &c.ctx.Response
	out.SetStatusCode(status)
	out.Header.SetContentType("application/json")
	c.rates.set(&out.Header, c.dialect, c.now, c.numbers[:])
	out.SetBody(b)
	c.record.status = status
}

// usable lists the models a key may use, by name.
func (c *call) usable(who *auth.Caller) (ms []*upstream.Model) {
	if c.snap.Catalog == nil {
		return nil
	}
	for _, m := range c.snap.Catalog.Models() {
		if who.Key.Allows(m.Name) {
			ms = append(ms, m)
		}
	}
	return ms
}

func (c *call) modelList(who *auth.Caller) map[string]any {
	ms := c.usable(who)
	data := make([]any, 0, len(ms))
	for _, m := range ms {
		data = append(data, c.modelObject(m))
	}
	if c.dialect == llm.OpenAI {
		return map[string]any{"object": "list", "data": data}
	}
	page := map[string]any{"data": data, "has_more": false, "first_id": nil, "last_id": nil}
	if len(ms) > 0 {
		page["first_id"], page["last_id"] = ms[0].Name, ms[len(ms)-1].Name
	}
	return page
}

func (c *call) modelObject(m *upstream.Model) map[string]any {
	if c.dialect == llm.Anthropic {
		return map[string]any{"type": "model", "id": m.Name, "display_name": m.Name, "created_at": time.Unix(0, 0).UTC().Format(time.RFC3339)}
	}
	return map[string]any{"id": m.Name, "object": "model", "created": 0, "owned_by": "weir"}
}

func (s *Server) oneModel(c *call, who *auth.Caller, escaped []byte) error {
	name, err := url.PathUnescape(string(escaped))
	if err != nil {
		return llm.Errorf(llm.KindInvalid, "the model's name in the path has a malformed %% escape")
	}
	if m := c.modelFor(who, []byte(name)); m != nil {
		return s.reply(c, fasthttp.StatusOK, c.modelObject(m))
	}
	return c.noModel(who, name)
}

// window is one rate limit and what is in use of it. A limit of 0 is none.
type window struct {
	Limit   int64 `json:"limit"`
	Current int64 `json:"current"`
}

// keyInfo is what a key may know about itself.
func (s *Server) keyInfo(c *call, who *auth.Caller) error {
	use, err := s.p.Limiter.Inspect(context.Background(), limit.ID{Kind: limit.Key, Scope: who.Key.ID})
	if err != nil {
		return unavailable(err)
	}
	l, k := c.snap.keyLimits(&who.Key, c.tier), &who.Key
	v := map[string]any{
		"object": "key", "id": k.ID, "name": k.Name, "preview": k.Preview, "tier": nullable(k.Tier), "labels": orEmpty(k.Labels),
		"user": map[string]any{"id": who.User.ID, "name": who.User.Name}, "org": map[string]any{"id": who.Org.ID, "name": who.Org.Name},
		"models": k.Models, "expires_at": nil,
		"qps": window{l.QPS, use.QPS}, "tpm": window{l.TPM, use.TPM}, "concurrency": window{l.Concurrency, use.Concurrency},
		"monthly": s.quota(c, who, llm.Month), "weekly": s.quota(c, who, llm.Week), "daily": s.quota(c, who, llm.Day), "balance": nil,
	}
	if k.ExpiresAtMS > 0 {
		v["expires_at"] = time.UnixMilli(k.ExpiresAtMS).UTC().Format(time.RFC3339)
	}
	if !who.User.Unmetered {
		available, held := s.p.Money.Balance(who.User.ID)
		v["balance"] = c.money("available", available, "held", held)
	}
	return s.reply(c, fasthttp.StatusOK, v)
}

// quota shows one window; nil where it is not counted.
func (s *Server) quota(c *call, who *auth.Caller, w llm.Window) any {
	b := who.Key.Budget(w)
	if b.Limit == 0 && w != llm.Month {
		return nil
	}
	label, ends := who.Period(w, c.now)
	used, held := s.p.Money.Quota(who.Key.ID, label)
	m := c.money("limit", b.Limit, "used", used, "held", held)
	m["resets_at"] = ends.Format(time.RFC3339)
	return m
}

// money builds an object of amounts, given in turn as name and amount, with the currency in the names.
func (c *call) money(pairs ...any) map[string]any {
	m := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i].(string)+"_micro_"+c.snap.Currency] = pairs[i+1]
	}
	return m
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

func nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// zone is the calendar a key's month is counted in.
func zone(who *auth.Caller) *time.Location {
	if who.Zone == nil {
		return time.UTC
	}
	return who.Zone
}
