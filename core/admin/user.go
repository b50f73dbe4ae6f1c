package admin

import (
	"cmp"
	"fmt"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
)

// userView shows a user with the money it has: credits minus what was charged, of which held is reserved by open
// requests and available is free.
func (a *API) userView(u auth.User) object {
	available, held := a.Limiter.Balance(u.ID)
	return a.userWith(u, available, held)
}

func (a *API) userWith(u auth.User, available, held llm.Micro) object {
	v := object{{"id", u.ID}, {"orgId", u.OrgID}, {"name", u.Name}, {"qpsLimit", u.QPSLimit}, {"tpmLimit", u.TPMLimit},
		{"overrun", cmp.Or(u.Overrun, limit.Debt.String())}}
	return append(v, a.balanceView(u, available, held)...)
}

// balanceView is null throughout for a user without a balance.
func (a *API) balanceView(u auth.User, available, held llm.Micro) object {
	v := append(a.money("balance", llm.AddMicro(available, held)), a.money("available", available)...)
	v = append(v, a.money("held", held)...)
	if u.Unmetered {
		for i := range v {
			v[i].value = nil
		}
	}
	return v
}

// user reads what create and patch have in common.
func (b *body) user(u *auth.User) {
	b.text("name", &u.Name, checkName)
	b.count("qpsLimit", &u.QPSLimit)
	b.count("tpmLimit", &u.TPMLimit)
	b.text("overrun", &u.Overrun, checkOverrun)
}

func checkOverrun(s string) error {
	if _, known := limit.ParseOverrun(s); known && s != "" {
		return nil
	}
	hint := ""
	if near := llm.Nearest(s, limit.OverrunNames()); near != "" {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	return fmt.Errorf("expected debt, clip or cut, got %.64q%s", s, hint)
}

func (a *API) listUsers(c *call) (answer, error) {
	q := parseQuery(c.URL, "limit", "cursor", "orgId")
	org := q.id("orgId")
	users := only(a.Directory.Users(), func(u auth.User) bool { return org == 0 || u.OrgID == org })
	return pageOf(q, users, func(u auth.User) uint64 { return u.ID }, parseID, a.userView)
}

// user finds the one in the path.
func (a *API) user(c *call) (auth.User, error) {
	id, err := c.id("user")
	if err != nil {
		return auth.User{}, err
	}
	u, found := a.Directory.User(id)
	if !found {
		return u, missing("user", id)
	}
	return u, nil
}

func (a *API) getUser(c *call) (answer, error) {
	u, err := a.user(c)
	return ok(a.userView(u)), err
}

func (a *API) createUser(c *call) (answer, error) {
	var u auth.User
	var balance llm.Micro
	b := parseBody(c.body)
	b.need("orgId", "name")
	b.id("orgId", &u.OrgID)
	b.user(&u)
	if name := "balance" + a.suffix; b.null(name) {
		u.Unmetered = true
	} else {
		b.amount(name, &balance, false)
	}
	if err := b.end(); err != nil {
		return answer{}, err
	}
	if _, found := a.Directory.Org(u.OrgID); !found {
		return answer{}, llm.Invalid("orgId", "orgId: no org %d", u.OrgID)
	}
	u.ID = a.Ledger.NextDocID("user")
	ans := created(a.userWith(u, balance, 0))
	err := a.put(c.ctx, c, a.newUser(u, balance, ans.value), ans)
	if err == nil {
		a.applyUser(u, ledger.Balance{Credits: balance})
	}
	return ans, err
}

func (a *API) newUser(u auth.User, balance llm.Micro, view any) change {
	ch := change{action: "user.create", target: target("user", u.ID), after: view, docs: []ledger.Doc{doc("user", u.ID, u)}}
	if balance != 0 {
		ch.credits = []llm.Entry{a.credit(u, balance)}
	}
	return ch
}

func (a *API) applyUser(u auth.User, b ledger.Balance) {
	a.Limiter.LoadBalance(u.ID, b.Credits, b.Posted)
	a.Directory.SetUser(u)
}

// credit is the ledger's line of a movement of a user's credits.
func (a *API) credit(u auth.User, delta llm.Micro) llm.Entry {
	return llm.Entry{Kind: llm.EntryCredit, AtMS: a.Clock.Wall().UnixMilli(), OrgID: u.OrgID, UserID: u.ID, Cost: delta}
}

func (a *API) patchUser(c *call) (answer, error) {
	u, err := a.user(c)
	if err != nil {
		return answer{}, err
	}
	before := a.userView(u)
	b := parseBody(c.body)
	b.fixed("orgId", "a user stays in its org")
	b.fixed("balance"+a.suffix, fmt.Sprintf("money moves through POST /admin/users/%d/balance with delta%s or set%s", u.ID, a.suffix, a.suffix))
	b.user(&u)
	if err := b.end(); err != nil {
		return answer{}, err
	}
	ans := ok(a.userView(u))
	err = a.put(c.ctx, c, change{action: "user.update", target: target("user", u.ID), before: before, after: ans.value,
		docs: []ledger.Doc{doc("user", u.ID, u)}}, ans)
	if err == nil {
		a.Directory.SetUser(u)
	}
	return ans, err
}

// deleteUser leaves the user's credits in the ledger: they are history, and the id is never used again.
func (a *API) deleteUser(c *call) (answer, error) {
	u, err := a.user(c)
	if err != nil {
		return answer{}, err
	}
	keys := only(a.Directory.Keys(), func(k auth.Key) bool { return k.UserID == u.ID })
	if len(keys) > 0 {
		return answer{}, llm.Errorf(llm.KindConflict, "user %d still has %s, the first is %d; delete them first", u.ID, counted(len(keys), "key"), keys[0].ID)
	}
	if _, held := a.Limiter.Balance(u.ID); held != 0 {
		return answer{}, llm.Errorf(llm.KindConflict, "user %d has %s %s held by open requests; try again when they have ended", u.ID, held, a.o.Currency)
	}
	err = a.put(c.ctx, c, change{action: "user.delete", target: target("user", u.ID), before: a.userView(u),
		docs: []ledger.Doc{doc("user", u.ID, nil)}}, answer{})
	if err == nil {
		a.Directory.DeleteUser(u.ID)
	}
	return deleted(u.ID), err
}
