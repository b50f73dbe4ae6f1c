package llm

import "strings"

const (
	keyStart = "sk-"   // of a key, the gateway's own as well as a provider's
	ownStart = "weir-" // after it, of the gateway's own
	leastKey = 8       // bytes after it: a shorter word is none
)

// Blot hides what looks like an API key in a text that is about to be said or logged: "sk-" at the start of a word (of the
// gateway's own keys, anywhere), and the 8 and more characters after it that a key can have.
func Blot(s string) string {
	var out strings.Builder
	done := 0
	for at := 0; ; {
		i := strings.Index(s[at:], keyStart)
		if i < 0 {
			break
		}
		start := at + i
		at = start + len(keyStart)
		if start > 0 && ofKey(s[start-1]) && !strings.HasPrefix(s[at:], ownStart) {
			continue
		}
		end := at
		for end < len(s) && ofKey(s[end]) {
			end++
		}
		if end-at >= leastKey {
			out.WriteString(s[done:at])
			out.WriteString("[hidden]")
			done = end
		}
		at = end
	}
	if done == 0 {
		return s
	}
	out.WriteString(s[done:])
	return out.String()
}

func ofKey(c byte) bool {
	return c == '-' || c == '_' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}
