package policy

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tetratelabs/wazero"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/sdk/abi"
)

// Host runs modules. Decide is the hot path; everything else is the control plane and serialised inside.
type Host struct {
	o       Options
	rt      wazero.Runtime
	cache   wazero.CompilationCache
	store   *cacheStore
	current atomic.Pointer[generation]

	turn chan struct{}       // holds one token: whoever is the control plane, also while its child runs
	code map[string]*machine // of the turn: compile and close of code are serialised with it

	mu struct {
		sync.Mutex
		modules []*added
		live    []*generation // not yet drained
		retired Stats         // counters of those that were
	}

	number      uint32 // of the turn: the generation made last
	closed      bool   // of the turn
	faults      [nFaults]atomic.Uint64
	swaps       atomic.Uint64
	quarantines atomic.Uint64
	dropped     atomic.Uint64

	wake  chan struct{}   // to the mender; one is enough
	lines chan line       // to the log
	life  context.Context // of the goroutines and the children; fixed, ended by Close
	end   context.CancelFunc
	done  sync.WaitGroup
}

// added is a module that may be activated.
type added struct {
	*prepared
	proved [][sha256.Size]byte // configurations that a child has accepted
}

// Bounds of what a host keeps.
const (
	maxAdded    = 1024      // modules
	maxAddedB   = 256 << 20 // bytes of metered code
	maxProved   = 64        // configurations of one module
	queuedLines = 256
)

// NewHost starts the runtime. Close stops it.
func NewHost(o Options) (*Host, error) {
	if len(o.Labels) > NAttr-AttrLabel0 {
		return nil, llm.Invalid("labels", "%d labels, attributes 8 to 15 hold %d", len(o.Labels), NAttr-AttrLabel0)
	}
	if o.Clock == nil {
		o.Clock = llm.NewSystemClock()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	store, err := openCache(o.CacheDir)
	if err != nil {
		return nil, err
	}
	h := &Host{o: o, store: store, turn: make(chan struct{}, 1), code: map[string]*machine{}, wake: make(chan struct{}, 1),
		lines: make(chan line, queuedLines)}
	h.life, h.end = context.WithCancel(context.Background())
	h.rt, h.cache, err = newRuntime(context.Background(), store.run)
	if err == nil {
		err = store.settle()
	}
	if err != nil {
		h.end()
		store.close()
		return nil, err
	}
	h.done.Go(h.mender)
	h.done.Go(h.writeLines)
	return h, nil
}

// Close ends a child that is running and releases every instance and module; Decide gives native defaults from then
// on.
func (h *Host) Close() {
	h.end()
	h.turn <- struct{}{}
	defer func() { <-h.turn }()
	if h.closed {
		return
	}
	h.closed = true
	h.swap(nil)
	h.done.Wait()
	ctx := context.Background()
	_ = h.rt.Close(ctx) // in memory only: nothing that could fail and matter
	_ = h.cache.Close(ctx)
	h.store.close()
}

// begin waits for the control plane's turn. The context it gives ends with the caller's or the host; finish gives the
// turn back.
func (h *Host) begin(parent context.Context) (ctx context.Context, finish func(), err error) {
	closed := llm.Errorf(llm.KindUnavailable, "the policy host is closed")
	select {
	case <-h.life.Done():
		return nil, nil, closed
	default:
	}
	select {
	case h.turn <- struct{}{}:
	case <-h.life.Done():
		return nil, nil, closed
	case <-parent.Done():
		return nil, nil, parent.Err()
	}
	ctx, cancel := context.WithCancel(parent)
	unhook := context.AfterFunc(h.life, cancel)
	return ctx, func() {
		unhook()
		cancel()
		<-h.turn
	}, nil
}

// Add verifies raw bytes in a killable child, compiles them and runs their cases; the same bytes again are a no-op.
// A refusal is a *llm.Error of KindInvalid that names the cap, the function and the number. Nothing is active yet.
func (h *Host) Add(ctx context.Context, name string, wasm []byte, profile string) (Module, error) {
	m, err := prepare(name, wasm, profile)
	if err != nil {
		return Module{}, err
	}
	ctx, finish, err := h.begin(ctx)
	if err != nil {
		return Module{}, err
	}
	defer finish()
	if old := h.find(func(a *added) bool { return a.Name == name && a.Hash == m.Hash && a.Profile == m.Profile }); old != nil {
		return old.Module, nil
	}
	if err := h.room(m); err != nil {
		return Module{}, err
	}
	results, err := runChild(ctx, &h.o, m.p, &job{Profile: m.Profile, CacheDir: m.cacheDir(h.store.root),
		Module: m.metered, Schema: m.Schema, Cases: m.cases})
	if err == nil {
		err = failedCase(results)
	}
	if err != nil {
		return Module{}, err
	}
	m.Cases = len(results)
	now := h.o.Clock.Wall()
	_ = os.Chtimes(m.cacheDir(h.store.root), now, now) // only the order of pruning
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.modules = append(h.mu.modules, &added{prepared: m})
	return m.Module, nil
}

// room refuses what would make the host keep too much.
func (h *Host) room(m *prepared) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	total := len(m.metered)
	for _, a := range h.mu.modules {
		total += len(a.metered)
	}
	if len(h.mu.modules) >= maxAdded || total > maxAddedB {
		return refuse("%d modules of %d MiB are loaded; remove some first", len(h.mu.modules), total>>20)
	}
	return nil
}

// Remove forgets a module; one that is active goes on serving until the next Activate.
func (h *Host) Remove(ctx context.Context, name, hash string) error {
	_, finish, err := h.begin(ctx)
	if err != nil {
		return err
	}
	defer finish()
	h.mu.Lock()
	defer h.mu.Unlock()
	before := len(h.mu.modules)
	h.mu.modules = slices.DeleteFunc(h.mu.modules, func(a *added) bool { return a.Name == name && a.Hash == hash })
	if len(h.mu.modules) == before {
		return notFound(name, hash)
	}
	return nil
}

func notFound(name, hash string) error {
	e := llm.Errorf(llm.KindNotFound, "policy module %q %.12s has not been added", name, hash)
	e.Code = "policy_not_found"
	return e
}

// find gives the module added last that matches.
func (h *Host) find(match func(*added) bool) *added {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range slices.Backward(h.mu.modules) {
		if match(a) {
			return a
		}
	}
	return nil
}

// Modules lists what was added.
func (h *Host) Modules() []Module {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]Module, len(h.mu.modules))
	for i, a := range h.mu.modules {
		out[i] = a.Module
	}
	return out
}

// Activate instantiates a module with params and swaps it in; nil binding: no module. On error the old one serves.
func (h *Host) Activate(ctx context.Context, b *Binding, env Envelope) error {
	ctx, finish, err := h.begin(ctx)
	if err != nil {
		return err
	}
	defer finish()
	if b == nil {
		h.swap(nil)
		return nil
	}
	g, err := h.generate(ctx, *b, env)
	if err != nil {
		return err
	}
	h.swap(g)
	return nil
}

// generate makes the generation of b, ready to serve.
func (h *Host) generate(ctx context.Context, b Binding, env Envelope) (*generation, error) {
	if err := h.checkBinding(&b, &env); err != nil {
		return nil, err
	}
	m := h.find(func(a *added) bool { return a.Name == b.Module && (b.Hash == "" || a.Hash == b.Hash) })
	if m == nil {
		return nil, notFound(b.Module, b.Hash)
	}
	b.Hash = m.Hash
	config, err := h.prove(ctx, m, b.Params)
	if err != nil {
		return nil, err
	}
	code, err := h.acquireCode(ctx, m.prepared)
	if err != nil {
		return nil, err
	}
	h.number++
	g := &generation{prepared: m.prepared, host: h, code: code, number: h.number, binding: b, version: b.Hash[:12],
		config: config, env: env, allowed: env.indices(h.o.Tiers)}
	if err := g.fill(); err != nil {
		h.releaseCode(g)
		return nil, err
	}
	return g, nil
}

func (h *Host) checkBinding(b *Binding, env *Envelope) error {
	switch b.OnError {
	case "":
		b.OnError = OnErrorDefault
	case OnErrorDefault, OnErrorLastGood, OnErrorDeny:
	default:
		return llm.Invalid("onError", "unknown on_error %q: want %q, %q or %q", b.OnError, OnErrorDefault, OnErrorLastGood, OnErrorDeny)
	}
	for _, name := range env.Tiers {
		if !slices.Contains(h.o.Tiers, name) {
			return llm.Invalid("envelope", "the envelope allows an unknown tier %q%s", name, nearest(name, h.o.Tiers))
		}
	}
	return nil
}

// prove has a child accept the params, unless it has before, and gives the guest's configuration.
func (h *Host) prove(ctx context.Context, m *added, params []byte) ([]byte, error) {
	params, err := paramsOf(params)
	if err != nil {
		return nil, llm.Invalid("params", "%v", err)
	}
	if !m.configurable && string(params) != "{}" {
		return nil, llm.Invalid("params", "module %s takes no params: it exports no %s", m.Name, abi.ExportConfigure)
	}
	config, err := configuration(h.o.Tiers, h.o.Labels, params)
	if err != nil {
		return nil, llm.Invalid("params", "%v", err)
	}
	sum := sha256.Sum256(config)
	if slices.Contains(m.proved, sum) {
		return config, nil
	}
	_, err = runChild(ctx, &h.o, m.p, &job{Profile: m.Profile, CacheDir: m.cacheDir(h.store.root),
		Module: m.metered, Schema: m.Schema, Params: params, Config: config})
	if err != nil {
		return nil, err
	}
	if len(m.proved) >= maxProved {
		m.proved = m.proved[1:]
	}
	m.proved = append(m.proved, sum)
	return config, nil
}

// acquireCode gives the module's machine code, loading it if no generation runs it.
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

// releaseCode gives g's share of its code back. Its instances are closed by now.
func (h *Host) releaseCode(g *generation) {
	if g.code.refs--; g.code.refs == 0 {
		_ = g.code.Close(context.Background()) // in memory only
		delete(h.code, g.id())
	}
}

// swap puts g (nil: nothing) in force and retires what it replaces, except the one generation that g may fall back
// to. The order matters: a call that finds every slot of its generation dead looks at current again.
func (h *Host) swap(g *generation) {
	old := h.current.Load()
	if g != nil {
		if old != nil && g.binding.OnError == OnErrorLastGood && old.Name == g.Name && !old.quarantined.Load() {
			g.prev.Store(old)
		}
		h.mu.Lock()
		h.mu.live = append(h.mu.live, g)
		h.mu.Unlock()
	}
	h.current.Store(g)
	h.swaps.Add(1)
	if old == nil {
		return
	}
	if older := old.prev.Swap(nil); older != nil {
		h.retire(older)
	}
	if g == nil || g.prev.Load() != old {
		h.retire(old)
	}
}

func (h *Host) retire(g *generation) {
	g.drain()
	h.releaseCode(g)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.live = slices.DeleteFunc(h.mu.live, func(x *generation) bool { return x == g })
	h.mu.retired.add(g)
}

// Active is the binding in force.
func (h *Host) Active() (Binding, bool) {
	g := h.current.Load()
	if g == nil {
		return Binding{}, false
	}
	return g.binding, true
}

// Decide fills d. It never fails: a module's fault takes its binding's OnError. Safe for concurrent use; f and d
// belong to the caller.
func (h *Host) Decide(f *Facts, d *Decision) {
	for {
		g := h.current.Load()
		if g == nil {
			d.abstain()
			d.Module, d.Version = "", ""
			return
		}
		ft, retired := g.run(f, d, g)
		if retired {
			continue
		}
		if ft != faultNone {
			h.faults[ft].Add(1)
			g.fallback(f, d, ft)
		}
		return
	}
}

// Stats reads the counters.
func (h *Host) Stats() Stats {
	h.mu.Lock()
	s := h.mu.retired
	for _, g := range h.mu.live {
		s.add(g)
	}
	h.mu.Unlock()
	s.Traps, s.OutOfFuel = h.faults[faultTrap].Load(), h.faults[faultFuel].Load()
	s.BadResponse, s.GuestErrors = h.faults[faultAnswer].Load(), h.faults[faultGuest].Load()
	s.Exhausted, s.Quarantined = h.faults[faultBusy].Load(), h.quarantines.Load()
	s.Swaps, s.LogsDropped = h.swaps.Load(), h.dropped.Load()
	return s
}

func (s *Stats) add(g *generation) {
	for i := range g.slots {
		s.Calls += g.slots[i].calls.Load()
		s.Abstained += g.slots[i].abstained.Load()
		s.Clamped += g.slots[i].clamped.Load()
	}
}
