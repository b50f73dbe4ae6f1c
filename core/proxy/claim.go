package proxy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
)

// gatherFacts fills what the policy sees.
func (s *Server) gatherFacts(c *call, price llm.Price) error {
	who, f, h := c.caller, &c.facts, &c.head
	use, err := s.p.Limiter.Glance(limit.ID{Kind: limit.Key, Scope: who.Key.ID})
	if err != nil {
		return err
	}
	l := c.snap.keyLimits(&who.Key, c.tier)
	local := c.now.In(zone(who))
	*f = policy.Facts{
		NowMS: uint64(c.now.UnixMilli()), Entropy: c.id, Flags: c.flags(), Endpoint: c.endpoint(),
		Input: c.input, OutputMax: c.output, Choices: saturate32(h.Choices), BodyBytes: saturate32(len(c.body)),
		Key: who.Key.ID, User: who.User.ID, Org: who.Org.ID,
		QPSLimit: l.QPS, QPSCurrent: use.QPS, TPMLimit: l.TPM, TPMCurrent: use.TPM,
		ConcurrencyLimit: l.Concurrency, ConcurrencyCurrent: use.Concurrency,
		QuotaLimit: who.Key.MonthlyQuota, BalanceAvailable: math.MaxInt64, EstimatedCost: llm.AddMicro(price.Hold(c.input, c.output), c.terms.calls),
		MinuteOfWeek: uint32((int(local.Weekday())+6)%7*1440 + local.Hour()*60 + local.Minute()),
		DayOfMonth:   uint16(local.Day()), DaysInMonth: uint16(local.AddDate(0, 1, -local.Day()).Day()),
		Tier: uint32(c.tier), // noTier reads as the largest number
	}
	if !who.User.Unmetered {
		f.BalanceAvailable, _ = s.p.Money.Balance(who.User.ID)
	}
	if who.Key.MonthlyQuota > 0 {
		label, _ := who.Period(llm.Month, c.now)
		used, held := s.p.Money.Quota(who.Key.ID, label)
		f.QuotaUsed = llm.AddMicro(used, held)
	}
	c.attributes(f)
	return nil
}

func (c *call) flags() (f uint32) {
	set := func(on bool, bit uint32) {
		if on {
			f |= bit
		}
	}
	set(c.head.Stream, policy.FlagStream)
	set(c.head.Tools, policy.FlagTools)
	set(c.head.Images > 0, policy.FlagImages)
	set(c.head.Files, policy.FlagFiles)
	retry := c.ctx.Request.Header.Peek("X-Stainless-Retry-Count")
	set(len(retry) > 0 && string(retry) != "0", policy.FlagRetry)
	return f
}

func (c *call) attributes(f *policy.Facts) {
	who := c.caller
	f.Attr[policy.AttrModel] = c.model.Name
	f.Attr[policy.AttrKeyName], f.Attr[policy.AttrUserName], f.Attr[policy.AttrOrgName] = who.Key.Name, who.User.Name, who.Org.Name
	f.Attr[policy.AttrEndUser] = c.endUser()
	if c.conn != nil {
		f.Attr[policy.AttrClientIP] = c.conn.ip
	}
	if c.tier >= 0 {
		f.Attr[policy.AttrTier] = c.snap.Tiers[c.tier].Name
	}
	f.Attr[policy.AttrProvider] = providerOf(c.dialect)
	for i, l := range c.snap.Labels {
		if i < policy.NAttr-policy.AttrLabel0 {
			f.Attr[policy.AttrLabel0+i] = c.label(l)
		}
	}
}

// providerOf is the provider an endpoint's dialect goes to: the dialect in is the dialect out.
func providerOf(d llm.Dialect) string {
	if d == llm.Anthropic {
		return "anthropic"
	}
	return "openai"
}

func (c *call) label(l Label) string {
	switch l.Source {
	case "key":
		return c.caller.Key.Labels[l.Field]
	case "model":
		return c.model.Labels[l.Field]
	case "header":
		if v := c.ctx.Request.Header.Peek(l.Field); len(v) <= maxLabelBytes {
			return alias(v)
		}
	}
	return ""
}

// maxLabelBytes bounds a header that is a label: the facts hold so many bytes, and a client's must not push the
// operator's labels out. A longer one is as good as none.
const maxLabelBytes = 256

const maxNameBytes = 128 // of an end user's name as a dimension; longer ones go by their hash

// endUser is who the body says it is for; "" when it does not. The escapes are undone, or one name would be many.
func (c *call) endUser() string {
	if c.head.EndUser.Empty() {
		return ""
	}
	name := alias(c.head.EndUser.In(c.body))
	if strings.IndexByte(name, '\\') >= 0 {
		if json.Unmarshal(c.body[c.head.EndUser.Off-1:c.head.EndUser.End+1], &name) != nil {
			return "" // the scan has checked it
		}
	}
	if len(name) > maxNameBytes {
		sum := sha256.Sum256([]byte(name))
		return "sha256-" + hex.EncodeToString(sum[:])
	}
	return name
}

// claimFor builds everything the request asks for, out of the caller's objects, the settings and the decision.
func (s *Server) claimFor(c *call, price llm.Price) *limit.Claim {
	who, d, cl := c.caller, &c.decision, &c.claim
	cl.Terms = c.limitTerms()
	cl.Caller = limit.Caller{Org: who.Org.ID, User: who.User.ID, Key: who.Key.ID}
	cl.Facts = llm.Entry{Endpoint: c.endpoint(), Stream: c.head.Stream, Model: c.model.Name, ServiceTier: c.terms.tier, RequestID: c.id,
		AtMS: c.now.UnixMilli()}
	cl.Unlimited = d.NoLimit
	cl.Input, cl.Output, cl.Choices, cl.SoftOutput = c.input, c.output, c.head.Choices, c.soft
	cl.Money = moneyFor(who, d, price)
	cl.Money.Calls = c.multiplied(c.terms.calls)
	s.addQuotas(c, who)
	cl.Money.Quotas, c.outcome.overrun = c.outcome.quotas, cl.Money.Overrun
	if c.endpoint() == llm.CountTokens {
		cl.Money.Price = llm.Price{}
	}
	cl.N, cl.Shadowed = 0, cl.Shadowed[:0]
	if d.N == 0 || d.Defaults {
		for _, k := range c.snap.Dimensions {
			c.addKind(k)
		}
	}
	for i := range min(max(d.N, 0), len(d.Dims)) {
		c.addDim(&d.Dims[i])
	}
	c.addOwners()
	return cl
}

// moneyFor is the paid-for half, but for the quotas. Who is not metered is still counted, against a limit that nothing
// reaches: the ledger posts every billed entry, and a balance that is set later must start from what was really used.
func moneyFor(who *auth.Caller, d *policy.Decision, price llm.Price) limit.Money {
	m := limit.Money{Price: price.Scale(d.Price), Billed: !d.NoBill, Balance: true, Overdraft: d.Overdraft}
	m.Overrun, _ = limit.ParseOverrun(who.User.Overrun) // it was checked when it was set
	if who.User.Unmetered {
		m.Overdraft = limit.NoFloor
	}
	return m
}

// addQuotas asks for the key's windows in their present periods, and finds out whether one of them slows the key down. The
// month is counted whether or not it has a limit; a week and a day are counted from when they get one.
func (s *Server) addQuotas(c *call, who *auth.Caller) {
	n := 0
	c.slow = 0
	for w := range llm.Window(llm.Windows) {
		b := who.Key.Budget(w)
		if b.Limit == 0 && w != llm.Month {
			continue
		}
		q := &c.outcome.quotas[n]
		n++
		q.Window = w
		q.Label, q.ResetsAt = who.Period(w, c.now)
		if q.Limit = math.MaxInt64; b.Limit == 0 {
			continue
		}
		var slow llm.Micro
		if slow, q.Limit = b.Bounds(permille(c.outcome.quota)); slow == 0 {
			continue
		}
		if used, held := s.p.Money.Quota(who.Key.ID, q.Label); llm.AddMicro(used, held) >= slow {
			c.slow = stricter(c.slow, uint32(cmp.Or(b.SlowTo, auth.DefaultSlowTo))*10)
		}
	}
}

// permille is a multiplier of which 0 is 1000.
func permille(n uint32) uint32 { return cmp.Or(n, 1000) }

// stricter is the smaller of two multipliers of which 0 is none.
func stricter(a, b uint32) uint32 {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// addOwners adds the user and the org where they have limits of their own and nothing tests them yet: a limit that an
// operator sets on them holds without a second setting, and whatever dimensions a policy picks.
func (c *call) addOwners() {
	user, org := &c.caller.User, &c.caller.Org
	if (user.QPSLimit != 0 || user.TPMLimit != 0) && !c.tests(limit.User) {
		c.addKind(limit.User)
	}
	if (org.QPSLimit != 0 || org.TPMLimit != 0) && !c.tests(limit.Org) {
		c.addKind(limit.Org)
	}
}

// meets tells whether every request of the key meets a dimension of a kind, as far as that is known before a policy has
// decided.
func (c *call) meets(k limit.Kind) bool {
	user, org := &c.caller.User, &c.caller.Org
	switch {
	case k == limit.Model && c.model == nil:
		return false
	case k == limit.User && (user.QPSLimit != 0 || user.TPMLimit != 0), k == limit.Org && (org.QPSLimit != 0 || org.TPMLimit != 0):
		return true
	}
	return slices.Contains(c.snap.Dimensions, k)
}

// tests tells whether a dimension of a kind is in the claim and can refuse.
func (c *call) tests(k limit.Kind) bool {
	return slices.ContainsFunc(c.claim.Dims[:c.claim.N], func(d limit.Dim) bool { return d.ID.Kind == k && !d.CountOnly && !d.Shadow })
}

// addKind adds a dimension as it is configured.
func (c *call) addKind(k limit.Kind) {
	c.addDim(&policy.Dimension{Kind: uint8(k), Tier: noTier, SkipAbsent: true})
}

// addDim adds one dimension to the claim, or keeps it for the attempts when it is a channel's.
func (c *call) addDim(p *policy.Dimension) {
	kind := limit.Kind(p.Kind)
	if kind == limit.Channel || kind == limit.ModelChannel {
		c.attempts.want(*p)
		return
	}
	id, present := c.identify(kind, p.Value)
	if c.claim.N == limit.MaxDims || !present && p.SkipAbsent {
		return
	}
	var more multipliers
	if d := &c.decision; kind == limit.Key {
		more = multipliers{qps: d.QPS, tpm: d.TPM, burst: d.Burst}
	}
	dim := &c.claim.Dims[c.claim.N]
	*dim = c.shape(id, c.snap.configured(kind, c.caller, c.model, c.tier), p, more)
	if kind == limit.Key && c.slow != 0 { // the key's own budget says so: no envelope is asked
		for _, l := range [...]*limit.Limits{&dim.Base, &dim.Effective} {
			l.QPS, l.TPM = limit.Scale(l.QPS, c.slow), limit.Scale(l.TPM, c.slow)
		}
	}
	c.claim.N++
}

// multipliers are the decision's own, in 1/1000 beside an entry's; 0 is 1000. Only the key dimension has them.
type multipliers struct{ qps, tpm, burst uint32 }

// shape turns configured limits and a policy's wishes about one dimension into what is tested. However the wishes are
// put together, the result stays within the envelope of what is configured. Concurrency is never multiplied.
func (c *call) shape(id limit.ID, configured limit.Limits, p *policy.Dimension, more multipliers) limit.Dim {
	if p.Tier >= 0 {
		configured = orLimits(c.snap.tierLimits(p.Tier), configured)
	}
	asked, env := configured, &c.snap.Envelope
	if c.decision.Envelope != nil { // a tier may have its own
		env = c.decision.Envelope
	}
	asked.QPS, asked.TPM = or(p.QPS, asked.QPS), or(p.TPM, asked.TPM)
	return limit.Dim{
		ID: id, Base: limit.Limits{QPS: env.Limit(configured.QPS, asked.QPS), TPM: env.Limit(configured.TPM, asked.TPM), Concurrency: asked.Concurrency},
		Effective: limit.Limits{
			QPS:         env.Limit(configured.QPS, limit.Scale(limit.Scale(asked.QPS, p.Multiplier), more.qps)),
			TPM:         env.Limit(configured.TPM, limit.Scale(limit.Scale(asked.TPM, p.Multiplier), more.tpm)),
			Concurrency: asked.Concurrency,
		},
		Burst: product(p.Burst, more.burst), Cost: p.Cost, CountOnly: p.CountOnly, Shadow: p.Shadow,
	}
}

// product is a and b in 1/1000, either of which may be 0 for 1000.
func product(a, b uint32) uint32 {
	if a == 0 {
		a = 1000
	}
	return uint32(min(limit.Scale(int64(a), b), math.MaxUint32))
}

// identify names a dimension of this request; present is false when the request does not have it.
func (c *call) identify(k limit.Kind, value string) (id limit.ID, present bool) {
	who := c.caller
	switch k {
	case limit.Global:
		return limit.ID{Kind: k}, true
	case limit.Key:
		return limit.ID{Kind: k, Scope: who.Key.ID}, true
	case limit.Model:
		return limit.ID{Kind: k, Name: c.model.Name}, true
	case limit.User:
		return limit.ID{Kind: k, Scope: who.User.ID}, true
	case limit.Org:
		return limit.ID{Kind: k, Scope: who.Org.ID}, true
	case limit.KeyModel:
		return limit.ID{Kind: k, Scope: who.Key.ID, Name: c.model.Name}, true
	case limit.IP:
		if c.conn == nil || !c.conn.addr.IsValid() {
			return limit.ID{Kind: k}, false
		}
		return limit.ID{Kind: k, Name: c.conn.ipName}, true
	case limit.EndUser:
		name := c.facts.Attr[policy.AttrEndUser]
		return limit.ID{Kind: k, Scope: who.Org.ID, Name: name}, name != ""
	}
	return limit.ID{Kind: k, Scope: who.Org.ID, Name: value}, value != ""
}
