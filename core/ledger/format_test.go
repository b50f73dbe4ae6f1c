package ledger_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-gateway/weir/core/ledger"
	"github.com/weir-gateway/weir/core/llm"
)

// reader is another program: it knows of the store what the package's documentation says and nothing else.
type reader struct {
	b    []byte
	last map[byte]*[31]any // by kind; 0 is the reserve behind an ending
}

func (r *reader) uvarint() uint64 { v, n := binary.Uvarint(r.b); r.b = r.b[n:]; return v }
func (r *reader) varint() int64   { v, n := binary.Varint(r.b); r.b = r.b[n:]; return v }

// entry reads the fields of one entry, behind an ending when it is the reserve that goes with it.
func (r *reader) entry(behind bool) (kind byte, f [31]any) {
	kind = r.b[1]
	from, mask := kind, binary.LittleEndian.Uint32(r.b[2:])
	r.b = r.b[6:]
	if behind {
		from = 0
	}
	if r.last[from] != nil {
		f = *r.last[from]
	} else {
		for i := range f {
			f[i] = map[bool]any{true: false, false: int64(0)}[i < 3]
		}
		f[12], f[13], f[30] = "", "", ""
	}
	for i := range f {
		if mask>>i&1 == 0 {
			continue
		}
		switch v := f[i].(type) {
		case bool:
			f[i] = !v
		case int64:
			f[i] = v + r.varint()
		case string:
			n := r.varint()
			f[i], r.b = string(r.b[:n]), r.b[n:]
		}
	}
	kept := f
	r.last[from] = &kept
	return kind, f
}

func fieldsOf(e llm.Entry) [31]any {
	p, u := e.Price, e.Usage
	return [31]any{e.Stream, e.Estimated, e.Billed, int64(e.Endpoint), int64(e.Status), int64(e.ID), int64(e.RequestID), e.AtMS,
		int64(e.OrgID), int64(e.UserID), int64(e.KeyID), int64(e.Label), e.Model, e.Channel, int64(p.Input), int64(p.CachedInput),
		int64(p.CacheWrite), int64(p.Output), int64(p.Request), int64(e.Held), int64(e.Cost), int64(u.InputTokens),
		int64(u.CachedInputTokens), int64(u.CacheWriteTokens), int64(u.OutputTokens), int64(e.HTTPStatus), e.LatencyMS, e.FirstMS,
		int64(e.WeekLabel), int64(e.DayLabel), e.ServiceTier}
}

// The documentation of the store is enough to read the log and to add up every balance from it.
func TestDocumentedFormat(t *testing.T) {
	r := fresh(t)
	for user := range uint64(40) {
		r.credit(user+1, llm.Micro(user)*100-50)
	}
	r.busy(2_000, rand.New(rand.NewPCG(6, 6)))
	next, stop := iterLines(r)
	defer stop()
	credits, posted := map[uint64]int64{}, map[uint64]int64{}
	err := r.store.Scan([]byte("l"), nil, false, func(k, v []byte) bool {
		c := &reader{b: v[1:], last: map[byte]*[31]any{}}
		first, n, _ := c.uvarint(), c.uvarint(), c.uvarint()
		if v[0] != 1 || first != binary.BigEndian.Uint64(k[1:]) {
			t.Fatalf("chunk %x begins with %x", k, v[:8])
		}
		for range n {
			kind, f := c.entry(false)
			if line := next(); line.Entry.Kind != llm.EntryKind(kind) || !cmp.Equal(fieldsOf(line.Entry), f) {
				t.Fatalf("entry %d is %v, read as kind %d %v", line.Seq, line.Entry, kind, f)
			}
			switch kind {
			case 3, 4:
				_, reserve := c.entry(true)
				posted[uint64(reserve[9].(int64))] += f[20].(int64)
			case 5:
				credits[uint64(f[9].(int64))] += f[20].(int64)
			}
		}
		return len(c.b) == 0
	})
	if err != nil {
		t.Fatal(err)
	}
	users := 0
	_ = r.store.Scan([]byte("u"), nil, false, func(k, v []byte) bool {
		users++
		c, user := &reader{b: v[1:]}, binary.BigEndian.Uint64(k[1:])
		if a, b := c.varint(), c.varint(); a != credits[user] || b != posted[user] {
			t.Errorf("user %d: stored %d and %d, read %d and %d", user, a, b, credits[user], posted[user])
		}
		return true
	})
	if users != 40 {
		t.Errorf("%d users", users)
	}
}

func iterLines(r *rig) (next func() ledger.Line, stop func()) {
	var all []ledger.Line
	for line, err := range r.Lines(0) {
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, line)
	}
	i := -1
	return func() ledger.Line { i++; return all[i] }, func() {
		if i != len(all)-1 {
			r.t.Errorf("%d of %d lines were read", i+1, len(all))
		}
	}
}
