package admin_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/admin"
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/core/upstream"
	"github.com/weir-gateway/weir/store/storetest"
)

// What the next process serves is what this one served.
func TestRestartRestoresEverything(t *testing.T) {
	f := newFixture(t)
	token := f.account()
	f.ok("POST", "/admin/orgs", j{"name": "Other", "qpsLimit": 3})
	f.ok("POST", "/admin/users", j{"orgId": 2, "name": "bob", "balanceCny": 7})
	f.ok("DELETE", "/admin/users/2", nil)
	f.ok("PATCH", "/admin/keys/1", j{"labels": j{"team": "a"}, "models": []string{"gpt*"}, "expiresInDays": 3, "timezone": "Asia/Tokyo"})
	f.ok("POST", "/admin/channels", j{"name": "c", "provider": "anthropic", "baseUrl": "http://127.0.0.1:9", "credential": "s3cret"})
	f.ok("PUT", "/admin/models/m", j{"inputCnyPer1M": 1, "outputCnyPer1M": 2, "channels": []string{"c"}, "labels": j{"hot": "1"}})
	f.ok("PUT", "/admin/limits/global", j{"qpsLimit": 9})
	f.ok("POST", "/admin/policies/default/activate", j{"onError": "deny"})
	f.ok("POST", "/admin/users/1/balance", j{"deltaCny": -30})
	before := f.everything()
	crashed := f.store.Clone()
	f.restart()
	if after := f.everything(); after != before {
		t.Errorf("before and after differ:\n%s\n%s", before, after)
	}
	if f.unauthorized(token) {
		t.Error("the key does not resolve any more")
	}
	if m, ok := f.proxy.catalog.Model([]byte("m")); !ok || m.Price.Output != 2_000_000 || f.proxy.global.QPS != 9 {
		t.Errorf("the proxy has %+v, %+v", m, f.proxy.global)
	}
	if f.balance(1) != 70*llm.MicroPerUnit {
		t.Errorf("balance %s", f.balance(1))
	}
	f.close()
	f.store = crashed // and after kill -9
	f.open()
	if after := f.everything(); after != before {
		t.Errorf("after a crash:\n%s\n%s", before, after)
	}
	// numbers of deleted objects stay used
	f.ok("POST", "/admin/users", j{"orgId": 2, "name": "carol"}).has(t, "id", 3)
}

func TestSecretIsMadeOnce(t *testing.T) {
	f := newFixture(t)
	a, err := admin.Secret(f.ledger, strings.NewReader(""))
	if err != nil || len(a) != 32 {
		t.Fatal(a, err)
	}
	f.restart()
	b, err := admin.Secret(f.ledger, strings.NewReader(""))
	if err != nil || string(a) != string(b) {
		t.Errorf("%x became %x, %v", a, b, err)
	}
	f.must(f.ledger.Put(t.Context(), ledger.Change{}, []ledger.Doc{{Kind: "setting", ID: "key-secret", Data: []byte(`"00"`)}}, nil))
	if _, err := admin.Secret(f.ledger, strings.NewReader("")); err == nil {
		t.Error("a damaged secret was taken")
	}
}

func TestDamagedDocumentsStopTheStart(t *testing.T) {
	f := newFixture(t)
	f.account()
	f.must(f.ledger.Put(t.Context(), ledger.Change{}, []ledger.Doc{{Kind: "user", ID: "1", Data: []byte(`{"id":`)}}, nil))
	err := f.api.Restore(t.Context(), ledger.State{})
	if err == nil || !strings.Contains(err.Error(), "document user 1 is damaged") {
		t.Errorf("%v", err)
	}
}

func seed() admin.Seed {
	return admin.Seed{
		Global:   limit.Limits{QPS: 100},
		Channels: []upstream.Channel{{Name: "main", Provider: "openai", BaseURL: "http://127.0.0.1:9", Credential: "one"}},
		Models: []upstream.Model{{Name: "a", Channels: []string{"main"}, TPMLimit: 10, Priced: true, Price: llm.Price{Input: 1, Output: 2}},
			{Name: "b", Free: true}, {Name: "c", Free: true}},
		Policies: []admin.SeedPolicy{{Name: "default", OnError: policy.OnErrorDefault, Active: true}},
	}
}

func (f *fixture) seed(s admin.Seed, overwrite bool) {
	f.t.Helper()
	f.must(f.api.Seed(f.t.Context(), s, overwrite))
}

func TestSeedFillsAndFollows(t *testing.T) {
	f := newFixture(t)
	f.seed(seed(), false)
	f.ok("GET", "/admin/models/a", nil).has(t, "tpmLimit", 10, "inputCnyPer1M", "0.000001")
	f.ok("GET", "/admin/limits/global", nil).has(t, "qpsLimit", 100)
	f.ok("GET", "/admin/bindings", nil).has(t, "data.0.module", "default")
	writes := f.store.Applies()
	f.restart()
	f.seed(seed(), false) // nothing to do
	f.seed(seed(), true)
	if n := f.store.Applies() - writes; n > 1 { // a start may write a line of its own
		t.Errorf("a seed without news wrote %d times", n)
	}

	// The configuration changes: what nobody touched follows.
	s := seed()
	s.Models[0].TPMLimit, s.Global.QPS, s.Channels[0].Credential = 20, 200, "two"
	s.Policies[0].OnError = policy.OnErrorDeny
	f.seed(s, false)
	f.ok("GET", "/admin/models/a", nil).has(t, "tpmLimit", 20)
	f.ok("GET", "/admin/limits/global", nil).has(t, "qpsLimit", 200)
	f.ok("GET", "/admin/bindings", nil).has(t, "data.0.onError", "deny")
	if ch := f.proxy.catalog.Channels()[0]; ch.Credential != "two" || ch.ID != 1 {
		t.Errorf("%+v", ch)
	}

	// The API changes and deletes: that wins.
	f.ok("PUT", "/admin/models/a", j{"tpmLimit": 30})
	f.ok("DELETE", "/admin/models/b", nil)
	f.ok("PUT", "/admin/limits/global", j{"qpsLimit": 300})
	f.ok("POST", "/admin/policies/priority/activate", nil)
	f.restart()
	s.Models[0].TPMLimit, s.Global.QPS = 40, 400
	s.Models[2].TPMLimit = 5
	f.seed(s, false)
	f.ok("GET", "/admin/models/a", nil).has(t, "tpmLimit", 30)
	f.refused(404, "GET", "/admin/models/b", nil)
	f.ok("GET", "/admin/models/c", nil).has(t, "tpmLimit", 5)
	f.ok("GET", "/admin/limits/global", nil).has(t, "qpsLimit", 300)
	f.ok("GET", "/admin/bindings", nil).has(t, "data.0.module", "priority")

	// Until the configuration is applied.
	f.seed(s, true)
	f.ok("GET", "/admin/models/a", nil).has(t, "tpmLimit", 40)
	f.ok("GET", "/admin/models/b", nil)
	f.ok("GET", "/admin/limits/global", nil).has(t, "qpsLimit", 400)
	f.ok("GET", "/admin/bindings", nil).has(t, "data.0.module", "default")
	f.restart()
	f.ok("GET", "/admin/models/a", nil).has(t, "tpmLimit", 40)
	f.ok("GET", "/admin/audit?limit=1", nil).has(t, "data.0.actor", "config", "data.0.action", "config.apply")
}

// What only an earlier configuration named stays in use, and an apply says so and how it goes; what the API made, or took away, is
// nobody's news.
func TestApplySaysWhatStays(t *testing.T) {
	f := newFixture(t)
	s := seed()
	f.api.Apply = func(ctx context.Context) error { return f.api.Seed(ctx, s, true) }
	f.ok("PUT", "/admin/models/mine", j{"free": true})
	f.ok("POST", "/admin/config/apply", nil).has(t, "applied", true, "warnings", "[]")
	s.Models, s.Policies = s.Models[1:], nil
	s.Channels = append([]upstream.Channel{{Name: "new", Provider: "openai", BaseURL: "http://127.0.0.1:9"}}, s.Channels[1:]...)
	for i := range s.Models {
		s.Models[i].Channels = nil
	}
	want := []string{"model a is no longer in the file and stays: weir model delete a", "channel main is no longer in the file and stays: weir channel delete 1",
		"policy default is no longer in the file and stays active: weir policy activate NAME takes another"}
	for range 2 { // until they are gone
		a := f.ok("POST", "/admin/config/apply", nil)
		for i, w := range want {
			if got := a.at(fmt.Sprintf("warnings.%d", i)); got != w {
				t.Errorf("%v, want %s", got, w)
			}
		}
	}
	f.ok("DELETE", "/admin/models/a", nil)
	f.ok("DELETE", "/admin/channels/1", nil)
	f.ok("POST", "/admin/policies/priority/activate", nil)
	f.ok("POST", "/admin/config/apply", nil).has(t, "warnings", "[]")
}

func TestSeedFailsWhole(t *testing.T) {
	f := newFixture(t)
	f.seed(seed(), false)
	before := f.everything()
	for name, c := range map[string]struct {
		change func(*admin.Seed)
		says   string
	}{
		"unknown channel": {func(s *admin.Seed) { s.Models[1].Channels = []string{"mian"} }, "did you mean main?"},
		"unknown module":  {func(s *admin.Seed) { s.Policies[0].Name = "nothing" }, "nothing"},
		"broken module":   {func(s *admin.Seed) { s.Policies[0].Wasm = []byte("hello") }, "policy default"},
		"bad params":      {func(s *admin.Seed) { s.Policies[0].Params = []byte(`{"no such param":1}`) }, "default"},
	} {
		s := seed()
		s.Models[0].TPMLimit, s.Global.QPS = 77, 77
		c.change(&s)
		if err := f.api.Seed(t.Context(), s, false); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if after := f.everything(); after != before {
			t.Errorf("%s changed something:\n%s\n%s", name, before, after)
		}
	}
	s := seed()
	s.Models[0].TPMLimit = 77
	s.Policies[0] = admin.SeedPolicy{Name: "priority", Active: true}
	f.store.Before(func(int, []ledger.Write) error { return storetest.ErrInjected })
	err := f.api.Seed(t.Context(), s, false)
	f.store.Before(nil)
	var e *llm.Error
	if !errors.As(err, &e) || e.Kind != llm.KindUnavailable {
		t.Errorf("%v", err)
	}
	if b, _ := f.host.Active(); b.Module != "default" {
		t.Errorf("the host has %+v", b)
	}
	if after := f.everything(); after != before {
		t.Errorf("a failed write changed something:\n%s\n%s", before, after)
	}
}

// What belongs to a seed is in force before the next change has its turn: none can be lost in between.
func TestNothingChangesBeforeASeedIsWhole(t *testing.T) {
	f := newFixture(t)
	s, code := seed(), 0
	s.Then = func() {
		gone, leave := context.WithCancel(t.Context())
		leave()
		r := httptest.NewRequestWithContext(gone, "PUT", "/admin/limits/global", strings.NewReader(`{"qpsLimit":7}`))
		r.Header.Set("Authorization", "Bearer "+adminToken)
		w := httptest.NewRecorder()
		f.handler.ServeHTTP(w, r)
		code = w.Code
	}
	f.seed(s, false)
	if code != 503 || f.proxy.global.QPS != 100 {
		t.Errorf("a change in the middle of a seed gets %d; the global limit is %d", code, f.proxy.global.QPS)
	}
}

// A module file that is edited again and again leaves no more modules in the host than the store keeps; one that is
// refused leaves none.
func TestSeedForgetsWhatItDrops(t *testing.T) {
	f := newFixture(t)
	one := module(t, "default")
	s := admin.Seed{Policies: []admin.SeedPolicy{{Name: "mine", Wasm: variant(one, 1), Active: true}}}
	f.seed(s, false)
	has := func(when string, want int) {
		t.Helper()
		if n := len(f.host.Modules()); n != want {
			t.Errorf("the host has %d modules %s, want %d", n, when, want)
		}
	}
	if _, err := f.host.Add(t.Context(), "mine", variant(one, 0), policy.ProfileSmall); err != nil {
		t.Fatal(err)
	}
	has("with a version that has made room", 2)
	s.Policies[0].Wasm = variant(one, 2)
	f.seed(s, false)
	has("after an edit", 2)
	s.Policies[0].Wasm, s.Policies[0].Params = variant(one, 3), []byte(`{"no such param":1}`)
	if err := f.api.Seed(t.Context(), s, false); err == nil {
		t.Error("bad params were taken")
	}
	f.store.Before(func(int, []ledger.Write) error { return storetest.ErrInjected })
	s.Policies[0].Params = nil
	if err := f.api.Seed(t.Context(), s, false); err == nil {
		t.Error("a failed write was taken")
	}
	f.store.Before(nil)
	has("after refusals", 2)
	f.ok("POST", "/admin/policies/burst/activate", nil) // comes with the gateway
	f.seed(s, false)
	has("after all", 4)
}

func TestSeedOfManyObjects(t *testing.T) {
	f := newFixture(t)
	s := seed()
	for i := range 450 {
		s.Models = append(s.Models, upstream.Model{Name: strings.Repeat("x", i+1)[:min(i+1, 200)] + string(rune('a'+i%26)) + strings.Repeat("y", i/26), Free: true})
	}
	f.seed(s, false)
	f.restart()
	if n := len(f.proxy.catalog.Models()); n != 453 {
		t.Errorf("%d models", n)
	}
	s.Models[400].TPMLimit = 9
	f.seed(s, false)
	if m, _ := f.proxy.catalog.Model([]byte(s.Models[400].Name)); m.TPMLimit != 9 {
		t.Error("the 400th does not follow")
	}
}

// What was written of a seed that fails in the middle serves, as it would after a restart; the next seed does the rest.
func TestSeedThatFailsInTheMiddle(t *testing.T) {
	f := newFixture(t)
	s := seed()
	for i := range 450 {
		s.Models = append(s.Models, upstream.Model{Name: fmt.Sprint("m", i), Free: true})
	}
	writes := 0
	f.store.Before(func(int, []ledger.Write) error {
		if writes++; writes > 1 {
			return storetest.ErrInjected
		}
		return nil
	})
	if err := f.api.Seed(t.Context(), s, false); err == nil {
		t.Error("a failed write was taken")
	}
	f.store.Before(nil)
	live := f.everything()
	if n := len(f.proxy.catalog.Models()); n == 0 || n > 200 {
		t.Errorf("%d models serve", n)
	}
	f.restart()
	if stored := f.everything(); stored != live {
		t.Errorf("live and stored differ:\n%.300s\n%.300s", live, stored)
	}
	f.seed(s, false)
	if n := len(f.proxy.catalog.Models()); n != 453 {
		t.Errorf("%d models", n)
	}
}

func TestEnvelopesAreEnforcedFromTheNextSeed(t *testing.T) {
	f := newFixture(t)
	s := seed()
	s.Policies = []admin.SeedPolicy{{Name: "rules", Active: true, Params: []byte(`{"rules":[{"then":{"qps_permille":9000}}]}`)}}
	f.seed(s, false)
	swaps := f.host.Stats().Swaps
	granted := func() uint32 {
		var d policy.Decision
		f.host.Decide(&policy.Facts{Tier: 1}, &d)
		return d.QPS
	}
	if got := granted(); got != 9000 {
		t.Errorf("granted %d", got)
	}
	f.api.SetEnvelopes(policy.Envelopes{Operator: policy.Envelope{MaxMultiplier: 2000, MaxBurst: 1000, MinPrice: 1000}})
	f.seed(s, false)
	if got := granted(); got != 2000 {
		t.Errorf("granted %d after the envelope has shrunk", got)
	}
	f.api.SetEnvelopes(policy.Envelopes{Operator: policy.Envelope{MaxMultiplier: 2000}, Tiers: map[string]policy.Envelope{"pro": {MaxMultiplier: 3000}}})
	f.seed(s, false)
	if got := granted(); got != 3000 {
		t.Errorf("granted %d to a key of tier pro", got)
	}
	f.api.SetEnvelopes(policy.Envelopes{Tiers: map[string]policy.Envelope{"prro": {}}})
	if err := f.api.Seed(t.Context(), s, false); err == nil || !strings.Contains(err.Error(), "prro") {
		t.Errorf("an unknown tier: %v", err)
	}
	if got := granted(); got != 3000 || f.host.Stats().Swaps != swaps {
		t.Errorf("granted %d, %d swaps", got, f.host.Stats().Swaps-swaps)
	}
}
