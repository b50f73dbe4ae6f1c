package policy

import (
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
// in 1/1000 and never 0. Dims beyond N are not part of it.
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
	Fault                         string // why the module did not decide and on_error did; empty: it did

	// Defaults: the configured default dimensions are tested as well as Dims. Set when the operator's module left them
	// as configured and an org's module adds its own.
	Defaults bool
	// Canary: the candidate decided.
	Canary bool
	// Tenant is the part of the caller's org's module; Module is empty when none took part. When it is what denies,
	// Module, Version, Reason and Message above are its own too.
	Tenant TenantPart
	// Envelope is what bounded the decision: Limit clamps absolute limits with it. Never nil after Decide; shared,
	// read only.
	Envelope *Envelope
}

// TenantPart is what an org's module did to a decision.
type TenantPart struct {
	Module  string
	Version string
	Reason  uint16
	Message string
	Fault   string // why it did not decide and its on_error did
	Clamped bool   // it asked for more than its envelope
	Canary  bool   // its candidate decided
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

// Envelope bounds what a module may do; anything beyond is clamped, natively, after the module. The zero value
// allows least: in the three multipliers 0 stands for 1000.
type Envelope struct {
	MaxMultiplier  uint32    `yaml:"max_multiplier"` // 1/1000, QPS, TPM and quota
	MaxBurst       uint32    `yaml:"max_burst"`      // 1/1000
	MaxOverdraft   llm.Micro `yaml:"-"`
	MaxCustomDims  int       `yaml:"max_custom_dimensions"` // the first ones stay
	MinPrice       uint32    `yaml:"min_price_multiplier"`  // 1/1000
	MayDeny        bool      `yaml:"may_deny"`
	MaySkipBilling bool      `yaml:"may_skip_billing"`
	MaySkipLimits  bool      `yaml:"may_skip_limits"`
	MayDropKey     bool      `yaml:"may_drop_key"` // false: the key dimension is tested whatever a module picks
	Tiers          []string  `yaml:"tiers"`        // allowed tiers; empty: all
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

	// DefaultDims are the kinds of the configured default dimensions: what a decision without dimensions tests, so that
	// a module which names them changes nothing. Empty: key, model, global.
	DefaultDims []uint8
	// TierLimits gives the configured limits of a tier by its index, 0: unlimited. With it an org's module is told the
	// right limits where the operator's has picked another tier. Called on the hot path.
	TierLimits func(tier int) (qps, tpm int64)
	// TenantBytes bounds the memory of the instances of orgs' modules together; the least recently used go. 0: 256 MiB.
	TenantBytes int64
	DecisionLog DecisionLog
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

// Binding says which module serves, with which params. An empty Hash stands for the version of Module added last.
type Binding struct {
	Module  string  `json:"module"`
	Hash    string  `json:"hash"`
	Params  []byte  `json:"params,omitempty"`
	OnError OnError `json:"onError"`
}

// Stats are counters since the start. Calls counts those that reached an instance; Quarantined counts generations.
type Stats struct {
	Calls, Abstained, Traps, OutOfFuel, BadResponse, Exhausted, Clamped, Swaps uint64
	GuestErrors, Quarantined, LogsDropped                                      uint64

	Compared, Changed                 uint64 // candidates' decisions
	Rollbacks, Dropped, EventsDropped uint64 // plans the host changed: active ones, candidates; events nobody read
	Logged, LoggedDropped             uint64 // lines of the decision log
	Tenants, TenantsLive              uint64 // orgs with a plan, and with instances now
	TenantBytes                       int64  // of their instances now
	TenantBuilds, TenantEvictions     uint64
	TenantCold                        uint64 // calls that took an org's on_error because its instances were not ready
	TenantClamped                     uint64 // decisions where an org asked for more than its envelope
}
