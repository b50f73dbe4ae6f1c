package admin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"github.com/weir-gateway/weir/core/policy"
)

const (
	maxHistory   = 16        // bindings that were active, and as many that were withdrawn, per owner
	maxKeptBytes = 256 << 10 // of their params together

	// Beside policy's stages of a candidate, and "uploaded" for what no binding names.
	stageActive      = "active"
	stageKept        = "kept"
	stageQuarantined = "quarantined" // kept, because it failed too often
)

// binding is one version of an owner's policy: a module's bytes, its params, and what happens when it fails.
type binding struct {
	Module  string          `json:"module"`
	Hash    string          `json:"hash"`
	Params  json.RawMessage `json:"params,omitempty"`
	OnError policy.OnError  `json:"onError"`
	// Quarantined says that the host took it out of service; no part of what it is. It ends when it is bound again, and for what
	// decides with the process.
	Quarantined *quarantine `json:"quarantined,omitempty"`
}

// quarantine is why and since when a binding does not decide.
type quarantine struct {
	Reason string `json:"reason"`
	AtMS   int64  `json:"atMs"`
}

// view shows it; nil: none.
func (q *quarantine) view() any {
	if q == nil {
		return nil
	}
	return object{{"reason", q.Reason}, {"since", moment(q.AtMS)}}
}

// released is b as somebody binds it anew.
func (b binding) released() binding {
	b.Quarantined = nil
	return b
}

// bindingDoc is an owner's binding in force, the one on trial, and what can be gone back to. Stored under "binding", by
// the owner. Its methods give new documents and leave the old one alone.
type bindingDoc struct {
	Current   *binding     `json:"current"`
	Candidate *binding     `json:"candidate,omitempty"`
	Stage     policy.Stage `json:"stage,omitempty"`   // of Candidate
	Percent   int          `json:"percent,omitempty"` // of the keys that Candidate decides for
	// History was in force before Current, oldest first: where a rollback goes, by hand or by itself.
	History []binding `json:"history,omitempty"`
	// Kept was withdrawn or rolled back from, oldest first: a rollback goes there only by name.
	Kept []binding `json:"kept,omitempty"`
}

func (b binding) equal(o binding) bool {
	return b.Module == o.Module && b.Hash == o.Hash && cmp.Or(b.OnError, policy.OnErrorDefault) == cmp.Or(o.OnError, policy.OnErrorDefault) &&
		bytes.Equal(b.Params, o.Params)
}

func (b binding) host() *policy.Binding {
	return &policy.Binding{Module: b.Module, Hash: b.Hash, Params: b.Params, OnError: b.OnError}
}

func fromHost(b *policy.Binding) *binding {
	return &binding{Module: b.Module, Hash: b.Hash, Params: b.Params, OnError: b.OnError}
}

// version is what X-Weir-Policy says after the module's name.
func (b binding) version() string { return b.host().Version() }

func same(b *binding, o *binding) bool {
	return b == nil && o == nil || b != nil && o != nil && b.equal(*o)
}

// plan is the document for the host.
func (d bindingDoc) plan() policy.Plan {
	p := policy.Plan{Stage: d.Stage, Percent: d.Percent}
	if d.Current != nil {
		p.Active = d.Current.host()
		p.Previous = p.Active // nothing; without this the host would go to what was rolled back from
	}
	if d.Candidate != nil {
		p.Candidate = d.Candidate.host()
	}
	if n := len(d.History); n > 0 {
		p.Previous = d.History[n-1].host()
	}
	return p
}

// all are the bindings of a policy, the one in force first, then the newest first; of every policy without a name. One on
// trial that was in force before is there once.
func (d bindingDoc) all(name string) (out []binding) {
	add := func(b binding) {
		if (name == "" || b.Module == name) && !slices.ContainsFunc(out, b.equal) {
			out = append(out, b)
		}
	}
	for _, b := range []*binding{d.Current, d.Candidate} {
		if b != nil {
			add(*b)
		}
	}
	for _, list := range [][]binding{d.History, d.Kept} {
		for _, b := range slices.Backward(list) {
			add(b)
		}
	}
	return out
}

func (d bindingDoc) serves(name string) bool { return d.Current != nil && d.Current.Module == name }
func (d bindingDoc) tries(name string) bool  { return d.Candidate != nil && d.Candidate.Module == name }

func (d bindingDoc) needs(name, hash string) bool {
	return slices.ContainsFunc(d.all(name), func(b binding) bool { return b.Hash == hash })
}

// standing is what a binding is to its owner, and for how many of a hundred keys it decides.
func (d bindingDoc) standing(b binding) (stage string, percent int) {
	switch {
	case d.Current != nil && d.Current.equal(b):
		return stageActive, 100 - d.Percent
	case d.Candidate != nil && d.Candidate.equal(b):
		return string(d.Stage), d.Percent
	case b.Quarantined != nil:
		return stageQuarantined, 0
	}
	return stageKept, 0
}

// activated has next decide; nil: no module. The policy's candidate has had its trial.
func (d bindingDoc) activated(next *binding) bindingDoc {
	if next == nil || d.tries(next.Module) {
		d = d.withdrawn()
	}
	if next != nil {
		fresh := next.released()
		next, d = &fresh, d.without(*next)
	}
	if d.Current != nil && !same(d.Current, next) {
		d.History = append(slices.Clone(d.History), *d.Current)
	}
	d.Current = next
	return d.trimmed()
}

// tried puts next on trial beside the binding in force. If it was in force before, a rollback still goes there.
func (d bindingDoc) tried(next binding, stage policy.Stage, percent int) bindingDoc {
	if !same(d.Candidate, &next) {
		d = d.withdrawn()
		d.Kept = d.without(next).Kept
	}
	next = next.released()
	d.Candidate, d.Stage, d.Percent = &next, stage, percent
	return d.trimmed()
}

// withdrawn ends a trial.
func (d bindingDoc) withdrawn() bindingDoc {
	if d.Candidate != nil && !slices.ContainsFunc(d.History, d.Candidate.equal) {
		d.Kept = append(slices.Clone(d.Kept), *d.Candidate)
	}
	d.Candidate, d.Stage, d.Percent = nil, "", 0
	return d.trimmed()
}

// backTo goes back to an entry of History; what came after it is set aside.
func (d bindingDoc) backTo(i int) bindingDoc {
	to := d.History[i].released()
	d.Kept = slices.Concat(d.Kept, d.History[i+1:])
	if d.Current != nil {
		d.Kept = append(d.Kept, *d.Current)
	}
	d.History = slices.Clone(d.History[:i])
	if same(d.Candidate, &to) {
		d.Candidate, d.Stage, d.Percent = nil, "", 0
	}
	d.Current = &to
	return d.trimmed()
}

// without forgets that b was in force or set aside: it is about to be again.
func (d bindingDoc) without(b binding) bindingDoc {
	other := func(list []binding) []binding {
		return slices.DeleteFunc(slices.Clone(list), func(o binding) bool { return o.equal(b) })
	}
	d.History, d.Kept = other(d.History), other(d.Kept)
	return d
}

// settled is the document after the host has changed the plan by itself.
func (d bindingDoc) settled(p policy.Plan) bindingDoc {
	if d.Candidate != nil && p.Candidate == nil {
		d = d.withdrawn()
	}
	if d.Current == nil || p.Active == nil {
		return d
	}
	now := fromHost(p.Active)
	if same(d.Current, now) {
		return d
	}
	for i, b := range slices.Backward(d.History) {
		if b.equal(*now) {
			return d.backTo(i)
		}
	}
	d.Kept = append(slices.Clone(d.Kept), *d.Current)
	d.Current = now
	return d.trimmed()
}

// quarantined notes why a binding failed, where it is kept; inPlace: where it is bound, too, because there was nothing else.
func (d bindingDoc) quarantined(failed binding, why *quarantine, inPlace bool) bindingDoc {
	note := func(b binding) binding {
		if b.equal(failed) {
			b.Quarantined = why
		}
		return b
	}
	for _, at := range []**binding{&d.Current, &d.Candidate} {
		if *at != nil && inPlace {
			b := note(**at)
			*at = &b
		}
	}
	for _, at := range []*[]binding{&d.History, &d.Kept} {
		*at = slices.Clone(*at)
		for i, b := range *at {
			(*at)[i] = note(b)
		}
	}
	return d
}

// inNewProcess is d where what is bound has not failed yet.
func (d bindingDoc) inNewProcess() bindingDoc {
	for _, at := range []**binding{&d.Current, &d.Candidate} {
		if *at != nil {
			b := (*at).released()
			*at = &b
		}
	}
	return d
}

// trimmed keeps the document within its bounds; what is oldest goes, first of what only a name leads to.
func (d bindingDoc) trimmed() bindingDoc {
	last := func(list []binding) []binding { return list[max(0, len(list)-maxHistory):] }
	d.History, d.Kept = last(d.History), last(d.Kept)
	size := 0
	for _, list := range [][]binding{d.History, d.Kept} {
		for _, b := range list {
			size += len(b.Params)
		}
	}
	for size > maxKeptBytes && len(d.Kept) > 0 {
		size -= len(d.Kept[0].Params)
		d.Kept = d.Kept[1:]
	}
	for size > maxKeptBytes {
		size -= len(d.History[0].Params)
		d.History = d.History[1:]
	}
	return d
}

func (d bindingDoc) equal(o bindingDoc) bool { return bytes.Equal(encode(d), encode(o)) }

// bindingView shows what decides for an owner.
func bindingView(owner policy.Owner, d bindingDoc) object { return d.view(owner, maxParamsBytes) }

const maxAuditParams = 8 << 10 // bytes; longer ones are named by their version only

// auditBinding is bindingView with room for both sides of a change in one line of the audit.
func auditBinding(owner policy.Owner, d bindingDoc) object { return d.view(owner, maxAuditParams) }

// view leaves params out that are longer than most bytes.
func (d bindingDoc) view(owner policy.Owner, most int) object {
	v := object{{"owner", owner.String()}, {"module", nil}, {"hash", nil}, {"version", nil}, {"params", nil}, {"onError", nil}}
	if d.Current != nil {
		v = append(v[:1], d.Current.view(most)...)
	}
	var candidate any
	if d.Candidate != nil {
		candidate = append(d.Candidate.view(most), object{{"stage", d.Stage}, {"percent", d.Percent}}...)
	}
	return append(v, member{"candidate", candidate})
}

func (b binding) view(most int) object {
	v := object{{"module", b.Module}, {"hash", b.Hash}, {"version", b.version()}, {"params", b.Params}, {"onError", b.OnError}}
	if len(b.Params) > most {
		v[3] = member{"paramsBytes", len(b.Params)}
	}
	return v
}
