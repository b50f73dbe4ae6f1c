package config

import (
	_ "embed"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

const hidden = "(hidden)"

// Redacted is a copy that may be shown: secrets are replaced.
func (c *Config) Redacted() *Config {
	out := *c
	out.Channels = slices.Clone(c.Channels)
	secrets := []*string{&out.Admin.Token, &out.Alerts.Secret}
	for i := range out.Channels {
		secrets = append(secrets, &out.Channels[i].Credential)
	}
	for _, s := range secrets {
		if *s != "" {
			*s = hidden
		}
	}
	out.Data, out.Limits.Shared.URL = DataName(out.Data), DataName(out.Limits.Shared.URL)
	if u, err := url.Parse(out.Alerts.URL); err == nil && u.User != nil {
		u.User = url.User("hidden")
		out.Alerts.URL = u.String()
	}
	return &out
}

// DataName is the setting data as it may be shown: of a database without user, password and parameters.
func DataName(data string) string {
	scheme, _, found := strings.Cut(data, "://")
	if !found || scheme == "badger" {
		return data
	}
	u, err := url.Parse(data)
	if err != nil || u.User == nil && strings.Contains(data, "@") {
		return scheme + "://" + hidden
	}
	return scheme + "://" + u.Host + u.EscapedPath()
}

//go:embed descriptions.txt
var descriptionsText []byte

// descriptions are what examples/weir.yaml says of each field, by its path with * for names and [] for places in lists.
func descriptions() map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(string(descriptionsText)) {
		path, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		all[path] = text
	}
	return all
}

// Schema is a JSON Schema of the file, made from the struct that reads it, the sets that validation holds it to, and the
// comments of examples/weir.yaml.
func Schema() map[string]any {
	s := schema{descriptions()}.of(reflect.TypeFor[Config](), "")
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "weir.yaml"
	return s
}

type schema struct{ descriptions map[string]string }

// of is the schema of a value of type t at path.
func (s schema) of(t reflect.Type, path string) map[string]any {
	if t == reflect.TypeFor[Amount]() || t == reflect.TypeFor[Factor]() {
		return map[string]any{"type": []string{"number", "string"}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem(), path)
	case reflect.String:
		out := map[string]any{"type": "string"}
		if set := choices(path); set != nil {
			out["enum"] = set
		}
		return out
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": s.of(t.Elem(), path+"[]")}
	case reflect.Map:
		out := map[string]any{"type": "object", "additionalProperties": s.of(t.Elem(), path+".*")}
		if set := choices(path); set != nil {
			out["propertyNames"] = map[string]any{"enum": set}
		}
		return out
	case reflect.Interface:
		return map[string]any{}
	case reflect.Struct:
		return map[string]any{"type": "object", "additionalProperties": false, "properties": s.properties(t, path)}
	default:
		return map[string]any{"type": "integer"}
	}
}

func (s schema) properties(t reflect.Type, path string) map[string]any {
	out := map[string]any{}
	fieldsOf(t, func(name string, f reflect.StructField, _ reflect.Type) {
		at := strings.TrimPrefix(path+"."+name, ".")
		p := s.of(f.Type, at)
		if text := s.descriptions[at]; text != "" {
			p["description"] = text
		}
		out[name] = p
	})
	return out
}

// fieldsOf calls do with every field of a struct that the file has, those of inline structs with that struct as owner.
func fieldsOf(t reflect.Type, do func(name string, f reflect.StructField, owner reflect.Type)) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case option == "inline":
			fieldsOf(f.Type, do)
		case name != "":
			do(name, f, t)
		}
	}
}
