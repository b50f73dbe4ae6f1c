package ledger

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-gateway/weir/core/llm"
)

// Store is the durable ordered key-value space the ledger writes. One process owns it at a time; its methods are
// safe for concurrent use.
type Store interface {
	// Apply writes all of b or nothing. With sync it returns only after the bytes are on stable storage; without,
	// after they are in the kernel, or with the server of a database (they survive the death of the process). It keeps
	// nothing of b. Of several writes to one key the last counts.
	Apply(b []Write, sync bool) error
	// Sync makes everything applied so far stable. After one that failed the kernel may take for written what is not,
	// and a second one of the same file proves nothing: so every Apply and Sync fails then, until the store has
	// written anew all that is in doubt, and made that stable.
	Sync() error
	// Get gives a copy of the value; ok is false when there is none.
	Get(key []byte) (value []byte, ok bool, err error)
	// Scan visits keys with the prefix in ascending order from start (nil: the first), descending when reverse
	// (from start downwards; nil: the last). The slices are valid only during the visit. It stops when visit
	// returns false.
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

// Defaults and fixed bounds.
const (
	DefaultSettleTimeoutMS = 5_000
	DefaultStallMS         = 2_000
	DefaultQueueEntries    = 16_384

	groupEntries   = 256      // entries of one write
	groupBytes     = 32 << 10 // encoded bytes of one write, about
	tailEntries    = 8_192    // how far back a restart reads the log
	syncEvery      = 100 * time.Millisecond
	idempotencyTTL = 24 * time.Hour
)

// Options configure the ledger. Zero fields take the defaults.
type Options struct {
	Durability      Durability `yaml:"durability"`
	SettleTimeoutMS int64      `yaml:"settle_timeout_ms"`
	// StallMS is how long a write or a sync may take before the ledger counts as down: new reserves and changes are
	// refused until it returns.
	StallMS      int64 `yaml:"stall_ms"`
	QueueEntries int   `yaml:"queue_entries"`
	// KeepUsageDays is how old usage records get before whoever owns the ledger prunes them, once a day; 0: for ever.
	KeepUsageDays int `yaml:"keep_usage_days"`
	// Currency is what the amounts are counted in. The first Open that names one fixes it for the store; another one
	// is refused then, because the numbers would stay and their meaning would change. Empty asks nothing.
	Currency string `yaml:"-"`
	// Log is told when the ledger goes down and when it is back; nil is silence.
	Log *slog.Logger `yaml:"-" json:"-"`
}

// Validate names the first field that is out of range.
func (o Options) Validate() error {
	switch {
	case o.Durability != "" && o.Durability != Process && o.Durability != Power:
		return llm.Invalid("ledger.durability", "ledger.durability is %q; it must be %q (survives kill -9) or %q (survives a power cut)", o.Durability, Process, Power)
	case o.SettleTimeoutMS < 0 || o.SettleTimeoutMS > 600_000:
		return llm.Invalid("ledger.settle_timeout_ms", "ledger.settle_timeout_ms is %d; it must be 1 to 600000, or 0 for %d", o.SettleTimeoutMS, DefaultSettleTimeoutMS)
	case o.StallMS < 0 || o.StallMS > 600_000:
		return llm.Invalid("ledger.stall_ms", "ledger.stall_ms is %d; it must be 1 to 600000, or 0 for %d", o.StallMS, DefaultStallMS)
	case o.QueueEntries < 0 || o.QueueEntries > 1<<20:
		return llm.Invalid("ledger.queue_entries", "ledger.queue_entries is %d; it must be 1 to %d, or 0 for %d", o.QueueEntries, 1<<20, DefaultQueueEntries)
	case o.KeepUsageDays < 0 || o.KeepUsageDays > 36_500:
		return llm.Invalid("ledger.keep_usage_days", "ledger.keep_usage_days is %d; it must be 1 to 36500, or 0 for ever", o.KeepUsageDays)
	}
	return nil
}

func (o Options) withDefaults() Options {
	if o.Durability == "" {
		o.Durability = Process
	}
	if o.SettleTimeoutMS == 0 {
		o.SettleTimeoutMS = DefaultSettleTimeoutMS
	}
	if o.StallMS == 0 {
		o.StallMS = DefaultStallMS
	}
	if o.QueueEntries == 0 {
		o.QueueEntries = DefaultQueueEntries
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// State is what replay found: everything the limiter needs before traffic.
type State struct {
	Balances  map[uint64]Balance // by user
	Used      []QuotaUse         // the newest two periods of each key and window, and all that are not long over
	Recovered int                // reservations that were open when the last process died, now settled by the recovery rule
	// Recoveries lists them in the order they were made.
	Recoveries []Recovery
	Told       []Told // how far the alerts of each key's budgets have come, as Tell was told last
}

// Balance is what a user was given and was charged; either stops at math.MaxInt64 instead of wrapping.
type Balance struct{ Credits, Posted llm.Micro }

// Available is what is left when nothing is held.
func (b Balance) Available() llm.Micro { return llm.AddMicro(b.Credits, -b.Posted) }

// Recovery is what became of one reservation that a dead process left open.
type Recovery struct {
	Reserve llm.Entry
	Output  llm.Tokens // the last progress that the log has
	Cost    llm.Micro  // what was charged
	Reason  Reason
}

// Reason says why a recovery charged what it did.
type Reason string

// The reasons.
const (
	ReasonUnanswered Reason = "unanswered" // nothing is known to have reached the client: the input is charged, as it counts as sent
	ReasonRelayed    Reason = "relayed"    // the input and the last progress are charged
	ReasonNotBilled  Reason = "not_billed" // nothing is charged
)

// QuotaUse is what a key has used in one period.
type QuotaUse struct {
	Key   uint64
	Label int32
	Used  llm.Micro
}

// Told is how far the alerts of a key's budget have come: which share of the limit, in percent, was told in which period.
type Told struct {
	Key     uint64
	Label   int32
	Percent int
}

// Ledger owns a Store. Append and Wait are the hot path; the rest is the control plane. Safe for concurrent use.
type Ledger struct {
	store Store
	o     Options
	clock llm.Clock

	opened struct { // when, on both clocks
		wall time.Time
		mono time.Duration
	}
	epoch  uint64
	ids    atomic.Uint64
	writes health      // of Apply; the owner's
	syncs  health      // of Sync; the syncer's
	dirty  atomic.Bool // applied and not yet synced

	base    atomic.Uint64 // the log begins with this entry
	pruning sync.Mutex

	queue   queue
	acks    acks
	numbers numbers
	owner   *owner

	stop    chan struct{} // closed by Close, once
	closing sync.Once
	closed  error
	running sync.WaitGroup // the owner, the watch and the syncer
}

// Open replays the store, settles what a dead process left open, and starts the owner goroutine. Another currency than
// the store's is a *llm.Error of KindConflict with code currency_differs; nothing is written then.
func Open(store Store, o Options, clock llm.Clock) (*Ledger, State, error) {
	if err := o.Validate(); err != nil {
		return nil, State{}, err
	}
	l := &Ledger{store: store, o: o.withDefaults(), clock: clock, stop: make(chan struct{})}
	l.opened.wall, l.opened.mono = clock.Wall(), clock.Mono()
	l.writes.init("write", l.o, clock)
	l.syncs.init("sync", l.o, clock)
	l.queue.init(l.o.QueueEntries)
	l.acks.init()
	l.numbers.init()
	state, err := l.restore()
	if err != nil {
		return nil, State{}, fmt.Errorf("opening the ledger: %w", err)
	}
	l.running.Add(2)
	go l.owner.run()
	go l.watchLoop()
	if l.o.Durability == Process {
		l.running.Add(1)
		go l.syncLoop()
	}
	return l, state, nil
}

// Close drains the queue, syncs and stops the owner. It does not close the store. It reports entries that could
// not be written.
func (l *Ledger) Close() error {
	l.closing.Do(func() {
		l.queue.close()
		close(l.stop)
		l.running.Wait()
		l.acks.close()
		if l.closed == nil {
			l.closed = l.store.Sync()
		}
	})
	return l.closed
}

// NextID is a reservation number that was never used before, in this process or an earlier one.
func (l *Ledger) NextID() uint64 { return l.epoch<<40 | l.ids.Add(1) }

// Append enqueues an entry and returns its sequence at once. It fails when the queue is full or the ledger is
// down, and then nothing was enqueued; a settle or void is always accepted (it is retried until written).
func (l *Ledger) Append(e *llm.Entry) (uint64, error) {
	if e.Kind < llm.EntryReserve || e.Kind > llm.EntryVoid {
		return 0, llm.Errorf(llm.KindInternal, "entry kind %d cannot be appended; credits go through Put", e.Kind)
	}
	return l.queue.push(e, nil, l.Healthy())
}

// steadyMS is the time of day, in unix ms, by the wall clock at opening and the steady one since. A wall clock that
// jumps forward must not make an idempotency key forgotten, or a repeated top-up would count twice.
func (l *Ledger) steadyMS() int64 {
	return l.opened.wall.Add(l.clock.Mono() - l.opened.mono).UnixMilli()
}

// syncLoop makes acknowledged entries stable every 100 ms under durability "process".
func (l *Ledger) syncLoop() {
	defer l.running.Done()
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
		if l.dirty.Swap(false) {
			l.syncs.begin()
			err := l.store.Sync()
			if err != nil {
				l.dirty.Store(true)
			}
			l.syncs.end(err)
		}
	}
}

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
	From, To       time.Time // by time of the end; From is included, To is not
	Cursor         string
	Newest         bool // newest first
}

// AuditLine is one entry of the hash chain.
type AuditLine struct {
	Seq        uint64
	AtMS       int64
	Change     Change // without Request and Answer
	Prev, Hash [32]byte
}

// Report is what verification found.
type Report struct {
	Entries, Open         int
	Credits, Posted, Held llm.Micro
	Problems              []string // empty: every total re-adds
	// FirstWrong names the first account whose stored total is not what the log adds up to, as "user 7" or "key 7,
	// period 202611"; empty when there is none.
	FirstWrong string
}
