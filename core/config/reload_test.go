package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// applied is everything that a reload takes from a configuration.
func (c *Config) applied() []any {
	settings := c.Settings()
	settings.Currency = "" // stays as it was at the start
	return []any{settings, c.UpstreamModels(), c.Channels, c.TierLimits(), c.PolicyEnvelopes(), c.Policies.Module, c.Policies.Profile,
		c.PolicyParams(), c.Policies.OnError, c.Log.SlogLevel()}
}

// alter gives v another value.
func alter(path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.String:
		v.SetString(map[bool]string{true: "error", false: v.String() + "x"}[path == "log.level"])
	case reflect.Slice:
		v.Set(reflect.Append(reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, v.Len()+1), v), reflect.Zero(v.Type().Elem())))
	case reflect.Map:
		m := reflect.MakeMap(v.Type())
		element := reflect.Zero(v.Type().Elem())
		if element.Kind() == reflect.Interface {
			element = reflect.ValueOf("x")
		}
		m.SetMapIndex(reflect.ValueOf("user"), element)
		v.Set(m)
	default:
		if v.CanInt() {
			v.SetInt(v.Int() + 1)
		} else {
			v.SetUint(v.Uint() + 1)
		}
	}
}

// leaves calls do with the path of every setting below v, as the file spells it.
func leaves(path string, v reflect.Value, do func(path string, v reflect.Value)) {
	if v.Kind() != reflect.Struct {
		do(path, v)
		return
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case option == "inline":
			leaves(path, v.Field(i), do)
		default:
			leaves(strings.TrimPrefix(path+"."+name, "."), v.Field(i), do)
		}
	}
}

// TestEverySettingIsAppliedOrNamed: whatever setting of the file changes, a reload applies it or says that it takes a
// restart; never neither, never both.
func TestEverySettingIsAppliedOrNamed(t *testing.T) {
	seen := 0
	old := Default()
	changed := *old
	leaves("", reflect.ValueOf(&changed).Elem(), func(path string, v reflect.Value) {
		seen++
		was := reflect.New(v.Type()).Elem()
		was.Set(v)
		alter(path, v)
		named := changed.NeedRestart(old)
		applied := !reflect.DeepEqual(changed.applied(), old.applied())
		switch {
		case applied && len(named) > 0:
			t.Errorf("%s is applied, and yet named as %v", path, named)
		case !applied && !slices.Equal(named, []string{path}):
			t.Errorf("%s changes nothing, and a reload names %v", path, named)
		}
		v.Set(was)
	})
	if seen < 60 || len(changed.NeedRestart(old)) > 0 {
		t.Errorf("%d settings were tried, which left %v", seen, changed.NeedRestart(old))
	}
}
