package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

const hidden = "(hidden)"

// Redacted is a copy that may be shown: secrets are replaced.
func (c *Config) Redacted() *Config {
	out := *c
	if out.Admin.Token != "" {
		out.Admin.Token = hidden
	}
	out.Channels = slices.Clone(c.Channels)
	for i := range out.Channels {
		if out.Channels[i].Credential != "" {
			out.Channels[i].Credential = hidden
		}
	}
	return &out
}

// Schema is a JSON Schema of the file, made from the struct that reads it.
func Schema() map[string]any {
	s := schemaOf(reflect.TypeFor[Config]())
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "weir.yaml"
	return s
}

func schemaOf(t reflect.Type) map[string]any {
	if t == reflect.TypeFor[Amount]() {
		return map[string]any{"type": []string{"number", "string"}, "description": "decimal units of the currency, at most six decimals"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Interface:
		return map[string]any{}
	case reflect.Struct:
		properties := map[string]any{}
		addProperties(t, properties)
		return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	default:
		return map[string]any{"type": "integer"}
	}
}

func addProperties(t reflect.Type, properties map[string]any) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, rest, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && rest == "inline":
			inner := map[string]any{}
			addProperties(f.Type, inner)
			maps.Copy(properties, inner)
		case name != "":
			properties[name] = schemaOf(f.Type)
		}
	}
}
