package policies_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/core/policy"
	"github.com/weir-gateway/weir/policies"
)

// TestShipped loads every module as a gateway does, which runs its cases, and holds the folder to what it promises.
func TestShipped(t *testing.T) {
	h := host(t)
	for _, name := range policies.Names() {
		wasm, _ := policies.Shipped(name)
		m, err := h.Add(t.Context(), name, wasm, policy.ProfileSmall)
		if err != nil {
			t.Fatal(err)
		}
		least := 6
		if name == "rules" {
			least = 20
		}
		if m.Cases < least || len(m.Schema) == 0 || !strings.Contains(string(m.About), `"name":"`+name+`"`) {
			t.Errorf("%s: %d cases, schema of %d bytes, about %s", name, m.Cases, len(m.Schema), m.About)
		}
		if err := activate(t, h, name, "{}"); err != nil {
			t.Errorf("%s without params: %v", name, err)
		}
		if readme, err := os.ReadFile("README.md"); err != nil || !bytes.Contains(readme, []byte("["+name+"]("+name+"/README.md)")) {
			t.Errorf("README.md does not show %s: %v", name, err)
		}
		if own, err := os.ReadFile(filepath.Join(name, "README.md")); err != nil || !bytes.HasPrefix(own, []byte("# "+name+"\n")) {
			t.Errorf("%s/README.md: %v", name, err)
		}
	}
	if _, ok := policies.Shipped("nothing"); ok {
		t.Error("an unknown name gave a module")
	}
	if st := h.Stats(); st.Traps+st.OutOfFuel+st.BadResponse > 0 {
		t.Errorf("faults: %+v", st)
	}
}

// TestSchemas: a form can be drawn from each schema. Every member has a title or a description; defaults and examples are
// what the schema allows.
func TestSchemas(t *testing.T) {
	for _, name := range policies.Names() {
		raw, err := os.ReadFile(filepath.Join(name, "schema.json"))
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource("weir:"+name, doc); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		checkSchema(t, c, "weir:"+name+"#", doc)
	}
}

func checkSchema(t *testing.T, c *jsonschema.Compiler, at string, v any) {
	t.Helper()
	s, ok := v.(map[string]any)
	if !ok {
		return
	}
	samples, _ := s["examples"].([]any)
	if d, ok := s["default"]; ok {
		samples = append(samples, d)
	}
	if len(samples) > 0 {
		compiled, err := c.Compile(at)
		if err != nil {
			t.Errorf("%s: %v", at, err)
			return
		}
		for _, x := range samples {
			if err := compiled.Validate(x); err != nil {
				t.Errorf("%s: its own sample %v: %v", at, x, err)
			}
		}
	}
	properties, _ := s["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		p, _ := properties[name].(map[string]any)
		where := at + "/properties/" + name
		if p["title"] == nil && p["description"] == nil && p["$ref"] == nil && !strings.Contains(where, "/if/") {
			t.Errorf("%s has neither a title nor a description", where)
		}
		if p["type"] == nil && p["enum"] == nil && p["$ref"] == nil && p["const"] == nil {
			t.Errorf("%s has no type", where)
		}
		checkSchema(t, c, where, p)
	}
	defs, _ := s["$defs"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(defs)) {
		checkSchema(t, c, at+"/$defs/"+name, defs[name])
	}
	checkSchema(t, c, at+"/items", s["items"])
	checkSchema(t, c, at+"/additionalProperties", s["additionalProperties"])
}

// TestDefault has the labels of the demo, one of which is called as an attribute is.
func TestDefault(t *testing.T) {
	h := host(t, "default")
	decide := func(params string, attrs map[int]string) (d policy.Decision) {
		if err := activate(t, h, "default", params); err != nil {
			t.Fatal(err)
		}
		f := policy.Facts{Endpoint: llm.Chat}
		for i, s := range attrs {
			f.Attr[i] = s
		}
		h.Decide(&f, &d)
		return d
	}
	if d := decide(`{}`, nil); !d.Abstained {
		t.Errorf("no labels: %+v", d)
	}
	if d := decide(`{}`, map[int]string{policy.AttrLabel0: "pro", policy.AttrLabel0 + 1: "yes"}); d.Abstained || d.Tier != 1 || d.Quota != 1100 || d.N != 0 {
		t.Errorf("pro and soft: %+v", d)
	}
	if d := decide(`{"tier_label":"hot","soft_permille":1250}`, map[int]string{policy.AttrLabel0: "free", policy.AttrLabel0 + 1: "1", policy.AttrLabel0 + 2: "pro"}); d.Tier != 1 || d.Quota != 1250 {
		t.Errorf("other params: %+v", d)
	}
	refuse(t, "default", []refusal{{`{"soft_permile":1250}`, `soft_permile: unknown; did you mean "soft_permille"?`}})
}

func TestPriority(t *testing.T) {
	look(t, "priority", []try{
		{"free and hot", `{"key_model_qps":5}`, `{"tier": "free", "attributes": {"hot": "yes"}}`, `{"tpm_permille": 500, "dims": [{}, {}, {}, {}, {"qps_limit": 5, "tpm_limit": 0}]}`},
		{"pro and hot", `{"key_model_qps":5}`, `{"tier": "pro", "attributes": {"hot": "yes"}}`, `{"tpm_permille": 1000}`},
	})
}

func BenchmarkDecide(b *testing.B) {
	for _, name := range policies.Names() {
		b.Run(name, func(b *testing.B) {
			h := host(b, name)
			if err := activate(b, h, name, `{}`); err != nil {
				b.Fatal(err)
			}
			f := policy.Facts{Endpoint: llm.Chat, QuotaLimit: 1000, QuotaUsed: 999, DayOfMonth: 30, DaysInMonth: 30}
			f.Attr[policy.AttrModel], f.Attr[policy.AttrOrgName] = "gpt-4o-mini", "Acme"
			f.Attr[policy.AttrLabel0], f.Attr[policy.AttrLabel0+1] = "pro", "yes"
			measure(b, h, &f)
		})
	}
}

func measure(b *testing.B, h *policy.Host, f *policy.Facts) policy.Decision {
	var d policy.Decision
	b.ReportAllocs()
	for b.Loop() {
		h.Decide(f, &d)
	}
	if d.Fault != "" {
		b.Fatal(d.Fault)
	}
	return d
}
