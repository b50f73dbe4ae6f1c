package proxy_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/auth"
	"github.com/weir-gateway/weir/core/upstream"
)

// second adds a key of another org and gives its header.
func (r *rig) second() []string {
	r.dir.SetOrg(auth.Org{ID: idOrg + 10, Name: "Other"})
	r.dir.SetUser(auth.User{ID: idUser + 10, OrgID: idOrg + 10, Name: "bob"})
	r.limits.LoadBalance(idUser+10, startBalance, 0)
	return r.another(auth.Key{ID: idKey + 10, UserID: idUser + 10, Name: "second"})
}

// another adds a key and gives its header.
func (r *rig) another(k auth.Key) []string {
	token := r.token
	r.token = ""
	r.addKey(k)
	other := r.token
	r.token = token
	return []string{"Authorization", "Bearer " + other}
}

// What one key's requests bring upon the only channel is not the other keys' trouble, be they of its org or of another.
func TestOneKeysStormDoesNotTakeTheChannelFromOthers(t *testing.T) {
	for _, sim := range []string{"status=500", "status=503", "status=403", "reset=headers"} {
		t.Run(sim, func(t *testing.T) {
			r := newRig(t)
			r.dir.SetUser(auth.User{ID: idUser + 1, OrgID: idOrg, Name: "colleague"})
			r.limits.LoadBalance(idUser+1, startBalance, 0)
			others := [][]string{r.second(), r.another(auth.Key{ID: idKey + 1, UserID: idUser + 1, Name: "colleague's"})}
			for range 12 {
				r.post("/v1/chat/completions", chat("gpt-4o", ""), "x-sim", sim).want(t, 502)
			}
			for range 3 {
				for _, other := range others {
					r.post("/v1/chat/completions", chat("gpt-4o", ""), other...).want(t, 200)
				}
			}
		})
	}
}

// What the requests of an org bring about is not the trouble of others, however many keys its users take turns with.
func TestTwoKeysOfAnOrgAreNotTwoOrgs(t *testing.T) {
	for _, sim := range []string{"status=500", "status=403", "reset=headers"} {
		t.Run(sim, func(t *testing.T) {
			r := newRig(t)
			other := r.second()
			keys := [][]string{r.another(auth.Key{ID: idKey + 1, UserID: idUser, Name: "twin"}), {"Authorization", "Bearer " + r.token}}
			for i := range 12 {
				r.post("/v1/chat/completions", chat("gpt-4o", ""), append([]string{"x-sim", sim}, keys[i%2]...)...).want(t, 502)
			}
			for range 3 {
				r.post("/v1/chat/completions", chat("gpt-4o", ""), other...).want(t, 200)
			}
		})
	}
}

// Whoever is told that an upstream broke is told which.
func TestABrokenBodyNamesTheChannel(t *testing.T) {
	r := newRig(t, func(s *setup) { s.upstream.IdleTimeoutMS = 500 })
	for sim, status := range map[string]int{"reset_after=1,out=400": 502, "hang_after=1,out=400": 504} {
		p := r.post("/v1/chat/completions", chat("gpt-4o", ""), "x-sim", sim).want(t, status)
		if f := p.fields(t); fmt.Sprint(f["attempted_channels"]) != "[openai-1]" {
			t.Errorf("%s: %v", sim, f)
		}
	}
	for _, sim := range []string{"reset_after=10,out=400", "no_done,out=40"} {
		p := r.post("/v1/chat/completions", chat("gpt-4o", `,"stream":true`), "x-sim", sim).want(t, 200)
		if ev := p.events(); !strings.Contains(ev[len(ev)-1], `"attempted_channels":["openai-1"]`) {
			t.Errorf("%s: the stream ends with %s", sim, ev[len(ev)-1])
		}
	}
}

// When every channel cools down the client is told so, and for how long.
func TestChannelsThatCoolDownSayForHowLong(t *testing.T) {
	r := newRig(t, func(s *setup) {
		s.catalog = func(c *catalog) { c.channels[0].BaseURL = "http://127.0.0.1:1" }
		s.upstream = upstream.Options{Attempts: 1}
	})
	for range 3 {
		p := r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 502)
		if p.header.Get("Retry-After-Ms") != "" || fmt.Sprint(p.fields(t)["attempted_channels"]) != "[openai-1]" {
			t.Errorf("%v %s", p.header, p.body)
		}
	}
	p := r.post("/v1/chat/completions", chat("gpt-4o", "")).want(t, 502)
	f := p.code(t, "upstream_unavailable")
	ms, err := strconv.Atoi(p.header.Get("Retry-After-Ms"))
	if err != nil || ms < 1 || ms > 1000 || p.header.Get("Retry-After") != "1" {
		t.Errorf("%v", p.header)
	}
	if m := fmt.Sprint(f["message"]); !strings.Contains(m, "cools down") || !strings.Contains(m, strconv.Itoa(ms)+" ms") || fmt.Sprint(f["attempted_channels"]) != "[]" {
		t.Errorf("%v", f)
	}
}
