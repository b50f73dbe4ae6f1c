package llm

// EntryKind says what a ledger entry records.
type EntryKind uint8

// The kinds of entry. Closing a reservation is always a positive record (settle or void).
const (
	EntryReserve  EntryKind = iota + 1 // money was held for a request
	EntryProgress                      // a stream has relayed Usage.OutputTokens so far
	EntrySettle                        // the reservation ended and Cost was charged
	EntryVoid                          // the reservation ended and nothing was charged
	EntryCredit                        // an operator moved a user's credits by Cost
)

// Status is how a request ended. Only StatusFinalized and StatusPartial add to the balance and the month.
type Status uint8

// The ways a request can end.
const (
	StatusOpen      Status = iota
	StatusFinalized        // complete
	StatusPartial          // the client left or the upstream broke after something was owed
	StatusRefunded         // reserved, then nothing was owed
	StatusFailed           // ended by an error of ours; nothing was owed
)

// String is the word used in records, metrics and the API.
func (s Status) String() string {
	return [...]string{"open", "finalized", "partial", "refunded", "failed"}[min(s, StatusFailed)]
}

// Entry is one line of the ledger. A reserve carries everything that is known at admission (so that a crash can
// be settled from it alone); progress, settle and void carry ID and what is new. It is passed by value: no entry
// is allocated on the request path. Strings are interned by their owners (catalog, directory).
type Entry struct {
	Kind       EntryKind
	Endpoint   Endpoint
	Status     Status // settle, void
	Stream     bool
	Estimated  bool   // settle: the usage is ours, not the provider's; or settled by recovery
	Billed     bool   // reserve: the balance and the month are touched at all
	ID         uint64 // reservation: epoch<<40 | sequence, never reused
	RequestID  uint64 // X-Request-Id as a number
	AtMS       int64  // wall clock, unix ms
	OrgID      uint64
	UserID     uint64
	KeyID      uint64
	Label      int32 // quota month, e.g. 202611, fixed at reserve in the quota's zone; 0: no quota is metered
	WeekLabel  int32 // the same of a week, by its first day: 2026334 is the one of November 30th
	DayLabel   int32 // the same of a day, by its date: 20261130
	Model      string
	Channel    string // settle: the channel that answered
	Price      Price  // reserve: the snapshot the settlement will use
	Held       Micro  // reserve: what is held
	Cost       Micro  // settle: what is charged; credit: the delta
	Usage      Usage  // reserve: InputTokens is the estimate; progress: OutputTokens so far; settle: what is charged for
	HTTPStatus int32  // settle, void: what the client was told; 0 when it left first
	LatencyMS  int64  // settle, void: admission to end
	FirstMS    int64  // settle: admission to first upstream byte; 0 when there was none

	// ServiceTier is the provider's service tier that Price is of, by the model's name for it; settle: the one Cost is at.
	// Empty: the standard price.
	ServiceTier string
}

// Labels are the periods that a reserve's cost is charged to, by Window; 0 is none.
func (e *Entry) Labels() [Windows]int32 {
	return [...]int32{Month: e.Label, Week: e.WeekLabel, Day: e.DayLabel}
}

// SetLabel fixes the period of one window.
func (e *Entry) SetLabel(w Window, label int32) {
	switch w {
	case Month:
		e.Label = label
	case Week:
		e.WeekLabel = label
	default:
		e.DayLabel = label
	}
}
