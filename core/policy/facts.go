package policy

import (
	"encoding/binary"
	"math"
	"unicode/utf8"

	"github.com/weir-gateway/weir/sdk/abi"
)

// write lays f out in the guest's request buffer. The guest cannot run meanwhile.
func (in *instance) write(f *Facts, generation uint32) {
	b, le := in.req, binary.LittleEndian
	le.PutUint16(b[abi.ReqHostMinor:], abi.Minor)
	le.PutUint16(b[abi.ReqNAttr:], abi.NAttr)
	le.PutUint64(b[abi.ReqNowMS:], f.NowMS)
	le.PutUint64(b[abi.ReqEntropy:], f.Entropy)
	le.PutUint32(b[abi.ReqEndpoint:], uint32(f.Endpoint))
	le.PutUint32(b[abi.ReqInputTokens:], sat(int64(f.Input)))
	le.PutUint32(b[abi.ReqOutputTokensMax:], sat(int64(f.OutputMax)))
	le.PutUint32(b[abi.ReqChoices:], f.Choices)
	le.PutUint32(b[abi.ReqBodyBytes:], f.BodyBytes)
	le.PutUint64(b[abi.ReqKeyID:], f.Key)
	le.PutUint64(b[abi.ReqUserID:], f.User)
	le.PutUint64(b[abi.ReqOrgID:], f.Org)
	le.PutUint32(b[abi.ReqQPSLimit:], sat(f.QPSLimit))
	le.PutUint32(b[abi.ReqQPSCurrent:], sat(f.QPSCurrent))
	le.PutUint32(b[abi.ReqTPMLimit:], sat(f.TPMLimit))
	le.PutUint32(b[abi.ReqTPMCurrent:], sat(f.TPMCurrent))
	le.PutUint32(b[abi.ReqConcurrencyLimit:], sat(f.ConcurrencyLimit))
	le.PutUint32(b[abi.ReqConcurrencyCurrent:], sat(f.ConcurrencyCurrent))
	le.PutUint64(b[abi.ReqQuotaLimit:], uint64(f.QuotaLimit))
	le.PutUint64(b[abi.ReqQuotaUsed:], uint64(f.QuotaUsed))
	le.PutUint64(b[abi.ReqBalanceAvailable:], uint64(f.BalanceAvailable))
	le.PutUint64(b[abi.ReqEstimatedCost:], uint64(f.EstimatedCost))
	le.PutUint32(b[abi.ReqMinuteOfWeek:], f.MinuteOfWeek)
	le.PutUint16(b[abi.ReqDayOfMonth:], f.DayOfMonth)
	le.PutUint16(b[abi.ReqDaysInMonth:], f.DaysInMonth)
	le.PutUint32(b[abi.ReqTier:], f.Tier)
	le.PutUint32(b[abi.ReqGeneration:], generation)
	clear(b[abi.ReqReserved:abi.ReqAttrs])
	end, cut := in.writeAttributes(f)
	le.PutUint32(b[abi.ReqSize:], uint32(end))
	le.PutUint32(b[abi.ReqFlags:], f.Flags|cut)
}

// writeAttributes copies the wanted attributes in, whole or empty, and reports where they end.
func (in *instance) writeAttributes(f *Facts) (end int, cut uint32) {
	b, le := in.req, binary.LittleEndian
	end = abi.ReqStrings
	for i := range f.Attr {
		s := f.Attr[i]
		entry := b[abi.ReqAttrs+abi.AttrSize*i:]
		if len(s) == 0 || in.want>>i&1 == 0 {
			le.PutUint64(entry, 0)
			continue
		}
		if len(s) > abi.RequestSize-end || !utf8.ValidString(s) {
			le.PutUint64(entry, 0)
			cut = abi.FlagCut
			continue
		}
		le.PutUint32(entry, uint32(end))
		le.PutUint32(entry[4:], uint32(len(s)))
		end += copy(b[end:], s)
	}
	return end, cut
}

// sat fits v into 32 bits.
func sat(v int64) uint32 { return uint32(min(max(v, 0), math.MaxUint32)) }
