package limit

import (
	"context"

	"github.com/weir-gateway/weir/core/llm"
)

// Reservation is a handle on one open hold. It is a value: copying it is free, and a stale copy is inert. Exactly
// one ending settles it, whichever comes first; every other call after that does nothing. Progress is reported as
// it happens, so that any ending (a deferred Release, a panic, a Close, the sweep) charges what is truly owed.
type Reservation struct{}

// ID is the ledger's number of the hold.
func (r Reservation) ID() uint64 { panic("skeleton") }

// Seq is the ledger entry of the hold: no byte may reach the client before it is acknowledged.
func (r Reservation) Seq() uint64 { panic("skeleton") }

// Granted is the output bound that was held, after clamping: the cap to send upstream.
func (r Reservation) Granted() llm.Tokens { panic("skeleton") }

// Tightest is the QPS and the TPM dimension with the least left, for the rate headers: limit, remaining and
// milliseconds until it is whole again. ok is false where nothing is limited.
func (r Reservation) Tightest() (requests, tokens Rate) { panic("skeleton") }

// Rate is one pair of rate headers.
type Rate struct {
	OK        bool
	Limit     int64
	Remaining int64
	ResetMS   int64
}

// Sent records that an attempt through channel began to write: from here on the input is owed.
func (r Reservation) Sent(channel string) { panic("skeleton") }

// Refused records that the attempt ended without a first byte or with an upstream 4xx: nothing is owed again.
func (r Reservation) Refused() { panic("skeleton") }

// Relayed records the output tokens passed to the client so far (a running total). What exceeds the hold is
// posted into the present slot at once.
func (r Reservation) Relayed(total llm.Tokens) { panic("skeleton") }

// UsageKnown records the provider's own usage; it replaces estimates in any later ending.
func (r Reservation) UsageKnown(u llm.Usage) { panic("skeleton") }

// Answered records the HTTP status the client is told.
func (r Reservation) Answered(status int) { panic("skeleton") }

// Extend adds dimensions (an attempt's channel) and output (a top-up in mid-stream), all or nothing.
func (r Reservation) Extend(ctx context.Context, dims []Dim, output llm.Tokens) (*Denial, error) {
	panic("skeleton")
}

// Shrink drops the dimensions added by the last Extend: the attempt failed and its channel is free again.
func (r Reservation) Shrink() { panic("skeleton") }

// Move hands the hold to another owner: the returned handle is live, r becomes inert.
func (r Reservation) Move() Reservation { panic("skeleton") }

// Commit ends a complete answer. u is the provider's usage when reported, else the counted text.
func (r Reservation) Commit(u llm.Usage, reported bool) Settlement { panic("skeleton") }

// Release ends the hold at whatever progress it has; the net for every exit.
func (r Reservation) Release() Settlement { panic("skeleton") }
