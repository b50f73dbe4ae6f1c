package admin

import (
	"fmt"
	"slices"
	"testing"

	"github.com/weir-gateway/weir/core/policy"
)

func TestOldVersionsMakeRoom(t *testing.T) {
	bound := new(rules).bind(policy.Operator, bindingDoc{Current: &binding{Module: "mine", Hash: "h0"}, History: []binding{{Module: "other", Hash: "h1"}}})
	bound = bound.bind(7, bindingDoc{Kept: []binding{{Module: "mine", Hash: "h3"}}})
	var p policyDoc
	p.Name = "mine"
	var gone []string
	for i := range maxVersions + 4 {
		var dropped []string
		p, dropped = p.add(version{Hash: fmt.Sprint("h", i)}, bound)
		gone = append(gone, dropped...)
	}
	if !slices.Equal(gone, []string{"h1", "h2", "h4", "h5"}) || len(p.Versions) != maxVersions {
		t.Errorf("dropped %v, kept %d", gone, len(p.Versions))
	}
}

func TestVersionsAreFoundByTheirBeginning(t *testing.T) {
	p := policyDoc{Name: "p", Versions: []version{{Hash: "aaaaaa11"}, {Hash: "aaaaaa22"}, {Hash: "bbbbbb33"}}}
	for text, want := range map[string]string{"": "bbbbbb33", "aaaaaa1": "aaaaaa11", "BBBBBB": "bbbbbb33", "aaaaaa": "", "bbbbb": "", "cccccc": ""} {
		if v, err := p.find(text); v.Hash != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q %v, want %q", text, v.Hash, err, want)
		}
	}
}

func TestExactMicro(t *testing.T) {
	for text, want := range map[string]int64{"1e3": 1_000_000_000, "1E+3": 1_000_000_000, "1.5e-3": 1_500, "12.34e1": 123_400_000, "-2.5e0": -2_500_000,
		"0.000001e6": 1_000_000, "100e-2": 1_000_000, "1e-6": 1, "0e40": 0, "0": 0} {
		if got, err := exactMicro(text); err != nil || int64(got) != want {
			t.Errorf("%s: %d %v, want %d", text, got, err, want)
		}
	}
	for _, bad := range []string{"1e-7", "1e13", "1e41", "1e-41", "e5", "1e", "1e1.5", ".e1", "1e+", "--1e1", "1e99999999999999999999"} {
		if got, err := exactMicro(bad); err == nil {
			t.Errorf("%s is %d", bad, got)
		}
	}
}

func FuzzExactMicro(f *testing.F) {
	f.Add("1.5e3")
	f.Fuzz(func(t *testing.T, s string) {
		if m, err := exactMicro(s); err == nil {
			if again, err := exactMicro(m.String()); err != nil || again != m {
				t.Fatalf("%q is %s, which is %s %v", s, m, again, err)
			}
		}
	})
}

func FuzzBody(f *testing.F) {
	f.Add([]byte(`{"name":"x","labels":{"a":"b"},"qpsLimit":3}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		b := parseBody(raw)
		var name string
		var n int64
		var labels map[string]string
		b.text("name", &name, checkName)
		b.count("qpsLimit", &n)
		b.labels("labels", &labels)
		if err := b.end(); err == nil && (n < 0 || n > maxCount || len(labels) > maxLabels || len(name) > 4*maxNameChars) {
			t.Fatalf("%q was taken: %q %d %v", raw, name, n, labels)
		}
	})
}
