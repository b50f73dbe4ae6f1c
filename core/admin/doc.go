// Package admin is the operator's API on its own listener: objects, limits, money, policies, tenants, usage, audit,
// health, metrics.
//
// # The invariants
//
// The type that owns them is API.
//
//  1. What serves is what the documents say: Restore over the ledger's documents gives the state the live API has.
//     The policy host alone may run ahead, when it takes a failing module out of service: its events are written down
//     after it, and a change in between builds on what the host has.
//  2. A change is answered only when it is durable. A change that fails, for whatever reason, changes nothing.
//  3. Changes happen one at a time. Each is one ledger.Put: its documents, its money and its audit line, or none.
//  4. No prefix of the ledger shows an overdraft by admission: top-ups and raised quotas are durable before memory
//     knows them, cuts are in memory before they are durable (and are taken back when they cannot be written).
//  5. Secrets leave once. A key's text is in the answer that made it and nowhere else; a channel's credential is
//     never in an answer, and neither is in the audit chain.
//
// # A change
//
//	read the whole body, at most its limit         nothing is held
//	take the turn (a channel with one slot)        waits at most as long as its client does
//	    idempotency key known?                     the stored answer, word for word; other request: 409
//	    check against the state and build the new objects, a catalog, a module: any error ends here
//	    cut? memory first
//	    ledger.Put                                 not cancelled by the client: a half-known result helps nobody
//	    apply to directory, catalog, limiter, policy host: cannot fail
//	give the turn back; answer
//
// Reads take no turn: directory and limiter have their own locks, models, channels, policies and settings are
// immutable views behind atomic pointers.
//
// # Why a turn and not a mutex
//
// The change must stay serialised over the write to disk, and no lock here is held over I/O: a client that waits for
// a channel can give up, one that waits for a mutex cannot. Rejected: an owner goroutine with a queue of closures (one
// more goroutine to end, stack traces that stop at the queue, the same order), and optimistic versions per document
// (a change touches several objects at once, and operators are few).
//
// # Versions of policies
//
// A version is a module's bytes, its params and what happens when it fails: a binding. An owner (the operator, an org) has
// one in force, at most one on trial, those that were in force before, in order, and those that were withdrawn:
//
//	upload -> shadow -> canary n % -> active        activate: what was active goes to history
//	            withdrawn <- rollback   rollback -> the newest of history is active, what came after it is withdrawn
//
// So a rollback never leads to something that was rolled back from, by hand or by the host, unless it is named. Rejected:
// one list and a pointer into it (after a rollback and a new version the step back leads to the bad one again).
//
// An org's rules are the params of its module and a version like any other. What an org asks for is proved before its turn
// is taken, and only so often: children that try params are the dear part of the control plane.
//
// # Configuration and API
//
// Seed remembers, per object, the hash of what it wrote. An object that still has that hash is the configuration's
// and follows it; any other was changed (or deleted) through the API, and stays so until Seed is told to overwrite.
package admin
