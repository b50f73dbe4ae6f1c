package proxy_test

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/limit"
	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/core/proxy"
	"github.com/weir-gateway/weir/sdk/abi"
	"github.com/weir-gateway/weir/store/storetest"
)

// TestRealLedger runs everything that can happen to a request against the real ledger, in parallel, and then adds
// every account up again: what the ledger says, what the limiter says and what was answered must agree.
func TestRealLedger(t *testing.T) {
	store := storetest.NewMemory()
	var books *ledger.Ledger
	r := newRig(t, limits(auth.Key{MonthlyQuota: 1 << 50}), func(s *setup) {
		s.ledger = func(clock llm.Clock) ledgerParts {
			l, _, err := ledger.Open(store, ledger.Options{Durability: ledger.Process}, clock)
			must(t, err)
			books = l
			return l
		}
	})
	must(t, books.Put(t.Context(), ledger.Change{Actor: "test", Action: "credit"}, nil, []llm.Entry{{Kind: llm.EntryCredit, UserID: idUser, Cost: startBalance}}))
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			for i := range 12 {
				x := streams()[(w+i)%4]
				how := []string{"out=9", "usage=null", "reset=headers", "status=400", "reset_after=3", "no_done"}[(w*7+i)%6]
				if i%3 == 0 {
					r.leaveIf(r.request(x.path, x.with(`,"stream":true`), "x-sim", "out=40,pace=1ms"), 3, nil)
					continue
				}
				more := []string{"", `,"stream":true`}[i%2]
				_ = r.post(x.path, x.with(more), "x-sim", how)
			}
		})
	}
	wg.Wait()
	r.idle()
	available, held := r.limits.Balance(idUser)
	used, _ := r.limits.Quota(idKey, 202603)
	must(t, books.Close())
	report, err := ledger.Verify(store)
	must(t, err)
	if len(report.Problems) > 0 || report.Open != 0 || report.Held != 0 || held != 0 || report.Credits-report.Posted != available || used != report.Posted || report.Posted == 0 {
		t.Errorf("%+v; the limiter has %d available, %d held, %d used", report, available, held, used)
	}
}

// A key in a retry storm is refused with live numbers before anything is counted or decided.
func TestStorm(t *testing.T) {
	r := newRig(t, limits(auth.Key{QPSLimit: 1}), func(s *setup) { s.settings.StormPermille = 1000 })
	decided := 0
	r.policy.decide = func(*policy.Facts, *policy.Decision) { decided++ }
	r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200)
	for i := range 40 {
		r.clock.Advance(time.Millisecond)
		f := r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 429).code(t, "rate_limit_exceeded")
		if f["limit_key"] != "key:1" || f["retry_after_ms"] != float64(999-i) || f["limit"] != 1.0 || f["current"] != 1.0 {
			t.Fatalf("refusal %d: %v", i, f)
		}
	}
	if decided > 25 {
		t.Errorf("%d requests were decided in a storm", decided)
	}
	r.clock.Advance(time.Second)
	r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200)
}

// The envelope that stands when nobody sets one allows ten times a key's limit; a storm at one time is seen all the same.
func TestStormUnderTheDefaultEnvelope(t *testing.T) {
	r := newRig(t, limits(auth.Key{QPSLimit: 2}), func(s *setup) { s.settings.StormPermille = 10_000 })
	decided, multiplier := 0, uint32(1000)
	r.policy.decide = func(_ *policy.Facts, d *policy.Decision) { decided++; d.QPS = multiplier }
	r.server.SetSettings(proxy.Settings{StormPermille: 10_000, Envelope: policy.Envelope{MaxMultiplier: 2000}})
	hints := 0
	for i := range 202 {
		p := r.post("/v1/chat/completions", chat("gpt-4o", ""))
		if want := 429; i >= 2 && p.status != want {
			t.Fatalf("request %d: %d", i, p.status)
		}
		if i >= 2 && p.fields(t)["retry_after_exact"] == false {
			hints++
		}
	}
	if decided < 18 || decided > 40 || hints != 202-decided {
		t.Errorf("%d of 202 requests were decided, %d were told a hint", decided, hints)
	}
	multiplier = 2000
	admitted := 0
	for range 32 {
		r.clock.Advance(2 * time.Millisecond)
		if r.post("/v1/chat/completions", chat("gpt-4o", "")).status == 200 {
			admitted++
		}
	}
	if admitted != 2 {
		t.Errorf("%d admitted of the 2 that a larger decision allows", admitted)
	}
}

// A raised limit holds from the next request of a storm: the cheap look does not go on with what it saw before.
func TestARaisedLimitEndsAStorm(t *testing.T) {
	r := newRig(t, limits(auth.Key{QPSLimit: 2}), func(s *setup) { s.settings.StormPermille = 10_000 })
	multiplier := uint32(1000)
	r.policy.decide = func(_ *policy.Facts, d *policy.Decision) { d.QPS = multiplier }
	r.server.SetSettings(proxy.Settings{StormPermille: 10_000, Envelope: policy.Envelope{MaxMultiplier: 10_000}})
	ask := func(n, status int, when string) {
		for i := range n {
			if p := r.post("/v1/chat/completions", chat("gpt-4o", "")); p.status != status {
				t.Fatalf("request %d %s: %d %s", i, when, p.status, p.body)
			}
		}
	}
	ask(2, 200, "at the start")
	ask(60, 429, "of the storm")
	k, _ := r.dir.Key(idKey)
	k.QPSLimit = 10
	r.dir.SetKey(k)
	ask(8, 200, "after the key's limit was raised")
	ask(60, 429, "of the second storm")
	multiplier = 2000
	r.server.Renew()
	ask(10, 200, "after the policy was changed")
}

// A user's and an org's own limits hold without being named in the settings.
func TestUserAndOrgLimits(t *testing.T) {
	r := newRig(t, func(s *setup) { s.user.QPSLimit = 2 })
	for range 2 {
		r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200)
	}
	if f := r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 429).fields(t); f["dimension"] != "user" || f["limit_key"] != "user:2" {
		t.Errorf("%v", f)
	}
	r.dir.SetUser(auth.User{ID: idUser, OrgID: idOrg})
	r.dir.SetOrg(auth.Org{ID: idOrg, QPSLimit: 2})
	r.clock.Advance(time.Second)
	for range 2 {
		r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200)
	}
	if f := r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 429).fields(t); f["dimension"] != "org" {
		t.Errorf("%v", f)
	}
}

// They hold whatever dimensions a policy picks, unless it tests them itself.
func TestUserAndOrgLimitsHoldWhateverAPolicyPicks(t *testing.T) {
	key := policy.Dimension{Kind: uint8(limit.Key), Tier: -1}
	user := policy.Dimension{Kind: uint8(limit.User), Tier: -1}
	counted, shadowed, doubled := user, user, user
	counted.CountOnly, shadowed.Shadow, doubled.Multiplier = true, true, 2000
	var most []policy.Dimension // that a module may name
	for i := range abi.MaxDims {
		most = append(most, policy.Dimension{Kind: uint8(limit.Custom), Value: strconv.Itoa(i), Tier: -1})
	}
	for _, x := range []struct {
		name  string
		dims  []policy.Dimension
		limit float64
	}{
		{"others", []policy.Dimension{key}, 2},
		{"as many others as there may be", most, 2},
		{"itself", []policy.Dimension{key, user}, 2},
		{"itself, counted only", []policy.Dimension{counted}, 2},
		{"itself, as a shadow", []policy.Dimension{shadowed}, 2},
		{"itself, doubled", []policy.Dimension{doubled}, 4},
	} {
		for _, dimension := range []string{"user", "org"} {
			r := newRig(t, func(s *setup) {
				s.settings.Envelope = policy.Envelope{MaxMultiplier: 2000}
				s.user.QPSLimit = 2
			})
			dims := slices.Clone(x.dims)
			if dimension == "org" {
				r.dir.SetUser(auth.User{ID: idUser, OrgID: idOrg})
				r.dir.SetOrg(auth.Org{ID: idOrg, QPSLimit: 2})
				for i := range dims {
					if limit.Kind(dims[i].Kind) == limit.User {
						dims[i].Kind = uint8(limit.Org)
					}
				}
			}
			r.policy.decide = func(_ *policy.Facts, d *policy.Decision) { d.N = copy(d.Dims[:], dims) }
			for range int(x.limit) {
				r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200)
			}
			f := r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 429).fields(t)
			if f["dimension"] != dimension || f["limit"] != x.limit {
				t.Errorf("%s, %s: %v", dimension, x.name, f)
			}
		}
	}
}

// A module of a tenant adds to the default dimensions; the envelope that bounded the decision clamps its limits.
func TestDefaultsStayBesideWhatATenantAdds(t *testing.T) {
	r := newRig(t, limits(auth.Key{QPSLimit: 1}))
	env := policy.Envelope{MaxMultiplier: 3000}
	r.policy.decide = func(_ *policy.Facts, d *policy.Decision) {
		d.Defaults, d.Envelope, d.N = true, &env, 1
		d.Dims[0] = policy.Dimension{Kind: uint8(limit.Custom), Value: "job", QPS: 1, Tier: -1}
	}
	r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200)
	if f := r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 429).fields(t); f["dimension"] != "key" {
		t.Errorf("%v", f)
	}
	r.clock.Advance(time.Second)
	r.policy.decide = func(_ *policy.Facts, d *policy.Decision) {
		d.Envelope, d.N = &env, 1
		d.Dims[0] = policy.Dimension{Kind: uint8(limit.Key), QPS: 9, Tier: -1}
	}
	for range 3 {
		r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200)
	}
	if f := r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 429).fields(t); f["limit"] != 3.0 {
		t.Errorf("%v", f)
	}
}

// One end user has one name, however the body writes it; absent is no dimension.
func TestEndUserDimension(t *testing.T) {
	r := newRig(t, func(s *setup) {
		s.settings = proxy.Settings{Dimensions: []limit.Kind{limit.Key, limit.EndUser, limit.IP}, Defaults: map[limit.Kind]limit.Limits{limit.EndUser: {QPS: 1}, limit.IP: {QPS: 5}}}
	})
	r.post("/v1/chat/completions", chat("gpt-4o", `,"user":"bob"`)).want(t, 200)
	if f := r.post("/v1/chat/completions", chat("gpt-4o", `,"user":"b\u006fb"`)).want(t, 429).fields(t); f["limit_key"] != "end_user:3:bob" {
		t.Errorf("%v", f)
	}
	for range 2 {
		r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200)
	}
	long := strings.Repeat("x", 500)
	r.post("/v1/chat/completions", chat("gpt-4o", `,"user":"`+long+`"`)).want(t, 200)
	if f := r.post("/v1/chat/completions", chat("gpt-4o", `,"user":"`+long+`"`)).want(t, 429).fields(t); len(fmt.Sprint(f["limit_key"])) > 120 {
		t.Errorf("%v", f)
	}
	r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200)
	if f := r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 429).fields(t); f["limit_key"] != "ip:127.0.0.1" {
		t.Errorf("%v", f)
	}
}

// What is not billed and what is not limited.
func TestNoBillNoLimit(t *testing.T) {
	r := newRig(t, limits(auth.Key{QPSLimit: 1}))
	r.policy.decide = func(_ *policy.Facts, d *policy.Decision) { d.NoBill, d.NoLimit = true, true }
	for range 3 {
		r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200)
	}
	if left, _ := r.limits.Balance(idUser); left != startBalance {
		t.Errorf("%d was billed", startBalance-left)
	}
	r.policy.decide = func(_ *policy.Facts, d *policy.Decision) { d.Verdict = policy.ShadowDeny }
	r.clock.Advance(time.Second)
	r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200)
	r.idle()
	var b strings.Builder
	r.server.WriteMetrics(&b)
	if !strings.Contains(b.String(), `weir_shadow_denials_total{by="policy"} 1`) {
		t.Error("a shadow denial is not counted")
	}
}

// Bad keys beyond a flood are told to wait; good ones pass beside them, and those from another address are told that they are bad.
func TestBadKeyFlood(t *testing.T) {
	r := newRig(t)
	r.leavesNothing()
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}
	defer c.CloseIdleConnections()
	flooded := false
	for range 6_100 {
		resp, err := c.Do(r.request("/v1/chat/completions", "{}", "Authorization", "Bearer nope"))
		must(t, err)
		_ = resp.Body.Close()
		flooded = flooded || resp.StatusCode == 429
	}
	if !flooded {
		t.Error("6,100 bad keys within a minute are only 401")
	}
	f := r.post("/v1/chat/completions", "{}", "Authorization", "Bearer nope").want(t, 429).code(t, "too_many_bad_keys")
	if f["retry_after_ms"].(float64) < 1 {
		t.Errorf("%v", f)
	}
	r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 200)
	told := map[int]int{}
	for last := range byte(3) { // one of them may share the flood's place in the table
		elsewhere := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2+last)}}
		resp, err := (&http.Transport{DialContext: elsewhere.DialContext, DisableKeepAlives: true}).RoundTrip(r.request("/v1/chat/completions", "{}", "Authorization", "Bearer nope"))
		if err != nil {
			t.Skip("this system has but one address for loopback: ", err)
		}
		_ = resp.Body.Close()
		told[resp.StatusCode]++
	}
	if told[401] < 2 {
		t.Errorf("bad keys from other addresses get %v", told)
	}
}

// S12: an image costs its flat estimate, whatever its size, on every route that takes one.
func TestS12ImageIsFlat(t *testing.T) {
	r := newRig(t, limits(auth.Key{TPMLimit: 10_000}))
	image := strings.Repeat("QUJD", 3<<18)
	url := `"data:image/png;base64,` + image + `"`
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"model":"gpt-4o","max_tokens":50,"messages":[{"role":"user","content":[{"type":"text","text":"what is this"},{"type":"image_url","image_url":{"url":` + url + `}}]}]}`,
		"/v1/responses":        `{"model":"gpt-4o","max_output_tokens":50,"input":[{"role":"user","content":[{"type":"input_text","text":"what is this"},{"type":"input_image","image_url":` + url + `}]}]}`,
		"/v1/messages":         `{"model":"claude-sonnet-4-5","max_tokens":50,"messages":[{"role":"user","content":[{"type":"text","text":"what is this"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + image + `"}}]}]}`,
	} {
		r.post(path, body).want(t, 200)
		held := r.journal.of(llm.EntryReserve)
		small := strings.Replace(body, image, "QUJD", 1)
		r.post(path, small).want(t, 200)
		again := r.journal.of(llm.EntryReserve)
		if a, b := held[len(held)-1].Usage.InputTokens, again[len(again)-1].Usage.InputTokens; a != b || a < 80 || a > 2500 {
			t.Errorf("%s: 3 MB is held at %d tokens, 3 bytes at %d", path, a, b)
		}
		r.clock.Advance(time.Minute)
	}
}
