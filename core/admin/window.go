package admin

import (
	"context"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
)

// usageWindow shows what a key's limits count right now: the windows in memory and the month of the ledger together.
// The limits are the base ones: the key's own, else its tier's; what a policy multiplies is per request.
func (a *API) usageWindow(c *call) (answer, error) {
	k, err := a.key(c)
	if err != nil {
		return answer{}, err
	}
	v, err := a.windowView(c.ctx, k)
	return ok(v), err
}

func (a *API) windowView(ctx context.Context, k auth.Key) (object, error) {
	use, err := a.Limiter.Inspect(ctx, limit.ID{Kind: limit.Key, Scope: k.ID})
	if err != nil {
		return nil, err
	}
	l := a.baseLimits(k)
	v := object{
		{"keyId", k.ID},
		{"abnormalUsage", use.Storm},
		{"qps", object{{"limit", l.QPS}, {"current", use.QPS}}},
		{"tpm", object{{"limit", l.TPM}, {"currentTokens", use.TPM}, {"heldTokens", use.TPMHeld}}},
		{"concurrency", object{{"limit", l.Concurrency}, {"current", use.Concurrency}}},
		{"monthly", a.quotaView(&k, llm.Month)},
		{"weekly", a.quotaView(&k, llm.Week)},
		{"daily", a.quotaView(&k, llm.Day)},
		{"balance", nil},
	}
	if u, found := a.Directory.User(k.UserID); found && !u.Unmetered {
		available, held := a.Limiter.Balance(u.ID)
		v[len(v)-1].value = append(object{{"userId", u.ID}}, a.balanceView(u, available, held)...)
	}
	return v, nil
}

// baseLimits are the key's own limits where it has them, else its tier's.
func (a *API) baseLimits(k auth.Key) limit.Limits {
	t := (*a.tiers.Load())[k.Tier]
	return limit.Limits{
		QPS:         auth.Own(k.QPSLimit, t.QPS),
		TPM:         auth.Own(k.TPMLimit, t.TPM),
		Concurrency: auth.Own(k.ConcurrencyLimit, t.Concurrency),
	}
}
