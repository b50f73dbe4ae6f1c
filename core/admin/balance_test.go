package admin_test

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/store/storetest"
)

func (f *fixture) balance(user uint64) llm.Micro {
	available, held := f.limiter.Balance(user)
	return available + held
}

func TestBalance(t *testing.T) {
	f := newFixture(t)
	f.account()
	const path = "/admin/users/1/balance"
	f.ok("POST", path, j{"deltaCny": 50}).has(t, "balanceCny", 150, "id", 1)
	f.ok("POST", path, j{"deltaCny": "-0.000001"}).has(t, "balanceMicroCny", 149_999_999)
	f.ok("POST", path, j{"setCny": 7}).has(t, "balanceCny", 7)
	f.ok("POST", path, j{"setCny": 7}).has(t, "balanceCny", 7)
	f.ok("POST", path, j{"deltaCny": -10}).has(t, "balanceCny", -3) // taken back after it was spent: allowed, and refuses
	f.ok("POST", path, j{"setCny": 0}).has(t, "balanceCny", 0)
	for name, c := range map[string]struct {
		body any
		says string
	}{
		"neither":      {j{}, "either deltaCny or setCny"},
		"both":         {j{"deltaCny": 1, "setCny": 1}, "either deltaCny or setCny"},
		"set below 0":  {j{"setCny": -1}, "at least 0"},
		"nothing":      {j{"deltaCny": 0}, "other than 0"},
		"too much":     {j{"deltaCny": 1e15}, "deltaCny"},
		"unknown":      {j{"deltaCny": 1, "note": "x"}, `"note"`},
		"misspelt":     {j{"detlaCny": 1}, "deltaCny"},
		"null delta":   {j{"deltaCny": nil}, "null"},
		"wrong suffix": {j{"deltaUsd": 1}, "deltaCny"},
	} {
		t.Run(name, func(t *testing.T) { f.refused(400, "POST", path, c.body, c.says) })
	}
	f.refused(404, "POST", "/admin/users/9/balance", j{"deltaCny": 1}, "no user 9")
	if f.balance(1) != 0 {
		t.Errorf("balance %s", f.balance(1))
	}
	f.ok("POST", path, j{"deltaCny": 999_999_999_999})
	f.refused(400, "POST", path, j{"deltaCny": 2}, "1000000000001")
}

func TestUnmeteredAndBack(t *testing.T) {
	f := newFixture(t)
	f.account()
	f.ok("POST", "/admin/users/1/balance", j{"setCny": nil}).has(t, "balanceCny", nil)
	if u, _ := f.dir.User(1); !u.Unmetered {
		t.Error("still metered")
	}
	f.refused(400, "POST", "/admin/users/1/balance", j{"deltaCny": 1}, "setCny gives it one")
	f.restart()
	f.ok("GET", "/admin/users/1", nil).has(t, "balanceCny", nil)
	f.ok("POST", "/admin/users/1/balance", j{"setCny": 5}).has(t, "balanceCny", 5)
	f.restart()
	f.ok("GET", "/admin/users/1", nil).has(t, "balanceCny", 5)
	if u, _ := f.dir.User(1); u.Unmetered {
		t.Error("still unmetered")
	}
}

// What an unmetered user spends is counted all the same, so that a balance given later is right in memory and after a
// restart.
func TestSpendingWhileUnmetered(t *testing.T) {
	f := newFixture(t)
	f.account()
	f.ok("POST", "/admin/users/1/balance", j{"setCny": nil})
	f.spendWith(3, "m", func(m *limit.Money) { m.Overdraft = math.MaxInt64 })
	f.ok("POST", "/admin/users/1/balance", j{"setCny": 5}).has(t, "balanceCny", 5)
	f.spend(1, "m")
	f.ok("GET", "/admin/users/1", nil).has(t, "balanceMicroCny", 5_000_000-19)
	f.restart()
	f.ok("GET", "/admin/users/1", nil).has(t, "balanceMicroCny", 5_000_000-19)
}

func TestM11OneEffectHundredEqualAnswers(t *testing.T) {
	f := newFixture(t)
	f.account()
	answers := make([]answer, 100)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			answers[i] = f.send("POST", "/admin/users/1/balance", j{"deltaCny": 5}, "Idempotency-Key", "top-up-1")
		})
	}
	wg.Wait()
	for _, a := range answers {
		if a.status != 200 || a.raw != answers[0].raw {
			t.Fatalf("%d %s differs from %s", a.status, a.raw, answers[0].raw)
		}
	}
	f.send("POST", "/admin/users/1/balance", j{"deltaCny": 6}, "Idempotency-Key", "top-up-1").isError(t, 409, "another request")
	f.send("POST", "/admin/users", j{"orgId": 1, "name": "x"}, "Idempotency-Key", "top-up-1").isError(t, 409, "another request")
	if f.balance(1) != 105*llm.MicroPerUnit {
		t.Errorf("balance %s", f.balance(1))
	}
	f.restart()
	if a := f.send("POST", "/admin/users/1/balance", j{"deltaCny": 5}, "Idempotency-Key", "top-up-1"); a.raw != answers[0].raw {
		t.Errorf("after a restart: %s", a.raw)
	}
	a := f.ok("POST", "/admin/users", j{"orgId": 1, "name": "bob", "balanceCny": 3}, "Idempotency-Key", "new-bob")
	b := f.ok("POST", "/admin/users", j{"orgId": 1, "name": "bob", "balanceCny": 3}, "Idempotency-Key", "new-bob")
	if a.status != 201 || b.status != 201 || a.raw != b.raw || f.balance(2) != 3*llm.MicroPerUnit {
		t.Errorf("%d %s, %d %s", a.status, a.raw, b.status, b.raw)
	}
	f.ok("GET", "/admin/users", nil).has(t, "data.1.name", "bob", "data.2", nil)
	for _, bad := range []string{"", "a\x00b", fmt.Sprintf("%0300d", 1)} {
		f.send("POST", "/admin/users/1/balance", j{"deltaCny": 5}, "Idempotency-Key", bad).isError(t, 400, "Idempotency-Key")
	}
}

// Who sends an Idempotency-Key with a change relies on it: where it is not honoured, that is said.
func TestIdempotencyKeyIsNeverIgnored(t *testing.T) {
	f := newFixture(t)
	f.account()
	for _, path := range []string{"/admin/keys", "/admin/tenants/1/rules/rollback", "/admin/tenants/1/rules/trial", "/admin/ledger/prune", "/admin/policies?name=x"} {
		f.send("POST", path, j{}, "Idempotency-Key", "once").isError(t, 400, "does not honour Idempotency-Key")
	}
	f.ok("GET", "/admin/keys/1", nil, "Idempotency-Key", "once")
}

// A change that cannot be written changes nothing: not money, not limits, not objects, not the policy.
func TestFailedWritesChangeNothing(t *testing.T) {
	f := newFixture(t)
	token := f.account()
	f.ok("PUT", "/admin/models/m", j{"free": true})
	f.ok("POST", "/admin/channels", j{"name": "c", "provider": "openai", "baseUrl": "http://127.0.0.1:9"})
	f.ok("POST", "/admin/policies/default/activate", nil)
	before := f.everything()
	for _, c := range []struct {
		method, path string
		body         any
	}{
		{"POST", "/admin/users/1/balance", j{"deltaCny": 5}},
		{"POST", "/admin/users/1/balance", j{"deltaCny": -5}},
		{"POST", "/admin/users/1/balance", j{"setCny": 1}},
		{"POST", "/admin/users/1/balance", j{"setCny": nil}},
		{"POST", "/admin/orgs", j{"name": "x"}},
		{"PATCH", "/admin/orgs/1", j{"name": "x"}},
		{"POST", "/admin/users", j{"orgId": 1, "name": "x", "balanceCny": 4}},
		{"PATCH", "/admin/users/1", j{"name": "x"}},
		{"POST", "/admin/keys", j{"userId": 1, "name": "x"}},
		{"PATCH", "/admin/keys/1", j{"name": "x"}},
		{"POST", "/admin/keys/1/limits", j{"monthlyQuotaCny": 1}},
		{"POST", "/admin/keys/1/limits", j{"monthlyQuotaCny": 20000}},
		{"DELETE", "/admin/keys/1", nil},
		{"PUT", "/admin/models/m", j{"tpmLimit": 4}},
		{"DELETE", "/admin/models/m", nil},
		{"PATCH", "/admin/channels/1", j{"state": "disabled"}},
		{"DELETE", "/admin/channels/1", nil},
		{"PUT", "/admin/limits/global", j{"qpsLimit": 1}},
		{"POST", "/admin/policies/priority/activate", nil},
		{"PUT", "/admin/bindings", j{"module": nil}},
	} {
		f.store.Before(func(int, []ledger.Write) error { return storetest.ErrInjected })
		a := f.send(c.method, c.path, c.body)
		f.store.Before(nil)
		for f.ledger.Healthy() != nil {
			runtime.Gosched()
		}
		a.isError(t, 503, "nothing changed")
		if after := f.everything(); after != before {
			t.Fatalf("%s %s %v changed something:\n%s\n%s", c.method, c.path, c.body, before, after)
		}
		if b, ok := f.host.Active(); !ok || b.Module != "default" {
			t.Fatalf("%s %s left %+v active", c.method, c.path, b)
		}
	}
	if f.unauthorized(token) {
		t.Error("the key is gone")
	}
	f.restart()
	if after := f.everything(); after != before {
		t.Errorf("after a restart:\n%s\n%s", before, after)
	}
}

// everything is all that the API shows of the objects, as text.
func (f *fixture) everything() (all string) {
	for _, path := range []string{"/admin/orgs", "/admin/users", "/admin/keys", "/admin/keys/1/usage-window", "/admin/models", "/admin/channels",
		"/admin/limits/global", "/admin/policies", "/admin/bindings"} {
		all += path + " " + f.send("GET", path, nil).raw
	}
	return all
}

func TestLedgerStaysRight(t *testing.T) {
	f := newFixture(t)
	f.account()
	f.ok("POST", "/admin/users/1/balance", j{"deltaCny": 5})
	f.ok("POST", "/admin/users/1/balance", j{"setCny": 3})
	f.close()
	report, err := ledger.Verify(f.store)
	f.open()
	if err != nil || len(report.Problems) > 0 || report.Credits != 3*llm.MicroPerUnit {
		t.Errorf("%+v %v", report, err)
	}
}
