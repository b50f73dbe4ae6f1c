package upstream

import (
	"strings"
	"testing"
)

func TestSecretIsHidden(t *testing.T) {
	for _, tt := range []struct{ credential, in, want string }{
		{"sk-proj-abcdef12", `bad key sk-proj-abcdef12.`, `bad key [redacted].`},
		{"sk-proj-abcdef12", `bad key sk\u002dproj\u002Dabcdef12`, `bad key [redacted]`},
		{"sk-proj-abcdef12", `sk-proj-abcdef12sk-proj-abcdef12`, `[redacted][redacted]`},
		{"sk-proj-abcdef12", `abcdef12 sk-proj-abcdef1 sk-proj\\u002dabcdef12`, `abcdef12 sk-proj-abcdef1 sk-proj\\u002dabcdef12`},
		{"sk-proj-abcdef12", `-abcdef12 sk-proj-abcdef12`, `-abcdef12 [redacted]`},
		{"abcdef12-x/y+z=", `{"k":"abcdef12\u002dx\/y\u002bz\u003d"}`, `{"k":"[redacted]"}`},
		{"a/b/c/d/e", `a/b/c/d/e`, `[redacted]`},
		{"short12", `short12`, `short12`},
		{"", `anything`, `anything`},
		{strings.Repeat("k", 100), strings.Repeat("k", 100) + "k", "[redacted]k"},
	} {
		s := newSecret(tt.credential)
		if got := string(s.hide([]byte(tt.in))); got != tt.want {
			t.Errorf("%s in %s: %s", tt.credential, tt.in, got)
		}
	}
}

// What has no credential in it is not copied.
func TestHidingCopiesNothing(t *testing.T) {
	s := newSecret("sk-proj-abcdef12")
	in := []byte(fiftyEvents())
	if got := s.hide(in); &got[0] != &in[0] {
		t.Error("copied")
	}
	if n := testing.AllocsPerRun(10, func() { s.hide(in) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// A provider that repeats the credential tells no client, whatever it answers with.
func TestCredentialIsNeverRelayedAnywhere(t *testing.T) {
	for _, secret := range []string{`sk-secret-a`, `sk\u002dsecret\u002da`} {
		body := `{"error":{"message":"bad key ` + secret + `"}}`
		for status, body := range map[int]string{200: `{"choices":[{"message":{"content":"bad key ` + secret + `"}}]}`, 400: body} {
			s := newStub(t, func(x *exchange) bool { return x.answer(status, "", body) })
			r := newRig(t, Options{}, openai("a", s.url))
			if _, got, err := r.call(); err != nil || got != strings.Replace(body, secret, "[redacted]", 1) {
				t.Errorf("%d: %v %s", status, err, got)
			}
		}
		s := newStub(t, func(x *exchange) bool {
			x.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"choices\":[]}\n\ndata: " + body + "\n\ndata: " + body + "\n")
			return false
		})
		r := newRig(t, Options{}, openai("a", s.url))
		events, _ := r.stream()
		if got := strings.Join(events, ""); strings.Contains(got, "secret") || strings.Count(got, "[redacted]") != 2 {
			t.Errorf("%s", got)
		}
	}
}

func BenchmarkHide50Events(b *testing.B) {
	raw := []byte(fiftyEvents())
	s := newSecret("sk-proj-hT3dKq81bZvYw0LmNcRxUeJf5aGs7P2o")
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		s.hide(raw)
	}
}
