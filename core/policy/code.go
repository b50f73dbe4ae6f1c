package policy

// Operators that the scanner treats by name; every other one is a row of plainOp.
const (
	opUnreachable  = 0x00
	opBlock        = 0x02
	opLoop         = 0x03
	opIf           = 0x04
	opElse         = 0x05
	opEnd          = 0x0b
	opBr           = 0x0c
	opBrIf         = 0x0d
	opBrTable      = 0x0e
	opCall         = 0x10
	opCallIndirect = 0x11
	opSelectTyped  = 0x1c
	opLocalGet     = 0x20
	opLocalTee     = 0x22
	opGlobalGet    = 0x23
	opGlobalSet    = 0x24
	opMemoryGrow   = 0x40
	opI32Const     = 0x41
	opI64Const     = 0x42
	opF32Const     = 0x43
	opF64Const     = 0x44
	opI64LtS       = 0x53
	opI64Add       = 0x7c
	opI64Sub       = 0x7d
	opI64Shl       = 0x86
	opI64ShrU      = 0x88
	opI64ExtendU   = 0xad
	opRefNull      = 0xd0
	opRefFunc      = 0xd2
	opPrefix       = 0xfc
	opSIMD         = 0xfd
	blockEmpty     = 0x40
)

// What the operators cost. A unit is meant to be worth at most about 5 ns of native code.
const (
	costCall     = 3
	costIndirect = 5
	costHost     = 64 // leaving native code and coming back
	costMemory   = 2
	costDivide   = 4
	costBulk     = 4
	costGrow     = 4096 // plus 1024 a page: fresh pages are faulted in by the kernel
	costLoop     = 1
	costEntry    = 2  // and one for each local
	costSaved    = 16 // of a function with an operator that leaves native code, for the registers it keeps meanwhile
	smallLoops   = 32 // units of operators in loops whose values do not widen a frame
	frameShare   = 4  // of the units beyond, which a function pays on entry
	mergeShare   = 4  // of the locals that a block sets, which are moved where paths meet at its end
)

// charge is a place where fuel is taken: before the byte at, statically cost units. A sized charge also takes the
// number on top of the stack, scaled by shift (left if positive).
type charge struct {
	at    int
	cost  int64
	sized bool
	shift int
}

// block is an open block.
type block struct {
	owner int // the one outside it
	arity int // how many values a branch to it moves
	sets  int // scan.sets before it
}

// scan walks one function body and finds its charges. Blocks that are loops collect the cost of their own
// operators; everything outside a loop belongs to the entry.
type scan struct {
	m       *module
	r       *reader
	fn      int // index, for messages
	locals  uint64
	groups  span // the local declarations after their count
	ngroups int
	charges []charge
	owner   int // the charge that the current operator is counted in
	blocks  []block
	scratch bool // a sized charge needs a local
	sets    int  // operators so far that set a local
	deepest int  // blocks inside blocks
	targets int  // of the widest br_table
}

func (m *module) scanBody(i int) (*scan, error) {
	b := m.bodies[i]
	s := &scan{m: m, fn: len(m.imports) + i, r: &reader{b: m.src, pos: b.from, end: b.to}}
	if err := s.declarations(len(m.types[m.funcs[i]].params)); err != nil {
		return nil, err
	}
	s.charges = append(s.charges, charge{at: s.r.pos, cost: costEntry + int64(s.locals)})
	for s.r.err == nil {
		if done, err := s.operator(); err != nil {
			return nil, err
		} else if done {
			break
		}
	}
	if s.r.more() {
		s.r.fail("code after the end")
	}
	if s.r.err != nil {
		return nil, refuse("function %d: %s", s.fn, s.r.err)
	}
	s.payFrame()
	return s, nil
}

// payFrame has the function pay, each time it is entered, for the places that values of its loops have in its frame,
// entered or not: a recursion past such loops would else fill memory with its stack for next to nothing.
func (s *scan) payFrame() {
	var loops int64
	for _, c := range s.charges[1:] {
		if !c.sized {
			loops += c.cost
		}
	}
	s.charges[0].cost += max(0, loops-smallLoops) / frameShare
	if s.scratch {
		s.charges[0].cost += costSaved
	}
}

func (s *scan) declarations(params int) error {
	s.locals = uint64(params)
	s.ngroups = s.r.count()
	s.groups.from = s.r.pos
	for i := 0; i < s.ngroups && s.r.err == nil; i++ {
		s.locals += uint64(s.r.u32())
		s.m.valType(s.r)
		if s.locals > uint64(s.m.p.locals) {
			return s.m.p.within(int(s.locals), s.m.p.locals, "function %d: locals", s.fn)
		}
	}
	s.groups.to = s.r.pos
	s.m.locals += int(s.locals)
	return s.m.p.within(s.m.locals, s.m.p.allLocals, "function %d: locals of all functions so far", s.fn)
}

// operator reads one operator with its immediates and counts it; done at the function's own end.
func (s *scan) operator() (done bool, err error) {
	at := s.r.pos
	switch op := s.r.u8(); op {
	case opBlock, opLoop, opIf:
		return false, s.open(op)
	case opElse:
	case opEnd:
		if len(s.blocks) == 0 {
			return true, nil
		}
		s.close()
	case opBrTable:
		n := s.r.count()
		if err := s.m.p.within(n, s.m.p.brTable, "function %d: br_table targets", s.fn); err != nil {
			return false, err
		}
		s.m.targets += n
		if err := s.m.p.within(s.m.targets, s.m.p.allTables, "function %d: br_table targets of all functions so far", s.fn); err != nil {
			return false, err
		}
		widest := 0
		for range n + 1 {
			widest = max(widest, s.arity(s.r.u32()))
		}
		s.targets = max(s.targets, n)
		s.count(2 + beyondOne(widest))
	case opMemoryGrow:
		s.sized(at, costGrow, 10)
		s.r.u8()
	case opPrefix:
		return false, s.prefixed(at)
	case opSIMD:
		return false, refuse("function %d, byte %d: SIMD is not allowed", s.fn, at)
	default:
		return false, s.plain(op, at)
	}
	return false, nil
}

func (s *scan) count(cost int64) { s.charges[s.owner].cost += cost }

func (s *scan) sized(at int, cost int64, shift int) {
	s.scratch = true
	s.charges = append(s.charges, charge{at: at, cost: cost, sized: true, shift: shift})
}

func (s *scan) open(op byte) error {
	params, results := s.blockType()
	b := block{s.owner, results, s.sets}
	if op == opIf {
		s.count(1)
	}
	if op == opLoop {
		b.arity = params
	}
	s.count(beyondOne(b.arity))
	if op == opLoop {
		s.owner = len(s.charges)
		s.charges = append(s.charges, charge{at: s.r.pos, cost: costLoop})
	}
	s.blocks = append(s.blocks, b)
	s.deepest = max(s.deepest, len(s.blocks))
	return s.m.p.within(len(s.blocks), s.m.p.nesting, "function %d: nested blocks", s.fn)
}

// close leaves the innermost block. Where paths meet, each local that one of them has set is moved to one place; the
// operators that set them may stand in a loop that is never entered, or meet again at the end of each block around.
func (s *scan) close() {
	b := s.blocks[len(s.blocks)-1]
	s.blocks = s.blocks[:len(s.blocks)-1]
	s.owner = b.owner
	s.count(int64(min(s.sets-b.sets, int(s.locals))) / mergeShare)
}

// blockType reads how many values a block takes and gives.
func (s *scan) blockType() (params, results int) {
	switch c := s.peek(); {
	case c == blockEmpty:
		s.r.u8()
		return 0, 0
	case c >= typeExternref && c <= typeI32:
		s.m.valType(s.r)
		return 0, 1
	}
	t := s.m.typeAt(s.m.typeIndex(s.r))
	return len(t.params), len(t.results)
}

// beyondOne is the price of n values that move together: one has a register and is free.
func beyondOne(n int) int64 { return int64(max(n-1, 0)) }

// arity is how many values a branch to a label moves; of a label that is not there, none.
func (s *scan) arity(label uint32) int {
	if n := len(s.blocks) - 1; int64(label) <= int64(n) {
		return s.blocks[n-int(label)].arity
	}
	return 0
}

func (s *scan) peek() byte {
	if s.r.pos < s.r.end {
		return s.r.b[s.r.pos]
	}
	return 0
}

// prefixed reads the 0xfc family: saturating truncation, bulk memory and tables.
func (s *scan) prefixed(at int) error {
	op := s.r.u32()
	switch op {
	case 0, 1, 2, 3, 4, 5, 6, 7: // iNN.trunc_sat_fNN
		s.count(2)
	case 8: // memory.init: segment, memory
		s.sized(at, costBulk, -6)
		s.r.u32()
		s.r.u8()
	case 10: // memory.copy
		s.sized(at, costBulk, -6)
		s.r.skip(2)
	case 11: // memory.fill
		s.sized(at, costBulk, -6)
		s.r.u8()
	case 9, 13: // data.drop, elem.drop
		s.count(2)
		s.r.u32()
	case 12, 14: // table.init, table.copy
		s.sized(at, costBulk, 0)
		s.r.u32()
		s.r.u32()
	case 15: // table.grow
		s.sized(at, costGrow, 0)
		s.r.u32()
	case 17: // table.fill
		s.sized(at, costBulk, 0)
		s.r.u32()
	case 16: // table.size
		s.count(1)
		s.r.u32()
	default:
		return refuse("function %d, byte %d: unknown operator 0xfc %d", s.fn, at, op)
	}
	return nil
}

// plain reads the operators without structure.
func (s *scan) plain(op byte, at int) error {
	switch {
	case op >= 0x45 && op <= 0xc4: // numeric
		s.count(numericCost(op))
	case op >= 0x28 && op <= 0x3e: // loads and stores
		s.count(costMemory)
		s.r.u32()
		s.r.u32()
	case op >= opLocalGet && op <= opLocalTee:
		s.count(1)
		if op != opLocalGet {
			s.sets++
		}
		if i := s.r.u32(); uint64(i) >= s.locals {
			s.r.fail("local %d of %d", i, s.locals)
		}
	case op == opGlobalGet || op == opGlobalSet:
		s.count(1)
		if i := s.r.u32(); int64(i) >= int64(s.m.globals) {
			s.r.fail("global %d of %d", i, s.m.globals)
		}
	case op == opCall:
		s.call(s.r.u32())
	case op == opCallIndirect:
		t := s.m.typeAt(s.m.typeIndex(s.r))
		s.r.u32()
		s.count(costIndirect + costMemory*beyondOne(len(t.results)))
		if s.m.hostInRef {
			s.count(costHost)
		}
	default:
		return s.rest(op, at)
	}
	return nil
}

func (s *scan) call(fn uint32) {
	s.m.funcIndex(s.r, fn)
	if n := len(s.m.imports); int64(fn) < int64(n) {
		s.count(costHost)
	} else if s.r.err == nil {
		s.count(costMemory * beyondOne(len(s.m.types[s.m.funcs[int(fn)-n]].results)))
	}
	s.count(costCall)
}

func (s *scan) rest(op byte, at int) error {
	s.count(1)
	switch op {
	case opUnreachable, 0x01, 0x0f, 0x1a, 0x1b, 0xd1: // nop, return, drop, select, ref.is_null
	case opBr, opBrIf:
		s.count(beyondOne(s.arity(s.r.u32())))
	case opSelectTyped:
		s.m.valTypes(s.r)
	case 0x25, 0x26: // table.get, table.set
		s.count(costMemory)
		s.r.u32()
	case 0x3f, opRefNull: // memory.size
		s.r.u8()
	case opI32Const:
		s.r.signed(32)
	case opI64Const:
		s.r.signed(64)
	case opF32Const:
		s.r.skip(4)
	case opF64Const:
		s.r.skip(8)
	case opRefFunc:
		s.count(costHost)
		s.m.funcIndex(s.r, s.r.u32()) // a segment, a global or an export declares it: hostInRef is known by then
	default:
		return refuse("function %d, byte %d: unknown operator 0x%02x", s.fn, at, op)
	}
	return nil
}

// numericCost weighs what the processor does slowly: integer and float division, remainders and square roots, and the
// multiplication of subnormal floats.
func numericCost(op byte) int64 {
	switch op {
	case 0x6d, 0x6e, 0x6f, 0x70, 0x7f, 0x80, 0x81, 0x82, 0x91, 0x94, 0x95, 0x9f, 0xa2, 0xa3:
		return costDivide
	}
	return 1
}
