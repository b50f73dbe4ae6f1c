package admin

import (
	"fmt"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
)

func (a *API) orgView(o auth.Org) object {
	return object{{"id", o.ID}, {"name", o.Name}, {"qpsLimit", o.QPSLimit}, {"tpmLimit", o.TPMLimit}}
}

func (b *body) org(o *auth.Org) error {
	b.text("name", &o.Name, checkName)
	b.count("qpsLimit", &o.QPSLimit)
	b.count("tpmLimit", &o.TPMLimit)
	return b.end()
}

func (a *API) listOrgs(c *call) (answer, error) {
	q := parseQuery(c.URL, "limit", "cursor")
	return pageOf(q, a.Directory.Orgs(), func(o auth.Org) uint64 { return o.ID }, parseID, a.orgView)
}

// org finds the one in the path.
func (a *API) org(c *call) (auth.Org, error) {
	id, err := c.id("org")
	if err != nil {
		return auth.Org{}, err
	}
	o, found := a.Directory.Org(id)
	if !found {
		return o, missing("org", id)
	}
	return o, nil
}

func (a *API) getOrg(c *call) (answer, error) {
	o, err := a.org(c)
	return ok(a.orgView(o)), err
}

func (a *API) createOrg(c *call) (answer, error) {
	var o auth.Org
	b := parseBody(c.body)
	b.need("name")
	if err := b.org(&o); err != nil {
		return answer{}, err
	}
	o.ID = a.Ledger.NextDocID("org")
	ans := created(a.orgView(o))
	err := a.put(c.ctx, c, change{action: "org.create", target: target("org", o.ID), after: ans.value,
		docs: []ledger.Doc{doc("org", o.ID, o)}}, ans)
	if err == nil {
		a.Directory.SetOrg(o)
	}
	return ans, err
}

func (a *API) patchOrg(c *call) (answer, error) {
	o, err := a.org(c)
	if err != nil {
		return answer{}, err
	}
	before := a.orgView(o)
	if err := parseBody(c.body).org(&o); err != nil {
		return answer{}, err
	}
	ans := ok(a.orgView(o))
	err = a.put(c.ctx, c, change{action: "org.update", target: target("org", o.ID), before: before, after: ans.value,
		docs: []ledger.Doc{doc("org", o.ID, o)}}, ans)
	if err == nil {
		a.Directory.SetOrg(o)
	}
	return ans, err
}

func (a *API) deleteOrg(c *call) (answer, error) {
	o, err := a.org(c)
	if err != nil {
		return answer{}, err
	}
	users := only(a.Directory.Users(), func(u auth.User) bool { return u.OrgID == o.ID })
	if len(users) > 0 {
		return answer{}, llm.Errorf(llm.KindConflict, "org %d still has %s, the first is %d; delete them first", o.ID, counted(len(users), "user"), users[0].ID)
	}
	owner := policy.Owner(o.ID)
	docs := []ledger.Doc{doc("org", o.ID, nil)}
	if _, bound := a.rules.Load().bound[owner]; bound {
		docs = append(docs, named("binding", owner.String(), nil))
	}
	err = a.put(c.ctx, c, change{action: "org.delete", target: target("org", o.ID), before: a.orgView(o), docs: docs}, answer{})
	if err == nil {
		a.Directory.DeleteOrg(o.ID)
		a.rules.Store(a.rules.Load().unbind(owner))
		err = a.Policy.Plan(c.ctx, owner, policy.Plan{})
	}
	return deleted(o.ID), err
}

// counted is 1 user or 2 users.
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// deleted is the answer to DELETE.
func deleted(id any) answer { return ok(object{{"id", id}, {"deleted", true}}) }
