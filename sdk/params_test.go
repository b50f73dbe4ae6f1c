package sdk_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/sdk"
	"github.com/weir-gateway/weir/sdk/abi"
)

// TestSameParams: what the four readers make of a configuration, valid and odd as it may be, is the same: with it the
// policy that is written in all languages answers the same bytes.
func TestSameParams(t *testing.T) {
	t.Parallel()
	var guests []*probe
	var names []string
	for _, lang := range sdk.Languages() {
		if wasm, ok := module(t, same, lang); ok {
			guests, names = append(guests, newProbe(t, lang, wasm)), append(names, lang)
		}
	}
	r := rand.New(rand.NewPCG(3, 5))
	facts := randomFacts(6)
	seen := map[string]bool{}
	for range 60 {
		doc := randomConfig(r)
		if !json.Valid([]byte(doc)) {
			t.Fatalf("the test wrote no JSON: %s", doc)
		}
		var first []byte
		for i, p := range guests {
			got := answers(p.instance(t), doc, len(facts))
			if i == 0 {
				first = got
				seen[string(got)] = true
			} else if !bytes.Equal(got, first) {
				t.Fatalf("%s\n%s % x\n%s % x", doc, names[0], first, names[i], got)
			}
		}
	}
	if len(seen) < 40 {
		t.Errorf("only %d different answers: the documents say too little", len(seen))
	}
}

// answers is what a guest decides, after that configuration, on a few facts.
func answers(g *guest, config string, n int) []byte {
	defer func() { _ = g.mod.Close(g.t.Context()) }()
	out := binary.LittleEndian.AppendUint32(nil, g.configure(config))
	for i := range n {
		code, res := g.decide(map[int]string{
			abi.AttrModel: []string{"gpt-4o", "gpt", "o1"}[i%3], abi.AttrEndUser: []string{"", "eve", "trüdi 😀"}[i%3], abi.AttrLabel0 + i%3: "red-eu",
		}, func(req []byte) {
			le := binary.LittleEndian
			le.PutUint32(req[abi.ReqInputTokens:], uint32(i*5_000))
			le.PutUint32(req[abi.ReqMinuteOfWeek:], uint32(i*1_111))
			le.PutUint64(req[abi.ReqQuotaLimit:], 1_000_000)
			le.PutUint64(req[abi.ReqQuotaUsed:], uint64(i)*300_000)
			le.PutUint32(req[abi.ReqTier:], uint32(i%3))
		})
		out = binary.LittleEndian.AppendUint32(out, code)
		if code == abi.Decided {
			dims := int(binary.LittleEndian.Uint16(res[abi.RespNDims:]))
			arena := int(binary.LittleEndian.Uint32(res[abi.RespArenaUsed:]))
			out = append(append(out, res[:abi.RespDims+dims*abi.DimSize]...), res[abi.RespArena:][:arena]...)
		}
	}
	return out
}

// randomConfig writes a configuration for the fixture whose values are of the right type, mostly.
func randomConfig(r *rand.Rand) string {
	w := &writer{r: r}
	w.object(func(member func(name string)) {
		member("tiers")
		w.list(3, func(i int) { w.text([]string{"free", "pro", "enterprise"}[i]) })
		member("labels")
		w.list(3, func(i int) { w.text([]string{"team", "soft", "region"}[(i+r.IntN(2))%3]) })
		member("params")
		w.object(func(member func(string)) {
			for _, name := range []string{"soft_share_permille", "soft_tpm_permille", "big_tokens", "team_qps", "sample_percent", "strict", "night", "blocked", "models", "downgrade", "x"} {
				if r.IntN(4) > 0 {
					member(name)
					w.param(name)
				}
			}
		})
	})
	return w.String()
}

// writer writes JSON with blanks, escapes and surprises.
type writer struct {
	strings.Builder
	r *rand.Rand
}

func (w *writer) blank() { w.WriteString([]string{"", "", "", " ", "\n\t", "  \r\n"}[w.r.IntN(6)]) }

func (w *writer) object(body func(member func(name string))) {
	w.WriteByte('{')
	first := true
	body(func(name string) {
		if !first {
			w.WriteByte(',')
		}
		first = false
		w.blank()
		w.text(name)
		w.blank()
		w.WriteByte(':')
		w.blank()
	})
	w.blank()
	w.WriteByte('}')
}

func (w *writer) list(n int, element func(i int)) {
	w.WriteByte('[')
	for i := range n {
		if i > 0 {
			w.WriteByte(',')
		}
		w.blank()
		element(i)
		w.blank()
	}
	w.WriteByte(']')
}

// text writes a string with some of its characters as escapes.
func (w *writer) text(s string) {
	w.WriteByte('"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			w.WriteString(`\` + string(c))
		case c > 0xffff && w.r.IntN(2) == 0:
			fmt.Fprintf(w, `\u%04x\u%04X`, 0xd800+(c-0x10000)>>10, 0xdc00+(c-0x10000)&0x3ff)
		case c <= 0xffff && w.r.IntN(12) == 0:
			fmt.Fprintf(w, `\u%04x`, c)
		case c == '/':
			w.WriteString(`\/`)
		default:
			w.WriteRune(c)
		}
	}
	w.WriteByte('"')
}

func (w *writer) odd() {
	w.WriteString([]string{`null`, `true`, `-0`, `1.5`, `2e3`, `99999999999999999999`, `""`, `"\ud83d"`, `[[],{}]`, `{"a":{"b":"}"}}`, `"\"{["`, `-7`}[w.r.IntN(12)])
}

func (w *writer) number(most int) { fmt.Fprint(w, w.r.IntN(most)) }

func (w *writer) param(name string) {
	if w.r.IntN(8) == 0 {
		w.odd()
		return
	}
	words := []string{"eve", "trüdi 😀", "mallory", "", "free", "pro", "gpt", "gpt-4", "a/b\"\\", "o"}
	word := func() { w.text(words[w.r.IntN(len(words))]) }
	switch name {
	case "strict":
		fmt.Fprint(w, w.r.IntN(2) == 0)
	case "downgrade":
		word()
	case "night":
		w.object(func(member func(string)) {
			for _, m := range []string{"from_hour", "to_hour"} {
				member(m)
				w.number(24)
			}
			member("qps_permille")
			w.number(5_000)
		})
	case "blocked":
		w.list(w.r.IntN(5), func(int) { word() })
	case "models":
		w.list(w.r.IntN(4), func(int) {
			w.object(func(member func(string)) {
				member("prefix")
				word()
				member("cost_permille")
				w.number(3_000)
			})
		})
	case "x":
		w.odd()
	default:
		w.number(10_000)
	}
}
