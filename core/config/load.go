package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
	"github.com/weir-gateway/weir/core/llm"
)

// Error is one thing wrong with a file, with the place to look at.
type Error struct {
	File         string
	Line, Column int
	Message      string
}

// Error is file:line:column: message.
func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// Load reads, checks and completes a file. env looks up ${NAME}; os.LookupEnv outside tests.
func Load(path string, env func(string) (string, bool)) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	return Parse(path, text, env)
}

// Parse is Load on bytes; name is used in errors.
func Parse(name string, text []byte, env func(string) (string, bool)) (*Config, error) {
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // by which some editors mark UTF-8
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, unquoted(text, located(name, err))
	}
	if len(file.Docs) > 1 {
		return nil, &Error{name, line(file.Docs[1]), 1, "a configuration is one document; remove what follows ---"}
	}
	c := Default()
	c.source = source{name, file}
	if len(file.Docs) == 1 && file.Docs[0].Body != nil {
		x := &expander{file: name, env: env}
		ast.Walk(x, file.Docs[0].Body)
		if x.err != nil {
			return nil, x.err
		}
		if err := misread(reflect.TypeFor[Config](), file.Docs[0].Body); err != nil {
			err.File = name
			return nil, err
		}
		if err := yaml.NodeToValue(file.Docs[0].Body, c, yaml.Strict()); err != nil {
			return nil, located(name, err)
		}
	}
	if err := c.validate(); err != nil {
		return nil, place(name, file, err)
	}
	return c, nil
}

func line(d *ast.DocumentNode) int {
	if d.Start != nil {
		return d.Start.Position.Line
	}
	return 1
}

// located turns the parser's error into ours, and names the nearest field when one is unknown.
func located(name string, err error) error {
	if own, ok := errors.AsType[*Error](err); ok {
		own.File = name
		return own
	}
	var y yaml.Error
	if !errors.As(err, &y) || y.GetToken() == nil {
		return &Error{name, 1, 1, err.Error()}
	}
	message := y.GetMessage()
	var unknown *yaml.UnknownFieldError
	if errors.As(err, &unknown) {
		message = fmt.Sprintf("unknown field %q", y.GetToken().Value)
		if near := llm.Nearest(y.GetToken().Value, fieldNames(reflect.TypeFor[Config](), nil)); near != "" {
			message += fmt.Sprintf("; did you mean %q?", near)
		}
	}
	if bad, ok := errors.AsType[*yaml.TypeError](err); ok {
		message = fmt.Sprintf("expected %s, got %.40q", typeWords(bad.DstType), y.GetToken().Value)
	}
	pos := y.GetToken().Position
	return &Error{name, pos.Line, pos.Column, message}
}

// unquoted adds to an error of the syntax what to do about it where the brace of a ${NAME} is taken for YAML's own.
func unquoted(text []byte, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	lines := strings.Split(string(text), "\n")
	if e.Line < 1 || e.Line > len(lines) {
		return err
	}
	if at := []rune(lines[e.Line-1]); e.Column > 1 && e.Column <= len(at) && string(at[e.Column-2:e.Column]) == "${" {
		e.Message += `; within {} and [] a ${NAME} has to be quoted, as in "${NAME}"`
	}
	return err
}

// typeWords says what a field takes, to somebody who does not read Go.
func typeWords(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text"
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "a block of fields"
	case reflect.Pointer:
		return typeWords(t.Elem())
	}
	return "a whole number"
}

// invalid is a validation error that still has to be given its line.
type invalid struct {
	path string // "$.tiers[1].qps"
	text string
}

func (e *invalid) Error() string { return strings.TrimPrefix(e.path, "$.") + ": " + e.text }

// place finds the line of a validation error: the field itself, or the nearest block that the file has.
func place(name string, file *ast.File, err error) error {
	var inv *invalid
	if !errors.As(err, &inv) {
		return &Error{name, 1, 1, err.Error()}
	}
	for path := inv.path; path != "$" && path != ""; path = parent(path) {
		p, perr := yaml.PathString(path)
		if perr != nil {
			continue
		}
		if node, ferr := p.FilterFile(file); ferr == nil && node != nil {
			pos := begin(node).Position
			return &Error{name, pos.Line, pos.Column, inv.Error()}
		}
	}
	return &Error{name, 1, 1, inv.Error()}
}

// begin is where a reader sees a node begin; a block's own token is the colon of its first field.
func begin(n ast.Node) *token.Token {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return n.Values[0].Key.GetToken()
		}
	case *ast.MappingValueNode:
		return n.Key.GetToken()
	}
	return n.GetToken()
}

// At places an error that was found after Load at the setting it is about, such as policies.params.rules[0]: the error
// names file, line and column of the setting, or of the nearest block that the file has.
func (c *Config) At(path string, err error) error {
	inv := &invalid{path: "$." + path, text: err.Error()}
	if c.source.file == nil {
		return inv
	}
	return place(c.source.name, c.source.file, inv)
}

// has tells whether the file itself has a setting, even one that is zero.
func (c *Config) has(path string) bool {
	if c.source.file == nil {
		return false
	}
	p, err := yaml.PathString("$." + path)
	if err != nil {
		return false
	}
	node, err := p.FilterFile(c.source.file)
	return err == nil && node != nil
}

func parent(path string) string {
	if i := strings.LastIndexAny(path, ".["); i > 0 {
		return path[:i]
	}
	return ""
}

var reference = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// expander replaces ${NAME} in scalars of the parsed tree.
type expander struct {
	file string
	env  func(string) (string, bool)
	err  error
}

// Visit implements ast.Visitor.
func (x *expander) Visit(n ast.Node) ast.Visitor {
	s, ok := n.(*ast.StringNode)
	if !ok || x.err != nil || !strings.Contains(s.Value, "${") {
		return x
	}
	s.Value = reference.ReplaceAllStringFunc(s.Value, func(ref string) string {
		value, ok := x.env(ref[2 : len(ref)-1])
		if !ok && x.err == nil {
			pos := s.Token.Position
			x.err = &Error{x.file, pos.Line, pos.Column, fmt.Sprintf("environment variable %s is not set", ref[2:len(ref)-1])}
		}
		return value
	})
	s.Token = token.New(s.Value, s.Value, s.Token.Position)
	return x
}

// misread is the first scalar that the decoder would round, or read in another base, on its way into a field of type t: half a
// request per second would become none, which is unlimited. Types that read the text as it stands are left to themselves.
func misread(t reflect.Type, n ast.Node) *Error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[yaml.NodeUnmarshaler]()) {
		return nil
	}
	switch n := n.(type) {
	case *ast.AnchorNode:
		return misread(t, n.Value)
	case *ast.TagNode:
		return misread(t, n.Value)
	case *ast.MappingNode:
		for _, v := range n.Values {
			if err := misread(t, v); err != nil {
				return err
			}
		}
	case *ast.MappingValueNode:
		if of := memberType(t, n.Key.GetToken().Value); of != nil {
			return misread(of, n.Value)
		}
	case *ast.SequenceNode:
		for _, v := range n.Values {
			if t.Kind() != reflect.Slice {
				break
			}
			if err := misread(t.Elem(), v); err != nil {
				return err
			}
		}
	case *ast.StringNode:
		return misreadScalar(t, n.GetToken(), true)
	case *ast.FloatNode, *ast.IntegerNode, *ast.InfinityNode, *ast.NanNode:
		return misreadScalar(t, n.GetToken(), false)
	}
	return nil
}

// memberType is the type of a member of a block; nil: it has none of that name.
func memberType(block reflect.Type, name string) (of reflect.Type) {
	switch {
	case name == "<<":
		return block
	case block.Kind() == reflect.Map:
		return block.Elem()
	case block.Kind() == reflect.Struct:
		fieldsOf(block, func(field string, f reflect.StructField, _ reflect.Type) {
			if field == name {
				of = f.Type
			}
		})
	}
	return of
}

var plainInteger = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

func misreadScalar(t reflect.Type, at *token.Token, isText bool) *Error {
	wrong := func(format string, args ...any) *Error {
		return &Error{Line: at.Position.Line, Column: at.Position.Column, Message: fmt.Sprintf(format, args...)}
	}
	plain := plainInteger.MatchString(at.Value)
	switch kind := t.Kind(); {
	case kind == reflect.String && !isText && !plain:
		return wrong("%s is not a plain whole number such as 10; quote it if it is meant as text", at.Value)
	case kind < reflect.Int || kind > reflect.Uint64:
	case !plain:
		return wrong("expected a whole number, got %.40q; write it like 10", at.Value)
	case kind < reflect.Uint:
		if _, err := strconv.ParseInt(at.Value, 10, t.Bits()); err != nil {
			return wrong("%s is out of range; it takes at most %d bits", at.Value, t.Bits()-1)
		}
	default:
		if _, err := strconv.ParseUint(at.Value, 10, t.Bits()); err != nil {
			return wrong("%s is out of range; it takes 0 or more, of at most %d bits", at.Value, t.Bits())
		}
	}
	return nil
}

// fieldNames lists every key a file may use, for suggestions and for the test that the example names them all.
func fieldNames(t reflect.Type, names []string) []string {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return fieldNames(t.Elem(), names)
	case reflect.Struct:
		fieldsOf(t, func(name string, f reflect.StructField, _ reflect.Type) {
			names = fieldNames(f.Type, append(names, name))
		})
	}
	return names
}
