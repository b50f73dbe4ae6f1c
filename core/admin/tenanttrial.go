package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
)

// RollbackTenantRules ends the trial of an org's rules if there is one; else the rules before those in force are in
// force again. body may name a version.
func (a *API) RollbackTenantRules(ctx context.Context, org uint64, actor string, body []byte) ([]byte, error) {
	if err := a.admitTenant(org, body); err != nil {
		return nil, err
	}
	return asTenant(a.rollbackRules(ctx, org, actor, body))
}

// TryTenantRules has proposed rules decide beside those in force, or for some of a hundred keys.
func (a *API) TryTenantRules(ctx context.Context, org uint64, actor string, body []byte) ([]byte, error) {
	if err := a.admitTenant(org, body); err != nil {
		return nil, err
	}
	return asTenant(a.tryRules(ctx, org, actor, body))
}

// TenantTrial is what the rules on trial would change.
func (a *API) TenantTrial(_ context.Context, org uint64) ([]byte, error) {
	if err := a.admitTenant(org, nil); err != nil {
		return nil, err
	}
	return asTenant(a.trialOf(org))
}

func (a *API) postRollback(c *call) (answer, error) {
	o, err := a.org(c)
	if err != nil {
		return answer{}, err
	}
	return a.rollbackRules(c.Context(), o.ID, "", c.body)
}

func (a *API) postTrial(c *call) (answer, error) {
	o, err := a.org(c)
	if err != nil {
		return answer{}, err
	}
	return a.tryRules(c.Context(), o.ID, "", c.body)
}

func (a *API) getTrial(c *call) (answer, error) {
	o, err := a.org(c)
	if err != nil {
		return answer{}, err
	}
	return a.trialOf(o.ID)
}

func (a *API) rollbackRules(ctx context.Context, org uint64, actor string, body []byte) (answer, error) {
	var version string
	b := parseBody(body)
	b.text("version", &version, checkName)
	if err := b.end(); err != nil {
		return answer{}, err
	}
	return a.changeRules(ctx, org, actor, "tenant.rollback", func(t *tenant) (bindingDoc, error) { return t.undone(version) })
}

// ours: b differs from what is in force in nothing but its rules. What the operator chose for an org is not its to
// undo.
func (t *tenant) ours(b *binding) bool {
	return b != nil && b.Module == t.now.Module && b.Hash == t.now.Hash && b.OnError == t.now.OnError
}

// before is the index in History of the rules before those in force; -1: none are kept.
func (t *tenant) before() int {
	for i, b := range slices.Backward(t.doc.History) {
		if t.ours(&b) && !same(t.doc.Current, &b) {
			return i
		}
	}
	return -1
}

// undone is the document after a rollback.
func (t *tenant) undone(version string) (bindingDoc, error) {
	d := t.doc
	if version != "" {
		return t.undoneTo(strings.ToLower(version))
	}
	if t.ours(d.Candidate) {
		return d.withdrawn(), nil
	}
	if i := t.before(); i >= 0 {
		return d.backTo(i), nil
	}
	return d, t.nothingBefore()
}

// nothingBefore says why there are no rules to go back to.
func (t *tenant) nothingBefore() error {
	if t.now.Module == rulesModule {
		return llm.Errorf(llm.KindConflict, "no earlier rules of module %q are kept; PUT {\"rules\":[]} leaves no rule in force", rulesModule)
	}
	return llm.Errorf(llm.KindConflict, "no earlier params of module %q are kept, which the operator has bound to this org%s", t.now.Module, t.displaced())
}

// displaced says what became of an org's own rules when the operator bound another module; "" when it had none.
func (t *tenant) displaced() string {
	own := t.doc.all(rulesModule)
	if len(own) == 0 {
		return ""
	}
	return fmt.Sprintf("; its rules before are kept as version %s of module %q, and only the operator can put them in force again", own[0].version(), rulesModule)
}

// overruled is what a table of rules gets that another module does not take, which the operator has bound.
func (t *tenant) overruled(params json.RawMessage, refused error) error {
	var given struct{ Rules json.RawMessage }
	var e *llm.Error
	if t.now.Module == rulesModule || !errors.As(refused, &e) || e.Code != codeParams || json.Unmarshal(params, &given) != nil || given.Rules == nil {
		return refused
	}
	return llm.Errorf(llm.KindConflict, "the operator has bound module %q to this org, which takes no table of rules%s", t.now.Module, t.displaced())
}

func (t *tenant) undoneTo(version string) (bindingDoc, error) {
	var known []string
	for _, b := range t.doc.all(t.now.Module) {
		if !t.ours(&b) {
			continue
		}
		if known = append(known, b.version()); b.version() != version {
			continue
		}
		if same(t.doc.Current, &b) {
			return t.doc, llm.Errorf(llm.KindConflict, "version %s is in force already", version)
		}
		return t.doc.activated(&b), nil
	}
	return t.doc, llm.Invalid("version", "version: no rules of version %.64q are kept%s", version, suggest(version, known))
}

// tryRules puts rules on trial; without any in the body, those on trial go on with another share of the keys.
func (a *API) tryRules(ctx context.Context, org uint64, actor string, body []byte) (answer, error) {
	var params json.RawMessage
	var percent int64
	b := parseBody(body)
	b.params("params", &params)
	b.integer("percent", &percent, 1, 100, "a whole number from 1 to 100: of a hundred keys; without it the rules decide beside those in force, without effect")
	if err := b.end(); err != nil {
		return answer{}, err
	}
	if b.has("params") {
		var err error
		if params, err = a.proveRules(ctx, org, params); err != nil {
			return answer{}, err
		}
	}
	stage := policy.StageShadow
	if percent > 0 {
		stage = policy.StageCanary
	}
	return a.changeRules(ctx, org, actor, "tenant."+string(stage), func(t *tenant) (bindingDoc, error) {
		next := t.now
		switch next.Params = params; {
		case t.doc.Candidate != nil && !t.ours(t.doc.Candidate):
			return t.doc, llm.Errorf(llm.KindConflict, "the operator has module %q on trial for this org; its trial has to end first", t.doc.Candidate.Module)
		case !b.has("params") && t.doc.Candidate == nil:
			return t.doc, llm.Invalid("params", "params: no rules are on trial; expected the rules to try, as a JSON object that fits the schema")
		case !b.has("params"):
			next = *t.doc.Candidate
		}
		if same(t.doc.Current, &next) {
			return t.doc, llm.Errorf(llm.KindConflict, "these rules are in force already; a trial needs others")
		}
		return t.doc.tried(next, stage, int(percent)), nil
	})
}

// trialOf is the report of the trial that runs, or of the last one.
func (a *API) trialOf(org uint64) (answer, error) {
	if _, found := a.Directory.Org(org); !found {
		return answer{}, missing("org", org)
	}
	owner := policy.Owner(org)
	r, found := a.Policy.Report(owner)
	if !found {
		return answer{}, llm.Errorf(llm.KindNotFound, "no rules have been on trial since the gateway started; POST to the same path starts a trial")
	}
	return ok(reportView(owner, &r, a.bound(owner))), nil
}
