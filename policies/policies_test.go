package policies_test

import (
	"os"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/policies"
)

func TestMain(m *testing.M) {
	if policy.IsChild(os.Args, os.Stdin, os.Stdout) {
		return
	}
	os.Exit(m.Run())
}

// host is a policy host with the tiers and labels of the demo, and every shipped module added.
func host(t testing.TB) *policy.Host {
	t.Helper()
	h, err := policy.NewHost(policy.Options{CacheDir: t.TempDir(), Tiers: []string{"free", "pro"}, Labels: []string{"tier", "soft", "hot"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	for _, name := range policies.Names() {
		wasm, ok := policies.Shipped(name)
		if !ok {
			t.Fatalf("%s is named and not shipped", name)
		}
		m, err := h.Add(t.Context(), name, wasm, "small") // runs the cases
		if err != nil {
			t.Fatal(err)
		}
		if m.Cases < 5 || len(m.Schema) == 0 || len(m.About) == 0 {
			t.Errorf("%s: %d cases, schema of %d bytes, about of %d bytes", name, m.Cases, len(m.Schema), len(m.About))
		}
	}
	return h
}

func activate(t testing.TB, h *policy.Host, module, params string) error {
	t.Helper()
	b := policy.Binding{Module: module, Params: []byte(params), OnError: policy.OnErrorDefault}
	return h.Activate(t.Context(), &b, policy.Envelope{MaxMultiplier: 2000, MaxBurst: 5000, MinPrice: 1000, MaxCustomDims: 4, MayDeny: true})
}

func TestNames(t *testing.T) {
	if _, ok := policies.Shipped("nothing"); ok {
		t.Error("an unknown name gave a module")
	}
}

// TestShipped: what the cases cannot say, with the demo's configuration and with other params.
func TestShipped(t *testing.T) {
	h := host(t)
	t.Run("default", func(t *testing.T) { defaultDecides(t, h) })
	t.Run("priority", func(t *testing.T) { priorityDecides(t, h) })
	if st := h.Stats(); st.Traps+st.OutOfFuel+st.BadResponse > 0 {
		t.Errorf("faults: %+v", st)
	}
}

func defaultDecides(t *testing.T, h *policy.Host) {
	if err := activate(t, h, "default", `{}`); err != nil {
		t.Fatal(err)
	}
	decide := func(attrs map[int]string) (d policy.Decision) {
		f := policy.Facts{Endpoint: llm.Chat}
		for i, s := range attrs {
			f.Attr[i] = s
		}
		h.Decide(&f, &d)
		return d
	}
	if d := decide(nil); !d.Abstained {
		t.Errorf("no labels: %+v", d)
	}
	if d := decide(map[int]string{policy.AttrLabel0: "pro", policy.AttrLabel0 + 1: "yes"}); d.Abstained || d.Tier != 1 || d.Quota != 1100 || d.N != 0 {
		t.Errorf("pro and soft: %+v", d)
	}
	if err := activate(t, h, "default", `{"tier_label":"hot","soft_permille":1250}`); err != nil {
		t.Fatal(err)
	}
	if d := decide(map[int]string{policy.AttrLabel0: "free", policy.AttrLabel0 + 1: "1", policy.AttrLabel0 + 2: "pro"}); d.Tier != 1 || d.Quota != 1250 {
		t.Errorf("other params: %+v", d)
	}
	if err := activate(t, h, "default", `{"soft_permile":1250}`); err == nil {
		t.Error("a misspelt param was accepted")
	}
}

func priorityDecides(t *testing.T, h *policy.Host) {
	if err := activate(t, h, "priority", `{"key_model_qps":5}`); err != nil {
		t.Fatal(err)
	}
	f := policy.Facts{Endpoint: llm.Chat, Tier: 0}
	f.Attr[policy.AttrLabel0+2] = "yes"
	var d policy.Decision
	h.Decide(&f, &d)
	if d.Abstained || d.N != 5 || d.TPM != 500 || d.Dims[4].QPS != 5 || d.Dims[4].TPM != 0 {
		t.Errorf("free and hot: %+v", d)
	}
	f.Tier = 1
	if h.Decide(&f, &d); d.TPM != 1000 || d.N != 5 {
		t.Errorf("pro and hot: %+v", d)
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, name := range policies.Names() {
		b.Run(name, func(b *testing.B) {
			h := host(b)
			if err := activate(b, h, name, `{}`); err != nil {
				b.Fatal(err)
			}
			f := policy.Facts{Endpoint: llm.Chat}
			f.Attr[policy.AttrModel], f.Attr[policy.AttrLabel0], f.Attr[policy.AttrLabel0+1] = "gpt-4o-mini", "pro", "yes"
			var d policy.Decision
			b.ReportAllocs()
			for b.Loop() {
				h.Decide(&f, &d)
			}
		})
	}
}
