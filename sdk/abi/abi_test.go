package abi

import "testing"

type field struct{ off, size int }

// tiles wants the fields to fill from..to without gap or overlap, each at a multiple of its size.
func tiles(t *testing.T, from, to int, fields []field) {
	t.Helper()
	at := from
	for _, f := range fields {
		if f.off != at {
			t.Errorf("a field stands at %d, the one before ends at %d", f.off, at)
		}
		if f.size <= 8 && f.off%f.size != 0 {
			t.Errorf("the field at %d is not aligned to its %d bytes", f.off, f.size)
		}
		at = f.off + f.size
	}
	if at != to {
		t.Errorf("the fields end at %d, want %d", at, to)
	}
}

func TestRequestLayout(t *testing.T) {
	tiles(t, 0, RequestSize, []field{
		{ReqSize, 4}, {ReqHostMinor, 2}, {ReqNAttr, 2}, {ReqNowMS, 8}, {ReqEntropy, 8}, {ReqFlags, 4}, {ReqEndpoint, 4},
		{ReqInputTokens, 4}, {ReqOutputTokensMax, 4}, {ReqChoices, 4}, {ReqBodyBytes, 4}, {ReqKeyID, 8}, {ReqUserID, 8},
		{ReqOrgID, 8}, {ReqQPSLimit, 4}, {ReqQPSCurrent, 4}, {ReqTPMLimit, 4}, {ReqTPMCurrent, 4},
		{ReqConcurrencyLimit, 4}, {ReqConcurrencyCurrent, 4}, {ReqQuotaLimit, 8}, {ReqQuotaUsed, 8},
		{ReqBalanceAvailable, 8}, {ReqEstimatedCost, 8}, {ReqMinuteOfWeek, 4}, {ReqDayOfMonth, 2}, {ReqDaysInMonth, 2},
		{ReqTier, 4}, {ReqGeneration, 4}, {ReqReserved, 16}, {ReqAttrs, NAttr * AttrSize}, {ReqStrings, RequestSize - ReqStrings},
	})
}

func TestResponseLayout(t *testing.T) {
	tiles(t, 0, ResponseSize, []field{
		{RespMajor, 2}, {RespNDims, 2}, {RespVerdict, 1}, {RespFlags, 1}, {RespTier, 2}, {RespQPSMultiplier, 4},
		{RespTPMMultiplier, 4}, {RespQuotaMultiplier, 4}, {RespBurst, 4}, {RespOverdraft, 8}, {RespOutputCap, 4},
		{RespPriceMultiplier, 4}, {RespStatus, 2}, {RespReason, 2}, {RespRetryAfterMS, 4}, {RespMessageOff, 4},
		{RespMessageLen, 4}, {RespArenaUsed, 4}, {RespReserved, 4}, {RespDims, MaxDims * DimSize}, {RespArena, ArenaSize},
	})
	tiles(t, 0, DimSize, []field{
		{DimKind, 1}, {DimFlags, 1}, {DimTier, 2}, {DimQPSLimit, 4}, {DimTPMLimit, 4}, {DimMultiplier, 4}, {DimBurst, 4},
		{DimValueOff, 4}, {DimValueLen, 4}, {DimCostMultiplier, 4},
	})
}
