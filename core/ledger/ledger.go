// Package ledger records what happened: durable entries behind one owner goroutine with natural group commit,
// replay and recovery, the documents of the control plane, usage records and the audit chain.
package ledger

import (
	"context"
	"iter"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// Store is the durable ordered key-value space the ledger writes. One process owns it at a time.
type Store interface {
	// Apply writes all of b or nothing. With sync it returns only after the bytes are on stable storage; without,
	// after they are in the kernel (they survive the death of the process).
	Apply(b []Write, sync bool) error
	// Sync makes everything applied so far stable.
	Sync() error
	// Get gives a copy of the value; ok is false when there is none.
	Get(key []byte) (value []byte, ok bool, err error)
	// Scan visits keys with the prefix in ascending order from start (nil: the first), descending when reverse.
	// The slices are valid only during the visit. It stops when visit returns false.
	Scan(prefix, start []byte, reverse bool, visit func(key, value []byte) bool) error
	Close() error
}

// Write is one change of a batch; a nil Value deletes.
type Write struct{ Key, Value []byte }

// Durability is what acknowledged means.
type Durability string

// The durabilities.
const (
	Process Durability = "process" // in the kernel: survives kill -9; synced every 100 ms
	Power   Durability = "power"   // synced
)

// Options configure the ledger.
type Options struct {
	Durability      Durability `yaml:"durability"`
	SettleTimeoutMS int64      `yaml:"settle_timeout_ms"`
	QueueEntries    int        `yaml:"queue_entries"`
}

// State is what replay found: everything the limiter needs before traffic.
type State struct {
	Available map[uint64]llm.Micro // credits - posted, per user
	Used      []QuotaUse
	Recovered int // reservations that were open when the last process died, now settled by the recovery rule
}

// QuotaUse is what a key has used in one period.
type QuotaUse struct {
	Key   uint64
	Label int32
	Used  llm.Micro
}

// Ledger owns a Store. Append and Wait are the hot path; the rest is the control plane.
type Ledger struct{}

// Open replays the store, settles what a dead process left open, and starts the owner goroutine.
func Open(store Store, o Options, clock llm.Clock) (*Ledger, State, error) { panic("skeleton") }

// Close drains the queue, syncs and stops the owner. It does not close the store.
func (l *Ledger) Close() error { panic("skeleton") }

// NextID is a reservation number that was never used before, in this process or an earlier one.
func (l *Ledger) NextID() uint64 { panic("skeleton") }

// Append enqueues an entry and returns its sequence at once. It fails when the queue is full or the ledger is
// down, and then nothing was enqueued; a settle or void is always accepted (it is retried until written).
func (l *Ledger) Append(e *llm.Entry) (uint64, error) { panic("skeleton") }

// Wait blocks until the entry is acknowledged, ctx ends, timeout passes, or the ledger fails. A resolution that lost
// to an earlier one is reported by code already_settled or already_voided.
func (l *Ledger) Wait(ctx context.Context, seq uint64, timeout time.Duration) error {
	panic("skeleton")
}

// Healthy is nil while the store accepts writes.
func (l *Ledger) Healthy() error { panic("skeleton") }

// Doc is one object of the control plane: an org, user, key, model, channel, module, binding or setting. Data is
// JSON (or wasm bytes); the ledger does not look inside. Nil Data is a tombstone: the id stays used.
type Doc struct {
	Kind string
	ID   string
	Data []byte
}

// Change says who changed what, for the audit chain.
type Change struct {
	Actor  string // "admin", "config", "key:7"
	Action string // "key.create"
	Target string // "key:42"
	Before []byte // JSON, secrets removed by the caller
	After  []byte
	// Idempotency: the same Key with the same Request hash gives the stored Answer again; another hash is a conflict.
	Idempotency string
	Request     [32]byte
	Answer      []byte
}

// Put writes documents and money movements with one audit line, in one batch, through the same queue as entries.
// It returns when they are acknowledged.
func (l *Ledger) Put(ctx context.Context, c Change, docs []Doc, credits []llm.Entry) error {
	panic("skeleton")
}

// Replay gives the stored answer of an idempotency key: ok when it is known; a *llm.Error of KindConflict when the
// request differs.
func (l *Ledger) Replay(key string, request [32]byte) (answer []byte, ok bool, err error) {
	panic("skeleton")
}

// Docs visits the live documents of one kind in the order of their ids.
func (l *Ledger) Docs(kind string) iter.Seq2[Doc, error] { panic("skeleton") }

// NextDocID is a document number of this kind that was never used before.
func (l *Ledger) NextDocID(kind string) uint64 { panic("skeleton") }

// Record is one usage record, joined from an entry and its resolution.
type Record struct {
	Cursor       string // resume after this record
	Reserve, End llm.Entry
}

// Filter selects usage records; zero fields match all.
type Filter struct {
	Key, User, Org uint64
	Model          string
	Status         string
	From, To       time.Time // by time of the end
	Cursor         string
	Newest         bool // newest first
}

// Records visits usage records.
func (l *Ledger) Records(f Filter) iter.Seq2[Record, error] { panic("skeleton") }

// AuditLine is one entry of the hash chain.
type AuditLine struct {
	Seq        uint64
	AtMS       int64
	Change     Change
	Prev, Hash [32]byte
}

// Audit visits the audit chain, newest first, from a sequence (0: the newest).
func (l *Ledger) Audit(from uint64) iter.Seq2[AuditLine, error] { panic("skeleton") }

// Report is what verification found.
type Report struct {
	Entries, Open         int
	Credits, Posted, Held llm.Micro
	Problems              []string // empty: every total re-adds
}

// Verify re-adds every account from the first entry and checks the audit chain.
func Verify(store Store) (Report, error) { panic("skeleton") }
