// Package sim is a simulated upstream: one server that speaks OpenAI's and Anthropic's dialects well enough for
// their stock SDKs, answers from a fixed text, and misbehaves exactly as it is asked to. Tests, the demo and the
// benchmarks run against it instead of a provider.
//
// # What is answered
//
//	POST /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/responses     OpenAI
//	POST /v1/messages, /v1/messages/count_tokens                                  Anthropic
//	GET  /v1/models, /v1/models/{id}                                              the dialect of the headers
//	GET  /sim/stats                                                               Stats as JSON
//
// The prefix /v1 may be left out. The body is judged by rules of its own, not by llm.ScanHead: an upstream that
// shares the gateway's scanner could not catch the gateway's scanner being wrong.
//
// # How behaviour is asked for
//
// Later sources win, option by option: Options.Default, the model name's suffix, the x-sim header. Both texts are
// options parted by "," or ";", each "name=value" or "name":
//
//	model name:  gpt-4o-mini+latency=1s,out=120
//	x-sim:       latency=1s; out=120; framing=crlf|bytes
//
//	latency=1s         wait before the answer's head
//	silent=60s         send the head of a stream, then nothing for so long; as latency when buffered
//	pace=20ms          wait between two events
//	out=500            output tokens wanted per choice; a cap in the body still cuts them (finish_reason "length")
//	nocap              ignore the body's caps
//	usage=none|null    report no usage at all, or "usage": null everywhere
//	usage_in= usage_out= cached= cache_write=    report these numbers; usage_in includes cached and cache_write
//	framing=           crlf | cr | bytes | nospace | multiline | comments, joined by "|"
//	batch=n            write n events at once
//	big_event=2MB      one event in the middle carries a text of that size
//	bytes=50MB         the text has that size, in events of about 4 kB
//	status=429         an error of that status, in the dialect
//	retry_after=7      with a status: the Retry-After header, in seconds
//	reset=headers      TCP reset instead of an answer
//	reset_after=10     TCP reset after 10 events; in the middle of the body when buffered
//	hang_after=10      silence after 10 events (half the body when buffered) until the client leaves
//	no_done            leave out the terminal event
//	echo               the text of the answer is the request's body; echo=raw: the answer is the body, byte for byte;
//	                   echo=events: the text of the request's input is a JSON array, and its elements are the stream's events
//	calls=n            n calls of the tools that the request offers, in turn, instead of the text
//	thinking=n         n tokens of thinking first: a block of a message, a reasoning item of a response, a number of a chat
//
// A request that demands a tool (tool_choice) gets a call of it, and one that gives a schema (response_format, text.format,
// output_config.format) a text that fits it, unasked; so do the arguments of a call fit the tool's schema.
//
// # How tokens are counted
//
// Input: a string below messages, system, instructions, prompt, input or tools costs one token for every 4 bytes or
// part of them as written in the JSON; members named role and type cost nothing; a number in an array of tokens
// costs 1; an image or file costs 85. Output: one token for each word or punctuation mark; text of big_event, bytes
// and echo, and the arguments of calls, cost one token for every 4 bytes. Caps cut text alone. The rule only has to be stated: Stats sums the same numbers that the
// answers report, so that a test can compare the gateway's ledger with the upstream's own count.
//
// # The invariants, and who keeps them
//
//  1. No request waits longer than it asked to. A wait ends at its time, when the peer leaves, or at Shutdown.
//  2. A peer that left is noticed at once, in every wait: the connection's owner parks one watcher on the socket
//     (peer.go). It lives from the first wait to the end of the answer, and the answer's end waits for it.
//  3. Every request is counted once when it came and once when it ended: completed, cancelled by the peer, or cut by
//     the simulation itself.
//
// A stream is an io.Reader that the server pulls one event at a time; each Read is one flushed chunk:
//
//	Read:  if the current event is used up:
//	           if reset_after: cut the connection     if hang_after: wait for the peer to leave
//	           wait pace; build the next event from the script (prologue, deltas, epilogue)
//	       copy out the event, or one byte of it
//	Close: (called by the server exactly once, after the last flush or a failed write) count, stop the watcher
//
// Rejected: hijacking the connection and writing by hand. It makes resets easy and everything else untrue: no
// keep-alive, no chunking, no backpressure as a real provider's server has them.
package sim
