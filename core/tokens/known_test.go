package tokens

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

// said is a body of one message, and its head.
func said(t testing.TB, content string) ([]byte, *llm.Head) {
	body, h := []byte(`{"model":"m","messages":[{"role":"user","content":"`+content+`"}]}`), new(llm.Head)
	if err := llm.ScanHead(llm.Chat, body, h); err != nil {
		t.Fatal(err)
	}
	return body, h
}

// What has been counted before counts as it did, in either vocabulary, with escapes and raw.
func TestKnownTextsCountTheSame(t *testing.T) {
	fresh := func() *Counter {
		c := *counter()
		c.known = newKnown()
		return &c
	}
	used := fresh()
	for range 2 {
		for name, text := range corpora(3000) {
			content := strings.Trim(fmt.Sprintf("%q", strings.ToValidUTF8(text, "")), `"`)
			content = strings.NewReplacer(`\x`, `\\x`, `\a`, `\\a`, `\v`, `\\v`, `\U`, `\\U`).Replace(content)
			body, h := said(t, content)
			for _, model := range []string{"gpt-4", "gpt-4o"} {
				for _, raw := range []bool{false, true} {
					for i := range h.Texts {
						h.Texts[i].Raw = raw
					}
					e := used.For(model)
					if got, want := used.Estimate(e, h, body), fresh().Estimate(e, h, body); got != want {
						t.Errorf("%s, %s, raw %v: %d tokens, %d when it is new", name, model, raw, got, want)
					}
				}
			}
		}
	}
}

// A conversation that is too long to be counted at once is counted exactly when most of it is known: of its texts each one
// fits, and is remembered.
func TestLongConversationsAreExactTurnByTurn(t *testing.T) {
	c := counter()
	e := c.For("gpt-4o")
	var turns []string
	want, first := 0, llm.Tokens(0)
	for i := range 40 {
		text := strings.ToValidUTF8(fmt.Sprintf("%d: %s", i, strings.ReplaceAll(corpora(20_000)["chinese"], "\n", "")), "")
		want += exact(c.o200k, text) + perMessage + 1 // the role is a token
		turns = append(turns, `{"role":"user","content":"`+text+`"}`)
		body, h := []byte(`{"model":"m","messages":[`+strings.Join(turns, ",")+`]}`), new(llm.Head)
		if err := llm.ScanHead(llm.Chat, body, h); err != nil {
			t.Fatal(err)
		}
		if first = c.Estimate(e, h, body); int(first) != want+priming {
			t.Fatalf("turn %d, of %d bytes: %d tokens, expected %d", i, len(body), first, want+priming)
		}
	}
	whole := *c
	whole.known = newKnown()
	body, h := []byte(`{"model":"m","messages":[`+strings.Join(turns, ",")+`]}`), new(llm.Head)
	if err := llm.ScanHead(llm.Chat, body, h); err != nil {
		t.Fatal(err)
	}
	if n := whole.Estimate(e, h, body); n <= first {
		t.Errorf("all at once: %d tokens, which should be above the %d that it has: the test shows nothing", n, first)
	}
}

// What the budget ended is not remembered, nor what is short.
func TestKnownKeepsWhatIsExact(t *testing.T) {
	c := *counter()
	c.known = newKnown()
	for _, text := range []string{strings.Repeat("a", knownBytes-1), fill(rand.New(rand.NewPCG(1, 2)), 90_000, dear()["han"])} {
		body, h := said(t, text)
		c.Estimate(c.For("gpt-4o"), h, body)
		for i := range c.known.slots {
			if c.known.slots[i].value.Load() != 0 {
				t.Fatalf("a text of %d bytes is remembered", len(text))
			}
		}
	}
}

func TestKnownConcurrently(t *testing.T) {
	c := *counter()
	c.known = newKnown()
	e := c.For("gpt-4o")
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 300 {
				text := strings.Repeat(fmt.Sprintf("word %d and ", (i+g)%50), 20)
				body, h := said(t, text)
				if got, want := int(c.Estimate(e, h, body)), exact(c.o200k, text)+perMessage+1+priming; got != want { // the role is a token
					t.Errorf("%d tokens, expected %d", got, want)
					return
				}
			}
		})
	}
	all.Wait()
}
