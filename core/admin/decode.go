package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weir-gateway/weir/core/llm"
)

// The largest values the API takes.
const (
	maxCount      = 1_000_000_000_000 // a limit; beyond it 0 (unlimited) is meant
	maxNameChars  = 128
	maxLabels     = 32
	maxLabelName  = 64  // bytes
	maxLabelValue = 256 // bytes
	maxListItems  = 256

	// maxMoney keeps every sum of two amounts far from int64's end.
	maxMoney = 1_000_000_000_000 * llm.MicroPerUnit
)

// body is one JSON object on its way in. Readers take its members one by one; an absent member leaves its
// target as it is; the first error sticks, and end reports it, or a member nobody asked for.
type body struct {
	at      string // of a nested object: its place, with a dot behind
	members map[string]json.RawMessage
	order   []string
	asked   []string
	err     error
}

// parseBody reads one strict JSON object; no bytes at all count as an empty one.
func parseBody(raw []byte) *body {
	b := new(body)
	if len(bytes.TrimSpace(raw)) == 0 {
		return b
	}
	b.members, b.order, b.err = parseObject(raw, "")
	return b
}

// parseObject splits an object into its members. Duplicates, a second document and broken UTF-8 are errors.
func parseObject(raw []byte, at string) (map[string]json.RawMessage, []string, error) {
	if !utf8.Valid(raw) {
		return nil, nil, llm.Invalid(at, "the body is not valid UTF-8")
	}
	if err := noDuplicates(raw); err != nil {
		return nil, nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, _ := dec.Token(); t != json.Delim('{') {
		return nil, nil, llm.Invalid(at, "%sexpected a JSON object, got %s", prefixed(at), jsonKind(bytes.TrimSpace(raw)))
	}
	members, order := map[string]json.RawMessage{}, []string(nil)
	for dec.More() {
		name, _ := dec.Token()
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return nil, nil, badJSON(err)
		}
		members[name.(string)] = v
		order = append(order, name.(string))
	}
	return members, order, nil
}

// noDuplicates walks a whole document: it is well formed, ends where it ends, and no object in it has a name twice.
func noDuplicates(raw []byte) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := walk(dec, 0); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return llm.Invalid("", "expected one JSON document, found more after it")
	}
	return nil
}

const maxDepth = 64

func walk(dec *json.Decoder, depth int) error {
	t, err := dec.Token()
	if err != nil {
		return badJSON(err)
	}
	open, ok := t.(json.Delim)
	if !ok {
		return nil
	}
	if depth == maxDepth {
		return llm.Invalid("", "the JSON is nested deeper than %d levels", maxDepth)
	}
	seen := map[string]bool{}
	for dec.More() {
		if open == '{' {
			name, err := dec.Token()
			if err != nil {
				return badJSON(err)
			}
			if seen[name.(string)] {
				return llm.Invalid(name.(string), "the field %q appears twice", name)
			}
			seen[name.(string)] = true
		}
		if err := walk(dec, depth+1); err != nil {
			return err
		}
	}
	if _, err = dec.Token(); err != nil {
		return badJSON(err)
	}
	return nil
}

func badJSON(err error) error {
	var s *json.SyntaxError
	switch {
	case errors.As(err, &s):
		return llm.Invalid("", "the body is not valid JSON: %s at byte %d", s.Error(), s.Offset)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return llm.Invalid("", "the body is not valid JSON: it ends too early")
	}
	return llm.Invalid("", "the body is not valid JSON: %s", err.Error())
}

// jsonKind names what a JSON value is, for "expected x, got y".
func jsonKind(raw []byte) string {
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return fmt.Sprintf("%.40s", raw)
}

func prefixed(at string) string {
	if at == "" {
		return ""
	}
	return at + ": "
}

// fail keeps the first error.
func (b *body) fail(name, format string, args ...any) {
	if b.err == nil {
		b.err = llm.Invalid(b.at+name, b.at+name+": "+format, args...)
	}
}

// take gives a member that is present; nil otherwise.
func (b *body) take(name string) json.RawMessage {
	b.asked = append(b.asked, name)
	if b.err != nil {
		return nil
	}
	return b.members[name]
}

func (b *body) has(name string) bool { _, ok := b.members[name]; return ok }

// null reports a member that is literally null.
func (b *body) null(name string) bool { return string(b.take(name)) == "null" }

// need makes members required.
func (b *body) need(names ...string) {
	for _, n := range names {
		if b.asked = append(b.asked, n); !b.has(n) {
			b.fail(n, "this field is required")
		}
	}
}

// fixed refuses a member that cannot be changed here, and says where it can.
func (b *body) fixed(name, why string) {
	if b.take(name) != nil {
		b.fail(name, "%s", why)
	}
}

// nested reads a member that is an object itself, all of it.
func (b *body) nested(name string, read func(*body)) {
	raw := b.take(name)
	if raw == nil {
		return
	}
	in := &body{at: b.at + name + "."}
	in.members, in.order, in.err = parseObject(raw, b.at+name)
	read(in)
	if err := in.end(); b.err == nil {
		b.err = err
	}
}

// end is the error of the whole object: a member that nobody asked for first, because a mistyped name is missing elsewhere.
func (b *body) end() error {
	for _, name := range b.order {
		if !slices.Contains(b.asked, name) {
			return llm.Invalid(b.at+name, "unknown field %q%s", b.at+name, suggest(name, b.asked))
		}
	}
	return b.err
}

// suggest is the end of an error about a name that is not among the valid ones.
func suggest(name string, valid []string) string {
	if near := llm.Nearest(name, valid); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	if len(valid) == 0 {
		return "; none is expected here"
	}
	sorted := slices.Compact(slices.Sorted(slices.Values(valid)))
	if len(sorted) > 16 {
		return fmt.Sprintf("; valid are %s and %d more", strings.Join(sorted[:16], ", "), len(sorted)-16)
	}
	return "; valid are " + strings.Join(sorted, ", ")
}

func (b *body) text(name string, to *string, check func(string) error) {
	raw := b.take(name)
	if raw == nil {
		return
	}
	var s *string
	if json.Unmarshal(raw, &s) != nil || s == nil {
		b.fail(name, "expected a string, got %s", jsonKind(raw))
		return
	}
	if err := check(*s); err != nil {
		b.fail(name, "%s", err.Error())
		return
	}
	*to = *s
}

// optional is text that null takes away, as answers show it.
func (b *body) optional(name string, to *string, check func(string) error) {
	if b.null(name) {
		*to = ""
		return
	}
	b.text(name, to, check)
}

func (b *body) flag(name string, to *bool) {
	raw := b.take(name)
	if raw == nil {
		return
	}
	if s := string(raw); s != "true" && s != "false" {
		b.fail(name, "expected true or false, got %s", jsonKind(raw))
		return
	}
	*to = raw[0] == 't'
}

// integer reads a whole number written as such; what names the range for the error.
func (b *body) integer(name string, to *int64, least, most int64, what string) {
	raw := b.take(name)
	if raw == nil {
		return
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < least || n > most {
		b.fail(name, "expected %s, got %s", what, jsonKind(raw))
		return
	}
	*to = n
}

// count reads a limit: 0 is unlimited.
func (b *body) count(name string, to *int64) {
	b.integer(name, to, 0, maxCount, "a whole number from 0 (unlimited) to 1000000000000")
}

// id reads the number of an object.
func (b *body) id(name string, to *uint64) {
	var n int64
	b.integer(name, &n, 1, 1<<62, "the number of an object")
	if n > 0 {
		*to = uint64(n)
	}
}

// amount reads money in units, as a JSON number or a decimal string, exactly. Only signed amounts may be negative.
func (b *body) amount(name string, to *llm.Micro, signed bool) {
	b.bounded(name, to, signed, maxMoney)
}

// bounded is amount with a bound of its own, on either side of 0.
func (b *body) bounded(name string, to *llm.Micro, signed bool, most llm.Micro) {
	raw := b.take(name)
	if raw == nil {
		return
	}
	s := string(raw)
	if raw[0] == '"' {
		if json.Unmarshal(raw, &s) != nil {
			s = ""
		}
	} else if raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		b.fail(name, "expected an amount such as 12.5 or \"12.5\", got %s", jsonKind(raw))
		return
	}
	m, err := exactMicro(s)
	switch {
	case err != nil:
		b.fail(name, "%s", err.Error())
	case m < 0 && !signed:
		b.fail(name, "expected an amount of at least 0, got %s", m)
	case m > most || m < -most:
		b.fail(name, "expected an amount of at most %s, got %s", most, m)
	default:
		*to = m
	}
}

// exactMicro is llm.ParseMicro that also reads JSON's exponents, as long as the amount is exact.
func exactMicro(s string) (llm.Micro, error) {
	mantissa, exp, has := strings.Cut(strings.ToLower(s), "e")
	if !has {
		return llm.ParseMicro(s)
	}
	n, err := strconv.Atoi(exp)
	digits, negative := strings.CutPrefix(mantissa, "-")
	whole, frac, dotted := strings.Cut(digits, ".")
	if err != nil || n < -40 || n > 40 || whole == "" || dotted && frac == "" {
		return 0, fmt.Errorf("%.40q is not an amount that can be read exactly; write it like 12.5", s)
	}
	point := len(whole) + n
	digits = whole + frac
	if point < 1 {
		digits, point = strings.Repeat("0", 1-point)+digits, 1
	}
	if point > len(digits) {
		digits += strings.Repeat("0", point-len(digits))
	}
	plain := digits[:point]
	if point < len(digits) {
		plain += "." + digits[point:]
	}
	if negative {
		plain = "-" + plain
	}
	m, err := llm.ParseMicro(plain)
	if err != nil {
		return 0, fmt.Errorf("%.40q: %w", s, err)
	}
	return m, nil
}

func (b *body) strings(name string, to *[]string, check func(string) error) {
	raw := b.take(name)
	if raw == nil {
		return
	}
	var items []*string
	if json.Unmarshal(raw, &items) != nil || items == nil || len(items) > maxListItems {
		b.fail(name, "expected an array of at most %d strings, got %s", maxListItems, jsonKind(raw))
		return
	}
	out := make([]string, 0, len(items))
	for i, s := range items {
		if s == nil {
			b.fail(name, "expected strings only; item %d is null", i)
			return
		}
		if err := check(*s); err != nil {
			b.fail(name, "item %d: %s", i, err.Error())
			return
		}
		if slices.Contains(out, *s) {
			b.fail(name, "%q is listed twice", *s)
			return
		}
		out = append(out, *s)
	}
	*to = out
}

func (b *body) labels(name string, to *map[string]string) {
	raw := b.take(name)
	if raw == nil {
		return
	}
	var values map[string]json.RawMessage
	if json.Unmarshal(raw, &values) != nil || values == nil {
		b.fail(name, "expected an object of strings, got %s", jsonKind(raw))
		return
	}
	m := make(map[string]*string, len(values))
	for _, k := range slices.Sorted(maps.Keys(values)) {
		var v *string
		if json.Unmarshal(values[k], &v) != nil {
			b.fail(name, "label %.70q: expected a string, got %s", k, jsonKind(values[k]))
			return
		}
		m[k] = v
	}
	if len(m) > maxLabels {
		b.fail(name, "expected at most %d labels, got %d", maxLabels, len(m))
		return
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		switch {
		case v == nil:
			b.fail(name, "label %q: expected a string, got null", k)
		case k == "" || len(k) > maxLabelName || !printable(k):
			b.fail(name, "label name %.70q: expected 1 to %d printable bytes", k, maxLabelName)
		case len(*v) > maxLabelValue || !printable(*v):
			b.fail(name, "label %q: expected a value of at most %d printable bytes", k, maxLabelValue)
		default:
			out[k] = *v
		}
	}
	*to = out
}

func printable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// checkName is the rule of names people give: 1 to 128 printable characters, no blank at either end.
func checkName(s string) error {
	if n := utf8.RuneCountInString(s); n < 1 || n > maxNameChars || !printable(s) || strings.TrimSpace(s) != s {
		return fmt.Errorf("expected 1 to %d printable characters without blanks at the ends", maxNameChars)
	}
	return nil
}

func oneOf(valid ...string) func(string) error {
	return func(s string) error {
		if slices.Contains(valid, s) {
			return nil
		}
		return fmt.Errorf("expected %s, got %.64q", strings.Join(valid, ", "), s)
	}
}
