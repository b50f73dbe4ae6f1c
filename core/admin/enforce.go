package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
)

// bound is an owner's bindings as the host has them: it may just have gone back by itself, and the event is on its way.
func (a *API) bound(owner policy.Owner) bindingDoc {
	d := a.rules.Load().bound[owner]
	if p, ok := a.Policy.PlanOf(owner); ok {
		d = d.settled(p)
	}
	return d
}

// shownBinding is the view of an owner's bindings, and what keeps them from being in force.
func (a *API) shownBinding(owner policy.Owner, d bindingDoc) object {
	var why *quarantine
	if d.Current != nil {
		why = d.Current.Quarantined
	}
	return append(bindingView(owner, d), object{{"problem", orNull(a.rules.Load().ailing[owner])}, {"quarantined", why.view()}}...)
}

// shift puts an owner's bindings in force and makes them durable; when that fails the old ones serve again.
// REQUIRES: the turn.
func (a *API) shift(ctx context.Context, c *call, m *move, to bindingDoc, action string) (answer, error) {
	if err := a.plan(ctx, m.rules, m.owner, to); err != nil {
		return answer{}, err
	}
	ans := ok(append(bindingView(m.owner, to), object{{"problem", nil}, {"endedTrial", m.ended(to)}, {"replaced", m.replaced(to)},
		{"wasQuarantined", m.pardoned(to)}}...))
	ch := change{actor: m.actor, action: action, target: bindingTarget(m.owner), before: auditBinding(m.owner, m.was),
		after: auditBinding(m.owner, to), docs: append(m.docs, bindingDocument(m.owner, to))}
	if err := a.put(ctx, c, ch, ans); err != nil {
		a.replan(ctx, m.owner)
		return answer{}, err
	}
	a.rules.Store(m.rules.bind(m.owner, to))
	return ans, nil
}

func bindingTarget(owner policy.Owner) string { return "binding:" + owner.String() }

func bindingDocument(owner policy.Owner, d bindingDoc) ledger.Doc {
	return named("binding", owner.String(), d)
}

// plan puts bindings in force whose policies r has. The host has verified the modules, in this process or from the
// stored bytes now.
func (a *API) plan(ctx context.Context, r *rules, owner policy.Owner, d bindingDoc) error {
	if err := a.loadAll(ctx, r, d); err != nil {
		return err
	}
	if err := a.Policy.Plan(ctx, owner, d.plan()); err != nil {
		return aboutParams(err)
	}
	a.Live.Renew()
	return nil
}

// codeParams is the error code of params that a module or its schema does not take.
const codeParams = "policy_params_refused"

// aboutParams: of a module that was verified before, only its params can be refused.
func aboutParams(err error) error {
	var e *llm.Error
	if !errors.As(err, &e) || e.Code != "policy_module_refused" {
		return err
	}
	told := *e
	told.Param, told.Code = "params", codeParams
	told.Message = "params: " + strings.TrimPrefix(strings.TrimPrefix(told.Message, "policy module refused: "), "params: ")
	return &told
}

// loadAll makes sure that the host has the modules of what decides and of what is on trial; what can be gone back to
// is left out when it is not to be had.
func (a *API) loadAll(ctx context.Context, r *rules, d bindingDoc) error {
	for _, b := range []*binding{d.Current, d.Candidate} {
		if b != nil {
			if err := a.load(ctx, r, b); err != nil {
				return err
			}
		}
	}
	if n := len(d.History); n > 0 {
		if err := a.load(ctx, r, &d.History[n-1]); err != nil {
			a.Log.Warn("a policy version that could be gone back to does not load", "policy", d.History[n-1].Module, "error", err)
		}
	}
	return nil
}

// load makes sure that the host has a binding's module.
func (a *API) load(ctx context.Context, r *rules, b *binding) error {
	p, _ := r.policy(b.Module)
	v, err := p.find(b.Hash)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(a.Policy.Modules(), func(m policy.Module) bool { return m.Hash == v.Hash && m.Name == p.Name }) {
		return nil
	}
	d, found, err := a.Ledger.Doc("module", moduleID(p.Name, v.Hash))
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("the bytes of policy %s version %s are not in the store", p.Name, short(v.Hash))
	}
	_, err = a.Policy.Add(ctx, p.Name, d.Data, v.Profile)
	return err
}

// replan goes back to the bindings in force after a change that could not be written.
func (a *API) replan(ctx context.Context, owner policy.Owner) {
	r := a.rules.Load()
	p := r.bound[owner].plan()
	if r.ailing[owner] != "" {
		p = policy.Plan{}
	}
	if err := a.Policy.Plan(ctx, owner, p); err != nil {
		a.Log.Error("the policy in force before a failed change could not be activated again", "owner", owner.String(), "error", err)
	}
}

// restoreRules puts everybody's bindings in force. Without the operator's other limits would hold than it wrote down,
// so that a module which does not load any more is an error. What an org has made is no reason not to start: its
// bindings are kept and shown with their problem. A candidate that is refused is withdrawn.
func (a *API) restoreRules(ctx context.Context) error {
	r, err := a.storedRules()
	if err != nil {
		return err
	}
	if err := a.enforce(*a.envelopes.Load()); err != nil {
		return err
	}
	a.rules.Store(r)
	var plans []policy.OwnerPlan
	failed := map[policy.Owner]error{}
	for owner, d := range r.bound {
		if d.Current == nil && d.Candidate == nil {
			continue
		}
		if failed[owner] = a.loadAll(ctx, r, d); failed[owner] == nil {
			plans = append(plans, policy.OwnerPlan{Owner: owner, Plan: d.plan()})
		}
	}
	for i, err := range a.Policy.PlanAll(ctx, plans) {
		failed[plans[i].Owner] = aboutParams(err)
	}
	for owner, err := range failed {
		if err != nil {
			err = a.restoreWithoutTrial(ctx, owner, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// storedRules reads the documents.
func (a *API) storedRules() (*rules, error) {
	r := new(rules)
	if err := each(a.Ledger.Docs("policy"), func(p policyDoc) { r = r.with(p) }); err != nil {
		return nil, err
	}
	r.bound = map[policy.Owner]bindingDoc{}
	for doc, err := range a.Ledger.Docs("binding") {
		if err != nil {
			return nil, err
		}
		owner, err := policy.ParseOwner(doc.ID)
		if err != nil {
			return nil, fmt.Errorf("document binding %s: %w", doc.ID, err)
		}
		d, err := decode[bindingDoc](doc)
		if err != nil {
			return nil, err
		}
		r.bound[owner] = d.inNewProcess()
	}
	return r, nil
}

// restoreWithoutTrial is the second try for bindings that were refused.
func (a *API) restoreWithoutTrial(ctx context.Context, owner policy.Owner, refused error) error {
	r := a.rules.Load()
	was := r.bound[owner]
	err := refused
	if was.Candidate != nil {
		to := was.withdrawn()
		if err = a.plan(ctx, r, owner, to); err == nil {
			a.Log.Error("a candidate was withdrawn: it does not load any more", "owner", owner.String(), "error", refused)
			ch := change{actor: "gateway", action: "policy.withdraw", target: bindingTarget(owner), before: auditBinding(owner, was),
				after: append(auditBinding(owner, to), member{"reason", refused.Error()}), docs: []ledger.Doc{bindingDocument(owner, to)}}
			if err := a.put(ctx, nil, ch, answer{}); err != nil {
				return err
			}
			a.rules.Store(r.bind(owner, to))
			return nil
		}
	}
	if owner == policy.Operator {
		return fmt.Errorf("activating policy %s version %s: %w", was.Current.Module, was.Current.version(), err)
	}
	a.Log.Error("the policy of an org is not in force: it does not load any more", "owner", owner.String(), "error", err)
	a.rules.Store(r.ails(owner, err.Error()))
	return nil
}

// enforce puts envelopes in force. REQUIRES: the turn.
func (a *API) enforce(e policy.Envelopes) error {
	err := a.Policy.SetEnvelopes(e)
	if err == nil {
		a.enforced.Store(&e)
		a.Live.Renew()
	}
	return err
}
