package weir

// Dimension is one limit to test, as the policy wants it. Every multiplier is in 1/1000; 0 stands for 1000.
type Dimension struct {
	kind           uint8
	flags          uint8
	tierPlus1      uint16
	QPSLimit       uint32 // requests per second; 0: as configured for this dimension
	TPMLimit       uint32 // tokens per minute; 0: as configured
	Multiplier     uint32 // of both limits
	Burst          uint32
	valueOff       uint32
	valueLen       uint32
	CostMultiplier uint32 // of the tokens that this dimension counts
}

// Decision is what the module answers. Every multiplier is in 1/1000; 0 stands for 1000.
type Decision struct {
	major           uint16
	nDims           uint16
	verdict         uint8
	flags           uint8
	tierPlus1       uint16
	QPSMultiplier   uint32 // of the key dimension, as the next three
	TPMMultiplier   uint32
	QuotaMultiplier uint32
	Burst           uint32
	Overdraft       int64  // micro-units: how far below zero the balance may go
	OutputTokensCap uint32 // 0: none
	PriceMultiplier uint32
	status          uint16
	Reason          uint16 // shown in reports
	retryAfterMS    uint32
	messageOff      uint32
	messageLen      uint32
	arenaUsed       uint32
	failed          uint32 // in reserved space, which the host ignores: more was asked for than fits
	dims            [MaxDims]Dimension
	arena           [ArenaSize]byte
}

// Reset clears the answer of the call before; the SDK does it before each call.
func (d *Decision) Reset() {
	d.major, d.nDims, d.verdict, d.flags, d.tierPlus1 = Major, 0, 0, 0, 0
	d.QPSMultiplier, d.TPMMultiplier, d.QuotaMultiplier, d.Burst = 0, 0, 0, 0
	d.Overdraft, d.OutputTokensCap, d.PriceMultiplier = 0, 0, 0
	d.status, d.Reason, d.retryAfterMS, d.messageOff, d.messageLen = 0, 0, 0, 0, 0
	d.arenaUsed, d.failed = 0, 0
}

// Pick adds a dimension (Kind…) after those picked before. Picking none keeps key, model, global.
func (d *Decision) Pick(kind uint8) *Dimension {
	if d.nDims >= MaxDims {
		d.failed = 1
		d.nDims = MaxDims - 1
	}
	x := &d.dims[d.nDims]
	d.nDims++
	*x = Dimension{kind: kind}
	return x
}

// Tier puts the key into another tier (an index, as Config.Tier gives; negative: no change).
func (d *Decision) Tier(index int) {
	if index >= 0 {
		d.tierPlus1 = uint16(index + 1)
	}
}

// DoNotBill does not bill this request, where the operator's envelope allows.
func (d *Decision) DoNotBill() { d.flags |= RespNoBill }

// DoNotLimit does not limit this request, where the operator's envelope allows.
func (d *Decision) DoNotLimit() { d.flags |= RespNoLimit }

// Deny refuses with a status (400..499) and a text for the client; a wait of 0 ms means: do not try again. A decision has one
// message: of Deny and Explain the later one's counts.
func (d *Decision) Deny(status uint16, message string, retryAfterMS uint32) {
	d.verdict, d.status, d.retryAfterMS = VerdictDeny, status, retryAfterMS
	d.messageOff, d.messageLen = d.append(message)
}

// Explain says which rule fired, whatever the verdict: a number and a text for reports, the log and, where enabled, answers. After
// Deny its text takes the place of the one for the client.
func (d *Decision) Explain(reason uint16, message string) {
	d.Reason = reason
	d.messageOff, d.messageLen = d.append(message)
}

// ShadowDeny reports that it would refuse, and lets the request pass.
func (d *Decision) ShadowDeny() { d.verdict = VerdictShadowDeny }

// Done is what to return for this decision: a guest error when more was asked for than the ABI has room for.
func (d *Decision) Done() int32 {
	if d.failed != 0 {
		return GuestError
	}
	return Decided
}

// append adds text to the arena and gives where it lies; nothing when it does not fit.
func (d *Decision) append(text string) (off, size uint32) {
	if len(text) > int(ArenaSize-d.arenaUsed) {
		d.failed = 1
		return 0, 0
	}
	off = RespArena + d.arenaUsed
	size = uint32(copy(d.arena[d.arenaUsed:], text))
	d.arenaUsed += size
	return off, size
}

// Tier takes the limits from a tier (an index, as Config.Tier gives; negative: no change).
func (x *Dimension) Tier(index int) *Dimension {
	if index >= 0 {
		x.tierPlus1 = uint16(index + 1)
	}
	return x
}

// CountOnly counts, and never refuses.
func (x *Dimension) CountOnly() *Dimension {
	x.flags |= DimCountOnly
	return x
}

// Shadow counts, never refuses, and reports what it would have refused.
func (x *Dimension) Shadow() *Dimension {
	x.flags |= DimShadow
	return x
}

// SkipIfAbsent leaves the dimension out when the request has no such value.
func (x *Dimension) SkipIfAbsent() *Dimension {
	x.flags |= DimSkipAbsent
	return x
}

// Text adds to a custom dimension's value; finish one dimension's value before you begin another's.
func (x *Dimension) Text(value string) *Dimension {
	off, size := shared.decision.append(value)
	if x.valueLen == 0 {
		x.valueOff = off
	}
	x.valueLen += size
	return x
}
