package admin

import (
	"fmt"
	"strings"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/upstream"
)

// channelView never shows the credential, only whether there is one.
func (a *API) channelView(ch upstream.Channel) object {
	return object{{"id", ch.ID}, {"name", ch.Name}, {"provider", ch.Provider}, {"baseUrl", ch.BaseURL}, {"apiVersion", ch.APIVersion},
		{"credentialSet", ch.Credential != ""}, {"weight", max(ch.Weight, 1)}, {"priority", ch.Priority}, {"state", ch.State},
		{"qpsLimit", ch.QPSLimit}, {"tpmLimit", ch.TPMLimit}, {"concurrencyLimit", ch.ConcurrencyLimit}}
}

// withHealth adds what the client's side knows of a channel right now.
func (a *API) withHealth(ch upstream.Channel, health map[string]upstream.Health) object {
	v := a.channelView(ch)
	h, known := health[ch.Name]
	if !known {
		return append(v, member{"health", nil})
	}
	return append(v, member{"health", object{{"state", h.State}, {"coolingMs", h.UntilMS}, {"failures", h.Failures}, {"lastStatus", h.LastStatus},
		{"inFlight", h.InFlight}, {"limit", h.Limit}, {"waiting", h.Waiting}}})
}

func (a *API) health(g *goods) map[string]upstream.Health {
	all := map[string]upstream.Health{}
	if a.Client != nil && g.catalog != nil {
		for _, h := range a.Client.Health(g.catalog) {
			all[h.Channel] = h
		}
	}
	return all
}

func (a *API) listChannels(c *call) (answer, error) {
	q := parseQuery(c.URL, "limit", "cursor")
	g := a.goods.Load()
	health := a.health(g)
	return pageOf(q, g.channels, func(ch upstream.Channel) uint64 { return ch.ID }, parseID,
		func(ch upstream.Channel) object { return a.withHealth(ch, health) })
}

// channel finds the one in the path.
func (a *API) channel(c *call) (upstream.Channel, error) {
	id, err := c.id("channel")
	if err != nil {
		return upstream.Channel{}, err
	}
	ch, found := a.goods.Load().channel(id)
	if !found {
		return ch, missing("channel", id)
	}
	return ch, nil
}

func (a *API) getChannel(c *call) (answer, error) {
	ch, err := a.channel(c)
	if err != nil {
		return answer{}, err
	}
	return ok(a.withHealth(ch, a.health(a.goods.Load()))), nil
}

// channel reads the fields; what they must hold beyond their type is the catalog's to say.
func (b *body) channel(ch *upstream.Channel) error {
	weight, priority := int64(ch.Weight), int64(ch.Priority)
	b.text("name", &ch.Name, checkName)
	b.text("provider", &ch.Provider, oneOf("openai", "anthropic"))
	b.text("baseUrl", &ch.BaseURL, checkName)
	b.text("credential", &ch.Credential, checkCredential)
	b.text("apiVersion", &ch.APIVersion, checkCredential)
	b.integer("weight", &weight, 1, 1000, "a whole number from 1 to 1000")
	b.integer("priority", &priority, -1000, 1000, "a whole number from -1000 to 1000")
	b.text("state", &ch.State, oneOf("enabled", "disabled"))
	b.count("qpsLimit", &ch.QPSLimit)
	b.count("tpmLimit", &ch.TPMLimit)
	b.count("concurrencyLimit", &ch.ConcurrencyLimit)
	ch.Weight, ch.Priority = int(weight), int(priority)
	return b.end()
}

// checkCredential says nothing of the content.
func checkCredential(s string) error {
	if len(s) > 4096 || !printable(s) || strings.TrimSpace(s) != s {
		return fmt.Errorf("expected at most 4096 printable bytes without blanks at the ends")
	}
	return nil
}

func (a *API) createChannel(c *call) (answer, error) {
	ch := upstream.Channel{Weight: 1, State: "enabled"}
	b := parseBody(c.body)
	b.need("name", "provider", "baseUrl")
	if err := b.channel(&ch); err != nil {
		return answer{}, err
	}
	if other, taken := a.goods.Load().channelNamed(ch.Name); taken {
		return answer{}, llm.Errorf(llm.KindConflict, "channel %d has the name %q already", other.ID, ch.Name)
	}
	ch.ID = a.Ledger.NextDocID("channel")
	g, err := a.goods.Load().withChannel(ch.ID, &ch)
	if err != nil {
		return answer{}, err
	}
	ans := created(a.channelView(ch))
	err = a.put(c.ctx, c, change{action: "channel.create", target: target("channel", ch.ID), after: ans.value,
		docs: []ledger.Doc{doc("channel", ch.ID, ch)}}, ans)
	if err == nil {
		a.applyGoods(g)
	}
	return ans, err
}

func (a *API) patchChannel(c *call) (answer, error) {
	old, err := a.channel(c)
	if err != nil {
		return answer{}, err
	}
	ch := old
	if err := parseBody(c.body).channel(&ch); err != nil {
		return answer{}, err
	}
	g := a.goods.Load()
	if names := g.users(old.Name); ch.Name != old.Name && len(names) > 0 {
		return answer{}, inUse(old, names)
	}
	if other, taken := g.channelNamed(ch.Name); taken && other.ID != ch.ID {
		return answer{}, llm.Errorf(llm.KindConflict, "channel %d has the name %q already", other.ID, ch.Name)
	}
	if g, err = g.withChannel(ch.ID, &ch); err != nil {
		return answer{}, err
	}
	ans := ok(a.channelView(ch))
	before, after := a.channelView(old), a.channelView(ch)
	if old.Credential != ch.Credential {
		after = append(after, member{"credentialChanged", true})
	}
	err = a.put(c.ctx, c, change{action: "channel.update", target: target("channel", ch.ID), before: before, after: after,
		docs: []ledger.Doc{doc("channel", ch.ID, ch)}}, ans)
	if err == nil {
		a.applyGoods(g)
	}
	return ans, err
}

func inUse(ch upstream.Channel, models []string) error {
	return llm.Errorf(llm.KindConflict, "channel %q is named by %d models, the first is %q; change them first", ch.Name, len(models), models[0])
}

func (a *API) deleteChannel(c *call) (answer, error) {
	ch, err := a.channel(c)
	if err != nil {
		return answer{}, err
	}
	if names := a.goods.Load().users(ch.Name); len(names) > 0 {
		return answer{}, inUse(ch, names)
	}
	g, err := a.goods.Load().withChannel(ch.ID, nil)
	if err != nil {
		return answer{}, err
	}
	err = a.put(c.ctx, c, change{action: "channel.delete", target: target("channel", ch.ID), before: a.channelView(ch),
		docs: []ledger.Doc{doc("channel", ch.ID, nil)}}, answer{})
	if err == nil {
		a.applyGoods(g)
	}
	return deleted(ch.ID), err
}
