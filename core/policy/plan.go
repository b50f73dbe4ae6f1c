package policy

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-gateway/weir/core/llm"
)

// Owner is whose plan it is: Operator, or an org by its id.
type Owner uint64

// Operator owns the module that every request passes.
const Operator Owner = 0

// String is "operator" or "org:7".
func (o Owner) String() string {
	if o == Operator {
		return "operator"
	}
	return "org:" + strconv.FormatUint(uint64(o), 10)
}

// ParseOwner reads what String wrote.
func ParseOwner(s string) (Owner, error) {
	if s == Operator.String() {
		return Operator, nil
	}
	if id, ok := strings.CutPrefix(s, "org:"); ok {
		if n, err := strconv.ParseUint(id, 10, 64); err == nil && n > 0 {
			return Owner(n), nil
		}
	}
	return 0, llm.Invalid("owner", "unknown owner %q: want %q or \"org:ID\"", s, Operator)
}

// Stage is how far a candidate has come.
type Stage string

// The stages. In both the report compares the candidate's decisions with the active binding's.
const (
	StageShadow Stage = "shadow" // decides every request, nothing of it is enforced
	StageCanary Stage = "canary" // decides for Percent of the keys
)

// Plan says what decides for an owner. The zero plan: no module.
type Plan struct {
	Active    *Binding `json:"active"`
	Candidate *Binding `json:"candidate,omitempty"`
	Stage     Stage    `json:"stage,omitempty"`   // of Candidate
	Percent   int      `json:"percent,omitempty"` // of the keys, 1..100; StageCanary only
	// Previous is what an automatic rollback goes back to; nil: the binding that was active before and was good. To
	// be given after a restart.
	Previous *Binding `json:"previous,omitempty"`
}

// OwnerPlan is a plan with its owner.
type OwnerPlan struct {
	Owner Owner
	Plan  Plan
}

// Envelopes bound what decisions may do.
type Envelopes struct {
	// Operator bounds the operator's module, and the chain as a whole.
	Operator Envelope
	// Tiers stand in for Operator, as a whole, for keys whose configured tier has one.
	Tiers map[string]Envelope
	// Tenant is what orgs' modules may loosen, relative to what the operator's left them. The zero value: nothing.
	// Its Tiers are the tiers that orgs may pick; empty: none. MayDeny, MinPrice, MaySkipBilling, MaySkipLimits and
	// MayDropKey mean nothing here: an org may always refuse its own requests, and never do the others.
	Tenant Envelope
	// TenantTiers stand in for Tenant, as a whole, for keys whose configured tier has one.
	TenantTiers map[string]Envelope
}

// Event is a plan that the host changed by itself, because a module failed too often.
type Event struct {
	Owner   Owner
	Binding Binding  // what failed
	To      *Binding // what decides instead; nil: Binding's OnError, or the native defaults when Plan has no Active
	Reason  string
	Faults  uint64
	Calls   uint64
	AtMS    int64
	Plan    Plan // in force now
}

// Plan verifies a plan, makes its instances ready and puts it in force with one swap; calls in flight finish on the
// old one, and on an error the old one stays. What decides as before keeps its instances. An org's modules are
// instantiated at first use. The zero plan takes the owner's module away.
func (h *Host) Plan(ctx context.Context, owner Owner, p Plan) error {
	return h.PlanAll(ctx, []OwnerPlan{{owner, p}})[0]
}

// PlanAll is Plan for many owners at once, as at a start: their params are verified together. The errors are in the
// order of the plans; nil: in force.
func (h *Host) PlanAll(ctx context.Context, plans []OwnerPlan) []error {
	return h.planAll(ctx, plans, false)
}

// draft is a plan on its way.
type draft struct {
	owner Owner
	next  *fork
	fresh bool // new instances even where the old ones decide alike
}

func (h *Host) planAll(ctx context.Context, plans []OwnerPlan, fresh bool) []error {
	errs := make([]error, len(plans))
	ctx, finish, err := h.begin(ctx, h.trial)
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	defer finish()
	drafts := make([]*draft, len(plans))
	for i, p := range plans {
		drafts[i], errs[i] = h.draft(p, fresh)
	}
	h.proveDrafts(ctx, drafts, errs)
	for i, d := range drafts {
		if errs[i] == nil {
			errs[i] = h.enforce(ctx, d)
		}
	}
	return errs
}

// draft resolves what a plan names.
func (h *Host) draft(p OwnerPlan, fresh bool) (*draft, error) {
	k := &fork{plan: p.Plan}
	if err := k.plan.check(); err != nil {
		return nil, err
	}
	for i, b := range [...]**Binding{&k.plan.Active, &k.plan.Candidate} {
		if *b == nil {
			continue
		}
		r, err := h.resolve(p.Owner, **b)
		if err != nil {
			return nil, err
		}
		k.want[i], *b = r, &r.binding
	}
	if k.plan.Stage == StageCanary {
		k.percent = uint64(k.plan.Percent)
	}
	if k.plan.Previous != nil {
		k.good, _ = h.resolve(p.Owner, *k.plan.Previous) // one that has gone is left out
	}
	return &draft{p.Owner, k, fresh}, nil
}

func (p *Plan) check() error {
	switch {
	case p.Candidate == nil && (p.Stage != "" || p.Percent != 0):
		return llm.Invalid("stage", "a stage and a percentage belong to a candidate, and the plan has none")
	case p.Candidate == nil:
		return nil
	case p.Stage == StageShadow && p.Percent == 0:
		return nil
	case p.Stage == StageShadow:
		return llm.Invalid("percent", "a percentage belongs to stage %q", StageCanary)
	case p.Stage != StageCanary:
		return llm.Invalid("stage", "unknown stage %q: want %q or %q", p.Stage, StageShadow, StageCanary)
	case p.Percent < 1 || p.Percent > 100:
		return llm.Invalid("percent", "%d %% of the keys, want 1 to 100", p.Percent)
	}
	return nil
}

// proveDrafts has children accept all that the drafts name; a bad Previous is left out.
func (h *Host) proveDrafts(ctx context.Context, drafts []*draft, errs []error) {
	var (
		recipes []*recipe
		refused []func(error)
	)
	want := func(r *recipe, refuse func(error)) {
		if r != nil {
			recipes, refused = append(recipes, r), append(refused, refuse)
		}
	}
	for i, d := range drafts {
		if errs[i] != nil {
			continue
		}
		for _, r := range d.next.want {
			want(r, func(err error) { errs[i] = err })
		}
		want(d.next.good, func(error) { d.next.good = nil })
	}
	for i, err := range h.prove(ctx, recipes) {
		if err != nil {
			refused[i](err)
		}
	}
}

// enforce puts a proved draft in force.
func (h *Host) enforce(ctx context.Context, d *draft) error {
	ctx, finish, err := h.begin(ctx, h.turn)
	if err != nil {
		return err
	}
	defer finish()
	l := h.lane(d.owner)
	if l == nil && !d.next.bound() {
		return nil
	}
	old := &fork{}
	if l == nil {
		l = &lane{owner: d.owner}
		l.cur.Store(old)
	} else {
		old = l.cur.Load()
	}
	k := d.next
	k.inherit(old)
	k.begin(h, old)
	reuse := old
	if d.fresh {
		reuse = &fork{}
	}
	switch {
	case !k.bound():
	case d.owner == Operator, old.active != nil, old.candidate != nil:
		if err := h.instantiate(ctx, l, k, reuse); err != nil {
			return err
		}
	default:
		k.cold = make(chan struct{})
	}
	h.put(l, k)
	if d.owner != Operator {
		h.orgs.set(d.owner, map[bool]*lane{true: l}[k.bound()])
	}
	return nil
}

// inherit finds out what k can be rolled back to.
func (k *fork) inherit(old *fork) {
	switch was := old.want[0]; {
	case k.good != nil:
	case was == nil, was.same(k.want[0]), old.active != nil && old.active.quarantined.Load():
		k.good = old.good
	default:
		k.good = was
	}
	k.keep(k.good)
}

// keep sets what k can be rolled back to, unless that is what decides already.
func (k *fork) keep(good *recipe) {
	k.good, k.plan.Previous = nil, nil
	if good != nil && !good.same(k.want[0]) {
		k.good, k.plan.Previous = good, &good.binding
	}
}

// lane finds an owner's; nil: it has none.
func (h *Host) lane(owner Owner) *lane {
	if owner == Operator {
		return &h.operator
	}
	return h.orgs.get(owner)
}

// PlanOf is the plan in force; ok is false when the owner has none.
func (h *Host) PlanOf(owner Owner) (p Plan, ok bool) {
	l := h.lane(owner)
	if l == nil {
		return Plan{}, false
	}
	k := l.cur.Load()
	return k.plan, k.bound()
}

// Owners lists who has a plan, the operator first.
func (h *Host) Owners() []Owner {
	var out []Owner
	for _, l := range append([]*lane{&h.operator}, h.orgs.all()...) {
		if l.cur.Load().bound() {
			out = append(out, l.owner)
		}
	}
	slices.Sort(out)
	return out
}

// Activate is the operator's plan of one binding without a candidate, always with new instances, and its envelope;
// nil: no module. On an error the old ones serve.
func (h *Host) Activate(ctx context.Context, b *Binding, env Envelope) error {
	if err := h.checkTiers(env.Tiers); err != nil {
		return err
	}
	if err := h.planAll(ctx, []OwnerPlan{{Operator, Plan{Active: b}}}, true)[0]; err != nil {
		return err
	}
	return h.changeEnvelopes(func(e *Envelopes) { e.Operator = env })
}

// Active is the operator's active binding.
func (h *Host) Active() (Binding, bool) {
	p, _ := h.PlanOf(Operator)
	if p.Active == nil {
		return Binding{}, false
	}
	return *p.Active, true
}

// Events gives what the host changed by itself; closed by Close. The queue holds 64; beyond it events are dropped and
// counted. Its one reader audits them and stores Event.Plan.
func (h *Host) Events() <-chan Event { return h.events }
