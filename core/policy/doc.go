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
//     faulted never decides again.
//  4. A decision is the module's whole answer, every field checked, clamped by the envelope; or what the binding
//     says for a fault. It is never half of one, and Decide never fails.
//  5. A generation that was swapped out is closed only after its last call has ended; its code only after the last
//     generation of the same bytes.
//
// # A call
//
//	Decide(f, d):
//	    g := current                          one atomic load; nil: native defaults
//	    slot := some slot of g, CAS free -> busy
//	                                          any dead: g was swapped out meanwhile, start again
//	                                          none: yield, at most 128 times, then on_error
//	    write f into the guest's request      fixed offsets, into memory that never moves
//	    fuel := budget; weir_decide()
//	    read d from the guest's response      every field in range, or the answer is bad
//	    clamp d by the envelope
//	    slot := free; after a fault broken, and the mender makes it a new instance off the path
//
// No lock is taken and nothing is allocated. Slots are an array of 2 x GOMAXPROCS + 2: more calls than processors can
// hold one at a time only when goroutines lose their processor in the middle, which happens once in some 10,000.
//
// # A reload
//
//	Add:      caps, ABI, meter -> child: compile, start code, cases -> remembered
//	Activate: child: schema, weir_configure (unless it has accepted the same configuration before)
//	          load code from the cache, fill every slot, configure   on error nothing has changed
//	          current := new
//	          each old slot free | broken -> dead, waiting for busy ones; close instances; release code
//
// The control plane is one token (Host.turn), not a mutex, because its holder waits for a child.
//
// # Rejected
//
// A sync.Pool of instances: what the collector drops is never closed and its memory never unmapped. A mutex and a
// free list: 60 ns on the path and a convoy when a holder is descheduled. wazero's WithCloseOnContextDone: 5 to 11
// times dearer per call, and it does not stop exponential calls without loops. A reference count beside the slots:
// one contended cache line for all processors. Compiling in process under a time limit: goroutines cannot be killed.
package policy
