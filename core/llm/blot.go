package llm

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// The bounds of what is taken for a secret by its looks alone: see Blot.
const (
	leastRun  = 24 // characters that hang together
	leastTail = 16 // of those, from the first that cannot be of a name
	mostWord  = 16 // letters of a word of a name
	mostHumps = 2  // of them capitals behind small letters
	mostPart  = 8  // or letters and digits
	ahead     = 64 // by so much of a secret it is known
)

const hidden = "[hidden]"

// shape is how a kind of secret begins, and how many characters of it have to follow: fewer are none.
type shape struct {
	start string
	least int
	has   func(byte) bool // what it consists of
}

var shapes = [...]shape{
	{"sk-", 8, ofKey}, {"sk_live_", 8, ofKey}, {"sk_test_", 8, ofKey}, {"rk_live_", 8, ofKey}, {"rk_test_", 8, ofKey}, {"pk_", 8, ofKey},
	{"ghp_", 8, ofKey}, {"gho_", 8, ofKey}, {"ghu_", 8, ofKey}, {"ghs_", 8, ofKey}, {"ghr_", 8, ofKey}, {"github_pat_", 8, ofKey}, {"glpat-", 8, ofKey},
	{"xoxb-", 8, ofKey}, {"xoxp-", 8, ofKey}, {"xoxa-", 8, ofKey}, {"xoxr-", 8, ofKey}, {"xoxs-", 8, ofKey}, {"xapp-", 8, ofKey}, {"hf_", 8, ofKey},
	{"AKIA", 16, ofCapitals}, {"ASIA", 16, ofCapitals}, {"AIza", 8, ofKey}, {"ya29.", 8, ofToken}, {"eyJ", 8, ofToken},
	{"Bearer ", 8, ofToken}, {"bearer ", 8, ofToken}, {"Basic ", 8, ofToken}, {"basic ", 8, ofToken}, {"-----BEGIN ", 1, ofQuoted},
}

// ownStart begins the gateway's own keys, which are hidden also inside of a word.
const ownStart = "sk-weir-"

// Blot hides what looks like a secret in a text that is about to be said or logged: what begins as the keys and tokens of
// well-known issuers do, and 24 or more letters, digits and signs of base64 that hang together, with capitals or digits among
// small letters. Words joined by _ and /, as the names of models and tools are, hang together and are left; so is all that
// is broken by - and dots.
func Blot(s string) string {
	var out strings.Builder
	done, run, dull := 0, 0, 0 // run: where what hangs together began; dull: until where nothing unknown is
	for i := 0; i < len(s); i++ {
		if !ofRun(s[i]) {
			run = i + 1
		}
		from, to := known(s, i)
		if to == 0 && i >= dull {
			from = i
			to, dull = unknown(s, run, i)
		}
		if to > 0 {
			out.WriteString(s[done:from])
			out.WriteString(hidden)
			done, run, i = to, to, to-1
		}
	}
	if done == 0 {
		return s
	}
	out.WriteString(s[done:])
	return out.String()
}

// known finds a secret of a known shape that begins at i: what of it to hide. Nothing: to is 0.
func known(s string, i int) (from, to int) {
	if i > 0 && ofKey(s[i-1]) && s[i] != '-' && !strings.HasPrefix(s[i:], ownStart) {
		return 0, 0 // in the middle of a word
	}
	for j := range shapes {
		x := &shapes[j]
		if s[i] != x.start[0] || !strings.HasPrefix(s[i:], x.start) {
			continue
		}
		from = i + len(x.start)
		for to = from; to < len(s) && x.has(s[to]); to++ {
		}
		for to > from && s[to-1] == '.' { // of the sentence
			to--
		}
		if to-from >= x.least {
			return from, to
		}
	}
	return 0, 0
}

// unknown tells where a secret ends that begins at i, inside of what hangs together since run; 0: there is none, and no other
// begins before dull.
func unknown(s string, run, i int) (to, dull int) {
	if i > run && s[i-1] != '_' && s[i-1] != '/' || ofName(s[i:]) {
		return 0, 0
	}
	var small, large, digit bool
	for to = i; to < len(s) && ofRun(s[to]); to++ {
		small = small || s[to] >= 'a' && s[to] <= 'z'
		large = large || s[to] >= 'A' && s[to] <= 'Z'
		digit = digit || s[to] >= '0' && s[to] <= '9'
	}
	if to-run < leastRun || to-i < leastTail || !(small && large || digit && (small || large)) {
		return 0, to
	}
	return to, to
}

// ofName tells whether a text begins with a word such as names consist of, or with none.
func ofName(s string) bool {
	letters, humps, n := true, 0, 0
	for n < len(s) && ofRun(s[n]) && s[n] != '_' && s[n] != '/' {
		letters = letters && s[n]|0x20 >= 'a' && s[n]|0x20 <= 'z'
		if n > 0 && s[n] <= 'Z' && s[n-1] >= 'a' {
			humps++
		}
		n++
	}
	return n <= mostPart || letters && n <= mostWord && humps <= mostHumps
}

// Quote gives a text of a client's as an error may say it: in double quotes, without what looks like a secret, and no more of
// it than so many characters.
func Quote[T ~string | ~[]byte](text T, most int) string {
	enough := min(len(text), most*utf8.UTFMax+ahead)
	said := Blot(string(text[:enough]))
	if enough < len(text) && utf8.RuneCountInString(said) <= most { // what was cut off here may be a piece of a secret
		said = strings.TrimRightFunc(said, func(r rune) bool { return r < utf8.RuneSelf && ofToken(byte(r)) })
	}
	return fmt.Sprintf("%.*q", most, said)
}

// Unquoted leaves out of an error's message what stands in double quotes, where texts of clients do: what a log may hold of it.
func Unquoted(message string) string {
	open := strings.IndexByte(message, '"')
	if open < 0 {
		return message
	}
	var out strings.Builder
	for open >= 0 {
		out.WriteString(message[:open])
		out.WriteString("…")
		end := open + 1
		for end < len(message) && message[end] != '"' {
			if message[end] == '\\' {
				end++
			}
			end++
		}
		message = message[min(end+1, len(message)):]
		open = strings.IndexByte(message, '"')
	}
	out.WriteString(message)
	return out.String()
}

func ofKey(c byte) bool      { return c == '-' || c == '_' || ofWord(c) }
func ofToken(c byte) bool    { return c == '-' || c == '.' || ofRun(c) }
func ofRun(c byte) bool      { return c == '_' || c == '+' || c == '/' || c == '=' || ofWord(c) }
func ofCapitals(c byte) bool { return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' }
func ofQuoted(c byte) bool   { return c != '"' }
func ofWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}
