package proxy

import (
	"time"

	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
)

const (
	maxRetryMS  = 60_000 // beyond it a client is told not to wait in place
	qpsWindowMS = 1_000
	tpmWindowMS = 60_000
)

// denialRefusal renders the limiter's no.
func denialRefusal(d *limit.Denial, currency string, members []byte) refusal {
	switch d.Axis {
	case limit.AxisBalance:
		members = appendMoney(members, "required", currency, int64(d.Required))
		members = appendMoney(members, "available", currency, int64(d.Available))
		return refusal{status: 402, typ: "insufficient_quota", code: "insufficient_quota",
			message: "the balance does not cover this request", members: members, final: true}
	case limit.AxisQuota:
		members = appendMoney(members, "used", currency, int64(d.Used))
		members = appendMoney(members, "limit", currency, d.Limit)
		members = appendMoney(members, "reserving", currency, d.Requested)
		members = appendMoney(members, "held", currency, int64(d.Held))
		members = appendMember(members, "window", d.Window.String())
		members = appendMember(members, "resets_at", d.ResetsAt.Format(time.RFC3339))
		r := quotaRefusals[d.Window]
		r.members = members
		return r
	}
	r := rateRefusal(d, members)
	r.wait(d)
	return r
}

// quotaRefusals are what a quota's no says, by window.
var quotaRefusals = [...]refusal{
	llm.Month: {status: 402, typ: "monthly_quota_exceeded", code: "monthly_quota_exceeded",
		message: "the key's monthly quota does not cover this request", final: true},
	llm.Week: {status: 402, typ: "weekly_quota_exceeded", code: "weekly_quota_exceeded",
		message: "the key's weekly quota does not cover this request", final: true},
	llm.Day: {status: 402, typ: "daily_quota_exceeded", code: "daily_quota_exceeded",
		message: "the key's daily quota does not cover this request", final: true},
}

// rateRefusal is all but the wait.
func rateRefusal(d *limit.Denial, members []byte) refusal {
	kind, never := axisNames[d.Axis], ""
	if d.TooLarge {
		never = ": the request alone is larger than the limit"
	}
	r := refusal{status: 429, typ: "rate_limit_exceeded", code: "rate_limit_exceeded",
		message: kind + " limit exceeded on dimension=" + d.ID.Kind.String() + never}
	if d.TooLarge {
		r.code = "request_exceeds_limit"
	}
	members = appendMember(members, "dimension", d.ID.Kind.String())
	members = appendMember(members, "kind", kind)
	members = appendMember(members, "limit_key", llm.Blot(d.ID.String()))
	members = appendNumber(members, "limit", d.Limit)
	members = appendNumber(members, "current", d.Current)
	r.members = appendNumber(members, "requested", d.Requested)
	return r
}

// wait says when to come back, if that helps.
func (r *refusal) wait(d *limit.Denial) {
	r.retryAfterMS = max(d.RetryAfterMS, 1)
	if d.TooLarge {
		r.retryAfterMS = windowMS(d.Axis)
	}
	r.final = d.TooLarge || r.retryAfterMS > maxRetryMS
	r.hint = !r.final
	r.members = appendNumber(r.members, "retry_after_ms", r.retryAfterMS)
	if !d.Exact {
		r.members = append(r.members, inexact...)
	}
}

// axisNames are the values of "kind" in a denial and in metrics.
var axisNames = [...]string{"", limit.AxisBalance: "balance", limit.AxisQuota: "quota",
	limit.AxisConcurrency: "concurrency", limit.AxisQPS: "qps", limit.AxisTPM: "tpm"}

// windowMS is how long one window of a meter is: what a client is told when no wait can help.
func windowMS(a limit.Axis) int64 {
	if a == limit.AxisTPM {
		return tpmWindowMS
	}
	return qpsWindowMS
}

func appendMoney(dst []byte, name, currency string, n int64) []byte {
	dst = append(append(append(append(append(dst, `,"`...), name...), "_micro_"...), currency...), `":`...)
	return appendInt(dst, n)
}
