package policy

import (
	"context"
	"encoding/json"
	"io"
	"time"
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

// Runner runs one instance of a module outside every plan. Not safe for concurrent use.
type Runner struct{}

// Open gives a runner of an added module with params, which are verified as for a plan. Close frees it.
func (h *Host) Open(ctx context.Context, b Binding) (*Runner, error) { return nil, errUnfinished }

// Run decides f without any envelope; after a fault the next run has a fresh instance.
func (r *Runner) Run(f *Facts, d *Decision) Trace { return Trace{} }

// Close frees the runner.
func (r *Runner) Close() {}

// Try decides f as if b were the owner's active binding: for an org after the operator's module, and inside the
// envelopes. Nothing of it is counted, logged or enforced.
func (h *Host) Try(ctx context.Context, owner Owner, b Binding, f *Facts) (Trial, error) {
	return Trial{}, errUnfinished
}

// Measured is the result of Bench.
type Measured struct {
	Calls     uint64  `json:"calls"`
	NSPerCall float64 `json:"ns_per_call"`
	PerSecond float64 `json:"calls_per_second"` // of one core
	Fuel      uint64  `json:"fuel"`             // mean of a call
	FuelMost  uint64  `json:"fuel_most"`
	FuelLimit uint64  `json:"fuel_allowed"`
	Memory    uint64  `json:"memory_bytes"` // of one instance
	Faults    uint64  `json:"faults"`
}

// Bench runs the facts in turn for about the given time on one instance.
func (h *Host) Bench(ctx context.Context, b Binding, facts []*Facts, d time.Duration) (Measured, error) {
	return Measured{}, errUnfinished
}

// Logged is one line of the decision log: what one module was asked and answered.
type Logged struct {
	Time       string          `json:"time"`  // RFC 3339, milliseconds
	Owner      string          `json:"owner"` // Owner.String
	Module     string          `json:"module"`
	Version    string          `json:"version"`
	Generation uint32          `json:"generation"` // as the module was told
	Facts      json.RawMessage `json:"facts"`      // ParseFacts reads it; an org's module is told the operator's effective limits
	Decision   json.RawMessage `json:"decision"`   // the module's own answer, before any envelope
	Clamped    bool            `json:"clamped"`    // the envelope changed it
	Fault      string          `json:"fault,omitempty"`
	Fuel       uint64          `json:"fuel"`
}

// DecisionLog asks for a sample of the decisions, a JSON line each, written off every request's path.
type DecisionLog struct {
	Sample int               // one request in so many, picked by its entropy; 0: 1000
	Sink   func(line []byte) // gets one line with its end, of one goroutine; nil: no log. It must not keep line
}

// Replay runs the facts of a decision log's lines again and compares: without bindings each line's own module and
// version as added now, with one the logged answer with its answer, with two the first's with the second's. A line
// that does not parse is an error with its number.
func (h *Host) Replay(ctx context.Context, lines io.Reader, against ...Binding) (Report, error) {
	return Report{}, errUnfinished
}
