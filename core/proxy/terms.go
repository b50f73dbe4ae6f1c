package proxy

import (
	"strings"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/upstream"
)

// terms are what a request is paid by beside its tokens. They are fixed at admission: neither a failover nor a reload
// changes them, and what an answer says can only make them cheaper.
type terms struct {
	list     llm.Price // the model's standard price; none where nothing is paid
	tier     string    // service tier, as the model names it; empty: the standard price
	permille uint32    // of list at the tier
	open     bool      // what the answer says of its price counts
}

// agree settles on the terms, or refuses what the model has no price for. It gives the price to hold the request at.
func (c *call) agree(m *upstream.Model, who *auth.Caller) (llm.Price, error) {
	list, err := priceFor(m, who)
	if err != nil {
		return llm.Price{}, err
	}
	tier, permille, ok := m.Asked(c.head.ServiceTier.In(c.body))
	if !ok {
		return llm.Price{}, c.unpricedTier(m)
	}
	c.terms = terms{list: list, tier: tier, permille: permille, open: len(m.ServiceTiers) > 0 && c.endpoint() != llm.CountTokens}
	return list.Scale(permille), nil
}

func (c *call) unpricedTier(m *upstream.Model) error {
	asked, names := string(c.head.ServiceTier.In(c.body)), m.TierNames(c.dialect)
	e := llm.Invalid("service_tier", "model %q has no price for service tier %.64q; it has %s", m.Name, asked, strings.Join(names, ", "))
	if near := llm.Nearest(asked, names); near != "" {
		e.Message += "; did you mean " + near + "?"
	}
	return e
}

// heed tells the hold what the answer says of its price. A provider may serve a request at a cheaper tier than it asked for;
// a dearer one is the provider's own affair.
func (c *call) heed(res limit.Reservation, told *upstream.Told) {
	t := &c.terms
	tier, permille := t.tier, t.permille
	if len(told.Tier) > 0 {
		if served, factor, ok := c.model.Tier(told.Tier); ok && factor <= permille {
			tier, permille = served, factor
		}
	}
	res.Priced(t.list.Scale(permille).Scale(c.decision.Price), tier)
}
