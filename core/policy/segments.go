package policy

// elementSection steps over the eight encodings of an element segment.
func (m *module) elementSection(r *reader) error {
	n := r.count()
	m.segments += n
	if err := m.p.within(m.segments, m.p.segments, "segments"); err != nil {
		return err
	}
	for i := 0; i < n && r.err == nil; i++ {
		m.elementSegment(r)
	}
	return r.err
}

func (m *module) elementSegment(r *reader) {
	const passive, explicit, exprs = 1, 2, 4
	flags := r.u32()
	if flags > 7 {
		r.fail("element segment of kind %d", flags)
		return
	}
	if flags&passive == 0 {
		if flags&explicit != 0 {
			r.u32() // the table
		}
		m.constExpr(r)
	}
	if flags&(passive|explicit) != 0 {
		r.u8() // element kind or type
	}
	for n := r.count(); n > 0 && r.err == nil; n-- {
		if flags&exprs != 0 {
			m.constExpr(r)
		} else {
			m.reference(r, r.u32())
		}
	}
}

func (m *module) dataSection(r *reader) error {
	n := r.count()
	m.segments += n
	if err := m.p.within(m.segments, m.p.segments, "segments"); err != nil {
		return err
	}
	for i := 0; i < n && r.err == nil; i++ {
		switch kind := r.u32(); kind {
		case 0:
			m.constExpr(r)
		case 1:
		case 2:
			r.u32() // the memory
			m.constExpr(r)
		default:
			r.fail("data segment of kind %d", kind)
		}
		r.skip(r.count())
	}
	return r.err
}

func (m *module) codeSection(r *reader) error {
	n := r.count()
	if n != len(m.funcs) {
		return refuse("%d functions are declared and %d have a body", len(m.funcs), n)
	}
	for i := 0; i < n && r.err == nil; i++ {
		size := r.count()
		if err := m.p.within(size, m.p.body, "function %d: body bytes", len(m.imports)+i); err != nil {
			return err
		}
		m.bodies = append(m.bodies, span{r.pos, r.pos + size})
		r.skip(size)
	}
	return r.err
}
