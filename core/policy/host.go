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
	o     Options
	rt    wazero.Runtime
	cache wazero.CompilationCache
	store *cacheStore

	operator lane // of Operator
	orgs     directory
	env      atomic.Pointer[envelopes]

	trial chan struct{}       // holds one token: whoever runs a child. Taken before turn, never after it
	turn  chan struct{}       // holds one token: whoever changes lanes or code. Its holder runs no child
	code  map[string]*machine // of the turn: compile and close of code are serialised with it

	mu struct {
		sync.Mutex
		modules []*added
		live    []*generation // not yet drained
		retired Stats         // counters of those that were
		cold    []*lane       // want instances
		failed  []*generation // quarantined
	}

	number    uint32 // of the turn: the generation made last
	closed    bool   // of the turn
	faults    [nFaults]atomic.Uint64
	count     counters
	orgBytes  atomic.Int64  // memory of the orgs' instances
	epoch     atomic.Uint64 // grows with every build; lanes are stamped with it when they decide
	decisions *decisionLog  // nil: none

	wake   chan struct{} // to the mender; one is enough
	work   chan struct{} // to the keeper; one is enough
	lines  chan line     // to the log
	events chan Event
	life   context.Context // of the goroutines and the children; fixed, ended by Close
	end    context.CancelFunc
	done   sync.WaitGroup
}

// counters are those of Stats that belong to no generation.
type counters struct {
	swaps, quarantines, linesDropped atomic.Uint64
	compared, changed                atomic.Uint64
	rollbacks, drops, eventsDropped  atomic.Uint64
	builds, evictions, tenantClamped atomic.Uint64
}

// added is a module that may be activated.
type added struct {
	*prepared
	proved map[[sha256.Size]byte]bool // configurations that a child has accepted; of the trial
}

// Bounds of what a host keeps.
const (
	maxAdded     = 1024      // modules
	maxAddedB    = 256 << 20 // bytes of metered code
	maxProved    = 8192      // configurations of one module that are known to be good
	queuedLines  = 256
	queuedEvents = 64
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
	if len(o.DefaultDims) == 0 {
		o.DefaultDims = []uint8{abi.KindKey, abi.KindModel, abi.KindGlobal}
	}
	if o.TenantBytes <= 0 {
		o.TenantBytes = defaultTenantBytes
	}
	store, err := openCache(o.CacheDir)
	if err != nil {
		return nil, err
	}
	h := &Host{o: o, store: store, trial: make(chan struct{}, 1), turn: make(chan struct{}, 1), code: map[string]*machine{},
		wake: make(chan struct{}, 1), work: make(chan struct{}, 1), lines: make(chan line, queuedLines), events: make(chan Event, queuedEvents)}
	h.life, h.end = context.WithCancel(context.Background())
	h.operator.cur.Store(&fork{})
	h.decisions = newDecisionLog(o.DecisionLog, o.Log)
	if err := h.SetEnvelopes(Envelopes{}); err != nil {
		return nil, err
	}
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
	h.done.Go(h.keeper)
	if h.decisions != nil {
		go h.decisions.write(h.life) // Close waits for it, but not for ever
	}
	return h, nil
}

// Close ends a child that is running and releases every instance and module; Decide gives native defaults from then
// on. It waits for the decision log's last lines, 2 s at most.
func (h *Host) Close() {
	h.end()
	h.trial <- struct{}{}
	h.turn <- struct{}{}
	defer func() { <-h.turn; <-h.trial }()
	if h.closed {
		return
	}
	h.closed = true
	h.put(&h.operator, &fork{})
	for _, l := range h.orgs.all() {
		h.put(l, &fork{})
	}
	h.done.Wait()
	h.decisions.finish()
	close(h.events)
	ctx := context.Background()
	_ = h.rt.Close(ctx) // in memory only: nothing that could fail and matter
	_ = h.cache.Close(ctx)
	h.store.close()
}

// begin waits for a token. The context it gives ends with the caller's or the host; finish gives the token back.
func (h *Host) begin(parent context.Context, token chan struct{}) (ctx context.Context, finish func(), err error) {
	closed := llm.Errorf(llm.KindUnavailable, "the policy host is closed")
	select {
	case <-h.life.Done():
		return nil, nil, closed
	default:
	}
	select {
	case token <- struct{}{}:
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
		<-token
	}, nil
}

// Add verifies raw bytes in a killable child, compiles them and runs their cases; the same bytes again are a no-op,
// unless their code has gone from the cache. A refusal is a *llm.Error of KindInvalid that names the cap, the function
// and the number. Nothing is active yet.
func (h *Host) Add(ctx context.Context, name string, wasm []byte, profile string) (Module, error) {
	m, err := prepare(name, wasm, profile)
	if err != nil {
		return Module{}, err
	}
	ctx, finish, err := h.begin(ctx, h.trial)
	if err != nil {
		return Module{}, err
	}
	defer finish()
	old := h.find(func(a *added) bool { return a.Name == name && a.Hash == m.Hash && a.Profile == m.Profile })
	if old != nil && h.store.holds(m) {
		return old.Module, nil
	}
	if old == nil {
		if err := h.room(m); err != nil {
			return Module{}, err
		}
	}
	v, err := runChild(ctx, &h.o, m.p, &job{Profile: m.Profile, CacheDir: m.cacheDir(h.store.root),
		Module: m.metered, Schema: m.Schema, Cases: m.cases})
	if err == nil {
		err = failedCase(v.Cases)
	}
	if err != nil {
		return Module{}, err
	}
	m.Cases = len(v.Cases)
	now := h.o.Clock.Wall()
	_ = os.Chtimes(m.cacheDir(h.store.root), now, now) // only the order of pruning
	if old != nil {
		return old.Module, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.modules = append(h.mu.modules, &added{prepared: m, proved: map[[sha256.Size]byte]bool{}})
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
		return refuse("with it %d modules of %d MiB would be loaded, the limits are %d and %d MiB; remove some first",
			len(h.mu.modules)+1, total>>20, maxAdded, maxAddedB>>20)
	}
	return nil
}

// Remove forgets a module; plans that name it go on.
func (h *Host) Remove(ctx context.Context, name, hash string) error {
	_, finish, err := h.begin(ctx, h.trial)
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

// Stats reads the counters.
func (h *Host) Stats() Stats {
	lanes := h.orgs.all()
	h.mu.Lock()
	s := h.mu.retired
	for _, g := range h.mu.live {
		s.add(g)
	}
	h.mu.Unlock()
	s.Traps, s.OutOfFuel = h.faults[faultTrap].Load(), h.faults[faultFuel].Load()
	s.BadResponse, s.GuestErrors = h.faults[faultAnswer].Load(), h.faults[faultGuest].Load()
	s.Exhausted, s.TenantCold = h.faults[faultBusy].Load(), h.faults[faultCold].Load()
	c := &h.count
	s.Quarantined, s.Swaps, s.LogsDropped = c.quarantines.Load(), c.swaps.Load(), c.linesDropped.Load()
	s.Compared, s.Changed = c.compared.Load(), c.changed.Load()
	s.Rollbacks, s.Dropped, s.EventsDropped = c.rollbacks.Load(), c.drops.Load(), c.eventsDropped.Load()
	s.Logged, s.LoggedDropped = h.decisions.counts()
	s.Tenants, s.TenantBytes = uint64(len(lanes)), h.orgBytes.Load()
	for _, l := range lanes {
		if k := l.cur.Load(); k.active != nil || k.candidate != nil {
			s.TenantsLive++
		}
	}
	s.TenantBuilds, s.TenantEvictions, s.TenantClamped = c.builds.Load(), c.evictions.Load(), c.tenantClamped.Load()
	return s
}

func (s *Stats) add(g *generation) {
	for i := range g.slots {
		s.Calls += g.slots[i].calls.Load()
		s.Abstained += g.slots[i].abstained.Load()
		s.Clamped += g.slots[i].clamped.Load()
	}
}
