package tokens

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weir-gateway/weir/core/llm"
)

// A stream that comes token by token counts as its text does, whatever the model.
func TestRunningAddsUp(t *testing.T) {
	c := counter()
	words := strings.Split(strings.Repeat("hello ", 200), " ")
	for _, model := range []string{"gpt-4o", "claude-opus-4"} {
		e := c.For(model)
		var r Running
		var text strings.Builder
		for _, w := range words[:200] {
			text.WriteString(" " + w)
			r.Escaped(c, e, []byte(" "+w), false)
		}
		if got, want := r.Escaped(c, e, nil, false), c.Text(e, []byte(text.String())); got != want {
			t.Errorf("%s: %d token by token, %d as a whole", model, got, want)
		}
	}
	e := c.For("claude-opus-4")
	var r Running
	if r.Escaped(c, e, []byte("hi"), false); r.Escaped(c, e, []byte(` \"`), false) != 3 { // 2 x 1.15, up
		t.Error("the factor is not of the sum, rounded up")
	}
}

// However a text is cut, it counts as one: exactly where cuts are at spaces or within words, and within a percent where
// they hide what the pre-tokenizer looks ahead for.
func TestRunningDoesNotDependOnTheCuts(t *testing.T) {
	c := counter()
	r := rand.New(rand.NewPCG(17, 4))
	cut := func(e Encoding, text []byte, size func() int) llm.Tokens {
		var run Running
		for len(text) > 0 {
			n := min(size(), len(text))
			for n < len(text) && !utf8.RuneStart(text[n]) {
				n++
			}
			run.Escaped(c, e, text[:n], false)
			text = text[n:]
		}
		return run.Escaped(c, e, nil, false)
	}
	texts := map[string]string{"spaces behind": strings.Repeat("hello ", 400), "chinese": strings.Repeat("你好，", 300),
		"foo_bar(": strings.Repeat("  foo_bar(", 200)}
	for name, text := range corpora(4_000) {
		if name == "english" || name == "code" || name == "json" || name == "chinese" {
			texts["corpus of "+name] = text
		}
	}
	for name, text := range texts {
		content := bytes.ReplaceAll(bytes.ReplaceAll([]byte(text), []byte(`\`), []byte("/")), []byte(`"`), []byte("'"))
		for _, model := range []string{"gpt-4", "gpt-4o"} {
			e := c.For(model)
			want := c.Text(e, content)
			for size, next := range map[string]func() int{"one by one": func() int { return 1 }, "some": func() int { return 1 + r.IntN(12) }, "many": func() int { return 100 }} {
				if got := cut(e, content, next); got < want-want/100 || got > want+want/100 {
					t.Errorf("%s, %s, %s: %d, as a whole %d", name, model, size, got, want)
				}
			}
		}
	}
}

// Texts of several answers are not taken for one.
func TestRunningApart(t *testing.T) {
	c := counter()
	e := c.For("gpt-4o")
	var r Running
	for range 10 {
		r.Escaped(c, e, []byte("hel"), true)
		r.Escaped(c, e, []byte("lo"), true)
	}
	if got := r.Escaped(c, e, nil, true); got != 20 {
		t.Errorf("%d, want 20", got)
	}
}
