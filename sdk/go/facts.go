package weir

import "unsafe"

// Facts is what is known about the request, as the host wrote it. A limit of 0 means unlimited.
type Facts struct {
	Size               uint32
	HostMinor          uint16
	nAttr              uint16
	NowMS              uint64 // unix time
	Entropy            uint64 // from the request id: the same on a replay
	Flags              uint32 // Flag…
	Endpoint           uint32 // Endpoint…
	InputTokens        uint32 // estimate
	OutputTokensMax    uint32 // upper bound over all choices
	Choices            uint32
	BodyBytes          uint32
	KeyID              uint64
	UserID             uint64
	OrgID              uint64
	QPSLimit           uint32 // of the key, as the next five
	QPSCurrent         uint32
	TPMLimit           uint32
	TPMCurrent         uint32
	ConcurrencyLimit   uint32
	ConcurrencyCurrent uint32
	QuotaLimit         int64 // micro-units of the currency, as the next three
	QuotaUsed          int64 // posted and held
	BalanceAvailable   int64
	EstimatedCost      int64
	MinuteOfWeek       uint32 // in the key's zone, Monday 00:00 is 0
	DayOfMonth         uint16
	DaysInMonth        uint16
	Tier               uint32 // index of the key's tier
	Generation         uint32 // of the params
	reserved           [ReqAttrs - ReqReserved]byte
	attrs              [NAttr]struct{ off, len uint32 }
	strings            [RequestSize - ReqStrings]byte
}

// The struct must lie exactly over the ABI's layout.
var (
	_ [ReqFlags]struct{}       = [unsafe.Offsetof(Facts{}.Flags)]struct{}{}
	_ [ReqKeyID]struct{}       = [unsafe.Offsetof(Facts{}.KeyID)]struct{}{}
	_ [ReqQPSLimit]struct{}    = [unsafe.Offsetof(Facts{}.QPSLimit)]struct{}{}
	_ [ReqQuotaLimit]struct{}  = [unsafe.Offsetof(Facts{}.QuotaLimit)]struct{}{}
	_ [ReqDaysInMonth]struct{} = [unsafe.Offsetof(Facts{}.DaysInMonth)]struct{}{}
	_ [ReqReserved]struct{}    = [unsafe.Offsetof(Facts{}.reserved)]struct{}{}
	_ [ReqStrings]struct{}     = [unsafe.Offsetof(Facts{}.strings)]struct{}{}
	_ [RequestSize]struct{}    = [unsafe.Sizeof(Facts{})]struct{}{}
	_ [RespOverdraft]struct{}  = [unsafe.Offsetof(Decision{}.Overdraft)]struct{}{}
	_ [RespReason]struct{}     = [unsafe.Offsetof(Decision{}.Reason)]struct{}{}
	_ [RespDims]struct{}       = [unsafe.Offsetof(Decision{}.dims)]struct{}{}
	_ [RespArena]struct{}      = [unsafe.Offsetof(Decision{}.arena)]struct{}{}
	_ [ResponseSize]struct{}   = [unsafe.Sizeof(Decision{})]struct{}{}
	_ [DimQPSLimit]struct{}    = [unsafe.Offsetof(Dimension{}.QPSLimit)]struct{}{}
	_ [DimValueOff]struct{}    = [unsafe.Offsetof(Dimension{}.valueOff)]struct{}{}
	_ [DimSize]struct{}        = [unsafe.Sizeof(Dimension{})]struct{}{}
)

// Has reports whether one of the given flags is set.
func (f *Facts) Has(flags uint32) bool { return f.Flags&flags != 0 }

// Attr gives an attribute by its number: AttrModel, …, or what Config.Label gave (negative: absent). It is the bytes in
// the buffer, valid during the call: to keep it, strings.Clone it. Empty: the request has no such value.
func (f *Facts) Attr(i int) string {
	if i < 0 || i >= NAttr {
		return ""
	}
	a := &f.attrs[i]
	if a.len == 0 || a.off < ReqStrings || a.off > RequestSize || a.len > RequestSize-a.off {
		return ""
	}
	return unsafe.String(&f.strings[a.off-ReqStrings], int(a.len))
}

// On is for labels that are switches: there, and neither "false", "no", "off" nor "0".
func On(label string) bool {
	switch label {
	case "", "false", "no", "off", "0":
		return false
	}
	return true
}
