package proxy

import (
	"encoding/json"
	"testing"
)

func TestUnescape(t *testing.T) {
	for in, want := range map[string]string{
		`plain`: "plain", `a\nb\t\"\\\/\b\f\r`: "a\nb\t\"\\/\b\f\r", `\u4f60\u597d`: "你好", `\ud83d\ude00!`: "😀!", `\ud83dx`: "\ufffdx", `\ude00`: "\ufffd", `\ud83d\u0041`: "\ufffdA",
	} {
		if got := string(appendUnescaped(nil, []byte(in))); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

// FuzzUnescape: on every valid JSON string the result is encoding/json's.
func FuzzUnescape(f *testing.F) {
	for _, s := range []string{`a`, `\n`, `\ud83d\ude00`, `\ud83d`, `\ud83d\ud83d\ude00`, `\u0000`, `\`, `\u12`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := string(appendUnescaped(nil, []byte(s)))
		var want string
		if json.Valid([]byte(`"`+s+`"`)) && json.Unmarshal([]byte(`"`+s+`"`), &want) == nil && validUTF8(s) && got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	})
}

func validUTF8(s string) bool {
	for _, r := range s {
		if r == 0xfffd {
			return false
		}
	}
	return true
}
