package limit

import (
	"context"
	"time"
)

// Shared are the rate windows that several gateways share, on a server with a clock of its own. A dimension is shared in
// one of two ways: exactly (Take, End, Beat), where each request asks the server, or by loans (Borrow), where a gateway
// spends in memory what it was lent. All calls are one round trip, return at the latest when ctx ends, and are safe for
// concurrent use; an error means that the server may or may not have done what was asked. Sending a call again changes
// nothing more: holds and loans have names.
type Shared interface {
	// Take tests all asks of an order and charges all of them or none. The dimensions of one order belong to one org.
	Take(ctx context.Context, o *Order) error
	// End settles holds: each dimension comes to its Tokens, newest charge first, as charge.endLocked does it here, and its
	// concurrency is free. A hold that is not known (never made, ended, dead) is nothing to do.
	End(ctx context.Context, endings []Ending) error
	// Beat keeps open holds alive: a hold unheard of for HoldLife has lost its gateway, and its concurrency is free. One that
	// the server does not know, as it was restarted or away, is open from here on, but for what its windows have lost. What
	// Tokens are above what was charged is charged to now, whether or not it fits; nothing is taken back.
	Beat(ctx context.Context, endings []Ending) error
	// Borrow gives back what is left of earlier loans and takes new ones, each exchange by itself.
	Borrow(ctx context.Context, exchanges []*Exchange) error
	// Ping tells whether the server answers.
	Ping(ctx context.Context) error
}

// The life of a shared hold's concurrency.
const (
	HoldLife  = 15 * time.Second
	BeatEvery = 5 * time.Second
)

// HoldID names one hold among all gateways: Gateway is another number for each process.
type HoldID struct{ Gateway, Number uint64 }

// Bound is what a rate is tested against.
type Bound struct {
	Most int64 // in one window; 0: unlimited
	Ten  int64 // in ten windows; 0: not tested. The history of ten windows begins with the first ask that has one
	Rate int64 // what a token bucket drains per window
}

// Order is one all-or-nothing step over the exactly shared dimensions of a hold.
type Order struct {
	Hold HoldID
	Part uint32 // 0 makes the hold, each higher number is one top-up of it; a part that was taken already is answered as admitted, and not charged again
	Org  uint64 // whose dimensions these are: they are one shard of the server
	Dry  bool   // test only
	Asks []Ask

	Admitted bool // out
}

// Ask is one dimension of an order.
type Ask struct {
	ID          ID
	QPS, TPM    Bound
	Concurrency int64 // limit; 0: unlimited
	Requests    int64 // 1; 0 for a top-up, which tests neither QPS nor concurrency
	Tokens      int64
	Loose       bool // charged, never refuses

	// Out: which meters refuse, what was in use before this order, and how long until it fits, in whole microseconds
	// (where it fits: until nothing is in use). Tokens larger than TPM.Most wait a whole window.
	QPSFull, TPMFull, OpenFull bool
	QPSUsed, TPMUsed, Open     int64
	QPSWait, TPMWait           time.Duration
}

// Ending is the end of one hold, or for Beat a sign of its life and what it has come to so far.
type Ending struct {
	Hold     HoldID
	Org      uint64
	Open     bool // for Beat, which keeps it; of an End it is false
	Withdraw bool // as if it had never been: its requests go, too
	Beaten   bool // it is old enough for signs of life, of which one may come after its end
	Dims     []EndingDim
}

// EndingDim is what one dimension of a hold comes to.
type EndingDim struct {
	ID     ID
	Tokens int64 // in all, weighted
}

// Exchange is one dimension's loans: requests, tokens and concurrency. What is lent counts as used until LoanLife after
// the call and a window, whether or not it is spent; so no more than a limit is ever admitted by all gateways together.
type Exchange struct {
	ID          ID
	Gateway     uint64
	Number      uint64 // of this exchange, for this dimension and gateway; the same as in the last one is that one, sent again. 0 names none
	QPS, TPM    Bound
	Concurrency int64 // limit; 0: unlimited

	Back []Back // of earlier loans: not spent, or taken back

	// What was spent beyond all loans, by running answers or past a server that was late: charged to now, whether or
	// not it fits, before anything is lent.
	DebtRequests, DebtTokens int64

	// What is asked: at least Need, at most Want. A grant is between them, or 0 where Need does not fit; it shrinks as the
	// limit comes near: no more than a part of what is free goes to one gateway, unless it is needed at once.
	NeedRequests, WantRequests int64
	NeedTokens, WantTokens     int64
	Open, WantOpen             int64 // concurrency that is in use here, and that is wanted in all

	// Out.
	Requests, Tokens         int64 // lent
	RequestsSlot, TokensSlot uint64
	OpenMost                 int64         // how much concurrency this gateway may have in all, for HoldLife
	QPSUsed, TPMUsed         int64         // by all gateways, what was lent just now included
	OpenUsed                 int64         // by all other gateways
	QPSWait, TPMWait         time.Duration // where Need did not fit: until it does
	For                      time.Duration // how long from before the call the loans may be spent
}

// LoanLife is how long a loan may be spent at most. What it wastes is what was lent and not used: at most LoanLife of
// LoanLife + window.
const LoanLife = 100 * time.Millisecond

// Back is a part of a loan that goes back into the slot it came from.
type Back struct {
	Tokens bool // else requests
	Slot   uint64
	N      int64
}
