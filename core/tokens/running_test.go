package tokens

import (
	"strings"
	"testing"
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
			r.Escaped(c, e, []byte(" "+w))
		}
		if got, want := r.Escaped(c, e, nil), c.Text(e, []byte(text.String())); got != want {
			t.Errorf("%s: %d token by token, %d as a whole", model, got, want)
		}
	}
	e := c.For("claude-opus-4")
	var r Running
	if r.Escaped(c, e, []byte("hi")); r.Escaped(c, e, []byte(` \"`)) != 3 { // 2 x 1.15, up
		t.Error("the factor is not of the sum, rounded up")
	}
}
