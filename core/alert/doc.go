// Package alert tells an operator's webhook when a key has spent a share of a budget.
//
// # The invariant
//
// The type that owns it is Sender.
//
//  1. No request waits for it: Spent takes one short lock and never does I/O. What does not fit the queue (1,024 alerts) is
//     dropped, logged and counted.
//  2. Each share of a budget is told at most once per period, be the limit changed meanwhile. What was used when the process
//     started counts as told (Began), so a restart repeats nothing; an alert that was still waiting when the process died is
//     not sent, and one that a receiver took without saying so may come twice, with the same id.
//  3. The shares of one period go out in rising order; when one request passes several, each is told.
//
// # The operation
//
//	Spent (any goroutine):  share < the smallest? return
//	    mu { newest period? for each configured share in (told, share]: queue <- notice, or drop; told = share }
//	run (one goroutine):    notice <- queue
//	    POST; 2xx: done; 5xx, 408, 429, no answer: again after 1, 2, 4 ... s, eight times; else: lost, logged, counted
//	Close:                  one last try for each that waits, two seconds in all
//
// # The request
//
// POST of a JSON object: id (the same for every try), type ("budget.share"), at, percent, orgId, userId, keyId, keyName,
// window (month, week or day), period, resetsAt, limitMicroCny and usedMicroCny (in the configured currency). The header
// Weir-Signature is t=<unix seconds>,v1=<hex of HMAC-SHA256 with the secret over the seconds, a dot and the body>. A
// receiver compares in constant time and refuses a t that is minutes old. Redirects are not followed.
//
// # Rejected
//
// A queue on disk: the alert of a share is worth little an hour later, when the next share comes or the key is refused. A
// goroutine per alert: a slow receiver would collect them.
package alert
