package policy

import (
	"context"
	"fmt"
	"os"
)

// Checked is what a module is made of, held against its profile.
type Checked struct {
	Module    Module       `json:"module"`
	Caps      []CapUse     `json:"caps"`
	Imports   []string     `json:"imports"` // "weir.log (i32, i32, i32)->()"
	Exports   []string     `json:"exports"`
	Sections  []SectionUse `json:"sections"`
	FuelWorst uint64       `json:"fuel_worst"` // of its cases; 0: it has none
	FuelLimit uint64       `json:"fuel_allowed"`
	Cases     []CaseResult `json:"cases"`
}

// CapUse is how much of a cap a module uses.
type CapUse struct {
	Name    string `json:"name"`
	Used    int    `json:"used"`
	Allowed int    `json:"allowed"`
	Where   string `json:"where,omitempty"` // the function with the most
}

// SectionUse is a section's size.
type SectionUse struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
}

// Check is everything that Add would verify, with the numbers. A refusal is the error that Add would give.
func Check(ctx context.Context, o Options, wasm []byte, profile string) (*Checked, error) {
	m, err := prepare("", wasm, profile)
	if err != nil {
		return nil, err
	}
	v, err := tryOnce(ctx, &o, m, m.metered, m.cases)
	if err != nil {
		return nil, err
	}
	m.Cases = len(v.Cases)
	c := &Checked{Module: m.Module, Cases: v.Cases, FuelLimit: uint64(m.p.fuel)}
	for _, r := range v.Cases {
		c.FuelWorst = max(c.FuelWorst, r.Fuel)
	}
	return c, c.measure(wasm, m.p)
}

// tryOnce has a child try a module in a folder that is gone afterwards.
func tryOnce(ctx context.Context, o *Options, m *prepared, metered, cases []byte) (*verdict, error) {
	dir, err := os.MkdirTemp("", "weir-policy-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	return runChild(ctx, o, m.p, &job{Profile: m.Profile, CacheDir: dir, Module: metered, Schema: m.Schema, Cases: cases})
}

// measure holds what wasm is made of against p.
func (c *Checked) measure(wasm []byte, p *profile) error {
	m, err := parse(wasm, p)
	if err != nil {
		return err
	}
	var body, nesting, locals, targets most
	for i := range m.bodies {
		s, err := m.scanBody(i)
		if err != nil {
			return err
		}
		body.see(m.bodies[i].to-m.bodies[i].from, s.fn)
		nesting.see(s.deepest, s.fn)
		locals.see(int(s.locals), s.fn)
		targets.see(s.targets, s.fn)
	}
	names := m.functionNames()
	cap := func(name string, used, allowed int) {
		c.Caps = append(c.Caps, CapUse{Name: name, Used: used, Allowed: allowed})
	}
	at := func(name string, x most, allowed int) {
		c.Caps = append(c.Caps, CapUse{Name: name, Used: x.n, Allowed: allowed, Where: x.where(names)})
	}
	cap("bytes", len(wasm), p.bytes)
	cap("functions", len(m.imports)+len(m.funcs), p.functions)
	at("body_bytes", body, p.body)
	at("nesting", nesting, p.nesting)
	at("locals", locals, p.locals)
	cap("locals_all", m.locals, p.allLocals)
	at("br_table_targets", targets, p.brTable)
	cap("types", len(m.types), p.types)
	cap("globals", m.globals, p.globals)
	cap("exports", len(m.exports), p.exports)
	cap("segments", m.segments, p.segments)
	cap("tables", len(m.tables), p.tables)
	for _, t := range m.tables {
		cap("table_elements", int(t.min), int(p.table))
	}
	for _, x := range m.memories {
		cap("memory_pages", int(x.min), int(p.pages))
	}
	c.list(m)
	return nil
}

// list names the imports, exports and sections of m.
func (c *Checked) list(m *module) {
	for _, imp := range m.imports {
		c.Imports = append(c.Imports, fmt.Sprintf("%s.%s %s", imp.module, imp.name, m.types[imp.typ]))
	}
	for _, e := range m.exports {
		kind := [...]string{"function", "table", "memory", "global"}[e.kind&3]
		if e.kind == extFunc {
			kind = m.typeOf(e.idx).String()
		}
		c.Exports = append(c.Exports, e.name+" "+kind)
	}
	for _, s := range m.sections {
		c.Sections = append(c.Sections, SectionUse{m.sectionName(s), s.to - s.from})
	}
}

func (m *module) sectionName(s section) string {
	names := [...]string{"custom", "type", "import", "function", "table", "memory", "global", "export", "start", "element", "code", "data", "data count"}
	if s.id != secCustom {
		return names[s.id]
	}
	r := &reader{b: m.src, pos: s.from, end: s.to}
	return "custom " + r.name()
}

// most is the largest of something, and the function that has it.
type most struct{ n, fn int }

func (x *most) see(n, fn int) {
	if n > x.n {
		x.n, x.fn = n, fn
	}
}

func (x *most) where(names map[int]string) string {
	if x.n == 0 {
		return ""
	}
	return functionName(names, x.fn)
}

func functionName(names map[int]string, fn int) string {
	if name := names[fn]; name != "" {
		return name
	}
	return fmt.Sprintf("func[%d]", fn)
}

// functionNames are the functions' names: exported ones, and those of the section "name" as far as it can be read.
func (m *module) functionNames() map[int]string {
	names := map[int]string{}
	for _, e := range m.exports {
		if e.kind == extFunc {
			names[int(e.idx)] = e.name
		}
	}
	for _, s := range m.sections {
		r := &reader{b: m.src, pos: s.from, end: s.to}
		if s.id != secCustom || r.name() != "name" {
			continue
		}
		for r.more() {
			id, n := r.u8(), r.count()
			sub := r.sub(n)
			if id != 1 {
				continue
			}
			for n := sub.count(); n > 0 && sub.err == nil; n-- {
				if fn, name := int(sub.u32()), sub.name(); sub.err == nil && fn < len(m.imports)+len(m.funcs) {
					names[fn] = name
				}
			}
		}
	}
	return names
}

// FunctionNames are the names that a module's exports and its section "name" give to its functions, by their index, whatever
// its profile.
func FunctionNames(wasm []byte) (map[int]string, error) {
	p, err := profileOf(ProfileLarge)
	if err != nil {
		return nil, err
	}
	m, err := parse(wasm, p)
	if err != nil {
		return nil, err
	}
	return m.functionNames(), nil
}

// FunctionHits says how often a function ran.
type FunctionHits struct {
	Index int    `json:"index"`
	Name  string `json:"name"` // from the module's name section or its export; else "func[12]"
	Calls uint64 `json:"calls"`
}

// Cover is RunCases with a count for every function of the module, the module's own cases if none are given. The
// counters exist only in the copy that this runs; each case runs twice, and is counted twice.
func Cover(ctx context.Context, o Options, wasm []byte, profile string, cases []byte) ([]CaseResult, []FunctionHits, error) {
	m, err := prepare("", wasm, profile)
	if err != nil {
		return nil, nil, err
	}
	if cases, err = m.casesOr(cases); err != nil {
		return nil, nil, err
	}
	parsed, err := parse(wasm, m.p)
	if err != nil {
		return nil, nil, err
	}
	parsed.counted = true
	metered, err := parsed.meter()
	if err != nil {
		return nil, nil, err
	}
	v, err := tryOnce(ctx, &o, m, metered, cases)
	if err != nil {
		return nil, nil, err
	}
	names := parsed.functionNames()
	hits := make([]FunctionHits, len(v.Hits))
	for i, n := range v.Hits {
		fn := len(parsed.imports) + i
		hits[i] = FunctionHits{Index: fn, Name: functionName(names, fn), Calls: n}
	}
	return v.Cases, hits, nil
}
