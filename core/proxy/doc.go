// Package proxy is the client listener: the walk of one request, the stream relay, and the one place where errors
// become HTTP.
//
// # The walk, and who owns the hold
//
// A request is one call (call.go), and the walk (serve.go) is one function: each line calls down, takes a value back
// and passes it on. No value travels in a context, and nothing calls back but upstream.Do, which tells attempts.go of
// each attempt. What must hold, whatever the line at which a request ends:
//
//  1. A hold has exactly one owner, and the owner has already arranged for its end when it gets it.
//  2. No byte reaches the client before the ledger has acknowledged the hold, and no last byte before it has
//     acknowledged the settlement. So nobody can have a whole answer that was not recorded.
//  3. A client that has left is noticed while we wait for the upstream, and the upstream call is cut; it is never
//     counted against a channel.
//  4. A call goes back to the pool when its answer is over, which for a stream is the relay's Close, and the watch has
//     stopped by then. What it was admitted and sent by, a stream gives back when it begins.
//
// With the owner of the hold on the right:
//
//	handle     take a call; defer finish                                     nobody
//	  dispatch   route by the raw path, look over the raw headers            nobody
//	  walk       resolve, storm, decode what is coded, scan,
//	             find the model, measure, price, decide                      nobody
//	             Reserve: all of the claim or none of it                     walk
//	             defer Release: from here every exit settles, a panic too    walk, through the defer
//	    forward    send: Do, under the watch; each attempt extends the
//	               hold by its channel and shrinks it when it fails; of a
//	               stream the first event is part of the attempt             walk
//	               wait for the hold's ledger entry                          walk
//	      passOn     an upstream's 4xx: nothing is owed, Release voids       walk
//	      answer     Commit(usage); wait for its entry; write                ledger: settled
//	      stream     Move to the relay; the deferred Release finds an
//	                 inert handle                                            relay
//	  finish     recover; close the upstream; conclude; pool (not a stream)  nobody
//	relay      step: read what has come, count it, Relayed; or, after
//	             a while of nothing, a sign of life                          relay
//	             at the terminal event: Commit, wait, let it go              ledger: settled
//	           Close: Release, for every other ending                        ledger: settled
//
// A refusal by a rate (denial.go) says in retry_after_ms when to come back. Where waiting that long is not known to be enough,
// retry_after_exact is false beside it, else it is absent: for concurrency, which ends when others do; for the limits of
// channels, and for channels that are full or asleep, of which the next attempt may meet others; for the cheap look at a
// storm, which tests nothing but the key's requests per second; and for a request larger than the limit.
//
// fasthttp calls WriteTo and then Close in the connection's goroutine, after handle has returned; Close comes after the
// last flush and so is too late to settle a complete answer, which is why the terminal event is withheld in step.
//
// Which ending costs what is not decided here. The hold knows its progress (Sent, Relayed, UsageKnown, Refused) and
// limit's table of endings does the rest; forgetting a case here can at worst charge what was truly relayed.
//
// Rejected: middleware around handlers (the hold would travel in a context, and each layer would have to know how the
// next one ends); SetBodyStreamWriter (a goroutine and a pipe per stream, and an error of the client that nobody sees);
// settling in a callback after the response (too late: the client already has the answer when the ledger fails);
// net/http (three times the CPU per request).
package proxy
