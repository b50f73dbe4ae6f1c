package ledger

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

// fill gives every field of an entry a value that is not zero.
func fill(v reflect.Value, n *int64) {
	for i := range v.NumField() {
		f := v.Field(i)
		*n++
		switch f.Kind() {
		case reflect.Struct:
			fill(f, n)
		case reflect.Bool:
			f.SetBool(true)
		case reflect.String:
			f.SetString("näme")
		case reflect.Uint8, reflect.Uint64:
			f.SetUint(uint64(*n))
		default:
			f.SetInt(-*n)
		}
	}
}

// Every field goes over the wire: a field that is added to llm.Entry and forgotten here fails this test.
func TestCodecHasEveryField(t *testing.T) {
	var e, back llm.Entry
	n := int64(0)
	fill(reflect.ValueOf(&e).Elem(), &n)
	e.Kind = llm.EntrySettle
	if rest, err := readEntry(appendEntry(nil, &e, &llm.Entry{}), &back, alone); err != nil || len(rest) != 0 || back != e {
		t.Fatalf("got %+v, %v; want %+v", back, err, e)
	}
}

func TestCodecExtremes(t *testing.T) {
	for _, e := range []llm.Entry{
		{Kind: llm.EntryReserve},
		{Kind: llm.EntryCredit, Cost: math.MinInt64, ID: math.MaxUint64, Label: math.MinInt32, AtMS: math.MaxInt64},
		{Kind: llm.EntryReserve, Status: 255, Endpoint: 255, Held: math.MaxInt64, Model: string(make([]byte, maxString))},
	} {
		var back llm.Entry
		if rest, err := readEntry(appendEntry(nil, &e, &llm.Entry{}), &back, alone); err != nil || len(rest) != 0 || back != e {
			t.Errorf("got %+v, %v; want %+v", back, err, e)
		}
	}
}

func TestCodecSize(t *testing.T) {
	r := llm.Entry{Kind: llm.EntryReserve, ID: 3<<40 | 12345, RequestID: 1 << 62, AtMS: 1_790_000_000_000, OrgID: 3, UserID: 1, KeyID: 7,
		Label: 202611, Model: "gpt-4o-mini", Price: llm.Price{Input: 1_050_000, CachedInput: 525_000, Output: 4_200_000}, Held: 20_000,
		Billed: true, Usage: llm.Usage{InputTokens: 300}, Endpoint: llm.Chat}
	if n := len(appendEntry(nil, &r, &llm.Entry{})); n > 80 {
		t.Errorf("a reserve takes %d bytes", n)
	}
}

func TestChunkRefuses(t *testing.T) {
	good := appendChunkHead(nil, chunkHead{1, 2, 1})
	e := llm.Entry{Kind: llm.EntryReserve, ID: 1}
	var last bases
	good = appendPair(good, &e, nil, &last)
	good = appendPair(good, &llm.Entry{Kind: llm.EntryVoid, ID: 1}, &e, &last)
	visit := func(int, *llm.Entry, *llm.Entry) error { return nil }
	if _, err := readChunk(good, visit); err != nil {
		t.Fatal(err)
	}
	for i := range good {
		if _, err := readChunk(good[:i], visit); err == nil {
			t.Errorf("the first %d bytes were taken for a chunk", i)
		}
	}
	if _, err := readChunk(append(bytes.Clone(good), 0), visit); err != errTrailing {
		t.Errorf("a byte too many: %v", err)
	}
	newer := bytes.Clone(good)
	newer[0] = codecVersion + 1
	if _, err := readChunk(newer, visit); err != errVersion {
		t.Errorf("a newer version: %v", err)
	}
}

// Many entries of every kind survive a chunk, and neighbours make each other small.
func TestChunk(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	var want []llm.Entry
	var last bases
	b := appendChunkHead(nil, chunkHead{1, 500, 1})
	for range 500 {
		e, reserve := randomEntry(r), randomEntry(r)
		want = append(want, e)
		if ends(e.Kind) {
			want = append(want, reserve)
		}
		b = appendPair(b, &e, &reserve, &last)
	}
	var got []llm.Entry
	_, err := readChunk(b, func(_ int, e, reserve *llm.Entry) error {
		got = append(got, *e)
		if reserve != nil {
			got = append(got, *reserve)
		}
		return nil
	})
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%d entries came back as %d, %v", len(want), len(got), err)
	}
}

func TestChunkSize(t *testing.T) {
	var last bases
	var b []byte
	r := llm.Entry{Kind: llm.EntryReserve, Billed: true, OrgID: 3, UserID: 1, KeyID: 7, Label: 202611, Model: "gpt-4o-mini",
		Price: llm.Price{Input: 1_050_000, CachedInput: 525_000, Output: 4_200_000}, Held: 20_000, Usage: llm.Usage{InputTokens: 300}}
	random := rand.New(rand.NewPCG(1, 1))
	for i := range uint64(100) {
		r.ID, r.RequestID, r.AtMS = 3<<40|i, random.Uint64(), 1_790_000_000_000+int64(i/4)
		r.Usage.InputTokens += llm.Tokens(random.IntN(20) - 10)
		r.Held = r.Price.Hold(r.Usage.InputTokens, 4096)
		made := r
		b = appendPair(b, &made, nil, &last)
		e := llm.Entry{Kind: llm.EntrySettle, ID: r.ID, Status: llm.StatusFinalized, AtMS: r.AtMS + 900, Channel: "east", HTTPStatus: 200,
			Usage: llm.Usage{InputTokens: r.Usage.InputTokens, OutputTokens: llm.Tokens(random.IntN(500))}, LatencyMS: int64(random.IntN(900)), FirstMS: int64(random.IntN(300))}
		e.Cost = r.Price.Cost(e.Usage)
		b = appendPair(b, &e, &made, &last)
	}
	if len(b)/100 > 80 {
		t.Errorf("a request takes %d bytes", len(b)/100)
	}
}

// randomEntry is any entry that a caller may append.
func randomEntry(r *rand.Rand) llm.Entry {
	var e llm.Entry
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		for i := range v.NumField() {
			f := v.Field(i)
			if r.IntN(3) == 0 && f.Kind() != reflect.Struct {
				continue
			}
			x := r.Uint64() >> r.IntN(64)
			switch f.Kind() {
			case reflect.Struct:
				walk(f)
			case reflect.Bool:
				f.SetBool(x&1 == 1)
			case reflect.String:
				f.SetString(string(make([]byte, x%100)))
			case reflect.Uint8:
				f.SetUint(x & 255)
			case reflect.Uint64:
				f.SetUint(x)
			case reflect.Int32:
				f.SetInt(int64(int32(x)))
			default:
				f.SetInt(int64(x))
			}
		}
	}
	walk(reflect.ValueOf(&e).Elem())
	e.Kind = llm.EntryKind(1 + r.IntN(5))
	return e
}

// FuzzEntry: decoding never panics, what decodes encodes to an entry that decodes to the same, and every entry
// survives the way there and back.
func FuzzEntry(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		e := randomEntry(r)
		f.Add(appendEntry(nil, &e, &llm.Entry{}), r.Uint64())
	}
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) {
		var e, back llm.Entry
		if rest, err := readEntry(b, &e, alone); err == nil {
			if len(rest) > len(b) {
				t.Fatal("more left than there was")
			}
			if _, err := readEntry(appendEntry(nil, &e, &llm.Entry{}), &back, alone); err != nil || back != e {
				t.Fatalf("%+v came back as %+v, %v", e, back, err)
			}
		}
		random := rand.New(rand.NewPCG(seed, 0))
		made, base := randomEntry(random), randomEntry(random)
		wire := appendEntry(nil, &made, &base)
		if _, err := readEntry(wire, &back, func(llm.EntryKind) *llm.Entry { return &base }); err != nil || back != made {
			t.Fatalf("%+v from %+v came back as %+v, %v", made, base, back, err)
		}
		if rest, err := readEntry(appendEntry(nil, &made, &llm.Entry{}), &back, alone); err != nil || len(rest) != 0 || back != made {
			t.Fatalf("%+v came back as %+v, %v", made, back, err)
		}
	})
}

// FuzzStored: no stored value can make a reader panic or read on for ever.
func FuzzStored(f *testing.F) {
	e := llm.Entry{Kind: llm.EntryReserve, ID: 1, Model: "m"}
	f.Add(appendPair(appendChunkHead(nil, chunkHead{1, 1, 1}), &e, nil, new(bases)))
	f.Add(appendOpen(nil, &open{reserve: &e, output: 3}))
	f.Add(appendAudit(nil, &AuditLine{Seq: 1, Change: Change{Actor: "admin", After: []byte("{}")}}))
	f.Add(appendAnswer(nil, 5, &Change{Answer: []byte("yes")}))
	f.Add(putNumbers(1, -2))
	f.Add(binary.AppendUvarint([]byte{codecVersion, 1}, math.MaxUint64))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		_, _ = readChunk(b, func(int, *llm.Entry, *llm.Entry) error {
			if n++; n > len(b) {
				t.Fatal("more entries than bytes")
			}
			return nil
		})
		if r, err := readOpen(b); err == nil {
			if again, err := readOpen(appendOpen(nil, r)); err != nil || *again.reserve != *r.reserve || again.output != r.output {
				t.Fatalf("%+v came back as %+v, %v", r, again, err)
			}
		}
		if a, err := readAudit(b); err == nil && !bytes.Equal(appendAudit(nil, &a), b) {
			if again, err := readAudit(appendAudit(nil, &a)); err != nil || !reflect.DeepEqual(again, a) {
				t.Fatalf("%+v came back as %+v, %v", a, again, err)
			}
		}
		_, _, _, _ = readAnswer(b)
		var x, y int64
		_ = getNumbers(b, &x, &y)
		_, _ = parseCursor(string(b))
	})
}

func BenchmarkCodec(b *testing.B) {
	e := randomEntry(rand.New(rand.NewPCG(1, 1)))
	e.Model = "gpt-4o-mini"
	base := randomEntry(rand.New(rand.NewPCG(1, 1)))
	base.Model, base.ID, base.AtMS = e.Model, e.ID-1, e.AtMS-3
	own := func(llm.EntryKind) *llm.Entry { return &base }
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		var buf []byte
		for b.Loop() {
			buf = appendEntry(buf[:0], &e, &base)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		buf := appendEntry(nil, &e, &base)
		var back llm.Entry
		for b.Loop() {
			_, _ = readEntry(buf, &back, own)
		}
	})
}
