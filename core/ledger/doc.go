// Package ledger records what happened: durable entries behind one owner goroutine with natural group commit,
// replay and recovery, the documents of the control plane, usage records and the audit chain.
//
// # The invariant
//
// The limiter decides in memory; the ledger makes the decision outlive the process. What it promises:
//
//  1. The log is one sequence. An entry is acknowledged only when it and everything before it are durable.
//  2. A reservation is closed by exactly one entry, the first in log order. A later one changes nothing and is told
//     so (already_settled, already_voided).
//  3. The totals in the store (credits and posted per user, used per key and period) are written in the same batch
//     as the entries they follow from, so no crash can separate them; Verify re-adds them from the first entry.
//  4. A reservation whose write was reported as failed is never open, neither in memory nor in the log.
//  5. An ending is never refused and never lost while the process lives: it is written again until it is written.
//
// # The operation
//
//	Append (any goroutine):            queue.mu { full or down? refuse; copy the entry; ticket++ }  wake the owner
//	owner (the only writer):
//	    queue.mu { take everything }
//	    for each group of at most 256:
//	        fold every entry into a sheet of books laid over the real ones      (no lock: the owner's alone)
//	        batch = one chunk of the log + the totals the sheet touched
//	        store.Apply(batch)                                                 (no lock)
//	        written: merge the sheet; acks.mu { advance, pick the waiters }; wake each
//	        failed:  throw the sheet away; tell reserves and changes "failed"; fold the rest again, for ever
//
// Groups are natural: while one is written the next gathers in the queue, so a lone request waits for nobody and a
// busy ledger writes hundreds at once. Two slices change places between the callers and the owner, so nothing is
// allocated per entry on the request path. A waiter is woken once, with the decision, when its own ticket is decided;
// one timer ends the waits that take too long.
//
// # A store that fails, or does not answer
//
// A write or a sync that fails refuses new reserves and changes at once, and those in the queue; it is tried again until
// it succeeds, which is what takes requests in again. One that does not return gives no error, and the owner (under
// "process": the syncer) is stuck in it. When it has taken stall_ms (2 s), new reserves and changes are refused as well,
// until it returns. Those that were in the queue by then wait settle_timeout_ms for their acknowledgement, as any; under
// "process" writes go on and are acknowledged while a sync hangs. Endings and progress are always taken, into memory,
// which those of the requests in flight bound. A change that is being written has no answer before the disk has: nobody
// knows whether it counts.
//
// # Restart
//
// An open reservation is in the last few thousand entries (its reserve and every progress), or it is saved under a key of
// its own, written when its reserve left those and again when its newest progress did; the newest chunk says where that
// tail begins. So a start reads the totals, the saved ones and the tail, however long the log is.
//
// The recovery rule: what a start finds open is settled before anyone is served. It counts as sent, because nobody can
// know any more. It is charged its input tokens and the output of its last progress, at the price it was made with;
// status partial, flagged estimated; nothing when it was not billed. State.Recoveries lists each with its reason.
//
// # What a crash can cost
//
// Under "process" a killed process loses nothing that was acknowledged. A power cut, and a crash of the kernel, can
// lose what was acknowledged in the last 100 ms and the time that one sync takes: the log then ends earlier, at an entry,
// and everything before it is there. While a sync takes longer than stall_ms, no reserve and no change is taken; what it
// may still cost then is the endings of requests that were open. Under "power" a power cut costs no more than a kill.
// (On a database, a power cut is one that ends this process and the server; see store/postgres.)
// What was not acknowledged may be there or not:
//
//	reserves           of requests whose clients have seen no byte
//	progress           since the last entry, so up to 256 tokens or 1 s of each stream: the house pays for them
//	endings            whose clients have not seen the end; they are charged by the recovery rule instead
//
// # Periods of budgets
//
// A reserve carries the labels of its key's periods, and what it costs goes there whenever it ends. No label comes back, so
// no period is had twice. What follows from that:
//
//   - A month is counted always. A week and a day are counted in the reserves that were made while the key had a limit for
//     them: the first period does not have what was spent before, so it may cost up to one limit beside that. A limit that
//     is taken away and set again on the same terms goes on from what was counted; on others it is a new budget.
//   - Another anchor or zone of a budget holds from the end of the period in force. Where that lies within a period of the
//     new terms with the same label, that one goes on (a month moved from the 1st to the 15th ends up to 27 days later, on
//     one limit; a day moved from 0 to 6 hours lasts 30); else a shorter one comes between, with a limit of its own.
//   - A key has one zone, for its policy facts as well: another one holds for all budgets that have none of their own from
//     the end of the key's month. The day or week that is in force by then ends by the new zone's clock.
//
// # Two steps, and what a kill between them leaves
//
//	a request
//	  limiter holds            | reserve queued            nothing: the hold was memory
//	  reserve queued           | reserve written           nothing: it may have been sent, and the house pays
//	  reserve written          | reserve acknowledged      open: the input is charged, though nothing may have been sent
//	  reserve acknowledged     | first byte to client      open: the input is charged
//	  bytes to client          | progress queued           open: input and the progress before
//	  progress queued          | progress written          the same
//	  progress written         | settle queued             open: input and this progress
//	  settle queued            | memory freed              the same: the queue was memory
//	  memory freed             | settle written            the same
//	  settle written           | settle acknowledged       settled: the cost is charged, once
//	  settle acknowledged      | last byte to client       settled
//	  void queued              | void written              open: the input is charged, though nothing was owed
//	  void written             | (anything)                voided: nothing is charged
//	a top-up, a raised limit: the store first
//	  change queued            | change written            nothing: its caller has no answer, and repeats it with its key
//	  change written           | answered                  it counts; repeated with its key, it gives the stored answer
//	  answered                 | memory raised             it counts: the start reads it
//	a cut: memory first
//	  memory lowered           | change queued, written    nothing: its caller has no answer
//	  change written           | answered                  it counts
//	a start
//	  epoch written            | recovery written          open, as before: the next start settles them
//	  some recoveries written  | the rest written          the next start settles the rest
//	  recovery written         | synced                    settled; after a power cut, settled again from the same entries
//	a Prune
//	  copies written           | head written              copies without a head: passed over, deleted by the next Prune
//	  head written             | chunks deleted            chunks before the base: passed over, deleted by the next Prune
//	a Restore
//	  marked                   | verified, unmarked        not opened: restore_unfinished
//	under "process", with a power cut, wherever above
//	  written                  | synced                    as if it had not been written
//
// A batch (one line each of "written") is one transaction of the store: a chunk, the totals it changed, its time keys.
//
// # The store, for other programs
//
// Keys begin with a letter; <numbers> in them are 8 bytes, labels 4, big-endian; text is as it is.
//
//	a <line>                  audit line
//	b 0                       the base (see base.go), when the log has lost its beginning
//	b 1 <first entry> <key>   copies that belong to it
//	d <kind> 0 1 <number>     document with a number, or d <kind> 0 2 <id>: with a name
//	i <idempotency key>       stored answer
//	l <first entry>           chunk of the log
//	m <name>                  epoch, currency, audit, restoring
//	n <kind>                  next free document number
//	o <reservation>           open reservation, saved
//	q <key> <label>           used in a period: a month is 202611, a week its first day (2026334), a day 20261130
//	t <unix second> <chunk>   that chunk has endings of that second
//	u <user>                  credits, posted
//	w <key> <window>          alerts told; the window is one byte: 0 month, 1 week, 2 day
//
// Values begin with the byte 1, the version (documents: 1 live, 0 deleted; "currency": no version). Varints are those of
// Protocol Buffers: "varint" is zig-zag, "uvarint" is not. Amounts are in millionths of the currency's unit.
//
//	u                         varint credits, varint posted
//	q                         varint used
//	n, m epoch                varint
//	w                         varint label of the period, varint largest share told, in percent
//	m audit                   varint number, 32 bytes hash of the newest line
//	b 0                       varint first entry, varint number of copies, 32 bytes SHA-256 over each copy:
//	                          uvarint length, key (without b 1 <first entry>), uvarint length, value
//	o                         entry (the reserve), entry (its progress), both told from the empty entry
//	d                         the document
//	i                         varint unix ms until which it is kept, 32 bytes request hash, answer
//	a                         32 bytes hash, 32 bytes hash of the line before, content; hash = SHA-256 of the latter two.
//	                          content: uvarint number, varint unix ms, then actor, action, target, idempotency key,
//	                          before, after, each with its uvarint length
//	l                         uvarint first entry, uvarint number of entries, uvarint chunk at which the tail begins, entries;
//	                          after a settle or void comes the reserve that it ends
//
// An entry is 1, kind (1 reserve, 2 progress, 3 settle, 4 void, 5 credit), 4 bytes little-endian mask, fields. Bit n of
// the mask says that field n differs from the entry it is told from: the one before of the same kind in the chunk, for a
// reserve behind an ending the one before in such a place, the empty one when there is none. A field that differs is a
// varint difference (wrapping at 64 bits), a text with its varint length, or for a flag nothing: the bit turns it over.
//
//	0 stream (flag)      7 unix ms           14 price of input            21 input tokens
//	1 estimated (flag)   8 org               15 of cached input           22 cached ones of them
//	2 billed (flag)      9 user              16 of cache writes           23 written to the cache of them
//	3 endpoint          10 key               17 of output, per million    24 output tokens
//	4 status            11 label             18 per request               25 HTTP status
//	5 reservation       12 model (text)      19 held                      26 latency, ms
//	6 request id        13 channel (text)    20 cost, or credit delta     27 first byte, ms
//	28 label of the week                     29 label of the day
//	30 service tier (text)
//
// A reader that meets a bit it does not know has met a newer version. To read a running ledger, take a backup of it
// (see backup.go for its format).
//
// The balance of a user is credits - posted - held, where held is the sum over open, billed reservations. Credits is the
// sum of all credit entries, posted of the costs of all settles (a void, a status of refunded or failed and a
// reservation that is not billed cost 0), used the same per key and label, for each of a reserve's labels that is not 0.
// Of two endings of a reservation only the first is in the log.
//
// # Rejected
//
// One transaction per request: a hot user becomes a hot key, and an optimistic store spends its time on conflicts
// (2,000 a second with 55 retries each). One key per entry: a hundred times the index for the same bytes; entries
// are packed by group, and usage records are found through a time index that has one key per group and second.
package ledger
