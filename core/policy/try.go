package policy

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-gateway/weir/sdk/abi"
)

// Trace is what a run cost and said.
type Trace struct {
	Fuel        uint64     `json:"fuel"`
	FuelAllowed uint64     `json:"fuel_allowed"`
	Memory      uint64     `json:"memory_bytes"`
	Log         []SaidLine `json:"log,omitempty"`
	Fault       string     `json:"fault,omitempty"`
}

// SaidLine is one line that a module logged.
type SaidLine struct {
	Level string `json:"level"`
	Text  string `json:"text"`
}

// Trial is a dry run.
type Trial struct {
	Binding  Binding  // with its hash
	Answer   Decision // the module's own, before any envelope
	Decision Decision // what a request would get: through the chain and the envelopes
	Trace    Trace
}

// Runner runs one instance of a module outside every plan. Not safe for concurrent use, and not
// to be used after the host's Close.
type Runner struct {
	h    *Host
	r    *recipe
	code *machine
	in   *instance
	said []SaidLine
}

// Open gives a runner of an added module with params, which are verified as for a plan. Close frees it.
func (h *Host) Open(ctx context.Context, b Binding) (*Runner, error) {
	return h.runner(ctx, Operator, b)
}

func (h *Host) runner(ctx context.Context, owner Owner, b Binding) (*Runner, error) {
	r, err := h.proved(ctx, owner, b)
	if err != nil {
		return nil, err
	}
	ctx, finish, err := h.begin(ctx, h.turn)
	if err != nil {
		return nil, err
	}
	defer finish()
	code, err := h.acquireCode(ctx, r.prepared)
	if err != nil {
		return nil, err
	}
	run := &Runner{h: h, r: r, code: code}
	if err := run.open(); err != nil {
		h.releaseCode(r.prepared, code)
		return nil, err
	}
	return run, nil
}

// proved is the recipe of b, accepted by a child.
func (h *Host) proved(ctx context.Context, owner Owner, b Binding) (*recipe, error) {
	ctx, finish, err := h.begin(ctx, h.trial)
	if err != nil {
		return nil, err
	}
	defer finish()
	r, err := h.resolve(owner, b)
	if err != nil {
		return nil, err
	}
	return r, h.prove(ctx, []*recipe{r})[0]
}

func (r *Runner) open() (err error) {
	if r.in, err = open(r.h.rt, r.code.CompiledModule, r.r.p, r.r.config, r.log, nil); err != nil {
		return refuse("%s %s: %s", r.r.Name, r.r.version, err)
	}
	return nil
}

func (r *Runner) log(level uint32, text []byte) {
	r.said = append(r.said, SaidLine{levelName(level), string(text)})
}

func levelName(level uint32) string {
	names := [...]string{abi.LogDebug: "debug", abi.LogInfo: "info", abi.LogWarn: "warn", abi.LogError: "error"}
	if int64(level) < int64(len(names)) {
		return names[level]
	}
	return names[abi.LogError]
}

// Run decides f without any envelope; after a fault, which leaves d abstaining, the next run has a fresh instance.
func (r *Runner) Run(f *Facts, d *Decision) Trace {
	t, _ := r.run(f, d, 1)
	return t
}

func (r *Runner) run(f *Facts, d *Decision, generation uint32) (t Trace, ft fault) {
	r.said = nil
	if r.in == nil {
		if err := r.open(); err != nil {
			d.abstain()
			d.Fault = err.Error()
			return Trace{Fault: d.Fault}, faultTrap
		}
	}
	ft = r.in.call(f, d, generation, len(r.h.o.Tiers))
	t = Trace{Fuel: r.in.spent(), FuelAllowed: r.in.budget, Memory: r.in.size(), Log: r.said, Fault: ft.String()}
	if ft != faultNone {
		r.in.close()
		r.in = nil
		d.abstain()
		d.Fault = ft.String()
	}
	d.Module, d.Version = r.r.Name, r.r.version
	return t, ft
}

// Close frees the runner.
func (r *Runner) Close() {
	r.h.turn <- struct{}{}
	defer func() { <-r.h.turn }()
	if r.in != nil {
		r.in.close()
		r.in = nil
	}
	if r.code != nil && !r.h.closed {
		r.h.releaseCode(r.r.prepared, r.code)
	}
	r.code = nil
}

// Try decides f as if b were the owner's active binding: for an org after the operator's module, and inside the
// envelopes. Nothing of it is counted, logged or enforced, but that the operator's module was asked.
func (h *Host) Try(ctx context.Context, owner Owner, b Binding, f *Facts) (Trial, error) {
	run, err := h.runner(ctx, owner, b)
	if err != nil {
		return Trial{}, err
	}
	defer run.Close()
	e := h.env.Load()
	q := question{h: h, env: e.of(f.Tier), key: limitsOf(f)}
	out := Trial{Binding: run.r.binding}
	finish := func(d *Decision, ft fault) {
		if ft != faultNone && run.r.binding.OnError == OnErrorDeny {
			d.refuse()
		}
	}
	if owner == Operator {
		var ft fault
		out.Trace, ft = run.run(f, &out.Answer, 1)
		out.Decision = out.Answer
		if ft == faultNone {
			q.clamp(&out.Decision)
		}
		finish(&out.Decision, ft)
		out.Decision.Envelope = &q.env.Envelope
		return out, nil
	}
	q.ask(f, &h.operator, &out.Decision)
	told := *f
	h.effective(&told, &out.Decision)
	var ft fault
	out.Trace, ft = run.run(&told, &out.Answer, 1)
	if out.Decision.Verdict != Deny {
		part := out.Answer
		finish(&part, ft)
		mine := question{h: h, env: q.env, key: q.key, tenant: e.tenantOf(f.Tier), op: &out.Decision, by: &generation{recipe: run.r}}
		mine.join(&out.Decision, &part)
	}
	out.Decision.Envelope = &q.env.Envelope
	return out, nil
}

// Measured is the result of Bench.
type Measured struct {
	Calls     uint64  `json:"calls"`
	NSPerCall float64 `json:"ns_per_call"`
	PerSecond float64 `json:"calls_per_second"` // of one core
	Fuel      uint64  `json:"fuel"`             // mean of a call
	FuelMost  uint64  `json:"fuel_most"`
	FuelLimit uint64  `json:"fuel_allowed"`
	Memory    uint64  `json:"memory_bytes"` // of one instance, at the end
	Faults    uint64  `json:"faults"`
}

// Bench runs the facts in turn for about the given time on one instance, at least once each.
func (h *Host) Bench(ctx context.Context, b Binding, facts []*Facts, d time.Duration) (Measured, error) {
	if len(facts) == 0 {
		return Measured{}, fmt.Errorf("policy: nothing to run: no facts were given")
	}
	run, err := h.Open(ctx, b)
	if err != nil {
		return Measured{}, err
	}
	defer run.Close()
	var (
		m     Measured
		fuel  uint64
		spent time.Duration
		out   Decision
	)
	for spent < d && ctx.Err() == nil || m.Calls < uint64(len(facts)) {
		began := h.o.Clock.Mono()
		for _, f := range facts {
			t, ft := run.run(f, &out, 1)
			fuel, m.FuelMost, m.FuelLimit, m.Memory = fuel+t.Fuel, max(m.FuelMost, t.Fuel), t.FuelAllowed, t.Memory
			m.Calls++
			if ft != faultNone {
				m.Faults++
			}
		}
		spent += max(h.o.Clock.Mono()-began, 1)
	}
	m.NSPerCall = float64(spent.Nanoseconds()) / float64(m.Calls)
	m.PerSecond, m.Fuel = 1e9/m.NSPerCall, fuel/m.Calls
	return m, ctx.Err()
}
