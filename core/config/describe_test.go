package config

import (
	"flag"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write descriptions.txt anew from examples/weir.yaml")

var settingLine = regexp.MustCompile(`^( *)(- )?([a-z_0-9-]+):(?: .*?)??(?: # (.*))?$`)

// comments gives what the example says behind each setting: by the path in the file, with * for names and [] for places
// in lists.
func comments(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../examples/weir.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	type level struct {
		indent int
		path   string
	}
	stack := []level{{-1, ""}}
	for line := range strings.Lines(string(text)) {
		m := settingLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			continue
		}
		indent := len(m[1])
		for stack[len(stack)-1].indent >= indent {
			stack = stack[:len(stack)-1]
		}
		above := stack[len(stack)-1].path
		if m[2] != "" {
			stack = append(stack, level{indent, above + "[]"})
			above, indent = above+"[]", indent+2
		}
		name := m[3]
		if _, named := mapsOfNames[above]; named {
			name = "*"
		}
		path := strings.TrimPrefix(above+"."+name, ".")
		if m[4] != "" && found[path] == "" {
			found[path] = m[4]
		}
		stack = append(stack, level{indent, path})
	}
	return found
}

// mapsOfNames are the blocks whose fields are names that the operator chooses.
var mapsOfNames = map[string]bool{"models": true, "limits.defaults": true, "limits.algorithms": true, "policies.tier_envelopes": true,
	"policies.tenant_tier_envelopes": true}

// walkFields calls do with the path of every field that the file can have below t.
func walkFields(t reflect.Type, path string, do func(path string, owner reflect.Type, name string)) {
	switch t.Kind() {
	case reflect.Pointer:
		walkFields(t.Elem(), path, do)
	case reflect.Slice:
		walkFields(t.Elem(), path+"[]", do)
	case reflect.Map:
		walkFields(t.Elem(), path+".*", do)
	case reflect.Struct:
		fieldsOf(t, func(name string, f reflect.StructField, owner reflect.Type) {
			at := strings.TrimPrefix(path+"."+name, ".")
			do(at, owner, name)
			walkFields(f.Type, at, do)
		})
	}
}

// described are the descriptions of all fields: what the example says at the field, else where it shows another block
// of the same kind.
func described(t *testing.T) map[string]string {
	at := comments(t)
	byType := map[string]string{}
	var all [][2]string // path, type and field
	walkFields(reflect.TypeFor[Config](), "", func(path string, owner reflect.Type, name string) {
		key := owner.String() + "." + name
		all = append(all, [2]string{path, key})
		if byType[key] == "" {
			byType[key] = at[path]
		}
	})
	out := map[string]string{}
	for _, f := range all {
		if out[f[0]] = at[f[0]]; out[f[0]] == "" {
			out[f[0]] = byType[f[1]]
		}
		if out[f[0]] == "" {
			t.Errorf("examples/weir.yaml says nothing about %s", f[0])
		}
	}
	return out
}

// TestDescriptionsAreTheExamples: the schema says of every field what examples/weir.yaml says.
func TestDescriptionsAreTheExamples(t *testing.T) {
	want := described(t)
	var text strings.Builder
	for _, path := range slices.Sorted(maps.Keys(want)) {
		text.WriteString(path + "\t" + want[path] + "\n")
	}
	if *update {
		if err := os.WriteFile("descriptions.txt", []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if string(descriptionsText) != text.String() {
		t.Error("descriptions.txt is not what examples/weir.yaml says; go test ./core/config -run Descriptions -update writes it")
	}
}

// TestSchemaKnowsTheClosedSets: each set of the schema is what Parse takes: all of it, and nothing else.
func TestSchemaKnowsTheClosedSets(t *testing.T) {
	files := map[string]string{
		"listen.decode[]": "listen: {decode: [%s]}", "log.level": "log: {level: %s}", "log.format": "log: {format: %s}", "ledger.durability": "ledger: {durability: %s}",
		"upstream.adaptive_concurrency": "upstream: {adaptive_concurrency: %s}", "upstream.reach": "upstream: {reach: %s}",
		"limits.dimensions[]": "limits: {dimensions: [%s]}", "limits.defaults": "limits: {defaults: {%s: {qps: 1}}}",
		"limits.algorithms": "limits: {algorithms: {%s: {qps: fixed}}}", "limits.algorithms.*.qps": "limits: {algorithms: {key: {qps: %s}}}",
		"limits.shared.modes": "limits: {shared: {modes: {%s: leased}}}", "limits.shared.modes.*": "limits: {shared: {modes: {key: %s}}}",
		"limits.shared.outages": "limits: {shared: {outages: {%s: admit}}}", "limits.shared.outages.*": "limits: {shared: {outages: {key: %s}}}",
		"limits.algorithms.*.tpm": "limits: {algorithms: {key: {tpm: %s}}}", "tokens.encodings.*": "tokens: {encodings: {m: %s}}",
		"channels[].provider": "channels: [{name: c, provider: %s, base_url: http://h}]",
		"channels[].state":    "channels: [{name: c, provider: openai, base_url: http://h, state: %s}]",
		"models.*.stored":     "models: {m: {free: true, stored: %s}}",
		"policies.profile":    "policies: {profile: %s}", "policies.on_error": "policies: {on_error: %s}",
		"policies.labels[].source": "policies: {labels: [{name: l, source: %s}]}",
	}
	seen := map[string]bool{}
	var walk func(path string, s map[string]any)
	walk = func(path string, s map[string]any) {
		set, _ := s["enum"].([]string)
		if names, ok := s["propertyNames"].(map[string]any); ok {
			set = names["enum"].([]string)
		}
		if set != nil {
			seen[path] = true
		}
		for _, value := range append(slices.Clone(set), "nonsense") {
			if set == nil {
				break
			}
			_, err := Parse("weir.yaml", []byte(valid+strings.Replace(files[path], "%s", value, 1)+"\n"), env)
			if (err == nil) != slices.Contains(set, value) || files[path] == "" {
				t.Errorf("%s: %s: %v", path, value, err)
			}
		}
		if items, ok := s["items"].(map[string]any); ok {
			walk(path+"[]", items)
		}
		if names, ok := s["additionalProperties"].(map[string]any); ok {
			walk(path+".*", names)
		}
		properties, _ := s["properties"].(map[string]any)
		for name, p := range properties {
			walk(strings.TrimPrefix(path+"."+name, "."), p.(map[string]any))
			if p.(map[string]any)["description"] == nil {
				t.Errorf("%s.%s has no description", path, name)
			}
		}
	}
	walk("", Schema())
	if len(seen) != len(files) {
		t.Errorf("the schema has sets at %v, want %d", slices.Sorted(maps.Keys(seen)), len(files))
	}
}
