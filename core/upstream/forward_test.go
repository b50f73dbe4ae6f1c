package upstream

import (
	"strings"
	"testing"

	"github.com/weir-gateway/weir/core/llm"
)

// A client gets no line of id or retry, whatever ends its lines, and everything else as it was.
func TestAppendToLeavesOutWhatResumes(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"data: a\n\n", "data: a\n\n"},
		{"id: 7\ndata: a\n\n", "data: a\n\n"},
		{"data: a\nid: 7\nretry: 10\n\n", "data: a\n\n"},
		{"event: x\nid\ndata: a\nretry\n\n", "event: x\ndata: a\n\n"},
		{"id:7\nid: 8\ndata: a\ndata: id: 7\n\n", "data: a\ndata: id: 7\n\n"},
		{": id: 7\nidx: 7\nretrying: 1\n id: 7\ndata: a\n\n", ": id: 7\nidx: 7\nretrying: 1\n id: 7\ndata: a\n\n"},
		{"id: 7\n: a comment\n\n", ": a comment\n\n"},
		{"id: 7\nretry: 1\n\n", ""},
		{"id: 7\ndata: {broken\n\n", "data: {broken\n\n"},
		{"id: 7\ndata: {\"id\":1,\"usage\":null}\nretry: 1\n\n", "data: {\"id\":1}\n\n"},
		{"data: {\"id\":1,\"usage\":null}\nid: 7", "data: {\"id\":1}\n"},
	} {
		for _, end := range []string{"\n", "\r\n", "\r"} {
			in, want := strings.ReplaceAll(tt.in, "\n", end), strings.ReplaceAll(tt.want, "\n", end)
			var got []byte
			NewParser(llm.Chat).Parse([]byte(in), func(e *Event) { got = e.AppendTo(got, false) })
			if string(got) != want {
				t.Errorf("%q: got %q, want %q", in, got, want)
			}
		}
	}
	NewParser(llm.Chat).Parse([]byte("id: 7\ndata: {\"usage\":null}\n\n"), func(e *Event) {
		if got := string(e.AppendTo([]byte("before\n"), true)); got != "before\ndata: {\"usage\":null}\n\n" {
			t.Errorf("%q", got)
		}
	})
}
