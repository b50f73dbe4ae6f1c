package config

import (
	"reflect"
	"strings"
)

// NeedRestart names the settings of c that differ from old and cannot change in a running process: all that differ,
// but for those that live says a reload applies. A field that is new is thus named until somebody applies it.
func (c *Config) NeedRestart(old *Config) []string {
	return differing("", reflect.ValueOf(*c), reflect.ValueOf(*old), nil)
}

// live says whether a reload applies the setting at path, with all that is in it.
func live(path string) bool {
	switch path {
	case "ledger.settle_timeout_ms", "limits.global", "limits.dimensions", "limits.defaults", "tiers", "models", "channels",
		"policies.module", "policies.profile", "policies.params", "policies.on_error", "policies.header",
		"policies.labels", // refused when they differ
		"policies.envelope", "policies.tier_envelopes", "policies.tenant_envelope", "policies.tenant_tier_envelopes", "log.level":
		return true
	}
	return false
}

// differing appends the paths of fields that are not live and not equal; now and was are of one type.
func differing(path string, now, was reflect.Value, names []string) []string {
	if live(path) || reflect.DeepEqual(now.Interface(), was.Interface()) {
		return names
	}
	if now.Kind() != reflect.Struct {
		return append(names, path)
	}
	for i := range now.NumField() {
		f := now.Type().Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case option == "inline":
			names = differing(path, now.Field(i), was.Field(i), names)
		default:
			names = differing(strings.TrimPrefix(path+"."+name, "."), now.Field(i), was.Field(i), names)
		}
	}
	return names
}
