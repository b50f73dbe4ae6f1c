package policy

import (
	"encoding/binary"
	"slices"

	"github.com/weir-gateway/weir/sdk/abi"
)

// A small assembler: enough to write guests as byte strings, valid ones and others.

const (
	reqAt    = 0x1000
	respAt   = 0x2000
	paramsAt = 0x4000
)

type asmFunc struct {
	typ    funcType
	locals []byte // encoded groups with their count; nil: none
	body   []byte // without the final end
	name   string // exported by this name, if any
}

type asm struct {
	imports []importedFunc // typ is ignored
	impTyp  []funcType
	funcs   []asmFunc
	globals []byte // encoded, without the count
	nglob   int
	table   []byte // content of the table section, with the count
	elem    []byte // content of the element section, with the count
	data    []byte // content of the data section, with the count; its segments are announced
	memory  []byte // limits
	exports []export
	custom  map[string][]byte
	start   int // function index + 1
}

func vec(b []byte) []byte { return append(binary.AppendUvarint(nil, uint64(len(b))), b...) }

func cat(parts ...[]byte) []byte { return slices.Concat(parts...) }

func leb(v int64) []byte { return appendSigned(nil, v) }

func uleb(v uint64) []byte { return binary.AppendUvarint(nil, v) }

func c32(v uint32) []byte { return append([]byte{opI32Const}, leb(int64(int32(v)))...) }

func c64(v int64) []byte { return append([]byte{opI64Const}, leb(v)...) }

func st(op byte, at, v uint32) []byte { return cat(c32(at), c32(v), []byte{op, 0, 0}) }

func st32(at, v uint32) []byte { return st(0x36, at, v) }
func st16(at, v uint32) []byte { return st(0x3b, at, v) }
func st8(at, v uint32) []byte  { return st(0x3a, at, v) }

func ld32(at uint32) []byte { return cat(c32(at), []byte{0x28, 0, 0}) }

// bytes assembles the module.
func (a *asm) bytes() []byte {
	var types [][]byte
	index := func(t funcType) uint64 {
		enc := cat([]byte{0x60}, vec([]byte(t.params)), vec([]byte(t.results)))
		for i, have := range types {
			if string(have) == string(enc) {
				return uint64(i)
			}
		}
		types = append(types, enc)
		return uint64(len(types) - 1)
	}
	var imports, funcs, exports, code []byte
	for i, imp := range a.imports {
		imports = cat(imports, vec([]byte(imp.module)), vec([]byte(imp.name)), []byte{extFunc}, uleb(index(a.impTyp[i])))
	}
	all := slices.Clone(a.exports)
	for i, f := range a.funcs {
		funcs = append(funcs, uleb(index(f.typ))...)
		if f.name != "" {
			all = append(all, export{f.name, extFunc, uint32(len(a.imports) + i)})
		}
		locals := f.locals
		if locals == nil {
			locals = []byte{0}
		}
		code = append(code, vec(cat(locals, f.body, []byte{opEnd}))...)
	}
	for _, e := range all {
		exports = cat(exports, vec([]byte(e.name)), []byte{e.kind}, uleb(uint64(e.idx)))
	}
	out := []byte(header)
	sec := func(id byte, n int, content []byte) {
		if n > 0 {
			out = appendSection(out, id, append(uleb(uint64(n)), content...))
		}
	}
	sec(secType, len(types), cat(types...))
	sec(secImport, len(a.imports), imports)
	sec(secFunction, len(a.funcs), funcs)
	if a.table != nil {
		out = appendSection(out, secTable, a.table)
	}
	if a.memory != nil {
		sec(secMemory, 1, a.memory)
	}
	sec(secGlobal, a.nglob, a.globals)
	sec(secExport, len(all), exports)
	if a.start > 0 {
		out = appendSection(out, secStart, uleb(uint64(a.start-1)))
	}
	if a.elem != nil {
		out = appendSection(out, secElement, a.elem)
	}
	if a.data != nil {
		out = appendSection(out, secDataCount, a.data[:1])
	}
	sec(secCode, len(a.funcs), code)
	if a.data != nil {
		out = appendSection(out, secData, a.data)
	}
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for k := range a.custom {
			if !yield(k) {
				return
			}
		}
	}) {
		out = appendSection(out, secCustom, cat(vec([]byte(name)), a.custom[name]))
	}
	return out
}

// guest is a whole policy module around the body of weir_decide.
func guest(decide ...[]byte) *asm {
	fn := func(name string, v uint32) asmFunc {
		return asmFunc{typ: funcType{"", i32}, body: c32(v), name: name}
	}
	return &asm{
		memory:  []byte{1, 1, 16},
		exports: []export{{abi.ExportMemory, extMemory, 0}},
		custom:  map[string][]byte{},
		funcs: []asmFunc{
			{typ: funcType{"", i32}, body: cat(decide...), name: abi.ExportDecide},
			fn(abi.ExportVersion, abi.Version), fn(abi.ExportRequest, reqAt), fn(abi.ExportResponse, respAt),
		},
	}
}

func (a *asm) with(f ...asmFunc) *asm {
	a.funcs = append(a.funcs, f...)
	return a
}

// configurable adds weir_params_buffer and weir_configure with the given body.
func (a *asm) configurable(body ...[]byte) *asm {
	return a.with(
		asmFunc{typ: funcType{i32, i32}, body: c32(paramsAt), name: abi.ExportParamsBuffer},
		asmFunc{typ: funcType{i32, i32}, body: cat(body...), name: abi.ExportConfigure})
}

func (a *asm) section(name, content string) *asm {
	a.custom[name] = []byte(content)
	return a
}

// allow answers with one QPS multiplier; it tells modules apart.
func allow(qps uint32) []byte {
	return cat(st16(respAt, abi.Major), st32(respAt+abi.RespQPSMultiplier, qps), c32(abi.Decided))
}

// sixDims writes an answer with six dimensions, each set by constants, one of them custom.
func sixDims() []byte {
	return manyDims(abi.KindKey, abi.KindModel, abi.KindUser, abi.KindOrg, abi.KindKeyModel, abi.KindCustom)
}

func eightDims() []byte {
	return manyDims(abi.KindKey, abi.KindModel, abi.KindUser, abi.KindOrg, abi.KindGlobal, abi.KindEndUser, abi.KindKeyModel, abi.KindCustom)
}

func manyDims(kinds ...uint32) []byte {
	body := cat(st16(respAt, abi.Major), st16(respAt+abi.RespNDims, uint32(len(kinds))), st32(respAt+abi.RespTPMMultiplier, 900))
	for i, kind := range kinds {
		at := uint32(respAt + abi.RespDims + abi.DimSize*i)
		body = cat(body, st8(at+abi.DimKind, kind), st8(at+abi.DimFlags, abi.DimSkipAbsent),
			st32(at+abi.DimQPSLimit, 10), st32(at+abi.DimTPMLimit, 1000), st32(at+abi.DimMultiplier, 1000),
			st32(at+abi.DimBurst, 2000))
		if kind == abi.KindCustom {
			body = cat(body, st32(at+abi.DimValueOff, abi.RespArena), st32(at+abi.DimValueLen, 3), st8(respAt+abi.RespArena, 'e'),
				st8(respAt+abi.RespArena+1, 'u'), st8(respAt+abi.RespArena+2, '1'), st32(respAt+abi.RespArenaUsed, 3))
		}
	}
	return cat(body, c32(abi.Decided))
}

// loop wraps body in an endless loop; what follows never runs.
func loop(body ...[]byte) []byte {
	return cat([]byte{opLoop, blockEmpty}, cat(body...), []byte{0x0c, 0, opEnd}, c32(0))
}
