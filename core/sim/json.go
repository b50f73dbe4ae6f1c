package sim

import (
	"bytes"
	"encoding/json"
)

// The walkers below take JSON that json.Valid has accepted, and so need no error paths.

// members visits the members of an object; anything else has none.
func members(raw []byte, visit func(key string, val []byte)) {
	i := blank(raw, 0)
	if i >= len(raw) || raw[i] != '{' {
		return
	}
	for i = blank(raw, i+1); raw[i] != '}'; {
		end := skip(raw, i)
		key := unquote(raw[i:end])
		i = blank(raw, blank(raw, end)+1)
		end = skip(raw, i)
		visit(key, raw[i:end])
		i = next(raw, end)
	}
}

// elements visits the elements of an array; anything else has none.
func elements(raw []byte, visit func(val []byte)) {
	i := blank(raw, 0)
	if i >= len(raw) || raw[i] != '[' {
		return
	}
	for i = blank(raw, i+1); raw[i] != ']'; {
		end := skip(raw, i)
		visit(raw[i:end])
		i = next(raw, end)
	}
}

// next is the start of the member or element after the one that ended at i, or the closing bracket.
func next(raw []byte, i int) int {
	i = blank(raw, i)
	if raw[i] == ',' {
		i = blank(raw, i+1)
	}
	return i
}

func blank(raw []byte, i int) int {
	for i < len(raw) && (raw[i] == ' ' || raw[i] == '\n' || raw[i] == '\r' || raw[i] == '\t') {
		i++
	}
	return i
}

// skip is the end of the value that starts at i.
func skip(raw []byte, i int) int {
	switch raw[i] {
	case '"':
		return skipString(raw, i)
	case '{', '[':
		return skipNested(raw, i)
	}
	for i < len(raw) && bytes.IndexByte([]byte(",]} \n\r\t"), raw[i]) < 0 {
		i++
	}
	return i
}

func skipString(raw []byte, i int) int {
	for i++; raw[i] != '"'; i++ {
		if raw[i] == '\\' {
			i++
		}
	}
	return i + 1
}

func skipNested(raw []byte, i int) int {
	for depth := 0; ; {
		switch raw[i] {
		case '"':
			i = skipString(raw, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
}

// unquote is the content of a JSON string; a value of another type gives "".
func unquote(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// quoted is s as it stands between the quotes of a JSON string.
func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return ""
	}
	return string(b[1 : len(b)-1])
}
