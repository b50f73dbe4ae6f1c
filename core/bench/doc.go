// Package bench is `weir bench`: how fast is Weir with everything on, beside a proxy that does nothing, on this machine,
// in this minute. An absolute number of one machine says little of another, and the same machine swings by a factor of two
// within an hour; so what is measured is ratios.
//
// # The rig
//
// Each of these is its own process, and all share the cores with the driver, which is this process:
//
//	sim       the simulated upstream
//	direct    the driver asks it without anything between: the ceiling of the rig
//	nginx     proxy_pass, a worker for each core; where it is installed
//	bare      a fasthttp reverse proxy of forty lines (bare.go)
//	process   Weir: a key, the shipped policy, requests, tokens and concurrency in three dimensions, a balance, a month's
//	          quota, a usage record of each request; the ledger at durability process
//	power     the same at durability power
//
// # The rounds
//
// Every round gives each target one lap of each kind, and the next round begins with the next target, so that a slow minute is
// everybody's:
//
//	buffered  64 connections, as fast as answers come: a chat of 1 kB, an answer of 600 bytes
//	streamed  the same with streams of about 50 events
//	rate      500 requests a second: what is added to the time of an answer
//	delay     eight streams whose events say when they were written: what is added to the first event, and to each
//
// A ratio is the median over the rounds of the two laps' ratio, and not the ratio of medians: laps of one round shared their
// minute. The same holds for what is added.
//
// # What does not count
//
// A run is void when any request failed, when the bare proxy reached less than 0.75 of nginx (then the rig measures something
// else), or when others took more than 0.3 of a core. The arithmetic, the aims and that verdict are pure functions of the laps
// (result.go). CPU and memory are read from /proc: elsewhere than on Linux they are not measured.
package bench
