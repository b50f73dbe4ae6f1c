package limit

import (
	"context"
	"math"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// Kind is what sort of thing a dimension limits. The numbers are the policy ABI's.
type Kind uint8

// The kinds of dimension.
const (
	Global       Kind = 0
	Key          Kind = 1
	Model        Kind = 2
	User         Kind = 3
	Org          Kind = 4
	Channel      Kind = 5
	IP           Kind = 6
	EndUser      Kind = 7
	KeyModel     Kind = 8
	ModelChannel Kind = 9
	Custom       Kind = 255
)

// MaxDims is how many dimensions one Claim may have: the 16 that a policy may name, and the user and the org, whose own
// limits hold beside any of them.
const MaxDims = 18

// ID names one dimension. Scope is the number of the thing (key, user, org, channel) or the number that
// namespaces Name: the org for end_user and custom, the key for key+model, the channel for model+channel.
// Name may alias a request buffer; the limiter clones it before it keeps it.
type ID struct {
	Kind  Kind
	Scope uint64
	Name  string
}

// Limits are the three rates of one dimension. 0 is unlimited; that is only ever configured, never computed.
type Limits struct {
	QPS         int64 // requests per second
	TPM         int64 // tokens per 60 s
	Concurrency int64 // requests at the same time
}

// Dim is one dimension of a Claim: who, the configured limits, and the limits this request is tested against.
type Dim struct {
	ID        ID
	Base      Limits // as configured; token buckets drain at it, usage-window shows it
	Effective Limits // Base after the decision's multipliers; what is tested and reported
	Burst     uint32 // 1/1000 of Effective; 0 is 1000
	Cost      uint32 // 1/1000 of the TPM amount; 0 is 1000
	CountOnly bool   // charged, never refuses
	Shadow    bool   // CountOnly, and a would-refuse is reported in Claim.Shadowed
}

// NoFloor is the Overdraft of who is not metered: what was charged is counted, and nothing is refused for it.
const NoFloor llm.Micro = math.MaxInt64

// Money is the paid-for half of a Claim.
type Money struct {
	Price     llm.Price // snapshot, already multiplied by the decision; kept until settlement
	Billed    bool      // false: limited, not billed
	Balance   bool      // the user's balance is metered
	Overdraft llm.Micro // how far below zero the balance may go for this request; NoFloor: however far
	Overrun   Overrun   // what becomes of usage beyond the hold
	Calls     llm.Micro // held beside what the tokens cost, for calls of tools; Reservation.Priced tells what they came to

	Quotas [llm.Windows]Quota // of the key; the first without a label ends them
}

// hold is the most that input and output tokens, and the calls beside them, can come to.
func (m *Money) hold(input, output llm.Tokens) llm.Micro {
	return min(llm.AddMicro(m.Price.Hold(input, output), m.Calls), llm.MaxCost)
}

// Quota is one window of what a key may spend, in its present period.
type Quota struct {
	Window   llm.Window
	Label    int32     // the period, e.g. 202611
	Limit    llm.Micro // effective; 0 refuses everything
	ResetsAt time.Time // when the period ends; reported in the denial
}

// Claim is everything one request asks for. All of it is granted or none. A Claim is reused by its owner and is
// not safe for concurrent use; Reserve keeps nothing of it.
type Claim struct {
	Caller    Caller
	Facts     llm.Entry // the descriptive fields of the reserve entry: endpoint, stream, model, request id
	Dims      [MaxDims]Dim
	N         int    // dimensions in use, in the order of reporting
	Unlimited bool   // billed, not limited: the dimensions are charged and never refuse
	Terms     uint64 // another number whenever what the limits come from has changed; for Storm

	Input      llm.Tokens // estimate
	Output     llm.Tokens // upper bound over all choices
	Choices    int        // answers that share Output, which is clamped to no less than 16 tokens for each; 0 is 1
	SoftOutput bool       // the body gave no cap: Output may be clamped down to what limits and balance can hold
	Money      Money

	Shadowed []ID // out: shadow dimensions that would have refused

	denial Denial // what a refusal points to, so that refusing allocates nothing
}

// Caller is who asks, by number.
type Caller struct{ Org, User, Key uint64 }

// Axis is which meter refused.
type Axis uint8

// The axes, in the order in which a denial reports them.
const (
	AxisBalance Axis = iota + 1
	AxisQuota
	AxisConcurrency
	AxisQPS
	AxisTPM
)

// Denial is the limiter's no. It is an answer, not an error.
type Denial struct {
	Axis      Axis
	ID        ID    // the refusing dimension (AxisConcurrency, AxisQPS, AxisTPM)
	Limit     int64 // effective limit, or the quota's limit in micro
	Current   int64 // in use before this request
	Requested int64 // what this request would have added
	TooLarge  bool  // the request alone is larger than the limit: waiting cannot cure it

	RetryAfterMS int64 // the latest of all refusing meters, rounded up; one window where TooLarge; 0 for money
	Exact        bool  // waiting that long is enough and a millisecond less is not; false where it is only a hint

	Required, Available llm.Micro // AxisBalance
	Used, Held          llm.Micro // AxisQuota, and the next two
	Window              llm.Window
	ResetsAt            time.Time
}

// Journal is where holds and settlements are recorded. Append copies *e, enqueues and returns at once, without waiting
// for the disk; the returned sequence is what a caller waits on. An error means that nothing was enqueued.
// The ledger implements it.
type Journal interface {
	Append(e *llm.Entry) (seq uint64, err error)
	NextID() uint64
}

// Limiter answers "may it" for every request. Memory is the implementation within one process; an error means that
// a backend failed and nothing was held, a Denial that the limit said no. A Denial may live in the claim: it is valid
// until the claim is used again.
type Limiter interface {
	Reserve(ctx context.Context, c *Claim) (Reservation, *Denial, error)
	// Peek is a dry run of Reserve: it holds nothing.
	Peek(ctx context.Context, c *Claim) (*Denial, error)
	// Storm is the cheap look: it refuses a key that is in a retry storm before anything is parsed, testing only its QPS
	// at the given limit (the largest the envelope allows) or, where that is less, at the largest bound the key was
	// tested against lately by claims of the same terms. One refusal in 16, but not two within 20 ms, is left to Reserve.
	// Then d says why; its wait is a hint.
	Storm(id ID, limit int64, terms uint64, d *Denial) (refused bool)
	// Inspect reports what a dimension uses now, at all gateways that share it.
	Inspect(ctx context.Context, id ID) (Use, error)
	// Glance is Inspect without a look beyond this process.
	Glance(id ID) (Use, error)
}

// Use is what one dimension's meters hold at this moment.
type Use struct {
	QPS         int64 // requests admitted in the last second
	TPM         int64 // tokens charged or held in the window
	TPMHeld     int64 // the part of TPM that belongs to open reservations
	Concurrency int64
	Storm       bool   // of a key: it is in a retry storm
	Remaining   Limits // what is left of the given limits, when asked through a reservation
}

// Settlement is what an ending came to.
type Settlement struct {
	First  bool // this call was the one that settled; later calls change nothing
	Status llm.Status
	Usage  llm.Usage // what was charged for
	Cost   llm.Micro
	House  llm.Micro // what Usage costs beyond Cost, under Clip: the house pays it
	Seq    uint64    // the ledger entry to wait for; 0 when there is none
}
