// Package postgres is the store in a PostgreSQL database: a ledger.Store that one process at a time writes.
//
// # What it promises
//
//  1. Apply is one transaction, sent as one pipeline: all of it or nothing. It has three parts: weir_begin, which counts the
//     batch and checks whose the node is; the writes, one statement for each table; the commit.
//  2. When Apply returns, the transaction is committed on the server, and survives the death of the gateway or of its
//     machine. The server flushes it by itself within three wal_writer_delay, 0.6 s.
//  3. When Apply with sync or Sync returns, everything applied before it is flushed, and with synchronous standbys is on those.
//     It survives the death of the server too: of its processes, and, where fsync is on, of its machine.
//  4. What was applied since is kept here until it is flushed. A server that dies and comes back while the gateway lives gets
//     it again, before anything else is written or read: nothing is lost.
//
// So under "process" what was acknowledged in the last 100 ms, and the time of a flush, is lost when gateway and server die
// together (one machine, a power cut) and not when either does; under "power" never.
//
// # An answer that does not come
//
// An Apply whose answer was lost may be there or not. The next connection tells, by the number of the batch, after the session
// before it is known to be over; it is written again at once if it is not there. Where there is no connection to be had, it
// stays in doubt and Apply fails: the ledger writes all of it anew, or something else.
//
// # One owner
//
// The owner holds a session's advisory lock, so that a second process is refused while the first one lives, and told whom it
// met: the lock's session carries host and pid as its application_name. A lock goes with its connection, and a process may
// not know yet that its connection is gone. So the first Apply raises the node's epoch, and every batch is written under
// the epoch and the number that its writer knows, in the transaction itself:
//
//	weir_begin:  UPDATE weir_node SET batch = this WHERE epoch = mine AND batch = the last I wrote   or fail
//
// Who lost the lock and finds another epoch is fenced for good: it can read, and never writes again. The same check finds a
// database that went back by more than a crash takes (a failover to a standby that lagged, a restored copy): there would be
// a gap in the log, so nothing is written until the process starts anew from what is there.
//
// Who only looks raises nothing: `weir ledger verify` between a gateway's connections holds it up and does not fence it.
//
// # A crash that is seen in time
//
//	Sync, Get, Scan:  a connection for reading; one that is new may be so because the server crashed:
//	                  confirm { write.mu: is anything pending? is the owner's connection alive? else session }
//	Apply:            write.mu { session; take the node, once; the batch; keep it unless flushed }
//	session:          a connection is there, or: connect; end the session before; lock; compare epoch and batch;
//	                  write again what the server lost, or flush; nothing is pending then
//
// # A server that is gone, or does not answer
//
// Every call has a deadline (Options.Timeout) and gives an error after it; the connection is given up then, as what came
// later on it could not be told from the answer. The next call connects anew, ends the session before it
// (pg_terminate_backend) and takes the lock again. Sessions have keepalives, so that a server forgets within half a minute a
// machine that is gone.
//
// # Tables
//
// weir_balance and weir_use have the totals as numbers, weir_entry everything else as the ledger encodes it (core/ledger,
// "The store, for other programs"); each row belongs to a node, which is "main" so long as there is one gateway. What can be
// said of the totals whoever writes them, the database says: what was posted or used is not negative, never becomes less and
// is not deleted, and no total hides among the entries. That a balance is not below zero cannot be said: debts, cuts and users
// without a balance are lawful.
//
// # Rejected
//
// Every commit flushed: 8 times the latency of a lone request and a sixth of the throughput, for a promise that "power" makes.
// A statement for each key: 500 a group. Ids as numbers: the ledger's are unsigned.
package postgres
