package weir

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
	"unsafe"
)

// serve registers a policy for one test.
func serve(t *testing.T, configure func(Config) int32, decide func(*Facts, *Decision) int32) {
	Serve(configure, decide)
	t.Cleanup(func() { Serve(nil, nil) })
}

// give configures the module as the host does.
func give(text string) int32 {
	copy(shared.room(int32(len(text))), text)
	return shared.configured(int32(len(text)))
}

func TestNothingRegistered(t *testing.T) {
	if got := shared.decided(); got != Abstained {
		t.Errorf("decided %d", got)
	}
	if got := give(`{}`); got != 0 {
		t.Errorf("configured %d", got)
	}
	if shared.room(-1) != nil || shared.room(ParamsMax+1) != nil || len(shared.room(ParamsMax)) != ParamsMax {
		t.Error("room for what is too large, or none for what is not")
	}
}

func TestServe(t *testing.T) {
	tier := -1
	serve(t, func(c Config) int32 {
		tier = c.Tier("pro")
		return int32(c.Params.Get("code").Integer(0))
	}, func(f *Facts, d *Decision) int32 {
		d.Tier(tier)
		d.Pick(KindCustom).Text("model:").Text(f.Attr(AttrModel))
		return d.Done()
	})
	if got := give(`{"tiers":["free","pro"],"labels":[],"params":{"code":3}}`); got != 3 || tier != 1 {
		t.Errorf("configured %d, tier %d", got, tier)
	}
	f, d := shared.facts, shared.decision
	f.attrs[AttrModel].off, f.attrs[AttrModel].len = ReqStrings, uint32(copy(f.strings[:], "m"))
	for range 2 { // the second starts afresh
		if got := shared.decided(); got != Decided || d.tierPlus1 != 2 || d.nDims != 1 || string(d.arena[:d.arenaUsed]) != "model:m" {
			t.Errorf("decided %d: %+v", got, d.dims[0])
		}
	}
	f.attrs[AttrModel].len = RequestSize // no host writes that
	if got := f.Attr(AttrModel); got != "" {
		t.Errorf("%d bytes of an attribute that reaches over the end", len(got))
	}
	if f.Attr(-1) != "" || f.Attr(NAttr) != "" {
		t.Error("an attribute that does not exist is not absent")
	}
}

// A decision has one message: the later one's.
func TestExplain(t *testing.T) {
	var d Decision
	d.Reset()
	d.Explain(7, "night")
	said := func() string {
		return string(d.arena[d.messageOff-RespArena:][:d.messageLen])
	}
	if d.Reason != 7 || said() != "night" || d.verdict != 0 || d.Done() != Decided {
		t.Errorf("reason %d, %q, verdict %d", d.Reason, said(), d.verdict)
	}
	if d.Deny(403, "closed", 0); said() != "closed" || d.Reason != 7 {
		t.Errorf("after Deny: reason %d, %q", d.Reason, said())
	}
	if d.Explain(8, "late"); said() != "late" || d.Reason != 8 || d.verdict != VerdictDeny || d.status != 403 {
		t.Errorf("after both: reason %d, %q", d.Reason, said())
	}
	if d.Explain(9, string(make([]byte, ArenaSize))); d.Done() != GuestError {
		t.Error("a text that does not fit is no error")
	}
}

func TestWant(t *testing.T) {
	defer func(before uint64) { shared.want = before }(shared.want)
	if shared.want != 0xffff {
		t.Errorf("wants %x before it was said", shared.want)
	}
	if Want(AttrModel, AttrLabel0); shared.want != 0x101 {
		t.Errorf("wants %x", shared.want)
	}
}

func TestBuffers(t *testing.T) {
	for _, p := range []unsafe.Pointer{unsafe.Pointer(shared.facts), unsafe.Pointer(shared.decision)} {
		if uintptr(p)%BufferAlign != 0 {
			t.Errorf("a buffer at %x", p)
		}
	}
}

// TestNoAllocation: a decision that picks, names and compares allocates nothing.
func TestNoAllocation(t *testing.T) {
	serve(t, nil, func(f *Facts, d *Decision) int32 {
		if strings.HasPrefix(f.Attr(AttrModel), "gpt") || On(f.Attr(AttrLabel0)) {
			return Abstained
		}
		d.Pick(KindCustom).Text("model:").Text(f.Attr(AttrModel)).QPSLimit = 1
		return d.Done()
	})
	if n := testing.AllocsPerRun(100, func() { shared.decided() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzJSON holds the reader to encoding/json: on a valid document each member reads the same; on any other text it ends.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{"a":"x\u00e9\ud83d\ude00\ud800\"\\\/\b\f\n\r\t","b":[1,-2,3.5,1e3,{"c":[]}],"c":true,"d":null,"":"" }`,
		` { "a" : { "a" : "}]" } , "b" : [ "[" , { } ] }`, `{"a":900000000000000001,"b":-12,"c":"\ud83d"}`, `{`, `{"a`, `{"a":"\`, `{"a":"\u12`, `[1,`, `{"a":]`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var want map[string]json.RawMessage
		valid := json.Unmarshal([]byte(text), &want) == nil && want != nil && utf8.ValidString(text)
		root := read(text)
		if !valid {
			walk(root, 0)
			return
		}
		for name, raw := range want {
			compare(t, text, root.Get(name), raw)
		}
	})
}

// compare looks at members that appear once: of two, the first one counts here and the last one there.
func compare(t *testing.T, doc string, got JSON, raw json.RawMessage) {
	t.Helper()
	if got.raw() != string(raw) && !twice(doc) {
		t.Fatalf("%q, want %q", got.raw(), raw)
	}
	if twice(doc) {
		return
	}
	var s *string
	if json.Unmarshal(raw, &s) == nil && s != nil && got.String("fallback") != *s {
		t.Errorf("%s: string %q, want %q", raw, got.String("fallback"), *s)
	}
	var n *int64
	if json.Unmarshal(raw, &n) == nil && n != nil && *n < 1e17 && *n > -1e17 && got.Integer(*n+1) != *n {
		t.Errorf("%s: integer %d", raw, got.Integer(*n+1))
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil && len(got.Elements()) != len(list) {
		t.Errorf("%s: %d elements, want %d", raw, len(got.Elements()), len(list))
	}
}

// twice reports whether an object of the document names a member twice.
func twice(doc string) bool {
	dec := json.NewDecoder(strings.NewReader(doc))
	type level struct {
		seen map[string]bool
		key  bool
	}
	var levels []level
	for {
		tok, err := dec.Token()
		if err != nil {
			return false
		}
		top := len(levels) - 1
		switch x := tok.(type) {
		case json.Delim:
			switch x {
			case '{':
				levels = append(levels, level{map[string]bool{}, true})
				continue
			case '[':
				levels = append(levels, level{})
				continue
			}
			levels = levels[:top]
			top--
		case string:
			if top >= 0 && levels[top].key {
				if levels[top].seen[x] {
					return true
				}
				levels[top].seen[x], levels[top].key = true, false
				continue
			}
		}
		if top >= 0 && levels[top].seen != nil {
			levels[top].key = true
		}
	}
}

// walk reads everything that a broken document still has.
func walk(j JSON, depth int) {
	_, _, _, _ = j.String(""), j.Integer(0), j.Bool(false), j.Absent()
	_ = j.Get("a")
	for _, e := range j.Elements() {
		if depth < 4 && len(e.nodes) < len(j.nodes) {
			walk(e, depth+1)
		}
	}
}
