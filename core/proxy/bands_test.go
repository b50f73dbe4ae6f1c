package proxy_test

import (
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/alert"
	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
)

// banded is a rig whose key has spent a part of its daily budget of 1 yuan, with a policy's quota multiplier.
func banded(t *testing.T, spent llm.Micro, quota uint32, bands auth.Bands) *rig {
	r := newRig(t, limits(auth.Key{QPSLimit: 8, TPMLimit: 4000}), func(s *setup) {
		s.key.Budgets = []auth.Budget{{Window: llm.Day, Limit: 1_000_000, Bands: bands}}
	})
	r.policy.decide = func(_ *policy.Facts, d *policy.Decision) { d.Quota = quota }
	r.limits.LoadQuota(idKey, 20260304, spent)
	return r
}

// From its slow band on a key has a part of its rates, from its hard band on it is refused; a policy's quota multiplier
// moves both.
func TestBands(t *testing.T) {
	for _, x := range []struct {
		spent  llm.Micro
		quota  uint32
		bands  auth.Bands
		status int
		qps    string
		tpm    string
	}{
		{899_999, 1000, auth.Bands{Slow: 90}, 200, "8", "4000"},
		{900_000, 1000, auth.Bands{Slow: 90}, 200, "4", "2000"},
		{900_000, 1000, auth.Bands{Slow: 90, SlowTo: 25}, 200, "2", "1000"},
		{900_000, 1000, auth.Bands{Slow: 90, SlowTo: 1}, 429, "1", "40"}, // the request is larger than what is left of TPM
		{900_000, 1000, auth.Bands{}, 200, "8", "4000"},
		{900_000, 2000, auth.Bands{Slow: 90}, 200, "8", "4000"},
		{1_800_000, 2000, auth.Bands{Slow: 90}, 200, "4", "2000"},
		{450_000, 500, auth.Bands{Slow: 90}, 200, "4", "2000"},
		{999_900, 1000, auth.Bands{}, 402, "8", "4000"},
		{1_000_000, 1000, auth.Bands{Hard: 110}, 200, "8", "4000"},
		{1_099_900, 1000, auth.Bands{Hard: 110}, 402, "8", "4000"},
		{1_099_900, 2000, auth.Bands{Hard: 110}, 200, "8", "4000"},
		{499_900, 1000, auth.Bands{Hard: 50}, 402, "8", "4000"},
	} {
		r := banded(t, x.spent, x.quota, x.bands)
		p := r.post("/v1/chat/completions", chat("gpt-4o", `,"max_tokens":50`)).want(t, x.status)
		if qps, tpm := p.header.Get("x-ratelimit-limit-requests"), p.header.Get("x-ratelimit-limit-tokens"); qps != x.qps || tpm != x.tpm {
			t.Errorf("%+v: limits %s and %s", x, qps, tpm)
		}
		if x.status == 402 {
			p.code(t, "daily_quota_exceeded")
		}
	}
}

// What open requests hold counts for the slow band too.
func TestSlowBandCountsHolds(t *testing.T) {
	r := banded(t, 0, 1000, auth.Bands{Slow: 1})
	first := make(chan reply)
	go func() {
		first <- r.post("/v1/chat/completions", chat("gpt-4o", `,"max_tokens":3000`), "x-sim", "latency=2s")
	}()
	eventually(t, func() bool { _, held := r.limits.Quota(idKey, 20260304); return held >= 10_000 }, "nothing is held")
	p := r.post("/v1/chat/completions", chat("gpt-4o", `,"max_tokens":5`))
	if qps := p.header.Get("x-ratelimit-limit-requests"); qps != "4" {
		t.Errorf("limit %s", qps)
	}
	(<-first).want(t, 200)
}

// A month counts whether or not it has a limit, a day from when it gets one: what was spent before is not in it. A limit
// that is taken away and set again goes on from what was counted.
func TestDayCountsFromItsLimit(t *testing.T) {
	r := newRig(t)
	used := func(label int32) llm.Micro { m, _ := r.limits.Quota(idKey, label); return m }
	spend := func(limit llm.Micro) {
		k := r.key
		k.Budgets = []auth.Budget{{Window: llm.Day, Limit: limit}}
		r.dir.SetKey(k)
		r.post("/v1/chat/completions", chat("gpt-4o", `,"max_tokens":50`)).want(t, 200)
		r.idle()
	}
	spend(0)
	month := used(202603)
	if month == 0 || used(20260304) != 0 {
		t.Fatalf("the month has %d, the day %d", month, used(20260304))
	}
	spend(1_000_000)
	if used(20260304) != month || used(202603) != 2*month {
		t.Errorf("from its limit on the day has %d, the month %d; one request is %d", used(20260304), used(202603), month)
	}
	spend(0)
	spend(1_000_000)
	if used(20260304) != 2*month || used(202603) != 4*month {
		t.Errorf("with its limit back the day has %d, the month %d; one request is %d", used(20260304), used(202603), month)
	}
}

type alertsSeen struct{ seen []alert.Spending }

func (a *alertsSeen) Spent(v alert.Spending) { a.seen = append(a.seen, v) }

// Remind tells of every budget that has a limit, in its present period.
func TestRemind(t *testing.T) {
	seen := new(alertsSeen)
	r := newRig(t, limits(auth.Key{MonthlyQuota: 2_000_000}), func(s *setup) {
		s.key.Budgets = []auth.Budget{{Window: llm.Day, Limit: 1_000_000, Bands: auth.Bands{Warn: 70}}}
		s.alerts = seen
	})
	r.limits.LoadQuota(idKey, 20260304, 500_000)
	r.limits.LoadQuota(idKey, 202603, 900_000)
	r.server.Remind()
	if len(seen.seen) != 2 {
		t.Fatalf("%+v", seen.seen)
	}
	month, day := seen.seen[0], seen.seen[1]
	if month.Label != 202603 || month.Used != 900_000 || month.Limit != 2_000_000 || month.Key != idKey || month.ResetsAt.Format(time.DateOnly) != "2026-04-01" {
		t.Errorf("%+v", month)
	}
	if day.Label != 20260304 || day.Used != 500_000 || day.Limit != 1_000_000 || day.Warn != 70 || day.Window != llm.Day || day.User != idUser {
		t.Errorf("%+v", day)
	}
}
