package policy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/sdk/abi"
)

// recipe is a verified binding: all that a generation is made from, without a child and without the module's list.
type recipe struct {
	*prepared
	binding Binding // with its hash and on_error
	version string
	config  []byte
	from    *added // where its proof is kept
	params  []byte
}

// same: both decide alike, whatever they are asked.
func (r *recipe) same(o *recipe) bool {
	return r != nil && o != nil && r.Name == o.Name && r.Hash == o.Hash && r.Profile == o.Profile &&
		r.binding.OnError == o.binding.OnError && bytes.Equal(r.config, o.config)
}

// Version names a binding's identity (hash, params, on_error): the short content hash, and after a dot 8 characters
// for the rest unless it is all default. Together with Module it is what X-Weir-Policy says. Empty without a Hash.
func (b *Binding) Version() string {
	short := b.Hash[:min(12, len(b.Hash))]
	params, onError := compact(b.Params), b.OnError
	if onError == "" {
		onError = OnErrorDefault
	}
	if short == "" || onError == OnErrorDefault && string(params) == "{}" {
		return short
	}
	sum := sha256.Sum256(append([]byte(onError+"\n"), params...))
	return short + "." + hex.EncodeToString(sum[:4])
}

// compact is params without what means nothing in JSON.
func compact(params []byte) []byte {
	raw, err := paramsOf(params)
	if err != nil {
		return params
	}
	var out bytes.Buffer
	if json.Compact(&out, raw) != nil {
		return params
	}
	return out.Bytes()
}

// resolve finds what b names and builds the guest's configuration; prove has yet to accept it.
func (h *Host) resolve(owner Owner, b Binding) (*recipe, error) {
	switch b.OnError {
	case "":
		b.OnError = OnErrorDefault
	case OnErrorDefault, OnErrorLastGood, OnErrorDeny:
	default:
		return nil, llm.Invalid("onError", "unknown on_error %q: want %q, %q or %q", b.OnError, OnErrorDefault, OnErrorLastGood, OnErrorDeny)
	}
	m := h.find(func(a *added) bool { return a.Name == b.Module && (b.Hash == "" || a.Hash == b.Hash) })
	if m == nil {
		return nil, notFound(b.Module, b.Hash)
	}
	if owner != Operator && m.Profile != ProfileSmall {
		return nil, llm.Invalid("module", "module %s has profile %s; an org's module must be of profile %s", m.Name, m.Profile, ProfileSmall)
	}
	b.Hash = m.Hash
	params, err := paramsOf(b.Params)
	if err != nil {
		return nil, llm.Invalid("params", "%v", err)
	}
	if params, err = withZones(m.Schema, params, true); err != nil {
		return nil, err
	}
	if !m.configurable && string(params) != "{}" {
		return nil, llm.Invalid("params", "module %s takes no params: it exports no %s", m.Name, abi.ExportConfigure)
	}
	config, err := configuration(h.o.Tiers, h.o.Labels, params)
	if err != nil {
		return nil, llm.Invalid("params", "%v", err)
	}
	return &recipe{prepared: m.prepared, binding: b, version: b.Version(), config: config, from: m, params: params}, nil
}

// proveBatch is how many configurations one child tries; its CPU limit must hold for all of them.
const proveBatch = 64

// prove has children accept the configurations of recipes that none has accepted before. The errors are in their
// order. REQUIRES: the trial.
func (h *Host) prove(ctx context.Context, all []*recipe) []error {
	errs := make([]error, len(all))
	byModule := map[*added][]int{}
	var order []*added
	for i, r := range all {
		if r.from.proved[sha256.Sum256(r.config)] {
			continue
		}
		if byModule[r.from] == nil {
			order = append(order, r.from)
		}
		byModule[r.from] = append(byModule[r.from], i)
	}
	for _, m := range order {
		for batch := range slices.Chunk(byModule[m], proveBatch) {
			h.proveSome(ctx, m, all, batch, errs)
		}
	}
	return errs
}

// proveSome tries a batch in one child, and one by one when that child did not live to tell.
func (h *Host) proveSome(ctx context.Context, m *added, all []*recipe, batch []int, errs []error) {
	j := &job{Profile: m.Profile, CacheDir: m.cacheDir(h.store.root), Module: m.metered, Schema: m.Schema}
	for _, i := range batch {
		j.Setups = append(j.Setups, setup{all[i].params, all[i].config})
	}
	v, err := runChild(ctx, &h.o, m.p, j)
	if err != nil && len(batch) > 1 && ctx.Err() == nil {
		for _, i := range batch {
			h.proveSome(ctx, m, all, []int{i}, errs)
		}
		return
	}
	for n, i := range batch {
		switch {
		case err != nil:
			errs[i] = err
		case v.Refusals[n] != "":
			errs[i] = refuse("%s", v.Refusals[n])
		default:
			if len(m.proved) >= maxProved {
				clear(m.proved)
			}
			m.proved[sha256.Sum256(all[i].config)] = true
		}
	}
}

// acquireCode gives the module's machine code, loading it if no generation runs it. REQUIRES: the turn.
func (h *Host) acquireCode(ctx context.Context, m *prepared) (*machine, error) {
	c := h.code[m.id()]
	if c == nil {
		code, err := h.store.load(ctx, h.rt, m)
		if err != nil {
			return nil, err
		}
		c = &machine{CompiledModule: code}
		h.code[m.id()] = c
	}
	c.refs++
	return c, nil
}

// releaseCode gives a share of code back; no instance of it is left. REQUIRES: the turn.
func (h *Host) releaseCode(m *prepared, c *machine) {
	if c.refs--; c.refs == 0 {
		_ = c.Close(context.Background()) // in memory only
		delete(h.code, m.id())
	}
}

// generate makes a generation of r for l, ready to serve. REQUIRES: the turn.
func (h *Host) generate(ctx context.Context, l *lane, r *recipe) (*generation, error) {
	code, err := h.acquireCode(ctx, r.prepared)
	if err != nil {
		return nil, err
	}
	h.number++
	g := &generation{recipe: r, host: h, lane: l, code: code, number: h.number}
	if err := g.fill(); err != nil {
		h.releaseCode(r.prepared, code)
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.live = append(h.mu.live, g)
	return g, nil
}

// retire takes g out of service for good, waiting for its calls. REQUIRES: the turn, and no lane leads to g.
func (h *Host) retire(g *generation) {
	g.drain()
	h.releaseCode(g.prepared, g.code)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.live = slices.DeleteFunc(h.mu.live, func(x *generation) bool { return x == g })
	h.mu.retired.add(g)
	g.lane.past.add(g)
}
