package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
)

// rulesModule serves orgs to which no other was bound; it comes with the binary.
const rulesModule = "rules"

// TenantRules is what an org's key with the scope tenant may read: the org's rules and what bounds them; schema=1 in
// rawQuery adds the schema that they must fit. The methods for tenants answer JSON; their errors are *llm.Error.
func (a *API) TenantRules(ctx context.Context, org uint64, rawQuery string) ([]byte, error) {
	return asTenant(a.rulesOf(ctx, org, &url.URL{Path: "/v1/tenant/rules", RawQuery: rawQuery}))
}

// SetTenantRules puts an org's rules in force, durably; actor is who asks, such as "key:42". body is the rules alone.
func (a *API) SetTenantRules(ctx context.Context, org uint64, actor string, body []byte) ([]byte, error) {
	if err := a.admitTenant(org, body); err != nil {
		return nil, err
	}
	return asTenant(a.setRules(ctx, org, actor, body))
}

// TenantDryRun decides facts as the org's rules, or proposed ones, would. Facts that body leaves out are those of key
// (0: none), now. Nothing is counted or enforced.
func (a *API) TenantDryRun(ctx context.Context, org, key uint64, body []byte) ([]byte, error) {
	if err := a.admitTenant(org, body); err != nil {
		return nil, err
	}
	return asTenant(a.dryRunOf(ctx, org, key, body))
}

// TenantUsage is what an org and its keys have used; rawQuery pages through the keys with limit and cursor.
func (a *API) TenantUsage(ctx context.Context, org uint64, rawQuery string) ([]byte, error) {
	if err := a.admitTenant(org, nil); err != nil {
		return nil, err
	}
	return asTenant(a.usageOf(ctx, org, rawQuery))
}

// admitTenant holds an org to its pace, and its bodies to the size that the operator's have.
func (a *API) admitTenant(org uint64, body []byte) error {
	if err := a.pace.take(org, a.Clock.Mono()); err != nil {
		return err
	}
	if len(body) > jsonBytes {
		return tooLarge(jsonBytes)
	}
	return nil
}

func asTenant(ans answer, err error) ([]byte, error) {
	var e *llm.Error
	switch {
	case err == nil:
		return append(encode(ans.value), '\n'), nil
	case errors.As(err, &e):
		return nil, e
	}
	return nil, &llm.Error{Kind: llm.KindInternal, Message: "internal error; the gateway's log has the cause", Err: err}
}

// What an org may ask of the control plane, where each change costs a process that tries it.
const (
	paceCalls = 60
	paceSpan  = time.Minute
	paceOrgs  = 4096 // remembered; beyond it those that have waited long enough are forgotten
)

// pace keeps one org from taking the control plane from the others: paceCalls in each paceSpan.
type pace struct {
	mu struct {
		sync.Mutex
		orgs map[uint64]paced
	}
}

type paced struct {
	since time.Duration
	calls int
}

func (p *pace) take(org uint64, now time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.orgs == nil {
		p.mu.orgs = map[uint64]paced{}
	}
	x, known := p.mu.orgs[org]
	if !known && len(p.mu.orgs) >= paceOrgs {
		maps.DeleteFunc(p.mu.orgs, func(_ uint64, x paced) bool { return now-x.since >= paceSpan })
	}
	if !known || now-x.since >= paceSpan {
		x = paced{since: now}
	}
	if x.calls == paceCalls {
		wait := x.since + paceSpan - now
		e := llm.Errorf(llm.KindRateLimited, "an org may change, try and look up its rules %d times a minute", paceCalls)
		e.Code, e.RetryAfterMS = "rate_limit_exceeded", (wait + time.Millisecond - 1).Milliseconds()
		return e
	}
	x.calls++
	p.mu.orgs[org] = x
	return nil
}

func (a *API) getRules(c *call) (answer, error) {
	o, err := a.org(c)
	if err != nil {
		return answer{}, err
	}
	return a.rulesOf(c.Context(), o.ID, c.URL)
}

func (a *API) putRules(c *call) (answer, error) {
	o, err := a.org(c)
	if err != nil {
		return answer{}, err
	}
	return a.setRules(c.Context(), o.ID, "", c.body)
}

// tenant is an org with the module that reads its rules.
type tenant struct {
	org    auth.Org
	owner  policy.Owner
	doc    bindingDoc
	now    binding // what is in force, else the module's newest version without params
	schema json.RawMessage
}

// tenant makes sure that the host has the org's module.
func (a *API) tenant(ctx context.Context, org uint64) (*tenant, error) {
	o, found := a.Directory.Org(org)
	if !found {
		return nil, missing("org", org)
	}
	t := &tenant{org: o, owner: policy.Owner(org)}
	t.doc = a.bound(t.owner)
	r := a.rules.Load()
	name := rulesModule
	if t.doc.Current != nil {
		t.now, name = *t.doc.Current, t.doc.Current.Module
	}
	p, stored := r.policy(name)
	if !stored {
		return t, a.tenantShipped(ctx, t)
	}
	v, err := p.find(t.now.Hash)
	if err != nil {
		return nil, err
	}
	if t.doc.Current == nil {
		t.now = binding{Module: name, Hash: v.Hash, OnError: policy.OnErrorDefault}
	}
	t.schema = v.Schema
	return t, a.load(ctx, r, &t.now)
}

// tenantShipped lets the host have the module that comes with the binary; it is stored when an org first changes rules.
func (a *API) tenantShipped(ctx context.Context, t *tenant) error {
	var wasm []byte
	if a.Shipped != nil {
		wasm, _ = a.Shipped(rulesModule)
	}
	if wasm == nil {
		return llm.Errorf(llm.KindNotFound, "no policy %q; the operator has to upload or bind one first", rulesModule)
	}
	m, err := a.added(ctx, rulesModule, wasm)
	t.now = binding{Module: rulesModule, Hash: m.Hash, OnError: policy.OnErrorDefault}
	t.schema = jsonOrNil(m.Schema)
	return err
}

// added is a small module that the host has, or is given; the former waits for nothing.
func (a *API) added(ctx context.Context, name string, wasm []byte) (policy.Module, error) {
	hash := contentHash(wasm)
	for _, m := range a.Policy.Modules() {
		if m.Name == name && m.Hash == hash {
			return m, nil
		}
	}
	return a.Policy.Add(ctx, name, wasm, policy.ProfileSmall)
}

// rulesOf shows an org's rules. The schema is larger than the rest: it is for who asks.
func (a *API) rulesOf(ctx context.Context, org uint64, asked *url.URL) (answer, error) {
	q := parseQuery(asked, "schema")
	given := q.text("schema")
	if err := oneOf("1", "0")(cmp.Or(given, "0")); err != nil {
		q.fail("schema", "%s", err.Error())
	}
	if q.err != nil {
		return answer{}, q.err
	}
	t, err := a.tenant(ctx, org)
	if err != nil {
		return answer{}, err
	}
	v := append(a.rulesView(t), member{"schemaAt", asked.Path + "?schema=1"})
	if given == "1" {
		v = append(v, member{"schema", t.schema})
	}
	return ok(v), nil
}

func (a *API) rulesView(t *tenant) object {
	v := object{{"orgId", t.org.ID}, {"module", t.now.Module}, {"version", nil}, {"params", nil}, {"onError", t.now.OnError}, {"candidate", nil}}
	if t.doc.Current != nil {
		v[2].value, v[3].value = t.now.version(), policy.WithoutZones(t.schema, t.now.Params)
	}
	if x := t.doc.Candidate; x != nil {
		v[5].value = object{{"module", x.Module}, {"version", x.version()}, {"params", policy.WithoutZones(a.schemaOf(x), x.Params)}, {"stage", t.doc.Stage}, {"percent", t.doc.Percent}}
	}
	var previous any
	if i := t.before(); i >= 0 {
		previous = t.doc.History[i].version()
	}
	return append(v, object{{"previous", previous}, {"problem", orNull(a.rules.Load().ailing[t.owner])}, {"envelope", a.envelopeView(a.enforced.Load().Tenant)},
		{"tierEnvelopes", a.tierEnvelopes()}}...)
}

// schemaOf is the schema of a binding's params; nil: it has none.
func (a *API) schemaOf(b *binding) json.RawMessage {
	p, _ := a.rules.Load().policy(b.Module)
	v, err := p.find(b.Hash)
	if err != nil {
		return nil
	}
	return v.Schema
}

// tierEnvelopes are the envelopes that stand in for an org's, by the tier of the key that asks.
func (a *API) tierEnvelopes() object {
	of := a.enforced.Load().TenantTiers
	v := object{}
	for _, tier := range slices.Sorted(maps.Keys(of)) {
		v = append(v, member{tier, a.envelopeView(of[tier])})
	}
	return v
}

// envelopeView is what an org's module may loosen, over what the operator's has left it.
func (a *API) envelopeView(e policy.Envelope) object {
	unit := func(m uint32) uint32 {
		if m == 0 {
			return 1000
		}
		return m
	}
	v := object{{"maxMultiplierPermille", unit(e.MaxMultiplier)}, {"maxBurstPermille", unit(e.MaxBurst)},
		{"maxCustomDimensions", e.MaxCustomDims}, {"tiers", list(e.Tiers)}}
	return append(v, a.money("maxOverdraft", e.MaxOverdraft)...)
}

// setRules has the rules proved before it takes the turn, so that an org's changes hold nobody up.
func (a *API) setRules(ctx context.Context, org uint64, actor string, body []byte) (answer, error) {
	params, err := rulesIn(body)
	if err != nil {
		return answer{}, err
	}
	if params, err = a.proveRules(ctx, org, params); err != nil {
		return answer{}, err
	}
	return a.changeRules(ctx, org, actor, "tenant.rules", func(t *tenant) (bindingDoc, error) {
		next := t.now
		next.Params = params
		return t.doc.activated(&next), nil
	})
}

// changeRules puts in force what change makes of an org's bindings, and gives the rules then.
func (a *API) changeRules(ctx context.Context, org uint64, actor, action string, change func(*tenant) (bindingDoc, error)) (answer, error) {
	done, err := a.take(ctx)
	if err != nil {
		return answer{}, err
	}
	defer done()
	ctx = context.WithoutCancel(ctx)
	t, err := a.tenant(ctx, org)
	if err != nil {
		return answer{}, err
	}
	to, err := change(t)
	if err != nil {
		return answer{}, err
	}
	m := &move{owner: t.owner, rules: a.rules.Load(), was: t.doc, actor: actor}
	stored, _ := m.rules.policy(t.now.Module)
	p, docs, _, err := a.shipped(ctx, stored)
	if err != nil {
		return answer{}, err
	}
	if m.docs = docs; docs != nil {
		m.rules = m.rules.with(p)
	}
	if _, err := a.shift(ctx, nil, m, to, action); err != nil {
		return answer{}, err
	}
	if t.doc = to; to.Current != nil {
		t.now = *to.Current
	}
	changed := to.Current
	if to.Candidate != nil && !same(to.Candidate, m.was.Candidate) {
		changed = to.Candidate
	}
	return ok(append(a.rulesView(t), object{{"endedTrial", m.ended(to)}, {"clamped", a.clamped(org, changed)}}...)), nil
}

// rulesIn reads a body that is the rules.
func rulesIn(body []byte) (json.RawMessage, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, llm.Invalid("", "the body is empty; expected the rules, as a JSON object that fits the schema")
	}
	if len(body) > maxParamsBytes {
		return nil, &llm.Error{Kind: llm.KindTooLarge, LimitBytes: maxParamsBytes, Message: "the rules are larger than 65536 bytes"}
	}
	if _, _, err := parseObject(body, ""); err != nil {
		return nil, err
	}
	return compact(body), nil
}

// proveRules refuses what the module refuses, and gives the rules with the tables of the time zones that they name.
func (a *API) proveRules(ctx context.Context, org uint64, params json.RawMessage) (json.RawMessage, error) {
	t, err := a.tenant(ctx, org)
	if err != nil {
		return nil, err
	}
	b := t.now
	if b.Params, err = policy.WithZones(t.schema, params); err != nil {
		return nil, aboutParams(err)
	}
	run, err := a.Policy.Open(ctx, *b.host())
	if err != nil {
		return nil, t.overruled(params, aboutParams(err))
	}
	run.Close()
	return b.Params, nil
}
