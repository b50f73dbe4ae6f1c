// Package alert tells an operator's webhook when a key has spent a share of a budget.
//
// # The invariant
//
// The type that owns it is Sender.
//
//  1. No request waits for it: Spent takes one short lock and never does I/O. What does not fit the queue (1,024 alerts) is
//     left to the budget's next settlement, logged and counted.
//  2. Each share of a budget is queued once per period, be the limit changed meanwhile. A share that a receiver took
//     is made durable (Parts.Told), and a start tells anew how every budget stands. So an alert that was waiting when the
//     process died is sent by the next one, and one that was given up by the budget's next settlement or the next start; one
//     that was taken just before may come twice, with the same id. A receiver drops ids it has seen.
//  3. The shares of one period go out in rising order; when one request passes several, each is told. A share that is told
//     stands for those below it.
//  4. A start compares with the budget's own limit: what a policy multiplies it by is known with a request only.
//
// # The operation
//
//	Spent (any goroutine):  share < the smallest? return
//	    mu { newest period? for each configured share in (told, share]: queue <- notice; told = share }
//	run (one goroutine):    notice <- queue
//	    POST; 2xx: Told; else: again after 1, 2, 4 ... s, eight times; then logged, counted, told as new
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
// A queue on disk: the accounts say what was spent, so what was told is all that has to be kept. A goroutine per alert: a
// slow receiver would collect them.
package alert
