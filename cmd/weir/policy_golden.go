package main

import (
	"bytes"
	"encoding/json"
	"slices"
)

// golden is the want that what a module answered would pass: with the members of the old one, or without one with all
// that say something. Nil: the module failed, or the old one passes already.
func golden(old, got []byte) ([]byte, error) {
	var answer struct{ Fault string }
	if err := json.Unmarshal(got, &answer); err != nil {
		return nil, err
	}
	want, err := members(old)
	if err != nil {
		return nil, err
	}
	asked := slices.ContainsFunc(want, func(m member) bool { return m.name == "fault" })
	if answer.Fault != "" && !asked {
		return nil, nil
	}
	var next []byte
	if old == nil {
		next, err = telling(got)
	} else {
		next, err = project(old, got)
	}
	if err != nil || bytes.Equal(squeeze(old), squeeze(next)) {
		return nil, err
	}
	return next, nil
}

// member is one of a JSON object, in the order of the text.
type member struct {
	name  string
	value json.RawMessage
}

// members are those of an object; none for anything else.
func members(raw []byte) (all []member, err error) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '{' {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	err = eachMember(d, func(name string) error {
		m := member{name: name}
		err := d.Decode(&m.value)
		all = append(all, m)
		return err
	})
	return all, err
}

// project gives what got has where want asks for something.
func project(want, got []byte) ([]byte, error) {
	switch want = bytes.TrimSpace(want); want[0] {
	case '{':
		asked, err := members(want)
		if err != nil {
			return nil, err
		}
		have, err := members(got)
		if err != nil {
			return nil, err
		}
		for i, m := range asked {
			at := slices.IndexFunc(have, func(h member) bool { return h.name == m.name })
			if at < 0 {
				continue
			}
			if asked[i].value, err = project(m.value, have[at].value); err != nil {
				return nil, err
			}
		}
		return objectText(asked), nil
	case '[':
		var asked, have []json.RawMessage
		if json.Unmarshal(want, &asked) != nil || json.Unmarshal(got, &have) != nil {
			return got, nil
		}
		for i, h := range have {
			var err error
			if i < len(asked) {
				have[i], err = project(asked[i], h)
			} else {
				have[i], err = telling(h)
			}
			if err != nil {
				return nil, err
			}
		}
		return arrayText(have), nil
	}
	return got, nil
}

// telling leaves out the members that say nothing: what no answer and no change look like.
func telling(got []byte) ([]byte, error) {
	all, err := members(got)
	if err != nil || all == nil {
		return got, err
	}
	denies := slices.ContainsFunc(all, func(m member) bool { return m.name == "verdict" && string(m.value) == `"deny"` })
	all = slices.DeleteFunc(all, func(m member) bool {
		switch string(m.value) {
		case "false", "0", `""`, "1000", "[]", `"allow"`:
			return m.name != "abstain"
		}
		return m.name == "status" && !denies
	})
	for i, m := range all {
		if m.name != "dims" {
			continue
		}
		var dims []json.RawMessage
		if err := json.Unmarshal(m.value, &dims); err != nil {
			return nil, err
		}
		for j := range dims {
			if dims[j], err = telling(dims[j]); err != nil {
				return nil, err
			}
		}
		all[i].value = arrayText(dims)
	}
	return objectText(all), nil
}

// objectText writes {"a": 1, "b": 2}.
func objectText(all []member) []byte {
	out := []byte{'{'}
	for i, m := range all {
		if i > 0 {
			out = append(out, ", "...)
		}
		name, _ := json.Marshal(m.name) // a string
		out = append(append(append(out, name...), ": "...), m.value...)
	}
	return append(out, '}')
}

func arrayText(items []json.RawMessage) []byte {
	raw := make([][]byte, len(items))
	for i, item := range items {
		raw[i] = item
	}
	return slices.Concat([]byte{'['}, bytes.Join(raw, []byte(", ")), []byte{']'})
}

// squeeze is a document without its spaces.
func squeeze(raw []byte) []byte {
	var out bytes.Buffer
	if json.Compact(&out, raw) != nil {
		return raw
	}
	return out.Bytes()
}
