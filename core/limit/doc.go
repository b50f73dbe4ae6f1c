// Package limit answers "may it": windows, concurrency, balance and quota, held by one Reservation.
//
// The vocabulary of limiters is check, reserve, commit, release, inspect and peek. Here the request rate (QPS) is
// checked, tokens (TPM) are reserved and then committed or released, and both happen in one step together with
// concurrency and money: Claim -> Reservation | Denial. An error is neither: it says that a backend failed.
//
// # The invariants
//
//  1. All or nothing. A Reserve charges every meter of its claim or none. A refusal leaves no trace that time alone
//     would not have left; there is no undo path, because nothing was done.
//  2. Under the sliding rule no span of a second holds more requests, and no span of a minute more tokens, than the
//     limit of the request that was let in last. With a burst b: limit x b in one window, limit x 10 in ten, counted
//     from the first request that came with a burst.
//  3. A hold lives in the slot of the window it was made in and ages with it. Settling adjusts that slot if it lives,
//     else nothing. What exceeds the hold is charged to now, as soon as it is known, and taken back where it was charged,
//     newest first, when the provider's report is lower than what was counted on the way.
//  4. A reservation is settled exactly once. What it costs is decided by endings, from its progress, and by nothing else.
//  5. Meters store usage; limits come with the request. Changing a limit neither forgets nor invents anything.
//  6. An id has at most one living meter, and a meter is forgotten only when it is as good as fresh, or a past day or week.
//  7. The open table is empty when nobody is being served.
//
// # The operation
//
//	Reserve(claim):
//	    for each dimension: find or make its meter; the same meter twice becomes one ask, the stricter of both
//	    find the meters of the balance and of each quota
//	    lock all meters, in the order of their creation           -- one mutex per dimension
//	        if one is dead (swept): unlock, look up again
//	        read the monotonic clock, once                        -- so all meters see the same instant
//	        clamp an output that the body did not cap             -- to the smallest limit, to the balance
//	        test all; if any refuses: unlock, answer with the first in the order of reporting
//	        charge all, into a slot of the open table
//	    unlock
//	    append the hold to the journal; if it fails, take everything back and return the error
//
//	Commit | Release | Withdraw | panic | leak:
//	    one CAS on (generation, state) of the slot: whoever wins settles, everybody else is inert
//	    endings(progress) -> status, usage
//	    append settle or void to the journal                      -- first, so that freed money is never ahead of its charge
//	    for each meter: lock, adjust, unlock                      -- no atomicity is needed to give back
//	    (Withdraw, of what was never sent: its requests, too)     -- a refusal by a channel is a refusal
//
// Lock order: a slot of the open table (by its state), then index.mu, then meters by creation number, then table.mu.
// The index is never asked while a meter is locked. No lock is held across I/O.
//
// # The design that was rejected
//
// Checking dimension after dimension, each with its own increment, and rolling back what was taken when a later one
// refuses: the rollback is visible to others (a refused request spends their slots for a moment), it must be repeated
// in every early return, and it is the part that peers of this gateway got wrong. One lock for everything was the
// other way: as correct, but every key would wait for every other. Quota as numbers that are passed between hooks is
// why there is a Reservation at all.
//
// # Several gateways
//
// With Options.Sharing the windows of chosen kinds are shared with other processes, on a server that implements Shared.
// Everything else stays: the claim, the order of reporting, the open table, endings. This process's own windows go on
// recording every request it admits, and only the test of a shared dimension is another one:
//
//	exact (within one org):      tested by the server
//	leased (across orgs):        tested against what this gateway was lent, which the server counts as used until the loan's
//	                             end and a window; so all gateways together are never above a limit, and what is wasted is
//	                             what was lent and not spent: at most LoanLife in LoanLife + window
//	while the server is away:    local_share: this process's windows at limit / Gateways; or refuse, or admit
//
//	Reserve(claim):
//	    borrow what loans lack                    -- a round trip, only where a loan is over; renewed before it is
//	    hold here, as above                       -- exact dimensions are charged and not tested
//	    Take the exact ones at the server         -- one round trip, all or nothing
//	        refused: take the hold back, as if it had never been; nothing was recorded yet
//	        no answer: take it back, and decide again here, alone; the server is told of it afterwards
//	    append to the journal
//
//	an ending: here first, as above; then the server is told, in the background, until it hears
//
// So a request is never refused by what it would have been refused by here alone without asking, a refusal leaves no trace
// at either place, and a gateway that dies leaves nothing behind that does not end by itself: its tokens with their slot,
// its concurrency after HoldLife, its loans with their end. A server that is restarted empty has forgotten its windows, as a
// process has. After three failures in a row nobody waits for the server until it has answered three pings. In the first
// window after a switch, and in each while answers keep coming too late, limit and shares together are the most that is
// admitted.
//
// Lock order: remote is guarded by its meter; sharing.lent is asked with at most one meter locked. No lock is held across a
// call; a slot that is busy with an Extend may be, for Timeout.
package limit
