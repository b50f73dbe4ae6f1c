package tokens

import (
	"slices"
	"strings"
	"testing"
)

// The cuts are those of each encoding's regular expression, branch by branch; bars stand between pieces.
func TestPieces(t *testing.T) {
	for _, c := range []struct{ cl100k, o200k string }{
		{"!\n|//|x", "!\n//|x"},
		{"a|!\n\n|//", "a|!\n\n//"},
		{"\u0301ABC", "\u0301|ABC"},
		{"\u0301Abc", "\u0301Abc"},
		{"!\u0301|a", "!\u0301a"},
		{"漢字ABC", "漢字|ABC"},
		{"ABCdef", "ABCdef"},
		{"aBC|'s", "a|BC's"},
		{"it|'ll| go", "it'll| go"},
		{"'S|ab", "'Sab"},
		{"don|'t", "don't"},
		{"it|'\u017f|a", "it'\u017f|a"}, // a long s is an s in another case
		{"A|'\u017e", "A|'\u017e"},
		{"A|'", "A|'"},
		{"123|45", "123|45"},
		{"a| | b", "a| | b"},
		{"a| \n| b", "a| \n| b"},
		{"a| \n\n| | b", "a| \n\n| | b"},
		{"  \n", "  \n"},
		{"a|   ", "a|   "},
		{"x|\u00a0y", "x|\u00a0y"},
		{"\tab", "\tab"},
		{"\n|ab", "\n|ab"},
		{" !|a", " !|a"},
		{" | !", " | !"},
		{"\u01c5a", "\u01c5a"},
		{"\u00aaB", "\u00aa|B"},
	} {
		for name, want := range map[string]string{"cl100k": c.cl100k, "o200k": c.o200k} {
			text := []byte(strings.ReplaceAll(want, "|", ""))
			var got []string
			for i := 0; i < len(text); {
				end := loadClasses().cl100k(text, i)
				if name == "o200k" {
					end = loadClasses().o200k(text, i)
				}
				got = append(got, string(text[i:end]))
				i = end
			}
			if !slices.Equal(got, strings.Split(want, "|")) {
				t.Errorf("%s: %+q, want %+q", name, got, want)
			}
		}
	}
}
