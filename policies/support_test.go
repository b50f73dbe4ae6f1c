package policies_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/policies"
)

func TestMain(m *testing.M) {
	if policy.IsChild(os.Args, os.Stdin, os.Stdout) {
		return
	}
	os.Exit(m.Run())
}

// The tiers and labels that the tests configure.
func tiers() []string  { return []string{"free", "pro"} }
func labels() []string { return []string{"tier", "soft", "hot"} }

// host is a policy host with the tiers and labels of the demo and the named modules added, which runs their cases.
func host(t testing.TB, names ...string) *policy.Host {
	t.Helper()
	h, err := policy.NewHost(policy.Options{CacheDir: t.TempDir(), Tiers: tiers(), Labels: labels()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	for _, name := range names {
		wasm, ok := policies.Shipped(name)
		if !ok {
			t.Fatalf("%s is not shipped", name)
		}
		if _, err := h.Add(t.Context(), name, wasm, policy.ProfileSmall); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func activate(t testing.TB, h *policy.Host, module, params string) error {
	t.Helper()
	b := policy.Binding{Module: module, Params: []byte(params), OnError: policy.OnErrorDefault}
	env := policy.Envelope{MaxMultiplier: 2000, MaxBurst: 5000, MinPrice: 1000, MaxCustomDims: 7, MayDeny: true, MayDropKey: true}
	return h.Activate(context.Background(), &b, env)
}

// try is one look at a module: what it must answer to the facts with the params. Params that are the same as the ones
// before are activated once.
type try struct{ name, params, facts, want string }

// look holds a module to tries; what a want does not name is not compared.
func look(t *testing.T, module string, tries []try) {
	t.Helper()
	h := host(t, module)
	active := ""
	for _, x := range tries {
		if active != x.params {
			if err := activate(t, h, module, x.params); err != nil {
				t.Fatalf("%s: %v", x.name, err)
			}
			active = x.params
		}
		got := decide(t, h, x.facts)
		var want map[string]any
		if err := json.Unmarshal([]byte(x.want), &want); err != nil {
			t.Fatalf("%s: want: %v", x.name, err)
		}
		if _, says := want["fault"]; !says {
			want["fault"] = ""
		}
		for _, line := range differences("", want, got) {
			t.Errorf("%s: %s", x.name, line)
		}
	}
}

// decide runs facts as JSON and gives the decision as JSON would read.
func decide(t testing.TB, h *policy.Host, facts string) map[string]any {
	t.Helper()
	f, err := policy.ParseFacts([]byte(facts), tiers(), labels())
	if err != nil {
		t.Fatal(err)
	}
	var d policy.Decision
	h.Decide(f, &d)
	raw, err := policy.MarshalDecision(&d, tiers())
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	return got
}

func differences(path string, want, got any) (lines []string) {
	switch w := want.(type) {
	case map[string]any:
		g, _ := got.(map[string]any)
		for name, v := range w {
			lines = append(lines, differences(path+"."+name, v, g[name])...)
		}
	case []any:
		g, _ := got.([]any)
		if len(g) != len(w) {
			return []string{fmt.Sprintf("%s: got %d, want %d", path, len(g), len(w))}
		}
		for i := range w {
			lines = append(lines, differences(fmt.Sprintf("%s[%d]", path, i), w[i], g[i])...)
		}
	default:
		if want != got {
			lines = []string{fmt.Sprintf("%s: got %v, want %v", path, got, want)}
		}
	}
	return lines
}

// refusal is params that must not be activated, and what the error must say.
type refusal struct{ params, says string }

// refuse holds a module to refusals. Each names the member or the rule, and what was expected.
func refuse(t *testing.T, module string, refusals []refusal) {
	t.Helper()
	h := host(t, module)
	for _, x := range refusals {
		err := activate(t, h, module, x.params)
		if err == nil || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s\n  gave %v\n  want %s", x.params, err, x.says)
		}
	}
}
