package admin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/upstream"
)

const maxOutputTokens = 100_000_000

func (a *API) modelView(m upstream.Model) object {
	price := func(p llm.Micro) any {
		if !m.Priced {
			return nil
		}
		return decimal(p)
	}
	per := a.suffix + "Per1M"
	return object{{"name", m.Name}, {"channels", list(m.Channels)}, {"target", orNull(m.Target)},
		{"qpsLimit", m.QPSLimit}, {"tpmLimit", m.TPMLimit},
		{"input" + per, price(m.Price.Input)}, {"cachedInput" + per, price(m.Price.CachedInput)},
		{"cacheWrite" + per, price(m.Price.CacheWrite)}, {"output" + per, price(m.Price.Output)},
		{"request" + a.suffix, price(m.Price.Request)}, {"priced", m.Priced}, {"free", m.Free},
		{"maxOutputTokens", m.MaxOutputTokens}, {"labels", table(m.Labels)}, {"serviceTiers", factors(m.ServiceTiers)},
		{"hostedTools" + a.suffix, amounts(m.HostedTools)}, {"maxToolCalls", m.MaxToolCalls},
		{"stored", cmp.Or(m.Stored, upstream.StoredRefuse)}}
}

func (a *API) listModels(c *call) (answer, error) {
	q := parseQuery(c.URL, "limit", "cursor")
	return pageOf(q, a.goods.Load().models, func(m upstream.Model) string { return m.Name }, parseName, a.modelView)
}

// factors are multiples of a price by name, as people write them.
func factors(permille map[string]uint32) map[string]json.Number {
	out := make(map[string]json.Number, len(permille))
	for name, f := range permille {
		out[name] = json.Number(llm.Factor(f))
	}
	return out
}

// factors reads multiples of a price by name, each a number or a decimal string; the catalog checks the names.
func (b *body) factors(name string, to *map[string]uint32) {
	b.table(name, func(values map[string]string) error {
		out := make(map[string]uint32, len(values))
		for _, k := range slices.Sorted(maps.Keys(values)) {
			f, err := llm.ParseFactor(values[k])
			if err != nil {
				return fmt.Errorf("%.70q: %w", k, err)
			}
			out[k] = f
		}
		*to = out
		return nil
	})
}

func amounts(of map[string]llm.Micro) map[string]json.Number {
	out := make(map[string]json.Number, len(of))
	for name, m := range of {
		out[name] = json.Number(m.String())
	}
	return out
}

// amounts reads money by name; the catalog checks names and bounds.
func (b *body) amounts(name string, to *map[string]llm.Micro) {
	b.table(name, func(values map[string]string) error {
		out := make(map[string]llm.Micro, len(values))
		for _, k := range slices.Sorted(maps.Keys(values)) {
			m, err := exactMicro(values[k])
			if err != nil {
				return fmt.Errorf("%.70q: %w", k, err)
			}
			out[k] = m
		}
		*to = out
		return nil
	})
}

// table reads an object of numbers or decimal strings, as they are written. It replaces what was there.
func (b *body) table(name string, take func(map[string]string) error) {
	raw := b.take(name)
	if raw == nil {
		return
	}
	var values map[string]json.RawMessage
	if json.Unmarshal(raw, &values) != nil || values == nil {
		b.fail(name, "expected an object of numbers, got %s", jsonKind(raw))
		return
	}
	texts := make(map[string]string, len(values))
	for k, v := range values {
		texts[k] = strings.Trim(string(v), `"`)
	}
	if err := take(texts); err != nil {
		b.fail(name, "%s", err.Error())
	}
}

// missingModel is the 404 of a name, with the nearest one.
func (g *goods) missingModel(name string) error {
	e := llm.Errorf(llm.KindNotFound, "no model %.128q%s", name, suggest(name, g.modelNames()))
	e.Code = "model_not_found"
	return e
}

func (a *API) getModel(c *call) (answer, error) {
	g, name := a.goods.Load(), c.PathValue("name")
	m, found := g.model(name)
	if !found {
		return answer{}, g.missingModel(name)
	}
	return ok(a.modelView(m)), nil
}

// putModel creates a model or changes what the body names; the rest stays as it is.
func (a *API) putModel(c *call) (answer, error) {
	name := c.PathValue("name")
	old, found := a.goods.Load().model(name)
	m := old
	m.Name = name
	if err := a.readModel(parseBody(c.body), &m); err != nil {
		return answer{}, err
	}
	g, err := a.goods.Load().withModel(name, &m)
	if err != nil {
		return answer{}, err
	}
	ch := change{action: "model.create", target: "model:" + name, after: a.modelView(m), docs: []ledger.Doc{named("model", name, m)}}
	ans := created(ch.after)
	if found {
		ch.action, ch.before, ans = "model.update", a.modelView(old), ok(ch.after)
	}
	if err := a.put(c.ctx, c, ch, ans); err != nil {
		return answer{}, err
	}
	a.applyGoods(g)
	return ans, nil
}

func (a *API) readModel(b *body, m *upstream.Model) error {
	b.strings("channels", &m.Channels, checkName)
	b.optional("target", &m.Target, checkName)
	b.count("qpsLimit", &m.QPSLimit)
	b.count("tpmLimit", &m.TPMLimit)
	b.integer("maxOutputTokens", (*int64)(&m.MaxOutputTokens), 0, maxOutputTokens, "a whole number from 0 (unknown) to 100000000")
	b.labels("labels", &m.Labels)
	b.factors("serviceTiers", &m.ServiceTiers)
	b.amounts("hostedTools"+a.suffix, &m.HostedTools)
	b.integer("maxToolCalls", &m.MaxToolCalls, 0, llm.MaxOutputCap, "a whole number from 0 (the default) to 2147483647")
	b.text("stored", &m.Stored, oneOf(upstream.StoredRefuse, upstream.StoredAllow))
	a.readPrice(b, m)
	return b.end()
}

// readPrice takes the classes that are given. Cached and cache-write tokens cost what input costs until they are
// given a price of their own. Input and output come together the first time, so that no class is free by oversight.
func (a *API) readPrice(b *body, m *upstream.Model) {
	old, per := m.Price, a.suffix+"Per1M"
	classes := []struct {
		name string
		to   *llm.Micro
	}{{"input" + per, &m.Price.Input}, {"output" + per, &m.Price.Output}, {"cachedInput" + per, &m.Price.CachedInput},
		{"cacheWrite" + per, &m.Price.CacheWrite}, {"request" + a.suffix, &m.Price.Request}}
	given := map[string]bool{}
	for _, c := range classes {
		b.bounded(c.name, c.to, false, llm.MaxPrice)
		given[c.name] = b.has(c.name)
	}
	free := m.Free
	b.flag("free", &free)
	input, output := classes[0].name, classes[1].name
	for i, c := range classes[2:4] {
		if was := []llm.Micro{old.CachedInput, old.CacheWrite}[i]; given[input] && !given[c.name] && was == old.Input {
			*c.to = m.Price.Input
		}
	}
	switch some := given[input] || given[output] || given[classes[2].name] || given[classes[3].name] || given[classes[4].name]; {
	case some && free && b.has("free"):
		b.fail("free", "a model is either free or has prices")
	case some && !m.Priced && given[input] != given[output]:
		missing := output
		if given[output] {
			missing = input
		}
		b.fail(missing, "this field is required with the other price; 0 is a price")
	case some:
		m.Priced, m.Free = true, false
	case b.has("free"):
		m.Free = free
		if free {
			m.Priced, m.Price = false, llm.Price{}
		}
	}
}

func (a *API) deleteModel(c *call) (answer, error) {
	name := c.PathValue("name")
	m, found := a.goods.Load().model(name)
	if !found {
		return answer{}, a.goods.Load().missingModel(name)
	}
	g, err := a.goods.Load().withModel(name, nil)
	if err != nil {
		return answer{}, err
	}
	err = a.put(c.ctx, c, change{action: "model.delete", target: "model:" + name, before: a.modelView(m),
		docs: []ledger.Doc{named("model", name, nil)}}, answer{})
	if err == nil {
		a.applyGoods(g)
	}
	return ok(object{{"name", name}, {"deleted", true}}), err
}
