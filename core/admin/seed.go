package admin

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/core/upstream"
)

// Seed is what the configuration file wants to exist. What the API changed is left alone.
type Seed struct {
	Global   limit.Limits
	Models   []upstream.Model
	Channels []upstream.Channel
	Policies []SeedPolicy
	// Then runs when all of it is in force and before anything else changes; nil: nothing.
	Then func()
}

// SeedPolicy is one module of the configuration: a shipped name or a file's bytes.
type SeedPolicy struct {
	Name    string
	Wasm    []byte // nil: shipped
	Profile string // empty: small
	Params  []byte
	OnError policy.OnError
	Active  bool
}

const seedChunk = 200 // documents of one change

// seeding is one run of Seed: what will be written, and the state after it.
type seeding struct {
	a         *API
	overwrite bool
	seeded    map[string]string
	refs      []string // of docs, in the same order; empty: not remembered
	docs      []ledger.Doc
	goods     *goods
	global    limit.Limits
	rules     *rules
	bound     bool // rules has another binding of the operator's
}

// Seed creates what the store lacks, and brings up to date what the configuration made and nobody changed since. With
// overwrite (weir config apply) the configuration wins over everything it names. An error means that nothing changed, or of a
// large seed what was written before it.
func (a *API) Seed(ctx context.Context, s Seed, overwrite bool) error {
	done, err := a.take(ctx)
	if err != nil {
		return err
	}
	defer done()
	defer a.sweep(context.WithoutCancel(ctx))
	g := &seeding{a: a, overwrite: overwrite, seeded: maps.Clone(a.seeded), global: *a.global.Load(), rules: a.rules.Load()}
	if err := g.seedGoods(s); err != nil {
		return err
	}
	if err := g.seedGlobal(s.Global); err != nil {
		return err
	}
	for _, p := range s.Policies {
		if err := g.seedPolicy(ctx, p); err != nil {
			return fmt.Errorf("policy %s: %w", p.Name, err)
		}
	}
	if err := g.finish(ctx); err != nil {
		return err
	}
	left := g.left(s)
	a.left.Store(&left)
	for _, text := range left {
		a.Log.Warn(text)
	}
	if s.Then != nil {
		s.Then()
	}
	return nil
}

// left says what an earlier configuration made and this one does not name: it stays, since what is in use is never taken away by
// the absence of a line.
func (g *seeding) left(s Seed) []string {
	notes := []string{}
	tell := func(what, stays, command string) {
		notes = append(notes, fmt.Sprintf("%s is no longer in the file and stays%s: %s", what, stays, command))
	}
	for _, m := range g.goods.models {
		_, ours := g.seeded["model/"+m.Name]
		if ours && !slices.ContainsFunc(s.Models, func(o upstream.Model) bool { return o.Name == m.Name }) {
			tell("model "+m.Name, "", "weir model delete "+m.Name)
		}
	}
	for _, ch := range g.goods.channels {
		_, ours := g.seeded["channel/"+ch.Name]
		if ours && !slices.ContainsFunc(s.Channels, func(o upstream.Channel) bool { return o.Name == ch.Name }) {
			tell("channel "+ch.Name, "", fmt.Sprintf("weir channel delete %d", ch.ID))
		}
	}
	bound := g.rules.bound[policy.Operator]
	if len(s.Policies) == 0 && bound.Current != nil && g.seeded["binding/"+policy.Operator.String()] == digest(encode(bound.Current)) {
		tell("policy "+bound.Current.Module, " active", "weir policy activate NAME takes another")
	}
	return notes
}

// wants decides whether an object is to be written, and remembers that the configuration made it.
// current is what is stored; nil: nothing.
func (g *seeding) wants(ref string, current, next []byte) bool {
	was, ours := g.seeded[ref]
	write := false
	switch {
	case bytes.Equal(current, next):
	case g.overwrite:
		write = true
	case current == nil:
		write = !ours // ours and gone: the API deleted it
	default:
		write = was == digest(current)
	}
	if write {
		g.seeded[ref] = digest(next)
	}
	return write
}

func digest(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}

// add writes one object if it is wanted. It is compared as it is stored: another version of the gateway may encode
// the same object differently.
func (g *seeding) add(ref string, next ledger.Doc) (bool, error) {
	stored, _, err := g.a.Ledger.Doc(next.Kind, next.ID)
	if err != nil || !g.wants(ref, stored.Data, next.Data) {
		return false, err
	}
	g.refs, g.docs = append(g.refs, ref), append(g.docs, next)
	return true, nil
}

// seedGoods lays the configuration's models and channels over those in force, then checks the whole.
func (g *seeding) seedGoods(s Seed) error {
	old := g.a.goods.Load()
	models, channels := slices.Clone(old.models), slices.Clone(old.channels)
	for _, ch := range s.Channels {
		i := slices.IndexFunc(channels, func(c upstream.Channel) bool { return c.Name == ch.Name })
		ch.Weight, ch.State = max(ch.Weight, 1), cmp.Or(ch.State, "enabled")
		if ref := "channel/" + ch.Name; i >= 0 {
			ch.ID = channels[i].ID
		} else if _, ours := g.seeded[ref]; ours && !g.overwrite {
			continue
		} else {
			ch.ID = g.a.Ledger.NextDocID("channel")
		}
		if write, err := g.add("channel/"+ch.Name, doc("channel", ch.ID, ch)); err != nil {
			return err
		} else if write {
			channels = replaced(channels, i, ch)
		}
	}
	for _, m := range s.Models {
		i := slices.IndexFunc(models, func(o upstream.Model) bool { return o.Name == m.Name })
		if write, err := g.add("model/"+m.Name, named("model", m.Name, m)); err != nil {
			return err
		} else if write {
			models = replaced(models, i, m)
		}
	}
	var err error
	g.goods, err = makeGoods(models, channels)
	return err
}

// replaced puts v at i, or at the end when i is negative.
func replaced[T any](s []T, i int, v T) []T {
	if i < 0 {
		return append(s, v)
	}
	s[i] = v
	return s
}

func (g *seeding) seedGlobal(l limit.Limits) error {
	write, err := g.add("setting/"+settingGlobal, named("setting", settingGlobal, l))
	if write {
		g.global = l
	}
	return err
}

// seedPolicy verifies and keeps the module, and binds it.
func (g *seeding) seedPolicy(ctx context.Context, p SeedPolicy) error {
	wasm := p.Wasm
	if wasm == nil && g.a.Shipped != nil {
		wasm, _ = g.a.Shipped(p.Name)
	}
	if wasm == nil {
		return llm.Invalid("policies", "no module of this name comes with the gateway")
	}
	hash := contentHash(wasm)
	stored, _ := g.rules.policy(p.Name)
	if _, err := stored.find(hash); err != nil {
		if err := CheckModuleName(p.Name, wasm, g.a.Shipped); err != nil {
			return err
		}
		v, err := g.a.verify(ctx, p.Name, wasm, cmp.Or(p.Profile, "small"))
		if err != nil {
			return err
		}
		next, docs := grown(g.rules, stored, v, wasm)
		g.rules = g.rules.with(next)
		for _, d := range docs {
			g.refs, g.docs = append(g.refs, ""), append(g.docs, d)
		}
	}
	if p.Active {
		next := binding{Module: p.Name, Hash: hash, Params: compact(p.Params), OnError: cmp.Or(p.OnError, policy.OnErrorDefault)}
		g.bind(next)
	}
	return nil
}

func (g *seeding) bind(next binding) {
	was := g.a.bound(policy.Operator)
	var current []byte
	if was.Current != nil {
		current = encode(was.Current)
	}
	if g.wants("binding/"+policy.Operator.String(), current, encode(&next)) {
		g.bound = true
		to := was.activated(&next)
		g.refs, g.docs = append(g.refs, ""), append(g.docs, bindingDocument(policy.Operator, to))
		g.rules = g.rules.bind(policy.Operator, to)
	}
}

// finish swaps the policy, writes, and applies the rest.
func (g *seeding) finish(ctx context.Context) error {
	a, was := g.a, *g.a.enforced.Load()
	if next := *a.envelopes.Load(); !reflect.DeepEqual(was, next) {
		if err := a.enforce(next); err != nil {
			return err
		}
	}
	if err := g.activate(ctx); err != nil {
		return errors.Join(err, a.enforce(was))
	}
	if err := g.write(context.WithoutCancel(ctx)); err != nil {
		if g.bound {
			a.replan(context.WithoutCancel(ctx), policy.Operator)
		}
		return errors.Join(err, a.enforce(was), a.restoreGoods(), a.restoreSettings()) // a first part may be written
	}
	a.seeded = g.seeded
	a.rules.Store(g.rules)
	if len(g.docs) > 0 {
		a.applyGoods(g.goods)
		a.applyGlobal(g.global)
	}
	return nil
}

func (g *seeding) activate(ctx context.Context) error {
	if !g.bound {
		return nil
	}
	to := g.rules.bound[policy.Operator]
	if err := g.a.plan(ctx, g.rules, policy.Operator, to); err != nil {
		return fmt.Errorf("activating policy %s: %w", to.Current.Module, err)
	}
	return nil
}

// write puts everything, together with what the configuration made. A seed of more than 200 objects is more than one
// change, and may fail between two; what was written is whole in itself.
func (g *seeding) write(ctx context.Context) error {
	action := "config.seed"
	if g.overwrite {
		action = "config.apply"
	}
	done := 0
	for chunk := range slices.Chunk(g.docs, seedChunk) {
		seeded := maps.Clone(g.seeded)
		for _, ref := range g.refs[done+len(chunk):] { // not yet
			delete(seeded, ref)
			if was, ours := g.a.seeded[ref]; ours {
				seeded[ref] = was
			}
		}
		var names []string
		for _, d := range chunk {
			names = append(names, d.Kind+"/"+d.ID)
		}
		docs := append(slices.Clone(chunk), named("setting", settingSeeded, seeded))
		if err := g.a.put(ctx, nil, change{actor: "config", action: action, target: "configuration", after: names, docs: docs}, answer{}); err != nil {
			return err
		}
		done += len(chunk)
	}
	return nil
}

// applyConfig lets the configuration file win over what the API changed since.
func (a *API) applyConfig(c *call) (answer, error) {
	if len(bytes.TrimSpace(c.body)) > 0 && string(bytes.TrimSpace(c.body)) != "{}" {
		return answer{}, llm.Invalid("body", "expected no body: the gateway applies the file it was started with")
	}
	if a.Apply == nil {
		return answer{}, llm.Errorf(llm.KindConflict, "this gateway was started without a configuration file; weir serve -c FILE has one")
	}
	if err := a.Apply(c.Request.Context()); err != nil {
		if known := new(llm.Error); errors.As(err, &known) {
			return answer{}, err
		}
		return answer{}, llm.Invalid("config", "the configuration serves on as it was: %v", err)
	}
	return ok(object{{"applied", true}, {"warnings", *a.left.Load()}}), nil
}
