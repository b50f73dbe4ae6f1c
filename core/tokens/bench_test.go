package tokens

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

func BenchmarkCount(b *testing.B) {
	all := corpora(50_000)
	all["one letter"] = strings.Repeat("a", 500)
	all["dashes"] = strings.Repeat("-", 2000)
	for _, encoding := range encodingNames {
		v := vocabOf(encoding)
		for name, text := range all {
			b.Run(encoding+"/"+name, func(b *testing.B) {
				data := []byte(text)
				b.SetBytes(int64(len(data)))
				b.ReportAllocs()
				w := borrow(0)
				defer w.giveBack()
				for b.Loop() {
					w.left = 1 << 40
					w.text(v, data)
				}
				work := 1<<40 - w.left
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(work), "ns/unit")
			})
		}
	}
}

func BenchmarkEstimate1kB(b *testing.B) {
	c := counter()
	e := c.For("gpt-4o-mini")
	body, h := chat(b, 1000)
	digits := body[bytes.Index(body, []byte(`"user","content":"`))+18:][:6]
	for _, known := range []bool{false, true} {
		b.Run(fmt.Sprintf("known=%v", known), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if !known {
					for j, n := len(digits)-1, i; j >= 0; j, n = j-1, n/10 {
						digits[j] = '0' + byte(n%10)
					}
				}
				c.Estimate(e, h, body)
			}
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, encoding := range encodingNames {
		b.Run(encoding, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := loadVocab(encoding + "_base"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// chat is a scanned chat of about n bytes of prose.
func chat(t testing.TB, n int) ([]byte, *llm.Head) {
	body := fmt.Appendf(nil, `{"model":"gpt-4o-mini","messages":[{"role":"system","content":"You are a helpful assistant.\n"},`+
		`{"role":"user","content":%q}],"max_tokens":64}`, corpora(n)["english"])
	h := new(llm.Head)
	if err := llm.ScanHead(llm.Chat, body, h); err != nil {
		t.Fatal(err)
	}
	return body, h
}
