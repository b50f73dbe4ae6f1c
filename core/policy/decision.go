package policy

import (
	"encoding/binary"
	"unicode/utf8"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/sdk/abi"
)

// unit is a multiplier that changes nothing.
const unit = 1000

// defaultStatus is the HTTP status of a denial whose policy names none.
const defaultStatus = 403

// abstain makes d the native defaults.
func (d *Decision) abstain() {
	d.reset()
	d.Abstained = true
}

// reset makes d an allowance that changes nothing. Entries of Dims beyond N keep what they held: they are not part
// of the decision.
func (d *Decision) reset() {
	d.Abstained, d.NoBill, d.NoLimit, d.Clamped = false, false, false, false
	d.Verdict, d.Tier, d.Status, d.Reason, d.RetryAfterMS, d.Message = Allow, -1, defaultStatus, 0, 0, ""
	d.QPS, d.TPM, d.Quota, d.Burst, d.Price = unit, unit, unit, unit, unit
	d.Overdraft, d.OutputCap, d.N = 0, 0, 0
	d.Fault, d.Defaults, d.Canary, d.Tenant, d.Envelope = "", false, false, TenantPart{}, nil
}

// read copies the guest's answer out. One field out of range makes the whole answer bad: half a decision would be
// one that nobody wrote.
func (in *instance) read(d *Decision, tiers int) fault {
	b, le := in.resp, binary.LittleEndian
	d.reset()
	n, tier, flags := int(le.Uint16(b[abi.RespNDims:])), int(le.Uint16(b[abi.RespTier:])), b[abi.RespFlags]
	if le.Uint16(b[abi.RespMajor:]) != abi.Major || n > abi.MaxDims || tier > tiers ||
		b[abi.RespVerdict] > abi.VerdictShadowDeny || flags > abi.RespNoBill|abi.RespNoLimit {
		return faultAnswer
	}
	d.Verdict, d.NoBill, d.NoLimit, d.Tier = Verdict(b[abi.RespVerdict]), flags&abi.RespNoBill != 0, flags&abi.RespNoLimit != 0, tier-1
	ok := permille(&d.QPS, b[abi.RespQPSMultiplier:]) && permille(&d.TPM, b[abi.RespTPMMultiplier:]) &&
		permille(&d.Quota, b[abi.RespQuotaMultiplier:]) && permille(&d.Burst, b[abi.RespBurst:]) &&
		permille(&d.Price, b[abi.RespPriceMultiplier:])
	overdraft := int64(le.Uint64(b[abi.RespOverdraft:]))
	status := int(le.Uint16(b[abi.RespStatus:]))
	if status == 0 {
		status = defaultStatus
	}
	if !ok || overdraft < 0 || status < 400 || status > 499 || le.Uint32(b[abi.RespArenaUsed:]) > abi.ArenaSize {
		return faultAnswer
	}
	d.Overdraft, d.Status, d.Reason = llm.Micro(overdraft), status, le.Uint16(b[abi.RespReason:])
	d.OutputCap = llm.Tokens(le.Uint32(b[abi.RespOutputCap:]))
	d.RetryAfterMS = le.Uint32(b[abi.RespRetryAfterMS:])
	if d.Message, ok = in.text(b[abi.RespMessageOff:], abi.MessageMax); !ok {
		return faultAnswer
	}
	for i := range n {
		if !in.readDim(&d.Dims[i], b[abi.RespDims+abi.DimSize*i:][:abi.DimSize], tiers) {
			return faultAnswer
		}
	}
	d.N = n
	return faultNone
}

func (in *instance) readDim(d *Dimension, b []byte, tiers int) bool {
	le := binary.LittleEndian
	kind, flags, tier := b[abi.DimKind], b[abi.DimFlags], int(le.Uint16(b[abi.DimTier:]))
	custom := kind == abi.KindCustom
	if kind > abi.KindModelChannel && !custom || flags > abi.DimCountOnly|abi.DimShadow|abi.DimSkipAbsent || tier > tiers {
		return false
	}
	d.Kind, d.Tier = kind, tier-1
	d.CountOnly, d.Shadow, d.SkipAbsent = flags&abi.DimCountOnly != 0, flags&abi.DimShadow != 0, flags&abi.DimSkipAbsent != 0
	d.QPS, d.TPM = int64(le.Uint32(b[abi.DimQPSLimit:])), int64(le.Uint32(b[abi.DimTPMLimit:]))
	if !permille(&d.Multiplier, b[abi.DimMultiplier:]) || !permille(&d.Burst, b[abi.DimBurst:]) ||
		!permille(&d.Cost, b[abi.DimCostMultiplier:]) {
		return false
	}
	var ok bool
	d.Value, ok = in.text(b[abi.DimValueOff:], abi.ValueMax)
	return ok && custom == (d.Value != "")
}

// text reads an {off, len} pair that must lie inside the arena and hold UTF-8 of at most limit bytes.
func (in *instance) text(b []byte, limit uint32) (string, bool) {
	off, n := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	if n == 0 {
		return "", true
	}
	if n > limit || off < abi.RespArena || off > abi.ResponseSize-n {
		return "", false
	}
	s := in.resp[off : off+n]
	if !utf8.Valid(s) {
		return "", false
	}
	return in.word(s), true
}

// permille reads a multiplier, where 0 stands for 1000.
func permille(to *uint32, b []byte) bool {
	v := binary.LittleEndian.Uint32(b)
	if v == 0 {
		v = unit
	}
	*to = v
	return v <= abi.MaxMultiplier
}
