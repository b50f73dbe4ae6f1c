package policy

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tetratelabs/wazero"
)

// The states of a slot. Every edge is a CAS or is made by the one who holds the slot:
//
//	free -> busy -> free      a call
//	        busy -> broken    a call that faulted
//	      broken -> mending   the mender, or the drain
//	     mending -> free      a new instance
//	     mending -> broken    none could be made
//	       empty -> mending   an org's generation, when its other slots do not suffice
//	free, broken, empty -> dead   the drain; for good
const (
	slotFree uint32 = iota
	slotBusy
	slotBroken
	slotMending
	slotEmpty
	slotDead
)

// yields is how often a call that finds every slot taken lets others run before it gives up.
const yields = 128

// coldLooks is how often a call of an org looks again while it waits, at most coldWait, for an instance to be made:
// an org has few, and a single fault would else be many.
const coldLooks = 100

// Quarantine: so many faults, and more than one call in so many, within one span of time.
const (
	quarantineFaults = 8
	quarantineShare  = 20
	quarantineSpan   = 10 * time.Second
)

// slot holds one instance. It is two cache lines wide, so that neighbours do not share one.
type slot struct {
	state     atomic.Uint32
	in        *instance // whoever made the state busy or mending owns it
	calls     atomic.Uint64
	abstained atomic.Uint64
	clamped   atomic.Uint64
	_         [128 - 40]byte
}

// machine is a module's machine code in the process, shared by the generations that run it. wazero ties two handles
// of the same bytes together, so there is only ever one.
type machine struct {
	wazero.CompiledModule
	refs int // the control plane's
}

// generation is one activation: a module with its params and instances, immutable but for its slots.
type generation struct {
	*recipe
	host    *Host
	lane    *lane
	code    *machine
	number  uint32
	slots   []slot
	prev    atomic.Pointer[generation] // kept for OnErrorLastGood
	bytes   atomic.Int64               // of its instances
	crowded atomic.Bool                // a call found every instance taken, and not every slot has one
	clamped atomic.Uint64              // an org's answers that asked for more than its envelope
	faulted atomic.Uint64
	fired   firings // rules of an org's module
	faults  struct {
		sync.Mutex
		since time.Duration
		calls uint64 // of the generation at since
		n     int
		sentence
	}
	quarantined atomic.Bool
}

// sentence is why a generation was quarantined.
type sentence struct {
	faults, calls uint64
	last          fault
}

func (g *generation) open() (*instance, error) {
	return open(g.host.rt, g.code.CompiledModule, g.p, g.config, g.log, g.grew)
}

// grew keeps count of what g's instances take; the orgs' share one bound.
func (g *generation) grew(delta int64) {
	g.bytes.Add(delta)
	if g.lane.owner != Operator && g.host.orgBytes.Add(delta) > g.host.o.TenantBytes && delta > 0 {
		g.host.wakeKeeper()
	}
}

// log takes a line off the request's path; a full queue drops it.
func (g *generation) log(level uint32, text []byte) {
	select {
	case g.host.lines <- line{g.Name, g.version, level, string(text)}:
	default:
		g.host.count.linesDropped.Add(1)
	}
}

// start is where a call begins to look for a slot. The facts of a request live in something its goroutine reuses,
// so their address leads the same worker to the same instance, whose memory is then still in its cache.
func (g *generation) start(f *Facts) int {
	h := uint64(uintptr(unsafe.Pointer(f))) * 0x9e3779b97f4a7c15
	return int((h >> 32) * uint64(len(g.slots)) >> 32)
}

// acquire gives a slot that is the caller's until release; nil when all stay taken, after so many looks. retired: the
// generation has been swapped out and another one is in force.
func (g *generation) acquire(f *Facts, looks int) (s *slot, retired bool) {
	first, small := g.start(f), g.lane.owner != Operator
	for look := 0; look < looks || small && looks == yields && look < yields+coldLooks; look++ {
		for i := range g.slots {
			if i += first; i >= len(g.slots) {
				i -= len(g.slots)
			}
			s := &g.slots[i]
			switch s.state.Load() {
			case slotFree:
				if s.state.CompareAndSwap(slotFree, slotBusy) {
					return s, false
				}
			case slotDead: // the drain has begun, so another generation is in force
				return nil, true
			}
		}
		if look == 0 && small && !g.crowded.Load() {
			g.crowded.Store(true)
			g.host.wakeMender()
		}
		if look < yields {
			runtime.Gosched()
		} else {
			time.Sleep(coldWait / coldLooks) // an org's only instance has faulted and is being replaced
		}
	}
	return nil, false
}

// run decides f, looking for an instance so many times, and clamps what the operator's module answers. A fault
// takes the instance out of service.
func (g *generation) run(q *question, f *Facts, d *Decision, looks int) (ft fault, retired bool) {
	if g.quarantined.Load() {
		return faultQuarantined, false
	}
	s, retired := g.acquire(f, looks)
	if retired {
		return 0, true
	}
	if s == nil {
		g.host.wakeMender()
		return faultBusy, false
	}
	ft = s.in.call(f, d, g.number, len(g.host.o.Tiers))
	s.calls.Add(1)
	if g.lane.owner != Operator {
		s.in.weigh()
	}
	if q.smp != nil {
		q.smp.take(s.in, d)
	}
	if ft != faultNone {
		s.state.Store(slotBroken)
		g.fault(ft)
		g.host.wakeMender()
		return ft, false
	}
	if d.Abstained {
		s.abstained.Add(1)
	} else if q.op == nil {
		if q.clamp(d); d.Clamped {
			s.clamped.Add(1)
		}
	}
	d.Module, d.Version = g.Name, g.version
	s.state.Store(slotFree)
	return faultNone, false
}

// fault counts a faulty call and quarantines the generation when there are too many.
func (g *generation) fault(ft fault) {
	now, calls := g.host.o.Clock.Mono(), g.calls()
	g.faulted.Add(1)
	f := &g.faults
	f.Lock()
	defer f.Unlock()
	if f.n == 0 || now-f.since > quarantineSpan {
		f.since, f.calls, f.n = now, calls-1, 0
	}
	f.n++
	seen := calls - f.calls // the fault that began the span stands for none but itself, hence the two -1
	if f.n >= quarantineFaults && uint64(f.n-1)*quarantineShare > seen-1 && !g.quarantined.Swap(true) {
		f.sentence = sentence{uint64(f.n), seen, ft}
		g.host.failed(g)
	}
}

func (g *generation) calls() (n uint64) {
	for i := range g.slots {
		n += g.slots[i].calls.Load()
	}
	return n
}

// fallback gives d what the binding says for a call that faulted.
func (g *generation) fallback(q *question, f *Facts, d *Decision, ft fault) {
	decided := false
	if prev := g.prev.Load(); prev != nil && g.binding.OnError == OnErrorLastGood {
		quiet := *q
		quiet.smp = nil
		failed, retired := prev.run(&quiet, f, d, yields)
		decided = failed == faultNone && !retired
	}
	if !decided {
		d.abstain()
		d.Module, d.Version = g.Name, g.version
	}
	if g.binding.OnError == OnErrorDeny {
		d.refuse()
	}
	d.Fault = ft.String()
}

// refuse makes d the denial of a policy that could not decide.
func (d *Decision) refuse() {
	d.Abstained, d.Verdict, d.Message = false, Deny, "the policy could not decide"
}

// fill makes the slots and their instances; on error none is left. An org's begin with one: there are many orgs, and
// few of them call from two processors at once.
func (g *generation) fill() error {
	g.slots = make([]slot, 2*runtime.GOMAXPROCS(0)+2)
	for i := range g.slots {
		if i > 0 && g.lane.owner != Operator {
			g.slots[i].state.Store(slotEmpty)
			continue
		}
		in, err := g.open()
		if err != nil {
			g.drain()
			return refuse("%s %s: %s", g.Name, g.version, err)
		}
		g.slots[i].in = in
	}
	return nil
}

// drain takes every slot out of use, waiting for the calls in flight, which fuel bounds, and closes the instances.
func (g *generation) drain() {
	for i := range g.slots {
		s := &g.slots[i]
		for !s.state.CompareAndSwap(slotFree, slotDead) && !s.state.CompareAndSwap(slotBroken, slotDead) &&
			!s.state.CompareAndSwap(slotEmpty, slotDead) {
			time.Sleep(50 * time.Microsecond)
		}
		s.shut()
	}
}

func (s *slot) shut() {
	if s.in != nil {
		s.in.close()
		s.in = nil
	}
}

// mend gives each broken slot a fresh instance, and an empty one if calls had to wait; ok: it could. Nobody calls a
// quarantined generation, so it is left alone.
func (g *generation) mend() (ok bool) {
	ok = true
	grow := g.crowded.Load() && g.host.orgBytes.Load() < g.host.o.TenantBytes
	for i := range g.slots {
		s := &g.slots[i]
		if g.quarantined.Load() {
			break
		}
		was := slotBroken
		if !s.state.CompareAndSwap(slotBroken, slotMending) {
			if !grow || !s.state.CompareAndSwap(slotEmpty, slotMending) {
				continue
			}
			was, grow = slotEmpty, false
		}
		s.shut()
		in, err := g.open()
		if err != nil {
			g.host.o.Log.Error("policy instance could not be made", "module", g.Name, "version", g.version, "error", err)
			s.state.Store(was)
			ok = false
			continue
		}
		s.in = in
		s.state.Store(slotFree)
	}
	g.crowded.Store(false)
	return ok
}
