package policy

import (
	"fmt"

	"github.com/weir-gateway/weir/core/llm"
	"github.com/weir-gateway/weir/sdk/abi"
)

// checkABI holds a parsed module to the imports and exports that the ABI allows and requires.
func (m *module) checkABI() error {
	for _, imp := range m.imports {
		if err := m.checkImport(imp); err != nil {
			return err
		}
	}
	want := []struct {
		name     string
		typ      funcType
		required bool
	}{
		{abi.ExportVersion, funcType{"", i32}, true},
		{abi.ExportRequest, funcType{"", i32}, true},
		{abi.ExportResponse, funcType{"", i32}, true},
		{abi.ExportDecide, funcType{"", i32}, true},
		{abi.ExportInitialize, funcType{"", ""}, false},
		{abi.ExportAttributes, funcType{"", i64}, false},
		{abi.ExportParamsBuffer, funcType{i32, i32}, false},
		{abi.ExportConfigure, funcType{i32, i32}, false},
	}
	for _, w := range want {
		if err := m.checkExport(w.name, w.typ, w.required); err != nil {
			return err
		}
	}
	if m.has(abi.ExportConfigure) != m.has(abi.ExportParamsBuffer) {
		return refuse("%s and %s go together: export both or neither", abi.ExportConfigure, abi.ExportParamsBuffer)
	}
	if e, ok := m.export(abi.ExportMemory); !ok || e.kind != extMemory || e.idx != 0 || len(m.memories) != 1 {
		return refuse("export %q is missing: the module must define one memory and export it by that name", abi.ExportMemory)
	}
	if len(m.custom[abi.SectionSchema]) > abi.ParamsMax {
		return m.p.within(len(m.custom[abi.SectionSchema]), abi.ParamsMax, "section %s: bytes", abi.SectionSchema)
	}
	return nil
}

// Parameter lists of the functions in the ABI.
const (
	i32 = string(rune(typeI32))
	i64 = string(rune(typeI64))
)

func (m *module) export(name string) (export, bool) {
	for _, e := range m.exports {
		if e.name == name {
			return e, true
		}
	}
	return export{}, false
}

func (m *module) has(name string) bool {
	_, ok := m.export(name)
	return ok
}

func (m *module) checkExport(name string, want funcType, required bool) error {
	e, ok := m.export(name)
	switch {
	case !ok && required:
		return refuse("export %q is missing: want a function %s%s", name, want, nearest(name, m.exportNames()))
	case !ok:
		return nil
	case e.kind != extFunc:
		return refuse("export %q is not a function: want %s", name, want)
	}
	if got := m.typeOf(e.idx); got != want {
		return refuse("export %q has type %s, want %s", name, got, want)
	}
	return nil
}

func (m *module) exportNames() []string {
	names := make([]string, len(m.exports))
	for i, e := range m.exports {
		names[i] = e.name
	}
	return names
}

func (m *module) typeOf(fn uint32) funcType {
	if int(fn) < len(m.imports) {
		return m.types[m.imports[fn].typ]
	}
	return m.types[m.funcs[int(fn)-len(m.imports)]]
}

func (m *module) checkImport(imp importedFunc) error {
	got := m.types[imp.typ]
	if imp.module == abi.ImportModule && imp.name == abi.ImportLog {
		if want := (funcType{i32 + i32 + i32, ""}); got != want {
			return refuse("import %s.%s has type %s, want %s", imp.module, imp.name, got, want)
		}
		return nil
	}
	if imp.module == abi.ImportWASI {
		want, known := wasiTypes()[imp.name]
		switch {
		case !m.p.wasi:
			return refuse("import %s.%s: WASI is for profile %s, this is %s", imp.module, imp.name, ProfileLarge, m.p.name)
		case known && got != want:
			return refuse("import %s.%s has type %s, want %s", imp.module, imp.name, got, want)
		case known:
			return nil
		}
	}
	return refuse("import %s.%s is not offered: a policy may import %s.%s only%s", imp.module, imp.name,
		abi.ImportModule, abi.ImportLog, map[bool]string{true: " and the WASI stub"}[m.p.wasi])
}

// nearest words a hint at the name that is closest to want, if one is close.
func nearest(want string, have []string) string {
	if near := llm.Nearest(want, have); near != "" {
		return fmt.Sprintf(" (nearest: %q)", near)
	}
	return ""
}
