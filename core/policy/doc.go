// Package policy hosts WebAssembly policy modules: verify, meter, compile in a child, pool, run under fuel. A module
// is a pure function (facts, params) -> decision; sdk/abi is what host and guest agree on.
//
// # What holds
//
//  1. No guest code runs longer than its fuel lasts, and none of it before the meter is in. The fuel is compiled into
//     the module (meter), because native guest code cannot be preempted and blocks the collector's stop-the-world:
//     a deadline would freeze the process it is meant to protect.
//  2. No compiler, schema validator or start code sees a stranger's bytes in this process before a child that may be
//     killed has survived them. Code enters the process only from the cache the child filled (cacheStore.load).
//  3. A call owns its instance: the slot's one CAS free -> busy is lock and reference count at once. An instance that
//     faulted never decides again, and no instance ever serves two owners.
//  4. A decision is the modules' whole answers, every field checked, merged and clamped by the envelopes; or what a
//     binding says for a fault. It is never half of one, and Decide never fails.
//  5. What an org's module answers can make the operator's decision stricter, and looser only where the envelope of
//     orgs says so (merge).
//  6. A generation that was swapped out is closed only after its last call has ended; its code only after the last
//     generation of the same bytes.
//
// # A call
//
//	Decide(f, d):
//	    ask the operator's lane               d: its answer, clamped
//	    ask the lane of f's org, if it has one, with f as d leaves it
//	                                          d: merged with its answer, clamped
//
//	ask(lane):
//	    fork := current                       one atomic load; no module: native defaults
//	    slot := some slot of its active generation, CAS free -> busy
//	                                          any dead: it was swapped out meanwhile, start again
//	                                          none: yield, at most 128 times, then on_error
//	    write f into the guest's request      fixed offsets, into memory that never moves
//	    fuel := budget; weir_decide()
//	    read the guest's response             every field in range, or the answer is bad
//	    slot := free; after a fault broken, and the mender makes it a new instance off the path
//	    a candidate: the same with its generation, and compare (question.both)
//
// No lock is taken and nothing is allocated. Slots are an array of 2 x GOMAXPROCS + 2: more calls than processors can
// hold one at a time only when goroutines lose their processor in the middle, which happens once in some 10,000. Orgs
// are many and call rarely: theirs begin with one instance, made when the first call waits for it (Host.warm).
//
// # A change of plan
//
//	Add:   caps, ABI, meter -> child: compile, start code, cases -> remembered
//	Plan:  child: schema, weir_configure (unless it has accepted the same configuration before)
//	       load code from the cache, fill slots, configure        on error nothing has changed
//	       lane.current := a new fork                             what decides as before keeps its generation
//	       each old slot free | broken | empty -> dead, waiting for busy ones; close instances; release code
//	fault: 8 and more than 5 % of calls in 10 s -> the keeper puts the fork without that generation in force
//
// The control plane is two tokens and no mutex, because their holders wait: Host.trial for whoever runs a child, and
// under it or alone Host.turn for whoever changes lanes, generations and code. So a rollback never waits for a child.
//
// # Rejected
//
// A sync.Pool of instances: what the collector drops is never closed and its memory never unmapped. A mutex and a
// free list: 60 ns on the path and a convoy when a holder is descheduled. wazero's WithCloseOnContextDone: 5 to 11
// times dearer per call, and it does not stop exponential calls without loops. A reference count beside the slots:
// one contended cache line for all processors. Compiling in process under a time limit: goroutines cannot be killed.
// Candidates compared off the path: the facts point into the request's buffers, and copying them costs more than the
// call. An instance for each org from the start: a thousand of them are 100 MB, and most never call.
package policy
