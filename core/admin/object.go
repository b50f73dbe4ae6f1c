package admin

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/weir-gateway/weir/core/llm"
)

// object is a JSON object whose members keep their order and whose names may be computed (the currency's suffix).
type object []member

type member struct {
	name  string
	value any
}

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		name, _ := json.Marshal(m.name)
		b.Write(name)
		b.WriteByte(':')
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// decimal is money as people type it: a JSON number in units, exact.
type decimal llm.Micro

// MarshalJSON implements json.Marshaler.
func (d decimal) MarshalJSON() ([]byte, error) { return []byte(llm.Micro(d).String()), nil }

// money is an amount twice: exact in micro units for programs, in units for people.
func (a *API) money(name string, m llm.Micro) object { return money(a.suffix, name, m) }

func money(suffix, name string, m llm.Micro) object {
	return object{{name + "Micro" + suffix, m}, {name + suffix, decimal(m)}}
}

// suffixOf is the end of money fields: "Cny" for cny.
func suffixOf(currency string) string {
	if currency == "" {
		currency = "cny"
	}
	return strings.ToUpper(currency[:1]) + strings.ToLower(currency[1:])
}

// orNull is null for the zero value: "none" in answers.
func orNull[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}

// list is never null in JSON.
func list[T any](v []T) []T {
	if v == nil {
		return []T{}
	}
	return v
}

// table is never null in JSON.
func table(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}
