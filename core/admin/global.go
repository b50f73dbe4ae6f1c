package admin

import (
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/limit"
)

// settingGlobal is the document of the global limits.
const settingGlobal = "global"

func globalView(l limit.Limits) object {
	return object{{"qpsLimit", l.QPS}, {"tpmLimit", l.TPM}, {"concurrencyLimit", l.Concurrency}}
}

func (a *API) getGlobal(c *call) (answer, error) {
	use, err := a.Limiter.Inspect(c.ctx, limit.ID{Kind: limit.Global})
	if err != nil {
		return answer{}, err
	}
	return ok(append(globalView(*a.global.Load()), member{"current", object{{"qps", use.QPS}, {"tpm", use.TPM}, {"concurrency", use.Concurrency}}})), nil
}

func (a *API) putGlobal(c *call) (answer, error) {
	old := *a.global.Load()
	l := old
	b := parseBody(c.body)
	b.count("qpsLimit", &l.QPS)
	b.count("tpmLimit", &l.TPM)
	b.count("concurrencyLimit", &l.Concurrency)
	if err := b.end(); err != nil {
		return answer{}, err
	}
	ans := ok(globalView(l))
	err := a.put(c.ctx, c, change{action: "limits.global", target: "setting:global", before: globalView(old), after: ans.value,
		docs: []ledger.Doc{named("setting", settingGlobal, l)}}, ans)
	if err == nil {
		a.applyGlobal(l)
	}
	return ans, err
}

func (a *API) applyGlobal(l limit.Limits) {
	a.global.Store(&l)
	a.Live.SetGlobal(l)
}
