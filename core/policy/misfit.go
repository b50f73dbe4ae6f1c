package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"github.com/weir-gateway/weir/core/llm"
)

// Bounds of what is said about params: a stranger may have written the schema.
const (
	maxMisfits    = 5
	maxHintChars  = 160
	maxValueChars = 60
)

// misfit words for people how params do not fit their schema: where, what was expected, and the nearest name that is known.
type misfit struct {
	schema any // the whole document
	params any
	said   []string
}

// misfits is the one line for all that a schema refuses.
func misfits(schema, params any, e *jsonschema.ValidationError) string {
	m := &misfit{schema: schema, params: params}
	m.collect(e, nil)
	slices.Sort(m.said)
	m.said = slices.Compact(m.said)
	if n := len(m.said); n > maxMisfits {
		m.said = append(m.said[:maxMisfits], fmt.Sprintf("and %d more", n-maxMisfits))
	}
	return strings.Join(m.said, "; ")
}

// collect goes down to the causes. over are the places in the schema on the way that are about the same value, the outermost
// first: they know more of it than a shared definition does.
func (m *misfit) collect(e *jsonschema.ValidationError, over []*jsonschema.ValidationError) {
	if n := len(over); n > 0 && len(over[n-1].InstanceLocation) != len(e.InstanceLocation) {
		over = nil
	}
	over = append(over, e)
	switch e.ErrorKind.(type) {
	case *kind.Schema, *kind.Group, *kind.Reference, *kind.AllOf, *kind.AnyOf, *kind.OneOf:
		if len(e.Causes) > 0 {
			for _, c := range e.Causes {
				m.collect(c, over)
			}
			return
		}
	case *kind.AdditionalProperties:
		m.unknown(e)
		return
	}
	at := e.InstanceLocation
	if k, ok := e.ErrorKind.(*kind.PropertyNames); ok {
		at = m.holder(k.Property, at)
	}
	m.said = append(m.said, prefixed(m.path(at), m.expected(e, over)))
}

// holder corrects the place of an object by a name in it: the validator reports the place of a wrong name in memory that it
// has used again by then, so that the last step may be a sibling's.
func (m *misfit) holder(name string, at []string) []string {
	if _, ok := object(m.value(at))[name]; ok || len(at) == 0 {
		return at
	}
	up := at[:len(at)-1]
	parent := object(m.value(up))
	for _, sibling := range slices.Sorted(maps.Keys(parent)) {
		if _, ok := object(parent[sibling])[name]; ok {
			return append(slices.Clone(up), sibling)
		}
	}
	return at
}

func prefixed(path, text string) string {
	if path == "" {
		return text
	}
	return path + ": " + text
}

// unknown names each member that the schema does not know.
func (m *misfit) unknown(e *jsonschema.ValidationError) {
	known := slices.Sorted(maps.Keys(object(m.node(e.SchemaURL)["properties"])))
	for _, name := range e.ErrorKind.(*kind.AdditionalProperties).Properties {
		hint := "; none is expected here"
		if near := llm.Nearest(name, known); near != "" {
			hint = fmt.Sprintf("; did you mean %q?", near)
		} else if len(known) > 0 {
			hint = "; known are " + cut(strings.Join(known, ", "), maxHintChars)
		}
		m.said = append(m.said, m.path(append(slices.Clone(e.InstanceLocation), name))+": unknown"+hint)
	}
}

// expected is what a schema wants of one value.
func (m *misfit) expected(e *jsonschema.ValidationError, over []*jsonschema.ValidationError) string {
	node, got := m.node(e.SchemaURL), "; got "+m.shown(m.value(e.InstanceLocation))
	switch k := e.ErrorKind.(type) {
	case *kind.Type:
		return "expected " + alternatives(k.Want) + m.example(over) + got
	case *kind.Enum:
		return "expected " + m.listed(k.Want) + got + m.didYouMean(k.Got, k.Want)
	case *kind.Const:
		return "expected " + m.shown(k.Want) + got
	case *kind.Pattern:
		return "expected " + m.described(over, "text that matches "+k.Want) + m.example(over) + got
	case *kind.Format:
		return "expected " + m.described(over, "text of the format "+k.Want) + m.example(over) + got
	case *kind.Minimum, *kind.Maximum, *kind.ExclusiveMinimum, *kind.ExclusiveMaximum, *kind.MultipleOf:
		return "expected " + numbers(node) + got
	case *kind.Required:
		return "needs " + quotedNames(k.Missing)
	case *kind.MinLength:
		return fmt.Sprintf("expected text of at least %s", plural(k.Want, "character")) + m.example(over) + got
	case *kind.MaxLength:
		return fmt.Sprintf("expected text of at most %s, got %d", plural(k.Want, "character"), k.Got)
	case *kind.MinItems:
		return fmt.Sprintf("expected a list of at least %s", plural(k.Want, "element")) + m.example(over) + got
	case *kind.MaxItems:
		return fmt.Sprintf("expected a list of at most %s, got %d", plural(k.Want, "element"), k.Got)
	case *kind.MinProperties:
		return fmt.Sprintf("expected at least %s", plural(k.Want, "member")) + among(object(node["properties"])) + m.example(over) + got
	case *kind.MaxProperties:
		return fmt.Sprintf("expected at most %s, got %d", plural(k.Want, "member"), k.Got)
	case *kind.UniqueItems:
		return fmt.Sprintf("the elements %d and %d are the same", k.Duplicates[0], k.Duplicates[1])
	case *kind.PropertyNames:
		return fmt.Sprintf("the name %q is too long, empty or otherwise not allowed", cut(k.Property, maxValueChars))
	case *kind.Not:
		return "expected " + m.described(over, "another value") + got
	}
	return "does not fit " + strings.Join(e.ErrorKind.KeywordPath(), "/") + " of the schema" + got
}

// node is the place in the schema that an URL leads to; nil: it cannot be found.
func (m *misfit) node(at string) map[string]any {
	_, pointer, _ := strings.Cut(at, "#")
	pointer, err := url.PathUnescape(pointer)
	if err != nil {
		return nil
	}
	v := m.schema
	for _, name := range strings.Split(pointer, "/")[1:] {
		v = child(v, strings.NewReplacer("~1", "/", "~0", "~").Replace(name))
	}
	return object(v)
}

func object(v any) map[string]any {
	o, _ := v.(map[string]any)
	return o
}

// child is a member or an element; nil: there is none.
func child(v any, name string) any {
	if list, ok := v.([]any); ok {
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(list) {
			return list[i]
		}
		return nil
	}
	return object(v)[name]
}

func (m *misfit) value(at []string) any {
	v := m.params
	for _, name := range at {
		v = child(v, name)
	}
	return v
}

// path writes where a value is as people do: rules[1].when.model.
func (m *misfit) path(at []string) string {
	var b strings.Builder
	v := m.params
	for _, name := range at {
		_, list := v.([]any)
		switch {
		case list:
			b.WriteString("[" + name + "]")
		case plainName(name):
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(name)
		default:
			b.WriteString("[" + strconv.Quote(cut(name, maxValueChars)) + "]")
		}
		v = child(v, name)
	}
	return b.String()
}

func plainName(s string) bool {
	return s != "" && len(s) <= maxValueChars && strings.IndexFunc(s, func(r rune) bool { return r != '_' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) < 0
}

// described is the first sentence that the schema says about the value itself, else what is given.
func (m *misfit) described(over []*jsonschema.ValidationError, otherwise string) string {
	text, _ := m.node(over[len(over)-1].SchemaURL)["description"].(string)
	text, _, _ = strings.Cut(text, ". ")
	text = strings.TrimSuffix(text, ".")
	if text == "" {
		return otherwise
	}
	if first, n := utf8.DecodeRuneInString(text); len(text) > n {
		if second, _ := utf8.DecodeRuneInString(text[n:]); !unicode.IsUpper(second) {
			text = string(unicode.ToLower(first)) + text[n:]
		}
	}
	return cut(text, maxHintChars)
}

// example is what the schema gives as one.
func (m *misfit) example(over []*jsonschema.ValidationError) string {
	for _, e := range over {
		if all, _ := m.node(e.SchemaURL)["examples"].([]any); len(all) > 0 {
			return ", such as " + m.shown(all[0])
		}
	}
	return ""
}

func (m *misfit) didYouMean(got any, want []any) string {
	word, _ := got.(string)
	var words []string
	for _, w := range want {
		if s, ok := w.(string); ok {
			words = append(words, s)
		}
	}
	if near := llm.Nearest(word, words); near != "" && word != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

// listed is "first" or "all".
func (m *misfit) listed(all []any) string {
	words := make([]string, len(all))
	for i, v := range all {
		words[i] = m.shown(v)
	}
	return cut(alternatives(words), 2*maxHintChars)
}

// shown is a value as JSON.
func (m *misfit) shown(v any) string {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return "null"
	}
	return cut(strings.TrimSpace(out.String()), maxValueChars)
}

// alternatives are words with an or before the last; JSON's types with their article.
func alternatives(words []string) string {
	named := make([]string, len(words))
	for i, w := range words {
		switch w {
		case "string":
			w = "a text"
		case "integer":
			w = "a whole number"
		case "number":
			w = "a number"
		case "boolean":
			w = "true or false"
		case "array":
			w = "a list"
		case "object":
			w = "an object"
		}
		named[i] = w
	}
	if n := len(named); n > 1 {
		return strings.Join(named[:n-1], ", ") + " or " + named[n-1]
	}
	return strings.Join(named, "")
}

// numbers is the range that a place in the schema allows.
func numbers(node map[string]any) string {
	what := "a number"
	if node["type"] == "integer" {
		what = "a whole number"
	}
	for _, bound := range [...]struct{ keyword, word string }{{"minimum", "from"}, {"exclusiveMinimum", "above"}, {"maximum", "to"}, {"exclusiveMaximum", "below"},
		{"multipleOf", "that is a multiple of"}} {
		if v, given := node[bound.keyword]; given {
			what += fmt.Sprintf(" %s %v", bound.word, v)
		}
	}
	return what
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func among(known map[string]any) string {
	if len(known) == 0 {
		return ""
	}
	return " of " + cut(strings.Join(slices.Sorted(maps.Keys(known)), ", "), maxHintChars)
}

func quotedNames(names []string) string {
	q := make([]string, len(names))
	for i, n := range names {
		q[i] = strconv.Quote(cut(n, maxValueChars))
	}
	return strings.Join(q, " and ")
}

// cut shortens a text to so many bytes, at a whole character.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}
