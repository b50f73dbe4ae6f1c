package admin

import (
	"context"
	"slices"
	"strings"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
)

// move is a change of one owner's bindings on its way.
type move struct {
	owner policy.Owner
	rules *rules       // what it builds on; holds a shipped policy that is to be stored
	docs  []ledger.Doc // that
	was   bindingDoc   // as the host has it
	next  binding      // what was asked for
	actor string       // empty: "admin"
}

// ended is the trial that a change ends and that it does not activate; nil: it ends none. Nobody is to find out later.
func (m *move) ended(to bindingDoc) any {
	was := m.was.Candidate
	if was == nil || same(was, to.Candidate) || same(was, to.Current) {
		return nil
	}
	return object{{"module", was.Module}, {"version", was.version()}, {"stage", m.was.Stage}, {"percent", m.was.Percent}}
}

// replaced is the version that a change takes out of force, and under which it is kept; nil: none. To an org it is its rules.
func (m *move) replaced(to bindingDoc) any {
	was := m.was.Current
	if was == nil || same(was, to.Current) {
		return nil
	}
	return object{{"module", was.Module}, {"version", was.version()}}
}

// ownerText reads an owner: the operator, or an org that exists.
func (a *API) ownerText(s string, to *policy.Owner) error {
	owner, err := policy.ParseOwner(s)
	if err != nil {
		return llm.Invalid("owner", "expected \"operator\" or an org such as \"org:7\", got %.64q", s)
	}
	if owner != policy.Operator {
		if _, found := a.Directory.Org(uint64(owner)); !found {
			return llm.Invalid("owner", "no org %d", uint64(owner))
		}
	}
	*to = owner
	return nil
}

// ownerOf reads the query parameter owner; absent is the operator.
func (a *API) ownerOf(q *query) (owner policy.Owner) {
	if s := q.text("owner"); s != "" {
		if err := a.ownerText(s, &owner); err != nil {
			q.fail("owner", "%s", err.Error())
		}
	}
	return owner
}

func (a *API) owner(b *body, to *policy.Owner) {
	var s string
	b.text("owner", &s, func(s string) error { return a.ownerText(s, to) })
}

// choice is what a request asks to be bound.
type choice struct {
	owner         policy.Owner
	name          string
	version, hash string
	lay           func(*binding) // what was given over what stays
	params        bool           // were given
	fresh         bool           // without a version the newest upload, not the candidate
}

// choose reads the rest of a body.
func (a *API) choose(b *body, name string) (ch choice, err error) {
	ch.name = name
	var given binding
	a.owner(b, &ch.owner)
	b.text("version", &ch.version, checkName)
	b.text("hash", &ch.hash, checkName)
	b.params("params", &given.Params)
	b.text("onError", (*string)(&given.OnError), checkOnError)
	if b.has("version") && b.has("hash") {
		b.fail("hash", "give either version or hash")
	}
	ch.params = b.has("params")
	ch.lay = func(to *binding) {
		if ch.params {
			to.Params = given.Params
		}
		if given.OnError != "" {
			to.OnError = given.OnError
		}
	}
	return ch, b.end()
}

// resolve finds what is to be bound. Where nothing is given it is as the policy's candidate has it, else as its active
// binding, else as it was bound last. A policy that comes with the binary is stored on the way. REQUIRES: the turn.
func (a *API) resolve(ctx context.Context, ch choice) (*move, error) {
	r := a.rules.Load()
	p, _ := r.policy(ch.name)
	p, docs, found, err := a.shipped(ctx, p)
	if err != nil {
		return nil, err
	}
	if !found {
		_, err := a.policyNamed(ch.name)
		return nil, err
	}
	m := &move{owner: ch.owner, rules: r.with(p), docs: docs, was: a.bound(ch.owner)}
	if m.next, err = m.was.choose(p, ch); err != nil {
		return nil, err
	}
	ch.lay(&m.next)
	if ch.params {
		err = p.zoned(&m.next)
	}
	return m, err
}

// choose is what a choice comes to before what it gives itself is laid over it.
func (d bindingDoc) choose(p policyDoc, ch choice) (binding, error) {
	if b, found := d.named(p.Name, ch.version); found {
		return b, nil
	}
	text := ch.version + ch.hash
	if d.tries(p.Name) && text == "" && !ch.fresh {
		return *d.Candidate, nil
	}
	v, err := p.find(text)
	base := d.latest(p.Name, v.Hash)
	switch {
	case d.tries(p.Name):
		base = *d.Candidate
	case d.serves(p.Name):
		base = *d.Current
	}
	base.Hash = v.Hash
	return base, err
}

// latest is how a policy was bound last, if it was: as the list of policies shows this version of it, else any other.
func (d bindingDoc) latest(name, hash string) binding {
	all := d.all(name)
	if i := slices.IndexFunc(all, func(b binding) bool { return b.Hash == hash }); i >= 0 {
		return all[i]
	}
	return append(all, binding{Module: name, OnError: policy.OnErrorDefault})[0]
}

// pardoned is the quarantine of what a change binds anew; nil: there was none. Nobody forbids it, and nobody is to miss it.
func (m *move) pardoned(to bindingDoc) any {
	for _, b := range m.was.all("") {
		for _, now := range []*binding{to.Current, to.Candidate} {
			if b.Quarantined != nil && same(&b, now) && now.Quarantined == nil {
				return b.Quarantined.view()
			}
		}
	}
	return nil
}

// named finds a binding by the whole of its version.
func (d bindingDoc) named(name, version string) (binding, bool) {
	for _, b := range d.all(name) {
		if version != "" && b.version() == strings.ToLower(version) {
			return b, true
		}
	}
	return binding{}, false
}

// activatePolicy lets a version decide from the next request on.
func (a *API) activatePolicy(c *call) (answer, error) {
	b := parseBody(c.body)
	b.fixed("percent", "an active version decides for all keys; a canary for some")
	ch, err := a.choose(b, c.PathValue("name"))
	if err != nil {
		return answer{}, err
	}
	return a.activateChoice(c, ch, "policy.activate")
}

func (a *API) activateChoice(c *call, ch choice, action string) (answer, error) {
	m, err := a.resolve(c.ctx, ch)
	if err != nil {
		return answer{}, err
	}
	return a.shift(c.ctx, c, m, m.was.activated(&m.next), action)
}

// shadowPolicy lets a version decide every request beside the active one, without effect.
func (a *API) shadowPolicy(c *call) (answer, error) {
	b := parseBody(c.body)
	b.fixed("percent", "a shadow sees every request and decides none; a canary decides for some keys")
	ch, err := a.choose(b, c.PathValue("name"))
	if err != nil {
		return answer{}, err
	}
	ch.fresh = true
	return a.try(c, ch, policy.StageShadow, 0)
}

// canaryPolicy lets a version decide for a share of the keys.
func (a *API) canaryPolicy(c *call) (answer, error) {
	var percent int64
	b := parseBody(c.body)
	b.need("percent")
	b.integer("percent", &percent, 1, 100, "a whole number from 1 to 100: of a hundred keys")
	ch, err := a.choose(b, c.PathValue("name"))
	if err != nil {
		return answer{}, err
	}
	return a.try(c, ch, policy.StageCanary, int(percent))
}

func (a *API) try(c *call, ch choice, stage policy.Stage, percent int) (answer, error) {
	m, err := a.resolve(c.ctx, ch)
	if err != nil {
		return answer{}, err
	}
	if same(m.was.Current, &m.next) {
		return answer{}, llm.Errorf(llm.KindConflict, "policy %q version %s is active for %s; a trial needs another version or other params",
			m.next.Module, m.next.version(), m.owner)
	}
	return a.shift(c.ctx, c, m, m.was.tried(m.next, stage, percent), "policy."+string(stage))
}

// paramsPolicy changes the params of the active version: that is another version, which is active then.
func (a *API) paramsPolicy(c *call) (answer, error) {
	var next binding
	var owner policy.Owner
	b := parseBody(c.body)
	a.owner(b, &owner)
	b.need("params")
	b.params("params", &next.Params)
	b.text("onError", (*string)(&next.OnError), checkOnError)
	if err := b.end(); err != nil {
		return answer{}, err
	}
	p, err := a.policy(c)
	if err != nil {
		return answer{}, err
	}
	m := &move{owner: owner, rules: a.rules.Load(), was: a.bound(owner)}
	if !m.was.serves(p.Name) {
		return answer{}, llm.Errorf(llm.KindConflict, "policy %q is not active for %s; activate, shadow and canary take params too", p.Name, owner)
	}
	m.next = *m.was.Current
	m.next.Params = next.Params
	if next.OnError != "" {
		m.next.OnError = next.OnError
	}
	if err := p.zoned(&m.next); err != nil {
		return answer{}, err
	}
	return a.shift(c.ctx, c, m, m.was.activated(&m.next), "policy.params")
}

// rollbackPolicy ends the policy's trial if it has one. Else what decided before the policy's active version decides
// again: an earlier version of the same policy if there is one. A version names any that is kept.
func (a *API) rollbackPolicy(c *call) (answer, error) {
	var owner policy.Owner
	var version string
	b := parseBody(c.body)
	a.owner(b, &owner)
	b.text("version", &version, checkName)
	if err := b.end(); err != nil {
		return answer{}, err
	}
	p, err := a.policy(c)
	if err != nil {
		return answer{}, err
	}
	m := &move{owner: owner, rules: a.rules.Load(), was: a.bound(owner)}
	to, err := m.was.rolledBack(p.Name, version, owner)
	if err != nil {
		return answer{}, err
	}
	return a.shift(c.ctx, c, m, to, "policy.rollback")
}

func (d bindingDoc) rolledBack(name, version string, owner policy.Owner) (bindingDoc, error) {
	if version != "" {
		return d.rolledBackTo(name, version, owner)
	}
	if d.tries(name) {
		return d.withdrawn(), nil
	}
	if !d.serves(name) {
		return d, d.nothingToUndo(name, owner)
	}
	for i, b := range slices.Backward(d.History) {
		if b.Module == name && !b.equal(*d.Current) {
			return d.backTo(i), nil
		}
	}
	if n := len(d.History); n > 0 {
		return d.backTo(n - 1), nil
	}
	return d, llm.Errorf(llm.KindConflict, "policy %q has no earlier version that was active for %s; DELETE /admin/bindings?owner=%s lets no module decide",
		name, owner, owner)
}

// nothingToUndo says what became of a policy that does not decide, and how it would again.
func (d bindingDoc) nothingToUndo(name string, owner policy.Owner) error {
	decides := "no module decides"
	if d.Current != nil {
		decides = d.Current.Module + "@" + d.Current.version() + " decides"
	}
	all := d.all(name)
	if len(all) == 0 {
		return llm.Errorf(llm.KindConflict, "policy %q is not active for %s and never was on trial: %s, and there is nothing to roll back", name, owner, decides)
	}
	return llm.Errorf(llm.KindConflict, "policy %q is not active for %s any more, it was withdrawn or replaced: %s, and nothing is left to roll back; shadow tries version %s again",
		name, owner, decides, all[0].version())
}

// rolledBackTo goes to a kept version, named whole or by the beginning of its hash.
func (d bindingDoc) rolledBackTo(name, version string, owner policy.Owner) (bindingDoc, error) {
	version = strings.ToLower(version)
	to, found := d.named(name, version)
	var known []string
	for _, b := range d.all(name) {
		if known = append(known, b.version()); !found && len(version) >= minVersionText && strings.HasPrefix(b.Hash, version) && !same(d.Current, &b) {
			to, found = b, true
		}
	}
	switch {
	case !found:
		return d, llm.Invalid("version", "version: %s keeps no version %.64q of policy %q%s", owner, version, name, suggest(version, known))
	case same(d.Current, &to):
		return d, llm.Errorf(llm.KindConflict, "policy %q version %s is active for %s already", name, to.version(), owner)
	}
	if d.tries(name) {
		d = d.withdrawn()
	}
	for i, b := range slices.Backward(d.History) {
		if b.equal(to) {
			return d.backTo(i), nil
		}
	}
	return d.activated(&to), nil
}

// listBindings shows what decides for the operator, which is always there, and for the orgs that have a module.
func (a *API) listBindings(c *call) (answer, error) {
	q := parseQuery(c.URL, "owner", "limit", "cursor")
	rows := []policy.Owner{a.ownerOf(q)}
	if q.text("owner") == "" {
		for owner := range a.rules.Load().bound {
			rows = append(rows, owner)
		}
		slices.Sort(rows)
		rows = slices.Compact(rows)
	}
	return pageOf(q, rows, func(o policy.Owner) policy.Owner { return o }, policy.ParseOwner,
		func(o policy.Owner) object { return a.shownBinding(o, a.bound(o)) })
}

// putBinding is activate from the binding's side; module null lets no module decide.
func (a *API) putBinding(c *call) (answer, error) {
	var name string
	b := parseBody(c.body)
	b.need("module")
	if b.null("module") {
		var owner policy.Owner
		a.owner(b, &owner)
		if err := b.end(); err != nil {
			return answer{}, err
		}
		return a.clearBinding(c, owner)
	}
	b.text("module", &name, CheckPolicyName)
	ch, err := a.choose(b, name)
	if err != nil {
		return answer{}, err
	}
	return a.activateChoice(c, ch, "binding.set")
}

// deleteBinding lets no module decide.
func (a *API) deleteBinding(c *call) (answer, error) {
	q := parseQuery(c.URL, "owner")
	if q.text("owner") == "" {
		q.fail("owner", "expected \"operator\" or an org such as \"org:7\"")
	}
	owner := a.ownerOf(q)
	if q.err != nil {
		return answer{}, q.err
	}
	return a.clearBinding(c, owner)
}

func (a *API) clearBinding(c *call, owner policy.Owner) (answer, error) {
	m := &move{owner: owner, rules: a.rules.Load(), was: a.bound(owner)}
	if m.was.Current == nil && m.was.Candidate == nil {
		return ok(a.shownBinding(owner, m.was)), nil
	}
	return a.shift(c.ctx, c, m, m.was.activated(nil), "binding.clear")
}
