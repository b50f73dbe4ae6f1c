package policy

import (
	"bytes"
	"strings"

	"github.com/weir-gateway/weir/sdk/abi"
)

// Section numbers of the binary format.
const (
	secCustom = iota
	secType
	secImport
	secFunction
	secTable
	secMemory
	secGlobal
	secExport
	secStart
	secElement
	secCode
	secData
	secDataCount
)

// Kinds of imports and exports.
const (
	extFunc = iota
	extTable
	extMemory
	extGlobal
)

// Value types. Vectors (0x7b) are not among them: policies have no use for SIMD, and its lowering is the larger
// part of a compiler's attack surface.
const (
	typeI32       = 0x7f
	typeI64       = 0x7e
	typeF32       = 0x7d
	typeF64       = 0x7c
	typeFuncref   = 0x70
	typeExternref = 0x6f
)

// module is what the checks and the rewriter need to know of a binary. Offsets are into src.
type module struct {
	src       []byte
	p         *profile
	types     []funcType
	imports   []importedFunc
	funcs     []uint32 // type of each defined function
	tables    []limits
	memories  []limits
	globals   int
	exports   []export
	bodies    []span
	sections  []section
	segments  int
	locals    int  // of all functions, so far
	targets   int  // of their br_tables
	hostInRef bool // a reference to an imported function exists: call_indirect may leave the module
	custom    map[string][]byte
	counted   bool // meter adds a counter for each function
}

type span struct{ from, to int }

type section struct {
	id byte
	span
	items span // after the count, for the two sections that get one item more
	count int
}

type funcType struct{ params, results string }

type importedFunc struct {
	module, name string
	typ          uint32
}

type export struct {
	name string
	kind byte
	idx  uint32
}

type limits struct {
	ref      byte // tables: the element type
	min, max uint32
	bounded  bool
}

func (t funcType) String() string {
	return "(" + typeNames(t.params) + ")->(" + typeNames(t.results) + ")"
}

func typeNames(s string) string {
	names := make([]string, len(s))
	for i := range s {
		names[i] = map[byte]string{typeI32: "i32", typeI64: "i64", typeF32: "f32", typeF64: "f64",
			typeFuncref: "funcref", typeExternref: "externref"}[s[i]]
	}
	return strings.Join(names, ", ")
}

const header = "\x00asm\x01\x00\x00\x00"

// parse reads a binary and holds it to the caps of p. It allocates at most a small multiple of the input and never
// more than the caps allow; function bodies are looked at by meter.
func parse(src []byte, p *profile) (*module, error) {
	if err := p.within(len(src), p.bytes, "bytes"); err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(src, []byte(header)) {
		return nil, refuse("not a WebAssembly module: want the 8 bytes \\0asm 1 0 0 0 at the start")
	}
	m := &module{src: src, p: p, custom: map[string][]byte{}}
	if err := m.readSections(); err != nil {
		return nil, asRefusal(err)
	}
	if len(m.bodies) != len(m.funcs) {
		return nil, refuse("%d functions are declared and %d have a body", len(m.funcs), len(m.bodies))
	}
	return m, nil
}

func (m *module) readSections() error {
	r := &reader{b: m.src, pos: len(header), end: len(m.src)}
	rank := 0
	for r.more() {
		id, n := r.u8(), r.count()
		s := section{id: id, span: span{r.pos, r.pos + n}}
		sub := r.sub(n)
		if id != secCustom && r.err == nil {
			if id > secDataCount || sectionRank(id) <= rank {
				return refuse("section %d is unknown, repeated or out of order", id)
			}
			rank = sectionRank(id)
		}
		if err := m.section(&s, sub); err != nil {
			return err
		}
		m.sections = append(m.sections, s)
	}
	return r.err
}

// sectionRank is the place of a section; the data count stands before the code.
func sectionRank(id byte) int {
	if id == secDataCount {
		return 2*secElement + 1
	}
	return 2 * int(id)
}

func (m *module) section(s *section, r *reader) error {
	var err error
	switch s.id {
	case secCustom:
		err = m.customSection(r)
	case secType:
		err = m.typeSection(r)
	case secImport:
		err = m.importSection(r)
	case secFunction:
		err = m.functionSection(r)
	case secTable:
		err = m.tableSection(r)
	case secMemory:
		err = m.memorySection(r)
	case secGlobal:
		err = m.globalSection(s, r)
	case secExport:
		err = m.exportSection(s, r)
	case secStart:
		m.funcIndex(r, r.u32())
	case secElement:
		err = m.elementSection(r)
	case secCode:
		err = m.codeSection(r)
	case secData:
		err = m.dataSection(r)
	case secDataCount:
		r.u32()
	}
	if err != nil {
		return err
	}
	if r.more() {
		r.fail("section %d has %d bytes too many", s.id, r.end-r.pos)
	}
	return r.err
}

// customSection keeps the ones the ABI names and drops the rest, so that nothing below has to read them.
func (m *module) customSection(r *reader) error {
	name := r.name()
	if !strings.HasPrefix(name, "weir.") {
		r.pos = r.end
		return r.err
	}
	switch name {
	case abi.SectionSchema, abi.SectionCases, abi.SectionAbout:
	default:
		return refuse("custom section %q is unknown: want %q, %q or %q", name, abi.SectionSchema, abi.SectionCases, abi.SectionAbout)
	}
	if _, twice := m.custom[name]; twice {
		return refuse("custom section %q stands twice", name)
	}
	m.custom[name] = r.b[r.pos:r.end]
	r.pos = r.end
	return r.err
}

func (m *module) typeSection(r *reader) error {
	n := r.count()
	if err := m.p.within(n, m.p.types, "types"); err != nil {
		return err
	}
	for i := 0; i < n && r.err == nil; i++ {
		if form := r.u8(); form != 0x60 {
			r.fail("type %d: form 0x%02x, want a function type", i, form)
		}
		t := funcType{m.valTypes(r), m.valTypes(r)}
		if err := m.p.within(max(len(t.params), len(t.results)), m.p.locals, "type %d: parameters or results", i); err != nil {
			return err
		}
		m.types = append(m.types, t)
	}
	return r.err
}

func (m *module) valTypes(r *reader) string {
	n := r.count()
	from := r.pos
	for range n {
		m.valType(r)
	}
	if r.err != nil {
		return ""
	}
	return string(r.b[from:r.pos])
}

func (m *module) valType(r *reader) byte {
	switch t := r.u8(); t {
	case typeI32, typeI64, typeF32, typeF64, typeFuncref, typeExternref:
		return t
	case 0x7b:
		r.fail("SIMD is not allowed (type v128)")
	default:
		r.fail("unknown value type 0x%02x", t)
	}
	return 0
}

func (m *module) importSection(r *reader) error {
	n := r.count()
	if err := m.p.within(n, m.p.functions, "functions"); err != nil {
		return err
	}
	for i := 0; i < n && r.err == nil; i++ {
		imp := importedFunc{module: r.name(), name: r.name()}
		kind := r.u8()
		if r.err == nil && kind != extFunc {
			what := [...]string{"function", "table", "memory", "global"}
			if int(kind) >= len(what) {
				return refuse("import %s.%s is of unknown kind %d", imp.module, imp.name, kind)
			}
			return refuse("import of a %s (%s.%s): only functions can be imported", what[kind], imp.module, imp.name)
		}
		imp.typ = m.typeIndex(r)
		m.imports = append(m.imports, imp)
	}
	return r.err
}

func (m *module) functionSection(r *reader) error {
	n := r.count()
	if err := m.p.within(n+len(m.imports), m.p.functions, "functions"); err != nil {
		return err
	}
	for i := 0; i < n && r.err == nil; i++ {
		m.funcs = append(m.funcs, m.typeIndex(r))
	}
	return r.err
}

func (m *module) tableSection(r *reader) error {
	n := r.count()
	if err := m.p.within(n, m.p.tables, "tables"); err != nil {
		return err
	}
	for i := 0; i < n && r.err == nil; i++ {
		ref := r.u8()
		if ref != typeFuncref && ref != typeExternref {
			r.fail("table %d: element type 0x%02x", i, ref)
		}
		l := m.limits(r)
		l.ref = ref
		if r.err == nil && l.min > m.p.table {
			return m.p.within(int(l.min), int(m.p.table), "table %d: elements", i)
		}
		m.tables = append(m.tables, l)
	}
	return r.err
}

func (m *module) memorySection(r *reader) error {
	n := r.count()
	if n > 1 {
		return refuse("%d memories, want one", n)
	}
	for i := 0; i < n && r.err == nil; i++ {
		l := m.limits(r)
		if r.err == nil && l.min > m.p.pages {
			return m.p.within(int(l.min), int(m.p.pages), "memory: initial pages of 64 KiB")
		}
		if l.bounded && l.max > 1<<16 {
			r.fail("memory: maximum of %d pages, 65536 exist", l.max)
		}
		m.memories = append(m.memories, l)
	}
	return r.err
}

func (m *module) limits(r *reader) limits {
	var l limits
	switch flag := r.u8(); flag {
	case 0:
		l.min = r.u32()
	case 1:
		l.bounded = true
		l.min, l.max = r.u32(), r.u32()
		if l.max < l.min {
			r.fail("maximum %d below minimum %d", l.max, l.min)
		}
	default:
		r.fail("limits flag 0x%02x: shared and 64-bit memories are not allowed", flag)
	}
	return l
}

func (m *module) globalSection(s *section, r *reader) error {
	n := r.count()
	if err := m.p.within(n, m.p.globals, "globals"); err != nil {
		return err
	}
	s.items, s.count = span{r.pos, r.end}, n
	for i := 0; i < n && r.err == nil; i++ {
		m.valType(r)
		if mut := r.u8(); mut > 1 {
			r.fail("global %d: mutability %d", i, mut)
		}
		m.constExpr(r)
	}
	m.globals = n
	return r.err
}

// constExpr steps over an initialiser: one constant and end. No global can be imported, so none can be read here.
func (m *module) constExpr(r *reader) {
	switch op := r.u8(); op {
	case opI32Const:
		r.signed(32)
	case opI64Const:
		r.signed(64)
	case opF32Const:
		r.skip(4)
	case opF64Const:
		r.skip(8)
	case opRefNull:
		r.u8()
	case opRefFunc:
		m.reference(r, r.u32())
	case opGlobalGet:
		r.fail("an initialiser reads global %d: only imported globals could be read, and none may be imported", r.u32())
	default:
		r.fail("an initialiser with operator 0x%02x", op)
	}
	if r.err == nil && r.u8() != opEnd {
		r.fail("an initialiser of more than one operator")
	}
}

func (m *module) exportSection(s *section, r *reader) error {
	n := r.count()
	if err := m.p.within(n, m.p.exports, "exports"); err != nil {
		return err
	}
	s.items, s.count = span{r.pos, r.end}, n
	for i := 0; i < n && r.err == nil; i++ {
		e := export{name: r.name(), kind: r.u8(), idx: r.u32()}
		switch {
		case e.name == abi.ExportFuel:
			return refuse("export %q: the name belongs to the host", e.name)
		case e.kind == extGlobal && int(e.idx) >= m.globals:
			return refuse("export %q: global %d of %d", e.name, e.idx, m.globals)
		case e.kind == extFunc:
			m.reference(r, e.idx) // an exported function may be taken by ref.func
		}
		m.exports = append(m.exports, e)
	}
	return r.err
}

func (m *module) typeIndex(r *reader) uint32 {
	i := r.u32()
	if r.err == nil && int64(i) >= int64(len(m.types)) {
		r.fail("type %d of %d", i, len(m.types))
	}
	return i
}

// typeAt is a type by the index that typeIndex read; of one that it refused, the empty type.
func (m *module) typeAt(i uint32) funcType {
	if int64(i) < int64(len(m.types)) {
		return m.types[i]
	}
	return funcType{}
}

func (m *module) funcIndex(r *reader, i uint32) {
	if r.err == nil && int64(i) >= int64(len(m.imports)+len(m.funcs)) {
		r.fail("function %d of %d", i, len(m.imports)+len(m.funcs))
	}
}

// reference checks a function that a table may come to hold.
func (m *module) reference(r *reader, i uint32) {
	m.funcIndex(r, i)
	if int64(i) < int64(len(m.imports)) {
		m.hostInRef = true
	}
}
