package admin

import (
	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
)

// movement is one change of a user's money.
type movement struct {
	user   auth.User // as it will be
	delta  llm.Micro
	turned bool // metered <-> unmetered
}

// moveBalance takes {deltaCny} or {setCny}. A set is logged as the delta that leads there: credits minus posted
// becomes the given amount. setCny null makes the user unmetered, a number makes it metered again.
func (a *API) moveBalance(c *call) (answer, error) {
	u, err := a.user(c)
	if err != nil {
		return answer{}, err
	}
	available, held := a.Limiter.Balance(u.ID)
	m, err := a.readMovement(parseBody(c.body), u, llm.AddMicro(available, held))
	if err != nil {
		return answer{}, err
	}
	ch := change{action: "user.balance", target: target("user", u.ID),
		before: a.userWith(u, available, held), after: a.userWith(m.user, llm.AddMicro(available, m.delta), held)}
	if m.turned {
		ch.docs = []ledger.Doc{doc("user", u.ID, m.user)}
	}
	if m.delta != 0 {
		ch.credits = []llm.Entry{a.credit(u, m.delta)}
	}
	ans := ok(ch.after)
	return ans, a.move(c, m, ch, ans)
}

func (a *API) readMovement(b *body, u auth.User, balance llm.Micro) (movement, error) {
	m := movement{user: u}
	delta, set := "delta"+a.suffix, "set"+a.suffix
	b.amount(delta, &m.delta, true)
	var to llm.Micro
	switch {
	case b.has(delta) == b.has(set):
		b.take(set)
		if err := b.end(); err != nil {
			return m, err
		}
		return m, llm.Invalid(delta, "expected either %s or %s", delta, set)
	case b.null(set):
		m.user.Unmetered = true
	case b.has(set):
		b.amount(set, &to, false)
		m.user.Unmetered = false
		m.delta = llm.AddMicro(to, -balance)
	case u.Unmetered:
		b.fail(delta, "user %d has no balance; %s gives it one", u.ID, set)
	case m.delta == 0:
		b.fail(delta, "expected an amount other than 0")
	}
	m.turned = m.user.Unmetered != u.Unmetered
	switch after := llm.AddMicro(balance, m.delta); {
	case b.has(set) && !m.user.Unmetered && after != to:
		b.fail(set, "the user was charged %s, more than a balance can make up for; give the money to a new user", -balance)
	case m.delta != 0 && (after > maxMoney || after < -maxMoney):
		b.fail(delta, "the balance would become %s; it stays within %s on either side of 0", after, maxMoney)
	}
	return m, b.end()
}

// move keeps the order that rules out overdraft by admission: a rise is durable before the limiter knows it, a cut is
// in the limiter before it is durable.
func (a *API) move(c *call, m movement, ch change, ans answer) error {
	if m.delta < 0 {
		a.Limiter.Credit(m.user.ID, m.delta)
	}
	err := a.put(c.ctx, c, ch, ans)
	if err != nil && m.delta < 0 {
		a.Limiter.Credit(m.user.ID, -m.delta)
	}
	if err == nil && m.delta > 0 {
		a.Limiter.Credit(m.user.ID, m.delta)
	}
	if err == nil && m.turned {
		a.Directory.SetUser(m.user)
	}
	return err
}
