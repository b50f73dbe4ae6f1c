// Package policy hosts WebAssembly policy modules: verify, meter, compile in a child, pool, run under fuel.
package policy

import (
	"context"
	"io"
	"log/slog"

	"github.com/weir-gateway/weir/core/llm"
)

// NAttr is how many attributes the facts carry.
const NAttr = 16

// The attributes.
const (
	AttrModel = iota
	AttrKeyName
	AttrUserName
	AttrOrgName
	AttrEndUser
	AttrClientIP
	AttrTier
	AttrProvider
	AttrLabel0 // 8..15: labels mapped in config
)

// Facts are a module's input; the fields are policy-abi.md's. Reused by its owner, not safe for concurrent use.
type Facts struct {
	NowMS                                uint64
	Entropy                              uint64
	Flags                                uint32
	Endpoint                             llm.Endpoint
	Input                                llm.Tokens
	OutputMax                            llm.Tokens
	Choices                              uint32
	BodyBytes                            uint32
	Key                                  uint64
	User                                 uint64
	Org                                  uint64
	QPSLimit, QPSCurrent                 int64
	TPMLimit, TPMCurrent                 int64
	ConcurrencyLimit, ConcurrencyCurrent int64
	QuotaLimit, QuotaUsed                llm.Micro
	BalanceAvailable, EstimatedCost      llm.Micro
	MinuteOfWeek                         uint32
	DayOfMonth                           uint16
	DaysInMonth                          uint16
	Tier                                 uint32 // index in Options.Tiers
	Attr                                 [NAttr]string
}

// Facts.Flags.
const (
	FlagStream = 1 << iota
	FlagTools
	FlagImages
	FlagFiles
	FlagRetry
)

// Verdict is what a module wants.
type Verdict uint8

// The verdicts.
const (
	Allow Verdict = iota
	Deny
	ShadowDeny
)

// Decision is a module's answer, copied out of its memory, checked and clamped by the envelope. All multipliers are
// in 1/1000 and never 0.
type Decision struct {
	Abstained                     bool // native defaults
	Verdict                       Verdict
	NoBill                        bool
	NoLimit                       bool
	Tier                          int // index, or -1: keep
	QPS, TPM, Quota, Burst, Price uint32
	Overdraft                     llm.Micro
	OutputCap                     llm.Tokens // 0: none
	Status                        int        // of a denial
	Reason                        uint16
	RetryAfterMS                  uint32
	Message                       string
	Dims                          [16]Dimension
	N                             int // 0: the configured default
	Module                        string
	Version                       string // short content hash
	Clamped                       bool   // the envelope changed something
}

// Dimension is one dimension a module picked. Kinds are limit.Kind's numbers.
type Dimension struct {
	Kind       uint8
	CountOnly  bool
	Shadow     bool
	SkipAbsent bool
	Tier       int   // -1: none
	QPS, TPM   int64 // 0: as configured
	Multiplier uint32
	Burst      uint32
	Cost       uint32
	Value      string // custom
}

// Envelope bounds what a module may do; anything beyond is clamped, natively, after the module.
type Envelope struct {
	MaxMultiplier  uint32    `yaml:"max_multiplier"` // 1/1000, QPS, TPM and quota
	MaxBurst       uint32    `yaml:"max_burst"`
	MaxOverdraft   llm.Micro `yaml:"-"`
	MaxCustomDims  int       `yaml:"max_custom_dimensions"`
	MinPrice       uint32    `yaml:"min_price_multiplier"`
	MayDeny        bool      `yaml:"may_deny"`
	MaySkipBilling bool      `yaml:"may_skip_billing"`
	MaySkipLimits  bool      `yaml:"may_skip_limits"`
	Tiers          []string  `yaml:"tiers"` // allowed tiers; empty: all
}

// OnError is what a request gets when its module fails.
type OnError string

// The choices.
const (
	OnErrorDefault  OnError = "default"   // native defaults
	OnErrorLastGood OnError = "last_good" // the previous generation of the same module
	OnErrorDeny     OnError = "deny"
)

// Options configure the host.
type Options struct {
	CacheDir string   // compiled modules; 0700
	Tiers    []string // names in index order
	Labels   []string // names of attributes 8-15
	Log      *slog.Logger
	Clock    llm.Clock
	Child    []string // argv of the compile child; empty: this executable with its hidden argument
}

// Module is a verified, compiled module; identified by the hash of its bytes.
type Module struct {
	Name    string
	Hash    string // sha-256, hex
	Size    int
	Profile string // small | large
	Schema  []byte // weir.schema section
	About   []byte // weir.about section
	Cases   int    // embedded cases that passed
}

// Binding says which module serves, with which params.
type Binding struct {
	Module  string  `json:"module"`
	Hash    string  `json:"hash"`
	Params  []byte  `json:"params,omitempty"`
	OnError OnError `json:"onError"`
}

// Host runs modules. Decide is the hot path; everything else is the control plane and serialised inside.
type Host struct{}

// NewHost starts the runtime. Close stops it.
func NewHost(o Options) (*Host, error) { panic("skeleton") }

// Close releases every instance and module.
func (h *Host) Close() { panic("skeleton") }

// Add verifies raw bytes in a killable child, compiles them and runs their cases; the same bytes again are a no-op.
// A refusal is a *llm.Error of KindInvalid that names the cap, the function and the number. Nothing is active yet.
func (h *Host) Add(ctx context.Context, name string, wasm []byte, profile string) (Module, error) {
	panic("skeleton")
}

// Modules lists what was added.
func (h *Host) Modules() []Module { panic("skeleton") }

// Activate instantiates a module with params and swaps it in; nil binding: no module. On error the old one serves.
func (h *Host) Activate(ctx context.Context, b *Binding, env Envelope) error { panic("skeleton") }

// Active is the binding in force.
func (h *Host) Active() (Binding, bool) { panic("skeleton") }

// Decide fills d. It never fails: a module's fault takes its binding's OnError. Safe for concurrent use; f and d
// belong to the caller.
func (h *Host) Decide(f *Facts, d *Decision) { panic("skeleton") }

// Stats are counters since the start.
type Stats struct{ Calls, Abstained, Traps, OutOfFuel, BadResponse, Exhausted, Clamped, Swaps uint64 }

// Stats reads the counters.
func (h *Host) Stats() Stats { panic("skeleton") }

// IsChild reports that this process was started as the compile child, and runs it; main and TestMain call it first.
func IsChild(args []string, in io.Reader, out io.Writer) (ran bool) { panic("skeleton") }
