package policy

import (
	"encoding/binary"
	"strconv"

	"github.com/weir-gateway/weir/sdk/abi"
)

// meter rewrites m so that it pays for what it runs:
//
//  1. one mutable i64 global is appended and exported as __weir_fuel; its index is the count of the module's own
//     globals, which scanning has proved that the module never names;
//  2. a function takes, on entry, the cost of its operators outside loops, of its locals and of the places that values
//     of its loops have in its frame; a loop takes, at each turn of its header, the cost of the operators of its body
//     that belong to no inner loop. Every operator is so paid before it runs, and a straight line of any length is one
//     charge. What moves many values at once (a call with many results, a branch to a block with many, an end where
//     paths with other locals meet) costs by their number;
//  3. an operator whose work is a number on the stack takes that number, scaled, through one scratch local
//     appended to the function's own;
//  4. where fuel falls below zero the module runs into `unreachable`;
//  5. the maxima of memory and tables are clamped to the profile. Custom sections are left out.
//
// Nothing is renumbered: globals, locals and exports only get one more at the end, and a module that could name the
// new ones is refused (it was invalid before and would become valid). The rest is copied byte for byte, so what was
// invalid stays so and the compiler's own validation remains the judge.
func (m *module) meter() ([]byte, error) {
	out := append(make([]byte, 0, len(m.src)+len(m.src)/2+256), header...)
	byID := map[byte]section{}
	for _, s := range m.sections {
		if s.id != secCustom {
			byID[s.id] = s
		}
	}
	for _, id := range []byte{secType, secImport, secFunction, secTable, secMemory, secGlobal, secExport, secStart,
		secElement, secDataCount, secCode, secData} {
		s, present := byID[id]
		switch {
		case id == secGlobal:
			out = appendSection(out, id, m.withFuelGlobal(s))
		case id == secExport:
			out = appendSection(out, id, m.withFuelExport(s))
		case !present:
		case id == secTable:
			out = appendSection(out, id, appendLimits(nil, m.tables, m.p.table))
		case id == secMemory:
			out = appendSection(out, id, appendLimits(nil, m.memories, m.p.pages))
		case id == secCode:
			code, err := m.meterCode()
			if err != nil {
				return nil, err
			}
			out = appendSection(out, id, code)
		default:
			out = appendSection(out, id, m.src[s.from:s.to])
		}
	}
	return out, nil
}

func appendSection(out []byte, id byte, content []byte) []byte {
	out = binary.AppendUvarint(append(out, id), uint64(len(content)))
	return append(out, content...)
}

func (m *module) withFuelGlobal(s section) []byte {
	out := binary.AppendUvarint(nil, uint64(s.count+1+m.counters()))
	out = append(out, m.src[s.items.from:s.items.to]...)
	out = append(out, typeI64, 1, opI64Const)
	out = append(appendSigned(out, m.p.startFuel), opEnd)
	for range m.counters() {
		out = append(out, typeI64, 1, opI64Const, 0, opEnd)
	}
	return out
}

// counters is how many functions are counted: all of them in a copy that is made for its coverage, else none.
func (m *module) counters() int {
	if m.counted {
		return len(m.funcs)
	}
	return 0
}

// counterName is the export of the i-th defined function's counter.
func counterName(i int) string { return abi.ExportFuel + "_calls_" + strconv.Itoa(i) }

func (m *module) withFuelExport(s section) []byte {
	out := binary.AppendUvarint(nil, uint64(s.count+1+m.counters()))
	out = append(out, m.src[s.items.from:s.items.to]...)
	add := func(name string, global int) {
		out = append(binary.AppendUvarint(out, uint64(len(name))), name...)
		out = binary.AppendUvarint(append(out, extGlobal), uint64(global))
	}
	add(abi.ExportFuel, m.globals)
	for i := range m.counters() {
		add(counterName(i), m.globals+1+i)
	}
	return out
}

// appendLimits writes tables or memories with a maximum of at most limit each.
func appendLimits(out []byte, all []limits, limit uint32) []byte {
	out = binary.AppendUvarint(out, uint64(len(all)))
	for _, l := range all {
		if l.ref != 0 {
			out = append(out, l.ref)
		}
		if !l.bounded || l.max > limit {
			l.max = limit
		}
		out = binary.AppendUvarint(append(out, 1), uint64(l.min))
		out = binary.AppendUvarint(out, uint64(l.max))
	}
	return out
}

func (m *module) meterCode() ([]byte, error) {
	out := binary.AppendUvarint(nil, uint64(len(m.bodies)))
	var body []byte
	for i := range m.bodies {
		s, err := m.scanBody(i)
		if err != nil {
			return nil, err
		}
		body = s.rewrite(body[:0])
		out = binary.AppendUvarint(out, uint64(len(body)))
		out = append(out, body...)
	}
	return out, nil
}

func (s *scan) rewrite(out []byte) []byte {
	groups := s.ngroups
	if s.scratch {
		groups++
	}
	out = binary.AppendUvarint(out, uint64(groups))
	out = append(out, s.m.src[s.groups.from:s.groups.to]...)
	if s.scratch {
		out = append(out, 1, typeI32)
	}
	if s.m.counted {
		n := uint64(s.m.globals + 1 + s.fn - len(s.m.imports))
		out = binary.AppendUvarint(append(out, opGlobalGet), n)
		out = append(out, opI64Const, 1, opI64Add, opGlobalSet)
		out = binary.AppendUvarint(out, n)
	}
	done := s.groups.to
	for _, c := range s.charges {
		out = append(out, s.m.src[done:c.at]...)
		out = s.appendCharge(out, c)
		done = c.at
	}
	return append(out, s.m.src[done:s.r.end]...)
}

// appendCharge writes fuel -= cost; if fuel < 0 { unreachable }. It leaves the stack as it was.
func (s *scan) appendCharge(out []byte, c charge) []byte {
	fuel := uint64(s.m.globals)
	if c.sized {
		out = binary.AppendUvarint(append(out, opLocalTee), s.locals)
	}
	out = binary.AppendUvarint(append(out, opGlobalGet), fuel)
	out = append(appendSigned(append(out, opI64Const), c.cost), opI64Sub)
	if c.sized {
		out = binary.AppendUvarint(append(out, opLocalGet), s.locals)
		out = append(out, opI64ExtendU)
		switch {
		case c.shift > 0:
			out = append(out, opI64Const, byte(c.shift), opI64Shl)
		case c.shift < 0:
			out = append(out, opI64Const, byte(-c.shift), opI64ShrU)
		}
		out = append(out, opI64Sub)
	}
	out = binary.AppendUvarint(append(out, opGlobalSet), fuel)
	out = binary.AppendUvarint(append(out, opGlobalGet), fuel)
	return append(out, opI64Const, 0, opI64LtS, opIf, blockEmpty, opUnreachable, opEnd)
}

// appendSigned writes a signed LEB128.
func appendSigned(out []byte, v int64) []byte {
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
			return append(out, c)
		}
		out = append(out, c|0x80)
	}
}
