package core_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/weir-gateway/weir/"

// floors gives each package its height; an import must go strictly down. What is not listed fails the test.
var floors = map[string]int{
	"core/llm": 0, "sdk/abi": 0, "policies": 0, "sdk/go": 0,
	"sdk":       1,
	"core/auth": 1, "core/cert": 1, "core/policy": 1, "core/tokens": 1, "core/upstream": 1, "core/limit": 1, "core/ledger": 1, "core/alert": 1,
	"core/proxy": 2, "core/admin": 2,
	"store/storetest": 2, "store/badger": 2, "store/postgres": 2, "store/redis": 2, "store": 3,
	"core/config": 4, "core/sim": 4, "core/load": 4,
	"core/doctor": 5, // it examines a configuration
	"core/bench":  5, // it drives
	"cmd/weir":    6,
	"core":        9, "examples": 9, "policies/build": 9, "sdk/assemblyscript": 9, "sdk/gen": 9,
	"examples/walkthrough": 9, "examples/openai-node": 9, "examples/anthropic-node": 9,
}

const (
	maxFuncLines = 70
	maxTestLines = 120 // a table of cases is one subject
	maxFileLines = 800
)

type file struct {
	path, pkg string // relative to the root; pkg is the folder
	test      bool
	src       []byte
	ast       *ast.File
	fset      *token.FileSet
}

func TestArchitecture(t *testing.T) {
	files := load(t)
	for _, f := range files {
		checkFloor(t, f)
		checkSizes(t, f)
		if f.test {
			continue
		}
		checkVars(t, f)
		checkClock(t, f)
		checkNames(t, f)
	}
	checkOneReserve(t, files)
}

// TestTopLevel holds the fixed top level: nothing else may stand beside these.
func TestTopLevel(t *testing.T) {
	allowed := []string{"cmd", "core", "policies", "sdk", "store", "examples", "go.mod", "go.sum", "README.md", "LICENSE"}
	entries, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(allowed, e.Name()) {
			t.Errorf("%s does not belong on the top level", e.Name())
		}
	}
}

func load(t *testing.T) []file {
	t.Helper()
	var files []file
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "node_modules" || d.Name() == "testdata" || d.Name() == "templates" || (strings.HasPrefix(d.Name(), ".") && d.Name() != "..")) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		f, err := parse(path)
		files = append(files, f)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("only %d Go files found: the walk is broken", len(files))
	}
	return files
}

func parse(path string) (file, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return file{}, err
	}
	rel := filepath.ToSlash(strings.TrimPrefix(path, ".."+string(filepath.Separator)))
	f := file{path: rel, pkg: filepath.ToSlash(filepath.Dir(rel)), test: strings.HasSuffix(rel, "_test.go"), src: src, fset: token.NewFileSet()}
	f.ast, err = parser.ParseFile(f.fset, path, src, parser.ParseComments|parser.SkipObjectResolution)
	return f, err
}

func checkFloor(t *testing.T, f file) {
	own, ok := floors[f.pkg]
	if !ok {
		t.Errorf("%s: folder %s has no floor; give it one in arch_test.go", f.path, f.pkg)
	}
	for _, im := range f.ast.Imports {
		path := strings.Trim(im.Path.Value, `"`)
		to, ours := strings.CutPrefix(path, module)
		if !ours || to == f.pkg || f.test {
			continue
		}
		if floor, known := floors[to]; !known || floor >= own {
			t.Errorf("%s imports %s: imports point down only, never sideways", f.path, to)
		}
		if strings.HasPrefix(f.pkg, "core/") && (to == "store" || strings.HasPrefix(to, "store/")) {
			t.Errorf("%s imports %s: core never imports a store", f.path, to)
		}
	}
}

func checkSizes(t *testing.T, f file) {
	if n := bytes.Count(f.src, []byte("\n")); n > maxFileLines {
		t.Errorf("%s has %d lines; %d is the limit", f.path, n, maxFileLines)
	}
	for _, d := range f.ast.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		limit := maxFuncLines
		if f.test {
			limit = maxTestLines
		}
		if n := f.fset.Position(fn.End()).Line - f.fset.Position(fn.Pos()).Line + 1; n > limit {
			t.Errorf("%s: %s has %d lines; %d is the limit", f.path, fn.Name.Name, n, limit)
		}
	}
}

// immutable lists what a package-level variable may be made of: sync primitives, compiled tables, embedded files,
// error sentinels, interface guards. Tables are written once, by their declaration.
var immutable = regexp.MustCompile(`^(sync\.|atomic\.|regexp\.MustCompile|errors\.New|fmt\.Errorf|llm\.(Error\{|Errorf|Invalid)|\[\.\.\.\]|\[\]|\[[0-9a-zA-Z+ ]+\]|map\[|template\.|strings\.NewReplacer|crc32\.MakeTable|func\()`)

func checkVars(t *testing.T, f file) {
	for _, d := range f.ast.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.VAR {
			continue
		}
		embedded := g.Doc != nil && strings.Contains(commentText(g.Doc), "//go:embed")
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			if embedded || v.Doc != nil && strings.Contains(commentText(v.Doc), "//go:embed") {
				continue
			}
			checkVar(t, f, v)
		}
	}
	checkWrites(t, f)
}

func commentText(g *ast.CommentGroup) string {
	var b strings.Builder
	for _, c := range g.List {
		b.WriteString(c.Text)
	}
	return b.String()
}

func checkVar(t *testing.T, f file, v *ast.ValueSpec) {
	for i, name := range v.Names {
		if name.Name == "_" {
			continue
		}
		kind := ""
		switch {
		case i < len(v.Values):
			kind = text(f, v.Values[i])
		case v.Type != nil:
			kind = text(f, v.Type)
		}
		if v.Type != nil && immutable.MatchString(text(f, v.Type)) {
			continue
		}
		if !immutable.MatchString(strings.TrimLeft(kind, "&*")) && !compiledTable(kind) {
			t.Errorf("%s: package variable %s (%.40q) is neither a sync primitive nor a table", f.path, name.Name, kind)
		}
	}
}

// compiledTable accepts a variable filled by a function whose name says that it builds a table.
func compiledTable(expr string) bool {
	return regexp.MustCompile(`^(build|make|compile|must)[A-Z]\w*\(`).MatchString(expr) ||
		regexp.MustCompile(`^(strings|bytes|netip|big|binary|time)\.`).MatchString(expr)
}

// checkWrites refuses assignments to package-level variables inside functions.
func checkWrites(t *testing.T, f file) {
	globals := map[string]bool{}
	for _, d := range f.ast.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
			for _, s := range g.Specs {
				for _, n := range s.(*ast.ValueSpec).Names {
					globals[n.Name] = true
				}
			}
		}
	}
	for _, d := range f.ast.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil || fn.Name.Name == "init" {
			continue
		}
		local := declared(fn)
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			as, ok := n.(*ast.AssignStmt)
			if !ok || as.Tok == token.DEFINE {
				return true
			}
			for _, lhs := range as.Lhs {
				if id, ok := lhs.(*ast.Ident); ok && id.Name != "_" && globals[id.Name] && !local[id.Name] {
					t.Errorf("%s: %s writes the package variable %s", f.path, fn.Name.Name, id.Name)
				}
			}
			return true
		})
	}
}

func declared(fn *ast.FuncDecl) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(fn, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.AssignStmt:
			if x.Tok == token.DEFINE {
				for _, l := range x.Lhs {
					if id, ok := l.(*ast.Ident); ok {
						names[id.Name] = true
					}
				}
			}
		case *ast.ValueSpec:
			for _, id := range x.Names {
				names[id.Name] = true
			}
		case *ast.Field:
			for _, id := range x.Names {
				names[id.Name] = true
			}
		}
		return true
	})
	return names
}

func text(f file, n ast.Node) string {
	return string(f.src[f.fset.Position(n.Pos()).Offset:f.fset.Position(n.End()).Offset])
}

// checkClock keeps time.Now (and its relatives that read the clock) inside llm's SystemClock.
func checkClock(t *testing.T, f file) {
	if f.path == "core/llm/clock.go" || strings.HasPrefix(f.path, "examples/") {
		return // examples stand outside, where people's own programs do
	}
	for _, word := range []string{"time.Now(", "time.Since(", "time.Until("} {
		if i := bytes.Index(f.src, []byte(word)); i >= 0 {
			line := 1 + bytes.Count(f.src[:i], []byte("\n"))
			t.Errorf("%s:%d: %s) outside a clock", f.path, line, word)
		}
	}
	if f.pkg == "store/storetest" {
		return // a suite of tests: its randomness is seeded
	}
	for _, im := range f.ast.Imports {
		if p := im.Path.Value; p == `"math/rand"` || p == `"math/rand/v2"` {
			t.Errorf("%s imports %s: randomness is injected", f.path, p)
		}
	}
}

var banned = regexp.MustCompile(`(?i)(manager|service|helper|utils?$|common$|engine$|v2$)`)

func checkNames(t *testing.T, f file) {
	if banned.MatchString(f.ast.Name.Name) {
		t.Errorf("%s: package name %s is banned", f.path, f.ast.Name.Name)
	}
	for _, d := range f.ast.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.TYPE {
			continue
		}
		for _, s := range g.Specs {
			if name := s.(*ast.TypeSpec).Name.Name; banned.MatchString(name) {
				t.Errorf("%s: type name %s is banned: name what it is", f.path, name)
			}
		}
	}
}

// checkOneReserve: money and rates are held in one place of the program. What core/bench times and a suite of tests tries
// holds nobody's.
func checkOneReserve(t *testing.T, files []file) {
	var callers []string
	for _, f := range files {
		if f.test || f.pkg == "core/limit" || f.pkg == "core/bench" || f.pkg == "store/storetest" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Reserve" {
				callers = append(callers, fmt.Sprintf("%s:%d", f.path, f.fset.Position(call.Pos()).Line))
			}
			return true
		})
	}
	if len(callers) > 1 {
		t.Errorf("limit's Reserve is called in %d places (%s); one is the rule", len(callers), strings.Join(callers, ", "))
	}
}
