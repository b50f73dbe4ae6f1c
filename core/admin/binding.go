package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
)

const (
	operator   = "operator" // the scope whose module every request passes, and its document's id
	maxHistory = 16         // earlier bindings that can be rolled back to
)

// binding says which module decides, with which params.
type binding struct {
	Module  string          `json:"module"`
	Hash    string          `json:"hash"`
	Params  json.RawMessage `json:"params,omitempty"`
	OnError policy.OnError  `json:"onError"`
}

// bindingDoc is the binding in force and those before it, oldest first. Stored under "binding".
type bindingDoc struct {
	Current *binding  `json:"current"`
	History []binding `json:"history,omitempty"`
}

func (b bindingDoc) serves(name, hash string) bool {
	return b.Current != nil && b.Current.Module == name && b.Current.Hash == hash
}

func (b bindingDoc) needs(name, hash string) bool {
	return b.serves(name, hash) || slices.ContainsFunc(b.History, func(o binding) bool { return o.Module == name && o.Hash == hash })
}

// to is the document after next takes over.
func (b bindingDoc) to(next *binding) bindingDoc {
	d := bindingDoc{Current: next, History: slices.Clone(b.History)}
	if b.Current != nil && (next == nil || !b.Current.equal(*next)) {
		d.History = append(d.History, *b.Current)
		d.History = d.History[max(0, len(d.History)-maxHistory):]
	}
	return d
}

func (b binding) equal(o binding) bool {
	return b.Module == o.Module && b.Hash == o.Hash && b.OnError == o.OnError && bytes.Equal(b.Params, o.Params)
}

func bindingView(b *binding) object {
	v := object{{"scope", operator}, {"module", nil}, {"hash", nil}, {"version", nil}, {"params", nil}, {"onError", nil}}
	if b != nil {
		v = object{{"scope", operator}, {"module", b.Module}, {"hash", b.Hash}, {"version", short(b.Hash)}, {"params", b.Params}, {"onError", b.OnError}}
	}
	return v
}

func (a *API) listBindings(c *call) (answer, error) {
	if q := parseQuery(c.URL); q.err != nil {
		return answer{}, q.err
	}
	return ok(object{{"data", []object{bindingView(a.rules.Load().bound.Current)}}, {"nextCursor", nil}}), nil
}

// activatePolicy lets a version decide from the next request on. Absent params and onError stay as they are while
// the policy is the active one already. A policy that comes with the binary is stored on the way.
func (a *API) activatePolicy(c *call) (answer, error) {
	b := parseBody(c.body)
	next := binding{Module: c.PathValue("name")}
	return a.bindTo(c, b, next, "policy.activate")
}

// putBinding is the same from the binding's side; module null lets no module decide.
func (a *API) putBinding(c *call) (answer, error) {
	b := parseBody(c.body)
	scope, next := operator, binding{}
	b.text("scope", &scope, func(s string) error {
		if s != operator {
			return errors.New(`only the scope "operator" can be bound`)
		}
		return nil
	})
	b.need("module")
	if b.null("module") {
		if err := b.end(); err != nil {
			return answer{}, err
		}
		return a.bind(c, a.rules.Load(), nil, nil, "binding.clear")
	}
	b.text("module", &next.Module, checkPolicyName)
	return a.bindTo(c, b, next, "binding.set")
}

// bindTo reads the rest of the body and binds.
func (a *API) bindTo(c *call, b *body, next binding, action string) (answer, error) {
	var text string
	r := a.rules.Load()
	next.OnError = policy.OnErrorDefault
	if cur := r.bound.Current; cur != nil && cur.Module == next.Module {
		next.Params, next.OnError = cur.Params, cur.OnError
	}
	b.text("version", &text, checkName)
	b.text("hash", &text, checkName)
	b.params("params", &next.Params)
	b.text("onError", (*string)(&next.OnError), checkOnError)
	if b.has("version") && b.has("hash") {
		b.fail("hash", "give either version or hash")
	}
	if err := b.end(); err != nil {
		return answer{}, err
	}
	p, _ := r.policy(next.Module)
	p, docs, found, err := a.shipped(c.ctx, p)
	if err != nil {
		return answer{}, err
	}
	if !found {
		_, err := a.policyNamed(next.Module)
		return answer{}, err
	}
	v, err := p.find(text)
	if err != nil {
		return answer{}, err
	}
	next.Hash = v.Hash
	return a.bind(c, r.with(p), &next, docs, action)
}

// bind swaps the module and makes it durable; when that fails the old one serves again.
func (a *API) bind(c *call, r *rules, next *binding, docs []ledger.Doc, action string) (answer, error) {
	return a.rebind(c, r, r.bound.to(next), docs, action)
}

func (a *API) rebind(c *call, r *rules, to bindingDoc, docs []ledger.Doc, action string) (answer, error) {
	if err := a.activate(c.ctx, r, to.Current); err != nil {
		return answer{}, err
	}
	ans := ok(bindingView(to.Current))
	docs = append(docs, named("binding", operator, to))
	err := a.put(c.ctx, c, change{action: action, target: "binding:" + operator, before: bindingView(r.bound.Current), after: ans.value, docs: docs}, ans)
	if err != nil {
		a.reactivate(c.ctx)
		return answer{}, err
	}
	a.rules.Store(&rules{r.policies, to})
	return ans, nil
}

// activate puts a module in force that the rules know; nil: none. The host has verified it, in this process or from
// the stored bytes now.
func (a *API) activate(ctx context.Context, r *rules, b *binding) error {
	env := *a.envelope.Load()
	if b == nil {
		return a.Policy.Activate(ctx, nil, env)
	}
	if err := a.load(ctx, r, b); err != nil {
		return err
	}
	err := a.Policy.Activate(ctx, &policy.Binding{Module: b.Module, Hash: b.Hash, Params: b.Params, OnError: b.OnError}, env)
	if err == nil {
		a.enforced = env
	}
	return err
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

// reactivate goes back to the binding in force after a change that could not be written.
func (a *API) reactivate(ctx context.Context) {
	r := a.rules.Load()
	if err := a.activate(ctx, r, r.bound.Current); err != nil {
		a.Log.Error("the policy in force before a failed change could not be activated again", "error", err)
	}
}

// rollbackPolicy activates what the policy had before: the newest earlier binding of the same name. What came after it
// is forgotten, so that a second call goes one further back.
func (a *API) rollbackPolicy(c *call) (answer, error) {
	if err := parseBody(c.body).end(); err != nil {
		return answer{}, err
	}
	p, err := a.policy(c)
	if err != nil {
		return answer{}, err
	}
	r := a.rules.Load()
	cur := r.bound.Current
	if cur == nil || cur.Module != p.Name {
		return answer{}, llm.Errorf(llm.KindConflict, "policy %q is not active; activate it instead", p.Name)
	}
	i := len(r.bound.History) - 1
	for ; i >= 0 && (r.bound.History[i].Module != p.Name || r.bound.History[i].equal(*cur)); i-- {
	}
	if i < 0 {
		return answer{}, llm.Errorf(llm.KindConflict, "policy %q has no earlier version that was active", p.Name)
	}
	to := bindingDoc{Current: &r.bound.History[i], History: slices.Clone(r.bound.History[:i])}
	return a.rebind(c, r, to, nil, "policy.rollback")
}
